"""What the command line asks for, as values; what can be wrong with it is found here, before anything starts.

`parse` is the door. It reads the table of flags, the environment's mirrors and a few facts of this machine (does the
script exist, how many GPUs are there), and returns frozen values or raises `UsageError` with what was wrong and what
to do. It starts nothing, imports no framework and leaves nothing behind.
"""

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from ...adapters import registry
from ...adapters.plain import Plain
from ...rendezvous.member import MAX_WORKER_PORTS
from ...rendezvous.ranks import PORT_SETS
from ...rendezvous.roles import Role
from ...rendezvous.round import OnHang, OnStraggler, ScaleUp
from ...rendezvous.store.endpoint import DEFAULT_PORT, MalformedEndpoint, authority, parse_endpoints
from ...rendezvous.version import VERSION
from ..errors import UsageError
from ..settings import Command, Nodes, Options, ServerCount
from . import config_file, flags, roles
from .command import check_target, derived_job_id, read_command, user_of
from .flags import Scanned, did_you_mean
from .output import read_output
from .preflight import check_descriptors, check_packages
from .rendezvous import read_conf, read_credentials, read_store, read_trust
from .values import label, seconds, shutdown_timeout, size, whole

UNSIZED = "1:64"
"""The nodes of a job with a plan and no --nnodes."""

NUMBER_DIGITS = 9
"""Of the largest number of nodes, and of workers per node."""

MOST_SERVERS = 128
"""As in `master/servers/placement.py`, which is a wing's."""

ELSEWHERE = ("log-dir", "store-dir", "summary-json", "trace", "history")
"""Flags whose files are of the machine on which a node runs."""


def parse(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    workers: bool = True,
    here: bool = True,
    folder: Path | None = None,
) -> Options:
    """What `argv` (without the program's name) asks for.

    Args:
        workers: they run here; False: this machine's devices are not counted.
        here: the command is run on this machine; False: nothing is looked for on it, neither the script nor folders.
        folder: where a configuration file is looked for; None: nowhere.

    Raises:
        UsageError: it cannot be run; the message is for the user.
        SystemExit: `--help`, `--version` or `--print-completion` was asked for and has been printed.
    """
    scanned = flags.scan(argv, environ)
    if scanned.has("help"):
        sys.stdout.write(flags.help_text(min(shutil.get_terminal_size().columns, 100)))
        raise SystemExit(0)
    if scanned.has("version"):
        sys.stdout.write(f"elastic-run {VERSION}\n")
        raise SystemExit(0)

    if scanned.has("print-completion"):
        sys.stdout.write(flags.completion(scanned.text("print-completion") or ""))
        raise SystemExit(0)

    scanned, added = config_file.completed(scanned, folder)
    scanned, trust = read_trust(scanned, environ, here=here)
    notes = [*added, *flags.notes(scanned)]
    adapter = _adapter(scanned, here=here)
    declared = roles.read(scanned, adapter)
    nodes = _nodes(scanned, notes) if scanned.has("nnodes") or not declared else None
    nodes = roles.nodes(declared, scanned, nodes) if declared or nodes is None else nodes
    nproc_spec = scanned.text("nproc-per-node") or ""
    nproc = _nproc(scanned, environ, adapter) if workers else 1
    most = max([nproc, *(role.nproc for role in declared)])
    ports = most * adapter.worker_ports * PORT_SETS
    if ports > MAX_WORKER_PORTS:
        raise UsageError(
            f"{scanned.source('nproc-per-node')}: for {most} workers {scanned.source('framework')} needs "
            f"{ports} ports on this machine, and {MAX_WORKER_PORTS} is the limit: start fewer workers per node"
        )
    if here:
        check_descriptors(most, nodes.maximum)
    timing, credentials_in_conf, hosted = read_conf(scanned, notes)
    credentials = read_credentials(scanned, credentials_in_conf, environ)
    given = tuple(_for_other_nodes(scanned))
    if not here:
        scanned = scanned.without(ELSEWHERE)
    command = read_command(scanned, environ, notes, here=here)
    if here and workers and command.kind != "executable":
        first = Path(command.target).absolute().parent if command.kind == "script" else Path.cwd()
        check_packages(scanned.source("framework"), adapter.needs, command.python, first)
    for role in declared:
        if role.command and here:
            check_target(command.kind, role.command[0], environ)
    job_id = scanned.text("rdzv-id")
    node_rank = whole(scanned, "node-rank", 0) if scanned.has("node-rank") else None
    if node_rank is not None and node_rank >= nodes.maximum:
        raise UsageError(
            f"{scanned.source('node-rank')} is out of range: --nnodes={nodes} has the ranks 0 to {nodes.maximum - 1}"
        )
    return Options(
        command=command,
        adapter=adapter,
        nodes=nodes,
        nproc=nproc,
        nproc_spec=nproc_spec,
        store=replace(read_store(scanned, nodes, credentials, environ, notes), hosted=hosted),
        job_id=job_id or derived_job_id(command, user_of(environ), environ.get("SLURM_JOB_ID", "")),
        job_id_given=job_id is not None,
        timing=timing,
        max_restarts=whole(scanned, "max-restarts", 0),
        same_failure_limit=whole(scanned, "same-failure-limit", 0),
        own_failure_limit=0 if scanned.has("max-restarts") or scanned.has("same-failure-limit") else 2,
        on_hang=cast(OnHang, scanned.text("on-hang")),  # one of the table's choices
        on_straggler=cast(OnStraggler, scanned.text("on-straggler")),  # as above
        hang_timeout=seconds(scanned.text("hang-timeout") or "", scanned.source("hang-timeout")),
        scale_up=cast(ScaleUp, scanned.text("scale-up")),  # as above
        role=label(scanned, "role") or "",
        node_rank=node_rank,
        local_addr=_local_addr(scanned),
        node_name=label(scanned, "node-name"),
        topology=label(scanned, "topology") or "",
        signals=_signals(scanned),
        shutdown_timeout=shutdown_timeout(scanned, environ),
        grace_after_failure=seconds(scanned.text("grace-after-failure") or "", scanned.source("grace-after-failure")),
        keep_detached=scanned.text("detached") == "keep",
        virtual_local_rank=scanned.has("virtual-local-rank"),
        warm=scanned.text("start-method") != "spawn",
        preload=_preload(scanned),
        explain=scanned.has("explain-preload"),
        dry_run=scanned.has("dry-run"),
        node_check=scanned.has("node-check"),
        roles=declared,
        node_role=roles.node_role(declared, scanned),
        servers=_servers(scanned, command, here=here),
        plan=_plan(scanned, nodes, declared, here=here),
        platform=_platform(scanned, workers),
        output=read_output(scanned, most, environ),
        given=given,
        notes=tuple(notes),
        trust=trust,
    )


