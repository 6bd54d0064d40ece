"""Ends workers by evidence, not by hope: all that is theirs is killed, until the kernel shows nothing of it."""

import asyncio
import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..logs.output import Output
from ..processes.ending import describe_state, ended, kill
from ..processes.guard import Guardian
from ..processes.guardian import TRACKER_SECONDS, Mercy, Process, command_of, is_tracker, process, send, words_of
from .process_search import ProcessSearch
from .started_worker import StartedWorker

KILL_SECONDS = 10.0
"""How long a stop waits for processes to die of SIGKILL: one in the kernel's hands (state D) may never."""

NAMED = 5
"""Of the processes that live on, so many are named."""

DRAIN = Path(__file__).with_name("drain.py").absolute()

_UNSEEN = -1


@dataclass(slots=True)
class StopRequest:
    """What those have asked for who have one set of workers stopped.

    Attributes:
        until: so long the workers may end by themselves, on the monotonic clock.
        first: the signal that they have got.
        told: those that got it of the processes that outlived their worker.
        hurry: one of them has ended, or somebody has asked for more.
    """

    until: float = math.inf
    first: int = signal.SIGTERM
    told: set[int] = field(default_factory=set[int])
    hurry: asyncio.Event = field(default_factory=asyncio.Event)


class WorkerEnding:
    """Ends the workers of one agent, and knows what it could not end.

    Args:
        search: finds what is theirs.
        output: what is said goes there.
        guardian: is told of those that are gone.
        seconds: for processes to die of SIGKILL.
        changed: is set when a worker is given up.

    Attributes:
        only: of what belongs to the workers, only what is in these sessions is ended; None: all.
    """

    def __init__(
        self, search: ProcessSearch, output: Output, guardian: Guardian, seconds: float, changed: asyncio.Event
    ) -> None:
        self._search = search
        self._output = output
        self._guardian = guardian
        self._seconds = seconds
        self._changed = changed
        self._unkillable: dict[int, int] = {}  # pid -> when it was started; _UNSEEN: its handle alone tells of it
        self.only: frozenset[int] | None = None

    @property
    def unkillable(self) -> tuple[int, ...]:
        """Pids that could not be killed within the bound and that are still there."""
        try:
            found = [process(pid) for pid in self._unkillable]
        except OSError:
            return tuple(self._unkillable)
        return tuple(each.pid for each in found if each and each.alive and self._is_unkillable(each))

    def _is_unkillable(self, found: Process) -> bool:
        """It was given up before, and is no later owner of that pid."""
        return self._unkillable.get(found.pid) in (found.started, _UNSEEN)

    async def end_all(
        self, workers: Sequence[StartedWorker], gone: Sequence[StartedWorker], asked: StopRequest
    ) -> None:
        """Ends the current workers, those that are to be gone, and all that they started."""
        await self._await_groups(workers, gone, asked)
        await self._kill_all(workers, gone)
        if self.only is not None:
            self._leave_detached(workers, gone)
        for worker in workers:
            worker.end_output()
            if not worker.given_up:
                self._guardian.forget(worker.pid)

    async def end_some(self, gone: Sequence[StartedWorker], grace: float) -> None:
        """Ends these workers and what is in their sessions, while others live."""
        if not gone:
            return
        if grace > 0:
            for worker in gone:
                worker.send(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    for worker in gone:
                        await worker.ended.wait()
        left = await self._kill_until_gone(gone, all_of_ours=False)
        for worker in gone:
            worker.check_end()
            worker.end_output()
            if worker.ended.is_set():
                self._guardian.forget(worker.pid)
        self._give_up(left or (), gone)

    async def _await_groups(
        self, workers: Sequence[StartedWorker], gone: Sequence[StartedWorker], asked: StopRequest
    ) -> None:
        """Until the grace is over: wait for the workers and for what they have in their process groups.

        The others of a group get the first signal when its worker has ended, as the script of a shell that did not
        pass it on.
        """
        while (rest := asked.until - time.monotonic()) > 0:
            asked.hurry.clear()
            groups = {worker.pid for worker in workers}
            orphaned = {worker.pid for worker in workers if worker.ended.is_set()}
            left = self._find_left((*workers, *gone))
            if left is not None:
                left = [found for found in left if found.group in groups]
                outlived = [found for found in left if found.group in orphaned and found.pid not in asked.told]
                with contextlib.suppress(OSError):  # who is missed is told at the next look, or killed
                    for found in outlived:
                        if not is_tracker(words_of(found.pid)):
                            send(found, asked.first)
                        asked.told.add(found.pid)
            if not left and (left is not None or orphaned == groups):
                return
            await ended(left or (), rest, asked.hurry)

    def _find_left(self, workers: Sequence[StartedWorker], *, all_of_ours: bool = True) -> list[Process] | None:
        sessions = {worker.pid for worker in workers}
        return self._search.find_left(sessions, all_of_ours=all_of_ours, only=self.only if all_of_ours else None)

    async def _kill_all(self, workers: Sequence[StartedWorker], gone: Sequence[StartedWorker]) -> None:
        until = time.monotonic() + self._seconds
        left = await self._kill_until_gone((*workers, *gone))
        if left is None:
            self._output.say(
                "this agent has no free file descriptors and did not look for processes that its workers left behind; "
                "the guardian does it when this agent ends"
            )
        self._give_up(left or (), (*workers, *gone))
        for worker in workers:
            worker.check_end()
        # The handle of a process that is gone may take some ms longer to say so.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                for worker in workers:
                    if not worker.given_up:
                        await worker.ended.wait()
        for worker in (each for each in workers if not each.given_up):
            worker.check_end()
        if left is None:
            self._give_up((), [worker for worker in workers if not worker.ended.is_set()], unseen=True)

    async def _kill_until_gone(
        self, workers: Sequence[StartedWorker], *, all_of_ours: bool = True
    ) -> list[Process] | None:
        """SIGKILL to these and to all that is theirs, until nothing is left or the time is over; who is.

        Who was given up before gets the signal once more, and no time.
        """
        until, mercy = time.monotonic() + self._seconds, Mercy()
        for worker in workers:
            worker.send(signal.SIGKILL)
        while True:
            left = self._find_left(workers, all_of_ours=all_of_ours)
            if left is None:
                for worker in workers:
                    worker.send_group(signal.SIGKILL)
            waited = [found for found in left or () if not self._is_unkillable(found)]
            condemned = kill(mercy, left or (), waited)
            if left is not None and not waited:
                return left
            if (rest := until - time.monotonic()) <= 0:
                return left and [found for found in left if found in condemned]
            await ended(condemned or waited, rest if condemned else min(rest, TRACKER_SECONDS))

    def _give_up(self, left: Sequence[Process], workers: Sequence[StartedWorker], *, unseen: bool = False) -> None:
        """SIGKILL has not ended those that are `left`: they are said, and nothing waits for them again.

        With `unseen`, it has not ended these workers, of which nothing can be seen.
        """
        for found in left:
            if not self._is_unkillable(found):
                self._output.say(
                    f"process {found.pid} does not die: SIGKILL was sent {self._seconds:g} s ago "
                    f"and its state is {describe_state(found)}"
                )
        unkillable = {found.pid: found.started for found in left}
        unkillable |= {worker.pid: _UNSEEN for worker in workers if unseen}
        self._unkillable |= unkillable
        for worker in workers:
            if worker.pid in unkillable and not worker.ended.is_set() and not worker.given_up:
                worker.given_up = True
                self._changed.set()

    def _leave_detached(self, workers: Sequence[StartedWorker], gone: Sequence[StartedWorker]) -> None:
        """Names what lives on, and lets somebody else read what it prints."""
        detached = self._search.find_detached({worker.pid for worker in (*workers, *gone)})
        if detached:
            names = ", ".join(f"pid {found.pid} ({command_of(found.pid)})" for found in detached[:NAMED])
            more = f" and {len(detached) - NAMED} more" if len(detached) > NAMED else ""
            self._output.say(
                f"processes that the script started in their own session keep running: {names}{more} "
                "(--detached=kill ends them with the job)"
            )
        ways = {
            pipe.descriptor: self._output.target(worker.spec.round, worker.spec.local_rank, stream)
            for worker in workers
            for stream, pipe in worker.pipes
            if not pipe.ended
        }
        try:
            for descriptor in ways:
                os.set_inheritable(descriptor, True)
            if ways:
                argv = [sys.executable, "-I", "-S", str(DRAIN), *(f"{pipe}:{to}" for pipe, to in ways.items())]
                os.posix_spawn(sys.executable, argv, os.environ, setsid=True)
        except OSError as error:
            self._output.say(f"the output of these processes is no longer read: {error}")
