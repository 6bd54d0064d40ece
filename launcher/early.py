"""What workers run, worked out and begun before the rest of the launcher is imported: it takes as long as that."""

import secrets
import signal
import socket
from collections.abc import Iterable, Mapping

from ..adapters import imports_ahead as ahead
from ..adapters.torch.environment import DEVICES, PER_WORKER, RankAssignment, worker_environment
from ..elastic_agent.warm.declared import SEPARATOR
from ..elastic_agent.zygotes.seed import Recipe, Seed
from .preflight import is_this_interpreter
from .settings import Command, Options

SECRET = "ELASTIC_RUN_ETCD_PASSWORD"
"""The one variable of the launcher that workers do not inherit."""


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
    return {name: value for name, value in environ.items() if name != SECRET}


def node_name(options: Options) -> str:
    """What this node is called: in the job, and before each of its workers' lines."""
    return options.node_name or socket.gethostname().split(".")[0] or "node"


def heeded(signals: Iterable[signal.Signals]) -> tuple[signal.Signals, ...]:
    """Those that this process did not inherit as ignored: `nohup` does no more than that, and is to be honoured."""
    return tuple(number for number in signals if signal.getsignal(number) is not signal.SIG_IGN)


def never_warm(options: Options, environ: Mapping[str, str]) -> str:
    """Why each worker is a fresh process, whatever it imports, in words; empty where it may be forked."""
    command = options.command
    if not options.warm:
        return "--start-method=spawn says so"
    if command.kind == "executable":
        return "the command is no Python script or module"
    if not is_this_interpreter(command.python, environ):
        # A wrapper may keep our PYTHONPATH from Python, which would then run the script where imports are to be made.
        return f"the workers' Python ({command.python}) is another program than the launcher's"
    return ""


def recipe(options: Options, environ: Mapping[str, str], trace: str) -> Recipe | None:
    """What a warm interpreter for the workers of this node is made of; None where each is a fresh process.

    Args:
        options: what was asked for.
        environ: what the workers inherit.
        trace: the file that is traced to; empty: none.
    """
    command = options.command
    if never_warm(options, environ):
        return None
    anyone = RankAssignment(
        job=options.job_id,
        rank=0,
        local_rank=0,
        world_size=0,
        local_world_size=options.nproc,
        group_rank=0,
        group_size=0,
        role=options.role,
        role_rank=0,
        role_world_size=0,
        master_addr="",
        master_port=0,
        restart_count=0,
        max_restarts=0,
        error_file="",
        signals=heeded(options.signals),
        largest_world=options.nodes.maximum * options.nproc,
        tells_saves=options.scale_up == "commit",
        trace=trace,
        node=node_name(options),
    )
    # Libraries may look at the devices in native code: what all workers see, they are to see.
    varying = PER_WORKER if options.virtual_local_rank else PER_WORKER - {DEVICES}
    environment = worker_environment(inherited(environ), anyone)
    return Recipe(
        argv=worker_command(command),
        environment={name: value for name, value in environment.items() if name not in varying},
        kind=command.kind,
        target=command.target,
        per_worker=PER_WORKER,
        preload=options.preload,
        table=table_words(),
    )


def table_words() -> tuple[str, ...]:
    """The table of what may be imported ahead, as `warm/declared.py` reads it (pure)."""
    rows: list[tuple[str, ...]] = []
    for package in ahead.PACKAGES.values():
        rows.append(("package", package.name, package.distribution, *(package.tested or ("", ""))))
        for late in package.late:
            rows.append(("late", package.name, late.module, ",".join(late.wanted_by), ",".join(late.reads)))
    rows += [("nameless", name) for name in ahead.NAMELESS]
    rows += [("namespace", name) for name in ahead.NAMESPACES]
    rows += [("refused", name, why) for name, why in {**ahead.STDLIB_REFUSED, **ahead.REFUSED}.items()]
    rows += [("thread", name) for name in ahead.THREADS]
    rows += [("walks", module) for module in ahead.WALKS]
    rows += [("reads", module, ",".join(names)) for module, names in ahead.READS_RANK.items()]
    rows += [("draws", name) for name in ahead.DRAWS]
    return tuple(SEPARATOR.join(row) for row in rows)


def begin(options: Options, environ: Mapping[str, str]) -> tuple[str, Seed] | None:
    """The tag of the agent to be, and the process of its first warm interpreter; None where there is none."""
    made = recipe(options, environ, str(options.output.trace or ""))
    if made is None:
        return None
    tag = secrets.token_hex(8)
    try:
        return tag, Seed(made.tagged(tag))
    except OSError:
        return None  # the agent will try, and say why not
