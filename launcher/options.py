"""What the command line asks for, as values; what can be wrong with it is found here, before anything starts.

`parse` is the door. It reads the table of flags, the environment's mirrors and a few facts of this machine (does the
script exist, how many GPUs are there), and returns frozen values or raises `UsageError` with what was wrong and what
to do. It starts nothing, imports no framework and leaves nothing behind.
"""

import hashlib
import json
import math
import os
import pwd
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, cast, get_args

from ..adapters import registry
from ..adapters.contract import Adapter
from ..rendezvous.member import MAX_WORKER_PORTS
from ..rendezvous.peers import SETS
from ..rendezvous.round import ScaleUp
from ..rendezvous.store.endpoint import DEFAULT_PORT, MalformedEndpoint, authority, parse_endpoints
from ..rendezvous.version import VERSION
from . import flags, roles
from .flags import Scanned, UsageError, did_you_mean
from .preflight import (
    check_descriptors,
    check_executable,
    check_module,
    check_platform,
    check_readable,
    check_room,
    check_script,
    check_writable_file,
    workers_python,
)
from .settings import (
    Command,
    Credentials,
    Kind,
    Nodes,
    Options,
    Output,
    Std,
    Store,
    Timing,
    join_command,
)
from .slurm import allocation_host

__all__ = [
    "Command",
    "Credentials",
    "Nodes",
    "Options",
    "Output",
    "Std",
    "Store",
    "Timing",
    "UsageError",
    "check_platform",
    "join_command",
    "parse",
]

NUMBER_DIGITS = 9
"""Of the largest number of nodes, and of workers per node."""

LONGEST_LABEL = 200
"""Characters of a name that this node gives itself; it becomes part of keys in the store, and may get a number."""

MIN_LEASE_TTL = 2
"""Seconds. Etcd looks for expired leases every half second, and a keep-alive needs time to arrive."""

LINE_PREFIX = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
"""Torchrun's other name of `--log-line-prefix-template`, which comes first."""

CONF_ALIASES: Mapping[str, str] = {"last_call": "last_call_timeout", "timeout": "join_timeout"}
"""Other names of our keys in `--rdzv-conf`; `timeout` is that of torchrun's static and etcd backends."""

CONF_KEEP_ALIVE = ("keep_alive_interval", "keep_alive_max_attempt")
"""Torchrun's two keys whose product is our lease_ttl; its defaults are 5 and 3."""

CONF_CREDENTIALS: Mapping[str, str] = {
    "cacert": "etcd-cacert",
    "ca_cert": "etcd-cacert",
    "cert": "etcd-cert",
    "ssl_cert": "etcd-cert",
    "key": "etcd-key",
    "ssl_cert_key": "etcd-key",
}
"""Torchrun's keys for its etcd backends, and the flags of ours that they stand for."""

CONF_WITHOUT_EFFECT: Mapping[str, str] = {
    "is_host": "the machine that the endpoint names starts the store",
    "read_timeout": "each call to the store has its own short deadline",
    "heartbeat_timeout": "lease_ttl determines when a silent node is lost",
    "store_type": "the store is etcd, or inside the agent",
    "rank": "--node-rank sets it",
    "etcd_prefix": "a job's keys are under /elastic-run/<id>/",
}
"""Torchrun's keys that say nothing here, each with the reason."""


ELSEWHERE = ("log-dir", "store-dir", "summary-json", "trace")
"""Flags whose files are of the machine on which a node runs."""


