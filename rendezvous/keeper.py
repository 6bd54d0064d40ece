"""Keeps one embedded etcd: starts it, outlives the agent that asked for it, and stops it when no job needs it.

Run by path as `python -I -S keeper.py ...`, so that it loads nothing but the standard library and stays small.
It detaches itself (its own session, two forks), prints its process id, and holds the lock of its member's port.
etcd dies with it, and it ends with etcd.

It stops etcd when no job has had a leased node key for `--linger` seconds, and then removes the member's data: the
next store at this address begins empty. After any other end (a signal, etcd's own death, a lost quorum that nobody
waits for) the data stays, and the next member here comes back with it.
"""

import argparse
import base64
import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Literal, cast

JOBS = "/elastic-run/"
"""Every job's keys lie under this."""

_NODE_KEY = re.compile(r"/elastic-run/.+/nodes/[^/]+")
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 5.0  # for etcd's orderly stop, which hands its leadership over
_ASK_SECONDS = 2.0
_DEATHS = 3  # within the next, before a member that dies again and again is given up
_DEATHS_SECONDS = 60.0
_LIVED_SECONDS = 2.0
_LOG_BYTES = 16 * 1024 * 1024  # a member whose peers are gone complains every few seconds, for as long as it lives

# The decision, pure.


@dataclass(frozen=True, slots=True)
class Seen:
    """What the keeper knows. Instants are seconds on one monotonic clock; None: not yet.

    Attributes:
        started: when etcd was started.
        answered: when etcd first answered.
        heard: when etcd last answered.
        nodes: when a leased node key was last there.
        led: when the member last knew a leader.
        orphaned: when the agent that asked for this store was first seen dead.
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
        forsaken: without a leader and without the agent, before a member gives up.
    """

    linger: float = 10.0
    grace: float = 60.0
    forsaken: float = 600.0


def judge(seen: Seen, patience: Patience, now: float) -> tuple[Verdict, str]:
    """Keep the member, retire it with its data, or stop it and leave the data; and why."""
    if seen.answered is None:
        if seen.orphaned is not None and now - max(seen.orphaned, seen.started) >= patience.grace:
            return "stop", f"it never answered, and its agent has been dead for {patience.grace:g} s"
        return "keep", "it does not answer yet"
    if seen.nodes is None:
        if seen.orphaned is not None and now - max(seen.orphaned, seen.answered) >= patience.linger:
            return "retire", "the agent that started it died before any node came"
        if now - seen.answered >= patience.grace:
            return "retire", f"no node came for {patience.grace:g} s"
    elif (seen.heard or 0.0) - seen.nodes >= patience.linger:  # silence is no evidence: count to the last answer
        return "retire", f"no job has had a node for {patience.linger:g} s"
    led = max(seen.answered, seen.led or 0.0)
    if seen.orphaned is not None and now - max(seen.orphaned, led) >= patience.forsaken:
        return "stop", f"its agent is dead and it has had no leader for {patience.forsaken:g} s"
    return "keep", "a job needs it, or may soon"


def range_end(prefix: bytes) -> bytes:
    """etcd's end of the keys under a prefix: the prefix with its last byte raised."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def encoded(data: bytes) -> str:
    """Bytes as the JSON gateway takes them."""
    return base64.b64encode(data).decode()


def node_keys(answer: dict[str, object]) -> list[bytes]:
    """The leased node keys in the gateway's answer to a range."""
    found: list[bytes] = []
    for entry in cast(list[dict[str, str]], answer.get("kvs") or []):
        key = base64.b64decode(entry["key"])
        if int(entry.get("lease", "0")) and _NODE_KEY.fullmatch(key.decode(errors="replace")):
            found.append(key)
    return found


# The rest talks to etcd and to the system.


