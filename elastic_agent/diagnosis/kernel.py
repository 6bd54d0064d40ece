"""What the kernel tells of a process from outside: its state, what it waits for, its connections, its limits.

All of it is read from /proc and nothing is stopped, so a worker cannot see that it is looked at. What this kernel or
this user is not allowed to read is left out. A path for which a worker waits is never touched: on a dead mount that
would block the agent as well.
"""

# Read each second for each worker: pathlib would take twice the time.
# ruff: noqa: PTH115, PTH123, PTH208

import contextlib
import os
import platform
import re
import struct
import time
from collections.abc import Iterable, Mapping

from ...master.diagnosis.evidence import (
    MAX_CHILDREN,
    MAX_SIGNALS,
    MAX_SOCKETS,
    SPAWNS,
    Blocked,
    Disk,
    Socket,
    ThreadState,
)
from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.host.control_groups import folders_of, memory_limit, used_memory
from ..processes import guardian

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

MAX_POLLED = 64
"""Descriptors of one wait that are looked at."""

_X86 = {
    0: "read", 1: "write", 2: "open", 7: "poll", 17: "pread64", 19: "readv", 20: "writev", 23: "select", 34: "pause",
    35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg",
    61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 130: "rt_sigsuspend", 202: "futex",
    230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat", 270: "pselect6",
    271: "ppoll", 281: "epoll_pwait", 288: "accept4", 332: "statx", 4: "stat", 5: "fstat", 6: "lstat", 87: "unlink",
    128: "rt_sigtimedwait", 56: "clone", 58: "vfork", 435: "clone3",
}  # fmt: skip
_ARM = {
    63: "read", 64: "write", 56: "openat", 73: "ppoll", 67: "pread64", 65: "readv", 66: "writev", 72: "pselect6",
    101: "nanosleep", 203: "connect", 202: "accept", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg",
    260: "wait4", 25: "fcntl", 32: "flock", 82: "fsync", 83: "fdatasync", 133: "rt_sigsuspend", 98: "futex",
    115: "clock_nanosleep", 22: "epoll_pwait", 95: "waitid", 242: "accept4", 79: "newfstatat", 291: "statx",
    137: "rt_sigtimedwait", 220: "clone", 435: "clone3",
}  # fmt: skip
CALLS: Mapping[int, str] = {"x86_64": _X86, "aarch64": _ARM}.get(platform.machine(), {})
"""The system calls that a process may wait in, by their number on this machine."""

_OF_ONE = frozenset(
    ("read", "write", "pread64", "readv", "writev", "connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg",
     "recvmsg", "fcntl", "flock", "fsync", "fdatasync")
)  # fmt: skip
_OF_MANY = frozenset(("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"))
_OF_PATH = {"open": 0, "stat": 0, "lstat": 0, "unlink": 0, "openat": 1, "newfstatat": 1, "statx": 1}
_LISTENS = "0A"
_DEADLINES = {
    "futex": 3, "nanosleep": 0, "clock_nanosleep": 2, "ppoll": 2, "select": 4, "pselect6": 4,
    "rt_sigtimedwait": 2,
}  # fmt: skip
"""Which argument of a call points to the time at which it ends."""
_FUTEX_PRIVATE = 128
MAX_WAITERS = 10_000
"""For one semaphore: a larger number is something else."""

_FUTEX_WAIT = 0
"""The operation whose time is from now on; that of others is of a clock."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a process has used so far.

    Attributes:
        state: of its main thread.
        cpu: seconds of processor.
        main_cpu: the same of its main thread.
        resident: bytes.
        threads: how many.
        switches: how often the main thread has stopped running.
        ready: seconds for which the main thread was ready to run, and had no processor.
        moved: bytes that it has read and written.
    """

    state: str
    cpu: float
    main_cpu: float
    resident: int
    threads: int
    switches: int
    ready: float
    moved: int


