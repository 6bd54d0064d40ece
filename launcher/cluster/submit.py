# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""`elastic-job submit`: makes a job in the cluster, and follows it."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...master.nodes.kubernetes import indexed_job, objects, store
from ...master.nodes.kubernetes.objects import Json, Request
from ...master.nodes.platform import PlatformError, PlatformRefused
from ...rendezvous.identity.secret import new_secret
from ..errors import UsageError
from .arguments import api_of, say
from .control import delete_job
from .model_files import model_map
from .pod_logs import follow
from .request import request_of

if TYPE_CHECKING:
    from ...master.nodes.kubernetes.api import Api

DETACHED = 0
"""Exit code of a command that stops following a job, which continues."""


def submit(arguments: argparse.Namespace, flags: Sequence[str], command: Sequence[str]) -> int:
    """Makes the job, and follows it."""
    request = request_of(arguments, flags, command)
    job = objects.master_job(request)
    if arguments.dry_run:
        # Nothing owns these: an owner's uid is known when it is there.
        belonging = [objects.secret(request, {}, new_secret().text)] if request.secret else []
        belonging += [
            {"apiVersion": part.groups[0], **part.object} if part.groups else part.object
            for part in store.parts(request, {})
        ]
        belonging += [model_map(request, {})] if request.model else []
        sys.stdout.write(_yaml([*belonging, objects.config_map(request, {}), job]))
        if request.secret:
            say(f"the Secret {request.secret} that is printed holds the job's secret: keep it to yourself")
        return 0
    api = api_of(arguments)
    if trouble := queue_trouble(api, request) or _account_trouble(api, request):
        raise UsageError(f"elastic-job submit: {trouble}")
    made = make(api, api.path("jobs", group=objects.BATCH), job)
    try:
        if request.secret:
            owner = objects.owner_of(made)
            make(api, api.path("secrets"), objects.secret(request, owner, new_secret().text))
        make_store(api, request, objects.owner_of(made))
        if request.model:
            make(api, api.path("configmaps"), model_map(request, objects.owner_of(made)))
        make(api, api.path("configmaps"), objects.config_map(request, objects.owner_of(made)))
    except (PlatformError, UsageError):
        delete_job(api, request.name)
        raise
    where = f" -n {api.namespace}" if arguments.namespace else ""
    say(f"job {request.name} is submitted to namespace {api.namespace}")
    for verb in ("logs -f", "status", f"scale {request.name} N", "cancel"):
        word, _, more = verb.partition(" ")
        named = more if word == "scale" else f"{more} {request.name}".strip()
        say(f"  elastic-job {word}{where} {named}")
    if arguments.no_wait:
        say("where its master cannot begin, such as for an image that cannot be pulled, this tells of it and ends it:")
        say(f"  elastic-job wait{where} {request.name}")
        return 0
    try:
        return follow(api, request.name)
    except KeyboardInterrupt:
        say(f"job {request.name} continues to run; to end it: elastic-job cancel{where} {request.name}")
        return DETACHED


def _account_trouble(api: "Api", request: Request) -> str:
    """Why no master could start, in words: its pods would not even be made. Empty: it can, or nobody may say."""
    from ...master.nodes.kubernetes.api import NOT_FOUND, ApiRefused

    try:
        api.ask_now("get", api.path("serviceaccounts", request.service_account))
    except ApiRefused as error:
        if error.status == NOT_FOUND:
            return (
                f"there is no ServiceAccount {request.service_account} in namespace {api.namespace} (or no such "
                f"namespace): kubectl apply -n {api.namespace} -f deploy/kubernetes/role.yaml makes it, with its rights"
            )
    return ""


def queue_trouble(api: "Api", request: Request) -> str:
    """Why this cluster has no such queue, in words; empty where it has, or may not be asked. Raises PlatformError."""
    from ...master.nodes.kubernetes import queued
    from ...master.nodes.kubernetes.api import NOT_FOUND, ApiRefused

    names = {name for name in (request.queue, request.master_queue) if name}
    if not names:
        return ""
    found = api.ask_now("get", "/version")
    version = tuple(int(re.sub(r"[^0-9]", "", str(found.get(part, 0))) or 0) for part in ("major", "minor"))
    if request.queue and version < indexed_job.OLDEST:
        return f"{queued.TOO_OLD} (it is {'.'.join(map(str, version))})"
    for name in names:
        for group in queued.KUEUE:
            try:
                api.ask_now("get", api.path("localqueues", name, group=group))
            except ApiRefused as error:
                if error.status == NOT_FOUND and group == queued.KUEUE[-1]:
                    return (
                        f"there is no LocalQueue {name} in namespace {api.namespace}: kubectl get localqueues lists "
                        "them where Kueue is installed"
                    )
                if error.status == NOT_FOUND:
                    continue
            break
    return ""


def make(api: "Api", path: str, what: Json) -> Json:
    from ...master.nodes.kubernetes.api import CONFLICT, ApiRefused

    name = what["metadata"]["name"]
    try:
        return api.ask_now("post", path, what)
    except ApiRefused as error:
        if error.status == CONFLICT:
            raise UsageError(
                f"there is a {what['kind']} {name} in namespace {api.namespace}: choose another --name, or delete it: "
                f"elastic-job delete {name}"
            ) from None
        raise


def make_store(api: "Api", request: Request, owner: Json) -> None:
    """Makes the job's own store, as far as it is not there yet. Raises PlatformError."""
    from ...master.nodes.kubernetes.api import CONFLICT, NOT_FOUND, ApiRefused

    for part in store.parts(request, owner):
        for group in part.groups or ("",):
            made = {"apiVersion": group, **part.object} if group else part.object
            try:
                api.ask_now("post", api.path(part.kind, group=group), made)
            except ApiRefused as error:
                if error.status == NOT_FOUND and group != part.groups[-1]:
                    continue
                if error.status != CONFLICT:
                    raise
                name = str(part.object["metadata"]["name"])
                metadata = api.ask_now("get", api.path(part.kind, name, group=group))["metadata"]
                owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
                if owner["uid"] not in owners or metadata.get("deletionTimestamp"):
                    kind = part.object["kind"]
                    raise PlatformRefused(
                        f"there is a {kind} {name} in namespace {api.namespace} that is not this job's: if it is of an "
                        "earlier job of this name, the cluster is deleting it"
                    ) from None
            break


def _yaml(objects: Sequence[Json]) -> str:
    import yaml

    return "---\n".join(yaml.safe_dump(json.loads(json.dumps(each)), sort_keys=False) for each in objects)
