"""Jobs with roles: what their script does, which rules hold for them, and how such schedules are drawn.

A role stands in a schedule as `NAME:MIN:MAX:ONLOSS:COUNTS`, for instance `roles=ps:1:1:all:no,worker:2:3:one:yes`;
`typed=ps,,worker` makes n1 a node for ps only, and n3 one for worker.
"""

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.roles import Role

from .schedule import Schedule, at_a_lease, draw
from .script import MEETING, Ground, Group, Script, Worker

if TYPE_CHECKING:
    from .invariants import Checker
    from .world import World


_Mates = tuple[str, tuple[str, str], str]
"""A run, where its workers meet, and their role."""


def declared(text: str) -> tuple[Role, ...]:
    """The roles that a schedule names. Raises ValueError."""
    found: list[Role] = []
    for part in text.split(",") if text else ():
        name, least, most, on_loss, counts = part.split(":")
        if on_loss not in ("all", "one") or counts not in ("yes", "no") or not 0 <= int(least) <= int(most) >= 1:
            raise ValueError(f"{part!r} is no role: write worker:2:3:all:yes")
        found.append(
            Role(name, int(least), int(most), on_loss="one" if on_loss == "one" else "all", counts=counts == "yes")
        )
    return tuple(found)


def type_of(typed: str, machine: str) -> str:
    """The only role that this machine takes; empty: any."""
    types = typed.split(",")
    number = int(machine.strip("nx"))
    return types[number - 1] if number <= len(types) else ""


class RoleScript(Script):
    """Workers of a role that restarts all need each other; those of one that restarts one alone work alone. Who does
    not count works until it is told to stop."""

    def __init__(self, ground: Ground, work: float, roles: Sequence[Role]) -> None:
        super().__init__(ground, work)
        self._roles = {role.name: role for role in roles}
        self._rounds: dict[tuple[str, int], Group] = {}
        self._coupled: dict[_Mates, dict[int, Worker]] = {}  # who met, by rank
        self._through: set[_Mates] = set()  # who have done their work, and need each other no more

    def _meet(self, worker: Worker) -> None:
        if worker.ended or self._held_up(worker, self._meet):
            return
        self.arrive(worker)
        role = self._roles[worker.environment["ROLE_NAME"]]
        if role.on_loss == "one":
            if self.write and role.counts:
                self.write(worker)
            elif role.counts:
                self._ground.after(self._work, self.succeed, worker)
            return
        key = worker.run, worker.place, role.name
        mates = self._coupled[key] = {r: mate for r, mate in self._coupled.get(key, {}).items() if not mate.ended}
        mates[worker.rank] = worker
        self._through.discard(key)
        size = int(worker.environment["ROLE_WORLD_SIZE"])
        if len(mates) < size:
            self._ground.after(MEETING, self._wait_no_longer, worker, key, size)
        elif role.counts:
            self._ground.after(self._work, self._end_together, key, mates)

    def _wait_no_longer(self, worker: Worker, key: _Mates, size: int) -> None:
        """Somebody has never come, as one that ended with 0 before it met the others."""
        here = len(self._coupled[key])
        if here < size and worker.ended is None:
            self._miss_somebody(worker, here, size)

    def arrive(self, worker: Worker) -> None:
        """It takes part in its round from now on."""
        key = worker.run, worker.round
        group = self._rounds.setdefault(key, Group((worker.run, str(worker.round)), worker.world))
        group.workers[worker.rank] = worker
        if group.running_since is None and set(group.workers) == set(range(group.world)):
            group.running_since = self._ground.now
            self._ground.met(group)

    def _end_together(self, key: _Mates, mates: Mapping[int, Worker]) -> None:
        if not any(mate.ended for mate in mates.values()):
            self._through.add(key)
            for mate in mates.values():
                self.succeed(mate)

    def _leave_group(self, worker: Worker) -> None:
        for key, mates in self._coupled.items():
            if worker in mates.values() and key not in self._through:
                for mate in mates.values():
                    if not mate.ended and mate is not worker:
                        self._hear_of(mate, worker, self._ground.is_on(worker.machine))


@dataclass(frozen=True, slots=True)
class Before:
    """The last open round of the same run: who had which assignment, and where workers met."""

    assignments: Mapping[str, Assignment]
    meeting: tuple[str, int]
    number: int


