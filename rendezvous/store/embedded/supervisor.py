"""Keeps one embedded etcd: starts it, outlives the agent that asked for it, and stops it when no job needs it.

Run by path as `python -I -S supervisor.py ...`, so that it loads nothing but the standard library and `gateway`, and
stays small.
It detaches itself (its own session, two forks), prints its process id, and holds the lock of its member's port.
etcd dies with it, and it ends with etcd.

It stops etcd when no agent of this machine uses the store and no job has had a leased node key for `--linger` seconds,
and then removes the member's data: the next store at this address begins empty. After any other end (a signal, a lost
quorum that nobody waits for) the data stays, and the next member here comes back with it.

An agent says that it uses the store by a shared lock on the file `--users`, which the kernel releases when the agent's
process ends. A lease says less: it also ends under an agent that is stopped (Ctrl-Z, a paused container), and that
agent needs its store when it goes on. (While a machine sleeps, the monotonic clock of its processes stands still, so
neither leases nor the times here run on.)

An etcd that has served and ends by itself is started again on its data, for as long as somebody may need it. Where the
disk was full it comes back as soon as there is room. One that ends so often in vain is given up: its data may be
damaged, and whoever waits for the port hears so. A supervisor that is killed leaves its process id and command line in
the lock's file, by which agents know that it is to be restarted (`watchdog`); one that ends otherwise removes it.

etcd keeps the history of all keys. The supervisor bounds it in bytes, which etcd itself does not, and ends a space
alarm.
"""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from socket import socket
if TYPE_CHECKING or __package__:
    from .gateway import JOBS, encoded, is_whole, keys_under, node_keys, read_answer, request
else:  # run by path
    sys.path.append(os.path.dirname(__file__))  # noqa: PTH120
    from gateway import JOBS, encoded, is_whole, keys_under, node_keys, read_answer, request

EXITED = "etcd exited by itself with status"  # in its log, where `watchdog` looks for it
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 5.0  # for etcd's orderly stop, which hands its leadership over
_ASK_SECONDS = 2.0
_DEATHS = 3  # before there is a pause between two starts
_LONGEST_PAUSE = 10.0
_LIVED_SECONDS = 2.0
_VAIN = 8  # starts; with their pauses they take 15 s, within which a taken port passes
_STEADY_SECONDS = 10.0  # damaged data may let it answer, and end at the first request that reads there
_STILL_SECONDS = 5.0  # a silence of etcd that is longer proves nothing about the nodes
_TOUCH_SECONDS = 3600.0
_SPACE_SECONDS = 5.0
_HISTORY_BYTES = 64 * 1024 * 1024
_DEFRAGMENT_SECONDS = 60.0
ROOM_BYTES = 64 * 1024 * 1024  # etcd makes its log of writes in files of this size, and ends where there is less room
_LOG_BYTES = 16 * 1024 * 1024  # a member whose peers are gone complains every few seconds, for as long as it lives

# The decision, pure.


@dataclass(frozen=True, slots=True)
class Seen:
    """What the supervisor knows. Instants are seconds on one monotonic clock; None: not yet.

    Attributes:
        started: when etcd was started.
        answered: when etcd first answered; where no node has come yet, after its last silence.
        heard: when etcd last answered.
        nodes: when a leased node key was last there.
        led: when the member last knew a leader.
        orphaned: since when no agent on this machine uses the store.
    """

    started: float
    answered: float | None = None
    heard: float | None = None
    nodes: float | None = None
    led: float | None = None
    orphaned: float | None = None


