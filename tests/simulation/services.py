"""Jobs whose framework wants services beside its workers, and ports for each of them: a machine of them, and rules.

A service stands in a schedule as `NAME:LIFETIME:WHERE`, for instance `services=tracker:round:first,watch:job:every`;
`ports=2` holds two ports for each worker. One whose name begins with `crew` is ready only when all nodes have theirs.
The fault `service n1 tracker killed` ends one.
"""

import asyncio
import dataclasses
import json
import random
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from elastic_run.adapters.contract import Lifetime, Round, Service
from elastic_run.adapters.contract import Worker as ContractWorker
from elastic_run.adapters.torch.adapter import Torch
from elastic_run.elastic_agent.workers.worker_starter import StartFailed
from elastic_run.rendezvous.ranks import Assignment

from .roles import draw_with_roles
from .schedule import SERVICE_ENDS, Fault, Schedule, draw
from .script import Worker

if TYPE_CHECKING:
    from elastic_run.rendezvous.header import Header

    from .invariants import Checker
    from .world import World

PEERS = "CREW_PEERS"
"""The variable that tells a worker where all are."""

READY = (0.001, 0.3)
"""Seconds that a service needs to be ready."""

DIES = (0.0005, 0.01)
"""Seconds that one needs to end."""

HEARD = 1.0
"""Seconds: in a calm schedule, an agent knows a header within this."""

ENDED = 3.0
"""Seconds: in a calm schedule, a service of a round has ended within this, when its workers must have."""


def declared(text: str) -> tuple[Service, ...]:
    """The services that a schedule names. Raises ValueError."""
    found: list[Service] = []
    for part in text.split(",") if text else ():
        words = part.split(":")
        if len(words) != 3 or words[1] not in ("round", "job") or words[2] not in ("first", "every"):
            raise ValueError(f"{part!r} is no service: write tracker:round:first")
        name, lifetime, where = words
        found.append(
            Service(
                name,
                (name,),
                "round" if lifetime == "round" else "job",
                "first" if where == "first" else "every",
                ready_seconds=5.0,
            )
        )
    return tuple(found)


class Crew(Torch):
    """PyTorch's adapter, with services, and with ports for each worker."""

    name = "crew"
    per_worker = Torch.per_worker | {PEERS}

    def __init__(self, ports: int, services: Sequence[Service]) -> None:
        self.worker_ports = ports
        self._services = services

    def environment(
        self, round: Round, worker: ContractWorker, inherited: Mapping[str, str]
    ) -> Mapping[str, str | None]:
        """Where all workers are, for each rank: its host and its ports."""
        peers = [[peer.host, *peer.ports] for peer in round.peers]
        return {**super().environment(round, worker, inherited), PEERS: json.dumps(peers)}

    def services(self, round: Round) -> Sequence[Service]:
        """Those that the schedule names."""
        return self._services


@dataclass(eq=False)
class Running:
    """One process of a service.

    Attributes:
        told: the rounds that it knows of.
        told_at: when it was told of the last.
        ended: its exit code, or the signal's negative number; None while it runs.
        stopped: its agent has ended it.
    """

    service: Service
    owner: str
    began: float
    told: list[int] = field(default_factory=list[int])
    told_at: float = 0.0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: int | None = None
    stopped: bool = False

    @property
    def goes_on(self) -> bool:
        """It lives from round to round, or has done its work for all of them."""
        return self.service.lifetime == "job" and self.ended in (None, 0)


