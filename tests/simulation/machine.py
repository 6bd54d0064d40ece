"""A simulated machine, as an agent sees it: worker processes, a guardian and ports, each as the real one behaves."""

import asyncio
import signal
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_run.adapters.client.channel import Back, Call
from elastic_run.elastic_agent.worker_server import Respond
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.workers.worker_ending import KILL_SECONDS
from elastic_run.elastic_agent.workers.worker_starter import StartFailed
from elastic_run.elastic_agent.zygotes.seed import Recipe
from elastic_run.rendezvous.member import Exit
from elastic_run.rendezvous.rpc.server import Methods

from .process_groups import SimulatedProcessGroups
from .script import Worker
from .services import SimulatedServices

if TYPE_CHECKING:
    from .world import World


class SimulatedMachine:
    """What one agent process gets of machine `name`. It stands for a `RealMachine`."""

    def __init__(self, world: "World", name: str, owner: str, listener: Callable[[], Any]) -> None:
        self._world = world
        self._name = name
        self._owner = owner
        self._listener = listener

    def workers(
        self, tag: str, silence: float | None, changed: Callable[[], None]
    ) -> "tuple[SimulatedWorkers, SimulatedGuard, SimulatedServices]":
        """See `RealMachine.workers`."""
        workers = SimulatedWorkers(self._world, self._name, self._owner)
        guard = SimulatedGuard(self._world, workers, silence)
        self._world.guards[self._owner] = guard
        services = self._world.services[self._owner] = SimulatedServices(self._world, self._owner, changed)
        return workers, guard, services

    def ports(self, count: int, least: int) -> "SimulatedPorts":
        """See `RealMachine.ports`."""
        made = SimulatedPorts(self._world, self._name, count)
        self._world.port_sets.setdefault(self._owner, []).append(made)
        return made

    def listens(self, port: int) -> bool:
        """See `RealMachine.listens`."""
        raise NotImplementedError("no worker here is forked, nor held")

    def has_address(self, address: str) -> bool:
        """See `RealMachine.has_address`."""
        return True

    def listener(self, bind: str) -> socket.socket:
        """See `RealMachine.listener`."""
        return self._listener()

    def worker_server(self, respond: Respond, also: Methods, say: Callable[[str], None]) -> "SimulatedWorkerServer":
        """See `RealMachine.worker_server`."""
        worker_server = self._world.worker_servers[self._owner] = SimulatedWorkerServer(
            self._world, self._owner, respond
        )
        return worker_server

    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> SimulatedProcessGroups:
        """See `RealMachine.process_groups`."""
        process_groups = self._world.process_groups[self._owner] = SimulatedProcessGroups(
            self._world, self._owner, changed, half_open_seconds
        )
        return process_groups


