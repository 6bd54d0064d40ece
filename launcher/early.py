"""What workers run, worked out and begun before the rest of the launcher is imported: it takes as long as that."""

import secrets
import signal
import socket
from collections.abc import Iterable, Mapping

from ..adapters import imports_ahead as ahead
from ..adapters.contract import ImportsAhead, Round, Worker
from ..adapters.environment import Told, WorkerSettings, per_worker
from ..elastic_agent.zygotes.seed import Recipe, Seed
from ..rendezvous.identity.secret import VARIABLE
from .errors import UsageError
from .options.preflight import is_this_interpreter
from .settings import Command, Options

ETCD_PASSWORD = "ELASTIC_RUN_ETCD_PASSWORD"

SECRETS = frozenset({ETCD_PASSWORD, VARIABLE})
"""The variables of the launcher that workers do not inherit."""


def worker_command(command: Command) -> tuple[str, ...]:
    """The command line of each worker (pure)."""
    match command.kind:
        case "executable":
            return (command.target, *command.args)
        case "module":
            return (command.python, "-u", "-m", command.target, *command.args)
        case "run_path":
            # runpy last: what is imported ahead may bring it, and is used only where the search path is as expected.
            code = (
                "import os, sys; sys.path[0] = os.getcwd(); del sys.argv[0]; "
                "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
            )
            return (command.python, "-u", "-c", code, command.target, *command.args)
        case "script":
            return (command.python, "-u", command.target, *command.args)


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What workers get of the launcher's own environment (pure)."""
    return {name: value for name, value in environ.items() if name not in SECRETS}


def node_name(options: Options) -> str:
    """What this node is called: in the job, and before each of its workers' lines."""
    return options.node_name or socket.gethostname().split(".")[0] or "node"


def heeded(signals: Iterable[signal.Signals]) -> tuple[signal.Signals, ...]:
    """Those that this process did not inherit as ignored: `nohup` does no more than that, and is to be honoured."""
    return tuple(number for number in signals if signal.getsignal(number) is not signal.SIG_IGN)


def worker_settings(options: Options, environ: Mapping[str, str]) -> WorkerSettings:
    """What the workers of this node have in common; `environ`: the launcher's own environment (pure)."""
    return WorkerSettings(
        job=options.job_id,
        node=node_name(options),
        adapter=options.adapter,
        command=worker_command(options.command),
        inherited=inherited(environ),
        told=Told(
            largest_world=options.policy.largest_world(options.nproc),
            tells_saves=options.scale_up == "commit",
            trace=str(options.output.trace or ""),
        ),
        commands={role.name: worker_command(options.command_of(role)) for role in options.roles if role.command},
        python=options.command.python,
        role=options.role,
        own_device=options.virtual_local_rank,
        signals=heeded(options.signals),
    )


def never_warm(options: Options, environ: Mapping[str, str]) -> str:
    """Why each worker is a fresh process, whatever it imports, in words; empty where it may be forked."""
    command = options.command
    if not options.warm:
        return "--start-method=spawn is given"
    if command.kind == "executable":
        return "the command is not a Python script or module"
    if not is_this_interpreter(command.python, environ):
        # A wrapper may keep our PYTHONPATH from Python, which would then run the script where imports are to be made.
        return f"the workers' Python ({command.python}) is another program than the launcher's"
    return ""


def recipe(options: Options, workers: WorkerSettings) -> Recipe | None:
    """What a warm interpreter for the workers of this node is made of; None where each is a fresh process.

    Raises UsageError where the framework's adapter has no environment for them.
    """
    command, adapter = options.command, workers.adapter
    if never_warm(options, workers.inherited):
        return None
    anyone = Round(workers.job, 0, 0, 0, "", 0, signals=workers.signal_names)
    worker = Worker(0, 0, options.likely_nproc, workers.node, role=workers.role)
    differing = per_worker(adapter)
    # Libraries may look at the devices in native code: what all workers see, they are to see.
    varying = differing if workers.own_device else differing - {adapter.visible_devices}
    try:
        environment = workers.environment(anyone, worker)
    except ValueError as error:
        raise UsageError(f"the adapter for {adapter.name}: {error}") from None
    return Recipe(
        argv=workers.command,
        environment={name: value for name, value in environment.items() if name not in varying},
        kind=command.kind,
        target=command.target,
        per_worker=differing,
        preload=options.preload,
        table=table_rows(adapter.imports_ahead),
    )


def table_rows(more: ImportsAhead) -> tuple[tuple[str, ...], ...]:
    """The table of what may be imported ahead, and what an adapter adds, as `warm/declared.py` reads them (pure)."""
    packages = {**ahead.PACKAGES, **{package.name: package for package in more.packages}}
    refused = {**ahead.STDLIB_REFUSED, **ahead.REFUSED}
    rows: list[tuple[str, ...]] = []
    for package in packages.values():
        rows.append(("package", package.name, package.distribution, *(package.tested or ("", ""))))
        for late in package.late:
            rows.append(("late", package.name, late.module, ",".join(late.wanted_by), ",".join(late.reads)))
    rows += [("nameless", name) for name in ahead.NAMELESS]
    rows += [("namespace", name) for name in ahead.NAMESPACES]
    rows += [("refused", name, why) for name, why in refused.items() if name not in packages]
    rows += [("thread", name) for name in ahead.THREADS]
    rows += [("walks", module) for module in ahead.WALKS]
    rows += [("reads", module, ",".join(names)) for module, names in ahead.READS_RANK.items()]
    rows += [("draws", name) for name in ahead.DRAWS]
    rows += [("repair", module, str(file)) for module, file in more.repairs.items()]
    return tuple(rows)


def begin(options: Options, workers: WorkerSettings) -> tuple[str, Seed] | None:
    """The tag of the agent to be, and the process of its first warm interpreter; None where there is none."""
    made = recipe(options, workers)
    if made is None:
        return None
    tag = secrets.token_hex(8)
    try:
        return tag, Seed(made.tagged(tag))
    except OSError:
        return None  # the agent will try, and say why not
