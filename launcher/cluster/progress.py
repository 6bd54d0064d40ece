# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""How jobs are: `elastic-job list`, `status` and `wait`."""

import argparse
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING

from ...master.nodes.kubernetes import objects
from ...master.nodes.kubernetes.objects import Json
from ...master.nodes.kubernetes.troubles import steady
from ...master.nodes.platform import PlatformError
from ...rendezvous.base.visible import visible
from ..errors import UsageError
from .arguments import say
from .outage import Outage

if TYPE_CHECKING:
    from ...master.nodes.kubernetes.api import Api
    from .unstarted import Trouble

PAUSE = 1.0
"""Seconds between two looks at a job."""


def list_jobs(api: "Api", arguments: argparse.Namespace) -> int:
    selector = (("labelSelector", f"{objects.COMPONENT}=job"),)
    found = api.ask_now("get", api.path("configmaps"), query=selector)["items"]
    jobs = {each["metadata"]["name"]: objects.status_of(each) or _unstarted(api, each) for each in found}
    if arguments.output == "json":
        sys.stdout.write(json.dumps([{"name": name, **status} for name, status in sorted(jobs.items())]) + "\n")
        return 0
    rows: list[tuple[str, ...]] = [("NAME", "STATE", "NODES", "WORKERS", "ROUND", "PROGRESS")]
    for name, each in sorted(jobs.items()):
        row = (name, str(each.get("state", "submitted")), _nodes(each), *_numbers(each), _progress(each))
        rows.append(tuple(map(visible, row)))
    if not jobs:
        say(f"there is no job in namespace {api.namespace}")
        return 0
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        sys.stdout.write("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() + "\n")
    for name, each in sorted(jobs.items()):
        if "nodes" not in each and "reason" in each:  # nobody else tells it
            say(f"job {name} has not begun: {each['reason']}")
    return 0


def _unstarted(api: "Api", config_map: Json) -> Json:
    """How a job is of which no master has written it; nothing where this user may not look at its pods."""
    with contextlib.suppress(PlatformError, UsageError):
        return _look(api, str(config_map["metadata"]["name"]))[0]
    return {}


def status(api: "Api", arguments: argparse.Namespace) -> int:
    before, outage, name = None, Outage(), arguments.name
    while True:
        found = outage.answer(lambda: status_of(api, name)) if arguments.watch else status_of(api, name)
        if found is not None and found != before:
            sys.stdout.write(json.dumps(found) + "\n" if arguments.output == "json" else _text(name, found))
            sys.stdout.flush()
            before = found
        if not arguments.watch or "exitCode" in (found or {}):
            return 0
        time.sleep(PAUSE)


def wait(api: "Api", arguments: argparse.Namespace) -> int:
    until = time.monotonic() + arguments.timeout if arguments.timeout else None
    return until_over(api, arguments.name, until)


def status_of(api: "Api", name: str) -> Json:
    """How the job is; before its master has written that, how its master's pod is. Raises UsageError, PlatformError."""
    return _look(api, name)[0]


def _look(api: "Api", name: str) -> "tuple[Json, Trouble | None]":
    """The same, and what keeps its master from beginning, where something does."""
    from . import unstarted

    found = objects.status_of(job_of(api, name))
    trouble = unstarted.lost(api, name, found) if found else unstarted.look(api, name)
    if trouble is None:
        return found, None
    if trouble.kind == "lost" and objects.EXIT_CODE in (newest := objects.status_of(job_of(api, name))):
        return newest, None  # its master has written the end meanwhile
    return trouble.as_status(found), trouble


def job_of(api: "Api", name: str) -> Json:
    """The ConfigMap of a job. Raises UsageError where there is no such job; PlatformError."""
    if found := existing(api, api.path("configmaps", name)):
        return found
    raise UsageError(
        f"there is no job {name} in namespace {api.namespace}: elastic-job list -n {api.namespace} shows the others"
    )


def existing(api: "Api", path: str) -> Json | None:
    """The object there, or None. Raises PlatformError."""
    from ...master.nodes.kubernetes.api import NOT_FOUND, ApiRefused

    try:
        return api.ask_now("get", path)
    except ApiRefused as error:
        if error.status != NOT_FOUND:
            raise
        return None


class Waiting:
    """Says why a job does not train yet, each reason once."""

    def __init__(self, api: "Api", name: str) -> None:
        from .unstarted import Patience

        self._api = api
        self._name = name
        self._said = ""
        self._patience = Patience()

    def look(self) -> Json:
        """How the job is; one whose master can never begin is ended here. Raises UsageError, PlatformError."""
        from . import unstarted

        found, trouble = _look(self._api, self._name)
        reason = str(found.get("reason", ""))
        does = {"pending": "waits", "degraded": "is degraded"}.get(str(found.get("state")))
        if does and reason and (news := steady(reason)) != self._said:
            say(f"job {self._name} {does}: {reason}")
            self._said = news
        if why := self._patience.ended_by(trouble, time.monotonic()):
            unstarted.end(self._api, self._name, why, begun=trouble is not None and trouble.kind == "over")
        return found


def until_over(api: "Api", name: str, until: float | None) -> int:
    """Waits for the end of a job, and returns its exit code.

    Args:
        until: in monotonic seconds; None: without a limit.

    Raises:
        UsageError: it is not over by then.
        PlatformError: the API server refuses, or was away for too long.
    """
    waiting, outage = Waiting(api, name), Outage()
    while until is None or time.monotonic() < until:
        found = outage.answer(waiting.look) or {}
        if "exitCode" in found:
            say(f"job {name} {'succeeded' if not found['exitCode'] else 'failed'}: {found.get('reason', '')}")
            return int(found["exitCode"])
        time.sleep(PAUSE)
    raise UsageError(f"job {name} is not over: {_text(name, status_of(api, name)).splitlines()[0]}")


def _text(name: str, found: Json) -> str:
    lines = [f"{name}: {found.get('state', 'submitted')}: {found.get('reason', 'its master has not started yet')}"]
    if found.get("round"):
        workers, number = _numbers(found)
        lines.append(f"  round {number}: {workers} workers; nodes: {_nodes(found)}")
    elif "nodes" in found:
        lines.append(f"  nodes: {_nodes(found)}")
    for role, target in (found.get("targets") or {}).items():
        lines.append(f"  wanted{f' of {role}' if role else ''}: {target['nodes']}: {target['reason']}")
    for each in found.get("waiting") or ():
        lines.append(f"  {each['pod']}: {each['reason']}")
    for each in found.get("datasets") or ():
        left = "" if each.get("secondsLeft") is None else f", about {each['secondsLeft']} s left"
        lines.append(f"  data {each['name']}: {each['done']} of {each['shards']} shards{left}")
    for each in (found.get("incidents") or ())[-3:]:
        lines.append(f"  incident: {each['reason']}")
    return "".join(f"{visible(line)}\n" for line in lines)


def _nodes(found: Json) -> str:
    counts = found.get("nodes") or {}
    waiting = f" (+{counts['pending']} pending)" if counts.get("pending") else ""
    return f"{counts.get('running', 0)}{waiting}"


def _numbers(found: Json) -> tuple[str, str]:
    return str(found.get("workers", 0)), str(found.get("round", 0))


def _progress(found: Json) -> str:
    return ", ".join(f"{each['name']} {each['done']}/{each['shards']}" for each in found.get("datasets") or ())
