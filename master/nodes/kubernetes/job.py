"""One job in the cluster, as its master reads and writes it: templates, what the user wants, and how the job is.

A master may be away for minutes, or its request may be done late, while another master ends the job. So each write of
the status names the version that it follows: the server refuses what is older, and an end that is written stays.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, cast

from ..platform import PlatformError, PlatformRefused
from . import store, troubles
from .api import CONFLICT, NOT_FOUND, UNAUTHORIZED, Api, ApiRefused, ApiUnavailable, Event, Gone, Json, Query
from .objects import ATTEMPTS, BATCH, CONTROL, EXIT_CODE, STATUS, TEMPLATES, Control, controller_of, owner_of, status_of

PAUSE = 2.0
"""Seconds until the API server is asked again after it has not answered."""

MADE_SECONDS = 60.0
"""Seconds that who submits a job has to make its ConfigMap, after its Job."""

WRITTEN = 1.0
"""Seconds between two writes of the status, at least."""

OWNED = 1.0
"""Seconds for which a job that was not being deleted is taken for one that is not."""


class ClusterJob:
    """The objects of one job.

    Args:
        api: the server.
        name: of the Job.
        say: prints one line for a person.

    Attributes:
        name: as given.
        owner: the reference by which everything goes with the Job.
        controller: that by which the nodes' pods go with the ConfigMap: whoever drains a machine takes no pod that
            nothing controls, and a Job would let go of them.
        templates: a pod for each role.
        memory_cap, store_size, queue: see `objects.Request`.
        status: what was last written of the job; empty at first.
        control: what the user wants now.
    """

    def __init__(self, api: Api, name: str, say: Callable[[str], None]) -> None:
        self._api = api
        self.name = name
        self._say = say
        self._path = api.path("configmaps", name)
        self._next: Json | None = None
        self._written = asyncio.Event()
        self._version = ""
        self._over = self._ending = False
        self._told: dict[str, str] = {}
        self.owner: Json = {}
        self.controller: Json = {}
        self.templates: Mapping[str, Json] = {}
        self.memory_cap = 0
        self.store_size = 0
        self.queue = ""
        self.status: Json = {}
        self.control = Control()

    async def load(self) -> None:
        """Reads it. Raises PlatformRefused where it is not there, or is none of ours."""
        loop = asyncio.get_running_loop()
        until, limited = loop.time() + MADE_SECONDS, False
        while True:
            try:
                job = await self._api.ask("get", self._api.path("jobs", self.name, group=BATCH))
                found = await self._api.ask("get", self._path)
                if limited or EXIT_CODE in status_of(found) or job["spec"].get("backoffLimit") == ATTEMPTS:
                    break
                await self._limit_masters(ATTEMPTS)
                limited = True
                continue  # whoever has ended the job meanwhile is read then, or ends this pod
            except ApiRefused as error:
                if error.status != NOT_FOUND or loop.time() >= until:
                    raise PlatformRefused(
                        f"job {self.name} of namespace {self._api.namespace} cannot be read: {error}. If it was not "
                        f"made whole, delete it and submit it again: elastic-job delete {self.name}"
                    ) from error
            except ApiUnavailable as error:
                self._tell_of("load", f"the API server does not answer: {error}; trying again every {PAUSE:g} s")
            await asyncio.sleep(PAUSE)
        self.owner = owner_of(job)
        self.controller = controller_of(found)
        self._note(found)
        if not found["metadata"].get("ownerReferences"):
            await self._adopt()
        data = cast(Mapping[str, str], found.get("data") or {})
        try:
            made = json.loads(data[TEMPLATES])
            self.templates = made["templates"]
            self.memory_cap = int(made.get("memoryCap", 0))
            self.store_size = int(made.get("storeSize", 0))
            self.queue = str(made.get("queue", ""))
            self.status = json.loads(data.get(STATUS) or "{}")
        except (KeyError, ValueError, TypeError) as error:
            raise PlatformRefused(f"the ConfigMap {self.name} does not hold a job: {error!r}") from None
        self.control = Control.read(data.get(CONTROL, ""))

    async def _adopt(self) -> None:
        """Has the ConfigMap go with the Job: whoever applied both could not know the Job's uid."""
        patch = {"metadata": {"resourceVersion": self._version, "ownerReferences": [self.owner]}}
        try:
            self._note(await self._api.ask("patch", self._path, patch))
        except PlatformError as error:
            self._say(f"the ConfigMap {self.name} will not go with its Job: {error}")

    async def follow(self, changed: Callable[[], None]) -> None:
        """Keeps `control` as the user has it; runs until it is cancelled. `changed` is called after each change."""
        query = (("fieldSelector", f"metadata.name={self.name}"),)
        path = self._api.path("configmaps")
        while True:
            try:
                found, version = await self._api.list(path, query)
                for each in found:
                    self._take(each, changed)
                async for batch in watched(self._api, path, query, version):
                    for event in batch:
                        if event.kind in ("ADDED", "MODIFIED"):
                            self._take(event.object, changed)
            except Gone:
                continue
            except PlatformError as error:  # what the user wants is known as far as it was told
                self._tell_of("follow", f"cannot see what the user wants: {error}; trying again every {PAUSE:g} s")
                await asyncio.sleep(PAUSE)

    def _take(self, found: Json, changed: Callable[[], None]) -> None:
        self._tell_of("follow", "")
        self._note(found)
        data = cast(Mapping[str, str], found.get("data") or {})
        control = Control.read(data.get(CONTROL, ""))
        if control != self.control:
            self.control = control
            changed()

    # -- the status -----------------------------------------------------------------------------------------------

    def tell(self, status: Json) -> None:
        """The job is like that now; `write` writes it. Nothing once `end` was called."""
        if status != self.status and not self._ending:
            self._next = status
            self._written.set()

    async def write(self) -> None:
        """Writes what `tell` was told, the newest only; runs until it is cancelled."""
        while True:
            await self._written.wait()
            self._written.clear()
            try:
                await self._write_next()
                self._tell_of("write", "")
            except PlatformError as error:
                self._written.set()
                self._tell_of("write", f"the job's status cannot be written: {error}")
            await asyncio.sleep(WRITTEN)

    async def end(self, status: Json, seconds: float = 90.0) -> None:
        """Writes the job's end, which no other master may overlook; nothing where another has ended it.

        Raises:
            PlatformError, TimeoutError
        """
        self._next, self._ending = status, True
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await self._write_next()
                except PlatformError as error:
                    # A token that has just expired is read anew within a minute.
                    if isinstance(error, ApiRefused) and error.status != UNAUTHORIZED:
                        raise
                    await asyncio.sleep(PAUSE)

    async def no_other_master(self) -> None:
        """Has the Job fail with this pod, and start no other. Raises PlatformError."""
        await self._limit_masters(0)

    async def _limit_masters(self, limit: int) -> None:
        """Has the Job replace a lost master so often, at any time. Raises PlatformRefused, ApiUnavailable."""
        try:
            patch = {"spec": {"backoffLimit": limit, **({"activeDeadlineSeconds": None} if limit else {})}}
            await self._api.ask("patch", self._api.path("jobs", self.name, group=BATCH), patch)
        except ApiRefused as error:
            words = f"the Job {self.name} cannot be told how often to replace a lost master: {error}"
            raise PlatformRefused(troubles.with_advice(words)) from error

    async def end_store(self) -> None:
        """Ends the members of the job's own store, which nobody needs any more. Raises PlatformError."""
        if self.store_size:
            path = self._api.path("statefulsets", store.name_of(self.name), "scale", group=store.APPS)
            await self._api.ask("patch", path, {"spec": {"replicas": 0}})

    async def _write_next(self) -> None:
        """Raises PlatformError."""
        while (status := self._next) is not None and not self._over:
            patch = {"metadata": {"resourceVersion": self._version}, "data": {STATUS: json.dumps(status)}}
            try:
                self._note(await self._api.ask("patch", self._path, patch))
            except ApiRefused as error:
                if error.status != CONFLICT:
                    raise
                found = await self._api.ask("get", self._path)
                self._note(found)
                if self._over and status_of(found) != status:
                    self._tell_of("write", "another master has ended this job: this one writes nothing any more")
                continue
            self.status = status
            if self._next is status:
                self._next = None

    def _note(self, found: Json) -> None:
        """The ConfigMap is like that. Raises ApiUnavailable where it is no object of the API."""
        version = cast(Json, found.get("metadata") or {}).get("resourceVersion")
        if not version:
            raise ApiUnavailable(f"the API server sent no version: {str(found)[:200]}")
        self._version = str(version)
        self._over = EXIT_CODE in status_of(found)

    def _tell_of(self, about: str, line: str) -> None:
        """Says it where it has not been the last thing said of that."""
        if line and self._told.get(about) != line:
            self._say(line)
        self._told[about] = line


