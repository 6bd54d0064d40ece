"""One run: its folder, its processes, and the certainty that none of them is left.

Each run is a first run: its home and its cache are new and empty, and its job's name and its script's arguments were
never used before. So no figure depends on what a launcher, or torch, has kept of an earlier run.

The measuring process makes itself the subreaper of all that it starts, so that whatever detaches itself (a store, say)
stays its descendant and is found at the end.

It watches the journal and the processes by looking every POLL_SECONDS. That is no part of any figure: the instants
come from the workers' own lines.
"""

import contextlib
import ctypes
import os
import random
import secrets
import select
import shutil
import signal
import site
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

from .journal import Journal
from .launchers import Job, Launcher, bare_environment, command, environment

POLL_SECONDS = 0.005
_LISTEN_SECONDS = 60.0
_SWEEP_SECONDS = 10.0
_PR_SET_CHILD_SUBREAPER = 36
_TAIL_LINES = 6
_SOCKETS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"  # the kernel's TCP_LISTEN

T = TypeVar("T")


class DidNotCome(Exception):
    """What a run waited for did not come: the bound has passed, or all its processes have ended."""


class Leftover(Exception):
    """A process of a run could not be killed."""


class NotNew(ValueError):
    """The arguments of a script could have been those of an earlier run."""