class SimulatedWorkers:
    """The workers of one agent; `workers.Workers` explains each method."""

    def __init__(self, world: "World", machine: str, owner: str) -> None:
        self._world = world
        self.machine = machine
        self._owner = owner
        self.current: list[Worker] = []
        self._gone: list[Worker] = []  # not kept, and not yet ended
        self._exits: list[Exit] = []
        self._stopping = False
        self._news = asyncio.Event()
        self._seen = self._version = 0
        self._deadline = 0.0
        self._ending: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._given_up: list[Worker] = []

    @property
    def exits(self) -> tuple[Exit, ...]:
        return tuple(self._exits)

    @property
    def alive(self) -> int:
        return len(self.pids)

    @property
    def unkillable(self) -> tuple[int, ...]:
        return tuple(worker.number for worker in self._given_up)

    @property
    def pids(self) -> dict[int, int]:
        ended = {exit_.pid for exit_ in self._exits} | set(self.unkillable)
        return {worker.local: worker.number for worker in self.current if worker.number not in ended}

    def used(self, pids: Collection[int]) -> float:
        busy = [one for one in self.current if one.number in pids and self._world.script.computes(one)]
        return self._world.now * len(busy)

    def let_go(self) -> None:
        """None is held."""

    def keep(self, kept: Mapping[int, WorkerSpec]) -> None:
        self._gone += [worker for worker in self.current if worker.number not in kept]
        self.current = [worker for worker in self.current if worker.number in kept]
        self._exits = []
        self._world.checker.survivors.on_not_kept(self._gone)
        for worker in self.current:
            self._world.keeps_worker(worker, kept[worker.number])
        self._version += 1
        self._news.set()

    async def fill(self, specs: Sequence[WorkerSpec], grace: float = 0.0) -> None:
        gone, self._gone = self._gone, []
        for worker in gone:
            self._world.script.end(worker, None, signal.SIGKILL)
        if gone:
            await asyncio.sleep(self._world.chance.uniform(0.0005, 0.003))  # until their processes are gone
        if any(worker.held for worker in gone):
            await asyncio.sleep(KILL_SECONDS)
            self._give_up(gone)
        if not specs:
            return
        if self._world.start_fails(self.machine, self._owner):
            raise StartFailed("cannot start the worker: [Errno 11] Resource temporarily unavailable")
        self._begin(specs)

    async def changed(self) -> None:
        while self._seen == self._version:
            self._news.clear()
            await self._news.wait()
        self._seen = self._version

    def warm(self, recipe: Recipe) -> None:
        raise NotImplementedError("these workers are no processes")

    async def ready(self) -> None:
        return

    def _give_up(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            if worker.held and worker not in self._given_up:
                self._given_up.append(worker)
                self._version += 1
                self._news.set()

    async def start(self, specs: Sequence[WorkerSpec]) -> None:
        if self._given_up:
            raise StartFailed(f"process {self.unkillable[0]} of the previous workers still does not exit")
        if self.alive or self._ending is not None:
            raise RuntimeError("workers of an earlier round still run: stop them first")
        self.current, self._exits, self._stopping = [], [], False
        self._seen = self._version
        self._over = asyncio.Event()
        if self._world.start_fails(self.machine, self._owner):
            raise StartFailed("cannot start the worker: [Errno 11] Resource temporarily unavailable")
        self._begin(specs)

    def _begin(self, specs: Sequence[WorkerSpec]) -> None:
        begun = [self._world.start_worker(self.machine, self._owner, spec, self._ended) for spec in specs]
        self.current += begun
        self._world.started_workers(self._owner, begun)

    def _ended(self, worker: Worker) -> None:
        # The kernel wakes the agent a moment later.
        self._world.after(self._world.chance.uniform(0.0001, 0.002), self._collect, worker)

    def _collect(self, worker: Worker) -> None:
        if worker not in self.current or any(exit_.local_rank == worker.local for exit_ in self._exits):
            return
        assert worker.ended is not None
        code, number, message = worker.ended
        self._exits.append(
            Exit(
                worker.round,
                worker.rank,
                worker.local,
                worker.number,
                code,
                number,
                message,
                seconds=worker.ended_at - worker.began,
                stopped=self._stopping,
            )
        )
        self._version += 1
        self._news.set()
        if self.alive == 0:
            self._over.set()

    async def stop(self, *, first: int = signal.SIGTERM, grace: float = 0.0) -> tuple[Exit, ...]:
        if not self._stopping:
            for worker in self.current:
                if worker.ended:
                    self._collect(worker)
            self._stopping = True
            self._world.checker.survivors.on_stop(self._owner, self.current)
            self._deadline = float("inf")
        loop = asyncio.get_running_loop()
        self._deadline = min(self._deadline, loop.time() + grace)
        if grace > 0:
            for worker in self.current:
                if not worker.ended and not worker.told:
                    self._world.script.told_to_go(worker, first, grace)
        self._over.set() if self.alive == 0 else self._hurry()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="stop workers")
        await asyncio.shield(self._ending)
        return self.exits

    def _hurry(self) -> None:
        """A second stop may have shortened the grace: the first looks at the deadline again."""
        if self._ending is not None:
            self._over.set()

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        while self.alive and loop.time() < self._deadline:
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._over.wait()
            except TimeoutError:
                break
            if self.alive:
                self._over.clear()
        for worker in (*self.current, *self._gone):
            self._world.script.end(worker, None, signal.SIGKILL)
        self._gone = []
        try:
            async with asyncio.timeout(KILL_SECONDS):
                while self.alive:
                    self._over.clear()
                    await self._over.wait()
        except TimeoutError:
            self._give_up(self.current)
        self._ending = None

    def pause(self) -> None:
        raise NotImplementedError("no terminal in a simulation")

    resume = pause

    async def close(self, *, keep_detached: bool = False, sessions: frozenset[int] = frozenset()) -> None:
        await self.stop(first=signal.SIGKILL, grace=0.0)

    def kill(self) -> None:
        """What the guardian does, and the kernel when the agent is gone."""
        for worker in (*self.current, *self._gone):
            self._world.script.end(worker, None, signal.SIGKILL)
        if services := self._world.services.get(self._owner):
            services.kill()