def used(pid: int, *, moved: bool = True, without: Iterable[int] = ()) -> Used | None:
    """Of process `pid`; None where it has gone; `without` what these threads of it have used."""
    try:
        fields = guardian.stat_fields(pid)
        main, ready, switches = map(int, _read(f"/proc/{pid}/schedstat").split())
    except (OSError, ValueError, IndexError):
        return None
    cpu = (int(fields[11]) + int(fields[12])) / TICK
    for thread in without:
        with contextlib.suppress(OSError, ValueError, IndexError):
            cpu -= int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[0]) / 1e9
    return Used(
        fields[0].decode(),
        cpu,
        main / 1e9,
        int(fields[21]) * PAGE,
        int(fields[17]),
        switches,
        ready / 1e9,
        _moved(pid) if moved else 0,
    )


_POLLING = ("TP_SHM_reactor",)
"""Names of threads of libraries that look all the time whether something has come: TensorPipe's, of torch's RPC."""


def polling_threads(pid: int) -> tuple[int, ...]:
    """Those of `pid`, whose time on a processor is no sign that it comes on."""
    found = list[int]()
    with contextlib.suppress(OSError):
        for each in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                if _read(f"/proc/{pid}/task/{each}/comm").startswith(_POLLING):
                    found.append(int(each))
    return tuple(found)


def _moved(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = _read(f"/proc/{pid}/io").splitlines()
        return int(lines[0].split()[1]) + int(lines[1].split()[1])
    return 0


def channel(pid: int) -> str:
    """The kernel function in which the main thread waits; empty where it does not, or the kernel does not tell."""
    with contextlib.suppress(OSError):
        found = _read(f"/proc/{pid}/wchan").strip()
        return "" if found == "0" else found[:200]
    return ""


def connections(pids: Iterable[int]) -> dict[int, dict[int, Socket]]:
    """The TCP sockets of each of `pids`, by inode. The kernel's table is read once for each network namespace."""
    inodes = {pid: _sockets(pid) for pid in pids}
    by_network: dict[str, list[int]] = {}
    for pid in inodes:
        with contextlib.suppress(OSError):
            by_network.setdefault(os.readlink(f"/proc/{pid}/ns/net"), []).append(pid)
    found = dict[int, dict[int, Socket]]()
    for those in by_network.values():
        table = _tcp(those, set[int]().union(*(inodes[pid] for pid in those)))
        for pid in those:
            found[pid] = {inode: table[inode] for inode in inodes[pid] if inode in table}
    return {pid: found.get(pid, {}) for pid in inodes}


def _sockets(pid: int) -> set[int]:
    """The inodes of its sockets, of any kind."""
    with contextlib.suppress(OSError):
        targets = (_target(pid, each) for each in os.listdir(f"/proc/{pid}/fd"))
        return {int(target[8:-1]) for target in targets if target.startswith("socket:[")}
    return set()


def _tcp(pids: Iterable[int], inodes: set[int]) -> dict[int, Socket]:
    """The sockets with these inodes in the network namespace of `pids`, of which some may have gone meanwhile."""
    found = dict[int, Socket]()
    for name in ("tcp", "tcp6") if inodes else ():
        for line in _table(pids, name):
            fields = line.split(maxsplit=10)
            # Of many connections most may be others'; those of all workers of a machine may be many.
            if (inode := int(fields[9])) in inodes:
                local, remote = _address(fields[1]), _address(fields[2])
                unsent, retries = int(fields[4].partition(":")[0], 16), int(fields[6], 16)
                found[inode] = Socket(local, remote, unsent, retries, fields[3] == _LISTENS)
    return found


def _table(pids: Iterable[int], name: str) -> list[str]:
    for pid in pids:
        with contextlib.suppress(OSError):
            return _read(f"/proc/{pid}/net/{name}").splitlines()[1:]
    return []


def _address(text: str) -> str:
    """`0100007F:1F90` is 127.0.0.1:8080: each four bytes are in this machine's order."""
    host, _, port = text.partition(":")
    words = [struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8)]
    raw = b"".join(words)
    if len(raw) == 16 and raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    if len(raw) == 4:
        return f"{'.'.join(map(str, raw))}:{int(port, 16)}"
    shown = "::1" if raw == b"\0" * 15 + b"\x01" else ":".join(raw[at : at + 2].hex() for at in range(0, 16, 2))
    return f"[{shown}]:{int(port, 16)}"