def _ask(client: tuple[str, int], path: str, body: dict[str, object]) -> dict[str, object] | None:
    """One call of etcd's JSON gateway; None where it does not answer. Not urllib: it would heed http_proxy."""
    import http.client  # here, because etcd is started first, and the agent has no use for it

    connection = http.client.HTTPConnection(*client, timeout=_ASK_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        return cast(dict[str, object], json.loads(data)) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


class _Observer:
    """Asks for node keys at little cost: while the last one seen lives, for that one only."""

    def __init__(self, client: tuple[str, int]) -> None:
        self._client = client
        self._last: bytes | None = None

    def look(self, seen: Seen) -> Seen:
        keys = self._nodes()
        now = time.monotonic()
        if keys is not None:
            seen = replace(seen, answered=seen.answered or now, heard=now, nodes=now if keys else seen.nodes)
        if seen.orphaned is not None and seen.answered is not None:
            status = _ask(self._client, "/v3/maintenance/status", {})
            if status is not None and int(str(status.get("leader", "0"))):
                seen = replace(seen, led=now)
        return seen

    def _nodes(self) -> list[bytes] | None:
        # Serializable: this member's own copy, so that a lost quorum is no silence.
        asked: dict[str, object] = {"serializable": True, "keys_only": True}
        if self._last is not None:
            answer = _ask(self._client, "/v3/kv/range", asked | {"key": encoded(self._last)})
            if answer is None:
                return None
            if keys := node_keys(answer):
                return keys
        prefix = JOBS.encode()
        asked |= {"key": encoded(prefix), "range_end": encoded(range_end(prefix))}
        answer = _ask(self._client, "/v3/kv/range", asked)
        if answer is None:
            return None
        keys = node_keys(answer)
        self._last = keys[0] if keys else None
        return keys


def _start(command: Sequence[str]) -> int:
    """Starts etcd so that it dies with this process, and returns its process id.

    The death signal follows the thread that forked; this process has only one.
    """
    prctl = ctypes.CDLL(None).prctl
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if os.getppid() == keeper:  # it may have died before the line above
            os.execv(command[0], list(command))  # keeps the lock's descriptor: the port is free when both are gone
    except OSError as error:
        os.write(2, f"keeper: {command[0]} does not start: {error}\n".encode())
    os._exit(127)


def _stop(pid: int, pidfd: int, seconds: float) -> None:
    os.kill(pid, signal.SIGTERM)
    if not select.select([pidfd], [], [], seconds)[0]:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _detach(log: Path) -> None:
    """Becomes a process that no terminal, session or parent of the caller can take with it."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    if pid := os.fork():
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
    print(f"keeper: {text}", flush=True)


def _open_pid(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _wake(_signal: int, _frame: FrameType | None) -> None:
    """Does nothing: Python has written to the wakeup descriptor, and that ends the wait."""


def _keep(options: argparse.Namespace, pid: int, wakeup: int) -> Verdict:
    """Watches until the member has to go; "stop" also where etcd is gone already."""
    etcd, agent = os.pidfd_open(pid), _open_pid(options.agent)
    born = time.monotonic()
    seen = Seen(started=born)
    observer = _Observer((options.client_host, options.client_port))
    patience = Patience(options.linger, options.grace)
    deaths: list[float] = []
    while True:
        ready = select.select([etcd, wakeup], [], [], 1.0)[0]
        if etcd in ready:
            _say(f"etcd ended by itself: status {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
            now = time.monotonic()
            deaths = [*(at for at in deaths if now - at < _DEATHS_SECONDS), now]
            # One that ends at once never had the port: what answered there was another's.
            if seen.answered is None or now - born < _LIVED_SECONDS or len(deaths) > _DEATHS:
                return "stop"
            # It has served: somebody killed it (the kernel, for memory), and jobs need it. Its data is here.
            _say("starts it again on its data")
            os.close(etcd)
            pid, born = _start(options.command), now
            etcd = os.pidfd_open(pid)
            continue
        if wakeup in ready:
            _say("told to stop")
            verdict = "stop"
        else:
            if seen.orphaned is None and (agent is None or select.select([agent], [], [], 0)[0]):
                seen = replace(seen, orphaned=time.monotonic())
            seen = observer.look(seen)
            verdict, reason = judge(seen, patience, time.monotonic())
            if os.fstat(1).st_size > _LOG_BYTES:
                os.ftruncate(1, 0)
            if verdict == "keep":
                continue
            _say(f"stops etcd: {reason}")
        # Without a quorum etcd does not heed SIGTERM, and has nothing to hand over.
        _stop(pid, etcd, _STOP_SECONDS if seen.answered is not None else 0.2)
        return verdict


def main(arguments: Sequence[str]) -> None:
    """See the module; `arguments` end with etcd's command line."""
    parser = argparse.ArgumentParser(description="keeps one embedded etcd of elastic-run")
    parser.add_argument("--home", type=Path, required=True, help="the member's folder, with its data")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True, help="its descriptor is inherited, and locked")
    parser.add_argument("--client-host", required=True)
    parser.add_argument("--client-port", type=int, required=True)
    parser.add_argument("--agent", type=int, required=True, help="process id of the agent that asks")
    parser.add_argument("--linger", type=float, required=True, help="seconds")
    parser.add_argument("--grace", type=float, required=True, help="seconds")
    parser.add_argument("command", nargs="+", help="etcd and its arguments")
    options = parser.parse_args(arguments)
    _detach(options.log)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _wake)
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    verdict = _keep(options, _start(options.command), reader)
    if verdict == "retire":
        shutil.rmtree(options.home, ignore_errors=True)
    # Under the lock, so that nobody can be waiting for the file that goes: whoever opened it looks again.
    options.lock.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty, or another keeper was quicker
        options.lock.parent.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
