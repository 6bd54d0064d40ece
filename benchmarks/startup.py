"""From the launcher's start to the first line of the user's script, and to the first step of a DDP script."""

import time

from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import PHASES, full_steps, phases
from .launchers import BARE, OURS, SCRIPTS, TORCHRUN, Job, Launcher
from .nodes import script

WORKERS = 2
BOUND = 60.0


def first_line(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """`--standalone`, or with nothing at all between the user and the interpreters."""
    return _first_line(arena, launcher, None)


def first_line_store(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """With a store at an address, which the launcher starts."""
    return _first_line(arena, launcher, free_port())


def _first_line(arena: Arena, launcher: Launcher, port: int | None) -> Outcome:
    words = (str(SCRIPTS / "first_line.py"), arena.journal.path.name)
    begun = time.monotonic_ns()
    arena.launch(launcher, Job(arena.job_id, "1", WORKERS, port, words))
    try:
        reached = arena.until(lambda: arena.journal.first_lines(WORKERS), BOUND)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome((reached - begun) / 1e9)


def first_step(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """A DDP script, to its first full step."""
    begun = time.monotonic_ns()
    arena.launch(launcher, Job(arena.job_id, "1", WORKERS, None, script(arena)))
    try:
        first = arena.until(lambda: next(iter(full_steps(arena.journal.steps)), None), BOUND)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome((first.at - begun) / 1e9, phases=phases(arena.journal.born, begun, first))


CASES = (
    Case(
        name="first_line",
        title="start-up: from the launcher's start to the first line of the last of 2 workers",
        about="The script imports nothing. Both with --standalone; bare python is two interpreters at once.",
        until="user's first line",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN, BARE),
        measure=first_line,
        warm_up=True,
    ),
    Case(
        name="first_line_store",
        title="start-up with a store at an address: the same, and the launcher starts the store first",
        about="--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:PORT: elastic-run starts an etcd there, torchrun its "
        "TCPStore.",
        until="user's first line",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN,),
        measure=first_line_store,
        warm_up=True,
    ),
    Case(
        name="first_step",
        title="start-up to work: from the launcher's start to the first full step of a DDP script, 2 workers",
        about="Both with --standalone; bare python is two interpreters with RANK and MASTER_PORT set by hand. "
        "elastic-run imports what the script begins with before the script's first line, once for both workers.",
        until="first full step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN, BARE),
        measure=first_step,
        phases=PHASES,
        warm_up=True,
    ),
)
