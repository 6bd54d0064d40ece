"""Doubles of the controller of Indexed Jobs and of Kueue, on the double of the API: for clusters that do not run here.

What they claim to do is from the documentation and the sources of Kubernetes 1.27 and Kueue 0.18:

- A Job in a queue is suspended until its size fits into the quota; then its pods are made, one for each index.
- An elastic Job that is admitted may be made larger: a second Workload asks for the whole size, and until that is
  admitted, no more pods are let past their gate than the first one has quota for. Whoever waits at the gate is let
  past when another pod ends, in the order of their names.
- It may be made smaller at once: the pods with the highest indexes end. A Job of no pods is admitted, always.
- A Job that is preempted is suspended as a whole, and all its pods end. With `leaves_running` it is not where a part of
  it waits: its quota is gone, and what runs is left running, as by Kueue 0.18.
- A pod that ends is followed by another of its index, which is made with a gate. (The pause before that is not
  modelled.)

Kueue itself preempts where a Job of higher priority asks for quota; a quota that is made smaller takes nothing from
who has it. Here that stands for both.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from .api_double import ApiDouble
from .double_objects import Place, Refused

Json = Any
"""An object of the API."""

BATCH, KUEUE = "batch/v1", "kueue.x-k8s.io/v1beta2"

INDEX = "batch.kubernetes.io/job-completion-index"

GATE = "kueue.x-k8s.io/elastic-job"

GATED = "Scheduling is blocked due to non-empty scheduling gates"


class QueueDouble:
    """One queue, in front of the machines of `double`, which have room for everything.

    Args:
        double: of the API.
        quota: pods that it admits.

    Attributes:
        leaves_running: what runs of a Job that is preempted while a part of it waits.
    """

    def __init__(self, double: ApiDouble, quota: int) -> None:
        self.leaves_running = False
        self._double = double
        self._objects = double.objects
        self._quota = quota
        self._left: set[str] = set()  # Jobs without quota that were left running
        self._granted: dict[str, int] = {}
        self._objects.after = self.step

    def have(self, quota: int) -> None:
        """It admits so many pods from now on; a Job that has more is preempted."""
        with self._objects.changed:
            self._quota = quota
            self.step()

    def granted(self) -> int:
        """Pods that are admitted now."""
        return sum(self._granted.values())

    def step(self) -> None:
        """Brings everything on; called after each change of an object, with the lock held."""
        for pod in self._objects.find(self._place("pods", "v1")):
            if pod["metadata"].get("deletionTimestamp"):
                self._objects.delete(self._place("pods", "v1"), pod["metadata"]["name"], {"gracePeriodSeconds": 0})
        jobs = [
            each
            for each in self._objects.find(self._place("jobs", BATCH))
            if "kueue.x-k8s.io/queue-name" in each["metadata"].get("labels", {})
        ]
        uids = {each["metadata"]["uid"] for each in jobs}
        self._granted = {uid: count for uid, count in self._granted.items() if uid in uids}
        for job in jobs:
            self._admit(job)
            self._tell(job)
        for job in self._objects.find(self._place("jobs", BATCH)):
            if job["metadata"]["uid"] in uids:
                self._run(job)

    def _admit(self, job: Json) -> None:
        uid, size = job["metadata"]["uid"], int(job["spec"]["parallelism"])
        others = sum(count for each, count in self._granted.items() if each != uid)
        had = self._granted.get(uid, 0)
        if others + had > self._quota:
            del self._granted[uid]
            if self.leaves_running and size > had:
                self._left.add(uid)
        if not size or others + size <= self._quota or size < self._granted.get(uid, 0):
            self._granted[uid] = size
            self._left.discard(uid)
        suspended = uid not in self._granted and uid not in self._left
        if bool(job["spec"].get("suspend")) != suspended:
            self._objects.patch(self._place("jobs", BATCH), job["metadata"]["name"], {"spec": {"suspend": suspended}})

    def _tell(self, job: Json) -> None:
        """As Workloads of the queue: of what has quota, and of what asks for it."""
        uid, size = job["metadata"]["uid"], int(job["spec"]["parallelism"])
        granted = self._granted.get(uid)
        words = f"insufficient unused quota: {self._quota} pods, and {size} are asked for"
        over = {"type": "Finished", "status": "True", "message": "replaced"}
        admitted = [{"type": kind, "status": "True", "message": "admitted"} for kind in ("QuotaReserved", "Admitted")]
        asks = [{"type": "QuotaReserved", "status": "False", "message": words}]
        self._tell_one(uid, "has", [over] if granted is None else admitted)
        self._tell_one(uid, "asks", [over] if granted == size else asks)

    def _tell_one(self, uid: str, which: str, conditions: Json) -> None:
        name, place = f"job-{uid[:8]}-{which}", self._place("workloads", KUEUE)
        try:
            self._objects.create(place, {"metadata": {"name": name, "labels": {"kueue.x-k8s.io/job-uid": uid}}})
        except Refused as error:
            if error.status != 409:
                raise
        self._objects.patch(place, name, {"status": {"conditions": conditions}}, "status")

    def _run(self, job: Json) -> None:
        spec, uid = job["spec"], job["metadata"]["uid"]
        size = 0 if spec.get("suspend") else int(spec["parallelism"])
        live: dict[int, Json] = {}
        for pod in self._pods(uid):
            if pod["status"]["phase"] in ("Succeeded", "Failed"):
                continue
            index = int(pod["metadata"]["annotations"][INDEX])
            if index < size:
                live[index] = pod
            else:
                self._objects.delete(self._place("pods", "v1"), pod["metadata"]["name"], {})
        self._let_past(uid, live)
        done = {int(each["metadata"]["annotations"][INDEX]) for each in self._pods(uid, "Succeeded")}
        for index in range(size):
            if index not in live and index not in done:
                live[index] = self._make(job, index)
        self._let_past(uid, live)

    def _let_past(self, uid: str, live: dict[int, Json]) -> None:
        """Past the gate: as many as there is quota for."""
        room = self._granted.get(uid, 0) - sum("schedulingGates" not in pod["spec"] for pod in live.values())
        for index, pod in sorted(live.items(), key=lambda each: str(each[1]["metadata"]["name"])):
            if "schedulingGates" not in pod["spec"]:
                continue
            if room > 0:
                room -= 1
                open_spec = {"spec": {"schedulingGates": None}}
                live[index] = self._objects.patch(self._place("pods", "v1"), pod["metadata"]["name"], open_spec)
                self._double.machines.run(live[index])
            elif not pod["status"].get("conditions"):
                gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": GATED}
                self._double.machines.say(pod, {"phase": "Pending", "conditions": [gate]})

    def _make(self, job: Json, index: int) -> Json:
        name, template = job["metadata"]["name"], job["spec"]["template"]
        owner = {"apiVersion": BATCH, "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
        metadata = {
            "name": f"{name}-{index}-{uuid.uuid4().hex[:5]}",
            "labels": template["metadata"]["labels"],
            "annotations": {**(template["metadata"].get("annotations") or {}), INDEX: str(index)},
            "ownerReferences": [owner],
        }
        spec = {**template["spec"], "schedulingGates": [{"name": GATE}]}
        return self._objects.create(self._place("pods", "v1"), {"metadata": metadata, "spec": spec})

    def _pods(self, uid: str, phase: str = "") -> Sequence[Json]:
        return [
            each
            for each in self._objects.find(self._place("pods", "v1"))
            if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences") or ())
            and phase in ("", each["status"]["phase"])
        ]

    def _place(self, plural: str, group: str) -> Place:
        return self._double.place(plural, group)
