"""A job that is nothing but a law of its steps, for tests of `Sizing`: each second it steps, and is looked at."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic_run.master.machine.pace import Stepped
from elastic_run.master.resources.sizing import JobNow, Sizing


@dataclass
class Lived:
    """What happened to it, second by second.

    Attributes:
        nodes: that it had; 0 while it stood still for a change.
        plans: when the plan changed its number, to which, and how many nodes there were.
        why: each plan's reason.
    """

    nodes: list[int] = field(default_factory=list[int])
    plans: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    why: list[str] = field(default_factory=list[str])

    def broken(self, work: Callable[[int], float], cap: float = 0.2) -> set[str]:
        """Which rules it did not keep, by what a second of work is with so many nodes."""
        found = set[str]()
        known = lost = done = 0.0
        for nodes in self.nodes:
            rate = work(nodes) if nodes else 0.0
            known, done = max(known, rate), done + rate
            lost += known - rate
            if lost > cap * done + 6 * known:
                found.add("a look costs more than it may")
        if any(had != before for (_, before, _), (_, _, had) in zip(self.plans, self.plans[1:], strict=False)):
            found.add("two changes at once")
        if work(self.nodes[-1]) < 0.95 * max(work(size) for size in self.nodes if size):
            found.add("what did not help was kept")
        if sum(at > len(self.nodes) / 2 for at, _, _ in self.plans) > 2:
            found.add("it oscillates")
        return found


def live(
    sizing: Sizing,
    work: Callable[[int], float],
    *,
    seconds: int = 300,
    stands: int = 1,
    comes: int = 3,
    room: int = 64,
    noise: float = 0.02,
    seed: int = 1,
    tells: bool = True,
    change: Callable[[int], None] = lambda second: None,
) -> Lived:
    """Has the job live for so long.

    Args:
        work: a second, by nodes: steps times nodes.
        stands: seconds that it stands still in a change.
        comes: seconds until other nodes are there.
        room: nodes that there are places for.
        noise: relative, of a second's steps.
        tells: its script reports its steps.
        change: is told of each second.
    """
    draw, lived = random.Random(seed), Lived()
    nodes, round_, steps, wanted_since, still = min(sizing.plan.nodes, room), 1, 0.0, 0, 0
    for second in range(seconds):
        change(second)
        goal = min(sizing.plan.nodes, room)
        if goal != nodes and second - wanted_since >= comes:
            nodes, round_, still = goal, round_ + 1, stands
        stood, still = still > 0, max(0, still - 1)
        if not stood:
            steps += work(nodes) / nodes * (1 + draw.gauss(0, noise))
            if tells:
                sizing.count_steps(Stepped(round_, int(1000 * steps), 1), float(second))
        lived.nodes.append(0 if stood else nodes)
        plan = sizing.revise(JobNow(float(second), round_, nodes, nodes, not stood, 0.0, in_place=True))
        if plan and (not lived.plans or plan.nodes != lived.plans[-1][1]):
            wanted_since = second
            lived.plans.append((second, plan.nodes, nodes))
        if plan:
            lived.why.append(plan.why)
    return lived
