"""From the SIGKILL of a worker to the next step that all ranks have finished."""

import os
import signal
import time

from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import PHASES, Step, full_steps, phases, pids
from .launchers import NOSHARE, OURS, RESTARTS, SCRIPTS, TORCHRUN, TORCHRUN_AS_IS, Job, Launcher

WORKERS = 2
SETTLED_STEPS = 25
"""So many steps before the fault: there is a checkpoint, and the job runs evenly."""

START_BOUND = 120.0
BOUND = 60.0


def settled(arena: Arena, world: int) -> Step | None:
    """A recent full step of a generation of `world` ranks that has come far enough."""
    steps = full_steps(arena.journal.steps)
    if not steps or steps[-1].world != world:
        return None
    return steps[-1] if sum(step.generation == steps[-1].generation for step in steps) >= SETTLED_STEPS else None


def recovered(arena: Arena, fault: int, bound: float) -> Outcome:
    """Waits for the first full step of a generation that was named after the fault."""
    try:
        first = arena.until(lambda: next(iter(full_steps(arena.journal.steps, after=fault)), None), bound)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome((first.at - fault) / 1e9, phases=phases(arena.journal.born, fault, first))


def measure(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """One node; rank 0 and rank 1 are killed in turn from round to round of the contest."""
    script = (str(SCRIPTS / "ddp_steps.py"), str(arena.journal.path), str(arena.folder / "checkpoint"))
    arena.launch(launcher, Job(arena.name, "1", WORKERS, free_port(), script))
    try:
        last = arena.until(lambda: settled(arena, WORKERS), START_BOUND)
    except DidNotCome as error:
        return Outcome(None, f"did not start: {error}")
    victim = pids(arena.journal.born, last.generation)[number % WORKERS]
    fault = time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    return recovered(arena, fault, BOUND)


CASES = (
    Case(
        name="worker_kill",
        title="SIGKILL of one of 2 workers, to the next full step of all ranks (script unchanged)",
        about=f"One node, --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:PORT --max-restarts={RESTARTS}; elastic-run on "
        "an etcd that it started there. The script loads its last checkpoint, at most ten steps old. "
        f"noshare: {NOSHARE}=1.",
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN, TORCHRUN_AS_IS),
        measure=measure,
        phases=PHASES,
    ),
)
