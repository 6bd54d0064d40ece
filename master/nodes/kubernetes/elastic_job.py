"""The custom resource ElasticJob (pure): the command that it stands for, what it wants now, and how it is told to be.

An ElasticJob says with fields what `elastic-job submit` says with flags, and becomes the same objects. The operator
(`launcher/operator.py`) makes them, and from then on copies in two directions:

    spec.replicas, roles[].replicas, spec.suspend  ->  the ConfigMap's control
    the ConfigMap's status                         ->  status, with conditions
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

from .objects import COMPONENT, Control, Json
from .pods import CONTAINER, JOB

GROUP = "elastic-run.dev"
VERSION = "v1"
PLURAL = "elasticjobs"
KIND = "ElasticJob"
API = f"{GROUP}/{VERSION}"

OWNER = f"{GROUP}/elasticjob"
"""The annotation of a job's ConfigMap with the uid of the ElasticJob that it was made for."""

INVALID = "Invalid"
"""The state of an ElasticJob of which no job can be made."""

ENDS: Mapping[str, str] = {"succeeded": "Succeeded", "failed": "Failed", "timeout": "Failed", "repeated": "Failed"}
"""The condition that is true of a job that is over, by its state."""

CONDITIONS = ("Running", "Suspended", "Succeeded", "Failed")

FLAGS = {
    "cpu": "cpu",
    "memory": "memory",
    "memoryCap": "memory-cap",
    "priorityClassName": "priority-class",
    "highPriorityClassName": "high-priority-class",
    "highPriorityFraction": "high-priority-fraction",
    "masterPriorityClassName": "master-priority-class",
    "serviceAccountName": "service-account",
    "imagePullPolicy": "image-pull-policy",
    "gpus": "gpus",
    "image": "image",
    "nprocPerNode": "nproc-per-node",
    "rdzvEndpoint": "rdzv-endpoint",
}
"""Fields whose value is that of a flag as it is."""


def words(name: str, spec: Json) -> list[str]:
    """What follows `elastic-job submit` for the same job."""
    roles = cast(Sequence[Json], spec.get("roles") or ())
    made = [f"--name={name}", *(f"--{flag}={spec[field]}" for field, flag in FLAGS.items() if spec.get(field))]
    if roles:
        made.append("--roles=" + ",".join(f"{each['name']}:{_range(each)}" for each in roles))
        made += [f"--role-options={each['name']}:{each['options']}" for each in roles if each.get("options")]
        made += [
            f"--role-command={each['name']}:{shlex.join(each['command'])}" for each in roles if each.get("command")
        ]
    else:
        made.append(f"--nnodes={_range(spec)}")
    return [*made, *map(str, spec.get("flags") or ()), "--", *map(str, spec["command"])]


def _range(of: Json) -> str:
    least = of.get("minReplicas", 1)
    return f"{least}:{of.get('maxReplicas', least)}"


def most(spec: Json) -> int:
    """The nodes that a job without roles may have."""
    return int(spec.get("maxReplicas", spec.get("minReplicas", 1)))


def template(spec: Json) -> Json:
    """The pod that the nodes are made of, with the variables of `env`."""
    given = cast(dict[str, Any], dict(spec.get("template") or {}))
    if not spec.get("env"):
        return given
    pod = cast(Json, given.get("spec") or {})
    containers = [dict(each) for each in cast(Sequence[Json], pod.get("containers") or [{}])]
    agent = next((each for each in containers if each.get("name") == CONTAINER), containers[0])
    own = {each["name"] for each in spec["env"]}
    rest = [each for each in cast(Sequence[Json], agent.get("env") or ()) if each.get("name") not in own]
    agent["env"] = [*rest, *spec["env"]]
    return given | {"spec": {**pod, "containers": containers}}


def control(spec: Json, before: Control) -> Control:
    """What is wanted of the job now; that it is to be cancelled nobody takes back."""
    roles = cast(Sequence[Json], spec.get("roles") or ())
    asked = {each["name"]: each.get("replicas") for each in roles} if roles else {"": spec.get("replicas")}
    scale = {role: int(count) for role, count in asked.items() if count is not None}
    return before.changed(scale=scale, suspend=bool(spec.get("suspend")))


def spec_of(control: Control, spec: Json) -> Json:
    """The fields of `spec` that say what `control` says."""
    roles = cast(Sequence[Json], spec.get("roles") or ())
    if not roles:
        return {"suspend": control.suspend, **({"replicas": control.scale[""]} if "" in control.scale else {})}
    scaled = [
        {**each, "replicas": control.scale[each["name"]]} if each["name"] in control.scale else each for each in roles
    ]
    return {"suspend": control.suspend, "roles": scaled}


def reference(job: Json) -> Json:
    """By which all that is made for an ElasticJob goes with it."""
    metadata = job["metadata"]
    return {
        "apiVersion": API,
        "kind": KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def status(name: str, found: Json, before: Json, generation: int, now: str) -> Json:
    """The status of an ElasticJob whose ConfigMap says `found`.

    Args:
        name: of the job.
        before: the status as it is; when a condition has changed is kept there.
        generation: of the spec that was read.
        now: as the API writes time.
    """
    state = str(found.get("state") or "pending")
    reason = str(found.get("reason") or "its master has not started yet")
    nodes = cast(Mapping[str, int], found.get("nodes") or {})
    true = ENDS.get(state, {"running": "Running", "suspended": "Suspended"}.get(state, ""))
    data = cast(Sequence[Json], found.get("datasets") or ())
    left = [each["secondsLeft"] for each in data if each.get("secondsLeft") is not None]
    made: dict[str, object] = {
        "observedGeneration": generation,
        "state": state.capitalize(),
        "reason": reason,
        "replicas": int(nodes.get("running", 0)),
        "selector": f"{JOB}={name},{COMPONENT}=node",
        "pending": int(nodes.get("pending", 0)),
        "workers": int(found.get("workers", 0)),
        "round": int(found.get("round", 0)),
        **({"progress": ", ".join(f"{each['done']}/{each['shards']}" for each in data)} if data else {}),
        "secondsLeft": max(left) if left else None,  # a merge patch takes it away
        **({"exitCode": found["exitCode"]} if "exitCode" in found else {}),
        "incidents": found.get("incidents") or [],
        "waiting": found.get("waiting") or [],
        "targets": found.get("targets") or {},
    }
    return {**made, "conditions": conditions(true, state.capitalize(), reason, before, now)}


def invalid(why: str, before: Json, generation: int, now: str) -> Json:
    """The status of an ElasticJob of which no job can be made."""
    made = {"observedGeneration": generation, "state": INVALID, "reason": why}
    return {**made, "conditions": conditions("Failed", INVALID, why, before, now)}


def conditions(true: str, code: str, reason: str, before: Json, now: str) -> list[Json]:
    """Of which one at most is true, with the reason."""
    known = {each["type"]: each for each in cast(Sequence[Json], before.get("conditions") or ())}
    made: list[Json] = []
    for kind in CONDITIONS:
        is_so = "True" if kind == true else "False"
        old = known.get(kind)
        since = old["lastTransitionTime"] if old and old["status"] == is_so else now
        made.append(
            {"type": kind, "status": is_so, "reason": code, "message": reason, "lastTransitionTime": since},
        )
    return made
