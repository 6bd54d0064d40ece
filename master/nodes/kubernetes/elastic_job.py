"""The custom resource ElasticJob (pure): the command that it stands for, what it wants now, and how it is told to be.

An ElasticJob says with fields what `elastic-job submit` says with flags, and becomes the same objects. The operator
(`launcher/cluster/operator.py`) makes them, and from then on copies in two directions:

    spec.replicas, roles[].replicas, spec.suspend  ->  the ConfigMap's control
    the ConfigMap's status                         ->  status, with conditions
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
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

SPEC = "spec.json"
"""Key of the ConfigMap of an ElasticJob's job: the spec that it was made of."""

APPLIED = "SpecApplied"
"""The condition that is false where the spec has another image, command or whatever a job cannot change."""

STORE = "StoreAvailable"
"""The condition that is false while the nodes train and the store has no quorum."""

TTL = "ttlSecondsAfterFinished"
"""Field of a spec: the ElasticJob goes so many seconds after its job's end. Its Job has no such field: one that went
while the operator was away would be made again."""

CHANGEABLE = ("replicas", "suspend", TTL)
"""Fields of a spec, and of its roles, that are looked at while the job is there."""

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
    "storeReplicas": "store-replicas",
    "storeImage": "store-image",
    "queueName": "queue",
    "masterQueueName": "master-queue",
}
"""Fields whose value is that of a flag as it is."""


def given(spec: Json, field: str) -> bool:
    """Whether the spec says something there; no members are something."""
    return bool(spec.get(field)) or (field == "storeReplicas" and spec.get(field) == 0)


def words(name: str, spec: Json) -> list[str]:
    """What follows `elastic-job submit` for the same job. Raises ValueError where `flags` has what a field says."""
    roles = cast(Sequence[Json], spec.get("roles") or ())
    made = [f"--name={name}", *(f"--{flag}={spec[field]}" for field, flag in FLAGS.items() if given(spec, field))]
    if roles:
        made.append("--roles=" + ",".join(f"{each['name']}:{_range(each)}" for each in roles))
        made += [f"--role-options={each['name']}:{each['options']}" for each in roles if each.get("options")]
        made += [
            f"--role-command={each['name']}:{shlex.join(each['command'])}" for each in roles if each.get("command")
        ]
    else:
        made.append(f"--nnodes={_range(spec)}")
    flags = [str(each) for each in spec.get("flags") or ()]
    said = {each.partition("=")[0] for each in (*made, "--nnodes=")}
    if twice := said & {each.partition("=")[0].replace("_", "-") for each in flags}:
        raise ValueError(f"flags has {', '.join(twice)}, which a field says: change that field in its place")
    return [*made, *flags, "--", *map(str, spec["command"])]


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


def secret_of(name: str, uid: str) -> str:
    """The name of the Secret of an ElasticJob's job: another one where an ElasticJob of this name is made anew."""
    return f"{name}-{uid[:8]}"


def ignored(spec: Json, made_of: str) -> Sequence[str]:
    """The fields of `spec` that are others than when the job was made, and have no effect any more.

    Args:
        spec: as it is now.
        made_of: as `SPEC` has it; empty where nobody knows.
    """
    scaled = ["replicas (each role has its own)"] if spec.get("roles") and spec.get("replicas") is not None else []
    if not made_of:
        return scaled
    now, before = _fixed(spec), _fixed(json.loads(made_of))
    return [*sorted(field for field in now.keys() | before.keys() if now.get(field) != before.get(field)), *scaled]


def _fixed(spec: Json) -> dict[str, Any]:
    fixed = {field: value for field, value in spec.items() if field not in CHANGEABLE}
    roles = cast(Sequence[Json], fixed.get("roles") or ())
    if roles:
        fixed["roles"] = [{key: value for key, value in each.items() if key not in CHANGEABLE} for each in roles]
    return fixed


def too_few(spec: Json) -> str:
    """Why no worker can run, where somebody has asked for fewer nodes than the job needs; else empty."""
    for role in cast(Sequence[Json], spec.get("roles") or (spec,)):
        asked, least = role.get("replicas"), int(role.get("minReplicas", 1))
        if asked is not None and int(asked) < least:
            of = f" of role {role['name']}" if role is not spec else ""
            return f"replicas{of} is {asked}, and the job trains with {least} (minReplicas) or more"
    return ""