def network() -> str:
    """Names this network namespace of this machine; empty where that is not known."""
    with contextlib.suppress(OSError):
        return f"{_read('/proc/sys/kernel/random/boot_id').strip()} {os.readlink('/proc/self/ns/net')}"
    return ""


def thread_state(pid: int, number: int, sockets: Mapping[int, Socket], *, child: bool = False) -> ThreadState | None:
    """One thread of process `pid`; None where it has gone."""
    try:
        state = guardian.stat_fields(f"{pid}/task/{number}")[0].decode()
        ran, ready, _ = map(int, _read(f"/proc/{pid}/task/{number}/schedstat").split())
    except (OSError, ValueError, IndexError):
        return None
    return ThreadState(number, child, state, (ran + ready) / 1e9, blocked(pid, sockets, number))


def blocked(pid: int, sockets: Mapping[int, Socket], thread: int | None = None) -> Blocked:
    """What a thread of `pid`, or its main thread, waits for; `sockets`: the connections of `pid`."""
    try:
        number, *arguments = _read(f"/proc/{pid}/task/{thread or pid}/syscall").split()
        call = CALLS.get(int(number), "")
        values = [int(each, 16) for each in arguments]
    except (OSError, ValueError):
        return Blocked()
    found = _blocked(pid, thread or pid, call, values, sockets)
    return replace(found, ends=_ends(pid, call, values))


def _blocked(pid: int, thread: int, call: str, values: list[int], sockets: Mapping[int, Socket]) -> Blocked:
    if call == "futex":
        return Blocked(call, "lock", semaphore=_is_semaphore(pid, values), shared=not values[1] & _FUTEX_PRIVATE)
    if call in ("wait4", "waitid", *SPAWNS):
        return Blocked(call, "child")
    if call in ("nanosleep", "clock_nanosleep"):
        return Blocked(call, "time")
    if call in ("pause", "rt_sigsuspend", "rt_sigtimedwait"):
        return Blocked(call, "signal")
    if call in _OF_ONE:
        return _on(pid, thread, call, [values[0]], sockets)
    if call in _OF_PATH:
        path = _text(pid, values[_OF_PATH[call]])
        return Blocked(call, "pipe" if _in_pipe(thread) else "file", path[:200])
    if call in _OF_MANY:
        descriptors = _polled(pid, call, values)
        return _on(pid, thread, call, descriptors, sockets) if descriptors else Blocked(call, "time")
    return Blocked(call)


def _is_semaphore(pid: int, values: list[int]) -> bool:
    """Whether a futex is that of a semaphore of the C library's, in memory that its process shares with none."""
    if not values[1] & _FUTEX_PRIVATE or values[0] % 16:  # allocated by itself
        return False
    value, waiters, shared, rest = struct.unpack("=IIII", _memory(pid, values[0], 16) or b"\xff" * 16)
    return value == shared == rest == 0 < waiters <= MAX_WAITERS


def _ends(pid: int, call: str, values: list[int]) -> float | None:
    """Seconds after which a wait ends by itself, at most; None: it does not, or that is not known."""
    if call in ("poll", "epoll_wait", "epoll_pwait"):
        milliseconds = values[2 if call == "poll" else 3] & 0xFFFFFFFF
        return None if milliseconds >= 1 << 31 else milliseconds / 1000
    at = _DEADLINES.get(call)
    raw = _memory(pid, values[at], 16) if at is not None else b""
    if not raw:
        return None
    seconds, fraction = struct.unpack("=qq", raw)
    ends = seconds + fraction / (1e6 if call == "select" else 1e9)
    if call == "clock_nanosleep" and values[1] & 1:
        return max(0.0, ends - time.clock_gettime(values[0] & 0xFF))
    if call == "futex" and values[1] & 0x7F != _FUTEX_WAIT:
        return max(0.0, ends - time.clock_gettime(time.CLOCK_REALTIME if values[1] & 0x100 else time.CLOCK_MONOTONIC))
    return ends