class OwningObject:
    """The object with which everything of a job goes: what is made when it is being deleted, the cluster deletes.

    Args:
        api: the server.
        reference: to it.
    """

    def __init__(self, api: Api, reference: Json) -> None:
        self._api = api
        self._reference = reference
        group = reference["apiVersion"] if "/" in reference["apiVersion"] else ""
        self._path = api.path(f"{reference['kind'].lower()}s", reference["name"], group=group)
        self._asking = asyncio.Lock()
        self._known_until = float("-inf")

    async def refuse_if_deleted(self) -> None:
        """Raises PlatformRefused where it is being deleted, or has been; PlatformUnavailable where nobody knows."""
        now = asyncio.get_running_loop().time
        async with self._asking:
            if now() < self._known_until:
                return
            metadata: Json = {}
            try:
                metadata = (await self._api.ask("get", self._path))["metadata"]
            except ApiRefused as error:
                if error.status != NOT_FOUND:
                    raise
            if metadata.get("uid") != self._reference["uid"] or metadata.get("deletionTimestamp"):
                kind, name = self._reference["kind"], self._reference["name"]
                raise PlatformRefused(f"the {kind} {name} is being deleted, so nothing is started for it any more")
            self._known_until = now() + OWNED


async def watched(api: Api, path: str, query: Query, version: str) -> AsyncGenerator[Sequence[Event]]:
    """Events from that version on, of one watch after the other; those together that came at one time.

    Raises PlatformError, Gone. A new list then has all that has changed.
    """
    loop = asyncio.get_running_loop()
    while True:
        events: asyncio.Queue[Event | PlatformError | None] = asyncio.Queue()

        def put(event: Event | PlatformError | None, queue: "asyncio.Queue[Any]" = events) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for it any more
                loop.call_soon_threadsafe(queue.put_nowait, event)

        end = api.watch(path, query, version, put)
        try:
            over = False
            while not over:
                came = [await events.get()]
                while not events.empty():
                    came.append(events.get_nowait())
                batch: list[Event] = []
                for event in came:
                    if isinstance(event, PlatformError):
                        raise event
                    over = event is None
                    batch += [event] if event else []
                if batch:
                    version = str(batch[-1].object["metadata"]["resourceVersion"])
                    yield batch
        finally:
            end()
