"""Runs a job's replicas as pods (`Platform`): lists them, uses the list, and watches from its version on."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..platform import Observer
from ..replica import Launch, Replica
from . import pods, troubles
from .api import CONFLICT, NOT_FOUND, Api, ApiRefused, Event, Gone, Json
from .job import OwningObject, watched


class KubernetesPlatform:
    """The pods of one job in one namespace.

    Args:
        api: the server.
        job: the job's name, which its pods carry as a label.
        owners: references to the objects that own the pods: while the first is being deleted, none is made.
        templates: a pod for each role.
        now: the clock of `Replica.since`: a pod has been in a state since this process saw it there first, because
            the cluster's clocks are others.
    """

    def __init__(
        self, api: Api, job: str, owners: Sequence[Json], templates: Mapping[str, Json], now: Callable[[], float]
    ) -> None:
        self._api = api
        self._job = job
        self._owners = owners
        self._standing = OwningObject(api, owners[0])
        self._templates = templates
        self._now = now
        self._pods: dict[str, Json] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._pulls = troubles.Pulls()

    async def follow(self, observe: Observer) -> None:
        path, query = self._api.path("pods"), (("labelSelector", f"{pods.JOB}={self._job}"),)
        while True:
            found, version = await self._api.list(path, query)
            self._pods = {each["metadata"]["name"]: each for each in found}
            observe(self._replicas())
            with contextlib.suppress(Gone):
                async for batch in watched(self._api, path, query, version):
                    changed = [self._take(event) for event in batch]
                    if any(changed):
                        observe(self._replicas())

    def _take(self, event: Event) -> bool:
        name = event.object["metadata"].get("name", "")
        if event.kind == "DELETED":
            self._pods.pop(name, None)
        elif event.kind in ("ADDED", "MODIFIED"):
            self._pods[name] = event.object
        else:
            return False
        return True

    def _replicas(self) -> list[Replica]:
        found: list[Replica] = []
        seen: dict[tuple[str, str], float] = {}
        for pod in self._pods.values():
            replica = pods.replica_of(pod, 0.0)
            if replica is None:
                continue
            uid = str(pod["metadata"].get("uid"))
            key = (uid, f"{replica.state} {replica.pending and replica.pending.code}")
            seen[key] = self._since.get(key, self._now())
            found.append(replace(replica, since=seen[key], pending=self._pulls.with_cause(uid, replica.pending)))
        self._since = seen
        return found

    async def start(self, launch: Launch) -> None:
        await self._standing.refuse_if_deleted()
        pod = pods.made(self._job, self._templates[launch.role], self._owners, launch)
        try:
            await self._api.ask("post", self._api.path("pods"), pod)
        except ApiRefused as error:
            if error.status != CONFLICT:
                raise

    async def stop(self, name: str) -> None:
        try:
            await self._api.ask("delete", self._api.path("pods", name))
        except ApiRefused as error:
            if error.status != NOT_FOUND:
                raise
