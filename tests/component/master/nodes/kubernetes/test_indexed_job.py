"""The nodes of a role as one Indexed Job: how large it is asked to be, what its pods say, what a queue grants it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.master.nodes.kubernetes import indexed_job, objects, pods, queued
from elastic_run.master.nodes.kubernetes.indexed_job import ASKED, Size
from elastic_run.master.nodes.reconcile import PATIENCE, Demand, Room, reconcile
from elastic_run.master.nodes.relaunch import Limits
from elastic_run.master.nodes.replica import Exited, Replica, Submitted, Unschedulable

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "night", "uid": "1"}
REQUEST = objects.Request("night", "night-1", "train:1", (), ("train.py",), cpu="2", queue="team")


def job(size: int = 2, *, suspend: bool = False, role: str = "") -> dict[str, Any]:
    template = objects.with_command(objects.node_template(REQUEST, role), ["elastic-run", "train.py"])
    made = dict(indexed_job.made("night", role, template, OWNER, "team", size))
    return {**made, "spec": {**made["spec"], "suspend": suspend}}


def pod(index: int, phase: str = "Running", at: int = 0, **status: object) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"night-worker-{index}-{at}",
            "creationTimestamp": f"2026-01-01T00:00:{at:02}Z",
            "annotations": {indexed_job.INDEX: str(index)},
            "labels": {pods.JOB: "night"},
        },
        "spec": {"containers": [{"name": "agent"}]},
        "status": {"phase": phase, **status},
    }


def ended(index: int, code: int, at: int) -> dict[str, Any]:
    return pod(index, "Failed", at, containerStatuses=[{"state": {"terminated": {"exitCode": code}}}])


def test_the_job_is_elastic_in_its_queue_and_goes_with_the_master() -> None:
    made = job(3, role="ps")
    assert made["metadata"]["name"] == "night-ps"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert made["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert (made["spec"]["completionMode"], made["spec"]["parallelism"], made["spec"]["completions"]) == (
        "Indexed",
        3,
        3,
    )
    template = made["spec"]["template"]
    assert template["metadata"]["labels"][pods.JOB] == "night" and template["metadata"]["labels"][pods.ROLE] == "ps"
    assert template["spec"]["restartPolicy"] == "Never"
    assert template["spec"]["containers"][0]["command"] == ["elastic-run", "train.py"]


def test_none_at_all_keeps_the_completions_because_a_job_without_any_is_complete() -> None:
    assert indexed_job.resized(0) == {"parallelism": 0}
    assert indexed_job.resized(3) == {"parallelism": 3, "completions": 3}


def test_an_index_stops_when_all_above_it_are_to_stop() -> None:
    size = Size().with_index(3)
    assert size.count == 4
    assert size.without(2, now=0.0).count == 4, "the highest one stays"
    assert size.without(2, now=0.0).without(3, now=0.0).count == 2
    assert size.without(3, now=0.0).without(2, now=0.0).count == 2
    assert size.without(2, now=0.0).without(3, now=ASKED + 1).count == 3, "that was long ago"
    assert size.without(2, now=0.0).with_index(2).without(3, now=0.0).count == 3, "it is wanted again"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_a_job_is_never_smaller_than_the_highest_index_that_is_wanted(asked: Sequence[tuple[bool, int]]) -> None:
    size, wanted = Size(), set[int]()
    for starts, index in asked:
        size = size.with_index(index) if starts else size.without(index, now=0.0)
        wanted = wanted | {index} if starts else wanted - {index}
        assert size.count >= max(wanted, default=-1) + 1


def test_each_index_is_its_newest_pod_and_one_that_has_none_is_awaited() -> None:
    found = indexed_job.replicas(job(3), [pod(0), ended(1, 1, at=1), pod(1, at=2)], "")
    assert [(each.index, each.state, each.attempt, each.counted) for each in found] == [
        (0, "running", 0, 0),
        (1, "running", 1, 1),
        (2, "pending", 0, 0),
    ]
    assert found[2].pending == Submitted()


def test_an_end_that_is_not_the_jobs_fault_counts_nothing() -> None:
    found = indexed_job.replicas(job(1), [ended(0, 143, at=1), ended(0, 1, at=2), ended(0, 1, at=3)], "")
    assert [(each.attempt, each.counted, each.end) for each in found] == [(2, 1, Exited(1))]


def test_what_waits_for_the_queue_says_so_in_its_words() -> None:
    found = indexed_job.replicas(job(2, suspend=True), [], "queue team: insufficient quota for cpu")
    assert [each.pending for each in found] == [Unschedulable("queue team: insufficient quota for cpu")] * 2
    gate = {
        "type": "PodScheduled",
        "status": "False",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    (gated,) = indexed_job.replicas(job(1), [pod(0, "Pending", conditions=[gate])], "queue team: no quota")
    assert gated.pending == Unschedulable("queue team: no quota")
    full = {**gate, "message": "0/3 nodes are available"}
    (placeless,) = indexed_job.replicas(job(1), [pod(0, "Pending", conditions=[full])], "queue team: no quota")
    assert placeless.pending == Unschedulable("0/3 nodes are available"), "the scheduler's words are its own"


def workload(at: int, **conditions: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": status, "message": text} for kind, (status, text) in conditions.items()]
    return {"metadata": {"creationTimestamp": f"2026-01-01T00:00:0{at}Z"}, "status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("workloads", "why"),
    [
        ([], ""),
        ([workload(1, Admitted=("True", "yes"))], ""),
        (
            [workload(1, Admitted=("True", "yes")), workload(2, QuotaReserved=("False", "no quota"))],
            "queue q: no quota",
        ),
        ([workload(1, Finished=("True", "")), workload(2)], "queue q has not admitted it yet"),
    ],
)
def test_the_queue_is_quoted_for_what_waits(workloads: list[Mapping[str, Any]], why: str) -> None:
    assert queued.why_of(workloads, "q") == why


RESERVED = {"QuotaReserved": ("True", ""), "Admitted": ("True", "")}

ASKS = {"QuotaReserved": ("False", "no quota")}


@pytest.mark.parametrize(
    ("workloads", "taken"),
    [
        ([], False),
        ([workload(1, **RESERVED), workload(2, **ASKS)], False),
        ([workload(1, **RESERVED, Evicted=("True", "preempted")), workload(2, **ASKS)], False),
        ([workload(1, **RESERVED, Finished=("True", "replaced")), workload(2, **RESERVED)], False),
        ([workload(1, **RESERVED, Finished=("True", "replaced")), workload(2, **ASKS)], True),
        ([workload(1, **RESERVED, Finished=("True", "over"))], False),
    ],
)
def test_what_runs_was_taken_back_where_none_of_its_workloads_has_quota(
    workloads: list[Mapping[str, Any]], taken: bool
) -> None:
    assert queued.taken_back(workloads) == taken


# -- what reconcile and a queue make of each other ---------------------------------------------------------------------


class Queue:
    """A double of Kueue and the Job's controller: growth is granted as a whole, or waits behind its gates.

    Args:
        quota: pods that fit.
    """

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.job: dict[str, Any] | None = None
        self.granted = 0
        self.size = Size()
        self.room: Mapping[str, Room] = {}
        self.since: dict[tuple[str, str], float] = {}
        self.ran: list[int] = []

    def _grant(self) -> None:
        if self.job is None:
            return
        wanted = indexed_job.parallelism(self.job)
        if self.granted > self.quota:  # it is preempted, as a whole
            self.granted = 0
        if wanted <= self.quota or wanted < self.granted:
            self.granted = wanted
        self.job["spec"]["suspend"] = self.granted == 0

    def _found(self, now: float) -> list[Replica]:
        if self.job is None:
            return []
        gate = {"type": "PodScheduled", "status": "False", "message": "due to non-empty scheduling gates"}
        found: list[dict[str, Any]] = []
        if not indexed_job.is_suspended(self.job):
            for index in range(indexed_job.parallelism(self.job)):
                gated = index >= self.granted
                found.append(pod(index, "Pending", conditions=[gate]) if gated else pod(index))
        seen: list[Replica] = []
        for each in indexed_job.replicas(self.job, found, ""):
            key = (each.name, each.state + str(each.pending))
            since = self.since.setdefault(key, now)
            seen.append(Replica(each.name, "", each.index, 0, 0, each.state, since, pending=each.pending))
        return seen

    def look(self, demand: Demand, now: float) -> None:
        """One look of the node manager, and what the queue makes of it."""
        plan = reconcile([demand], self._found(now), self.room, Limits(), now)
        self.room = plan.room
        for each in plan.start:
            self.size = self.size.with_index(each.index)
        names = {each.name: each.index for each in self._found(now)}
        for name in plan.stop:
            self.size = self.size.without(names[name], now)
        if self.job is None and self.size.count:
            self.job = job(self.size.count, suspend=True)
        if self.job is not None:
            self.job["spec"].update(indexed_job.resized(self.size.count))
        self._grant()
        self.ran.append(self.granted)

    def until(self, demand: Demand, seconds: float, begin: float = 0.0) -> int:
        """The pods that run after so many seconds of looks."""
        for tick in range(int(seconds)):
            self.look(demand, begin + tick)
        return self.granted


@pytest.mark.parametrize(("quota", "runs"), [(8, 8), (5, 5), (2, 2), (1, 0)])
def test_a_job_gets_what_its_queue_has_and_at_least_its_minimum(quota: int, runs: int) -> None:
    queue = Queue(quota)
    assert queue.until(Demand("", 8, 2), 10 * PATIENCE) == runs
    assert queue.job is not None
    assert indexed_job.parallelism(queue.job) <= max(2, runs + 1), "one more than runs is asked for, as the probe"


def test_it_grows_when_the_queue_has_more_and_no_pod_stops_for_it() -> None:
    queue = Queue(3)
    assert queue.until(Demand("", 8, 2), 5 * PATIENCE) == 3
    queue.quota = 8
    begun = len(queue.ran)
    assert queue.until(Demand("", 8, 2), 5 * PATIENCE, begin=5 * PATIENCE) == 8
    assert all(after >= before for before, after in zip(queue.ran[begun:], queue.ran[begun + 1 :], strict=False))


def test_one_that_is_preempted_comes_back_with_its_minimum() -> None:
    queue = Queue(8)
    assert queue.until(Demand("", 8, 2), PATIENCE) == 8
    queue.quota = 3
    assert queue.until(Demand("", 8, 2), 10 * PATIENCE, begin=PATIENCE) == 3
    assert 0 in queue.ran[int(PATIENCE) :], "a queue preempts a job as a whole"


def test_it_shrinks_to_what_the_job_wants_and_grows_back() -> None:
    queue = Queue(8)
    queue.until(Demand("", 8, 2), PATIENCE)
    assert queue.until(Demand("", 3, 2), PATIENCE, begin=PATIENCE) == 3
    assert queue.until(Demand("", 0, 0), PATIENCE, begin=2 * PATIENCE) == 0
    assert queue.until(Demand("", 8, 2), 10 * PATIENCE, begin=3 * PATIENCE) == 8