def parse(argv: Sequence[str], environ: Mapping[str, str], *, workers: bool = True, here: bool = True) -> Options:
    """What `argv` (without the program's name) asks for.

    Args:
        workers: they run here; False: this machine's devices are not counted.
        here: the command is run on this machine; False: nothing is looked for on it, neither the script nor folders.

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

    notes = list(flags.notes(scanned))
    adapter = _adapter(scanned)
    declared = roles.read(scanned, adapter)
    nodes = _nodes(scanned, notes) if scanned.has("nnodes") or not declared else None
    nodes = roles.nodes(declared, scanned, nodes) if declared or nodes is None else nodes
    nproc_spec = scanned.text("nproc-per-node") or ""
    nproc = _nproc(scanned, environ, adapter) if workers else 1
    most = max([nproc, *(role.nproc for role in declared)])
    if most * adapter.worker_ports * SETS > MAX_WORKER_PORTS:
        raise UsageError(
            f"{scanned.source('nproc-per-node')}: for {most} workers --framework={adapter.name} needs "
            f"{most * adapter.worker_ports * SETS} ports on this machine, and {MAX_WORKER_PORTS} is the limit: start "
            "fewer workers per node"
        )
    if here:
        check_descriptors(most, nodes.maximum)
    timing, credentials_in_conf = _conf(scanned, notes)
    credentials = _credentials(scanned, credentials_in_conf, environ)
    given = tuple(_for_other_nodes(scanned))
    if not here:
        scanned = scanned.without(ELSEWHERE)
    command = _command(scanned, environ, notes, here=here)
    for role in declared:
        if role.command and here:
            _check_target(command.kind, role.command[0], environ)
    job_id = scanned.text("rdzv-id")
    node_rank = _whole(scanned, "node-rank", 0) if scanned.has("node-rank") else None
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
        store=_store(scanned, nodes, credentials, environ, notes),
        job_id=job_id or derived_job_id(command, _user(environ), environ.get("SLURM_JOB_ID", "")),
        job_id_given=job_id is not None,
        timing=timing,
        max_restarts=_whole(scanned, "max-restarts", 0),
        same_failure_limit=_whole(scanned, "same-failure-limit", 0),
        scale_up=_scale_up(scanned),
        role=_label(scanned, "role") or "",
        node_rank=node_rank,
        local_addr=_local_addr(scanned),
        node_name=_label(scanned, "node-name"),
        topology=_label(scanned, "topology") or "",
        signals=_signals(scanned),
        shutdown_timeout=_shutdown_timeout(scanned, environ),
        keep_detached=scanned.text("detached") == "keep",
        virtual_local_rank=scanned.has("virtual-local-rank"),
        warm=scanned.text("start-method") != "spawn",
        preload=_preload(scanned),
        explain=scanned.has("explain-preload"),
        roles=declared,
        node_role=roles.node_role(declared, scanned),
        platform=_platform(scanned, workers),
        output=_output(scanned, most, environ),
        given=given,
        notes=tuple(notes),
    )


def derived_job_id(command: Command, user: str, allocation: str = "") -> str:
    """A name that is the same wherever the same user runs the same command (pure).

    `allocation` is Slurm's job, so that two submissions of one command to one store stay two jobs.
    """
    name = command.target if command.kind == "module" else Path(command.target).stem
    target = command.target if command.kind == "module" else os.path.normpath(command.target)
    facts = json.dumps([command.kind, target, command.args, user, allocation])
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "job"
    return f"{readable}-{hashlib.blake2b(facts.encode(), digest_size=4).hexdigest()}"


# -- one group of flags each ------------------------------------------------------------------------------------


def _nodes(scanned: Scanned, notes: list[str]) -> Nodes:
    text, source = scanned.text("nnodes") or "", scanned.source("nnodes")
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
    unit = _whole(scanned, "node-unit", 1)
    if most // unit * unit < least:
        raise UsageError(
            f"{scanned.source('node-unit')}: no multiple of {unit} lies within {source}: change one of the two, "
            f"for example --nnodes={least}:{(least + unit - 1) // unit * unit}"
        )
    return Nodes(least, most, unit)


def _platform(scanned: Scanned, workers: bool) -> Literal["", "kubernetes", "local"]:
    if scanned.has("platform") and workers:
        raise UsageError(
            f"{scanned.source('platform')} is for elastic-run master, which starts no workers of its own: write "
            "elastic-run master, or leave it out"
        )
    return cast(Literal["", "kubernetes", "local"], scanned.text("platform") or "")  # one of the table's choices


def _adapter(scanned: Scanned) -> Adapter:
    try:
        adapter = registry.adapter((scanned.text("framework") or "").strip())
    except registry.NoAdapter as error:
        raise UsageError(f"{scanned.source('framework')}: {error}") from None
    if scanned.has("virtual-local-rank") and not adapter.visible_devices:
        raise UsageError(
            f"--virtual-local-rank: the adapter for {adapter.name} knows of no variable that shows a worker one device"
        )
    return adapter


def _nproc(scanned: Scanned, environ: Mapping[str, str], adapter: Adapter) -> int:
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


def _conf(scanned: Scanned, notes: list[str]) -> tuple[Timing, dict[str, str]]:
    """`--rdzv-conf`: the timing, and what it says of credentials (by flag name; `protocol` beside them)."""
    timing = {knob.name for knob in fields(Timing)}
    known = [*timing, *CONF_ALIASES, *CONF_KEEP_ALIVE, *CONF_CREDENTIALS, *CONF_WITHOUT_EFFECT, "protocol"]
    origin = scanned.source("rdzv-conf").partition("=")[0].partition(" ")[0]
    times: dict[str, float] = {}
    aliased: dict[str, float] = {}
    keep_alive: dict[str, float] = {}
    credentials: dict[str, str] = {}
    for pair in (pair.strip() for pair in (scanned.text("rdzv-conf") or "").split(",")):
        if not pair:
            continue
        key, equals, value = (part.strip() for part in pair.partition("="))
        where = f"{origin}: {pair}"
        if key not in known:
            raise UsageError(
                f"{origin}: unknown key {key!r}{did_you_mean(key, known)} Ours are {', '.join(sorted(timing))}"
            )
        if not equals or not value:
            raise UsageError(f"{where} has no value: write {key}=VALUE")
        if key in timing:
            times[key] = _seconds(value, where)
        elif key in CONF_ALIASES:
            aliased[CONF_ALIASES[key]] = _seconds(value, where)
        elif key in CONF_KEEP_ALIVE:
            keep_alive[key] = _seconds(value, where)
        elif key in CONF_CREDENTIALS:
            credentials[CONF_CREDENTIALS[key]] = value
        elif key == "protocol":
            if value.lower() not in ("http", "https"):
                raise UsageError(f"{where} is neither http nor https")
            credentials["protocol"] = value.lower()
        else:
            notes.append(f"{where} has no effect: {CONF_WITHOUT_EFFECT[key]}")
    if keep_alive and "lease_ttl" not in times:
        product = keep_alive.get("keep_alive_interval", 5.0) * keep_alive.get("keep_alive_max_attempt", 3.0)
        ttl = max(MIN_LEASE_TTL, math.ceil(product))
        notes.append(
            f"{origin}: {' and '.join(keep_alive)} {'is' if len(keep_alive) == 1 else 'are'} read as lease_ttl={ttl}: "
            "a node that is silent for so many seconds is lost"
        )
        times["lease_ttl"] = ttl
    times = aliased | times
    if (ttl := times.get("lease_ttl")) is not None:
        if ttl < MIN_LEASE_TTL or ttl != int(ttl):
            raise UsageError(f"{origin}: lease_ttl={ttl:g} must be whole seconds, at least {MIN_LEASE_TTL}")
        times["lease_ttl"] = int(ttl)
    return replace(Timing(), **times), credentials


def _credentials(scanned: Scanned, conf: Mapping[str, str], environ: Mapping[str, str]) -> Credentials:
    paths: dict[str, Path | None] = {}
    for name in ("etcd-cacert", "etcd-cert", "etcd-key"):
        text = scanned.text(name) or conf.get(name)
        if text is not None:
            check_readable(text, f"--{name}={text}")
        paths[name] = Path(text) if text is not None else None
    cacert, cert, key = paths.values()
    if (cert is None) != (key is None):
        raise UsageError("--etcd-cert and --etcd-key belong together: give both, or neither")
    user, password = "", ""
    if (text := scanned.text("etcd-user")) is not None:
        source = scanned.source("etcd-user")
        if text.startswith("@"):
            check_readable(text[1:], source)
            user, colon, password = Path(text[1:]).read_text(encoding="utf-8").strip().partition(":")
            if not (user and colon and password) or "\n" in password:
                raise UsageError(f"{source}: the file must hold one line, user:password")
        elif ":" in text:
            # Not echoed: the message may end up in a log.
            raise UsageError(
                "--etcd-user: every user of this machine can read a password on a command line: put it into "
                "ELASTIC_RUN_ETCD_PASSWORD, or user:password into a file and write --etcd-user=@FILE"
            )
        else:
            user, password = text, environ.get("ELASTIC_RUN_ETCD_PASSWORD", "")
            if not password:
                raise UsageError(f"{source} has no password: put it into ELASTIC_RUN_ETCD_PASSWORD")
    if conf.get("protocol") == "http" and (cacert or cert):
        raise UsageError("--rdzv-conf: protocol=http contradicts the certificates: leave out one of them")
    tls = cacert is not None or cert is not None or conf.get("protocol") == "https"
    return Credentials(tls, cacert, cert, key, user, password)


def _store(
    scanned: Scanned, nodes: Nodes, credentials: Credentials, environ: Mapping[str, str], notes: list[str]
) -> Store:
    directory = _folder(scanned, "store-dir")
    endpoint = (scanned.text("rdzv-endpoint") or "").strip()
    backends = ("c10d", "etcd", "etcd-v2", "static")
    backend = scanned.text("rdzv-backend") or ""
    if backend not in backends:
        raise UsageError(
            f"{scanned.source('rdzv-backend')} is not one of {', '.join(backends)} (all select the etcd store at the "
            f"endpoint){did_you_mean(backend, backends)}"
        )
    master = [name for name in ("master-addr", "master-port") if scanned.has(name)]
    port = _whole(scanned, "master-port", 1, 65535, "ports are 1 to 65535")
    default_port = DEFAULT_PORT
    alone = scanned.has("standalone")
    if alone or (nodes.maximum == 1 and (not endpoint or _any_port(endpoint))):
        idle = [*master, "store-dir", "rdzv-endpoint"] if alone else [*master, "store-dir"]
        for name in idle:
            if scanned.has(name) and scanned.text(name):
                notes.append(f"{scanned.source(name)} has no effect: a job of one node keeps its store in the agent")
        if credentials.user or credentials.tls:
            notes.append("the credentials for etcd have no effect: a job of one node keeps its store in the agent")
        return Store("memory")
    if endpoint:
        text, source = endpoint, scanned.source("rdzv-endpoint")
        for name in master:
            notes.append(f"{scanned.source(name)} has no effect: --rdzv-endpoint says where the store is")
        if _any_port(endpoint):
            raise UsageError(
                f"{source}: port 0 means any free port, and the other nodes cannot know which: give a port"
            )
    elif scanned.has("master-addr"):
        host = (scanned.text("master-addr") or "").strip().removeprefix("[").removesuffix("]")
        text, source = authority(host, port), scanned.source("master-addr")
        if host == "localhost" or host == "::1" or host.startswith("127."):
            notes.append(
                f"{source} is a loopback address: nodes on other machines cannot connect to it. "
                "Give the address by which they reach this machine"
            )
    else:
        default_port = port if master else DEFAULT_PORT
        if credentials.user or credentials.tls:
            raise UsageError(
                "credentials for etcd are given, but no etcd: name yours with --rdzv-endpoint=HOST:PORT (an etcd "
                "that elastic-run starts needs no credentials)"
            )
        try:
            host = allocation_host(environ)
        except ValueError as error:
            raise UsageError(f"SLURM_JOB_NODELIST: {error}: name the store with --rdzv-endpoint=HOST") from None
        text, source = (authority(host, default_port) if host else ""), "SLURM_JOB_NODELIST"
    try:
        endpoints = parse_endpoints(text, default_port=DEFAULT_PORT) if text else ()
    except ValueError as error:
        raise UsageError(f"{source.partition('=')[0]}: {error}") from None
    if credentials.tls or any(endpoint.tls for endpoint in endpoints):
        # One client speaks to all of them: https:// before one address, or a certificate, means TLS for all.
        credentials = replace(credentials, tls=True)
        endpoints = tuple(replace(endpoint, tls=True) for endpoint in endpoints)
    if backend == "etcd-v2":
        notes.append(f"{scanned.source('rdzv-backend')} is read as etcd: elastic-run uses version 3 of its protocol")
    kind = "endpoints" if endpoint or scanned.has("master-addr") else "implicit"
    return Store(kind, endpoints, credentials, directory, default_port)


def _any_port(endpoint: str) -> bool:
    """One of the endpoints has port 0, torchrun's idiom for any free port."""
    return any(re.search(r":0+$", part.strip()) for part in endpoint.split(","))


