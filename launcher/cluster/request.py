# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What `elastic-job submit` was asked to make, as one value."""

import argparse
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from ...master.nodes.kubernetes import objects, pods, store
from ...master.nodes.kubernetes.objects import Json, Request
from ...rendezvous.host.named_files import LARGEST_SETTINGS, read_named, reason
from ...rendezvous.identity.secret import VARIABLE
from ..errors import UsageError
from ..options.parse import parse
from ..settings import Options
from .arguments import parser
from .managed_nodes import Spans, spans_of
from .model_files import pack_model, trains_model

NO_FILE = ("join-file", "tls-cert", "tls-key", "tls-ca")
"""Flags of `elastic-run` that name files with secrets, which no pod has."""

OWN_NODE = ("platform", "standalone", "node-rank", "node-name", "node-role", "local-addr")
"""Flags of `elastic-run` that say something of one node: here the master gives them."""

YEAR = 365 * 24 * 3600
"""Seconds to wait for nodes, where nothing else is said: a job in a cluster waits for its places."""

MASTER_SECONDS = 1800
"""That a master has at least to begin: for its machine to be made, and its image to be pulled."""

STORE_SIZE = 3
"""Members of a job's own store where nothing else is said: then no single pod is special."""

LONGEST_NAMES = 50
"""Characters of a job's and a role's name together: with index and attempt they are a pod's, which has 63."""

_CONTAINER: Json = {"env": [{}], "resources": {"requests": {}, "limits": {}}, "securityContext": {"capabilities": {}}}
POD: Json = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {"containers": [_CONTAINER], "initContainers": [_CONTAINER], "securityContext": {}, "tolerations": [{}]},
}
"""The parts of a pod that are read here, each as a list or a mapping of its kind."""


