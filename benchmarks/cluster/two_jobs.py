"""Two jobs on 320 CPUs, ElasticDL's experiment: gang scheduling of both, and elastic jobs, the second 300 s later."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from . import bounds
from .areas import Area, Panel
from .clock import run
from .job import Job, Story, Wants
from .platform import Priority
from .scheduler import Cluster
from .times import Times
from .usage import Usage

MACHINES = (32,) * 10
ASKED, SECONDS, SECOND_AT = 175, 650.0, 300.0
LEAST = 16
"""Nodes of one CPU that each job needs; of a job that may take the whole cluster, these have a higher priority."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way of running the two.

    Attributes:
        bound: seconds in all, if nothing had a cost.
        gang: each job waits until all that it asks for is free, and has exactly that.
    """

    name: str
    first: Wants
    second: Wants
    bound: float
    gang: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a case. `preemptions`: pods that gave their place to another."""

    case: Case
    stories: tuple[Story, Story]
    usage: Usage
    preemptions: int

    @property
    def seconds(self) -> float:
        """From the first job's submission until both have trained all their work."""
        return max(each.done or 0.0 for each in self.stories)


def cases(scale: float = 1.0) -> tuple[Case, ...]:
    """The four. `scale`: of CPUs, for a smaller cluster."""
    asked, cpus, least = round(ASKED * scale), round(sum(MACHINES) * scale), round(LEAST * scale)
    work = asked * SECONDS
    first = Wants("first", 0.0, work, least, asked)
    second = Wants("second", SECOND_AT, work, least, asked)
    above = replace(second, priority=Priority(usual=1))
    first_all, second_all = (replace(each, most=cpus, priority=Priority(0, 1, least)) for each in (first, second))
    gang = tuple(replace(each, at=0.0, least=asked) for each in (first, second))
    rest = cpus - asked
    return (
        Case("gang scheduling, 175 each", *gang, bound=2 * SECONDS, gang=True),
        Case("elastic, at most 175 each", first, second, bounds.two_in_a_row(first, second, cpus, rest)),
        Case("elastic, at most 175 each, the second above the first", first, above, SECOND_AT + SECONDS),
        Case("elastic, at most 320 each", first_all, second_all, 2 * work / cpus),
    )


def ran(case: Case, machines: Sequence[int] = MACHINES, times: Times | None = None) -> Ran:
    """Runs it, in no time."""
    return run(lambda: _run(case, machines, times or Times()))


async def _run(case: Case, machines: Sequence[int], times: Times) -> Ran:
    usage = Usage()
    cluster = Cluster(tuple(machines), times, usage)
    jobs = [Job(wants, cluster) for wants in (case.first, case.second)]
    if case.gang:
        stories = await _gang(jobs, cluster)
    else:
        stories = await asyncio.gather(*(job.run() for job in jobs))
    first, second = stories
    return Ran(case, (first, second), usage, cluster.preemptions)


async def _gang(jobs: Sequence[Job], cluster: Cluster) -> list[Story]:
    """A double of a gang scheduler: in the order of submission, each job once all its CPUs are free."""
    running: list[asyncio.Task[Story]] = []
    for job in jobs:
        needs = job.wants.most * job.wants.cpu
        asked = job.wants.at + cluster.times.master
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, asked - loop.time()))
        while cluster.free < needs:  # noqa: ASYNC110  it looks again as a scheduler does
            await asyncio.sleep(cluster.times.schedule)
        job.story.asked = asked
        running.append(asyncio.create_task(job.run()))
        await asyncio.sleep(2 * cluster.times.api + 2 * cluster.times.schedule)  # its pods take their places
    return list(await asyncio.gather(*running))


HEAD = (
    "case",
    "bound, s",
    "both done, s",
    "second waits, s",
    "first step after, s",
    "rounds",
    "stood still, s",
    "pods that gave way",
)


def rows(found: Sequence[Ran]) -> list[tuple[str, ...]]:
    """A line for each case. *Waits*: from asking for nodes until the minimum has places."""
    return [
        (
            each.case.name,
            f"{each.case.bound:.1f}",
            f"{each.seconds:.1f}",
            f"{each.stories[1].wait:.2f}",
            f"{(each.stories[1].trained or 0.0) - each.stories[1].submitted:.1f}",
            "+".join(str(story.rounds) for story in each.stories),
            f"{sum(story.stood for story in each.stories):.1f}",
            str(each.preemptions),
        )
        for each in found
    ]


def panels(found: Sequence[Ran]) -> list[Panel]:
    """CPUs over time by job."""
    most = float(sum(MACHINES))
    return [
        Panel(
            f"{each.case.name}: both done after {each.seconds:.0f} s (bound {each.case.bound:.0f} s)",
            tuple(Area(f"{name} job", each.usage.has[name]) for name in ("first", "second")),
            most,
        )
        for each in found
    ]
