# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeStubs=false
"""The operator: makes of each ElasticJob what `elastic-job submit` would make, and tells there how the job is.

    kopf run --module elastic_run.launcher.operator --namespace=team

It decides nothing about a job: that does the job's master. So jobs run on while the operator is away, and what was
changed meanwhile is carried out when it is back: each look compares the whole ElasticJob with all that is there.
"""

import datetime
import logging
from collections.abc import Mapping
from typing import Any, cast

import kopf

from ..master.nodes.kubernetes import elastic_job, objects
from ..master.nodes.kubernetes.api import CONFLICT, NOT_FOUND, Api, ApiRefused
from ..master.nodes.platform import PlatformError, PlatformRefused
from .errors import UsageError
from .job import submitted

AGAIN = 5.0
"""Seconds until what the API server refused or did not answer is tried again."""

Json = Mapping[str, Any]
"""An object of the API (hence Any)."""

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
    """A job's master has written how it is; or somebody has deleted the job, and not its ElasticJob."""
    server, name = api(namespace or ""), name or ""
    try:
        found = server.ask_now("get", _path(server, name))
        if type == "DELETED":
            reconcile(server, found, name)
        else:
            _tell(server, found, cast(Json, body))
    except ApiRefused as error:
        if error.status != NOT_FOUND:  # else both go together
            raise


# -- one look -------------------------------------------------------------------------------------------------------


def reconcile(server: Api, job: Json, name: str) -> None:
    """Makes what is missing, and says what is wanted now. Raises PlatformError."""
    metadata, spec = job["metadata"], job["spec"]
    if metadata.get("deletionTimestamp"):
        return
    if not spec.get("roles") and spec.get("replicas") is None:
        # So that whoever scales it finds a number there.
        server.ask_now("patch", _path(server, name), {"spec": {"replicas": elastic_job.most(spec)}})
    try:
        config_map = server.ask_now("get", server.path("configmaps", name))
    except ApiRefused as error:
        if error.status != NOT_FOUND:
            raise
        config_map = None
    if config_map is None or not _is_of(config_map, job):
        if "exitCode" in (job.get("status") or {}):
            return  # it is over, and somebody has cleaned up
        try:
            config_map = _make(server, job, name)
        except (UsageError, ValueError) as error:
            _write(server, job, elastic_job.invalid(str(error), job.get("status") or {}, _generation(job), _now()))
            return
    before = objects.Control.read((config_map.get("data") or {}).get(objects.CONTROL, ""))
    wanted = elastic_job.control(spec, before)
    if wanted != before:
        server.ask_now("patch", server.path("configmaps", name), {"data": {objects.CONTROL: wanted.text}})
    _tell(server, job, config_map)


def _make(server: Api, job: Json, name: str) -> Json:
    """The Job and the ConfigMap. Raises UsageError, ValueError where the spec makes no sense; PlatformError."""
    spec = job["spec"]
    request = submitted(elastic_job.words(name, spec), elastic_job.template(spec))
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
            raise PlatformRefused(f"an earlier Job {name} is about to go; another is made when it has gone") from None
    wanted = elastic_job.control(spec, objects.Control())
    config_map = objects.config_map(
        request, objects.owner_of(made), wanted, {elastic_job.OWNER: job["metadata"]["uid"]}
    )
    return server.ask_now("post", server.path("configmaps"), config_map)


def _is_of(config_map: Json, job: Json) -> bool:
    """Whether it is this ElasticJob's, and stays."""
    metadata = config_map["metadata"]
    owner = (metadata.get("annotations") or {}).get(elastic_job.OWNER)
    return owner == job["metadata"]["uid"] and "deletionTimestamp" not in metadata


def _tell(server: Api, job: Json, config_map: Json) -> None:
    before = cast(Json, job.get("status") or {})
    found = objects.status_of(config_map)
    made = elastic_job.status(str(job["metadata"]["name"]), found, before, _generation(job), _now())
    if before.get("state") != made["state"]:
        bad = made["state"] in ("Failed", "Timeout", "Repeated", "Waiting")
        kopf.event(
            kopf.Body(cast(Any, job)), type="Warning" if bad else "Normal", reason=made["state"], message=made["reason"]
        )
    _write(server, job, made)


def _write(server: Api, job: Json, status: Json) -> None:
    if any((job.get("status") or {}).get(key) != value for key, value in status.items()):
        server.ask_now("patch", _path(server, job["metadata"]["name"], "status"), {"status": status})


def _path(server: Api, name: str, part: str = "") -> str:
    return server.path(elastic_job.PLURAL, name, part, group=elastic_job.API)


def _generation(job: Json) -> int:
    return int(job["metadata"].get("generation", 0))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
