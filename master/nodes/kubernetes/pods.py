"""Pods as the API has them, read as replicas and written from a template (pure)."""

import copy
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from ....rendezvous.base.visible import visible
from ..relaunch import Limits
from ..replica import (
    CannotStart,
    End,
    Exited,
    Launch,
    MachineLost,
    NeverStarted,
    OutOfMemory,
    PendingReason,
    Preempted,
    Promised,
    Replica,
    Starting,
    Submitted,
    Unschedulable,
)

Json = Mapping[str, Any]
"""An object of the API (hence Any)."""

PREFIX = "elastic-run.dev"
JOB, ROLE, INDEX, ATTEMPT = f"{PREFIX}/job", f"{PREFIX}/role", f"{PREFIX}/index", f"{PREFIX}/attempt"
"""Labels of a pod."""

COUNTED, RAISED = f"{PREFIX}/counted-ends", f"{PREFIX}/raised-memory"
"""Annotations of a pod: see `Replica`."""

HIGH_PRIORITY = f"{PREFIX}/high-priority"
"""Annotation of a template, `N CLASS`: the N pods with the lowest indexes have that priority class."""

CONTAINER = "agent"

CANNOT_START = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
        "CreateContainerConfigError",
        "CreateContainerError",
    }
)
"""Why a container waits, where it does not wait for its turn."""

NEVER = re.compile("^InvalidImageName|runAsNonRoot|non-root policy")
"""What is said of a container that cannot start whatever is done outside of its pod: such as that it would be root."""

NO_PROGRAM = (126, 127)
"""Exit codes of a container whose program is not there, where the cluster does not say it with a reason."""

REFUSED = 2
"""Exit code of a program of ours that makes no sense of what it was given, or lacks what it needs."""

OFTEN = Limits().counted
"""Ends of one container, one after the other, after which the next is believed to be the same."""

OWN = frozenset({CONTAINER, "store"})
"""Containers that run such a program, and may be started again."""

NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun", "RunContainerError"})
"""Why a container ended that never ran."""

PLACE_TAKEN = frozenset(
    {
        "Evicted",
        "Preempting",
        "Preempted",
        "Shutdown",
        "NodeShutdown",
        "Terminated",
        "NodeAffinity",
        "OutOfcpu",
        "OutOfmemory",
    }
    | {"UnexpectedAdmissionError", "OutOfpods"}
)
"""Why a pod failed on the machine's account and not on its own."""

MACHINE_LOST = frozenset({"NodeLost", "TerminationByNodeLifecycle", "DeletionByPodGC", "DeletionByTaintManager"})

REBOOTED = frozenset({"Unknown", "ContainerStatusUnknown"})
"""Why a container ended of which the kubelet knows nothing any more: its machine was started again."""

LONGEST_WORDS = 400
"""Characters of a container's last words."""

LONG = 3600.0
"""Seconds after which a node that ends has been well: how often its index ended before says nothing any more."""

_UNITS = {"": 1, "k": 10**3} | {
    f"{letter}{binary}": (1024 if binary else 1000) ** power
    for power, letter in enumerate("KMGTPE", 1)
    for binary in ("", "i")
}


def bytes_of(quantity: object) -> int:
    """A quantity of memory, as `2Gi` or `500M`, in bytes. Raises ValueError."""
    text = str(quantity).strip()
    if match := re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kMGTPE]|[KMGTPE]i|)", text):
        return int(float(match[1]) * _UNITS[match[2]])
    if match := re.fullmatch(r"([0-9]+)m", text):
        return int(match[1]) // 1000
    if match := re.fullmatch(r"[0-9]+(?:\.[0-9]+)?[eE][0-9]+", text):
        return int(float(match[0]))
    raise ValueError(f"{text!r} is no amount of memory: write 2Gi, 512Mi or 500M")


def name_of(job: str, launch: Launch) -> str:
    """Two tries to start one replica make one pod: the name says which it is."""
    role = launch.role or "worker"
    return f"{job}-{role}-{launch.index}" + (f"-{launch.attempt}" if launch.attempt else "")