class SimulatedServices:
    """The services of one agent; `services.Services` explains each method."""

    def __init__(self, world: "World", owner: str, changed: Callable[[], None]) -> None:
        self._world = world
        self._owner = owner
        self._changed = changed
        self.running: list[Running] = []
        self.sessions: frozenset[int] = frozenset()

    @property
    def said(self) -> Mapping[str, str]:
        return {each.service.name: "" for each in self.running}

    @property
    def services(self) -> tuple[Service, ...]:
        return tuple(each.service for each in self.running)

    @property
    def failure(self) -> str:
        dead = (each for each in self.running if each.ended not in (None, 0) and not each.stopped)
        return next((f"the service {each.service.name} ended with {each.ended}" for each in dead), "")

    async def enter(
        self, wanted: Sequence[Service], line: bytes, python: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        await self._end([each for each in self.running if not (each.service in wanted and each.goes_on)])
        there = {each.service for each in self.running}
        for service in wanted:
            if service not in there:
                self.running.append(Running(service, self._owner, self._world.now))
                self._world.say(self._owner, f"starts the service {service.name}")
        self.tell(line)

    async def ready(self) -> None:
        for each in self.running:
            try:
                async with asyncio.timeout(each.service.ready_seconds):
                    await each.ready.wait()
            except TimeoutError:
                self._world.checker.services.on_late(each)
            if self.failure:
                raise StartFailed(self.failure)

    def tell(self, line: bytes) -> None:
        for each in self.running:
            if each.ended is None:
                each.ready.clear()
                each.told.append(int(json.loads(line)["round"]))
                each.told_at = self._world.now
                self._world.checker.services.on_told(each, json.loads(line))
                for one in self._world.checker.services.met(each, int(json.loads(line)["nodes"])):
                    self._world.after(self._world.chance.uniform(*READY), self._is_ready, one)
            else:
                each.ready.set()

    def _is_ready(self, each: Running) -> None:
        self._world.agents[each.owner].context.run(each.ready.set)

    async def end(self, lifetimes: Iterable[Lifetime], grace: float) -> None:
        await self._end([each for each in self.running if each.service.lifetime in lifetimes])

    async def _end(self, which: Sequence[Running]) -> None:
        if not which:
            return
        for each in which:
            each.stopped = each.stopped or each.ended is None
        await asyncio.sleep(self._world.chance.uniform(*DIES))
        for each in which:
            self.finish(each, -signal.SIGKILL)
            self.running.remove(each)

    def finish(self, each: Running, code: int) -> None:
        """Its process ends; the agent hears of it a moment later."""
        if each.ended is None:
            each.ended = code
            self._world.say(self._owner, f"the service {each.service.name} ends with {code}")
            self._world.after(self._world.chance.uniform(*DIES), self._heard, each)

    def _heard(self, each: Running) -> None:
        process = self._world.agents[self._owner]
        if process.alive:
            process.context.run(each.ready.set)
            process.context.run(self._changed)

    def kill(self) -> None:
        """What the guardian does, and the kernel when the agent is gone."""
        for each in self.running:
            self.finish(each, -signal.SIGKILL)

    def pause(self) -> None:
        raise NotImplementedError("no terminal in a simulation")

    resume = pause


class ServiceRules:
    """What must hold of services and of workers' ports, whatever happens."""

    def __init__(self, world: "World", checker: "Checker") -> None:
        self._world = world
        self._checker = checker
        self._services = declared(world.shape.services)
        self._crews: dict[tuple[str, int], list[Running]] = {}  # by run and round
        self._peers: dict[tuple[str, int], list[list[str | int]]] = {}  # of a run's round: what its workers were told
        self._ports: dict[
            str, tuple[int, list[str | int]]
        ] = {}  # by agent and local rank: the last round, and its ports

    def met(self, each: Running, nodes: int) -> Sequence[Running]:
        """Which services are about to be ready, now that this one knows of its round, which has so many nodes."""
        if not each.service.name.startswith("crew"):
            return [each]
        header = self._checker.last_header
        mates = self._crews.setdefault((header.run if header else "", each.told[-1]), [])
        mates.append(each)
        return mates if len(mates) == nodes else []

    def on_late(self, each: Running) -> None:
        """Its agent has waited for it as long as it does."""
        header = self._checker.last_header
        if self._checker.calm and header and header.number > each.told[-1] and self._checker.header_age > HEARD:
            self._violated(
                "no node waits for a service of a round that is over", f"{each.service.name} on {each.owner}"
            )

    def on_told(self, each: Running, line: Mapping[str, object]) -> None:
        """A service hears of a round."""
        mine = self._assignment(each.owner)
        header = self._checker.last_header
        if mine is None or header is None or header.number != line["round"]:
            return  # another has been published meanwhile
        expected = {
            "world_size": mine.world_size,  # as its workers are told: more than there are, where one went alone
            "nodes": mine.group_size,
            "master_addr": header.master_addr,
            "master_port": header.master_port,
            "node_rank": mine.group_rank,
        }
        if wrong := {name: line.get(name) for name, value in expected.items() if line.get(name) != value}:
            self._violated("a service is told what the header says", f"{each.service.name} on {each.owner}: {wrong}")
        if len(cast(list[object], line["peers"])) != (header.world_size if self._world.shape.ports else 0):
            self._violated("a service is told what the header says", f"{each.service.name}: {line['peers']}")
        if each.service.where == "first" and mine.first_rank:
            self._violated("a service runs where it is wanted", f"{each.service.name} on {each.owner}")

    def on_worker(self, worker: Worker, env: Mapping[str, str]) -> None:
        """A worker begins in a round, or goes on into it: what it needs is there."""
        self._check_services(worker, untouched=bool(self._world.shape.roles) and worker.began < self._world.now)
        if self._world.shape.ports:
            self._check_peers(worker, json.loads(env[PEERS]))

    def _check_services(self, worker: Worker, *, untouched: bool) -> None:
        there = self._of(worker.owner)
        mine = self._assignment(worker.owner)
        first = mine is not None and mine.first_rank == 0
        for service in self._services:
            ready = [
                each
                for each in there
                if each.service == service
                and (untouched or each.ready.is_set() or self._world.now - each.told_at > service.ready_seconds - 0.001)
                and (each.ended is not None or worker.round in each.told)
            ]
            if (first or service.where == "every") and not ready:
                self._violated("services are ready before workers start", f"{service.name}, for {worker.name}")
        for each in there:
            if each.service.lifetime == "round" and each.told and each.told[0] > worker.round:
                self._violated("services are ready before workers start", f"{each.service.name} is of a later round")

    def _check_peers(self, worker: Worker, peers: list[list[str | int]]) -> None:
        known = self._peers.setdefault((worker.run, worker.round), peers)
        if known != peers:
            self._violated("workers of a round know the same peers", f"{worker.name}: {peers}, and not {known}")
        mine = peers[worker.rank] if worker.rank < len(peers) else []
        held = self._world.port_sets[worker.owner][1]
        if len(mine) != 1 + self._world.shape.ports or mine[0] != worker.machine or not {*mine[1:]} <= {*held.offered}:
            self._violated("workers of a round know the same peers", f"{worker.name} has {mine}, of {held.offered}")
        elif len(ports := [(peer[0], port) for peer in peers for port in peer[1:]]) != len({*ports}):
            self._violated("each worker has ports of its own", f"{peers}")
        elif taken := [port for port in mine[1:] if port in held.held]:
            self._violated("a worker's ports are free when it starts", f"{worker.name}: {taken}")
        key = f"{worker.owner}/{worker.local}"
        last = self._ports.get(key)
        anew = worker.began >= self._world.now and self._checker.starts_anew(worker.owner, last[0] if last else 0)
        if last and last[1] == mine and anew:
            self._violated("a round has other ports than the one before", f"{worker.name}: {mine}")
        if worker.began >= self._world.now:
            self._ports[key] = worker.round, mine

    def check_old(self, header: "Header") -> None:
        """No service of an older round runs on, and no port that nobody needs is free."""
        if not self._checker.calm or header is not self._checker.last_header:
            return
        for owner, services in self._world.services.items():
            if owner in self._world.ends or (
                self._world.shape.inplace and self._world.live_workers(owner.split(".")[0])
            ):
                continue
            for each in services.running:
                if each.service.lifetime == "round" and each.ended is None and header.number not in each.told:
                    self._violated("a service of a round ends with it", f"{each.service.name} on {owner}")
        if header.state == "waiting" and self._world.shape.ports:
            for owner, (_, held) in self._world.port_sets.items():
                free = set(held.offered) - held.held
                working = any(worker.owner == owner and not worker.ended for worker in self._world.workers)
                if owner not in self._world.ends and free and not working and self._checker.is_member(owner):
                    self._violated("ports that no worker needs are held", f"{owner}: {free}")

    def on_agent_end(self, owner: str) -> None:
        """It has ended in order."""
        if alive := [each.service.name for each in self._of(owner) if each.ended is None]:
            self._violated("no service outlives its agent", f"{owner}: {alive}")

    def at_end(self) -> None:
        """When all is over."""
        for owner in self._world.services:
            self.on_agent_end(owner)

    def _of(self, owner: str) -> Sequence[Running]:
        found = self._world.services.get(owner)
        return found.running if found else ()

    def _assignment(self, owner: str) -> Assignment | None:
        return self._checker.assignment_of(owner)

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)


