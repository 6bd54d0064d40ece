"""A day of jobs with priorities on one cluster, against what no schedule can do better."""

import asyncio
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from . import bounds
from .areas import Area, Panel
from .clock import run
from .job import Job, Wants
from .platform import Priority
from .scheduler import Cluster
from .times import Times
from .usage import Curve, Usage, total

MACHINES = (32,) * 10
JOBS = 1000
HOURS = 24.0
LOAD = 1.02
"""Work that is submitted in the day, as a share of what the cluster can train in it."""

NAMES = ("low", "normal", "high")
SHARES = (0.6, 0.3, 0.1)
SIZES = (4, 8, 16, 32, 64, 128)
ABOVE = 10
"""By this the priority of a job's minimum (one node) is above that of its other nodes, and of those of all jobs."""


def made(jobs: int, machines: Sequence[int], hours: float, seed: int) -> list[Wants]:
    """Jobs over the day: more of them by day than by night, a few of them large."""
    chance = random.Random(f"day {seed}")
    cpus, seconds = sum(machines), hours * 3600
    sizes = [size for size in SIZES if size <= cpus // 2]
    moments = sorted(seconds * _clock(chance.random()) for _ in range(jobs))
    raw = [chance.lognormvariate(0.0, 1.0) for _ in range(jobs)]
    factor = LOAD * cpus * seconds / sum(raw)
    found: list[Wants] = []
    for number, (at, work) in enumerate(zip(moments, raw, strict=True)):
        kind = chance.choices(range(len(NAMES)), SHARES)[0]
        # A job with more work asks for more nodes, within a factor of two either way.
        fits = work * factor / 1200 * 2 ** chance.uniform(-1, 1)
        most = min(sizes, key=lambda size: abs(math.log(size / max(1.0, fits))))
        priority = Priority(kind, ABOVE + kind, 1)
        found.append(Wants(f"{NAMES[kind]}-{number}", at, work * factor, 1, most, priority=priority))
    return found


def _clock(share: float) -> float:
    """When so large a share of the day's jobs have come: most of them in the first two thirds."""
    return share * (0.55 + 0.4 * share)


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of it.

    Attributes:
        bound, trained, held: CPU-seconds until the end of the day: what no schedule exceeds, what was trained, and
            what pods had.
        waits: by priority, seconds until each job's minimum had its places.
        ended: jobs that had ended by then.
    """

    jobs: Sequence[Wants]
    usage: Usage
    seconds: float
    cpus: int
    bound: float
    trained: float
    held: float
    waits: dict[str, list[float]]
    ended: int
    rounds: int
    stood: float
    preemptions: int

    @property
    def share(self) -> float:
        """Of the bound."""
        return self.trained / self.bound


def ran(
    jobs: int = JOBS,
    machines: Sequence[int] = MACHINES,
    hours: float = HOURS,
    times: Times | None = None,
    seed: int = 1,
) -> Ran:
    """Runs it, in no time."""
    wanted = made(jobs, machines, hours, seed)
    return run(lambda: _run(wanted, tuple(machines), hours * 3600, times or Times()))


async def _run(wanted: Sequence[Wants], machines: tuple[int, ...], seconds: float, times: Times) -> Ran:
    usage = Usage()
    cluster = Cluster(machines, times, usage)
    jobs = [Job(each, cluster) for each in wanted]
    running = [asyncio.create_task(job.run(), name=job.wants.name) for job in jobs]
    await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in running:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    cpus = sum(machines)
    waits: dict[str, list[float]] = {name: [] for name in NAMES}
    for job in jobs:
        if job.story.asked is not None and job.story.placed is not None:
            waits[job.wants.name.partition("-")[0]].append(job.story.wait)
    return Ran(
        wanted,
        usage,
        seconds,
        cpus,
        bounds.most_trained(wanted, cpus, seconds),
        total(list(usage.works.values()), 0.0, seconds),
        total(list(usage.has.values()), 0.0, seconds),
        waits,
        sum(job.story.done is not None for job in jobs),
        sum(job.story.rounds for job in jobs),
        sum(job.story.stood for job in jobs),
        cluster.preemptions,
    )


HEAD = (
    "jobs",
    "ended in the day",
    "bound's utilisation",
    "CPUs held",
    "CPUs that trained",
    "share of the bound",
    "rounds",
    "pods that gave way",
)


def row(found: Ran) -> tuple[str, ...]:
    """Its figures."""
    whole = found.cpus * found.seconds
    return (
        str(len(found.jobs)),
        str(found.ended),
        f"{found.bound / whole:.2%}",
        f"{found.held / whole:.2%}",
        f"{found.trained / whole:.2%}",
        f"{found.share:.2%}",
        str(found.rounds),
        str(found.preemptions),
    )


WAITS_HEAD = ("priority", "jobs", "half of them wait less than, s", "95 % less than, s", "longest, s")


def waits(found: Ran) -> list[tuple[str, ...]]:
    """By priority, how long a job's minimum waited for its place."""
    return [
        (
            name,
            str(len(each)),
            f"{statistics.median(each):.2f}",
            f"{sorted(each)[int(len(each) * 0.95)]:.2f}",
            f"{max(each):.2f}",
        )
        for name, each in found.waits.items()
        if each
    ]


def panels(found: Ran) -> list[Panel]:
    """CPUs that train, by priority."""
    curves: dict[str, Curve] = {}
    for name in reversed(NAMES):
        changes: dict[float, float] = {}
        for owner, curve in found.usage.works.items():
            if owner.startswith(f"{name}-"):
                before = 0.0
                for at, value in zip(curve.times, curve.values, strict=True):
                    changes[at] = changes.get(at, 0.0) + value - before
                    before = value
        curves[name] = Curve()
        for at in sorted(changes):
            curves[name].add(changes[at], at)
    areas = tuple(Area(f"{name} priority", curve) for name, curve in curves.items() if curve.times)
    title = f"{len(found.jobs)} jobs: {found.share:.1%} of what no schedule can exceed"
    return [Panel(title, areas, float(found.cpus))]