class SimulatedGuard:
    """Kills the workers of an agent that is gone, or silent for too long."""

    def __init__(self, world: "World", workers: SimulatedWorkers, silence: float | None) -> None:
        self._world = world
        self.workers = workers
        self._silence = silence
        self._beat = 0.0
        self._open = False

    def start(self) -> None:
        self._beat, self._open = self._world.now, True

    def beat(self) -> None:
        self._beat = self._world.now

    def pause(self) -> None:
        raise NotImplementedError("no terminal in a simulation")

    async def close(self, *, keep_detached: bool = False) -> None:
        self._open = False

    def agent_gone(self) -> None:
        """Its pipe has come to an end."""
        self._world.after(self._world.chance.uniform(0.001, 0.1), self.workers.kill)

    def agent_stopped(self) -> None:
        """From now on there may be silence."""
        if self._silence is not None and self._open:
            late = self._world.chance.uniform(0.0, min(1.0, self._silence / 4))
            self._world.after(self._beat + self._silence + late - self._world.now, self._strike, self._beat)

    def _strike(self, beat: float) -> None:
        if self._open and self._beat == beat:
            self._world.say("guardian", f"the agent on {self.workers.machine} is silent: its workers are killed")
            self.workers.kill()


class SimulatedPorts:
    """Ports that are free, unless a fault says otherwise."""

    def __init__(self, world: "World", machine: str, count: int) -> None:
        self._world = world
        self._machine = machine
        self._count = count
        self.offered: tuple[int, ...] = ()
        self.held: set[int] = set()
        self.renew()

    def renew(self) -> None:
        self.offered = tuple(self._world.next_port() for _ in range(self._count))
        self.held = set(self.offered)

    def release(self, port: int) -> bool:
        self.held.discard(port)
        if self._world.taken_ports.get(self._machine, 0):
            self._world.taken_ports[self._machine] -= 1
            return False
        return True

    def hold(self) -> None:
        self.held = set(self.offered)

    def close(self) -> None:
        return


class SimulatedWorkerServer:
    """There is no socket: a worker's call is a task of the agent's process, as a visit of the real one is."""

    def __init__(self, world: "World", owner: str, respond: Respond) -> None:
        self._world = world
        self._owner = owner
        self._respond = respond
        self._tasks: dict[asyncio.Task[Back], None] = {}
        self._closed = False
        self.rounds: dict[int, int] = {}
        self.address = ""

    async def start(self) -> None:
        if self._world.shape.inplace:
            self.address = f"@{self._owner}"

    def reach_peers(self, node: Callable[[], str], peers: object) -> None:
        """No worker leaves memory here."""

    def ask(self, call: Call, then: Callable[[Back], object]) -> None:
        """A worker asks; `then` hears the answer, unless the agent ends before."""
        process, kernel = self._world.agents[self._owner], self._world.kernel
        if self._closed or not process.alive:
            return
        context = process.context.copy()
        task = kernel.create_task(self._answer(call), name="a worker's call", context=context)
        self._tasks[task] = None
        task.add_done_callback(partial(self._answered, then), context=kernel.world)

    async def _answer(self, call: Call) -> Back:
        return await self._respond(call)

    def _answered(self, then: Callable[[Back], object], task: "asyncio.Task[Back]") -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        if error := task.exception():
            self._world.kernel.errors.append(f"{self._owner}: a worker's call raised {error!r}")
            return
        then(task.result())

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Reporter:
    """What an agent says, into the trace."""

    def __init__(self, world: "World", owner: str) -> None:
        self._world = world
        self._owner = owner

    def say(self, line: str) -> None:
        self._world.say(self._owner, line)

    def error_file(self, round: int, local_rank: int) -> Path:
        return Path(f"/{self._owner}/{round}/{local_rank}")
