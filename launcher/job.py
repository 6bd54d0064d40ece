# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The command `elastic-job`: jobs on a Kubernetes cluster, which need nothing installed there but one Role.

    elastic-job submit --image=IMAGE --nnodes=2:8 -- train.py --epochs=3

What stands before `--` is for the job's pods, or a flag of `elastic-run`; what stands behind it is the script and its
arguments. The cluster is the one that kubectl speaks to.
"""

import argparse
import json
import math
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..master.nodes.platform import PlatformError
from .errors import UsageError
from .managed_nodes import NO_PACKAGE, Spans, spans_of
from .options import parse

if TYPE_CHECKING:
    from ..master.nodes.kubernetes.api import Api
    from ..master.nodes.kubernetes.objects import Control, Request

Json = Mapping[str, Any]
"""An object of the API (hence Any)."""

OWN_NODE = ("platform", "standalone", "node-rank", "node-name", "node-role", "local-addr")
"""Flags of `elastic-run` that say something of one node: here the master gives them."""

YEAR = 365 * 24 * 3600
"""Seconds to wait for nodes, where nothing else is said: a job in a cluster waits for its places."""

PAUSE = 1.0
"""Seconds between two looks at a job."""

LOG_PAUSE = 2.0
"""Seconds between two looks for pods that are new."""

DETACHED, INTERRUPTED = 0, 130
"""Exit codes of who no longer looks at a job that goes on."""


class _Parser(argparse.ArgumentParser):
    """Says what was wrong in one line, as `elastic-run` does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `elastic-job` with `argv` (default: the process's own) and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    behind = words.index("--") if "--" in words else len(words)
    parser = _parser()
    try:
        arguments, flags = parser.parse_known_args(words[:behind])
        if arguments.verb != "submit" and (flags or words[behind + 1 :]):
            raise UsageError(f"elastic-job {arguments.verb}: {(flags or words[behind + 1 :])[0]} is not known")
        if arguments.verb == "submit":
            return submit(arguments, flags, words[behind + 1 :])
        verb: Callable[[Api, argparse.Namespace], int] = arguments.run
        return verb(_api(arguments), arguments)
    except (UsageError, ValueError) as error:
        return _refuse(str(error), 2)
    except PlatformError as error:
        return _refuse(f"the cluster: {error}", 2)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 1


def run() -> NoReturn:
    """The command itself."""
    sys.exit(main())


def _refuse(sentence: str, code: int) -> int:
    sys.stderr.write(f"[elastic-job] {sentence}\n")
    return code


def _say(line: str) -> None:
    sys.stderr.write(f"[elastic-job] {line}\n")
    sys.stderr.flush()


def _api(arguments: argparse.Namespace) -> "Api":
    try:
        from ..master.nodes.kubernetes.api import Api
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
            raise
        raise UsageError(NO_PACKAGE) from None
    return Api.load(arguments.namespace, arguments.kubeconfig, arguments.context)


# -- the command line -----------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    cluster = _Parser(add_help=False)
    cluster.add_argument("-n", "--namespace", default="", help="default: that of the current context")
    cluster.add_argument("--kubeconfig", help="default: as kubectl")
    cluster.add_argument("--context", help="of the kubeconfig; default: the current one")
    parser = _Parser("elastic-job", description="Elastic training jobs on a Kubernetes cluster.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)

    def add(verb: str, does: str, run: Callable[["Api", argparse.Namespace], int] | None, *aliases: str) -> Any:
        made = verbs.add_parser(
            verb, help=does, description=does, parents=[cluster], aliases=aliases, allow_abbrev=False
        )
        made.set_defaults(run=run, verb=verb)
        return made

    def name(made: Any) -> None:
        made.add_argument("name", metavar="NAME", help="of the job")

    made = add(
        "submit", "start a job, and follow it; every flag of elastic-run is accepted, and -- before the script", None
    )
    made.usage = "elastic-job submit --image=IMAGE [--name=NAME] [flags of elastic-run] -- train.py [its arguments]"
    made.add_argument("--name", default="", help="of the job; default: made of the script's")
    made.add_argument("--image", required=True, help="with elastic-run, the script, and all that it imports")
    made.add_argument("--cpu", default="", help="for each node, such as 4 or 500m")
    made.add_argument("--memory", default="", help="for each node, such as 8Gi: it gets no more")
    made.add_argument("--memory-cap", default="", help="up to which a node that was out of memory gets more")
    made.add_argument("--gpus", type=int, default=0, help="for each node, of NVIDIA")
    made.add_argument("--priority-class", default="", help="of the nodes: lower ones give way to higher ones")
    made.add_argument("--high-priority-class", default="", help="of the nodes that give way last")
    made.add_argument(
        "--high-priority-fraction",
        type=float,
        default=None,
        metavar="F",
        help="so many of each role's most nodes, 0 to 1",
    )
    made.add_argument("--master-priority-class", default="", help="of the master; default: the highest of its nodes")
    made.add_argument("--service-account", default="", help="of the master; default: elastic-run")
    made.add_argument("--image-pull-policy", default="", help="Always, IfNotPresent or Never")
    made.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the script")
    made.add_argument("--pod-template", metavar="FILE", help="YAML of a pod that the nodes are made of")
    made.add_argument("--no-wait", action="store_true", help="do not follow it")
    made.add_argument("--dry-run", action="store_true", help="print what would be made, as YAML")

    made = add("list", "the jobs of the namespace", list_jobs)
    made.add_argument("-o", "--output", choices=("table", "json"), default="table")
    made = add("status", "how a job is", status)
    name(made)
    made.add_argument("-o", "--output", choices=("text", "json"), default="text")
    made.add_argument("-w", "--watch", action="store_true", help="again after each change, until it is over")
    made = add("logs", "what a job's nodes have printed", logs)
    name(made)
    made.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    made.add_argument("--tail", type=int, default=-1, metavar="N", help="the last lines of each pod only")
    made.add_argument("--master", action="store_true", help="of the master's pod as well")
    made = add("wait", "until a job is over; the exit code is that of elastic-run", wait)
    name(made)
    made.add_argument("--timeout", type=float, default=0.0, metavar="SECONDS", help="default: for ever")
    made = add("scale", "at most so many nodes, within its range", scale)
    name(made)
    made.add_argument("count", metavar="N|ROLE=N", nargs="+")
    name(add("suspend", "end a job's nodes in order, and keep its progress", suspend))
    name(add("resume", "go on with a suspended job", resume))
    name(add("cancel", "end a job as failed; its logs stay", cancel, "stop"))
    name(add("delete", "delete a job with all that belongs to it", delete))
    return parser


# -- submit ---------------------------------------------------------------------------------------------------------


def submit(arguments: argparse.Namespace, flags: Sequence[str], command: Sequence[str]) -> int:
    """Makes the job, and follows it."""
    try:
        from ..master.nodes.kubernetes import objects
    except ModuleNotFoundError:
        raise UsageError(NO_PACKAGE) from None
    request = request_of(arguments, flags, command)
    job = objects.master_job(request)
    if arguments.dry_run:
        sys.stdout.write(_yaml([job, objects.config_map(request, objects.owner_of(job))]))
        return 0
    api = _api(arguments)
    made = _make(api, api.path("jobs", group=objects.BATCH), job)
    try:
        _make(api, api.path("configmaps"), objects.config_map(request, objects.owner_of(made)))
    except PlatformError:
        _delete(api, request.name)
        raise
    where = f" -n {api.namespace}" if arguments.namespace else ""
    _say(f"job {request.name} is submitted to namespace {api.namespace}")
    for verb in ("logs -f", "status", f"scale {request.name} N", "cancel"):
        word, _, more = verb.partition(" ")
        named = more if word == "scale" else f"{more} {request.name}".strip()
        _say(f"  elastic-job {word}{where} {named}")
    if arguments.no_wait:
        return 0
    try:
        return follow(api, request.name)
    except KeyboardInterrupt:
        _say(f"job {request.name} goes on; to end it: elastic-job cancel{where} {request.name}")
        return DETACHED


def submitted(words: Sequence[str], template: Json) -> "Request":
    """What `elastic-job submit` with these words would make, of that pod. Raises UsageError, BadRequest."""
    behind = words.index("--")
    arguments, flags = _parser().parse_known_args(["submit", *words[:behind]])
    return request_of(arguments, flags, words[behind + 1 :], template)


def request_of(
    arguments: argparse.Namespace, flags: Sequence[str], command: Sequence[str], template: Json | None = None
) -> "Request":
    """What is to be submitted. Raises UsageError, BadRequest."""
    from ..master.nodes.kubernetes import objects, pods

    if not command:
        raise UsageError(
            "elastic-job submit: no script is given: write -- before it, as in elastic-job submit --image=IMAGE "
            "--nnodes=2:8 -- train.py"
        )
    for name in OWN_NODE:
        if any(word.partition("=")[0].replace("_", "-") == f"--{name}" for word in flags):
            raise UsageError(
                f"elastic-job submit: --{name} is of one node, and the job's master starts them: leave it out"
            )
    options = parse([*flags, "--", *command], {}, workers=False, here=False)
    name = objects.check_name(arguments.name or _name(options.command.target))
    environment: dict[str, str] = {}
    for pair in cast(list[str], arguments.env):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"elastic-job submit: --env={pair}: write --env=NAME=VALUE")
        environment[key] = value
    if arguments.gpus < 0:
        raise UsageError(f"elastic-job submit: --gpus={arguments.gpus}: give a number from 0")
    for flag, amount in (("memory", arguments.memory), ("memory-cap", arguments.memory_cap)):
        try:
            pods.bytes_of(amount or 0)
        except ValueError as error:
            raise UsageError(f"elastic-job submit: --{flag}: {error}") from None
    return objects.Request(
        name=name,
        run=options.job_id if options.job_id_given else f"{name}-{secrets.token_hex(3)}",
        image=arguments.image,
        flags=_waiting(options.given),
        command=(options.command.target, *options.command.args),
        roles=tuple(role.name for role in options.roles) or ("",),
        endpoint=",".join(map(str, options.store.endpoints)),
        cpu=arguments.cpu,
        memory=arguments.memory,
        gpus=arguments.gpus,
        priority_class=arguments.priority_class,
        high_priority_class=arguments.high_priority_class,
        high_priority=_high_priority(arguments, spans_of(options)),
        master_priority_class=arguments.master_priority_class,
        service_account=arguments.service_account or objects.SERVICE_ACCOUNT,
        image_pull_policy=arguments.image_pull_policy,
        env=environment,
        template=_template(arguments.pod_template) if template is None else template,
        grace=options.shutdown_timeout,
        memory_cap=pods.bytes_of(arguments.memory_cap or 0),
    )


def _high_priority(arguments: argparse.Namespace, spans: Spans) -> Mapping[str, int]:
    """By role, how many nodes have the higher class. Raises UsageError."""
    fraction = cast("float | None", arguments.high_priority_fraction)
    if (fraction is None) != (not arguments.high_priority_class):
        raise UsageError("elastic-job submit: --high-priority-class and --high-priority-fraction are given together")
    if fraction is None:
        return {}
    if not 0 < fraction <= 1:
        raise UsageError(f"elastic-job submit: --high-priority-fraction={fraction:g}: give a number above 0, at most 1")
    return {role: math.ceil(fraction * most) for role, (_, most) in spans.items()}


def _waiting(flags: Sequence[str]) -> tuple[str, ...]:
    """With a year's patience for nodes where the user said no other: how long a place takes is the cluster's to say."""
    conf = next((each for each in flags if each.startswith("--rdzv-conf=")), "--rdzv-conf=")
    keys = {pair.partition("=")[0].strip() for pair in conf.partition("=")[2].split(",")}
    more = [f"{key}={YEAR}" for key in ("join_timeout", "recovery_timeout") if key not in keys]
    more = more[1:] if "timeout" in keys and "join_timeout" not in keys else more
    told = ",".join(filter(None, (conf.partition("=")[2], *more)))
    return (*(each for each in flags if each != conf), f"--rdzv-conf={told}")


def _name(target: str) -> str:
    """Made of the script's, and never twice the same."""
    words = re.sub(r"[^a-z0-9]+", "-", Path(target).stem.lower()).strip("-")
    return f"{words[:24] if words[:1].isalpha() else 'job'}-{secrets.token_hex(2)}".replace("--", "-")


def _template(file: str | None) -> Json:
    if file is None:
        return {}
    import yaml

    try:
        found = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"elastic-job submit: --pod-template={file} cannot be read: {error}") from None
    if not isinstance(found, dict) or not isinstance(cast(Json, found).get("spec"), dict):
        raise UsageError(f"elastic-job submit: --pod-template={file} is no pod: it has no spec")
    return cast(Json, found)


