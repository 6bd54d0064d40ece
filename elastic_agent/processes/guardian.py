"""What outlives the agent for a moment: a small process that leaves none of its workers behind.

The agent holds the writing end of a pipe to it. When the agent is gone (end of file) or stopped for longer than its
lease allows (silence), the guardian kills the workers' sessions and everything that carries the agent's tag, again and
again until nothing is left. An agent that has seen for itself that nothing is left says so, and the guardian just ends.
`guard.py` is the agent's side; here is the process itself, run by path as `python -I -S guardian.py TAG SILENCE`, so
that it needs the standard library only and starts with little memory.

What it cannot find: a process that has left its session *and* runs in an environment without the tag. The agent finds
that as well, as long as it lives: such a process is given to it when its own parent ends.
"""

# pathlib would double the guardian's start-up and memory.
# ruff: noqa: PTH110, PTH115, PTH123, PTH208

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

TAG_VARIABLE = "ELASTIC_RUN_TAG"
"""In every worker's environment: the tags of the agents that it belongs to, joined by commas (agents may be nested)."""

SWEEP_SECONDS = 10.0
"""How long a guardian whose agent is gone tries to kill what is left."""

TRACKER_SECONDS, BUSY_TRACKER_SECONDS = 0.5, 5.0
"""How long a tracker has to remove what dead processes left in shared memory; the second where it is busy."""

LOOK_AGAIN_SECONDS = 0.05
"""Between two looks at processes where no descriptor was left for the first."""

LOADING_SECONDS, LOADING_LOOKS = 0.002, (5, 100)
"""Between two looks at a process whose program is being loaded, so that it shows no environment yet, and how many more:
where the kernel does not tell it from one that was started without any, and where it does."""

_BLIND = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that tell of this machine, not of the process that was looked at: it may well be there."""

# Who runs on this machine: shared by the guardian and by the agent's own stop. Each look needs a descriptor; where
# there is none, it raises OSError, because "I cannot see anybody" must not be read as "nobody is there".


class Process(NamedTuple):
    """One line of /proc. `started` is in clock ticks since boot: with `pid` it names a process for good. `used` is in
    seconds of processor. `threads` counts those that nobody has collected, the first one included. `status` is
    how a zombie has ended, as `os.waitstatus_to_exitcode` reads it; also 0 where the kernel does not tell."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    started: int
    used: float = 0.0
    threads: int = 1
    status: int = 0

    @property
    def alive(self) -> bool:
        """It still runs: a zombie does not. `state` is that of the first thread, which may end before the others."""
        return self.state not in "ZX" or self.threads > 1


def _has_our_numbers() -> bool:
    """/proc has the process ids of this process's namespace. After `unshare --pid` without `--mount-proc` its numbers
    are those of other processes: then nobody can be looked up, as where no /proc is mounted."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError as error:
        _raise_if_blind(error)
        return False


def process(pid: int) -> Process | None:
    """What /proc says of `pid`; None where there is no such process, or /proc does not tell."""
    if not _has_our_numbers():
        return None
    try:
        fields = stat_fields(pid)
    except OSError as error:
        _raise_if_blind(error)
        return None
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    parent, group, session, threads, started, status = (int(fields[index]) for index in (1, 2, 3, 17, 19, 49))
    return Process(pid, parent, group, session, fields[0].decode(), started, used, threads, status)


def processes() -> Iterator[Process]:
    """Every process that /proc shows; nobody where it does not tell."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := process(int(name))):
            yield found


def children(pid: int) -> list[int] | None:
    """The children of every thread of `pid`, zombies included; None where this kernel does not tell."""
    found: list[int] = []
    if not _has_our_numbers():
        return found
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError as error:
        _raise_if_blind(error)
        return []
    for thread in threads:
        try:
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        except FileNotFoundError:
            if thread == str(pid) and os.path.exists(f"/proc/{pid}/task/{thread}"):
                return None  # built without CONFIG_PROC_CHILDREN
        except OSError as error:
            _raise_if_blind(error)
    return found


def descendants(root: int) -> Iterator[Process]:
    """Every descendant of `root`, parents before their children."""
    if children(root) is None:
        by_parent: dict[int, list[Process]] = {}
        for found in processes():
            by_parent.setdefault(found.parent, []).append(found)
        waiting = [root]
        while waiting:
            below = by_parent.get(waiting.pop(), [])
            yield from below
            waiting += [child.pid for child in below]
        return
    # A process whose parent ends meanwhile moves to `root` (a subreaper): look there until nobody new has come.
    seen: set[int] = set()
    while waiting := [pid for pid in children(root) or () if pid not in seen]:
        while waiting:
            pid = waiting.pop()
            seen.add(pid)
            if found := process(pid):
                yield found
            waiting += [child for child in children(pid) or () if child not in seen]


