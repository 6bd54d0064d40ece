# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What a user changes of a job that runs: `elastic-job scale`, `suspend`, `resume`, `cancel` and `delete`."""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...master.nodes.kubernetes import elastic_job, objects, store
from ...master.nodes.kubernetes.model_volume import name_model
from ...master.nodes.kubernetes.objects import Control, Json
from ...master.nodes.platform import PlatformRefused
from ..errors import UsageError
from .arguments import say
from .managed_nodes import CANCELLED
from .progress import existing, job_of

if TYPE_CHECKING:
    from ...master.nodes.kubernetes.api import Api

TRIES = 20
"""Times that a change is made anew because somebody else has changed the same object meanwhile."""


def scale(api: "Api", arguments: argparse.Namespace) -> int:
    found = _living(api, arguments.name)
    roles = tuple(json.loads(found["data"][objects.TEMPLATES])["templates"])
    counts: dict[str, int] = {}
    for word in arguments.count:
        role, equals, text = word.rpartition("=")
        if not re.fullmatch(r"[0-9]{1,6}", text) or (equals and not role):
            raise UsageError(f"elastic-job scale: {word} is neither a number nor ROLE=NUMBER")
        if role not in roles:
            raise UsageError(
                f"elastic-job scale: {word}: the job's roles are {', '.join(roles)}: write ROLE={text}"
                if any(roles)
                else f"elastic-job scale: {word}: the job has no roles: write {text}"
            )
        counts[role] = int(text)
    _change(api, arguments.name, lambda control: control.changed(scale={**control.scale, **counts}))
    say("so many nodes at most, within --nnodes or --roles; with less than its minimum the job waits")
    return 0


def suspend(api: "Api", arguments: argparse.Namespace) -> int:
    _change(api, arguments.name, lambda control: control.changed(suspend=arguments.verb == "suspend"))
    return 0


def cancel(api: "Api", arguments: argparse.Namespace) -> int:
    from . import unstarted

    _change(api, arguments.name, lambda control: control.changed(cancel=True))
    if not objects.status_of(job_of(api, arguments.name)):  # no master has begun, that would read it
        unstarted.end(api, arguments.name, CANCELLED)
    return 0


def delete(api: "Api", arguments: argparse.Namespace) -> int:
    delete_job(api, arguments.name)
    return 0


def delete_job(api: "Api", name: str) -> None:
    """Deletes a job, and by its owner references all that belongs to it. Raises PlatformError."""
    from ...master.nodes.kubernetes.api import NOT_FOUND, ApiRefused

    paths = [api.path("jobs", name, group=objects.BATCH)]
    if found := existing(api, api.path("configmaps", name)):
        if uid := _owner(found):
            owner = api.path(elastic_job.PLURAL, name, group=elastic_job.API)
            if existing(api, owner):
                paths = [owner, *paths]
            else:  # it has gone without its Job (kubectl delete --cascade=orphan), and nothing owns the Secret
                paths = [api.path("secrets", elastic_job.secret_of(name, uid)), *paths]
        if objects.APPLIED in (found["metadata"].get("annotations") or {}) or not existing(api, paths[-1]):
            paths = [*_unowned(api, name, found), *paths]
    there, refused = False, None
    for path in paths:
        try:
            api.ask_now("delete", path, query=(("propagationPolicy", "Background"),))
            there = True
        except ApiRefused as error:
            if error.status != NOT_FOUND or (path == paths[-1] and not there and found is None):
                refused = refused or error  # the others go all the same
    if refused is not None:
        raise refused


def _unowned(api: "Api", name: str, config_map: Json) -> Iterator[str]:
    """The paths of what no Job owns: a user has applied it beside the Job, or has deleted the Job and nothing else.

    Something else may have such a name. It is the job's where it has its label; a Secret, which a user may not read, is
    where the nodes take their environment from it.
    """
    templates = json.loads(config_map["data"][objects.TEMPLATES])["templates"].values()
    containers = [each for pod in templates for each in (pod.get("spec") or {}).get("containers") or ()]
    sources = [each.get("valueFrom") or {} for one in containers for each in one.get("env") or []]
    if name in {(each.get("secretKeyRef") or {}).get("name") for each in sources}:
        yield api.path("secrets", name)
    own_label = (("labelSelector", f"{objects.JOB}={name},{objects.COMPONENT}!=job"),)
    for plural, group in (("jobs", objects.BATCH), ("pods", "")):  # the master's pods first, which would write on
        for each in api.ask_now("get", api.path(plural, group=group), query=own_label)["items"]:
            if not each["metadata"].get("ownerReferences"):
                yield api.path(plural, each["metadata"]["name"], group=group)
    yield api.path("configmaps", name)
    own = store.name_of(name)
    paths = [api.path("services", own), api.path("statefulsets", own, group=store.APPS)]
    paths += [api.path("configmaps", name_model(name))]
    paths += [api.path("poddisruptionbudgets", own, group=group) for group in store.POLICIES]
    for path in paths:
        found = existing(api, path)
        if found and (found["metadata"].get("labels") or {}).get(objects.JOB) == name:
            yield path


def _living(api: "Api", name: str) -> Json:
    """The ConfigMap of a job. Raises UsageError where it is over."""
    found = job_of(api, name)
    status = objects.status_of(found)
    if "exitCode" in status:
        raise UsageError(f"job {name} is over: {status.get('reason')}")
    return found


def _owner(found: Json) -> str:
    """The uid of the ElasticJob that says what is wanted of the job; empty where none does."""
    return str((found["metadata"].get("annotations") or {}).get(elastic_job.OWNER, ""))


def _change(api: "Api", name: str, change: Callable[[Control], Control]) -> None:
    """Changes what is wanted of a job, with what others have changed meanwhile. Raises UsageError, PlatformError."""
    from ...master.nodes.kubernetes.api import CONFLICT, ApiRefused

    config_map, job = api.path("configmaps", name), api.path(elastic_job.PLURAL, name, group=elastic_job.API)
    for _ in range(TRIES):
        found = _living(api, name)
        control = change(objects.Control.read(found["data"].get(objects.CONTROL, "")))
        try:
            if _owner(found) and (owner := existing(api, job)):
                # Before the control: the operator would take back what it does not find there.
                wanted = change(elastic_job.control(owner["spec"], objects.Control()))
                api.ask_now("patch", job, {**_of(owner), "spec": elastic_job.spec_of(wanted, owner["spec"])})
            api.ask_now("patch", config_map, {**_of(found), "data": {objects.CONTROL: control.text}})
            return
        except ApiRefused as error:
            if error.status != CONFLICT:
                raise
    raise PlatformRefused(
        f"job {name} could not be changed in {TRIES} attempts: another client changes it at the same time; try again"
    )


def _of(found: Json) -> Json:
    """The part of a patch by which the server refuses it where somebody else has changed the object."""
    return {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}}
