"""What the master's pod does beside the job's control."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cluster.clock import run
from elastic_run.launcher.cluster.master_pod import AGAIN, Report, supervised
from elastic_run.master.nodes.kubernetes.objects import Control
from elastic_run.master.status import NEWEST, Incident
from tests.doubles.statuses import STATUS


@pytest.mark.parametrize("ends", [KeyError("unforeseen"), None], ids=["an error", "without one"])
def test_a_task_that_ends_is_said_and_begins_again(ends: Exception | None) -> None:
    said: list[str] = []
    begun: list[float] = []

    async def work() -> None:
        begun.append(round(asyncio.get_running_loop().time(), 3))
        if len(begun) < 3:
            if ends is not None:
                raise ends
            return
        await asyncio.sleep(1e9)

    async def story() -> None:
        task = asyncio.create_task(supervised("writing the job's status", work, said.append))
        await asyncio.sleep(10 * AGAIN)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story)
    assert begun == [0.0, AGAIN, 2 * AGAIN]
    why = repr(ends) if ends else "without a reason"
    assert said == [f"writing the job's status ended: {why}; beginning again in {AGAIN:g} s"] * 2


class Told:
    """A job that keeps its newest status, as the cluster does for the next master."""

    def __init__(self) -> None:
        self.status: Any = {}
        self.store_size = 3

    def tell(self, status: Any) -> None:
        self.status = status

    def rounds(self) -> list[int]:
        return [each["round"] for each in self.status["incidents"]]


def incident(round_: int) -> Incident:
    return replace(STATUS.incidents[-1], round=round_)


def test_rounds_and_incidents_go_on_with_another_master_and_another_run() -> None:
    job: Any = Told()
    first = Report(job)
    first.on_status(replace(STATUS, run="a", round=3, incidents=(incident(1), incident(2))))
    assert (job.status["round"], job.rounds()) == (3, [1, 2])
    # The master's pod is preempted; the next one knows of the newest incident alone.
    second = Report(job)
    second.on_control(Control())
    assert (job.status["state"], job.status["round"], job.rounds()) == ("pending", 3, [1, 2])
    # It leads before it has read which run goes on.
    second.on_status(replace(STATUS, run="of its own", state="gathering", round=0, incidents=()))
    second.on_status(replace(STATUS, run="a", round=3, incidents=(incident(2),)))
    assert (job.status["round"], job.rounds()) == (3, [1, 2])
    # All pods are; the next run begins with round 1.
    for master in (second, Report(job)):
        master.on_status(replace(STATUS, run="b", state="gathering", round=0, incidents=()))
        assert (job.status["round"], job.rounds()) == (3, [1, 2])
        master.on_status(replace(STATUS, run="b", round=2, incidents=(incident(1),)))
        assert (job.status["round"], job.rounds()) == (5, [1, 2, 4])
    third = Report(job)
    third.on_status(replace(STATUS, run="c", round=1, incidents=tuple(map(incident, range(NEWEST - 1)))))
    assert (job.status["round"], job.rounds()) == (6, [4, *range(5, 5 + NEWEST - 1)])
    assert third.ended(0, "done")["round"] == 6


def test_a_store_that_does_not_answer_is_the_reason_until_it_does() -> None:
    job: Any = Told()
    report = Report(job)
    report.on_status(replace(STATUS, state="open"))
    before = job.status
    report.on_quorum("it has no quorum")
    assert (job.status["state"], job.status["reason"]) == ("degraded", "it has no quorum")
    report.on_status(replace(STATUS, state="open"))
    assert job.status["state"] == "degraded"
    report.on_control(Control(suspend=True))
    assert job.status["state"] == "suspended"
    report.on_control(Control())
    report.on_quorum("")
    assert job.status == before