def made(job: str, template: Json, owners: Sequence[Json], launch: Launch) -> Json:
    """The pod of a replica.

    Args:
        job: the job's name.
        template: a pod of its role, whose container `agent` runs the agent.
        owners: references to the objects with which the pod goes.
        launch: which replica.
    """
    pod = copy.deepcopy(dict(template))
    metadata = pod.setdefault("metadata", {})
    metadata["name"] = name_of(job, launch)
    metadata["ownerReferences"] = list(owners)
    metadata.setdefault("labels", {}).update(
        {JOB: job, ROLE: launch.role, INDEX: str(launch.index), ATTEMPT: str(launch.attempt)}
    )
    first, _, priority = metadata.setdefault("annotations", {}).pop(HIGH_PRIORITY, "0").partition(" ")
    if launch.index < int(first):
        pod["spec"]["priorityClassName"] = priority
    metadata["annotations"].update({COUNTED: str(launch.counted), RAISED: str(launch.raised)})
    if launch.raised:
        resources = _agent(pod["spec"]["containers"]).setdefault("resources", {})
        for kind in ("requests", "limits"):
            resources.setdefault(kind, {})["memory"] = str(launch.raised)
    return pod


def replica_of(pod: Json, since: float) -> Replica | None:
    """The replica that a pod is; None where it is another's. `since`: when it came into its state."""
    metadata, status = _at(pod, "metadata"), _at(pod, "status")
    labels, notes = _at(metadata, "labels"), _at(metadata, "annotations")
    try:
        index, attempt = int(labels[INDEX]), int(labels[ATTEMPT])
        counted, raised = int(notes.get(COUNTED, 0)), int(notes.get(RAISED, 0))
        limits = _at(_at(_agent(_at(pod, "spec").get("containers", ())), "resources"), "limits")
        memory = bytes_of(limits["memory"]) if "memory" in limits else 0
    except (KeyError, ValueError):
        return None
    phase = status.get("phase", "Pending")
    stopping = bool(metadata.get("deletionTimestamp"))
    replica = Replica(
        name=metadata["name"],
        role=labels.get(ROLE, ""),
        index=index,
        attempt=attempt,
        counted=counted,
        state="pending",
        since=since,
        stopping=stopping,
        memory=memory,
        raised=raised,
    )
    changes: dict[str, Any]
    if phase in ("Succeeded", "Failed"):
        changes = {"state": "ended", "end": _end(status, memory), "counted": 0 if _ran(status) >= LONG else counted}
    elif "running" in _at(_agent_status(status), "state"):
        changes = {"state": "running", "pending": _trouble(status) if phase == "Pending" else None}
    elif phase == "Pending":
        changes = {"pending": _pending(status)}
    else:
        changes = {"state": "running"}
    return replace(replica, **changes)


def pending_of(pod: Json) -> PendingReason | None:
    """Why a pod does not run yet, or ends again and again; None where it runs, or has ended for good."""
    status = _at(pod, "status")
    match status.get("phase", "Pending"):
        case "Pending":
            return _pending(status)
        case "Running":
            return _trouble(status)
        case _:
            return None


def end_of(pod: Json) -> End | None:
    """How a pod ended; None where it has not."""
    status = _at(pod, "status")
    return _end(status, 0) if status.get("phase") in ("Succeeded", "Failed") else None


def ended_at(pod: Json) -> str:
    """When the container of a pod that is no node ended, as the API writes time; empty where it has not."""
    return str(_terminated(_agent_status(_at(pod, "status"))).get("finishedAt") or "")


def words_of(pod: Json) -> str:
    """Why a pod that is no node does not run, or how it ended, for a person; empty where it runs."""
    return str(pending_of(pod) or end_of(pod) or "")


def _pending(status: Json) -> PendingReason:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            if status.get("nominatedNodeName"):
                return Promised()
            return Unschedulable(condition.get("message", ""))
    if not status.get("containerStatuses") and not any(
        each.get("type") == "PodScheduled" for each in status.get("conditions") or ()
    ):
        return Submitted()
    return _trouble(status) or Starting()