def status(
    name: str, found: Json, before: Json, generation: int, now: str, fields: Sequence[str] = (), few: str = ""
) -> Json:
    """The status of an ElasticJob whose ConfigMap says `found`.

    Args:
        name: of the job.
        before: the status as it is; when a condition has changed is kept there.
        fields: see `ignored`.
        few: see `too_few`.
        generation: of the spec that was read.
        now: as the API writes time.
    """
    state = str(found.get("state") or "pending")
    reason = str(found.get("reason") or "its master has not started yet")
    nodes = cast(Mapping[str, int], found.get("nodes") or {})
    running = int(nodes.get("running", 0))
    if (
        state in ("running", "degraded") and not running
    ):  # as of the round before it was suspended, or lost all its nodes
        state, reason = "pending", "no node runs" if state == "running" else reason
    if state in ("pending", "waiting") and few:
        reason = f"{few}; {reason}"
    lives = {"running": "Running", "degraded": "Running", "suspended": "Suspended"}
    true = ENDS.get(state, lives.get(state, ""))
    data = cast(Sequence[Json], found.get("datasets") or ())
    left = [each["secondsLeft"] for each in data if each.get("secondsLeft") is not None]
    made: dict[str, object] = {
        "observedGeneration": generation,
        "state": ENDS.get(state, state.capitalize()),
        "reason": reason,
        "replicas": running,
        "selector": f"{JOB}={name},{COMPONENT}=node",
        "pending": int(nodes.get("pending", 0)),
        "workers": int(found.get("workers", 0)) if running else 0,
        "round": int(found.get("round", 0)),
        **({"progress": ", ".join(f"{each['done']}/{each['shards']}" for each in data)} if data else {}),
        "secondsLeft": max(left) if left else None,  # a merge patch takes it away
        **({"exitCode": found["exitCode"]} if "exitCode" in found else {}),
        "incidents": found.get("incidents") or [],
        "waiting": found.get("waiting") or [],
        "targets": found.get("targets") or {},
    }
    told = conditions(true, state.capitalize(), reason, before, now)
    store_is = ("False", "NoQuorum", reason) if state == "degraded" else ("True", "Answers", "it answers")
    store_is = ("Unknown", "NoMaster", reason) if found.get("code") == "lost" else store_is
    store = [_condition(STORE, *store_is, before, now)] if true == "Running" else []
    return {**made, "conditions": [*told, *store, _applied(fields, before, now)]}


def _applied(fields: Sequence[str], before: Json, now: str) -> Json:
    if not fields:
        return _condition(APPLIED, "True", "Applied", "the job was made of this spec", before, now)
    words = (
        f"{', '.join(fields)} changed after the job was made, which has no effect: of a job that is there, "
        f"{', '.join(CHANGEABLE)} can be changed. For the rest, delete the ElasticJob and apply it again"
    )
    return _condition(APPLIED, "False", "Immutable", words, before, now)


def expired(job: Json, now: datetime) -> bool:
    """Whether the time has passed that an ElasticJob is to stay after the end of its job."""
    status, ttl = cast(Json, job.get("status") or {}), job["spec"].get(TTL)
    ends = [
        each for each in status.get("conditions") or () if each["type"] in ENDS.values() and each["status"] == "True"
    ]
    if ttl is None or "exitCode" not in status or not ends:
        return False
    return now >= datetime.fromisoformat(ends[0]["lastTransitionTime"]) + timedelta(seconds=ttl)


def invalid(why: str, before: Json, generation: int, now: str) -> Json:
    """The status of an ElasticJob of which no job can be made."""
    made = {"observedGeneration": generation, "state": INVALID, "reason": why}
    return {**made, "conditions": conditions("Failed", INVALID, why, before, now)}


def conditions(true: str, code: str, reason: str, before: Json, now: str) -> list[Json]:
    """Of which one at most is true, with the reason."""
    return [_condition(kind, "True" if kind == true else "False", code, reason, before, now) for kind in CONDITIONS]


def _condition(kind: str, is_so: str, code: str, reason: str, before: Json, now: str) -> Json:
    known = {each["type"]: each for each in cast(Sequence[Json], before.get("conditions") or ())}
    old = known.get(kind)
    since = old["lastTransitionTime"] if old and old["status"] == is_so else now
    return {"type": kind, "status": is_so, "reason": code, "message": reason, "lastTransitionTime": since}