# -- one group of flags each ------------------------------------------------------------------------------------


def _nodes(scanned: Scanned, notes: list[str]) -> Nodes:
    text, source = scanned.text("nnodes") or "", scanned.source("nnodes")
    if scanned.text("plan") and not scanned.has("nnodes"):
        text = UNSIZED
    match = re.fullmatch(r"\s*([0-9]+)(?::([0-9]+))?\s*", text)
    if not match:
        raise UsageError(f"{source} is neither a number nor MIN:MAX: write --nnodes=4 or --nnodes=2:8")
    if any(len(number.lstrip("0")) > NUMBER_DIGITS for number in match.groups() if number):
        raise UsageError(f"{source} is more nodes than a job can have: at most {10**NUMBER_DIGITS - 1}")
    least, most = int(match[1]), int(match[2] or match[1])
    if least > most:
        raise UsageError(
            f"{source} has its minimum above its maximum: write --nnodes={most or 1}:{least}"
            if most
            else f"{source} has a maximum of 0: write --nnodes={least} or more"
        )
    if least < 1:
        raise UsageError(f"{source}: a job needs at least one node: write --nnodes=1{f':{most}' if most > 1 else ''}")
    if scanned.has("standalone") and most > 1:
        if least > 1:
            raise UsageError(
                f"{scanned.source('standalone')} means this machine only, and {source} asks for {least}: leave out "
                "one of them"
            )
        notes.append(f"{source} is read as 1: {scanned.source('standalone')} means this machine only")
        most = 1
    unit = whole(scanned, "node-unit", 1)
    if most // unit * unit < least:
        raise UsageError(
            f"{scanned.source('node-unit')}: no multiple of {unit} lies within {source}: change one of the two, "
            f"for example --nnodes={least}:{(least + unit - 1) // unit * unit}"
        )
    return Nodes(least, most, unit)


SERVER_FLAGS = ("ps-replicas", "ps-checkpoint", "ps-checkpoint-every", "ps-memory", "ps-disk", "ps-log")
"""Of a job with parameter servers."""