SHAPES: Sequence[str] = (
    "tracker:round:first",
    "tracker:job:first",
    "watch:round:every",
    "watch:job:every",
    "tracker:round:first,watch:job:every",
    "tracker:job:first,watch:round:every",
    "crew:round:every",
    "",
)
"""Services of jobs; without any, the job has ports for its workers."""

NEVER = ("hold", "stranger")
"""Kinds of faults that say nothing about services."""


def draw_with_services(seed: int) -> Schedule:
    """A schedule of a job with services, or ports for each worker, that the seed alone decides."""
    chance = random.Random(f"services {seed}")
    plain = draw_with_roles(seed) if chance.random() < 0.3 else draw(seed)
    services = chance.choice(SHAPES)
    ports = chance.choice((0, 1, 2)) if services else chance.choice((1, 2))
    names = [service.name for service in declared(services)]
    faults: list[Fault] = []
    for each in plain.faults:
        if each.verb in NEVER:
            continue
        if names and each.verb in ("worker", "leave", "start", "kill") and chance.random() < 0.4:
            words = f"n{chance.randint(1, plain.shape.nodes)}", chance.choice(names), chance.choice(SERVICE_ENDS)
            each = Fault(each.moment, each.after, "service", words)
        faults.append(each)
    shape = dataclasses.replace(plain.shape, services=services, ports=ports)
    return dataclasses.replace(plain, shape=shape, faults=tuple(faults))
