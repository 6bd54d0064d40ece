"""What must hold of a job's targets: how many nodes its leaders write that it wants, and its node managers start."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastic_run.launcher.cluster import managed_nodes
from elastic_run.master.machine.targets import Target, Targets
from elastic_run.master.nodes.node_manager import NodeManager
from elastic_run.master.nodes.platform import Observer
from elastic_run.master.nodes.replica import Launch, Replica
from elastic_run.rendezvous.base.cancel import cancel
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.store.contract import Event, Store
from elastic_run.rendezvous.wire.values import decode

from .roles import declared

if TYPE_CHECKING:
    from .invariants import Checker
    from .world import World

FINAL = "JobOver"
"""The code of the reason for wanting nobody."""

LAG = 1.0
"""Seconds: in a calm schedule, what the job wants is written, and its node managers have done it, within this."""


@dataclass(frozen=True, slots=True)
class Span:
    """How many nodes a job, or a role of it, may have."""

    least: int
    most: int


@dataclass
class SimulatedNodes:
    """What a platform has of a job, whoever manages it: nodes that run at once, and take no part in anything."""

    rules: "TargetRules"
    owner: str = ""
    there: dict[str, Replica] = field(default_factory=dict[str, Replica])
    _tell: Callable[[], None] = lambda: None

    async def follow(self, observe: Observer) -> None:
        """See `Platform`."""
        self._tell = lambda: observe(tuple(self.there.values()))
        self._tell()
        await asyncio.get_running_loop().create_future()

    async def start(self, launch: Launch) -> None:
        """See `Platform`."""
        name = f"{launch.role}-{launch.index}"
        self.there[name] = Replica(name, launch.role, launch.index, launch.attempt, 0, "running", 0.0)
        self.rules.on_node_start(self.owner, launch.role, self.count(launch.role))
        self._tell()

    async def stop(self, name: str) -> None:
        """See `Platform`."""
        self.there.pop(name, None)
        self._tell()

    def count(self, role: str) -> int:
        """So many of that role run."""
        return sum(each.role == role for each in self.there.values())


class TargetRules:
    """What must hold of targets, whatever happens."""

    def __init__(self, world: "World", checker: "Checker") -> None:
        self._world = world
        self._checker = checker
        shape = world.shape
        units = shape.max // shape.unit * shape.unit
        least = -(-shape.min // shape.unit) * shape.unit
        self._spans = {role.name: Span(role.min_nodes, role.max_nodes) for role in declared(shape.roles)} or {
            "": Span(least, units)
        }
        self._lag = LAG + 6 * shape.write  # the header's writes may come before
        self._written: tuple[Target, ...] = ()  # what the key holds, or held before it was removed
        self._there = False
        self._told: dict[str, tuple[Target, ...]] = {}  # by process: what its store has told it last
        self._nodes: dict[str, SimulatedNodes] = {}  # by machine

    async def manage(self, store: Store, keys: Keys, machine: str, owner: str, say: Callable[[str], None]) -> None:
        """The life of a node manager, beside its master without workers; it runs until it is cancelled."""
        nodes = self._nodes.setdefault(machine, SimulatedNodes(self))
        nodes.owner = owner
        manager = NodeManager(nodes, say, asyncio.get_running_loop().time)
        spans = {role: (span.least, span.most) for role, span in self._spans.items()}

        def aim(seen: Targets | None = None) -> None:
            if found := managed_nodes.wanted(seen, spans, managed_nodes.Wish()):
                manager.want(found)

        aim()
        manager.doubt = lambda: managed_nodes.doubt(store.health)
        watching = managed_nodes.watch_targets(store, keys, spans, say, aim)
        tasks = [asyncio.create_task(watching, name="targets"), asyncio.create_task(manager.run(), name="nodes")]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await cancel(*tasks)

    def on_written(self, event: Event) -> None:
        """The key was written, or removed."""
        before = self._there
        self._there = event.kind == "put"
        if not self._there:
            return
        found = decode(Targets, event.kv.value).wanted
        if before and found == self._written:
            self._violated("a target is written when it changes", f"{found} again")
        self._written = found
        self._world.say("store", f"the job wants {', '.join(f'{each.count} {each.role}'.strip() for each in found)}")
        if [each.role for each in found] != list(self._spans):
            self._violated("a target is for a role of the job", f"{[each.role for each in found]}")
        for target in found:
            self._check(target.role, target.count, target.reason.code)
        self._world.after(self._lag, self._check_done, found)

    def _check(self, role: str, count: int, code: str) -> None:
        span = self._spans.get(role)
        if span is None:
            return
        if count > span.most:
            self._violated("a job wants no more than it may have", f"{count} of {role!r}, of {span}")
        elif (count == 0) != (code == FINAL) and span.least:
            self._violated("a job wants no nodes when it is over, and not before", f"{count} of {role!r}: {code}")
        elif count < span.least and code != FINAL:
            self._violated("a job wants what it cannot do without", f"{count} of {role!r}, of {span}")

    def on_told(self, owner: str, events: Sequence[Event]) -> None:
        """A process has read the key, or was told of a change of it."""
        for event in events:
            self._told[owner] = decode(Targets, event.kv.value).wanted if event.kind == "put" else ()

    def on_node_start(self, owner: str, role: str, count: int) -> None:
        """The node manager of that process has started one more node, and has so many of that role."""
        told = {each.role: each for each in self._told.get(owner, ())}
        if role not in told or count > told[role].count or told[role].reason.code == FINAL:
            self._violated(
                "a node is started because the leader wants it", f"{owner}: node {count} of {role!r}: {told}"
            )

    def _check_done(self, found: tuple[Target, ...]) -> None:
        if self._checker.calm and found is self._written:
            self.when_quiet()

    def when_quiet(self) -> None:
        """Faults have stopped, or were none: the node managers have done what was written last."""
        if not self._there or any(each.reason.code == FINAL for each in self._written):
            return
        for nodes in self._nodes.values():
            lives = nodes.owner not in self._world.ends and not self._checker.noticed(nodes.owner)
            if lives and self._world.booted[nodes.owner] < self._world.now - self._lag:
                has = {each.role: nodes.count(each.role) for each in self._written}
                if has != {each.role: each.count for each in self._written}:
                    self._violated("a node manager follows what the leader writes", f"{nodes.owner} has {has}")

    def on_running(self, has: dict[str, int]) -> None:
        """All workers of the newest round train, in a calm schedule; of each role it has so many nodes."""
        self._world.after(self._lag, self._check_wanted, self._checker.last_header, has)

    def _check_wanted(self, header: object, has: dict[str, int]) -> None:
        checker = self._checker
        if not checker.calm or checker.last_header is not header or checker.finishing or not checker.leader:
            return
        written = {each.role: each for each in self._written}
        done = self._world.shape.inplace  # workers that keep their process say that they have trained before they end
        for role, span in self._spans.items():
            right = has.get(role, 0) if self._world.shape.scale_up == "never" else span.most
            if role not in written:
                self._violated("a job says what it wants of each role", f"nothing of {role!r}")
            elif written[role].count != right and not (done and written[role].reason.code == "Finishing"):
                self._violated("a job wants what it may have", f"{written[role]}, and not {right}")

    def on_end(self) -> None:
        """An agent has ended the job, has seen everybody off, and has ended in order."""
        for each in self._written:
            if each.count:
                self._violated("a job that is over wants no nodes", f"{each.count} of {each.role!r}: {each.reason}")

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)
