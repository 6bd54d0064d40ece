"""One worker that was started: its handle, its pipes, and its end, which that handle tells and collects."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.member import Exit
from ..diagnosis.running import Running
from ..logs.output import Output
from ..logs.routes import StreamName
from ..processes.guardian import process
from ..processes.reaper import Reaper
from ..zygotes.zygote import AT_ONCE, Begin
from .streams import Printed

HELD_SECONDS = 1.0
"""Between two looks at a worker that has ended and that a tracer (a debugger, strace) keeps from its parent."""

SHOWN_BYTES = 4096
"""Of each stream's tail, where a worker that runs is looked at."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker to start.

    Attributes:
        argv: the whole command, an interpreter included where it needs one.
        env: its whole environment; the agent's tag is added.
        error_file: where its library may describe its error (torch's TORCHELASTIC_ERROR_FILE), or None.
        begin: when a fork of the warm interpreter begins.
    """

    round: int
    rank: int
    local_rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    error_file: Path | None = None
    begin: Begin = AT_ONCE


class StartedWorker:
    """One process of a worker.

    Attributes:
        counts: its end is one of the set's exits.
        given_up: SIGKILL has not ended it, and nobody waits for it.
        stopped: its agent has begun to end it while it lived.
        condemned: why it was killed, where the job's diagnosis led to that.
    """

    def __init__(
        self, spec: WorkerSpec, pid: int, out: Printed, err: Printed, popen: "subprocess.Popen[bytes] | None" = None
    ) -> None:
        self.spec = spec
        self.popen = popen
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.out = out
        self.err = err
        self.born = time.monotonic()
        self.ended = asyncio.Event()
        self.counts = True
        self.given_up = False
        self.stopped = False
        self.condemned = ""
        self._again: asyncio.TimerHandle | None = None

    @property
    def pipes(self) -> tuple[tuple[StreamName, Printed], ...]:
        """Its two streams."""
        return ("stdout", self.out), ("stderr", self.err)

    def see(self, end: Exit | None) -> Running:
        """As it is looked at from outside; `end`: how it has ended, if it has."""
        output = sum(pipe.size for _, pipe in self.pipes)
        tail = self.out.tail[-SHOWN_BYTES:] + b"\n" + self.err.tail[-SHOWN_BYTES:]
        return Running(self.spec.rank, self.spec.local_rank, self.pid, end.status if end else None, output, tail)

    def become(self, spec: WorkerSpec, output: Output) -> None:
        """It keeps its process, and has another rank from now on."""
        self.spec = spec
        for name, pipe in self.pipes:
            pipe.follow(output.open(spec.round, spec.rank, spec.local_rank, name))

    def send(self, signum: int) -> None:
        """A signal to the process alone."""
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signum)

    def send_group(self, signum: int) -> None:
        """A signal to its process group."""
        # A group whose leader was collected is left to the search: its number may have gone to others.
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    def end_output(self) -> None:
        """What it left in its pipes is read, and what still holds them is not listened to."""
        for _, pipe in self.pipes:
            pipe.drain()
            pipe.close()

    def attend(
        self, hear_end: "Callable[[StartedWorker, int], None]", reaper: Reaper, say: Callable[[str], None]
    ) -> None:
        """From now on its end is heard: by `hear_end`, with its exit code, or minus the signal."""
        self._hear_end, self._reaper, self._say = hear_end, reaper, say
        asyncio.get_running_loop().add_reader(self.pidfd, self.check_end)

    def check_end(self) -> None:
        """Has its end heard, if it has ended."""
        if self.ended.is_set() or ((code := self._collect()) is None and (code := self._held_by_tracer()) is None):
            return
        asyncio.get_running_loop().remove_reader(self.pidfd)
        self.ended.set()
        for _, pipe in self.pipes:
            pipe.drain()
            pipe.lines.end_line()
        self._hear_end(self, code)

    def _collect(self) -> int | None:
        """Its exit code, or minus the signal, if it has ended; closes the handle."""
        found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        if found is None:
            return None
        return self._settle(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)

    def _settle(self, code: int) -> int:
        if self.popen is not None:
            # It must not wait for this pid again, which may have a new owner.
            self.popen.returncode = code
        os.close(self.pidfd)
        return code

    def _held_by_tracer(self) -> int | None:
        """How it has ended where its parent cannot collect it, because a tracer keeps it; None: not known, or not so.

        Its handle would wake the loop again and again: it is looked at now and then instead.
        """
        try:
            found = process(self.pid)
        except OSError:
            return None  # no descriptor is left to look: the handle wakes the loop again
        if found is None or found.alive:
            return None
        if (ending := self._collect()) is not None:
            return ending  # it has just ended, and nobody keeps it
        code = os.waitstatus_to_exitcode(found.status)
        if code != 0 or self.stopped:
            self._reaper.adopt([self.pid])
            return self._settle(code)
        # 0 is also what a kernel says that does not tell.
        loop = asyncio.get_running_loop()
        if self._again is None:
            loop.remove_reader(self.pidfd)
            self._say(
                f"rank {self.spec.rank} (pid {self.pid}) has exited, and a tracer (a debugger, strace) holds its "
                "exit code: waiting until the tracer releases it"
            )
        else:
            self._again.cancel()
        self._again = loop.call_later(HELD_SECONDS, self.check_end)
        return None