def adopt_orphans() -> None:
    """From now on, processes whose parents die become children of this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def free_port() -> int:
    """A loopback port that nobody uses, nor the one 10,000 above it (an embedded etcd's members meet there).

    Below the ports that the system gives to clients, so that none of these takes it in between.
    """
    for _ in range(1000):
        port = random.randrange(20_000, 22_000)
        if _is_free(port) and _is_free(port + 10_000):
            return port
    raise OSError("no port between 20000 and 22000 is free on 127.0.0.1, with the one 10000 above it")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _undisturbed() -> Generator[None]:
    """A second Ctrl-C, or SIGTERM, must not leave half of the processes behind."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Arena:
    """A place for one run; leaving it kills all that was started and removes the folder, unless `keep` says not to.

    Attributes:
        name: the case and the round of the contest.
        job_id: the name of the run's job; another one in each run.
        word: a word that no earlier run had; among the arguments of each script, as in the journal's name.
        folder: where the run's processes start.
        journal: what its workers tell.
    """

    def __init__(self, name: str, keep: Path | None = None) -> None:
        self.name = name
        self.word = secrets.token_hex(4)
        self.job_id = f"{name}-{self.word}"
        self._keep = keep
        self._processes: list[subprocess.Popen[bytes]] = []
        self._others = frozenset(psutil.Process().children(recursive=True))
        if keep is None:
            self.folder = Path(tempfile.mkdtemp(prefix="elastic-run-benchmark-"))
        else:
            self.folder = keep / name
            self.folder.mkdir(parents=True)
        self._home = self.folder / "home"
        self._home.mkdir()
        self.journal = Journal(self.folder / f"journal-{self.word}")
        self.journal.path.touch()

    def __enter__(self) -> "Arena":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with _undisturbed():
                self._sweep()
        finally:
            if self._keep is None:
                shutil.rmtree(self.folder, ignore_errors=True)

    def launch(self, launcher: Launcher, job: Job, node: int = 0) -> subprocess.Popen[bytes]:
        """Starts one node of a job; of a bare one, all its workers (the last is returned).

        Raises NotNew where the script's arguments are not this run's own.
        """
        if not any(self.word in word or str(self.folder) in word for word in job.words):
            raise NotNew(f"{' '.join(job.words)}: no argument of this run's own among them, as its journal's name")
        words = command(launcher, job, node, self.folder)
        base = self.environment(launcher)
        if launcher.kind != "bare":
            return self.start(words, base, f"node{node}.log")
        port = job.port or free_port()
        return [
            self.start(words, base | bare_environment(rank, job.nproc, port), f"rank{rank}.log")
            for rank in range(job.nproc)
        ][-1]

    def environment(self, launcher: Launcher) -> dict[str, str]:
        """The environment that all processes of this run are started with, with a home of the run's own.

        What the user has installed for himself (`pip install --user`) is where it was.
        """
        home = {"HOME": str(self._home), "XDG_CACHE_HOME": str(self._home / ".cache")}
        return environment(launcher, {"PYTHONUSERBASE": site.getuserbase()} | dict(os.environ)) | home

    def start(
        self, words: list[str], environ: dict[str, str], log: str, folder: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a process in that folder or the run's, where `log` takes what it prints."""
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                words,
                env=environ,
                cwd=folder or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def until(self, found: Callable[[], T | None], bound: float, pause: float = POLL_SECONDS) -> T:
        """Waits until `found` finds something in the journal, at most `bound` seconds, looking every `pause` seconds.

        Raises DidNotCome, with the launchers' last words where they have all ended.
        """
        deadline = time.monotonic() + bound
        while True:
            ended = all(process.poll() is not None for process in self._processes)  # before the last look
            self.journal.read()
            if (result := found()) is not None:
                return result
            if ended:
                raise DidNotCome(f"the job ended with {self._codes()}{self._last_words()}")
            if time.monotonic() > deadline:
                raise DidNotCome(f"nothing within {bound:g} s")
            time.sleep(pause)

    def until_listening(self, port: int) -> None:
        """Waits until somebody listens at a loopback port, without connecting. Raises DidNotCome."""

        def listens() -> bool | None:
            sockets = (line.split() for file in _SOCKETS for line in file.read_text().splitlines()[1:])
            return any(one[1].endswith(f":{port:04X}") and one[3] == _LISTENS for one in sockets) or None

        self.until(listens, _LISTEN_SECONDS)

    def kill_tree(self, process: subprocess.Popen[bytes]) -> int:
        """SIGKILLs a process and all its descendants; returns the instant just before."""
        instant = self._signal(self._tree(process), signal.SIGKILL)
        process.wait(_SWEEP_SECONDS)
        return instant

    def kill_alone(self, process: subprocess.Popen[bytes]) -> int:
        """SIGKILLs a process, and nothing that it has started; returns the instant just before."""
        return self._signal([process.pid], signal.SIGKILL)

    def stop_tree(self, process: subprocess.Popen[bytes]) -> int:
        """SIGSTOPs a process and all its descendants, which fall silent; returns the instant just before."""
        return self._signal(self._tree(process), signal.SIGSTOP)

    @staticmethod
    def _tree(process: subprocess.Popen[bytes]) -> list[int]:
        return [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]

    @staticmethod
    def _signal(pids: list[int], number: signal.Signals) -> int:
        instant = time.monotonic_ns()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # its parent's death may have been its own
                os.kill(pid, number)
        return instant

    def ended(self, process: subprocess.Popen[bytes], bound: float) -> int:
        """Waits until a process that was started here ends, at most `bound` seconds; the instant. Raises DidNotCome."""
        handle = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(bound * 1000):
                raise DidNotCome(f"it did not end within {bound:g} s")
            return time.monotonic_ns()
        finally:
            os.close(handle)

    def logs(self) -> list[str]:
        """What each node has printed so far, in their order."""
        files = sorted(self.folder.glob("node*.log"))
        return [file.read_text(encoding="utf-8", errors="replace") for file in files]

    def _codes(self) -> str:
        codes = sorted({process.returncode for process in self._processes})
        return f"exit code{'s' if len(codes) > 1 else ''} {', '.join(map(str, codes))}"

    def _last_words(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        lines = logs[0].read_text(encoding="utf-8", errors="replace").strip().splitlines() if logs else []
        return "".join(f"\n    {line}" for line in lines[-_TAIL_LINES:])

    def _sweep(self) -> None:
        """Kills every descendant that came since, again and again, because one may just be starting another."""
        deadline = time.monotonic() + _SWEEP_SECONDS
        while children := [one for one in psutil.Process().children(recursive=True) if one not in self._others]:
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            if time.monotonic() > deadline:
                left = ", ".join(f"{child.pid} ({child.name()})" for child in children)
                raise Leftover(f"of {self.name}, these processes do not die: {left}")
            self._reap(children)
            time.sleep(POLL_SECONDS)

    def _reap(self, children: list[psutil.Process]) -> None:
        for process in self._processes:
            process.poll()
        for child in children:
            with contextlib.suppress(ChildProcessError):  # a descendant's own, which is ours once that has ended
                os.waitpid(child.pid, os.WNOHANG)
