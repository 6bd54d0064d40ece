"""Nodes of a role as one Indexed Job, which a queue admits (pure): how large it is to be, and its pods as replicas.

    Job NAME-ROLE         parallelism = completions = the nodes that are wanted; labelled with the queue's name
    └── Pods NAME-ROLE-0-x, NAME-ROLE-1-y, ...      made and replaced by the Job's controller

Kueue takes an annotation as the promise that the Job may grow and shrink while it runs: growth waits for quota behind
scheduling gates, and what runs stays. The node manager asks for single indexes. An Indexed Job has all indexes below
its size, so `Size` keeps what was asked for and says how large the Job is to be. Kubernetes changes the size of an
Indexed Job from 1.27 on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ....rendezvous.base.frozen import dataclass, field, replace
from ..relaunch import Again, GivenUp, Limits, judge
from ..replica import Replica, Submitted, Unschedulable
from . import objects, pods
from .objects import BATCH, COMPONENT, QUEUE, Json

ELASTIC = "kueue.x-k8s.io/elastic-job"
"""Annotation of a Job that may change its size while it runs."""

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation (and from 1.28 on, label) of a pod of an Indexed Job."""

UNLIMITED = 2**31 - 1
"""Ends after which the Job's controller would give up: what a node's end means is judged here, by its evidence."""

NODES = "nodes"
"""The component that a Job of nodes is."""

OLDEST = (1, 27)
"""The Kubernetes that changes the completions of an Indexed Job."""

ASKED = 3.0
"""Seconds for which an index is unwanted; the node manager asks again each second for as long as it is."""


def name_of(job: str, role: str) -> str:
    """Of the Job of that role's nodes."""
    return f"{job}-{role or 'worker'}"


def made(job: str, role: str, template: Json, owner: Json, queue: str, size: int) -> Json:
    """The Job of a role's nodes."""
    own = {pods.JOB: job, pods.ROLE: role}
    metadata = cast(Mapping[str, Any], template["metadata"])
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "metadata": {
            "name": name_of(job, role),
            "labels": {**objects.labels(job, NODES), **own, QUEUE: queue},
            "annotations": {ELASTIC: "true"},
            "ownerReferences": [owner],
        },
        "spec": {
            "completionMode": "Indexed",
            **resized(size),
            "backoffLimit": UNLIMITED,
            # Known from 1.29 on: then the pause before a lost node is replaced does not grow with the losses of others.
            "backoffLimitPerIndex": UNLIMITED,
            "template": {"metadata": {**metadata, "labels": {**metadata["labels"], **own}}, "spec": template["spec"]},
        },
    }


def resized(size: int) -> Json:
    """What is changed of the spec. None at all: completions stay, because a Job with none to come is complete."""
    return {"parallelism": size, "completions": size} if size else {"parallelism": 0}


@dataclass(frozen=True, slots=True)
class Size:
    """How large a role's Job is to be.

    Attributes:
        count: all indexes below it.
        unwanted: indexes that were asked to stop, each until when that holds.
    """

    count: int = 0
    unwanted: Mapping[int, float] = field(default_factory=dict[int, float])

    def with_index(self, index: int) -> "Size":
        """That index is to run."""
        rest = {each: until for each, until in self.unwanted.items() if each != index}
        return Size(max(self.count, index + 1), rest)

    def without(self, index: int, now: float) -> "Size":
        """That index is to stop: it does when all above it are to stop, too, because a Job ends its highest first."""
        unwanted = {each: until for each, until in self.unwanted.items() if until > now} | {index: now + ASKED}
        count = self.count
        while count and count - 1 in unwanted:
            count -= 1
        return Size(count, {each: until for each, until in unwanted.items() if each < count})


def is_of_nodes(job: Json) -> bool:
    """Whether it is a Job of nodes."""
    return _at(_at(job, "metadata"), "labels").get(COMPONENT) == NODES


def role_of(job: Json) -> str:
    """The role whose nodes it has."""
    return str(_at(_at(job, "metadata"), "labels").get(pods.ROLE, ""))


def parallelism(job: Json) -> int:
    """Its size."""
    return int(_at(job, "spec").get("parallelism", 1))


def is_suspended(job: Json) -> bool:
    """Whether the queue has not admitted it, or has taken its places."""
    return bool(_at(job, "spec").get("suspend"))


def replicas(job: Json, found: Sequence[Json], why: str) -> Sequence[Replica]:
    """The replicas of a role: the newest pod of each index, and one for each index that has none.

    Args:
        job: the Job.
        found: its pods.
        why: it is suspended, or some of its pods are held back, in the queue's words; empty: nobody has said.
    """
    by_index: dict[int, list[Json]] = {}
    for pod in sorted(
        found, key=lambda each: (each["metadata"].get("creationTimestamp", ""), each["metadata"]["name"])
    ):
        if (index := index_of(pod)) is not None:
            by_index.setdefault(index, []).append(pod)
    newest = [_replica(job, index, each) for index, each in sorted(by_index.items())]
    waits = Unschedulable(why or "the queue has not admitted it") if is_suspended(job) else Submitted()
    name, role = str(job["metadata"]["name"]), role_of(job)
    missing = [index for index in range(parallelism(job)) if index not in by_index]
    return [
        *(_told(each, why) for each in newest if each is not None),
        *(Replica(f"{name}-{index}", role, index, 0, 0, "pending", 0.0, pending=waits) for index in missing),
    ]


def index_of(pod: Json) -> int | None:
    """Which of its Job's indexes a pod has; None where it has none."""
    metadata = _at(pod, "metadata")
    text = str(_at(metadata, "annotations").get(INDEX, _at(metadata, "labels").get(INDEX, "")))
    return int(text) if text.isdigit() else None


def _replica(job: Json, index: int, tries: Sequence[Json]) -> Replica | None:
    """The last of an index's pods; those before it say how often the index has ended."""
    counted = 0
    for attempt, pod in enumerate(tries):
        found = _read(job, pod, index, attempt, counted)
        if found is None or pod is tries[-1]:
            return found
        if found.end is not None and _counts(found):
            counted += 1
    return None


def _read(job: Json, pod: Json, index: int, attempt: int, counted: int) -> Replica | None:
    metadata = pod["metadata"]
    own = {pods.INDEX: str(index), pods.ATTEMPT: str(attempt), pods.ROLE: role_of(job)}
    labelled = {**metadata, "labels": {**_at(metadata, "labels"), **own}}
    found = pods.replica_of({**pod, "metadata": labelled}, 0.0)
    return None if found is None else replace(found, counted=counted)


def _counts(ended: Replica) -> bool:
    assert ended.end is not None
    match judge(ended, ended.end, Limits()):
        case Again(counted=counted):
            return counted
        case GivenUp():
            return True
        case _:
            return False


def _told(found: Replica, why: str) -> Replica:
    """With the queue's words where the scheduler only says that there is a gate."""
    if why and isinstance(found.pending, Unschedulable) and "scheduling gates" in found.pending.message:
        return replace(found, pending=Unschedulable(why))
    return found


def _at(value: Json, name: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value.get(name) or {})