def _command(scanned: Scanned, environ: Mapping[str, str], notes: list[str], *, here: bool) -> Command:
    if not scanned.command:
        raise UsageError("no script is given: write elastic-run [flags] train.py [the script's own arguments]")
    target, *args = scanned.command
    module, no_python, run_path = (scanned.has(name) for name in ("module", "no-python", "run-path"))
    if run_path:
        for name in ("module", "no-python"):
            if scanned.has(name):
                notes.append(f"{scanned.source(name)} has no effect: --run-path takes precedence")
    elif module and no_python:
        raise UsageError("--module and --no-python exclude each other: a module needs Python; leave out one of them")
    kind = "run_path" if run_path else "module" if module else "executable" if no_python else "script"
    if not here:
        return Command(kind, target, tuple(args), "python")
    _check_target(kind, target, environ)
    python = environ.get("PYTHON_EXEC", "")
    if not python:
        python, why = workers_python(environ, sys.executable, Path(sys.prefix))
        if why and kind != "executable":
            notes.append(why)
    if kind != "executable" and shutil.which(python, path=environ.get("PATH")) is None:
        raise UsageError(f"PYTHON_EXEC={python} is not an executable program: correct it or unset it")
    return Command(kind, target, tuple(args), python)


def _check_target(kind: Kind, target: str, environ: Mapping[str, str]) -> None:
    if kind == "module":
        check_module(target)
    elif kind == "executable":
        check_executable(target, environ)
    else:
        check_script(target)


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


