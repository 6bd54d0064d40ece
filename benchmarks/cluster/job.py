"""A simulated job: its real controller and its real node manager, and doubles of its store and of its training.

Training is a rate: each CPU of a round whose process group stands trains one CPU-second a second, and nobody trains
while a round changes. A job is over when it has trained its work.
"""

import asyncio
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from elastic_run.launcher.cluster.managed_nodes import Wish, wanted
from elastic_run.master.machine import effects, events
from elastic_run.master.machine.controller import Controller, Terms
from elastic_run.master.machine.memory import Memory
from elastic_run.master.machine.targets import Targets
from elastic_run.master.nodes.node_manager import NodeManager
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.node_reasons import ProcessGone
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.time_split import SplitUntil

from .node import Node
from .platform import Priority, SimulatedPlatform
from .scheduler import Cluster, Pod

DRAIN = 60.0
"""Seconds that the nodes of a job that is over have to end by themselves."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What a job's user asks for.

    Attributes:
        at: when it is submitted, seconds.
        work: CPU-seconds of training.
        least, most: nodes.
        cpu: of each node.
        stays: its script keeps its workers' processes when the membership changes.
        policy: what else it says of its rounds; `least` and `most` count.
    """

    name: str
    at: float
    work: float
    least: int
    most: int
    cpu: int = 1
    priority: Priority = Priority()  # noqa: RUF009  a frozen value
    stays: bool = True
    policy: Policy = Policy(1, 1)  # noqa: RUF009  a frozen value


@dataclass(slots=True)
class Story:
    """When things happened to a job, seconds; None: not yet.

    Attributes:
        asked: its node manager began.
        placed: as many of its pods as it needs had places.
        trained: its first step began.
        ended: it had trained all its work, and its pods were told so.
        rounds: how many were opened.
        changes: seconds in which it had nodes and did not train, after its first step.
    """

    submitted: float
    asked: float | None = None
    placed: float | None = None
    trained: float | None = None
    done: float | None = None
    ended: float | None = None
    rounds: int = 0
    stood: float = 0.0

    @property
    def wait(self) -> float:
        """Seconds for which it waited for the places of its minimum, from when it asked for them."""
        return math.inf if self.placed is None or self.asked is None else self.placed - self.asked


