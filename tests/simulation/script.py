"""The training script of a simulated job, as its workers live it: import, meet, train, end, and drag each other down.

Workers meet at MASTER_ADDR:MASTER_PORT, as torch's do, and know nothing of rounds or agents: what they are given in
their environment is all that ties them together. So a launcher that gives two rounds one meeting place, or one rank
to two workers, is found out here.
"""

import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

MEETING = 60.0
"""Seconds that workers wait for one that never comes: to meet, and in a collective."""

COUPLED = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.{}]:41233",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error",
    "RuntimeError: Connection reset by peer",
)
"""What survivors die of when a peer has gone. Of the second only the framework's adapter knows what it means."""


@dataclass(eq=False)
class Worker:
    """One simulated worker process.

    Attributes:
        machine: where it runs.
        owner: the agent process that started it (its name).
        ended: how, as (exit code, signal, message); None while it runs.
        held: SIGKILL ends it for its peers, and the kernel never lets go of the process.
    """

    number: int
    machine: str
    owner: str
    run: str
    round: int
    rank: int
    local: int
    place: tuple[str, str]
    world: int
    began: float
    on_end: Callable[["Worker"], None]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    ended: tuple[int | None, int | None, str] | None = None
    ended_at: float = 0.0
    told: bool = False
    paused: bool = False
    held: bool = False
    group: "Group | None" = None

    @property
    def name(self) -> str:
        """For the trace."""
        return f"rank {self.rank} of round {self.round} on {self.machine}"


@dataclass(eq=False)
class Group:
    """The workers that met at one place."""

    place: tuple[str, str]
    world: int
    workers: dict[int, Worker] = field(default_factory=dict[int, Worker])
    running_since: float | None = None
    done_before: float = 0.0
    broken: bool = False