Verdict = Literal["keep", "retire", "stop"]


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds.

    Attributes:
        linger: without a node, before the store retires.
        grace: for the first node to come, and for a store whose agent is dead to find its quorum.
        forsaken: without a leader and without an agent on this machine, before a member gives up.
    """

    linger: float = 10.0
    grace: float = 60.0
    forsaken: float = 600.0


def judge(seen: Seen, patience: Patience, now: float) -> tuple[Verdict, str]:
    """Keep the member, retire it with its data, or stop it and leave the data; and why."""
    if seen.orphaned is None:
        return "keep", "an agent on this machine uses it"
    if seen.answered is None:
        if now - max(seen.orphaned, seen.started) >= patience.grace:
            return "stop", f"etcd never answered, and no agent on this machine has used it for {patience.grace:g} s"
        return "keep", "it does not answer yet"
    last = seen.answered if seen.nodes is None else seen.nodes
    if (seen.heard or 0.0) - max(seen.orphaned, last) >= patience.linger:  # silence is no evidence
        if seen.nodes is None:
            return "retire", "the agent that started it exited before any node registered"
        return "retire", f"no job has had a node for {patience.linger:g} s"
    led = max(seen.answered, seen.led or 0.0)
    if now - max(seen.orphaned, led) >= patience.forsaken:
        return "stop", f"no agent on this machine uses it, and etcd has had no leader for {patience.forsaken:g} s"
    return "keep", "a job needs it, or may soon"


def heard(seen: Seen, nodes: bool, now: float) -> Seen:
    """etcd has said whether a node is there.

    After a silence the time without a node begins anew: etcd or this process stood still, and the nodes with it, so
    that their leases ended and they have had no time to register again.
    """
    still = seen.heard is not None and now - seen.heard >= _STILL_SECONDS
    there = nodes or (still and seen.nodes is not None)
    anew = seen.answered is None or (still and seen.nodes is None)
    answered = now if anew else seen.answered
    return replace(seen, answered=answered, heard=now, nodes=now if there else seen.nodes)


def pause(deaths: int) -> float:
    """Seconds until etcd is started again, where it has ended so often in a short time."""
    return 0.0 if deaths <= _DEATHS else min(2.0 ** (deaths - _DEATHS - 1), _LONGEST_PAUSE)


def in_vain(ends: int, *, steady: bool, excused: bool) -> int:
    """Starts in a row that came to nothing, after one more end; excused: its data cannot be the reason."""
    return 0 if steady else ends + (not excused)


@dataclass(frozen=True, slots=True)
class Space:
    """What a member says of its database.

    Attributes:
        in_use: bytes that hold keys or history.
        revision: the newest.
        leads: this member is the leader.
        full: it has reached its quota, and etcd refuses every write.
    """

    in_use: int
    revision: int
    leads: bool
    full: bool


@dataclass(frozen=True, slots=True)
class History:
    """What the supervisor knows of the history that etcd keeps.

    Attributes:
        least: bytes in use when there was least history, since it was last cut.
        before: the revision of the look before.
    """

    least: int | None = None
    before: int = 0


def cut(history: History, space: Space) -> tuple[History, int | None]:
    """Before which revision the history is to be forgotten now, or None; and what to know from here on.

    etcd keeps a number of revisions, whatever their size. Here the leader's supervisor counts bytes. Some seconds of
    the newest history stay, for watches that have to resume.
    """
    least = space.in_use if history.least is None else min(history.least, space.in_use)
    after = History(least, space.revision)
    if space.full:
        return History(None, space.revision), space.revision
    if not space.leads or not history.before or space.in_use - least < _HISTORY_BYTES:
        return after, None
    return History(None, space.revision), history.before


# The rest talks to etcd and to the system.


@dataclass(slots=True)
class _Gateway:
    """The gateway of the member's etcd. Its connection is kept: with TLS a new one costs both ends milliseconds.

    `tls`: the folder with the member's certificate, which proves this process, too.
    """

    host: str
    port: int
    tls: Path | None = None
    kept: "socket | None" = None

    def post_json(self, path: str, body: dict[str, object], seconds: float = _ASK_SECONDS) -> dict[str, object] | None:
        """One call, each step of which may take so long; None where etcd does not answer."""
        while True:
            kept, self.kept, connection = self.kept, None, self.kept
            try:
                connection = kept or self._connect(seconds)
                connection.settimeout(seconds)
                connection.sendall(request(self.host, path, body))
                reply = bytearray()
                while not (whole := is_whole(reply)) and (part := connection.recv(1 << 16)):
                    reply += part
                status, answer = read_answer(reply)
                self.kept = connection if whole else None
                return answer if status == 200 else None
            except (OSError, ValueError) as error:
                if kept is None or isinstance(error, TimeoutError):
                    return None
                # It was closed since the last call, by an etcd that has begun anew perhaps.
            finally:
                if connection is not None and self.kept is None:
                    connection.close()

    def _connect(self, seconds: float) -> "socket":
        """With the certificate that is there now. Raises OSError."""
        import socket  # here, because etcd is started first

        if self.tls is None:
            return socket.create_connection((self.host, self.port), seconds)
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # only the job's authority is trusted, and it vouches for members alone
        context.load_verify_locations(self.tls / "ca.pem")
        context.load_cert_chain(self.tls / "member.pem")
        return context.wrap_socket(socket.create_connection((self.host, self.port), seconds))


class _Observer:
    """Asks for node keys at little cost: while the last one seen lives, for that one only."""

    def __init__(self, gateway: _Gateway) -> None:
        self._gateway = gateway
        self._last: bytes | None = None

    def look(self, seen: Seen) -> Seen:
        keys = self._nodes()
        now = time.monotonic()
        if keys is not None:
            seen = heard(seen, bool(keys), now)
        if seen.orphaned is not None and seen.answered is not None:
            status = self._gateway.post_json("/v3/maintenance/status", {})
            if status is not None and int(str(status.get("leader", "0"))):
                seen = replace(seen, led=now)
        return seen

    def _nodes(self) -> list[bytes] | None:
        where = [keys_under(JOBS.encode())]
        if self._last is not None:
            where.insert(0, {"key": encoded(self._last)})
        keys: list[bytes] = []
        while where and not keys:
            # Serializable: this member's own copy, so that a lost quorum is no silence.
            answer = self._gateway.post_json("/v3/kv/range", {"serializable": True, "keys_only": True, **where.pop(0)})
            if answer is None:
                return None
            keys = node_keys(answer)
        self._last = keys[0] if keys else None
        return keys


class _Janitor:
    """Bounds the history of the store in bytes, and ends a space alarm. Each supervisor looks after its member."""

    def __init__(self, gateway: _Gateway) -> None:
        self._gateway = gateway
        self._history = History()
        self._at = 0.0
        self._told = False

    def look(self, now: float) -> None:
        if now < self._at:
            return
        self._at = now + _SPACE_SECONDS
        status = self._gateway.post_json("/v3/maintenance/status", {})
        space = None if status is None else space_of(status)
        if space is None:
            return
        if space.full and not self._told:
            _say("etcd has reached its quota: compacting its history, defragmenting, and clearing the alarm")
        self._told = space.full
        self._history, revision = cut(self._history, space)
        if revision is not None:
            physical: dict[str, object] = {"revision": str(revision), "physical": space.full}
            self._gateway.post_json("/v3/kv/compaction", physical, _DEFRAGMENT_SECONDS)
        if space.full:
            self._gateway.post_json("/v3/maintenance/defragment", {}, _DEFRAGMENT_SECONDS)
            alarms = self._gateway.post_json("/v3/maintenance/alarm", {"action": "GET"}) or {}
            for alarm in cast(list[dict[str, str]], alarms.get("alarms") or []):
                if alarm.get("alarm") == "NOSPACE":
                    self._gateway.post_json("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})


def space_of(status: dict[str, object]) -> Space | None:
    """What the gateway's answer about a member says; None where it does not say it."""
    header = cast(dict[str, str], status.get("header") or {})
    try:
        return Space(
            in_use=int(str(status.get("dbSizeInUse") or status["dbSize"])),
            revision=int(header["revision"]),
            leads=status.get("leader") == header["member_id"],
            full="NOSPACE" in json.dumps(status.get("errors") or []),
        )
    except (KeyError, ValueError):
        return None