class RoleRules:
    """What must hold of jobs with roles, whatever happens."""

    def __init__(self, world: "World", checker: "Checker") -> None:
        self._world = world
        self._checker = checker
        self._roles = declared(world.shape.roles)
        self._by_name = {role.name: role for role in self._roles}

    def on_round(
        self,
        before: Before | None,
        running: bool,
        assignments: Sequence[Assignment],
        meeting: tuple[str, int],
        standbys: Sequence[str],
        hurt: Mapping[str, float],
    ) -> None:
        """A round with these assignments, in rank order, is published.

        Args:
            before: the last open one; `running`: it ran until now.
            standbys: incarnations that were there, and have no part in it.
            hurt: those of `before` of which a worker was hurt, and since when.
        """
        order = [role.name for role in self._roles]
        given = [each.role for each in assignments]
        if given != sorted(given, key=order.index) and not any(each.since for each in assignments):
            self._violated("the ranks of a role are neighbours", f"{given}")
        for role in self._roles:
            if not role.min_nodes <= given.count(role.name) <= role.max_nodes:
                self._violated("each role has its nodes", f"{given.count(role.name)} of {role}")
        for each in assignments:
            wanted = type_of(self._world.shape.typed, each.node.partition("-")[0])
            if wanted not in ("", each.role):
                self._violated("a typed node takes its own role only", f"{each.node} is {each.role}, not {wanted}")
        if before is None:
            return
        now = {each.incarnation: each for each in assignments}
        self._check_moves(before, now, standbys)
        self._check_untouched(before, running, now, meeting, hurt)

    def _check_moves(self, before: Before, now: Mapping[str, Assignment], standbys: Sequence[str]) -> None:
        stay = [each for each in before.assignments if each in now]
        for role in self._roles:
            old = [i for i in stay if before.assignments[i].role == now[i].role == role.name]
            if old != sorted(old, key=lambda i: now[i].group_rank):
                self._violated("survivors keep their order", f"{role.name}: {old}")
        moved = [i for i in stay if before.assignments[i].role != now[i].role]
        for i in moved:
            came_from, to = before.assignments[i].role, now[i].role
            had = sum(before.assignments[each].role == to for each in stay)
            if had >= self._by_name[to].min_nodes:
                self._violated("survivors keep their role", f"{now[i].node} was {came_from} and is {to}")
            elif self._checker.calm and any(not self._typed(each) for each in standbys):
                self._violated("a standby comes before a move", f"{now[i].node} was {came_from} and is {to}")
            rest = [role.name for role in self._roles[[role.name for role in self._roles].index(came_from) + 1 :]]
            for later in rest:
                left = [each for each in now.values() if each.role == later and not self._typed(each.incarnation)]
                count = sum(each.role == later for each in now.values())
                if left and count > self._by_name[later].min_nodes and not self._world.shape.typed:
                    self._violated(
                        "the last role gives a node first", f"{came_from} gave one to {to}, and {later} none"
                    )

    def _typed(self, incarnation: str) -> str:
        return type_of(self._world.shape.typed, self._checker.node_of(incarnation))

    def _check_untouched(
        self,
        before: Before,
        running: bool,
        now: Mapping[str, Assignment],
        meeting: tuple[str, int],
        hurt: Mapping[str, float],
    ) -> None:
        on = [each for each in now.values() if each.since]
        for each in on:
            was = before.assignments.get(each.incarnation)
            names = ("group_rank", "first_rank", "nproc", "role", "role_first_rank")
            if was is None or not running or each.since not in (was.since or before.number, before.number):
                self._violated("only running workers continue", f"{each}")
            elif any(getattr(was, name) != getattr(each, name) for name in names):
                self._violated("workers that continue keep their ranks", f"{was} became {each}")
        if any(self._by_name[each.role].on_loss == "all" for each in on) and meeting != before.meeting:
            self._violated("workers that continue have a place to meet", f"{before.meeting} became {meeting}")
        if not running or not self._checker.calm or {"failed_start", "taken_port", "service"} & set(self._checker.done):
            return
        touched = {each.role for i, each in before.assignments.items() if i not in now or i in hurt}
        touched |= {each.role for i, each in now.items() if i not in before.assignments}
        alone = bool(touched) and all(self._by_name[role].on_loss == "one" for role in touched)
        just = any(self._world.now - at < KNOWN for at in hurt.values())
        if on and touched and not alone and not just:
            self._violated("a loss that concerns all restarts all", f"{touched}: {[each.node for each in on]} go on")
        same = [
            i
            for i, was in before.assignments.items()
            if i not in hurt and i in now and (was.role, was.nproc) == (now[i].role, now[i].nproc)
        ]
        meet = any(self._by_name[now[i].role].on_loss == "all" for i in same)
        first = next(iter(before.assignments)) in same or not meet
        if self._world.shape.ports:  # they know each other's addresses
            names = ("group_rank", "first_rank", "role_first_rank", "role_world_size")
            moved = any(getattr(before.assignments[i], name) != getattr(now[i], name) for i in same for name in names)
            first = not moved and next(iter(before.assignments)) in same
        if alone and first and (anew := [now[i].node for i in same if not now[i].since]):
            self._violated("one restarts alone", f"{touched}: {anew} are started again")

    def on_start(self, worker: Worker, mine: Assignment, env: Mapping[str, str]) -> None:
        """An agent starts a worker."""
        expected = {
            "ROLE_NAME": mine.role,
            "ROLE_RANK": str(mine.role_first_rank + worker.local),
            "ROLE_WORLD_SIZE": str(mine.role_world_size),
        }
        if wrong := {name: env.get(name) for name, value in expected.items() if env.get(name) != value}:
            self._violated("workers are told what the header says", f"{worker.name}: {wrong}")
        earlier = [each for each in self._world.workers if each.owner == worker.owner and each is not worker]
        if mine.since and any(mine.since <= each.round < worker.round and each.run == worker.run for each in earlier):
            self._violated("a node that continues keeps its workers", f"{worker.name} is started anew")

    def is_optional(self, name: str) -> bool:
        """Nobody needs that role: not the start of a round, not another worker, and not the job's success."""
        role = self._by_name[name]
        return (role.min_nodes, role.on_loss, role.counts) == (0, "one", False)

    def succeeded(self, assignments: Sequence[Assignment], number: int) -> bool:
        """Every worker that counts has ended with exit code 0."""
        return all(
            any(
                (each.since or number) <= worker.round <= number
                and (worker.owner, worker.local) == (self._checker.owner_of(each.incarnation), local)
                and worker.ended == (0, None, "")
                for worker in self._world.workers
            )
            for each in assignments
            if self._by_name[each.role].counts
            for local in range(each.nproc)
        )

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)


