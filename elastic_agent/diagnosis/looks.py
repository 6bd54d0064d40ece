"""Looks at this node's workers closely, when the master asks: the evidence of one node."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ...master.diagnosis.evidence import (
    MAX_LINES,
    MAX_SOCKETS,
    MAX_THREADS,
    Blocked,
    Disk,
    Frame,
    NodeEvidence,
    Snapshot,
    Socket,
    ThreadState,
    Worker,
)
from ...master.diagnosis.frames import script_frames
from ...master.diagnosis.limits import NEAR
from ...master.diagnosis.places import waits_for_process
from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.base.tasks import Tasks
from ...rendezvous.base.threads import T, Threads
from . import descendants, kernel
from .activity import Quiet
from .running import Running
from .stacks import MISSING, SECONDS, Stack, Stacks

LOOKS = 4
"""At each worker."""

PAUSE = 0.1
"""Seconds between two of them."""

MORE = 10
MORE_PAUSE = 0.08
"""The same, at those that compute: whether they are in one place is not seen from a few."""

COMPUTES = 0.3
"""Of a processor: who uses more computes."""

FRESH = 3.0
"""Seconds for which a look that was taken ahead is the first one of a diagnosis."""

LONG_LOOKS = 16
LONG_PAUSE = 0.2
"""The same, where it is to be seen how workers share their time between their own work and waiting for others."""

LINE = 300
"""Characters of a line of output."""


AT_ONCE = 16
"""Workers that are looked at at the same time."""

READ_SECONDS = 3.0
"""For one look at a worker, or at a file system: what is read of a worker may block as the worker does."""

MAX_STACKS = 256
"""Of one node in one diagnosis, or two for each worker where these are more. Each takes about 0.1 s of a processor."""

SCARCE = "no stacks are taken on a node that is near its limit of memory or of processes"


class Looks:
    """Those of one agent.

    Args:
        program: py-spy, as `stacks.py_spy` found it when the agent started.
    """

    def __init__(self, program: str | None) -> None:
        self._stacks = Stacks(program)
        self._threads = Threads(AT_ONCE)
        self._ahead: dict[int, _Looking] = {}  # by pid
        self._beginning = Tasks()

    def look_ahead(self, workers: Sequence[Running]) -> asyncio.Task[None]:
        """Begins the first look at workers that are about to be suspects: a diagnosis then needs only one more."""
        now = time.monotonic()
        stale = [pid for pid, each in self._ahead.items() if each.begun < now - FRESH]
        fresh = [each for each in workers if each.pid not in self._ahead or each.pid in stale]
        dropped = [self._ahead.pop(pid) for pid in stale]
        most = _most_stacks(kernel.memory(), kernel.processes(), len(fresh))
        looking = [_Looking(each, now, {}, most, self._stacks, self._threads) for each in fresh]
        self._ahead |= {each.worker.pid: each for each in looking}
        return self._beginning.begin(self._begin(looking, dropped), "the first looks of a diagnosis")

    async def _begin(self, looking: "Sequence[_Looking]", dropped: "Sequence[_Looking]") -> None:
        await cancel(*(task for each in dropped for task in each.tasks.values()))
        sockets = await self._connections([each.worker.pid for each in looking]) or {}
        for each in looking:
            each.sockets = sockets.get(each.worker.pid, {})
        await asyncio.gather(*(each.take(each.worker, always=True) for each in looking))

    async def close(self) -> None:
        """Ends what was begun ahead."""
        await self._beginning.close()
        await cancel(*(task for each in self._ahead.values() for task in each.tasks.values()))

    async def look(
        self,
        node: str,
        round: int,
        workers: Callable[[], Sequence[Running]],
        quiet: Mapping[int, Quiet],
        *,
        long: bool = False,
        paths: Sequence[str] = ("/tmp", "/dev/shm"),
    ) -> NodeEvidence:
        """The evidence of this node.

        Args:
            node: its name.
            round: whose workers they are.
            workers: those that there are.
            quiet: by local rank.
            long: how workers share their time is to be seen.
            paths: of file systems that workers use.
        """
        begun = time.monotonic()
        used, limit = kernel.memory()
        count, most = kernel.processes()
        living = [each for each in workers() if each.ended is None]
        stacks = _most_stacks((used, limit), (count, most), len(living))
        sockets = await self._connections([each.pid for each in living]) or {}
        ahead = {} if long else self._take_ahead(living, begun)
        looking = ahead | {
            each.pid: _Looking(each, begun, sockets.get(each.pid, {}), stacks, self._stacks, self._threads)
            for each in living
            if each.pid not in ahead
        }
        try:
            await self._look_at(looking, workers, stacks, long=long, ahead=len(ahead) == len(looking))
            await asyncio.gather(*(each.await_stacks() for each in looking.values()))
        finally:
            await cancel(*(task for each in looking.values() for task in each.tasks.values()))
        last = await self._connections(looking)
        looked = await asyncio.gather(
            *(
                each.result((last or {}).get(pid, {}), quiet.get(each.worker.local_rank, Quiet()))
                for pid, each in looking.items()
            )
        )
        gone = [
            Worker(each.rank, each.local_rank, each.pid, each.ended) for each in workers() if each.ended is not None
        ]
        disks = dict(filter(None, await asyncio.gather(*map(self._disk, paths))))
        return NodeEvidence(
            node,
            round,
            (*filter(None, looked), *gone),
            kernel.network(),
            time.time(),
            used,
            limit,
            count,
            most,
            tuple(disks.values())[:8],
            blind=last is None
            or any(len(each) > MAX_SOCKETS for each in last.values())
            or any(each.blocks for each in looking.values()),
        )

    def _take_ahead(self, living: Sequence[Running], now: float) -> "dict[int, _Looking]":
        """The looks that were begun ahead, by pid; those of another rank's or an earlier worker are not."""
        found = dict[int, _Looking]()
        for each in living:
            begun = self._ahead.get(each.pid)
            if begun and begun.seen and begun.worker.rank == each.rank and begun.begun >= now - FRESH:
                found[each.pid] = self._ahead.pop(each.pid)
        return found

    async def _look_at(
        self,
        looking: "Mapping[int, _Looking]",
        workers: Callable[[], Sequence[Running]],
        stacks: int,
        *,
        long: bool,
        ahead: bool,
    ) -> None:
        """Takes all looks; `ahead`: the first one of each worker was taken before."""
        count, pause = (min(LONG_LOOKS, stacks or LOOKS), LONG_PAUSE) if long else (1 if ahead else LOOKS, PAUSE)
        for number in range(count + MORE):
            wanted = long or number in (0, count - 1)
            await asyncio.gather(
                *(
                    looking[each.pid].take(each, always=wanted)
                    for each in workers()
                    if each.pid in looking and (number < count or looking[each.pid].computes)
                )
            )
            if number >= count - 1 and (long or not any(each.computes for each in looking.values())):
                break
            await asyncio.sleep(pause if number < count else MORE_PAUSE)

    async def _connections(self, pids: Iterable[int]) -> Mapping[int, Mapping[int, Socket]] | None:
        """None: they could not be read, or not in time."""
        those = list(pids)
        try:
            return await self._threads.run(lambda: kernel.connections(those), READ_SECONDS)
        except OSError:
            return None

    async def _disk(self, path: str) -> tuple[int, Disk] | None:
        try:
            return await self._threads.run(lambda: kernel.disk(path), READ_SECONDS)
        except OSError:
            return None