def _servers(scanned: Scanned, command: Command, *, here: bool) -> ServerCount | None:
    text, source = (scanned.text("servers") or "").strip(), scanned.source("servers")
    match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text)
    if not match:
        raise UsageError(f"{source} is neither a number nor MIN:MAX: write --servers=2 or --servers=2:8")
    least, most = int(match[1]), int(match[2] or match[1])
    given = next((name for name in SERVER_FLAGS if scanned.has(name)), "")
    if not most and not given:
        return None
    if not most:
        raise UsageError(f"{scanned.source(given)} is for parameter servers: write --servers=2 as well")
    if not 1 <= least <= most <= MOST_SERVERS:
        raise UsageError(f"{source}: a job has from 1 to {MOST_SERVERS} servers, the fewest first: write --servers=2:8")
    replicas = whole(scanned, "ps-replicas", 0) if scanned.has("ps-replicas") else int(least > 1)
    if replicas > 1:
        raise UsageError(f"{scanned.source('ps-replicas')}: what a server holds, one other server has, or none: 1 or 0")
    if replicas and least < 2:
        raise UsageError(f"{scanned.source('ps-replicas')}: one server has no other: write --servers=2 or more")
    folder, every = scanned.text("ps-checkpoint") or "", scanned.source("ps-checkpoint-every")
    seconds_between = seconds(scanned.text("ps-checkpoint-every") or "", every)
    if seconds_between < 1:
        raise UsageError(f"{every}: each checkpoint has all rows: write --ps-checkpoint-every=1 or more")
    if not folder and scanned.has("ps-checkpoint-every"):
        raise UsageError(f"{every} says when, and not where: write --ps-checkpoint=DIR as well")
    memory = size(scanned.text("ps-memory") or "", scanned.source("ps-memory")) if scanned.has("ps-memory") else 0
    disk, room = _disk(scanned)
    log = scanned.text("ps-log") or ""
    if log and replicas:
        raise UsageError(
            f"{scanned.source('ps-log')} is for rows that no other server has, and here each has a copy: leave it out, "
            "or write --ps-replicas=0 as well"
        )
    if log and disk:
        raise UsageError(
            f"{scanned.source('ps-log')} is for rows that are all in memory: leave out one of it and "
            f"{scanned.source('ps-disk')}"
        )
    log = log and str(Path(log).absolute())
    if here:
        check_packages(source, ("numpy", "numba"), command.python, Path.cwd())
    return ServerCount(
        least, most, replicas, folder and str(Path(folder).absolute()), seconds_between, memory, disk, room, log
    )


def _disk(scanned: Scanned) -> tuple[str, int]:
    """Where rows go that do not fit into memory, and how many bytes of them; nowhere by default."""
    if not scanned.has("ps-disk"):
        return "", 0
    source = scanned.source("ps-disk")
    folder, colon, room = (scanned.text("ps-disk") or "").rpartition(":")
    if not folder or not colon:
        raise UsageError(f"{source} does not say how much: write --ps-disk=DIR:SIZE, for example /scratch:200GiB")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise UsageError(f"{source}: {folder} is a file: name a folder")
    return str(Path(folder).absolute()), size(room, source)


def _plan(scanned: Scanned, nodes: Nodes, declared: Sequence[Role], *, here: bool) -> str:
    text, source = (scanned.text("plan") or "").strip(), scanned.source("plan")
    if not text:
        return ""
    from ...master.resources.planners import BUILT_IN, NoPlanner, load  # here, because few jobs have one

    try:
        if here or text.partition(":")[0] in BUILT_IN:  # else the image may have it
            load(text)
    except NoPlanner as error:
        raise UsageError(f"{source}: {error}") from None
    if declared:
        raise UsageError(f"{source} sizes a job without roles: leave out one of it and {scanned.source('roles')}")
    if scanned.text("scale-up") == "never":
        raise UsageError(f"{source} changes the number of nodes, and {scanned.source('scale-up')} forbids it")
    if nodes.minimum == nodes.maximum:
        raise UsageError(f"{source} chooses within a span: write --nnodes=1:{max(8, nodes.maximum)}, or no --nnodes")
    return text


def _platform(scanned: Scanned, workers: bool) -> Literal["", "kubernetes"]:
    if scanned.has("platform") and workers:
        raise UsageError(
            f"{scanned.source('platform')} is for elastic-run master, which starts no workers of its own: write "
            "elastic-run master, or leave it out"
        )
    return cast(Literal["", "kubernetes"], scanned.text("platform") or "")  # one of the table's choices