class Job:
    """One job on a simulated cluster; `run` is its life."""

    plan = ""

    def __init__(self, wants: Wants, cluster: Cluster, say: Callable[[str], None] = lambda line: None) -> None:
        self.wants = wants
        self.cluster = cluster
        self.story = Story(wants.at)
        self.left = wants.work
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._times = cluster.times
        self._policy = dataclasses.replace(wants.policy, min_nodes=wants.least, max_nodes=wants.most)
        self._fingerprint = Fingerprint("train.py", (), self._policy.span, "1", "0")
        self._runs = 0
        self._over = asyncio.Event()
        self._nodes: dict[str, Node] = {}  # by incarnation
        self._lives = 0
        self._revision = 0
        self._placed = 0
        platform = SimulatedPlatform(cluster, wants.name, wants.cpu, wants.priority, self._boot)
        self._manager = NodeManager(platform, self._say, self._loop.time, looked=lambda plan, replicas: self._look_at())

    def speed(self, nodes: int) -> float:
        """CPU-seconds of training a second with so many nodes."""
        return float(nodes * self.wants.cpu)

    async def run(self) -> Story:
        """From its submission to its end."""
        await asyncio.sleep(max(0.0, self.wants.at + self._times.master - self._loop.time()))
        self.story.asked = self._loop.time() if self.story.asked is None else self.story.asked
        self._new_run()
        managing = asyncio.create_task(self._manager.run(), name=f"node manager of {self.wants.name}")
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({managing, over}, return_when=asyncio.FIRST_COMPLETED)
            if managing.done():
                managing.result()
            await self._manager.drain(DRAIN)
            self.story.ended = self._loop.time()
        finally:
            over.cancel()
            managing.cancel()
            await asyncio.gather(managing, over, return_exceptions=True)
        return self.story

    def _new_run(self) -> None:
        self._runs += 1
        terms = Terms(self._policy, 3, 0, self._fingerprint, plan=self.plan)
        memory = Memory(self._loop.time())
        name = f"{self.wants.name}/{self._runs}"
        self._controller = Controller(Keys(self.wants.name), terms, self._loop.time(), memory=memory, run=name)
        self._header: tuple[Header, int] | None = None
        self._assigned: dict[str, Assignment] = {}
        self._publishing = False
        self._looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._group: set[str] = set()  # incarnations that wait for the others of their process group, or train
        self._trains_since: float | None = None
        self._speed = 0.0  # since then
        self._stood_since: float | None = None
        self._leaves: asyncio.TimerHandle | None = None
        self._stands: asyncio.TimerHandle | None = None
        self._finishes: asyncio.TimerHandle | None = None
        self._tell(events.Found(None, 0, self._loop.time()))

    def _boot(self, pod: Pod) -> Node:
        self._lives += 1
        incarnation = f"{pod.name}#{self._lives}"
        member = Member(pod.name, incarnation, pod.name, f"{pod.name}:1", 1, (5000, 5001), self._fingerprint)
        return Node(
            member,
            self.wants.cpu,
            stays=self.wants.stays,
            store=self,
            ended=lambda code: self.cluster.ended(pod, code),
            times=self._times,
        )

    def _look_at(self) -> None:
        """The node manager has looked: notes when the minimum had its places."""
        if self.story.placed is None and self._loop.time() >= self.wants.at:
            has = self.cluster.usage.has.get(self.wants.name)
            if has and has.values[-1] >= self.wants.least * self.wants.cpu:
                needed = self.wants.least * self.wants.cpu
                self.story.placed = next(at for at, cpus in zip(has.times, has.values, strict=True) if cpus >= needed)

    # -- the controller, as `master/master.py` runs it ---------------------------------------------------------------

    def _tell(self, event: events.Event) -> None:
        self._apply(self._controller.on(event, self._loop.time()))
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._looking and not self._publishing:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self._publishing or self._over.is_set():
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._apply(self._controller.on(events.Look(), self._loop.time()))

    def _apply(self, found: tuple[effects.Effect, ...]) -> None:
        for effect in found:
            match effect:
                case effects.Publish():
                    self._publishing = True
                    self._loop.call_later(2 * self._times.store, self._publish, effect)
                case effects.Wait(until):
                    if until is not None:
                        self._timer = self._loop.call_at(until, self._look_soon)
                case effects.CleanUp():
                    self._end()
                case effects.Say(line):
                    self._say(f"{self._loop.time():9.2f} {self.wants.name}: {line}")
                case Targets():
                    self._loop.call_later(2 * self._times.store, self._aim, effect)
                case (
                    effects.Watch()
                    | effects.Unwatch()
                    | effects.Listen()
                    | effects.Unlisten()
                    | effects.FirstEvidence()
                    | SplitUntil()
                ):
                    pass
                case _:
                    raise AssertionError(f"{effect!r} does not come in these jobs")

    def _aim(self, targets: Targets) -> None:
        """The watch of the key tells the node manager."""
        least, most = self._policy.usable_minimum, self._policy.usable(self._policy.max_nodes)
        if found := wanted(targets, {"": (least, most)}, Wish()):
            self._manager.want(found)

    def _publish(self, effect: effects.Publish) -> None:
        self._publishing = False
        if effect.what == "open" and not self._controller.all_here():
            self._look_soon()  # somebody was lost meanwhile: it is decided again
            return
        self._revision += 1
        header = dataclasses.replace(effect.header, prefix=f"{effect.header.number}")
        self._header = header, self._revision
        if effect.what == "open":
            self.story.rounds += 1
            self._assigned = {each.incarnation: each for each in effect.assignments}
        self._tell(events.Published(header, self._revision, self._loop.time()))
        self._loop.call_later(self._times.store, self._spread)

    def _spread(self) -> None:
        for node in list(self._nodes.values()):
            node.hears()

    def _end(self) -> None:
        assert self._header is not None, "a job ends by a header"
        state = self._header[0].state
        if state == "preempted":
            self._new_run()  # as `launcher/cluster/managed_nodes.py` does: it goes on when there are nodes again
            return
        assert state == "succeeded", f"{self.wants.name} {state}: {self._header[0].reason}"
        self._over.set()

    # -- the store, as a node sees it --------------------------------------------------------------------------------

    def put(self, node: Node) -> None:
        """See `node.Store`."""
        incarnation = node.member.incarnation
        if incarnation not in self._nodes:
            self._nodes[incarnation] = node
            self._revision += 1
        order = int(incarnation.rpartition("#")[2])
        self._tell(events.Registered(node.member.node, node.member, order, self._loop.time()))

    def delete(self, node: Node) -> None:
        """See `node.Store`."""
        if self._nodes.pop(node.member.incarnation, None):
            self._tell(events.Unregistered(node.member.node))

    def killed(self, node: Node) -> None:
        """The failure detector has proof."""
        if self._nodes.pop(node.member.incarnation, None):
            how = ProcessGone(node.member.agent_address)
            self._tell(events.Died(node.member.node, node.member.incarnation, how, None))

    def newest(self) -> tuple[Header, int, Callable[[str], Assignment | None]] | None:
        """See `node.Store`."""
        return (*self._header, self._assigned.get) if self._header else None

    def keeps(self, header: Header) -> bool:
        """See `node.Store`."""
        reports = [node.member.report for node in self._nodes.values() if node.member.report.state == "running"]
        return len(reports) == header.nodes and all(each.keeps and each.run == header.run for each in reports)

    # -- the process group, and training -----------------------------------------------------------------------------

    def invited(self, node: Node) -> None:
        """See `node.Store`."""
        if node.worker == "trains" and self._leaves is None:
            self._leaves = self._loop.call_later(self._times.leave, self._disperse)

    def _disperse(self) -> None:
        """All leave their process group after the same step."""
        self._leaves = None
        self._stop_training()
        for incarnation in sorted(self._group):
            node = self._nodes.get(incarnation)
            if node and node.worker == "trains":  # others wait already for the next one
                self._group.discard(incarnation)
                node.left_group()

    def leaves(self, node: Node) -> None:
        """See `node.Store`."""
        if node.worker == "trains":
            self._stop_training()
        self._group.discard(node.member.incarnation)
        if self._stands is not None and node.member.incarnation in self._assigned:
            self._stands.cancel()
            self._stands = None
        if node.gone:
            self._loop.call_soon(self.killed, node)

    def forms(self, node: Node) -> None:
        """See `node.Store`."""
        self._group.add(node.member.incarnation)
        header = self._header[0] if self._header else None
        if header is None or header.state != "open":
            return
        here = {each for each in self._group if each in self._nodes and self._nodes[each].round == header.number}
        if here.issuperset(self._assigned) and self._stands is None:
            self._stands = self._loop.call_later(self._times.form, self._stand, header.number)

    def _stand(self, number: int) -> None:
        self._stands = None
        if self._header is None or self._header[0].number != number:
            return
        now = self._loop.time()
        if self._stood_since is not None:
            self.story.stood += now - self._stood_since
        self.story.trained = now if self.story.trained is None else self.story.trained
        self._trains_since, self._stood_since = now, None
        nodes = len(self._assigned)
        self._speed = self.speed(nodes)
        self.cluster.usage.trains(self.wants.name, nodes * self.wants.cpu, now)
        self._finishes = self._loop.call_later(self.left / self._speed, self._finish)
        for incarnation in self._assigned:
            self._nodes[incarnation].stands()

    def _stop_training(self) -> None:
        if self._trains_since is None:
            return
        now = self._loop.time()
        self.left -= (now - self._trains_since) * self._speed
        self._trains_since, self._stood_since = None, now
        self.cluster.usage.trains(self.wants.name, 0, now)
        if self._finishes is not None:
            self._finishes.cancel()
            self._finishes = None

    def _finish(self) -> None:
        self._finishes = None
        self._stop_training()
        self.left = 0.0
        self.story.done = self._loop.time()
        for incarnation in self._assigned:
            self._nodes[incarnation].trained()