@dataclass(eq=False, repr=False)
class _Looking:
    """The looks at one worker: those of a diagnosis that has begun at `begun`, with so many stacks at most.

    Attributes:
        blocks: something that is read of it does, so that its connections are not known.
    """

    worker: Running
    begun: float
    sockets: Mapping[int, Socket]
    _most: int
    _stacks: Stacks
    _threads: Threads

    def __post_init__(self) -> None:
        self.tasks: dict[int, asyncio.Task[tuple[Stack, tuple[ThreadState, ...]]]] = {}  # by the number of the snapshot
        self._snapshots: list[Snapshot] = []
        self.blocks = False
        self._throttled = kernel.throttled(self.worker.pid)
        self._polling = kernel.polling_threads(self.worker.pid)

    async def take(self, worker: Running, *, always: bool) -> None:
        """One more; its stack too, where that is wanted `always` or the worker computes."""
        self.worker = worker
        snapshot = await self._snapshot()
        if snapshot is None:
            return
        wanted = always or (self._snapshots and snapshot.cpu > self._snapshots[0].cpu)
        if wanted and len(self.tasks) < self._most:
            self.tasks[len(self._snapshots)] = asyncio.create_task(self._take_stacks(worker.pid, snapshot.blocked))
        self._snapshots.append(snapshot)

    async def _take_stacks(self, pid: int, blocked: Blocked) -> tuple[Stack, tuple[ThreadState, ...]]:
        """The stacks of a worker, with its other threads and, where it waits for them, its processes."""
        stack = await self._take_stack(pid)
        taken = {pid: stack.others}
        if stack.trouble != MISSING and waits_for_process(stack.frames, blocked):
            for each in await self._read(lambda: descendants.python_processes(pid), ()):
                found = await self._take_stack(each)
                taken[each] = ((each, found.frames), *found.others) if found.frames else ()
        processes = [each for each in taken if each != pid]
        apart = await self._read(lambda: descendants.processes_apart(pid, processes), frozenset()) if processes else ()
        states = await self._read(lambda: _thread_states(pid, taken, self.sockets, apart), ())
        return stack, states

    async def _take_stack(self, pid: int) -> Stack:
        return await self._stacks.take(pid, max(0.0, self.begun + SECONDS - time.monotonic()))

    async def _read(self, work: Callable[[], T], otherwise: T) -> T:
        """What `work` reads of the worker; `otherwise` where that blocks, now or before."""
        if not self.blocks:
            try:
                return await self._threads.run(work, READ_SECONDS)
            except OSError:
                self.blocks = True
        return otherwise

    @property
    def seen(self) -> bool:
        """At least once."""
        return bool(self._snapshots)

    @property
    def computes(self) -> bool:
        """As far as it was seen."""
        if len(self._snapshots) < 2:
            return False
        first, last = self._snapshots[0], self._snapshots[-1]
        return last.cpu + last.delayed - first.cpu - first.delayed > COMPUTES * (last.at - first.at)

    async def await_stacks(self) -> None:
        """All that are being taken."""
        await asyncio.gather(*self.tasks.values())

    async def result(self, sockets: Mapping[int, Socket], quiet: Quiet) -> Worker | None:
        """What was seen, and a last look; None where the worker has gone."""
        found = {number: task.result() for number, task in self.tasks.items()}
        self.sockets = sockets
        last = await self._snapshot()
        if last is None or not self._snapshots:
            return None
        newest = found[max(found)][0] if found else Stack(trouble="" if self._most else SCARCE)
        snapshots = [*(_with(each, found.get(number)) for number, each in enumerate(self._snapshots)), last]
        each = self.worker
        brief = Worker(
            each.rank,
            each.local_rank,
            each.pid,
            None,
            quiet.seconds,
            quiet.allowed,
            quiet.woken,
            quiet.spins,
            tuple(snapshots),
            stacks=newest.trouble,
            last_lines=last_lines(each.tail),
            rested=quiet.rested,
        )
        seen = await self._read(lambda: _with_details(brief, sockets), brief)
        return brief if self.blocks else replace(seen, throttled=kernel.throttled(each.pid) - self._throttled)

    async def _snapshot(self) -> Snapshot | None:
        """A brief one, of what never blocks, once something that is read of this worker has blocked."""
        worker, sockets = self.worker, self.sockets
        seen = await self._read(lambda: _snapshot(worker, self.begun, sockets, self._polling), None)
        return _snapshot(worker, self.begun, None, self._polling) if self.blocks else seen


