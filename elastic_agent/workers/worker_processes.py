"""The worker processes of this machine: start them, hear at once when one ends, and leave nothing of them behind.

Each (`started_worker.py`) is a child of the agent, leads a session of its own and is told to the guardian. Its end is
heard through a pidfd, never by polling, and its exit code is collected by that very handle. What it wrote is in its
pipes by the time it has ended, so an `Exit` is complete the moment it appears, also where a grandchild holds the pipes
open.

Everything that is in a worker's session, carries the agent's tag or descends from such a process (`process_search.py`)
is ended with it (`worker_ending.py`). The agent is a subreaper, so that orphans (a double fork) stay below it, where
they can be found; `Reaper` collects them when they end.

All of this runs on the event loop's thread. That thread has to live as long as the workers: the kernel's parent-death
signal follows the thread that forked.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Collection, Mapping, Sequence

from ...rendezvous.member import Exit
from ..diagnosis.running import Running
from ..logs.backpressure import Backpressure
from ..logs.output import Output
from ..processes.guard import Guardian
from ..processes.guardian import descendants, process, waited
from ..processes.out_of_memory import OomKills
from ..processes.reaper import Reaper
from ..zygotes.seed import Limits, Recipe, Seed
from .failure import STOOD_STILL
from .process_search import ProcessSearch
from .started_worker import StartedWorker, WorkerSpec
from .streams import Printed
from .worker_ending import KILL_SECONDS, StopRequest, WorkerEnding
from .worker_exit import describe_end
from .worker_starter import StartFailed, WorkerStarter

_TERM = signal.SIGTERM
"""By its own name, because `Workers.signal` hides the module inside its class."""


class Workers:
    """The workers of one round after the other.

    Args:
        tag: the agent's incarnation; no comma.
        output: where what they print goes.
        guardian: is told of every session.
        seed: the process of a warm interpreter that runs already.
        limits: the workers' soft limits; None: this process's own.
        alone: nothing else in this process starts others, so that every daemon which appears below it is a worker's.

    Attributes:
        apart: sessions that the agent ends by itself: a stop leaves them alone.
    """

    def __init__(
        self,
        *,
        tag: str,
        output: Output,
        guardian: Guardian,
        seed: Seed | None = None,
        limits: Limits | None = None,
        kill_seconds: float = KILL_SECONDS,
        alone: bool = False,
    ) -> None:
        self._output = output
        self._guardian = guardian
        self.reaper = Reaper()
        self.apart: set[int] = set()
        self._starter = starter = WorkerStarter(tag, output, seed, limits)
        self._search = ProcessSearch(tag, self.reaper, lambda: self.apart | starter.sessions, alone=alone)
        self._changed = asyncio.Event()
        self._ending = WorkerEnding(self._search, output, guardian, kill_seconds, self._changed)
        self._current: list[StartedWorker] = []
        self._gone: list[StartedWorker] = []  # not kept, and not yet ended
        self._exits: list[Exit] = []
        self._asked: StopRequest | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._backpressure = Backpressure(output, self._stop_reading, self._read_again)
        self._oom = OomKills()

    @property
    def exits(self) -> tuple[Exit, ...]:
        """The ends of the current workers, in the order of arrival."""
        return tuple(self._exits)

    @property
    def alive(self) -> int:
        """How many of the current workers have not ended, without those that could not be killed."""
        return len(self.pids)

    @property
    def pids(self) -> dict[int, int]:
        """The living workers: local rank to pid. Those that could not be killed are in `unkillable`."""
        return {
            worker.spec.local_rank: worker.pid
            for worker in self._current
            if not worker.ended.is_set() and not worker.given_up
        }

    @property
    def running(self) -> tuple[Running, ...]:
        """The current workers, those that have ended included, as they are looked at from outside."""
        ends = {each.pid: each for each in self._exits}
        return tuple(worker.see(ends.get(worker.pid)) for worker in self._current if not worker.given_up)

    def condemn(self, rank: int, why: str) -> bool:
        """Kills the worker of that rank, because the job stood still, and `why`; False where it has none."""
        for worker in self._current:
            if worker.spec.rank == rank and not worker.ended.is_set():
                worker.condemned = f"{STOOD_STILL}{why}"
                worker.send(signal.SIGKILL)
                return True
        return False

    def used(self, pids: Collection[int]) -> float:
        """Seconds for which these workers and their living children have used a processor, or waited for one.

        On a busy machine who computes may get little of it. 0 where that cannot be seen.
        """
        with contextlib.suppress(OSError):
            own = [each for pid in pids if (each := process(pid))]
            found = [*own, *(each for pid in pids for each in descendants(pid))]
            return sum(each.used + waited(each.pid) for each in found)
        return 0.0

    @property
    def unkillable(self) -> tuple[int, ...]:
        """Pids that the last stop could not kill within its bound and that are still there."""
        return self._ending.unkillable

    async def changed(self) -> None:
        """Wait until `exits` or `alive` differs from what it was at the last call (or at the start). One caller."""
        while not self._changed.is_set():
            await self._changed.wait()
        self._changed.clear()

    def warm(self, recipe: Recipe) -> None:
        """Begin to make the warm interpreter that workers are forked from; without it each is a fresh one.

        `recipe.environment` is what the workers have in common, without the agent's tag.
        """
        self.reaper.start()
        self._starter.warm(recipe)

    async def ready(self) -> None:
        """Wait until a start would wait for nothing more: the warm interpreter is there, or will not come."""
        if self._starter.zygotes is not None:
            await self._starter.zygotes.settled()

    async def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Start all of `specs` or none (StartFailed). Call `stop` first where there were others before.

        Where the caller is cancelled, what was started meanwhile is found and ended by the next `stop`.
        """
        if unkillable := self.unkillable:
            raise StartFailed(f"process {unkillable[0]} of the previous workers still does not exit")
        if self.alive or self._stopping is not None:
            raise RuntimeError("workers of an earlier round still run: stop them first")
        self.reaper.start()
        with contextlib.suppress(ValueError, RuntimeError):  # not in the thread that hears of signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self._resize)
        self._forget()
        self._asked = None
        self._changed.clear()
        await self._begin(specs)

    def let_go(self) -> None:
        """Has those begin that are held, as their `begin` says."""
        if self._starter.zygotes is not None:
            self._starter.zygotes.let_go()

    def keep(self, kept: Mapping[int, WorkerSpec]) -> None:
        """The next round, in which these keep their process. Call `fill` then: it ends the others.

        Args:
            kept: what each of them is from now on, by pid.
        """
        for worker in (each for each in self._current if each.pid not in kept):
            worker.counts = False
            self._gone.append(worker)
        self._current[:] = [worker for worker in self._current if worker.pid in kept]
        self._exits = []
        for worker in self._current:
            worker.become(kept[worker.pid], self._output)
        self._changed.set()

    async def fill(self, specs: Sequence[WorkerSpec], grace: float = 0.0) -> None:
        """Ends those that were not kept, and starts all of `specs` or none beside the others (StartFailed).

        An orphan of an ended worker that has left its session lives on until all are stopped. `grace`: see `stop`.
        """
        await self._ending.end_some(self._gone, grace)
        self._gone.clear()
        await self._begin(specs)

    def signal(self, signum: int) -> None:
        """Send `signum` to every living worker itself, not to its children."""
        for worker in self._current:
            worker.send(signum)

    def pause(self) -> None:
        """Stop the workers' process groups where they are (Ctrl-Z)."""
        self._output.pause()
        for worker in self._current:
            worker.send_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let paused workers continue."""
        self._output.resume()
        for worker in self._current:
            worker.send_group(signal.SIGCONT)

    async def stop(self, *, first: int = _TERM, grace: float = 0.0) -> tuple[Exit, ...]:
        """End the current workers and all that they started; returns all exits of the set.

        Args:
            first: the signal that each worker gets, where there is a grace. What it started gets it when the worker
                itself has ended: before that, the worker may still need it (the processes of a DataLoader).
            grace: seconds that all of them have to end by themselves; 0: SIGKILL at once.

        Ends within `grace` and KILL_SECONDS more; processes that are then still there are named in a line, and are in
        `unkillable`. A second call while one runs signals again and can only shorten the grace. Where the caller is
        cancelled, the stop continues; `close` waits for it.
        """
        if (asked := self._asked) is None:
            # Those that had ended by themselves before this moment were not stopped.
            for worker in self._current:
                worker.check_end()
            asked = self._asked = StopRequest()
            for worker in (*self._current, *self._gone):
                worker.stopped = True
        asked.until = min(asked.until, time.monotonic() + grace)
        if grace > 0:
            asked.first = first
            asked.told.clear()
            self.signal(first)
        asked.hurry.set()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._end(asked), name="stop workers")
        await asyncio.shield(self._stopping)
        return self.exits

    async def close(self, *, keep_detached: bool = False, sessions: frozenset[int] = frozenset()) -> None:
        """Kill what still runs and give up all handles.

        With `keep_detached`, what has left the session of its worker lives on, and what it prints goes on to where its
        worker's output went. What is in one of `sessions`, or was started by a service, does not.
        """
        warm = self._starter.sessions
        await self._starter.close()
        if keep_detached:
            self._ending.only = warm | sessions | {worker.pid for worker in (*self._current, *self._gone)}
        await self.stop()
        self._forget()
        self._oom.close()
        self.reaper.close()

    async def _end(self, asked: StopRequest) -> None:
        try:
            await self._ending.end_all(self._current, self._gone, asked)
            self.reaper.reap()
        finally:
            self._stopping = None

    async def _begin(self, specs: Sequence[WorkerSpec]) -> None:
        """Starts all of `specs` beside those that run, or none of them (StartFailed)."""
        self._oom.close()
        self._oom = OomKills()  # of the workers that are about to run
        self._oom.look_on()
        if not specs:
            return
        if (forked := await self._starter.fork(specs)) is None:
            self._current += self._starter.start_afresh(specs, self._attend)
            return
        self._current += forked
        for worker in forked:
            self._attend(worker)

    def _attend(self, worker: StartedWorker) -> None:
        """Tell the guardian of a new worker, and listen to it."""
        worker.stopped = self._asked is not None
        self._guardian.watch(worker.pid)
        self._search.note_start(worker.pid)
        worker.attend(self._hear_end, self.reaper, self._output.say)
        if not self._backpressure.stopped:
            for _, pipe in worker.pipes:
                pipe.listen(self._backpressure.look)

    def _hear_end(self, worker: StartedWorker, code: int) -> None:
        if self._asked is not None:
            self._asked.hurry.set()  # what it leaves behind is to be told now
        if not worker.counts:
            worker.end_output()
            self._guardian.forget(worker.pid)
            return
        self._exits.append(describe_end(worker, code, self._output, self._oom))
        self._changed.set()

    def _resize(self) -> None:
        for worker in self._current:
            for name, pipe in worker.pipes:
                if size := self._output.terminal_size(worker.spec.local_rank, name):
                    pipe.resize(size)

    def _stop_reading(self) -> None:
        for pipe in self._open_pipes():
            pipe.rest()

    def _read_again(self) -> None:
        for pipe in self._open_pipes():
            pipe.listen(self._backpressure.look)

    def _open_pipes(self) -> list[Printed]:
        return [pipe for worker in self._current for _, pipe in worker.pipes if not pipe.closed]

    def _forget(self) -> None:
        """Give up the ended set."""
        for worker in self._current:
            worker.end_output()
            # An unkillable one is still waited for, so that it does not stay as a zombie.
            worker.counts = False
        self._current.clear()
        self._gone.clear()
        self._exits = []