def started_with(pid: int, variable: str) -> bool:
    """`pid` was started with `variable` in its environment, or that cannot be read."""
    name, entries = f"{variable}=".encode(), _environment(pid)
    return not entries or any(entry.startswith(name) for entry in entries)


def _environment(pid: int) -> list[bytes]:
    """The environment that `pid` was started with: no entry where it cannot be read, an empty one where it has none."""
    try:
        text = _read(f"/proc/{pid}/environ") or _environment_once_loaded(pid)
    except OSError as error:
        _raise_if_blind(error)
        return []
    return text.split(b"\0")


def _environment_once_loaded(pid: int) -> bytes:
    """Empty where it has none, and where its program takes too long to be loaded. Raises OSError."""
    for _ in range(LOADING_LOOKS[_environment_end("self") > 0]):
        if loading := _is_loading(pid):
            time.sleep(LOADING_SECONDS)
        text = _read(f"/proc/{pid}/environ")  # in any case: it may have been loaded since the last look
        if text or not loading:
            return text
    return b""


def _is_loading(pid: int) -> bool:
    """It has memory, which kernel threads and zombies have not, and its environment has no place there yet."""
    return _read(f"/proc/{pid}/statm").split()[:1] not in ([], [b"0"]) and not _environment_end(pid)


def _environment_end(pid: int | str) -> int:
    """Where the environment of `pid` ends in its memory; 0: not yet, or the kernel does not tell."""
    return int(stat_fields(pid)[48])


def stat_fields(of: int | str) -> list[bytes]:
    """What follows the name of a process, or of a thread `PID/task/TID`; the name may hold anything. Raises OSError."""
    text = _read(f"/proc/{of}/stat")
    return text[text.rindex(b")") + 2 :].split()


def waited(pid: int) -> float:
    """Seconds for which threads of `pid` could have run and waited for a processor; 0 where the kernel does not tell.

    Of threads that still run.
    """
    found = 0
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError as error:
        _raise_if_blind(error)
        return 0.0
    for thread in threads:
        try:
            found += int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1])
        except OSError as error:
            _raise_if_blind(error)
    return found / 1e9


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def service_tag(tag: str) -> str:
    """What the services of the agent with `tag` carry beside it: what they start in a session of its own is known by
    it, and is none of the script's."""
    return f"{tag}.service"


def carries(pid: int, tag: str) -> bool:
    """`pid` was started (it or the process that it was forked from) with `tag` in its environment."""
    name = f"{TAG_VARIABLE}=".encode()
    for entry in _environment(pid):
        if entry.startswith(name):
            return tag.encode() in entry[len(name) :].split(b",")
    return False


