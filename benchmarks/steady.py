"""What a launcher costs while nothing happens: the steps of workers that only compute."""

import time

import psutil

from .answers import answers, plain_work
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import BARE, OURS, TORCHRUN, Job, Launcher

WORKERS = 2
STEPS = 3000
ROUNDS = 100_000
"""Of arithmetic in a step: some milliseconds."""

SETTLE_SECONDS = 10.0
"""Before the first step: a launcher gets ready for faults first, which is no steady state."""

BOUND = 120.0
LOOK_SECONDS = 0.25
"""Seldom, because who measures computes, too."""

REST_SECONDS = 2.0
"""Of the workers at their end, so that the launcher has nothing new to do before it is looked at."""


def measure(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """Two workers on as few cores as the machine has; each prints a line every ten steps."""
    words = plain_work(arena, STEPS, ROUNDS, REST_SECONDS, SETTLE_SECONDS)
    arena.launch(launcher, Job(arena.job_id, "1", WORKERS, free_port(), words))
    ready = [arena.folder / f"ready{rank}" for rank in range(WORKERS)]
    try:
        arena.until(lambda: all(file.exists() for file in ready) or None, BOUND, LOOK_SECONDS)
        before, begun = _used(), time.monotonic()
        found = answers(arena, WORKERS, BOUND, LOOK_SECONDS)
        after, elapsed = _used(), time.monotonic() - begun
    except DidNotCome as error:
        return Outcome(None, str(error))
    seconds = max(one["ended"] for one in found) - min(one["begun"] for one in found)
    workers = {int(one["pid"]) for one in found}
    launchers = sum(used - before.get(pid, 0.0) for pid, used in after.items() if pid not in workers)
    return Outcome(seconds, phases=(STEPS / seconds, 100 * launchers / elapsed))


def _used() -> dict[int, float]:
    """Seconds of processor that each process of the run has used."""
    below = psutil.Process().children(recursive=True)
    return {one.pid: one.cpu_times().user + one.cpu_times().system for one in below}


CASES = (
    Case(
        name="steady",
        title=f"steady state: {STEPS} steps of {WORKERS} workers, from the first's begin to the last's end",
        about="Plain Python that computes, without a framework; where there are as many cores as workers, whatever the "
        "launcher does meanwhile is taken from them. They begin ten seconds after the start, when the launcher has "
        "made itself ready for faults. A line is printed every ten steps, and the launcher's store is at an address.",
        until="last step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN, BARE),
        measure=measure,
        phases=("steps per second", "the launcher's share of a core, %"),
        first_phase="",
        parts="median of",
    ),
)
