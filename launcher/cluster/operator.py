# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeStubs=false
"""The operator: makes of each ElasticJob what `elastic-job submit` would make, and tells there how the job is.

    kopf run --module elastic_run.launcher.cluster.operator --namespace=team

It decides nothing about a job: that does the job's master. So jobs run on while the operator is away, and what was
changed meanwhile is carried out when it is back: each look compares the whole ElasticJob with all that is there.
"""

import asyncio
import datetime
import json
import logging
import time
from dataclasses import replace
from typing import Any, cast

import kopf

from ...master.nodes.kubernetes import elastic_job, objects
from ...master.nodes.kubernetes.api import CONFLICT, NOT_FOUND, Api, ApiRefused
from ...master.nodes.kubernetes.objects import Json
from ...master.nodes.platform import PlatformError, PlatformRefused
from ...rendezvous.base.cancel import cancel
from ...rendezvous.identity.secret import new_secret
from ..errors import UsageError
from . import unstarted
from .progress import existing
from .request import check_pod, check_ttl, submitted
from .submit import make_store, queue_trouble

AGAIN = 5.0
"""Seconds until what the API server refused or did not answer is tried again."""

LOOK = 5.0
"""Seconds between two looks at jobs that are not made, or whose master has not begun: no event tells of either."""

LONGEST_MESSAGE = 1024
"""Characters that an event's message may have."""

_LOG = logging.getLogger(__name__)

_looking: list[asyncio.Task[None]] = []

_apis: dict[str, Api] = {}


def api(namespace: str) -> Api:
    """The server, for that namespace."""
    return _apis.setdefault(namespace, Api.load(namespace))


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Raises PermanentError where the cluster does not know the resource: its pod is started again until it does."""
    settings.scanning.disabled = True  # or it needs rights over the whole cluster
    settings.posting.level = logging.WARNING
    settings.persistence.finalizer = f"{elastic_job.GROUP}/operator"
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=elastic_job.GROUP)
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=elastic_job.GROUP)
    server = Api.load()
    try:
        server.ask_now("get", f"/apis/{elastic_job.API}")
    except PlatformError as error:
        raise kopf.PermanentError(f"{elastic_job.API} cannot be read ({error}): apply crd.yaml first") from error
    finally:
        server.close()


@kopf.on.resume(elastic_job.GROUP, elastic_job.VERSION, elastic_job.PLURAL)
@kopf.on.create(elastic_job.GROUP, elastic_job.VERSION, elastic_job.PLURAL, backoff=AGAIN)
@kopf.on.update(elastic_job.GROUP, elastic_job.VERSION, elastic_job.PLURAL, field="spec", backoff=AGAIN)
def apply(*, body: kopf.Body, name: str | None, namespace: str | None, **_: Any) -> None:
    """An ElasticJob is there, or has another spec."""
    try:
        reconcile(api(namespace or ""), cast(Json, body), name or "")
    except PlatformError as error:
        raise kopf.TemporaryError(str(error), AGAIN) from error


@kopf.on.event("configmaps", labels={objects.COMPONENT: "job"}, annotations={elastic_job.OWNER: kopf.PRESENT})
def copy_status(*, body: kopf.Body, name: str | None, namespace: str | None, type: str | None, **_: Any) -> None:
    """A job's master has written how it is. Where somebody has deleted the job alone, a look makes it again."""
    server = api(namespace or "")
    if type != "DELETED" and (job := existing(server, _path(server, name or ""))):  # else both go together
        _tell(server, job, cast(Json, body))


@kopf.on.startup()
async def begin(**_: Any) -> None:
    """Jobs that are not made or have not begun are looked at now and then: nothing in the cluster tells of them."""
    _looking.append(asyncio.create_task(_look_again_and_again(), name="jobs that have not begun"))


@kopf.on.cleanup()
async def finish(**_: Any) -> None:
    await cancel(*_looking)
    _looking.clear()


async def _look_again_and_again() -> None:
    patience: dict[str, unstarted.Patience] = {}
    while True:
        await asyncio.sleep(LOOK)
        for server in list(_apis.values()):
            try:
                await asyncio.to_thread(look, server, patience, time.monotonic())
            except PlatformError as error:
                _LOG.warning("jobs of namespace %s cannot be looked at: %s", server.namespace, error)
            except Exception:  # noqa: BLE001  the edge of this task: without it, nobody would say why a job does not begin
                _LOG.exception("jobs of namespace %s could not be looked at", server.namespace)


# -- one look -------------------------------------------------------------------------------------------------------