SHAPES: Sequence[tuple[str, int]] = (
    ("ps:1:1:all:no,worker:1:2:all:yes", 3),
    ("ps:1:1:all:no,worker:1:3:one:yes", 4),
    ("chief:1:1:one:yes,worker:1:2:one:yes,evaluator:0:1:one:no", 4),
    ("chief:1:1:all:yes,ps:1:2:one:no,worker:1:2:all:yes,evaluator:0:1:one:no", 5),
    ("worker:2:3:all:yes,evaluator:0:1:one:yes", 4),
)
"""Roles, and how many nodes there are for them at first."""

KNOWN = 0.05
"""Seconds: a worker that was hurt for less may have been well when the round was decided."""

NEVER = ("hold", "stranger")
"""Kinds of faults that say nothing about roles."""


ALONE: Sequence[tuple[str, int]] = (
    ("worker:2:4:one:yes", 3),
    ("worker:1:3:one:yes", 3),
    ("chief:1:1:one:yes,worker:1:3:one:yes", 4),
    ("worker:2:3:one:yes,evaluator:0:1:one:no", 4),
    ("trainer:1:1:all:yes,worker:1:3:one:yes", 4),
)
"""The same, of jobs whose workers lease what they do and need nobody else."""


def draw_alone(seed: int) -> Schedule:
    """A schedule of a job whose workers come and go one by one, and lease what they write outputs of."""
    chance = random.Random(f"alone {seed}")
    schedule = draw_with_roles(seed, ALONE, chance)
    shape = dataclasses.replace(
        schedule.shape,
        data="ack",
        records=chance.choice((6, 11, 14, 20)),
        shard=chance.choice((1, 1, 2, 3)),
        epochs=chance.choice((1, 1, 2)),
        work=chance.choice((4.0, 8.0)),
    )
    faults = (at_a_lease(chance, shape, each) if chance.random() < 0.5 else each for each in schedule.faults)
    return dataclasses.replace(schedule, shape=shape, faults=tuple(faults))


def draw_with_roles(
    seed: int, shapes: Sequence[tuple[str, int]] = SHAPES, chance: random.Random | None = None
) -> Schedule:
    """A schedule of a job with roles that the seed alone decides."""
    chance = chance or random.Random(f"roles {seed}")
    plain = draw(seed)
    text, nodes = chance.choice(shapes)
    nodes += chance.choice((-1, 0, 0, 1))
    roles = declared(text)
    names: tuple[str, ...] = ("", "", *(role.name for role in roles))
    typed = ",".join(chance.choice(names) for _ in range(nodes)) if chance.random() < 0.4 else ""
    shape: dict[str, Any] = {"data": "", "inplace": 0, "unit": 1, "roles": text, "typed": typed, "nodes": nodes}
    shape |= {"min": 1, "max": 1}  # the roles say it
    faults = tuple(
        fault
        for fault in plain.faults
        if fault.verb not in NEVER
        and {word for word in (*fault.words, fault.moment.partition(".")[2]) if re.fullmatch(r"n[0-9]+", word)}
        <= {f"n{each + 1}" for each in range(nodes)}
        and not fault.moment.startswith(("leased", "saved", "formed", "transferring", "committed"))
    )
    return dataclasses.replace(plain, shape=dataclasses.replace(plain.shape, **shape), faults=faults)