def _trouble(status: Json) -> CannotStart | None:
    """The first container that cannot start, or that the machine starts again and again."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = _at(_at(container, "state"), "waiting")
        if waiting.get("reason") in CANNOT_START:
            words = f"{waiting['reason']}: {waiting.get('message', '')}"
            return CannotStart(words, bool(NEVER.search(words)))
        down = "running" not in _at(container, "state")
        last = _terminated(container) or _at(_at(container, "lastState"), "terminated")
        times = int(container.get("restartCount") or 0) + down
        # One that runs again may be well now, until it has ended too often.
        if last.get("exitCode") and not container.get("ready") and (down or times >= OFTEN):
            end, name = _end_of(last, 0), container.get("name")
            ours = isinstance(end, Exited) and end.exit_code in (REFUSED, *NO_PROGRAM) and name in OWN
            words = (
                f"its container {name} ends again and again ({times} times): {str(end).replace('its agent', 'it', 1)}"
            )
            return CannotStart(words, times >= OFTEN and (ours or isinstance(end, NeverStarted)))
    return None


def _end(status: Json, memory: int) -> End:
    reason, message = status.get("reason", ""), status.get("message", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            reason, message = condition.get("reason", "") or reason, condition.get("message", "") or message
            if reason in MACHINE_LOST:
                return MachineLost(f"{reason}: {message}")
            return Preempted(f"{reason}: {message}")
    if reason in MACHINE_LOST:
        return MachineLost(f"{reason}: {message}")
    if reason in PLACE_TAKEN:
        return Preempted(f"{reason}: {message}")
    containers = status.get("containerStatuses") or ()
    # Where the agent's container has ended, it alone tells: a sidecar ends after it. Else one before it has failed.
    agent = _agent_status(status)
    others = [*(status.get("initContainerStatuses") or ()), *containers]
    others.sort(key=lambda each: _terminated(each).get("exitCode", 0) == 0)
    first = next((each for each in (agent, *others) if _terminated(each)), None)
    if first is None:
        return MachineLost(f"{reason or 'its container has no state'}: {message}")
    end = _end_of(_terminated(first), memory)
    if first is agent:
        return end
    if isinstance(end, OutOfMemory):  # the limit was another's: more memory for the agent is of no use
        end = Exited(128 + signal.SIGKILL, "it needed more memory than its limit")
    return replace(end, container=str(first.get("name", ""))) if isinstance(end, Exited) else end


def _end_of(first: Json, memory: int) -> End:
    """How a container ended."""
    if first.get("reason") == "OOMKilled":
        return OutOfMemory(memory)
    if first.get("reason") in REBOOTED:
        return MachineLost(first.get("message") or "it was started again, with this node on it")
    if first.get("reason") in NEVER_STARTED:
        return NeverStarted(f"{first['reason']}: {first.get('message', '')}")
    code = int(first.get("exitCode", 0))
    return Exited(code, _last_words(str(first.get("message") or "")) if code else "")


def _last_words(log: str) -> str:
    """The last line of what the cluster keeps of a container's log: the error at the end of a traceback, say."""
    lines = [line for line in log.splitlines() if line.strip()]
    return visible(lines[-1].strip().removeprefix("[elastic-run] "))[:LONGEST_WORDS] if lines else ""


def _ran(status: Json) -> float:
    """Seconds from the begin of the agent's container to its end, by its machine's clock; 0: not known."""
    ended = _terminated(_agent_status(status))
    try:
        begin, end = (datetime.strptime(str(ended[key]), "%Y-%m-%dT%H:%M:%S%z") for key in ("startedAt", "finishedAt"))
    except (KeyError, ValueError):
        return 0.0
    return (end - begin).total_seconds()


def _terminated(container: Json) -> Json:
    return _at(_at(container, "state"), "terminated")


def _agent_status(status: Json) -> Any:
    return _agent(status.get("containerStatuses") or ())


def _agent(containers: Sequence[Any]) -> Any:
    named = [each for each in containers if each.get("name") == CONTAINER]
    return cast(Any, (*named, *containers, {})[0])


def _at(value: Json, name: str) -> Json:
    return cast(Json, value.get(name) or {})