def _on(pid: int, thread: int, call: str, descriptors: list[int], sockets: Mapping[int, Socket]) -> Blocked:
    """The wait for one or more descriptors: connections count more than all else."""
    targets = {each: _target(pid, each) for each in descriptors}
    found = [
        socket
        for target in targets.values()
        if target.startswith("socket:[") and (socket := sockets.get(int(target[8:-1])))
    ]
    connected = [each for each in found if not each.listens]
    if connected:
        return Blocked(call, "socket", connected[0].remote, tuple(connected[:MAX_SOCKETS]))
    if found:
        return Blocked(call, "listener", found[0].local)
    for target in targets.values():
        if target.startswith("socket:["):
            return Blocked(call, "local socket", "a local socket")
        if target.startswith("pipe:["):
            return Blocked(call, "pipe", "a pipe")
        if target.startswith("/"):
            if target.startswith(("/dev/pts/", "/dev/tty")):
                return Blocked(call, "terminal", target[:200])
            # A file is always ready, so that nobody waits in `poll` for one.
            named = (call in _OF_MANY and not target.startswith("/dev/")) or _in_pipe(thread)
            held = _holders(pid) if call in ("flock", "fcntl") else ()
            return Blocked(call, "pipe" if named else "file", target[:200], holders=held)
    return Blocked(call)


_LOCK = re.compile(r"^(\d+):\s+(-> )?(?:\S+\s+){3}(\d+) ", re.M)


def _holders(pid: int) -> tuple[int, ...]:
    """The processes that hold the lock on a file for which `pid` waits, the first MAX_CHILDREN; none: not known."""
    with contextlib.suppress(OSError):
        locks = [(number, waits, int(owner)) for number, waits, owner in _LOCK.findall(_read("/proc/locks"))]
        wanted = {number for number, waits, owner in locks if waits and owner == pid}
        if len(wanted) == 1:  # of several threads that wait for several it is not known which is whose
            held = (owner for number, waits, owner in locks if number in wanted and not waits)
            return tuple(each for each in held if each)[:MAX_CHILDREN]
    return ()


def _target(pid: int, descriptor: int | str) -> str:
    """What a descriptor is of; empty where it is closed meanwhile."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")
    return ""


def _in_pipe(pid: int) -> bool:
    """Whether it waits in the kernel's functions of pipes, which open named ones too: its path is not touched."""
    return any(part in channel(pid) for part in ("pipe", "fifo", "wait_for_partner"))


def _polled(pid: int, call: str, values: list[int]) -> list[int]:
    """The descriptors that a call waits for; empty where it only waits for time."""
    if call in ("poll", "ppoll"):
        raw = _memory(pid, values[0], 8 * min(values[1], MAX_POLLED))
        return [fd for fd, _, _ in struct.iter_unpack("=ihh", raw) if fd >= 0] if raw else []
    if call in ("select", "pselect6"):
        size = (min(values[0], 1024) + 7) // 8
        sets = [_memory(pid, pointer, size) for pointer in values[1:3] if pointer]
        return [8 * at + bit for raw in sets for at, byte in enumerate(raw) for bit in range(8) if byte >> bit & 1]
    found = list[int]()
    with contextlib.suppress(OSError):
        found = [int(each) for each in re.findall(r"^tfd:\s*(\d+)", _read(f"/proc/{pid}/fdinfo/{values[0]}"), re.M)]
    return found[:MAX_POLLED]


def _memory(pid: int, address: int, size: int) -> bytes:
    """So many bytes of its memory; empty where that cannot be read."""
    if not address or size <= 0:
        return b""
    with contextlib.suppress(OSError, OverflowError, ValueError):
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        try:
            raw = os.pread(descriptor, size, address)
        finally:
            os.close(descriptor)
        return raw if len(raw) == size else b""
    return b""