def request_of(
    arguments: argparse.Namespace, flags: Sequence[str], command: Sequence[str], template: Json | None = None
) -> Request:
    """What is to be submitted. Raises UsageError, BadRequest."""
    if not command:
        raise UsageError(
            "elastic-job submit: no script is given: write -- before it, as in elastic-job submit --image=IMAGE "
            "--nnodes=2:8 -- train.py"
        )
    model = pack_model(flags, command) if template is None and trains_model(command) else None
    flags, command = (model.flags, model.command) if model else (flags, command)
    for name in OWN_NODE:
        if any(word.partition("=")[0].replace("_", "-") == f"--{name}" for word in flags):
            raise UsageError(
                f"elastic-job submit: --{name} is of one node, and the job's master starts them: leave it out"
            )
    for name in NO_FILE:
        if any(word.partition("=")[0].replace("_", "-") == f"--{name}" for word in flags):
            raise UsageError(
                f"elastic-job submit: --{name} names a file, and the job's pods have none of yours: leave it out, the "
                "job gets a secret of its own"
            )
    options = parse([*flags, "--", *command], {}, workers=False, here=False)
    name = objects.check_name(arguments.name or _name(model.name if model else options.command.target))
    environment: dict[str, str] = {}
    for pair in cast(list[str], arguments.env):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"elastic-job submit: --env={pair}: write --env=NAME=VALUE")
        environment[key] = value
    given = _template(arguments.pod_template) if template is None else template
    check_pod(given)
    _refuse_secret(environment, given)
    if arguments.gpus < 0:
        raise UsageError(f"elastic-job submit: --gpus={arguments.gpus}: give a number from 0")
    check_ttl("elastic-job submit: --ttl", arguments.ttl)
    if arguments.ttl is not None and arguments.dry_run:
        raise UsageError(
            "elastic-job submit: --ttl deletes the Job, which does not own what --dry-run prints beside it: leave one "
            "of them out, or apply an ElasticJob with ttlSecondsAfterFinished"
        )
    if not re.fullmatch(r"([0-9]+(\.[0-9]+)?|[0-9]+m|)", arguments.cpu):
        raise UsageError(f"elastic-job submit: --cpu={arguments.cpu}: write a number of CPUs, such as 4 or 0.5 or 500m")
    for flag, amount in (("memory", arguments.memory), ("memory-cap", arguments.memory_cap)):
        try:
            pods.bytes_of(amount or 0)
        except ValueError as error:
            raise UsageError(f"elastic-job submit: --{flag}: {error}") from None
    roles = tuple(role.name for role in options.roles) or ("",)
    for role in roles:
        if role and (not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", role) or len(name) + len(role) > LONGEST_NAMES):
            raise UsageError(
                f"elastic-job submit: pods cannot be named after the role {role} of job {name}: in a cluster a role is "
                f"lowercase letters, digits and hyphens, and with the job's name at most {LONGEST_NAMES} of them"
            )
    size = _store_size(arguments, options)
    _refuse_bare(options)
    store.check(size, roles)
    endpoint = ",".join(each.typed for each in options.store.endpoints) or store.endpoints(name, size)
    return objects.Request(
        name=name,
        run=options.job_id if options.job_id_given else f"{name}-{secrets.token_hex(3)}",
        image=arguments.image,
        flags=_conf(options.given, hosted=not endpoint),
        command=(options.command.target, *options.command.args),
        roles=roles,
        endpoint=endpoint,
        store_size=size,
        store_image=arguments.store_image,
        secret="" if options.trust.insecure else name,
        cpu=arguments.cpu,
        memory=arguments.memory,
        gpus=arguments.gpus,
        priority_class=arguments.priority_class,
        high_priority_class=arguments.high_priority_class,
        high_priority=_high_priority(arguments, spans_of(options)),
        master_priority_class=arguments.master_priority_class,
        queue=_queue(arguments),
        master_queue=arguments.master_queue,
        service_account=arguments.service_account or objects.SERVICE_ACCOUNT,
        image_pull_policy=arguments.image_pull_policy,
        env=environment,
        template=given,
        grace=options.shutdown_timeout,
        memory_cap=pods.bytes_of(arguments.memory_cap or 0),
        # Not where it is applied: who applies it again would limit the job that trains.
        patience=0 if arguments.dry_run else _patience(options),
        ttl=arguments.ttl,
        model=model.files if model else {},
    )


def submitted(words: Sequence[str], template: Json) -> Request:
    """What `elastic-job submit` with these words would make, of that pod. Raises UsageError, BadRequest."""
    behind = words.index("--")
    arguments, flags = parser().parse_known_args(["submit", *words[:behind]])
    return request_of(arguments, flags, words[behind + 1 :], template)


def check_ttl(what: str, seconds: int | None) -> None:
    """Raises UsageError where a job would go before whoever waits for it can have read how it has ended."""
    if seconds is not None and not 60 <= seconds < 2**31:
        why = "a job that goes sooner may be gone before elastic-job wait reads its exit code"
        raise UsageError(f"{what}={seconds}: give a number of seconds from 60 to {2**31 - 1}: {why}")


def check_pod(given: object, shape: object = POD, where: str = "the pod template") -> None:
    """Raises UsageError where it is no pod: what is read of it here is a list or a mapping, as a pod's is."""
    if not isinstance(given, type(shape)):
        wanted = "a list" if isinstance(shape, list) else "a mapping"
        raise UsageError(f"{where} is {str(given)[:80]!r}: {wanted} belongs there, as kubectl explain pod.spec shows")
    if isinstance(given, list):
        for each in cast(list[object], given):
            check_pod(each, cast(list[object], shape)[0], f"an item of {where}")
    elif isinstance(given, dict):
        if shape is POD["spec"] and cast(Json, given).get("nodeName"):
            # No scheduler looks then for room, and a cluster removes at once what is on a machine that it has not.
            raise UsageError(f"nodeName of {where}: give nodeSelector in its place: the scheduler places each node")
        for key, part in cast(Json, shape).items():
            if (found := cast(Json, given).get(key)) is not None:
                check_pod(found, part, f"{key} of {where}")


def _refuse_secret(environment: Mapping[str, str], template: Json) -> None:
    """Raises UsageError where the user gives the job's secret where everybody reads it."""
    containers = cast(Sequence[Json], (template.get("spec") or {}).get("containers") or ())
    variables = [each.get("name") for container in containers for each in container.get("env") or ()]
    if VARIABLE in environment or VARIABLE in variables:
        raise UsageError(
            f"elastic-job submit: {VARIABLE} would stand in the job's objects for everybody to read: leave it out, the "
            "job gets a secret of its own"
        )


def _refuse_bare(options: Options) -> None:
    """Raises UsageError where nobody says whether an etcd of the user's own is encrypted."""
    for each in options.store.endpoints:
        if not each.own and not options.trust.insecure and not options.store.credentials.tls:
            raise UsageError(
                f"elastic-job submit: --rdzv-endpoint={each}: write https://{each} where that etcd has TLS, or "
                f"http://{each} where it has none and anyone who reaches it may read and change all that is in it"
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


def _queue(arguments: argparse.Namespace) -> str:
    """The queue of the nodes. Raises UsageError where something else does not go with one."""
    queue = str(arguments.queue)
    for flag, value in (("memory-cap", arguments.memory_cap), ("high-priority-class", arguments.high_priority_class)):
        if queue and value:
            raise UsageError(
                f"elastic-job submit: --{flag} gives some nodes other pods than others, and with --queue the nodes of "
                "a role are one Indexed Job, whose pods are equal: leave out one of them"
            )
    return queue


def _store_size(arguments: argparse.Namespace, options: Options) -> int:
    """Members of the store that is made for the job. Raises UsageError."""
    size = cast("int | None", arguments.store_replicas)
    given = [name for name in ("store-replicas", "store-image") if getattr(arguments, name.replace("-", "_"))]
    if options.store.endpoints:
        if given:
            raise UsageError(
                f"elastic-job submit: --{given[0]} is for a store that is made for the job, and --rdzv-endpoint names "
                "another: leave out one of them"
            )
        return 0
    if size == 0 and arguments.store_image:
        raise UsageError("elastic-job submit: --store-image has no effect with --store-replicas=0: leave it out")
    return STORE_SIZE if size is None else size


def _conf(flags: Sequence[str], *, hosted: bool) -> tuple[str, ...]:
    """The flags, with a year's patience for nodes where the user said no other: the cluster says how long they take.

    Args:
        hosted: a pod may start an etcd: the master's.
    """
    conf, keys = _given_conf(flags)
    more = [f"{key}={YEAR}" for key in ("join_timeout", "recovery_timeout") if key not in keys]
    more = more[1:] if "timeout" in keys and "join_timeout" not in keys else more
    more += [] if hosted or "is_host" in keys else ["is_host=false"]
    told = ",".join(filter(None, (conf.partition("=")[2], *more)))
    return (*(each for each in flags if each != conf), f"--rdzv-conf={told}")


def _given_conf(flags: Sequence[str]) -> tuple[str, set[str]]:
    """The flag --rdzv-conf, and which settings it has."""
    conf = next((each for each in flags if each.startswith("--rdzv-conf=")), "--rdzv-conf=")
    return conf, {pair.partition("=")[0].strip() for pair in conf.partition("=")[2].split(",")}


def _patience(options: Options) -> int:
    """Seconds until the cluster itself gives up a job whose master has not begun: as long as that waits for nodes."""
    user_said = _given_conf(options.given)[1] & {"join_timeout", "timeout"}
    return max(MASTER_SECONDS, math.ceil(options.timing.join_timeout)) if user_said else YEAR


def _name(target: str) -> str:
    """Made of the script's, and never twice the same."""
    words = re.sub(r"[^a-z0-9]+", "-", Path(target).stem.lower()).strip("-")
    return f"{words[:24] if words[:1].isalpha() else 'job'}-{secrets.token_hex(2)}".replace("--", "-")


def _template(file: str | None) -> Json:
    if file is None:
        return {}
    import yaml

    try:
        found = yaml.safe_load(read_named(Path(file), LARGEST_SETTINGS).decode())
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"elastic-job submit: --pod-template={file} cannot be read: {reason(error)}") from None
    if not isinstance(found, dict) or not isinstance(cast(Json, found).get("spec"), dict):
        raise UsageError(f"elastic-job submit: --pod-template={file} is no pod: it has no spec")
    return cast(Json, found)
