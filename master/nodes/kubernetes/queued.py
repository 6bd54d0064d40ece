"""Runs a job's replicas as Indexed Jobs that a queue admits (`Platform`): Kueue has the quota, and says who waits.

The Job's controller makes and replaces the pods; here the Jobs are made, and made larger and smaller. What a pod's end
means is judged as everywhere (`relaunch.py`), and only to tell when the job cannot have its minimum any more.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from ....rendezvous.base.cancel import cancel
from ..platform import Observer, PlatformError, PlatformRefused
from ..replica import Launch, Replica, Unschedulable
from . import indexed_job, pods
from .api import CONFLICT, NOT_FOUND, Api, ApiRefused, Json
from .indexed_job import Size
from .job import OwningObject, watched
from .objects import BATCH, COMPONENT

KUEUE = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
"""Versions of its API, the newest first."""

JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the Job that it was made for."""

Query = tuple[tuple[str, object], ...]
"""Of a request."""

LOOK = 5.0
"""Seconds between two looks at what the queue says, while something waits for it."""


class QueuedPlatform:
    """The nodes of one job, one Indexed Job for each role.

    Args:
        api: the server.
        job: the job's name.
        owner: reference to the object that owns the Jobs.
        templates: a pod for each role.
        queue: the name of the LocalQueue.
        now: the clock of `Replica.since`.
    """

    def __init__(
        self, api: Api, job: str, owner: Json, templates: Mapping[str, Json], queue: str, now: Callable[[], float]
    ) -> None:
        self._api = api
        self._job = job
        self._owner = owner
        self._standing = OwningObject(api, owner)
        self._templates = templates
        self._queue = queue
        self._now = now
        self._jobs: dict[str, Json] = {}
        self._pods: dict[str, Json] = {}
        self._whys: dict[str, str] = {}
        self._sizes: dict[str, Size] = {}
        self._seen: dict[str, int] = {}  # the newest version of each role's Job: an older one may come after it
        self._since: dict[tuple[str, str], float] = {}
        self._locks = {role: asyncio.Lock() for role in templates}
        self._names: dict[str, tuple[str, int]] = {}
        self._unheld: set[str] = set()  # roles that the last look has found without quota
        self._returned: set[str] = set()  # roles whose nodes leave because of that
        self._version = KUEUE[0]

    # -- what there is ------------------------------------------------------------------------------------------------

    async def follow(self, observe: Observer) -> None:
        listed = {"jobs": False, "pods": False}

        def changed(kind: str) -> None:
            listed[kind] = True
            if all(listed.values()):
                observe(self._replicas())

        tasks = [
            asyncio.create_task(self._keep("jobs", self._take_job, changed), name="follow jobs"),
            asyncio.create_task(self._keep("pods", self._take_pod, changed), name="follow pods"),
            asyncio.create_task(self._ask_queue(lambda: changed("jobs")), name="ask the queue"),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel(*tasks)

    async def _keep(self, kind: str, take: Callable[[Json, bool], None], changed: Callable[[str], None]) -> None:
        """Lists all of a kind, and follows them. Raises PlatformError; Gone where it has to begin anew."""
        path = self._api.path(kind, group=BATCH if kind == "jobs" else "")
        component = indexed_job.NODES if kind == "jobs" else "node"
        query = (("labelSelector", f"{pods.JOB}={self._job},{COMPONENT}={component}"),)
        listing = await (self._list_jobs if kind == "jobs" else self._list_pods)(path, query)
        changed(kind)
        async for batch in watched(self._api, path, query, str(listing["metadata"]["resourceVersion"])):
            for event in batch:
                if event.kind in ("ADDED", "MODIFIED", "DELETED"):
                    take(event.object, event.kind != "DELETED")
                    changed(kind)

    async def _list_jobs(self, path: str, query: Query) -> Json:
        """While nothing is asked for, so that no answer from before the list comes after it."""
        async with contextlib.AsyncExitStack() as unchanged:
            for lock in self._locks.values():
                await unchanged.enter_async_context(lock)
            listing = await self._api.ask("get", path, query=query)
            self._jobs.clear()
            self._seen.clear()  # a server that was restored from a backup counts from a lower number
            for each in listing["items"]:
                self._take_job(each, True)
            self._seen = dict.fromkeys(self._templates, _version(listing))
        return listing

    async def _list_pods(self, path: str, query: Query) -> Json:
        listing = await self._api.ask("get", path, query=query)
        self._pods.clear()
        for each in listing["items"]:
            self._take_pod(each, True)
        return listing

    def _take_job(self, job: Json, there: bool) -> None:
        """As an event or an answer has it. An answer may come after an event that tells of a later change."""
        role, version = indexed_job.role_of(job), _version(job)
        if version < self._seen.get(role, 0):
            return
        self._seen[role] = version
        if there:
            self._jobs[role] = job
            if role not in self._sizes:  # an earlier master has made it
                self._sizes[role] = Size(indexed_job.parallelism(job))
        else:
            self._jobs.pop(role, None)
            self._sizes.pop(role, None)

    def _take_pod(self, pod: Json, there: bool) -> None:
        name = pod["metadata"]["name"]
        if there:
            self._pods[name] = pod
        else:
            self._pods.pop(name, None)

    def _replicas(self) -> list[Replica]:
        found: list[Replica] = []
        for role, job in self._jobs.items():
            own = [
                each for each in self._pods.values() if each["metadata"].get("labels", {}).get(pods.ROLE, "") == role
            ]
            found += indexed_job.replicas(job, own, self._whys.get(role, ""))
        seen: dict[tuple[str, str], float] = {}
        for place, each in enumerate(found):
            key = (each.name, f"{each.state} {each.pending and each.pending.code}")
            seen[key] = self._since.get(key, self._now())
            found[place] = replace(each, since=seen[key])
        self._since = seen
        self._names = {each.name: (each.role, each.index) for each in found if each.state != "ended"}
        return found

    async def _ask_queue(self, changed: Callable[[], None]) -> None:
        """Keeps what the queue says of Jobs that wait for it, and gives back what it has taken."""
        while True:
            for role, job in list(self._jobs.items()):
                found = await self._workloads(job) if self._waits(role, job) else ()
                why = why_of(found, self._queue)
                if why != self._whys.get(role, ""):
                    self._whys[role] = why
                    changed()
                await self._give_back(role, job, found)
            await asyncio.sleep(LOOK)

    def _waits(self, role: str, job: Json) -> bool:
        return indexed_job.is_suspended(job) or any(
            each.role == role and isinstance(each.pending, Unschedulable) for each in self._replicas()
        )

    async def _workloads(self, job: Json) -> Sequence[Json]:
        """What the queue has of a Job; empty where it has nothing, or may not be asked."""
        query = (("labelSelector", f"{JOB_UID}={job['metadata']['uid']}"),)
        for version in (self._version, *(each for each in KUEUE if each != self._version)):
            try:
                listing = await self._api.ask("get", self._api.path("workloads", group=version), query=query)
            except ApiRefused as error:
                if error.status != NOT_FOUND:
                    return ()
                continue
            except PlatformError:
                return ()
            self._version = version
            return cast(Sequence[Json], listing["items"])
        return ()

    async def _give_back(self, role: str, job: Json, workloads: Sequence[Json]) -> None:
        """Has the nodes leave whose quota was given to somebody else while they run; then asks for places anew.

        Kueue suspends a Job that it preempts. Kueue 0.18 does not where a part of the Job waits for quota, which is
        nearly always so here: its pods run on, and their quota is another job's. Source: `normalizeActiveSlices` of
        0.18.6 finishes the Workload that was evicted, and what waits is then the Job's only one.
        """
        if role in self._returned:
            if not self._has_places(role):
                self._returned.discard(role)
        else:
            if indexed_job.is_suspended(job) or not self._has_places(role) or not taken_back(workloads):
                self._unheld.discard(role)
                return
            if role not in self._unheld:  # one look may fall between two steps of the queue
                self._unheld.add(role)
                return
            self._returned.add(role)
        with contextlib.suppress(PlatformError):  # the next look tries again
            await self._bring(role)

    def _has_places(self, role: str) -> bool:
        """Whether there are pods of that role past their gate, which nobody has told to end."""
        return any(
            each["metadata"].get("labels", {}).get(pods.ROLE, "") == role
            and not each["metadata"].get("deletionTimestamp")
            and each["status"].get("phase") not in ("Succeeded", "Failed")
            and not each["spec"].get("schedulingGates")
            for each in self._pods.values()
        )

    # -- what is wanted -----------------------------------------------------------------------------------------------

    async def start(self, launch: Launch) -> None:
        """See `Platform`. The Job's controller makes the pod, and the next one of an index that has ended."""
        self._sizes[launch.role] = self._sizes.get(launch.role, Size()).with_index(launch.index)
        await self._bring(launch.role)

    async def stop(self, name: str) -> None:
        """See `Platform`. An index below one that stays cannot be stopped: it stays, too."""
        if (found := self._names.get(name)) is None:
            return
        role, index = found
        self._sizes[role] = self._sizes.get(role, Size()).without(index, self._now())
        await self._bring(role)

    async def finish(self) -> None:
        """The job is over: no pod that ends is followed by another; those that have ended stay, with their logs.

        Raises:
            PlatformError: some Job was not told.
        """
        for role in list(self._jobs):
            self._sizes[role] = Size()
            await self._bring(role)

    async def _bring(self, role: str) -> None:
        """Makes the Job as large as it is to be; all that is asked for at the same time is one request."""
        await asyncio.sleep(0)
        async with self._locks[role]:
            job = self._jobs.get(role)
            if job is None:
                self._returned.discard(role)
            size = 0 if role in self._returned else self._sizes.get(role, Size()).count
            if job is None and size:
                job = await self._make(role, size)
            if job is not None and indexed_job.parallelism(job) != size:
                path = self._api.path("jobs", indexed_job.name_of(self._job, role), group=BATCH)
                try:
                    job = await self._api.ask("patch", path, {"spec": indexed_job.resized(size)})
                except ApiRefused as error:
                    if error.status != NOT_FOUND:
                        raise
                    job = None
            if job is None:
                self._jobs.pop(role, None)
            else:
                self._take_job(job, True)

    async def _make(self, role: str, size: int) -> Json:
        await self._standing.refuse_if_deleted()
        made = indexed_job.made(self._job, role, self._templates[role], self._owner, self._queue, size)
        path = self._api.path("jobs", group=BATCH)
        try:
            job = await self._api.ask("post", path, made)
        except ApiRefused as error:
            if error.status != CONFLICT:
                raise
            job = await self._api.ask("get", self._api.path("jobs", made["metadata"]["name"], group=BATCH))
            if not indexed_job.is_of_nodes(job) or job["metadata"].get("deletionTimestamp"):
                raise PlatformRefused(
                    f"there is a Job {made['metadata']['name']} that is not this job's, or is being deleted"
                ) from None
        if job["spec"].get("completionMode") != "Indexed":
            with contextlib.suppress(PlatformError):
                await self._api.ask("delete", self._api.path("jobs", made["metadata"]["name"], group=BATCH))
            raise PlatformRefused(TOO_OLD)
        return job


TOO_OLD = (
    "this cluster has no Indexed Jobs that change their size: --queue needs Kubernetes "
    f"{'.'.join(map(str, indexed_job.OLDEST))} or newer, and Kueue 0.18 or newer"
)


def _version(found: Json) -> int:
    """Of an object or a list; 0 where the server counts in another way, so that the last to come counts.

    Source: Kubernetes says of one resource's versions that the greater number is the later one (KEP-5504).
    """
    version = str(found["metadata"]["resourceVersion"])
    return int(version) if version.isdigit() else 0


def why_of(workloads: Sequence[Json], queue: str) -> str:
    """What the queue says of the newest Workload that is neither admitted nor finished (pure); empty: there is none."""
    waiting = [each for each in workloads if not _is(each, "Finished") and not _is(each, "Admitted")]
    if not waiting:
        return ""
    newest = max(waiting, key=lambda each: str(each["metadata"].get("creationTimestamp", "")))
    for kind in ("QuotaReserved", "Evicted"):
        for each in _conditions(newest):
            if each.get("type") == kind and each.get("message"):
                return f"queue {queue}: {each['message']}"
    return f"queue {queue} has not admitted it yet"


def taken_back(workloads: Sequence[Json]) -> bool:
    """Whether none of a Job's Workloads has quota, though one still asks for it (pure).

    A Job that grows has two: one with the quota of what runs, and one that waits.
    """
    left = [each for each in workloads if not _is(each, "Finished")]
    return bool(left) and not any(_is(each, "QuotaReserved") for each in left)


def _is(workload: Json, kind: str) -> bool:
    return any(each.get("type") == kind and each.get("status") == "True" for each in _conditions(workload))


def _conditions(workload: Json) -> Sequence[Json]:
    status = cast(Json, workload.get("status") or {})
    return cast(Sequence[Json], status.get("conditions") or ())