class Ground(Protocol):
    """What the script needs of the world."""

    chance: random.Random

    @property
    def now(self) -> float:
        """World time, seconds."""
        ...

    def after(self, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        """Calls it later, in the world's own context."""
        ...

    def reaches(self, a: str, b: str) -> bool:
        """Messages from machine a arrive at machine b."""
        ...

    def is_on(self, machine: str) -> bool:
        """It has power."""
        ...

    def violated(self, rule: str, what: str) -> None:
        """Something happened that must never happen."""
        ...

    def met(self, group: Group) -> None:
        """A group has begun to train."""
        ...

    def finishing(self, worker: Worker) -> None:
        """A worker has ended with 0, its work done."""
        ...


class Script:
    """Trains `work` seconds in all; what a broken group had done by its last full second is not lost.

    Attributes:
        train: where the script leases its data, what a group does instead, once its workers have met.
        write: where workers need not meet, what each does instead.
    """

    def __init__(self, ground: Ground, work: float) -> None:
        self._ground = ground
        self._work = work
        self.progress = 0.0
        self.train: Callable[[Group], object] | None = None
        self.write: Callable[[Worker], object] | None = None
        self._groups: dict[tuple[str, str], Group] = {}
        self._leaving: set[Worker] = set()  # they have failed, and their process is about to be gone

    def computes(self, worker: Worker) -> bool:
        """It uses a processor, as far as its agent can see."""
        return False

    # -- a worker's life

    def begin(self, worker: Worker) -> None:
        """Its interpreter starts; a while later it wants to meet the others."""
        self._ground.after(self._ground.chance.uniform(0.05, 0.8), self._meet, worker)

    def _meet(self, worker: Worker) -> None:
        if worker.ended or self._held_up(worker, self._meet):
            return
        if self.write:
            self._work_alone(worker, self.write)
            return
        group = self._groups.get(worker.place)
        if group is None or all(mate.ended for mate in group.workers.values()):
            group = self._groups[worker.place] = Group(worker.place, worker.world)
        for mate in group.workers.values():
            if not mate.ended and mate.round != worker.round:
                self._ground.violated("two rounds never meet", f"{worker.name} meets {mate.name} at {worker.place}")
        if worker.rank in group.workers and not group.workers[worker.rank].ended:
            self._ground.violated("one worker a rank", f"{worker.name} and {group.workers[worker.rank].name}")
        group.workers[worker.rank] = worker
        worker.group = group
        self._ground.after(MEETING, self._give_up, worker, group)
        self._try_to_begin(group)

    def _work_alone(self, worker: Worker, write: Callable[[Worker], object]) -> None:
        """A group only in that somebody looks whether all have begun."""
        key = worker.run, str(worker.round)
        group = self._groups.setdefault(key, Group(key, worker.world))
        group.workers[worker.rank] = worker
        write(worker)
        if group.running_since is None and set(group.workers) == set(range(group.world)):
            group.running_since = self._ground.now
            self._ground.met(group)

    def _give_up(self, worker: Worker, group: Group) -> None:
        """Somebody has never come."""
        if group.running_since is None and not group.broken and worker.ended is None:
            self._miss_somebody(worker, len(group.workers), group.world)

    def _miss_somebody(self, worker: Worker, here: int, world: int) -> None:
        self._fail_with(worker, f"DistStoreError: timed out waiting for clients: {here}/{world} joined")

    def _try_to_begin(self, group: Group) -> None:
        if group.running_since is not None or group.broken or set(group.workers) != set(range(group.world)):
            return
        if any(worker.ended for worker in group.workers.values()):
            return
        if not self.whole(group):
            self._ground.after(0.5, self._try_to_begin, group)
            return
        group.running_since, group.done_before = self._ground.now, self.progress
        self._ground.met(group)
        if self.train:
            self.train(group)
        else:
            self._ground.after(max(0.0, self._work - self.progress), self.finish, group)

    def finish(self, group: Group) -> None:
        """They have done their work, and end."""
        if group.broken:
            return
        if not self.whole(group):
            self._ground.after(0.5, self.finish, group)  # a collective waits; TCP sends again when it can
            return
        self.progress = max(self.progress, self._work)
        group.broken = True  # from here on nobody needs the others
        tail = self._ground.chance.choice((0.001, 0.05, 0.6))
        for worker in group.workers.values():
            self._ground.after(self._ground.chance.uniform(0.0, tail), self.succeed, worker)

    def succeed(self, worker: Worker) -> None:
        """It has done its work, and ends."""
        if worker.ended or worker in self._leaving or self._held_up(worker, self.succeed):
            return
        self.end(worker, 0, None)
        self._ground.finishing(worker)

    def whole(self, group: Group) -> bool:
        """A collective of all of them can be done now."""
        machines = list(dict.fromkeys(worker.machine for worker in group.workers.values()))
        if any(worker.paused for worker in group.workers.values()):
            return False
        return all(self._ground.reaches(a, b) for a in machines for b in machines if a != b)

    def _held_up(self, worker: Worker, then: Callable[[Worker], None]) -> bool:
        if worker.paused:
            self._ground.after(0.25, then, worker)
        return worker.paused

    # -- ends

    def end(self, worker: Worker, code: int | None, number: int | None, message: str = "") -> None:
        """The worker's process ends now; its peers may die of it."""
        if worker.ended:
            return
        worker.ended, worker.ended_at = (code, number, message), self._ground.now
        if not worker.held or number != signal.SIGKILL:
            worker.on_end(worker)
        self._leave_group(worker)

    def _leave_group(self, worker: Worker) -> None:
        group = worker.group
        if group is None or group.broken:
            return
        if group.running_since is None and worker.rank != 0:
            return  # the others still wait for somebody to come
        group.broken = True
        if group.running_since is not None:
            trained = int(self._ground.now - group.running_since)
            self.progress = min(self._work, max(self.progress, group.done_before + trained))
        self._drag_down(worker, group)

    def _drag_down(self, dead: Worker, group: Group) -> None:
        for mate in group.workers.values():
            if not mate.ended and mate is not dead:
                self._hear_of(mate, dead, self._ground.is_on(dead.machine))

    def _hear_of(self, mate: Worker, dead: Worker, told: bool, waited: float = 0.0) -> None:
        """Tells `mate` of the end of `dead`, whose kernel has told it or, after a silence, refuses to know of it."""
        if mate.ended:
            return
        here = mate.machine == dead.machine
        if here or (self._ground.is_on(dead.machine) and self._ground.reaches(dead.machine, mate.machine)):
            delay = self._ground.chance.choice((0.0005, 0.01, 0.2)) * self._ground.chance.uniform(0.2, 2.0)
            words = self._ground.chance.choice(COUPLED).format(dead.rank)
            self._ground.after(delay if told else 1 + delay, self._fail_with, mate, words)
        elif waited < MEETING:  # it hangs in its collective; TCP asks again and again
            self._ground.after(2.0, self._hear_of, mate, dead, False, waited + 2.0)
        else:
            self._fail_with(mate, COUPLED[0].format(dead.rank))

    def _fail_with(self, worker: Worker, message: str) -> None:
        if not worker.ended and not self._held_up(worker, lambda mate: self._fail_with(mate, message)):
            self.end(worker, 1, None, message)

    def told_to_go(self, worker: Worker, number: int, grace: float) -> None:
        """A signal that a script may handle: most die of it at once, some save something first, some do not listen."""
        worker.told = True
        kind = self._ground.chance.random()
        if kind < 0.6:
            self._ground.after(self._ground.chance.uniform(0.001, 0.02), self.end, worker, None, number)
        elif kind < 0.9:
            code = self._ground.chance.choice((0, 143))
            self._ground.after(self._ground.chance.uniform(0.0, grace), self.end, worker, code, None)

    def hurt(self, worker: Worker, how: str, mark: str) -> None:
        """Somebody's fault: how it ends is one of `schedule.DEATHS`; `mark` makes its message unlike any other."""
        match how:
            case "killed":
                self.end(worker, None, signal.SIGKILL)
            case "segv":
                self.end(worker, None, signal.SIGSEGV)
            case "raise":
                self._take_leave(worker, 1, f"ValueError: {mark}")
            case "exit3":
                self._take_leave(worker, 3, "")
            case "exit0":
                self.end(worker, 0, None)
            case _:
                pass  # it hangs, and nobody has told the launcher what progress is

    def _take_leave(self, worker: Worker, code: int, message: str) -> None:
        """An interpreter that ends may close its connections a moment before its process is gone."""
        linger = self._ground.chance.choice((0.0, 0.0, 0.004, 0.02)) * self._ground.chance.uniform(0.2, 1.0)
        if linger and not worker.ended:
            self._leaving.add(worker)
            self._leave_group(worker)
            self._ground.after(linger, self.end, worker, code, None, message)
        else:
            self.end(worker, code, None, message)

    def power_lost(self, workers: Mapping[int, Worker]) -> None:
        """Their machine has no power any more: they are gone, and nobody is told."""
        for worker in workers.values():
            self.end(worker, None, signal.SIGKILL)

    def agent_gone(self, owner: str) -> None:
        """An agent's process has ended, which workers like these do not notice."""