def _adapter(scanned: Scanned, *, here: bool) -> Plain:
    try:
        adapter = registry.adapter((scanned.text("framework") or "").strip(), here=here)
    except registry.NoAdapter as error:
        raise UsageError(f"{scanned.source('framework')}: {error}") from None
    if scanned.has("virtual-local-rank") and not adapter.visible_devices:
        raise UsageError(
            f"--virtual-local-rank: the adapter for {adapter.name} knows of no variable that shows a worker one device"
        )
    return adapter


def _nproc(scanned: Scanned, environ: Mapping[str, str], adapter: Plain) -> int:
    text, source = (scanned.text("nproc-per-node") or "").strip(), scanned.source("nproc-per-node")
    if text == "cpu":
        return len(os.sched_getaffinity(0))
    if text in ("gpu", "auto"):
        found = adapter.accelerators(environ)
        if not found.count and text == "gpu":
            raise UsageError(f"{source}: no {found.sought}: for other devices give the number, or use auto or cpu")
        return found.count or len(os.sched_getaffinity(0))
    if re.fullmatch(r"[+-]?[0-9]+", text):
        if len(text.lstrip("+-0")) > NUMBER_DIGITS and not text.startswith("-"):
            raise UsageError(f"{source} is more workers than a node can have: at most {10**NUMBER_DIGITS - 1}")
        if text.startswith("-") or int(text) < 1:
            raise UsageError(f"{source}: a node needs at least one worker: give a number from 1, auto, cpu or gpu")
        return int(text)
    if text in ("xpu", "mps", "hpu", "npu", "mlu", "tpu", "musa"):
        raise UsageError(f"{source}: {text} devices cannot be counted without their framework: give the number")
    raise UsageError(
        f"{source} is neither a number nor one of auto, cpu, gpu{did_you_mean(text, ('auto', 'cpu', 'gpu'))}"
    )


def _preload(scanned: Scanned) -> tuple[str, ...] | None:
    """The modules to be imported ahead by the user's own word; None: nothing at all."""
    given = scanned.text("preload") or ""
    if given == "none":
        return None
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(
                f"{scanned.source('preload')}: {name!r} is not a module name; give names as for `import`, "
                "separated by commas, or none"
            )
    return names


def _signals(scanned: Scanned) -> tuple[signal.Signals, ...]:
    source = scanned.source("signals-to-handle")
    known = sorted(set(signal.Signals.__members__) - {"SIGKILL", "SIGSTOP"})
    found: dict[signal.Signals, None] = {}
    for name in (name.strip() for name in (scanned.text("signals-to-handle") or "").split(",")):
        if name in ("SIGKILL", "SIGSTOP"):
            raise UsageError(f"{source}: no process can handle {name}: leave it out")
        if name in ("SIGCHLD", "SIGCLD"):
            raise UsageError(f"{source}: the agent needs {name} for its own children: leave it out")
        if name not in known:
            raise UsageError(f"{source}: unknown signal {name!r}{did_you_mean(name.upper(), known)}")
        found[signal.Signals[name]] = None
    return tuple(found)


def _local_addr(scanned: Scanned) -> str | None:
    text = scanned.text("local-addr")
    if text is None:
        return None
    host = text.strip().removeprefix("[").removesuffix("]")
    if not host or re.search(r"[\s/,\[\]]", host):
        raise UsageError(
            f"{scanned.source('local-addr')} is neither an address nor a host name: write for example 10.0.0.5"
        )
    try:
        parse_endpoints(authority(host, DEFAULT_PORT))
    except MalformedEndpoint as error:
        raise UsageError(f"{scanned.source('local-addr')}: {error}") from None
    return host


def _for_other_nodes(scanned: Scanned) -> Iterable[str]:
    """The given flags that the job's other nodes must have as well, without those that say where to meet."""
    elsewhere = {"rdzv-endpoint", "rdzv-id", "rdzv-backend", "master-addr", "master-port"}
    for flag in flags.FLAGS:
        if scanned.has(flag.name) and flag.status == "honoured" and not flag.own_node and flag.name not in elsewhere:
            if not flag.metavar:
                yield f"--{flag.name}"
            elif flag.repeated:
                yield from (f"--{flag.name}={text}" for text in scanned.texts(flag.name))
            else:
                yield f"--{flag.name}={scanned.text(flag.name)}"
