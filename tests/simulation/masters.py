"""Processes without workers that take part in the election: which rules hold for them, and how they are drawn.

A job's schedule says how many there are (`masters=2`); they run on machines of their own, c1 and c2.
"""

import dataclasses
import random
from typing import TYPE_CHECKING

from elastic_run.rendezvous.header import Leader
from elastic_run.rendezvous.store.contract import KeyValue

from .roles import draw_with_roles
from .schedule import VERBS, Fault, Schedule, draw

if TYPE_CHECKING:
    from .invariants import Checker
    from .world import End, World

ANSWER = 3.0
"""Seconds: in a calm schedule, a master that is killed has a successor within this, where somebody can be it."""

KNOWN = 1.0
"""Seconds that a node needs at most to be connected to a master."""

RESIGNS = 0.5
"""Seconds: in a calm schedule, a process that was told to end has given its leadership up within this."""

PAUSE = 30.0
"""Seconds: so long after a deposition the next one may be somebody else's business."""


class MasterRules:
    """What must hold of masters without workers, whatever happens."""

    def __init__(self, world: "World", checker: "Checker") -> None:
        self._world = world
        self._checker = checker
        self._leases: dict[str, int] = {}  # incarnation -> the lease under which it has led
        self._hurt: set[str] = set()  # machines to which something was done; "" for what was done to all

    def on_fault(self, fault: Fault) -> None:
        """A fault did something."""
        kinds = zip(VERBS[fault.verb].split(), fault.words, strict=True)
        self._hurt |= {word for kind, word in kinds if kind == "node"} or {""}

    def on_leader(self, owner: str, leader: Leader, key: KeyValue) -> None:
        """It leads now, under the lease of that key."""
        if self._leases.setdefault(leader.incarnation, key.lease) != key.lease:
            self._violated("another lease has another incarnation", f"{owner} leads as {leader.incarnation} again")

    def on_end(self, end: "End") -> None:
        """It has ended, or was killed."""
        leads = self._checker.leader == end.owner
        if end.code is None and leads and self._checker.calm and not self._checker.deposed_within(PAUSE):
            self._world.after(ANSWER, self._check_followed, end)
        elif end.code is not None and leads and self._checker.calm:
            self._world.after(RESIGNS, self._check_resigned, end)

    def _check_followed(self, end: "End") -> None:
        able = [each for each in self._checker.able if self._checker.born(each) < end.at - KNOWN]
        if self._checker.calm and self._checker.leader == end.owner and able:
            self._violated("a dead master is followed at once", f"{end.owner}: {able} could lead")

    def _check_resigned(self, end: "End") -> None:
        if self._checker.calm and self._checker.leader == end.owner:
            self._violated("a master that ends gives its leadership up", end.owner)

    def at_end(self) -> None:
        """Where only masters without workers were hurt, the job has succeeded, and lost nothing."""
        if not self._hurt or not all(machine.startswith("c") for machine in self._hurt) or self._world.shape.roles:
            return
        for header in self._checker.headers:
            if header.cause in ("lost", "left") or header.final != (header is self._checker.last_header):
                self._violated("a master without workers costs no worker", str(header.reason))
        last = self._checker.last_header
        if last is None or last.state != "succeeded":
            self._violated("a master without workers costs no worker", f"the job: {last.state if last else 'no round'}")
        for worker in self._world.workers:
            joined = any(header.cause == "joined" and header.number > worker.round for header in self._checker.headers)
            if worker.round and worker.ended != (0, None, "") and not joined:
                self._violated("a master without workers costs no worker", f"{worker.name}: {worker.ended}")

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)


NEVER = ("stranger", "hold")
"""Kinds of faults that say nothing about masters."""

_TO_MASTERS = {
    "kill": 6.0,
    "freeze": 5.0,
    "pause": 2.0,
    "leave": 4.0,
    "leave_twice": 1.0,
    "power_off": 3.0,
    "start": 3.0,
}
"""What is done to them, and how often."""

_AT_THEM = 0.6
"""How many of the faults that a master could have as well are done to one."""

_ALONE = 0.25
"""How many schedules hurt nobody but masters."""


def draw_with_masters(seed: int) -> Schedule:
    """A schedule of a job with masters that have no workers; the seed alone decides."""
    chance = random.Random(f"masters {seed}")
    plain = draw_with_roles(seed) if chance.random() < 0.25 else draw(seed)
    shape = dataclasses.replace(plain.shape, masters=chance.choice((1, 1, 2)))
    faults = [each for each in plain.faults if each.verb not in NEVER]
    if chance.random() < _ALONE:
        faults = [_to_a_master(chance, shape.masters, each) for each in faults]
        if shape.nodes < shape.min:  # then it could not train
            shape = dataclasses.replace(shape, min=shape.nodes)
    else:
        faults = [
            _to_a_master(chance, shape.masters, each)
            if "node" in VERBS[each.verb].split() and chance.random() < _AT_THEM
            else each
            for each in faults
        ]
    return dataclasses.replace(plain, shape=shape, faults=tuple(faults))


def _to_a_master(chance: random.Random, masters: int, fault: Fault) -> Fault:
    """At the same moment, or as it is elected, something else is done to a master."""
    verb = chance.choices(tuple(_TO_MASTERS), weights=tuple(_TO_MASTERS.values()))[0]
    machine = f"c{chance.randint(1, masters)}"
    seconds = f"{chance.choice((0.3, 1.0, 2.5, 6.0, 12.0, 25.0)) * chance.uniform(0.7, 1.3):.3f}"
    words = (machine, seconds) if VERBS[verb].endswith("seconds") else (machine,)
    moment, after = fault.moment, fault.after
    if chance.random() < 0.3:
        moment = f"elected.{chance.choice((1, 1, 2, 3))}"
        after = chance.choice((0.0, 0.0005, 0.005, 0.05, 0.5)) * chance.uniform(0.0, 2.0)
    return Fault(moment, round(after, 4), verb, words)
