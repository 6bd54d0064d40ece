"""Training at a low priority beside an online service, whose demand rises and falls, at a high one."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .areas import Area, Panel
from .clock import run
from .job import Job, Story, Wants
from .platform import Priority
from .scheduler import Cluster, Pod
from .times import Times
from .usage import Usage, total

MACHINES = (32,) * 10
MINUTES = 40.0
GRACE = 30.0
"""Seconds that a pod of the job has between SIGTERM and SIGKILL."""

PERIOD = 15.0
"""Seconds between two looks of the service's autoscaler at its demand, as in Kubernetes."""

SERVICE = "service"


@dataclass(eq=False, slots=True)
class Replica:
    """The process of one of the service's pods: it ends when it is told to."""

    end: Callable[[], None]

    def terminate(self) -> None:
        """SIGTERM."""
        self.end()

    def kill(self) -> None:
        """SIGKILL: it has been told already."""


@dataclass(eq=False, slots=True)
class Service:
    """A double of an online service with an autoscaler: as many pods of one CPU as its demand.

    Args:
        demand: CPUs at a moment.
    """

    cluster: Cluster
    demand: Callable[[float], int]
    pods: list[Pod] = field(default_factory=list[Pod])
    every: list[Pod] = field(default_factory=list[Pod])

    async def run(self, until: float) -> None:
        """Scales until then."""
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            wanted = self.demand(loop.time())
            while len(self.pods) > wanted:
                self.cluster.delete(self.pods.pop())
            while len(self.pods) < wanted:
                name = f"{SERVICE}-{len(self.every)}"
                pod = Pod(name, SERVICE, 1, 1000, GRACE, self._begin, lambda: None)
                self.every.append(pod)
                self.pods.append(pod)
                self.cluster.create(pod)
            await asyncio.sleep(PERIOD)

    def _begin(self, pod: Pod) -> Replica:
        return Replica(lambda: self.cluster.ended(pod, 0))

    @property
    def waits(self) -> list[float]:
        """Seconds until each pod had its place."""
        return [pod.bound_at - pod.created for pod in self.every if pod.bound_at]


def traffic(cpus: int) -> Callable[[float], int]:
    """Demand between a tenth and three quarters of the cluster: a slow wave, a quicker one, and two sudden peaks."""

    def demand(now: float) -> int:
        share = 0.35 + 0.18 * math.sin(2 * math.pi * now / 1500) + 0.06 * math.sin(2 * math.pi * now / 280)
        if 700 <= now < 800 or 1700 <= now < 1900:
            share += 0.15
        return round(cpus * share)

    return demand


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of it.

    Attributes:
        held, trained: the share of the cluster's CPU-seconds that pods had, and that trained or served, from the
            job's first step to the end of the time.
        longest: seconds that a pod of the service waited for its place.
    """

    story: Story
    usage: Usage
    seconds: float
    cpus: int
    held: float
    trained: float
    longest: float
    waits: Sequence[float]
    preemptions: int


def ran(machines: Sequence[int] = MACHINES, minutes: float = MINUTES, times: Times | None = None) -> Ran:
    """Runs it, in no time."""
    return run(lambda: _run(tuple(machines), minutes * 60, times or Times()))


async def _run(machines: tuple[int, ...], seconds: float, times: Times) -> Ran:
    usage = Usage()
    cluster = Cluster(machines, times, usage)
    cpus = sum(machines)
    service = Service(cluster, traffic(cpus))
    endless = Wants("training", 0.0, cpus * seconds, 4, cpus, priority=Priority(usual=1))
    job = Job(endless, cluster)
    serving = asyncio.create_task(service.run(seconds))
    training = asyncio.create_task(job.run())
    await asyncio.wait({serving, training}, return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, training):
        if task.done():
            task.result()
    training.cancel()
    await asyncio.gather(training, return_exceptions=True)
    begin = job.story.trained
    assert begin is not None, "the job has trained"
    whole = cpus * (seconds - begin)
    served = usage.has[SERVICE].total(begin, seconds)
    return Ran(
        job.story,
        usage,
        seconds,
        cpus,
        total(list(usage.has.values()), begin, seconds) / whole,
        (served + usage.works["training"].total(begin, seconds)) / whole,
        max(service.waits),
        service.waits,
        cluster.preemptions,
    )


HEAD = (
    "CPUs held",
    "CPUs that train or serve",
    "longest wait of a service's pod, s",
    "half of them wait less than, s",
    "grace period, s",
    "rounds",
    "stood still, s",
    "pods that gave way",
)


def row(found: Ran) -> tuple[str, ...]:
    """Its figures."""
    return (
        f"{found.held:.1%}",
        f"{found.trained:.1%}",
        f"{found.longest:.2f}",
        f"{sorted(found.waits)[len(found.waits) // 2]:.2f}",
        f"{GRACE:g}",
        str(found.story.rounds),
        f"{found.story.stood:.1f}",
        str(found.preemptions),
    )


def panels(found: Ran) -> list[Panel]:
    """What pods have, and what of it trains."""
    has, works = found.usage.has, found.usage.works["training"]
    return [
        Panel(
            f"CPUs held: {found.held:.1%} of the cluster",
            (Area("online service", has[SERVICE], "#1f77b4"), Area("training job", has["training"], "#2ca02c")),
            float(found.cpus),
        ),
        Panel(
            f"CPUs that serve or train: {found.trained:.1%}",
            (Area("online service", has[SERVICE], "#1f77b4"), Area("training job", works, "#2ca02c")),
            float(found.cpus),
        ),
    ]
