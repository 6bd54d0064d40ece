"""From the SIGKILL of a worker, or its exception, to the next step that all ranks have finished."""

import os
import signal
import time

from . import dlrover
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import PHASES, pids
from .launchers import NOSHARE, OURS, OURS_SPAWNED, RESTARTS, TORCHRUN, TORCHRUN_AS_IS, Job, Launcher
from .nodes import SETTLED_SECONDS, START_BOUND, recovered, script, settled

WORKERS = 2
BOUND = 60.0
TROUBLE = "trouble"

ABOUT = (
    f"One node, --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:PORT --max-restarts={RESTARTS}; elastic-run on an etcd "
    f"that it started there. The script has trained for {SETTLED_SECONDS:g} s, and loads its last checkpoint, at most "
    f"ten steps old. noshare: {NOSHARE}=1."
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
        about=f"{ABOUT} DLRover: dlrover-run, whose local master is started before.",
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
        about=f"{ABOUT} The time begins just before the script's `raise`, so that the end of its interpreter is in it.",
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN, TORCHRUN_AS_IS),
        measure=raised,
        phases=PHASES,
    ),
)