def in_use(users: Path) -> bool:
    """An agent of this machine holds the lock."""
    try:
        descriptor = os.open(users, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _start(command: Sequence[str]) -> int:
    """Starts etcd so that it dies with this process, and returns its process id.

    The death signal follows the thread that forked; this process has only one.
    """
    prctl = ctypes.CDLL(None).prctl
    supervisor_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if os.getppid() == supervisor_pid:  # it may have died before the line above
            os.execv(command[0], list(command))  # keeps the lock's descriptor: the port is free when both are gone
    except OSError as error:
        os.write(2, f"[elastic-run] {command[0]} does not start: {error}\n".encode())
    os._exit(127)


def _detach(log: Path, lock: Path) -> None:
    """Becomes a process that no terminal, session or parent of the caller can take with it, and is named in the lock.

    Its process id and command line are written before the id is printed, over those of a supervisor which was killed,
    so that they take no more room. `watchdog.named` reads them.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    if pid := os.fork():
        with contextlib.suppress(OSError):  # the disk is full: then only its own agent can look after this process
            text = f"{pid:<10}\n".encode() + Path("/proc/self/cmdline").read_bytes()
            descriptor = os.open(lock, os.O_WRONLY | os.O_CLOEXEC)
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        print(pid, flush=True)
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(output)
    os.chdir("/")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the disk of its log may be full
        os.write(1, f"[elastic-run] {text}\n".encode())


class _Etcd:
    """The process; absent while it waits to be started again."""

    def __init__(self, command: Sequence[str], served: bool) -> None:
        self._command = command
        self._deaths = self._vain = 0
        self._served = served
        self.again_at = 0.0
        self.start()

    def start(self) -> None:
        self._born = time.monotonic()
        self._pid = _start(self._command)
        self.pidfd: int | None = os.pidfd_open(self._pid)

    def ended(self, heard: float | None) -> bool:
        """It has ended by itself, and answered last then; False where it is not to be started again."""
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        _say(f"{EXITED} {status}")
        if self.pidfd is not None:
            os.close(self.pidfd)
        self.pidfd = None
        now = time.monotonic()
        lived = now - self._born if (heard or 0.0) >= self._born else 0.0
        # One that ends at once never had the port: what answered there was another's.
        self._served = self._served or lived >= _LIVED_SECONDS
        steady, disk = lived >= _STEADY_SECONDS, os.fstatvfs(1)  # of its log, which lies beside its data
        full = disk.f_bavail * disk.f_frsize < ROOM_BYTES
        self._deaths = in_vain(self._deaths, steady=steady, excused=False)
        self._vain = in_vain(self._vain, steady=steady, excused=status < 0 or full)
        self.again_at = now + pause(self._deaths)
        if self._vain >= _VAIN:
            _say(f"giving up: etcd has exited {_VAIN} times in a row, and never served for {_STEADY_SECONDS:g} s")
        return self._served and self._vain < _VAIN

    def stop(self, seconds: float) -> None:
        if self.pidfd is not None:
            os.kill(self._pid, signal.SIGTERM)
            if not select.select([self.pidfd], [], [], seconds)[0]:
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _keep(options: argparse.Namespace, wakeup: int) -> Verdict:
    """Watches until the member has to go; "stop" also where etcd has ended for good."""
    etcd = _Etcd(options.command, options.served)
    seen = Seen(started=time.monotonic())
    gateway = _Gateway(options.client_host, options.client_port, options.tls)
    observer, janitor = _Observer(gateway), _Janitor(gateway)
    patience = Patience(options.linger, options.grace)
    touched = time.monotonic()
    while True:
        watched = [wakeup] if etcd.pidfd is None else [wakeup, etcd.pidfd]
        ready = select.select(watched, [], [], 1.0)[0]
        now = time.monotonic()
        if etcd.pidfd in ready:
            if not etcd.ended(seen.heard):
                return "stop"
            continue
        if etcd.pidfd is None and now >= etcd.again_at and wakeup not in ready:
            # It has served: somebody killed it (the kernel, for memory), or its disk was full, and jobs need it.
            _say("restarting etcd with its data")
            etcd.start()
            continue
        if wakeup in ready:
            _say("received a signal to stop")
            verdict = "stop"
        else:
            used = in_use(options.users)
            seen = replace(seen, orphaned=None if used else now if seen.orphaned is None else seen.orphaned)
            if etcd.pidfd is not None:
                seen = observer.look(seen)
                janitor.look(now)
            if now - touched >= _TOUCH_SECONDS:
                touched = now
                touch((options.lock.parent, options.lock, options.users), options.home)
            verdict, reason = judge(seen, patience, time.monotonic())
            if os.fstat(1).st_size > _LOG_BYTES:
                os.ftruncate(1, 0)
            if verdict == "keep":
                continue
            _say(f"stopping etcd: {reason}")
        # Without a quorum etcd does not heed SIGTERM, and has nothing to hand over.
        etcd.stop(_STOP_SECONDS if seen.answered is not None else 0.2)
        return verdict


def touch(files: Sequence[Path], folder: Path) -> None:
    """Renews the times of files and of all in a folder: an idle store's files look old to what cleans /tmp by age."""
    below = (Path(where, name) for where, folders, names in os.walk(folder) for name in (*folders, *names))
    for path in (*files, folder, *below):
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)