def _text(pid: int, address: int) -> str:
    page = PAGE - address % PAGE
    raw = _memory(pid, address, min(page, 400)) or _memory(pid, address, min(page, 16))
    return raw.partition(b"\0")[0].decode(errors="replace")


def descriptors(pid: int) -> tuple[int, int]:
    """How many files `pid` has open, and how many it may have; 0 where that is not known."""
    count = limit = 0
    with contextlib.suppress(OSError):
        count = len(os.listdir(f"/proc/{pid}/fd"))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = re.search(r"^Max open files\s+(\d+)", _read(f"/proc/{pid}/limits"), re.M)
        limit = int(found[1]) if found else 0
    return count, limit


_ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/dri/render")
_SOME = 512
"""Descriptors of a process, the first and the last, among which its accelerator is looked for."""


def uses_accelerator(pid: int) -> bool:
    """Whether `pid` has a GPU or the like open."""
    with contextlib.suppress(OSError):
        names = os.listdir(f"/proc/{pid}/fd")
        some = names if len(names) <= 2 * _SOME else [*names[:_SOME], *names[-_SOME:]]
        return any(_target(pid, each).startswith(_ACCELERATORS) for each in some)
    return False


def waits(pid: int) -> int | None:
    """How often the main thread of `pid` has stopped running by itself, to wait for something; None: not known."""
    with contextlib.suppress(OSError):
        found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", _read(f"/proc/{pid}/status"), re.M)
        return int(found[1]) if found else None
    return None


def handled_signals(pid: int) -> tuple[int, ...]:
    """Those for which `pid` has handlers; none where that is not known."""
    with contextlib.suppress(OSError):
        found = re.search(r"^SigCgt:\s+([0-9a-f]+)", _read(f"/proc/{pid}/status"), re.M)
        mask = int(found[1], 16) if found else 0
        return tuple(each for each in range(1, MAX_SIGNALS + 1) if mask >> (each - 1) & 1)
    return ()


def has_timers(pid: int) -> bool:
    """Whether `pid` has timers of POSIX; not where that is not known."""
    with contextlib.suppress(OSError):
        return bool(_read(f"/proc/{pid}/timers"))
    return False


def memory() -> tuple[int, int]:
    """Bytes that are used, without what the kernel can take back, and that may be: of the control group, else of all.

    Where neither can be read, zeros.
    """
    used_here = limit = 0
    with contextlib.suppress(OSError, ValueError, LookupError):
        fields = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines())
        total, free = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
        used_here, limit = total - free, total
    for folder in folders_of("self", "memory"):
        with contextlib.suppress(OSError, ValueError):
            most, held = memory_limit(folder), used_memory(folder)
            if not limit or held * limit > used_here * most:
                used_here, limit = held, most
    return used_here, limit


def throttled(pid: int) -> float:
    """Seconds for which a control group of `pid` had used up its quota of processors; 0 where that is not known."""
    seconds = 0.0
    for folder in folders_of(pid, "cpu"):
        with contextlib.suppress(OSError):
            if found := re.search(r"^throttled_(usec|time) (\d+)", (folder / "cpu.stat").read_text(), re.M):
                seconds = max(seconds, int(found[2]) / (1e6 if found[1] == "usec" else 1e9))
    return seconds


def processes() -> tuple[int, int]:
    """Processes and threads of the control group that has the narrowest limit of them, and that limit; else zeros."""
    found = (0, 0)
    for folder in folders_of("self", "pids"):
        with contextlib.suppress(OSError, ValueError):
            most, now = int((folder / "pids.max").read_text()), int((folder / "pids.current").read_text())
            if not found[1] or now * found[1] > found[0] * most:
                found = now, most
    return found


def disk(path: str) -> tuple[int, Disk] | None:
    """The file system of `path`, with what names it; None where there is none. Blocks for good on a dead mount."""
    with contextlib.suppress(OSError):
        found = os.statvfs(path)
        return found.f_fsid, Disk(path[:200], found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
    return None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
