# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A job in the cluster whose master or store has not begun: why, in the cluster's own words, and its end where it never
will.

Without a master, nobody inside the job can say it. `elastic-job` and the operator look at the master's pods and, where
there are no such pods, at what the cluster has noted about the Job. The master looks at the store's pods.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from ...elastic_agent.machine import plan
from ...master.nodes.kubernetes import indexed_job, objects, pods, store, troubles
from ...master.nodes.kubernetes.api import CONFLICT, NOT_FOUND, Api, ApiRefused
from ...master.nodes.kubernetes.objects import Json
from ...master.nodes.platform import PlatformError
from ...master.nodes.relaunch import Limits
from ...master.nodes.replica import CannotStart, Exited, NeverStarted, PendingReason, Unschedulable
from ...rendezvous.base.frozen import dataclass
from ..console import REFUSED

Kind = Literal["waits", "stuck", "failed", "lost", "over"]

FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a master or a store from beginning.

    Attributes:
        words: for a person, with what to do.
        kind: waits: it may begin by itself; stuck: its pod cannot be started as it is now; failed: it can never begin,
            its program was found in none of several pods, or has refused what it was given; lost: it has begun, and
            does not run now; over: the cluster has ended its Job, and starts no master any more.
    """

    words: str
    kind: Kind = "waits"

    def as_status(self, found: Json) -> Json:
        """How a job with this trouble is, of which a master has written `found`."""
        before = str(found.get("state", "pending"))
        state = {"over": "failed", "lost": "degraded" if before == "running" else before}.get(self.kind, "pending")
        return {**found, "state": state, "reason": self.words, "code": self.kind}


class Patience:
    """When a job is given up whose master or store cannot begin. Its clock is this process's, not the cluster's."""

    def __init__(self) -> None:
        self._stuck_since: float | None = None
        self._told = ""

    def is_news(self, trouble: Trouble) -> bool:
        """Whether it is of another kind than the one before: a kubelet's words change each time that it tries again."""
        before, self._told = self._told, f"{trouble.kind} {trouble.words.partition(':')[0]}"
        return before != self._told

    def ended_by(self, trouble: Trouble | None, now: float) -> str:
        """Why it is over; empty where it is not."""
        if trouble is not None and trouble.kind in ("failed", "over"):
            return trouble.words
        if trouble is None or trouble.kind != "stuck":
            self._stuck_since = None
            return ""
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        seconds = Limits().cannot_start
        if now - self._stuck_since < seconds:
            return ""
        return f"{trouble.words} (for {seconds:g} s)"


def look(api: Api, name: str) -> Trouble | None:
    """What keeps the master of that job from beginning; None where nothing is known. Raises PlatformError."""
    masters = _masters(api, name)
    ends = [each for each in map(pods.end_of, masters) if each is not None]
    never = [each for each in ends if _never_ran(each)]
    if len(never) >= Limits().counted and len(never) == len(ends):
        return Trouble(
            f"{len(never)} pods of its master could not run: {troubles.with_advice(str(never[-1]))}", "failed"
        )
    for each in ends:
        if isinstance(each, Exited) and each.exit_code == REFUSED and not each.container:
            return Trouble(f"its master cannot begin with what it was given: {each.message or each}", "failed")
    if masters:
        newest = masters[-1]
        where, pending = f"its master's pod {newest['metadata']['name']}", pods.pending_of(newest)
        if pending is not None:
            words = str(pending)
            if isinstance(pending, CannotStart):
                noted = _noted(api, newest["metadata"]["name"], "Pod", "Failed")
                words = troubles.with_pull(words, next((each for each in reversed(noted) if "pull" in each), ""))
            broken = isinstance(pending, CannotStart)
            kind: Kind = "failed" if broken and pending.never else "stuck" if broken else "waits"
            return Trouble(f"{where}: {troubles.with_advice(words)}", kind)
        if words := pods.words_of(newest):
            last = f"{where}: {troubles.with_advice(words)}"
            over = given_up(api, name)
            return Trouble(f"{over.words}; {last}", "over") if over else Trouble(last)
        return None
    if over := given_up(api, name):
        return over
    if noted := _noted(api, name, "Job", "FailedCreate"):
        return Trouble(f"its master's pod cannot be made: {troubles.with_advice(noted[-1])}")
    return None


def lost(api: Api, name: str, found: Json) -> Trouble | None:
    """Why a job of which a master has written `found` has none now; None: it has. Raises PlatformUnavailable."""
    if objects.EXIT_CODE in found:
        return None
    if over := given_up(api, name):
        return over
    try:
        masters = _masters(api, name)
    except ApiRefused:
        return None
    if not masters or {"Running", "Succeeded"} & {(each.get("status") or {}).get("phase") for each in masters}:
        return None
    since = f" since {ended}" if (ended := max(map(pods.ended_at, masters))) else ""
    words = f"its pod {masters[-1]['metadata']['name']}: {troubles.with_advice(pods.words_of(masters[-1]))}"
    after = "workers train on; whatever needs a round waits for the next master, which starts within minutes"
    return Trouble(f"its master does not run{since}: {words}; {after}", "lost")