def _protect(folders: Sequence[Path]) -> None:
    """Holds shared locks on folders until this process ends: systemd-tmpfiles cleans nothing in a locked folder."""
    for folder in folders:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def main(arguments: Sequence[str]) -> None:
    """See the module; `arguments` end with etcd's command line."""
    parser = argparse.ArgumentParser(description="supervises one embedded etcd of elastic-run")
    parser.add_argument("--home", type=Path, required=True, help="the member's folder, with its data")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True, help="its descriptor is inherited, and locked")
    parser.add_argument("--client-host", required=True)
    parser.add_argument("--client-port", type=int, required=True)
    parser.add_argument("--users", type=Path, required=True, help="agents that use the store hold locks on this file")
    parser.add_argument("--linger", type=float, required=True, help="seconds")
    parser.add_argument("--grace", type=float, required=True, help="seconds")
    parser.add_argument("--tls", type=Path, help="the folder with the member's certificate; without it: no TLS")
    parser.add_argument("--served", action="store_true", help="its etcd has served under a supervisor that was killed")
    parser.add_argument("command", nargs="+", help="etcd and its arguments")
    options = parser.parse_args(arguments)
    _detach(options.log, options.lock)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)  # Python writes to that descriptor, which ends the wait
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    _protect((options.lock.parent, options.home))
    verdict = _keep(options, reader)
    if verdict == "retire":
        shutil.rmtree(options.home, ignore_errors=True)
    # Under the lock, so that nobody can be waiting for the file that goes: whoever opened it looks again.
    options.lock.unlink(missing_ok=True)
    if not in_use(options.users):
        options.users.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty, or another supervisor was quicker
        options.lock.parent.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
