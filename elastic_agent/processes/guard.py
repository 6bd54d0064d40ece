"""The agent's side of the guardian (`guardian.py`): it is started here, told whom to watch, replaced when it dies."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ...rendezvous.store.embedded import KEPT_VARIABLE
from . import guardian
from .guardian import TAG_VARIABLE

_NOT_ITS_OWN = (TAG_VARIABLE, "ELASTIC_RUN_ETCD_PASSWORD", "ELASTIC_RUN_SECRET")
"""Of the agent's environment: the guardian is none of its workers, and has no use for what opens the store."""

COLLECT_SECONDS = 1.0
"""How long the agent waits for a guardian that has ended or was killed: one that a tracer holds cannot be collected."""

RESTART_PAUSE_SECONDS = 1.0
"""Between two starts of a guardian that died at once, so that a broken machine is not kept busy with it."""

_UNHEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


class Guardian:
    """Starts the guardian, tells it whom to watch, and starts it again when it dies.

    Args:
        tag: the agent's incarnation, as in its workers' environment. No comma.
        silence: seconds without a `beat` (or any other word) after which the workers are killed; None: never, as where
            no lease is at stake.
        say: where to tell the user what happened.

    All methods are called on the event loop's thread, and `start` on it while the loop runs.
    """

    def __init__(self, *, tag: str, silence: float | None = None, say: Callable[[str], None] | None = None) -> None:
        self._tag = tag
        self._silence = silence
        self._say: Callable[[str], None] = say or (lambda _: None)
        self._sessions: set[int] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._born = 0.0
        self._again: asyncio.TimerHandle | None = None
        self._closed = False
        self._lost_words = 0

    @property
    def pid(self) -> int | None:
        """The running guardian's pid, None where none runs."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process; OSError where the machine cannot."""
        self._loop = asyncio.get_running_loop()
        self._launch()

    def watch(self, pid: int) -> None:
        """`pid` leads a session of workers: it dies with the agent."""
        self._sessions.add(pid)
        self._tell(f"watch {pid}", must=True)

    def forget(self, pid: int) -> None:
        """Nothing of the session `pid` is left; its number may go to others."""
        self._sessions.discard(pid)
        self._tell(f"forget {pid}", must=True)

    def beat(self) -> None:
        """The agent is alive: call this several times within `silence`."""
        self._tell("beat")

    def pause(self) -> None:
        """The agent is about to be stopped on purpose (Ctrl-Z): silence does not count until the next word."""
        self._tell("pause", must=True)

    async def close(self, seconds: float = 2.0, *, keep_detached: bool = False) -> None:
        """End the guardian: it ends by itself at the end of the pipe, or is killed after `seconds`.

        Call this when all workers were stopped: where the kernel shows that nothing of them is left, it need not look;
        nor where what is left is to live on.
        """
        self._closed = True
        if self._again:
            self._again.cancel()
            self._again = None
        if self._process is None or self._loop is None:
            return
        self._loop.remove_reader(self._pidfd)
        ended = asyncio.Event()
        self._loop.add_reader(self._pidfd, ended.set)
        try:
            if keep_detached or self._nothing_left():
                self._tell("end")
            self._shut_pipe()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await ended.wait()
        finally:
            self._loop.remove_reader(self._pidfd)
            self._process.kill()
            self._collect()

    def _launch(self) -> None:
        assert self._loop is not None
        silence = "never" if self._silence is None else str(self._silence)
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_ITS_OWN}
        environment[KEPT_VARIABLE] = f"guardian of {os.getpid()}"
        # Inherited over fork and exec: the guardian is deaf to them from its first instruction.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _UNHEARD)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(guardian.__file__).absolute()), self._tag, silence],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._born = time.monotonic()
        self._loop.add_reader(self._pidfd, self._died)
        for pid in sorted(self._sessions):
            self._tell(f"watch {pid}", must=True)

    def _died(self) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._pidfd)
        code = self._collect()
        if self._closed:
            return
        lived = time.monotonic() - self._born
        if self._lost_words == 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._say(f"the guardian of this machine's workers exited ({how}) and is restarted")
        self._lost_words += 1
        if lived > RESTART_PAUSE_SECONDS:
            self._retry()
        else:
            self._again = self._loop.call_later(RESTART_PAUSE_SECONDS, self._retry)

    def _retry(self) -> None:
        assert self._loop is not None
        try:
            self._launch()
        except OSError as error:
            if self._lost_words == 1:
                self._say(f"the guardian cannot be started ({error}); workers may outlive a crash of this agent")
            self._lost_words += 1
            self._again = self._loop.call_later(RESTART_PAUSE_SECONDS, self._retry)

    def _tell(self, word: str, *, must: bool = False) -> None:
        if self._process is None or self._process.stdin is None or self._process.stdin.closed:
            return
        line = f"{word}\n".encode()
        try:
            written = os.write(self._process.stdin.fileno(), line)
        except BlockingIOError:
            written = 0
        except BrokenPipeError:
            return  # it died: the next one is told everything
        if written < len(line) and (must or written):
            # It does not read its pipe (stopped by someone): a new one is told everything.
            self._process.kill()

    def _nothing_left(self) -> bool:
        """No session is watched, and nothing below this process carries the tag. False where that cannot be seen."""
        try:
            # Twice: the kernel's list of children may skip some while others end.
            looks = (guardian.belonging(guardian.descendants(os.getpid()), (), self._tag) for _ in range(2))
            return not self._sessions and not any(looks)
        except OSError:
            return False

    def _shut_pipe(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def _collect(self) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(COLLECT_SECONDS)
        except subprocess.TimeoutExpired:
            code = self._process.returncode = -signal.SIGKILL
        self._shut_pipe()
        os.close(self._pidfd)
        self._process, self._pidfd = None, -1
        return code