def of_store(members: Mapping[str, PendingReason | None], size: int) -> Trouble | None:
    """What keeps a store of `size` members from its quorum (pure); None where nothing is known.

    Args:
        members: why each of its pods does not run.
    """
    broken = {name: each for name, each in members.items() if isinstance(each, CannotStart)}
    never = [name for name, each in broken.items() if each.never]
    first = never or [*broken] or [name for name, each in members.items() if isinstance(each, Unschedulable)]
    if first:
        words = f"the pod {first[0]} of its store: {troubles.with_advice(str(members[first[0]]))}"
        spare = (size - 1) // 2
        return Trouble(words, "failed" if len(never) > spare else "stuck" if len(broken) > spare else "waits")
    if len(members) < size:
        words = f"{size - len(members)} of the {size} pods of its store are not made"
        return Trouble(f"{words}; kubectl describe statefulset shows why, such as a quota")
    return None


def end(api: Api, name: str, why: str, *, begun: bool = False) -> None:
    """Ends a job whose master has not begun, as failed. Raises PlatformError.

    Args:
        begun: also one whose masters have begun, of whom there is none any more; else nothing where one has.
    """
    path = api.path("configmaps", name)
    found = api.ask_now("get", path)
    before = objects.status_of(found)
    if objects.EXIT_CODE in before or (before and not begun):
        return
    status = {**before, "state": "failed", "reason": why, objects.EXIT_CODE: plan.FAILED}
    status["nodes"] = {"running": 0, "pending": 0}
    patch = {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "data": {objects.STATUS: json.dumps(status)},
    }
    try:
        api.ask_now("patch", path, patch)
    except ApiRefused as error:
        if error.status == CONFLICT:
            return  # it is looked at again
        raise
    # The Job ends its pod, and stays as failed. Where this user may not ask for that, the pod waits on, and its master,
    # if it ever begins, reads that the job is over, and ends the store.
    job = api.path("jobs", name, group=objects.BATCH)
    members = api.path("statefulsets", store.name_of(name), "scale", group=store.APPS)
    asks = [("patch", job, {"activeDeadlineSeconds": 1}), ("patch", members, {"replicas": 0})]
    # Nor does any master end the nodes, whose store goes on where it is the user's own.
    for plural, group, component in (("jobs", objects.BATCH, indexed_job.NODES), ("pods", "", "node")):
        query = (("labelSelector", f"{pods.JOB}={name},{objects.COMPONENT}={component}"),)
        found = api.ask_now("get", api.path(plural, group=group), query=query)["items"]
        paths = [api.path(plural, each["metadata"]["name"], group=group) for each in found if not pods.end_of(each)]
        asks += [("patch" if group else "delete", path, indexed_job.resized(0)) for path in paths]
    for verb, path, spec in asks:
        try:
            api.ask_now(verb, path, {"spec": spec} if verb == "patch" else None)
        except ApiRefused as error:
            if error.status not in (NOT_FOUND, FORBIDDEN):
                raise


def given_up(api: Api, name: str) -> Trouble | None:
    """That the cluster has given the Job up, in its words; None where it has not. Raises PlatformUnavailable."""
    try:
        job = api.ask_now("get", api.path("jobs", name, group=objects.BATCH))
    except ApiRefused:  # it is gone, and its ConfigMap goes, too; or this user may not read it
        return None
    for each in (job.get("status") or {}).get("conditions") or ():
        if (each["type"], each["status"]) == ("Failed", "True"):
            return Trouble(f"the cluster starts no other master: {each.get('message') or each.get('reason')}", "over")
    return None


def _masters(api: Api, name: str) -> Sequence[Json]:
    """The pods of that job's masters, the newest last."""
    selector = f"{pods.JOB}={name},{objects.COMPONENT}=master"
    found = api.ask_now("get", api.path("pods"), query=(("labelSelector", selector),))["items"]
    return sorted(found, key=lambda each: str(each["metadata"].get("creationTimestamp", "")))


def _never_ran(end: object) -> bool:
    return isinstance(end, NeverStarted) or (
        isinstance(end, Exited) and end.exit_code in pods.NO_PROGRAM and not end.container
    )


def _noted(api: Api, name: str, kind: str, reason: str) -> Sequence[str]:
    """What the cluster has noted about an object, the newest last; nothing where it may not be asked."""
    fields = f"involvedObject.name={name},involvedObject.kind={kind},reason={reason}"
    try:
        found = api.ask_now("get", api.path("events"), query=(("fieldSelector", fields),))["items"]
    except (PlatformError, KeyError):
        return ()
    found = sorted(found, key=lambda each: str(each.get("lastTimestamp") or each["metadata"]["creationTimestamp"]))
    return [" ".join(str(each.get("message", "")).split()) for each in found]