def _scale_up(scanned: Scanned) -> ScaleUp:
    text, source = scanned.text("scale-up"), scanned.source("scale-up")
    for known in get_args(ScaleUp):
        if text == known:
            return known
    known = get_args(ScaleUp)
    raise UsageError(f"{source} is not one of {', '.join(known)}{did_you_mean(text or '', known)}")


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


def _shutdown_timeout(scanned: Scanned, environ: Mapping[str, str]) -> float:
    elsewhere = environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "")
    if elsewhere and not scanned.has("shutdown-timeout"):
        return _seconds(elsewhere, f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT={elsewhere}")
    return _seconds(scanned.text("shutdown-timeout") or "", scanned.source("shutdown-timeout"))


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


def _output(scanned: Scanned, nproc: int, environ: Mapping[str, str]) -> Output:
    color = cast(Literal["auto", "always", "never"], scanned.text("color"))  # one of the table's choices
    if color == "auto" and environ.get("NO_COLOR"):
        color = "never"
    shown: frozenset[int] | None = None
    if text := scanned.text("local-ranks-filter"):
        if not re.fullmatch(r"\s*[0-9]+\s*(,\s*[0-9]+\s*)*", text):
            source = scanned.source("local-ranks-filter")
            raise UsageError(f"{source} is not a list of local ranks: write for example 0,1")
        shown = frozenset(int(rank) for rank in text.split(","))
    summary = scanned.text("summary-json")
    if summary is not None:
        check_writable_file(Path(summary), scanned.source("summary-json"))
    return Output(
        log_dir=_folder(scanned, "log-dir"),
        keep_attempts=_whole(scanned, "keep-attempts", 0),
        redirects=_streams(scanned, "redirects", nproc),
        tee=_streams(scanned, "tee", nproc),
        line_prefix=scanned.text("log-line-prefix-template") or environ.get(LINE_PREFIX) or None,
        shown_ranks=shown,
        stdout_filters=_words(scanned, "duplicate-stdout-filters"),
        stderr_filters=_words(scanned, "duplicate-stderr-filters"),
        summary_json=Path(summary) if summary is not None else None,
        trace=_trace(scanned),
        color=color,
    )


def _trace(scanned: Scanned) -> Path | None:
    """The file, from the root: workers may change their folder. One that holds something else is not added to."""
    text = scanned.text("trace")
    if text is None:
        return None
    path, source = Path(text).absolute(), scanned.source("trace")
    check_writable_file(path, source)
    if path.is_file() and os.access(path, os.R_OK):
        with path.open("rb") as file:
            if file.read(1) not in (b"", b"["):
                raise UsageError(f"{source} is not a trace file: name another file")
    return path


def _streams(scanned: Scanned, name: str, nproc: int) -> tuple[Std, ...]:
    """Which streams, by local rank; ranks that a map leaves out have none."""
    text = (scanned.text(name) or "").strip()
    if re.fullmatch(r"[0-3]", text):
        return (Std(int(text)),) * nproc
    if not re.fullmatch(r"[0-9]+:[0-3](,[0-9]+:[0-3])*", text):
        raise UsageError(
            f"{scanned.source(name)} is neither 0, 1, 2 or 3 (none, stdout, stderr, both) nor a map from local ranks "
            "to them: write for example 3, or 0:1,1:2"
        )
    chosen = {int(rank): Std(int(std)) for rank, std in (pair.split(":") for pair in text.split(","))}
    return tuple(chosen.get(rank, Std.NONE) for rank in range(nproc))


def _words(scanned: Scanned, name: str) -> tuple[str, ...]:
    """A list with commas, in which two commas are one comma of a word."""
    text = scanned.text(name)
    return tuple(word.replace("\0", ",") for word in text.replace(",,", "\0").split(",") if word) if text else ()


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


# -- single values ----------------------------------------------------------------------------------------------


def _whole(scanned: Scanned, name: str, least: int, most: int | None = None, range_in_words: str = "") -> int:
    text, source = (scanned.text(name) or "").strip(), scanned.source(name)
    if not re.fullmatch(r"[+-]?[0-9]{1,12}", text):
        raise UsageError(f"{source} is not a whole number")
    value = int(text)
    if value < least or (most is not None and value > most):
        raise UsageError(f"{source} is out of range: {range_in_words or f'it must be at least {least}'}")
    return value


def _seconds(text: str, source: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{source} is not a number of seconds: write for example 30 or 0.5")
    return value


def _label(scanned: Scanned, name: str) -> str | None:
    """What this node calls itself for the others."""
    text = scanned.text(name)
    if text is not None and (len(text) > LONGEST_LABEL or not text.isprintable()):
        raise UsageError(
            f"--{name} has {len(text)} characters, and takes at most {LONGEST_LABEL}, all of which can be printed"
        )
    return text


def _folder(scanned: Scanned, name: str) -> Path | None:
    text = scanned.text(name)
    if text is None:
        return None
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{scanned.source(name)} is a file: name a folder")
    check_room(path, scanned.source(name))
    return path


def _user(environ: Mapping[str, str]) -> str:
    for variable in ("LOGNAME", "USER"):
        if environ.get(variable):
            return environ[variable]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a number without a name
        return str(os.getuid())