def _most_stacks(memory: tuple[int, int], processes: tuple[int, int], workers: int) -> int:
    """Of each of so many workers; 0 on a node that has used so much of its limits that it takes none."""
    if any(used > NEAR * limit > 0 for used, limit in (memory, processes)):
        return 0
    return max(2, MAX_STACKS // max(1, workers))


def _with(snapshot: Snapshot, taken: tuple[Stack, tuple[ThreadState, ...]] | None) -> Snapshot:
    if taken is None:
        return snapshot
    stack, threads = taken
    return replace(
        snapshot, frames=stack.frames, holds_gil=stack.holds_gil, gil_holder=stack.gil_holder, threads=threads
    )


def _thread_states(
    pid: int,
    taken: Mapping[int, Iterable[tuple[int, tuple[Frame, ...]]]],
    sockets: Mapping[int, Socket],
    apart: Collection[int],
) -> tuple[ThreadState, ...]:
    """Those of a worker and of its processes whose stacks were `taken`: first those that are in the user's files."""
    found = [
        replace(state, frames=frames, apart=process in apart)
        for process, threads in taken.items()
        for number, frames in threads
        if (state := kernel.thread_state(process, number, sockets, child=process != pid))
    ]
    found.sort(key=lambda each: not script_frames(each.frames))
    return tuple(found[:MAX_THREADS])


def _snapshot(
    each: Running, begun: float, sockets: Mapping[int, Socket] | None, polling: Sequence[int]
) -> Snapshot | None:
    """`sockets`: its connections; None: only what never blocks is read. `polling`: threads that do not count."""
    at, used = time.monotonic() - begun, kernel.used(each.pid, moved=sockets is not None, without=polling)
    if used is None:
        return None
    return Snapshot(
        at,
        used.state,
        kernel.channel(each.pid),
        used.cpu,
        used.main_cpu,
        0.0 if sockets is None else descendants.child_cpu(each.pid),
        used.ready,
        used.switches,
        each.output,
        used.moved,
        Blocked() if sockets is None else kernel.blocked(each.pid, sockets),
    )


def _with_details(brief: Worker, sockets: Mapping[int, Socket]) -> Worker:
    used, (count, limit) = kernel.used(brief.pid), kernel.descriptors(brief.pid)
    return replace(
        brief,
        connections=tuple(sockets.values())[:MAX_SOCKETS],
        children=descendants.children(brief.pid),
        descriptors=count,
        descriptor_limit=limit,
        threads=used.threads if used else 0,
        resident=used.resident if used else 0,
        signals=kernel.handled_signals(brief.pid),
        timers=kernel.has_timers(brief.pid),
        native=descendants.is_native(brief.pid),
    )


def last_lines(tail: bytes, most: int = MAX_LINES) -> tuple[str, ...]:
    """The last lines of a worker's output."""
    lines = [line for line in tail.decode(errors="replace").splitlines() if line.strip()]
    return tuple(line[:LINE] for line in lines[-most:])
