"""From the SIGKILL of a worker, or its exception, to the next step that all ranks have finished."""

import os
import signal
import time

from . import dlrover
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import PHASES, pids
from .launchers import OURS, OURS_SPAWNED, RESTARTS, TORCHRUN, TORCHRUN_AS_IS, Job, Launcher
from .nodes import START_BOUND, recovered, script, settled

WORKERS = 2
BOUND = 60.0
TROUBLE = "trouble"

COMMON = (
    f"One node, --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:PORT --max-restarts={RESTARTS}; elastic-run on an etcd "
    "that it started there."
)


def killed(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """One node; rank 0 and rank 1 are killed in turn from round to round of the contest."""
    job = Job(arena.job_id, "1", WORKERS, free_port(), script(arena, of=launcher))
    try:
        if launcher is dlrover.LAUNCHER:
            dlrover.launch(arena, job)
        else:
            arena.launch(launcher, job)
        last = arena.until(lambda: settled(arena, WORKERS), START_BOUND)
    except DidNotCome as error:
        return Outcome(None, f"did not start: {error}")
    victim = pids(arena.journal.born, last.generation)[number % WORKERS]
    fault = time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    return recovered(arena, fault, BOUND)


def raised(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """The same, but the script of that rank raises, once."""
    trouble = arena.folder / TROUBLE
    arena.launch(launcher, Job(arena.job_id, "1", WORKERS, free_port(), script(arena, TROUBLE)))
    victim = number % WORKERS
    try:
        arena.until(lambda: settled(arena, WORKERS), START_BOUND)
        trouble.with_name(f"{TROUBLE}{victim}").touch()
        fault = arena.until(lambda: arena.journal.raised.get(victim), BOUND)
    except DidNotCome as error:
        return Outcome(None, f"did not start: {error}")
    return recovered(arena, fault, BOUND)


CASES = (
    Case(
        name="worker_kill",
        title=f"SIGKILL of one of {WORKERS} workers, to the next full step of all ranks (script unchanged)",
        about="",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(OURS_SPAWNED, TORCHRUN, TORCHRUN_AS_IS, dlrover.LAUNCHER),
        measure=killed,
        phases=PHASES,
    ),
    Case(
        name="worker_raise",
        title=f"one of {WORKERS} workers raises an exception, to the next full step of all ranks",
        about="The time begins just before the script's `raise`, so that the end of its interpreter is in it.",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN, TORCHRUN_AS_IS),
        measure=raised,
        phases=PHASES,
    ),
)