def words_of(pid: int) -> list[bytes]:
    """The command line of `pid`; empty where it cannot be read."""
    try:
        return _read(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0")
    except OSError as error:
        _raise_if_blind(error)
        return []


def command_of(pid: int) -> str:
    """The command line of `pid` for a person, cut; empty where it cannot be read."""
    text = " ".join(b" ".join(words_of(pid)).decode(errors="replace").split())
    return text if len(text) <= 60 else text[:56].rstrip() + " ..."


def is_tracker(words: Sequence[bytes]) -> bool:
    """So started is who removes what dead processes have left in shared memory: Python's or joblib's tracker."""
    if b"-c" not in words:
        return False
    return any(b"resource_tracker import main;" in word for word in words[words.index(b"-c") + 1 :][:1])


def is_manager(words: Sequence[bytes]) -> bool:
    """So started is who does the same for torch, and only 2 s after their end: it is let live, and ends itself."""
    return words[:1] == [b"torch_shm_manager"]


class Mercy:
    """Spares trackers until TRACKER_SECONDS after all others have ended, look after look."""

    def __init__(self) -> None:
        self._alone = float("inf")  # since then only trackers are left

    def condemned(self, left: Sequence[Process], now: float) -> list[Process]:
        """Those that are to be killed now: nobody while only trackers are `left`, and all when their time is over."""
        others = [found for found in left if not is_tracker(words_of(found.pid))]
        self._alone = self._alone if others else min(self._alone, now)
        busy = any(found.state in "RD" for found in left)
        return others if now < self._alone + (BUSY_TRACKER_SECONDS if busy else TRACKER_SECONDS) else list(left)


def belonging(candidates: Iterable[Process], sessions: Collection[int], tag: str | None) -> list[Process]:
    """Those of `candidates` that still run and are in one of `sessions`, carry `tag`, or descend from one that does."""
    everyone = {found.pid: found for found in candidates}
    everyone.pop(os.getpid(), None)
    ours = {pid for pid, found in everyone.items() if found.session in sessions or (tag and carries(pid, tag))}
    grown = True
    while grown:
        below = {pid for pid, found in everyone.items() if found.parent in ours and pid not in ours}
        ours |= below
        grown = bool(below)
    return [everyone[pid] for pid in ours if everyone[pid].alive]


def open_process(found: Process) -> int | None:
    """A pidfd of this very process, which the caller closes; None where it is gone (its pid may have a new owner)."""
    try:
        handle = os.pidfd_open(found.pid)
    except OSError as error:
        _raise_if_blind(error)
        return None
    try:
        now = process(found.pid)
    except OSError:
        os.close(handle)
        raise
    if now is None or now.started != found.started:
        os.close(handle)
        return None
    return handle


def send(found: Process, signum: int) -> None:
    """Signals this very process, never a later owner of its pid."""
    handle = open_process(found)
    if handle is None:
        return
    try:
        signal.pidfd_send_signal(handle, signum)
    except OSError:
        pass  # it ended, or it is another user's (a setuid program): it stays among those left
    finally:
        os.close(handle)


def _raise_if_blind(error: OSError) -> None:
    if error.errno in _BLIND:
        raise error


# The process itself.


class _Watch:
    """What the guardian knows: fed with the agent's words, asked whether it is time to strike."""

    def __init__(self) -> None:
        self.sessions: set[int] = set()
        self.paused = False
        self.quiet = 0.0
        self.struck = False
        self.ended = False
        self._rest = b""

    def hear(self, data: bytes) -> None:
        self.quiet, self.struck, self.paused = 0.0, False, False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"watch":
                self.sessions.add(int(number))
            elif word == b"forget":
                self.sessions.discard(int(number))
            elif word == b"pause":
                self.paused = True
            elif word == b"end":
                self.ended = True

    def waited(self, asked: float) -> None:
        """Nothing was heard in a wait of `asked` seconds, however long it took.

        Silence is counted in own waits, not by a clock: time in which this process was itself stopped (Ctrl-Z of all, a
        frozen container) is at most one of them, because then the agent may have been stopped, too.
        """
        if not self.paused:
            self.quiet += asked


def sweep(sessions: Collection[int], tag: str, seconds: float) -> list[Process] | None:
    """Kill all that belongs to `sessions` or `tag` until nothing is left, for at most `seconds`; who is left.

    None where it never could look.
    """
    until, mercy = time.monotonic() + seconds, Mercy()
    left: list[Process] | None = None
    while True:
        handles, condemned = list[int](), list[Process]()
        try:
            left = [each for each in belonging(processes(), sessions, tag) if not is_manager(words_of(each.pid))]
            condemned = mercy.condemned(left, time.monotonic())
            for found in condemned or left:
                if (handle := open_process(found)) is not None:
                    handles.append(handle)
        except OSError:  # as many as there are descriptors for; the others come next
            if not handles:
                select.select([], [], [], LOOK_AGAIN_SECONDS)
        for handle in handles if condemned else ():
            try:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            except OSError:
                continue  # it ended, or it is another user's
        _await_ends(handles, until if condemned else min(until, time.monotonic() + TRACKER_SECONDS))
        for handle in handles:
            os.close(handle)
        if left == [] or time.monotonic() >= until:
            return left


def _await_ends(handles: list[int], until: float) -> None:
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    waiting = len(handles)
    while waiting and (rest := until - time.monotonic()) > 0:
        for handle, _ in poll.poll(rest * 1000):
            poll.unregister(handle)
            waiting -= 1


def main(tag: str, silence: float | None) -> int:
    """Stand guard until the agent closes the pipe or is gone; returns the exit code."""
    watch = _Watch()
    asked = None if silence is None else min(1.0, silence / 4)
    while True:
        readable, _, _ = select.select([0], [], [], asked)
        if readable:
            data = os.read(0, 65536)
            if not data:
                break
            watch.hear(data)
            if watch.ended:
                return 0
        elif silence is not None and asked is not None:
            watch.waited(asked)
            if watch.quiet >= silence and not watch.struck:
                watch.struck = True
                sweep(watch.sessions, tag, SWEEP_SECONDS)
    return 0 if sweep(watch.sessions, tag, SWEEP_SECONDS) == [] else 1


if __name__ == "__main__":
    # No interpreter teardown: the agent waits for this end.
    os._exit(main(sys.argv[1], None if sys.argv[2] == "never" else float(sys.argv[2])))