def _make(api: "Api", path: str, what: Json) -> Json:
    from ..master.nodes.kubernetes.api import CONFLICT, ApiRefused

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


def _yaml(objects: Sequence[Json]) -> str:
    import yaml

    return "---\n".join(yaml.safe_dump(json.loads(json.dumps(each)), sort_keys=False) for each in objects)


# -- the other verbs ------------------------------------------------------------------------------------------------


def list_jobs(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job list`."""
    from ..master.nodes.kubernetes import objects

    selector = (("labelSelector", f"{objects.COMPONENT}=job"),)
    found = api.ask_now("get", api.path("configmaps"), query=selector)["items"]
    jobs = {each["metadata"]["name"]: objects.status_of(each) for each in found}
    if arguments.output == "json":
        sys.stdout.write(json.dumps([{"name": name, **status} for name, status in sorted(jobs.items())]) + "\n")
        return 0
    rows = [("NAME", "STATE", "NODES", "WORKERS", "ROUND", "PROGRESS")]
    for name, each in sorted(jobs.items()):
        rows.append((name, str(each.get("state", "submitted")), _nodes(each), *_numbers(each), _progress(each)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        sys.stdout.write("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() + "\n")
    return 0


def status(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job status`."""
    before = None
    while True:
        found = _status(api, arguments.name)
        if found != before:
            sys.stdout.write(json.dumps(found) + "\n" if arguments.output == "json" else _text(arguments.name, found))
            sys.stdout.flush()
            before = found
        if not arguments.watch or "exitCode" in found:
            return 0
        time.sleep(PAUSE)


def wait(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job wait`."""
    until = time.monotonic() + arguments.timeout if arguments.timeout else None
    return _await(api, arguments.name, until)


def logs(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job logs`."""
    _status(api, arguments.name)  # there is such a job
    tails = Tails(api, arguments.name, arguments.tail, master=arguments.master, follow=arguments.follow)
    if arguments.follow:
        tails.until(lambda: _is_over(api, arguments.name))
    else:
        tails.once()
    return 0


def follow(api: "Api", name: str) -> int:
    """What its nodes print, until it is over; its exit code."""
    tails = Tails(api, name, -1, master=False, follow=True)
    tails.until(lambda: _is_over(api, name))
    return _await(api, name, None)


def scale(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job scale`."""
    from ..master.nodes.kubernetes import objects

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
    control = objects.Control.read(found["data"].get(objects.CONTROL, ""))
    _change(api, found, control.changed(scale={**control.scale, **counts}))
    return 0


def suspend(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job suspend`."""
    return _switch(api, arguments.name, suspend=True)


def resume(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job resume`."""
    return _switch(api, arguments.name, suspend=False)


def cancel(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job cancel`."""
    return _switch(api, arguments.name, cancel=True)


def _switch(api: "Api", name: str, **changes: bool) -> int:
    from ..master.nodes.kubernetes import objects

    found = _living(api, name)
    _change(api, found, objects.Control.read(found["data"].get(objects.CONTROL, "")).changed(**changes))
    return 0


def delete(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job delete`."""
    _delete(api, arguments.name)
    return 0


def _delete(api: "Api", name: str) -> None:
    from ..master.nodes.kubernetes import elastic_job, objects
    from ..master.nodes.kubernetes.api import NOT_FOUND, ApiRefused

    path = api.path("jobs", name, group=objects.BATCH)
    try:
        if _owner(api.ask_now("get", api.path("configmaps", name))):
            path = api.path(elastic_job.PLURAL, name, group=elastic_job.API)
    except ApiRefused as error:
        if error.status != NOT_FOUND:
            raise
    api.ask_now("delete", path, query=(("propagationPolicy", "Background"),))


def _living(api: "Api", name: str) -> Json:
    """The ConfigMap of a job. Raises UsageError where it is over."""
    from ..master.nodes.kubernetes import objects

    found = api.ask_now("get", api.path("configmaps", name))
    status = objects.status_of(found)
    if "exitCode" in status:
        raise UsageError(f"job {name} is over: {status.get('reason')}")
    return found


def _owner(found: Json) -> bool:
    """Whether an ElasticJob says what is wanted of the job."""
    from ..master.nodes.kubernetes import elastic_job

    return elastic_job.OWNER in (found["metadata"].get("annotations") or {})


def _change(api: "Api", found: Json, control: "Control") -> None:
    from ..master.nodes.kubernetes import elastic_job, objects

    name = str(found["metadata"]["name"])
    if _owner(found):
        # Before the control: the operator would take back what it does not find there.
        path = api.path(elastic_job.PLURAL, name, group=elastic_job.API)
        api.ask_now("patch", path, {"spec": elastic_job.spec_of(control, api.ask_now("get", path)["spec"])})
    api.ask_now("patch", api.path("configmaps", name), {"data": {objects.CONTROL: control.text}})


# -- how a job is ---------------------------------------------------------------------------------------------------


def _status(api: "Api", name: str) -> Json:
    from ..master.nodes.kubernetes import objects

    return objects.status_of(api.ask_now("get", api.path("configmaps", name)))


def _is_over(api: "Api", name: str) -> bool:
    try:
        return "exitCode" in _status(api, name)
    except PlatformError:
        return False  # it can say so the next time


def _await(api: "Api", name: str, until: float | None) -> int:
    from ..master.nodes.platform import PlatformUnavailable

    while until is None or time.monotonic() < until:
        try:
            found = _status(api, name)
        except PlatformUnavailable:
            found = {}  # the job goes on without its cluster's API
        if "exitCode" in found:
            _say(f"job {name} {'succeeded' if not found['exitCode'] else 'failed'}: {found.get('reason', '')}")
            return int(found["exitCode"])
        time.sleep(PAUSE)
    raise UsageError(f"job {name} is not over: {_text(name, _status(api, name)).splitlines()[0]}")


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
    return "\n".join(lines) + "\n"


def _nodes(found: Json) -> str:
    counts = found.get("nodes") or {}
    waiting = f" (+{counts['pending']} pending)" if counts.get("pending") else ""
    return f"{counts.get('running', 0)}{waiting}"


def _numbers(found: Json) -> tuple[str, str]:
    return str(found.get("workers", 0)), str(found.get("round", 0))


def _progress(found: Json) -> str:
    return ", ".join(f"{each['name']} {each['done']}/{each['shards']}" for each in found.get("datasets") or ())


class Tails:
    """The output of a job's pods, as it comes, each line whole."""

    def __init__(self, api: "Api", name: str, tail: int, *, master: bool, follow: bool) -> None:
        from ..master.nodes.kubernetes import objects, pods

        self._api = api
        self._query = [("labelSelector", f"{pods.JOB}={name}" + ("" if master else f",{objects.COMPONENT}=node"))]
        self._tail = tail
        self._follow = follow
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()

    def once(self) -> None:
        """What there is."""
        for pod, container in self._pods().items():
            self._copy(pod, container)

    def until(self, over: Callable[[], bool]) -> None:
        """Until the job is over, and everything is printed."""
        while True:
            ended = over()
            try:
                for pod, container in self._pods().items():
                    if pod not in self._threads:
                        thread = threading.Thread(target=self._copy, args=(pod, container), daemon=True)
                        self._threads[pod] = thread
                        thread.start()
            except PlatformError:
                pass  # asked again
            if ended:
                break
            time.sleep(LOG_PAUSE)
        for thread in self._threads.values():
            thread.join(10.0)

    def _pods(self) -> Mapping[str, str]:
        """By name, the container that has the output."""
        from ..master.nodes.kubernetes import objects, pods

        found = self._api.ask_now("get", self._api.path("pods"), query=self._query)["items"]
        begun = [
            each for each in found if (each.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")
        ]
        components = {each["metadata"]["name"]: each["metadata"]["labels"][objects.COMPONENT] for each in begun}
        return {name: pods.CONTAINER if what == "node" else what for name, what in sorted(components.items())}

    def _copy(self, pod: str, container: str) -> None:
        query: list[tuple[str, object]] = [("container", container)]
        query += [("follow", "true")] if self._follow else []
        query += [("tailLines", self._tail)] if self._tail >= 0 else []
        try:
            for line in _lines(self._api.text(self._api.path("pods", pod, "log"), query)):
                with self._lock:
                    sys.stdout.write(line)
                    sys.stdout.flush()
        except PlatformError as error:
            _say(f"the logs of {pod} end here: {error}")


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (f"{each.decode(errors='replace')}\n" for each in whole)
    if rest:
        yield rest.decode(errors="replace") + "\n"
