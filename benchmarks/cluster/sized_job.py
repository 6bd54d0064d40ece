"""A simulated job that sizes itself (`--plan`): its steps take what a law says, which its planner does not know."""

import asyncio
import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastic_run.master.machine import events
from elastic_run.master.machine.pace import Stepped
from elastic_run.master.resources import planners
from elastic_run.master.resources.sizing import JobNow, Sizing

from .clock import run
from .job import Job, Wants
from .laws import Law
from .scheduler import Cluster
from .times import Times
from .usage import Curve, Usage

EACH = 1.0
"""Seconds between two reports of steps (`adapters/client/steps.py`), and between two looks of the master."""


class SizedJob(Job):
    """Args: law: of its steps; plan: as `--plan` has it; seed: of the noise."""

    def __init__(
        self,
        wants: Wants,
        cluster: Cluster,
        law: Law,
        plan: str,
        seed: int,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.law, self.plan = law, plan
        self._draw = random.Random(seed)
        self.sizing = Sizing(planners.load(plan), range(wants.least, wants.most + 1), wants.least)
        self.trained = Curve()
        self._steps = 0.0
        self._stepped_at = 0.0
        super().__init__(wants, cluster, say)

    def speed(self, nodes: int) -> float:
        """Work a second; it ends by the clock, and not with its work."""
        return 1e-9

    async def live(self, seconds: float) -> None:
        """Trains for so long; then it is over, whatever it does."""
        running = asyncio.create_task(self.run())
        try:
            while self._loop.time() < seconds:
                await asyncio.sleep(EACH)
                if running.done():
                    running.result()
                if self._runs:
                    self._tick()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _new_run(self) -> None:
        super()._new_run()
        self._tell(events.Planned(self.sizing.plan.nodes, self.sizing.plan.why))

    def _stand(self, number: int) -> None:
        super()._stand(number)
        if self._trains_since == self._loop.time():
            self.trained.set(len(self._assigned), self._loop.time())
            self._stepped_at = self._loop.time()
            if not self.wants.stays:
                self._steps = 0.0
            self._steps += 1
            self._report()

    def _stop_training(self) -> None:
        if self._trains_since is not None:
            self._count()
            self.trained.set(0, self._loop.time())
        super()._stop_training()

    def _count(self) -> None:
        """The steps since it was counted last."""
        now = self._loop.time()
        made = (now - self._stepped_at) / self.law.step(len(self._assigned))
        self._stepped_at = now
        if made > 0:
            self._steps += max(0.0, made * (1 + self._draw.gauss(0.0, self.law.noise / max(1.0, made) ** 0.5)))

    def _report(self) -> None:
        number = self._header[0].number if self._header else 0
        whole = int(self._steps)
        at = self._loop.time() - (self._steps - whole) * self.law.step(len(self._assigned))  # it tells after a step
        self.sizing.count_steps(Stepped(number, whole, number if not self.wants.stays else 1), at)

    def _tick(self) -> None:
        now, trains = self._loop.time(), self._trains_since is not None
        if trains:
            self._count()
            self._report()
        number, nodes = (self._header[0].number, len(self._assigned)) if self._header else (0, 0)
        job = JobNow(now, number, nodes, nodes, trains, 0.0, self.wants.stays)
        if plan := self.sizing.revise(job):
            self._say(f"{now:9.2f} plan: {plan.nodes} nodes: {plan.why}")
            self._tell(events.Planned(plan.nodes, plan.why))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one job.

    Attributes:
        law: of its steps.
        best: the number of nodes that does most, by the law.
        ends: the number that it has at the end.
        share: of the best one's work that that does.
        spent: what it has not done because it looked, as a share of what it has done: whenever it does less than it
            would at the best size that it has had.
        reached: seconds from its first step until it had a number that does 95 % of the best, and kept such numbers
            but for looks; None: it did not.
        looks: changes of its size.
    """

    law: Law
    best: int
    ends: int
    share: float
    spent: float
    reached: float | None
    looks: int


def simulate(
    law: Law,
    *,
    seed: int,
    plan: str,
    most: int,
    seconds: float,
    stays: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """One job alone on a cluster with room for `most` nodes, in no time."""

    async def main() -> SizedJob:
        cluster = Cluster((most,), Times(), Usage())
        wants = Wants("job", 0.0, 1.0, 1, most, stays=stays)
        text = f"{plan}:batch=job" if law.per_job and plan == "goodput" else plan
        job = SizedJob(dataclasses.replace(wants), cluster, law, text, seed, say)
        await job.live(seconds)
        return job

    return outcome(law, run(main), range(1, most + 1), seconds)


def outcome(law: Law, job: SizedJob, sizes: Sequence[int], seconds: float) -> Outcome:
    """By the law itself, and not by what the planner believes."""
    curve = job.trained
    best = max(sizes, key=law.work)
    ends = job.sizing.plan.nodes
    known = lost = done = 0.0
    reached: float | None = None
    for place, (at, value) in enumerate(zip(curve.times, curve.values, strict=True)):
        until = curve.times[place + 1] if place + 1 < len(curve.times) else seconds
        rate = law.work(int(value)) if value else 0.0
        known = max(known, rate)
        done += rate * (until - at)
        lost += (known - rate) * (until - at)
        if value and rate >= 0.95 * law.work(best):
            reached = at - curve.times[0] if reached is None else reached
    share = law.work(ends) / law.work(best)
    sized = [value for value in curve.values if value]
    changes = sum(one != other for one, other in pairwise(sized))
    return Outcome(law, best, ends, share, lost / done, reached if share >= 0.95 else None, changes)