def reconcile(server: Api, job: Json, name: str) -> None:
    """Makes what is missing, and says what is wanted now. Raises PlatformError."""
    metadata, spec = job["metadata"], job["spec"]
    if metadata.get("deletionTimestamp"):
        return
    config_map = existing(server, server.path("configmaps", name))
    if config_map is None or not _is_of(config_map, job):
        if "exitCode" in (job.get("status") or {}):
            return  # it is over, and somebody has cleaned up
        try:
            if config_map is not None and objects.COMPONENT not in (config_map["metadata"].get("labels") or {}):
                raise ValueError(f"there is a ConfigMap {name} that is not this ElasticJob's: choose another name")
            config_map = _make(server, job, name)
        except (UsageError, ValueError) as error:
            _write(server, job, elastic_job.invalid(str(error), job.get("status") or {}, _generation(job), _now()))
            return
        except PlatformRefused as error:  # it is tried again, and whoever looks meanwhile is told why it waits
            _tell(server, job, {"data": {}}, str(error))
            raise
    if not spec.get("roles") and spec.get("replicas") is None:
        # So that whoever scales it finds a number there; not before the spec is found to make sense.
        server.ask_now("patch", _path(server, name), {"spec": {"replicas": elastic_job.most(spec)}})
    before = objects.Control.read((config_map.get("data") or {}).get(objects.CONTROL, ""))
    wanted = elastic_job.control(spec, before)
    if wanted != before:
        # Not over what its user has written meanwhile: that it is to be cancelled stands there alone.
        version = {"resourceVersion": config_map["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "data": {objects.CONTROL: wanted.text}}
        server.ask_now("patch", server.path("configmaps", name), patch)
    _tell(server, job, config_map)


def _make(server: Api, job: Json, name: str) -> Json:
    """The Job and the ConfigMap. Raises UsageError, ValueError where the spec makes no sense; PlatformError."""
    spec = job["spec"]
    check_ttl(elastic_job.TTL, spec.get(elastic_job.TTL))
    check_pod(spec.get("template") or {})
    request = submitted(elastic_job.words(name, spec), elastic_job.template(spec))
    if request.secret:
        request = replace(request, secret=elastic_job.secret_of(name, job["metadata"]["uid"]))
    if trouble := queue_trouble(server, request):
        raise ValueError(trouble)
    _make_secret(server, request, job)
    made = objects.master_job(request)
    made = {**made, "metadata": {**made["metadata"], "ownerReferences": [elastic_job.reference(job)]}}
    try:
        made = server.ask_now("post", server.path("jobs", group=objects.BATCH), made)
    except ApiRefused as error:
        if error.status != CONFLICT:
            if error.status in (400, 422):  # the API server has read it, and says what is wrong
                raise ValueError(str(error)) from None
            raise
        made = server.ask_now("get", server.path("jobs", name, group=objects.BATCH))
        metadata = made["metadata"]
        owners = {each["uid"]: each["kind"] for each in metadata.get("ownerReferences") or ()}
        own = job["metadata"]["uid"] in owners
        if not own and elastic_job.KIND not in owners.values():
            raise ValueError(f"there is a Job {name} that is not this ElasticJob's: choose another name") from None
        if not own or metadata.get("deletionTimestamp"):
            raise PlatformRefused(f"an earlier Job {name} is being deleted; the new one is made after that") from None
    wanted = elastic_job.control(spec, objects.Control())
    make_store(server, request, objects.owner_of(made))  # first: where the ConfigMap is, all is there
    config_map = dict(
        objects.config_map(request, objects.owner_of(made), wanted, {elastic_job.OWNER: job["metadata"]["uid"]})
    )
    config_map["data"] = {**config_map["data"], elastic_job.SPEC: json.dumps(dict(spec))}
    return server.ask_now("post", server.path("configmaps"), config_map)


def _make_secret(server: Api, request: objects.Request, job: Json) -> None:
    """The job's secret, which goes with the ElasticJob. One of that name is of an earlier try: it has the uid."""
    if not request.secret:
        return
    owner = elastic_job.reference(job)
    try:
        server.ask_now("post", server.path("secrets"), objects.secret(request, owner, new_secret().text))
    except ApiRefused as error:
        if error.status != CONFLICT:
            raise


def look(server: Api, patience: dict[str, unstarted.Patience], now: float) -> None:
    """Makes what is missing, says in each status why a master does not begin, and ends a job where it never will.

    Deletes each ElasticJob whose time after its end has passed.

    What is missing could not be made when an event told of it: somebody deleted a Job, whose pods take a while to end.

    Args:
        patience: by the uid of an ElasticJob; kept from one look to the next.
        now: of the monotonic clock, in seconds.

    Raises PlatformError where the jobs cannot be listed.
    """
    jobs = {str(each["metadata"]["uid"]): each for each in server.ask_now("get", _path(server, ""))["items"]}
    for uid in [uid for uid in patience if uid not in jobs]:
        del patience[uid]
    of_jobs = (("labelSelector", f"{objects.COMPONENT}=job"),)
    config_maps = server.ask_now("get", server.path("configmaps"), query=of_jobs)["items"]
    for uid, job in jobs.items():
        name = str(job["metadata"]["name"])
        try:
            if "exitCode" in (job.get("status") or {}):
                if elastic_job.expired(job, datetime.datetime.now(datetime.UTC)):
                    _delete(server, job)
            elif config_map := next((each for each in config_maps if _is_of(each, job)), None):
                _look_at(server, job, config_map, patience.setdefault(uid, unstarted.Patience()), now)
            else:
                reconcile(server, job, name)
        except PlatformError as error:  # of this job alone; the others are looked at all the same
            _LOG.info("ElasticJob %s is looked at again in %g s: %s", name, LOOK, error)
        except Exception:  # noqa: BLE001  nor may one of which nobody has thought keep the others from it
            _LOG.exception("ElasticJob %s could not be looked at; again in %g s", name, LOOK)


def _delete(server: Api, job: Json) -> None:
    """With all that belongs to it, unless somebody has made another of its name meanwhile. Raises PlatformError."""
    metadata = job["metadata"]
    options = {"propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
    try:
        server.ask_now("delete", _path(server, metadata["name"]), options)
    except ApiRefused as error:
        if error.status not in (NOT_FOUND, CONFLICT):
            raise


def _look_at(server: Api, job: Json, config_map: Json, patience: unstarted.Patience, now: float) -> None:
    name = str(job["metadata"]["name"])
    if found := objects.status_of(config_map):  # by a master, of whom there may be none any more
        lost = unstarted.lost(server, name, found)
        if lost and lost.kind == "over":
            unstarted.end(server, name, lost.words, begun=True)
        else:
            now_so = json.dumps(dict(lost.as_status(found) if lost else found))
            _tell(server, job, {"data": {**config_map["data"], objects.STATUS: now_so}}, "as it is now")
        return
    if (job.get("status") or {}).get("state", "Pending") != "Pending":
        return
    trouble = unstarted.look(server, name)
    if trouble is not None:
        try:
            _tell(server, job, config_map, trouble.words)
            if patience.is_news(trouble):
                _note(server, job, "Warning", "Waiting", trouble.words)
        except ApiRefused as error:
            if error.status != CONFLICT:
                raise
            return  # a master may have begun, and this is older
    if why := patience.ended_by(trouble, now):
        unstarted.end(server, name, why)


def _is_of(config_map: Json, job: Json) -> bool:
    """Whether it is this ElasticJob's, and stays."""
    metadata = config_map["metadata"]
    owner = (metadata.get("annotations") or {}).get(elastic_job.OWNER)
    return owner == job["metadata"]["uid"] and "deletionTimestamp" not in metadata


def _tell(server: Api, job: Json, config_map: Json, why: str = "") -> None:
    """`why`: the reason where no master has written one; not written over what is newer."""
    before = cast(Json, job.get("status") or {})
    found = objects.status_of(config_map) or ({"reason": why} if why else {})
    fields = elastic_job.ignored(job["spec"], config_map["data"].get(elastic_job.SPEC, ""))
    few = elastic_job.too_few(job["spec"])
    made = elastic_job.status(str(job["metadata"]["name"]), found, before, _generation(job), _now(), fields, few)
    _write(server, job, made, only=bool(why))
    if fields and _message(before) != _message(made):
        _note(server, job, "Warning", elastic_job.APPLIED, _message(made))
    if before.get("state") != made["state"]:
        bad = made["state"] in ("Failed", "Waiting", "Degraded")
        _note(server, job, "Warning" if bad else "Normal", str(made["state"]), str(made["reason"]))


def _note(server: Api, job: Json, kind: str, reason: str, message: str) -> None:
    """An event of that ElasticJob, for `kubectl describe`. Raises PlatformError."""
    metadata, at = job["metadata"], _now()
    server.ask_now(
        "post",
        server.path("events"),
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": server.namespace},
            "involvedObject": {
                "apiVersion": elastic_job.API,
                "kind": elastic_job.KIND,
                "name": metadata["name"],
                "namespace": server.namespace,
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "source": {"component": "elastic-run"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        },
    )


def _message(status: Json) -> str:
    """What a status says of a spec that has changed too late."""
    told = (each for each in status.get("conditions") or () if each["type"] == elastic_job.APPLIED)
    return str(next((each["message"] for each in told), ""))


def _write(server: Api, job: Json, status: Json, *, only: bool = False) -> None:
    """`only`: where nobody has changed it since it was read; else raises ApiRefused."""
    if any((job.get("status") or {}).get(key) != value for key, value in status.items()):
        version = {"metadata": {"resourceVersion": job["metadata"]["resourceVersion"]}} if only else {}
        server.ask_now("patch", _path(server, job["metadata"]["name"], "status"), {**version, "status": status})


def _path(server: Api, name: str, part: str = "") -> str:
    return server.path(elastic_job.PLURAL, name, part, group=elastic_job.API)


def _generation(job: Json) -> int:
    return int(job["metadata"].get("generation", 0))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
