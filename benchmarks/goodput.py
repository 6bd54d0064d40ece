"""The share of the time that becomes training, where a worker is killed again and again."""

import contextlib
import itertools
import os
import signal
import statistics
import time

from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import full_steps, pids, step_seconds
from .launchers import IN_PLACE, OURS, TORCHRUN, Job, Launcher
from .nodes import START_BOUND, script

WORKERS = 2
FAULT_SECONDS = 20.0
RESTARTS = 10_000


def measure(arena: Arena, launcher: Launcher, minutes: float) -> Outcome:
    """So many minutes from the launcher's start; each step counts once, whoever did it again after a restore."""
    begun = time.monotonic()
    end = begun + minutes * 60
    arena.launch(launcher, Job(arena.job_id, "1", WORKERS, free_port(), script(arena, of=launcher), RESTARTS))
    journal = arena.journal
    faults = 0
    try:
        arena.until(lambda: journal.steps or None, START_BOUND)
        for turn in itertools.count(1):
            until = min(begun + turn * FAULT_SECONDS, end)
            arena.until(lambda until=until: time.monotonic() >= until or None, FAULT_SECONDS * 2)
            if until == end:
                break
            victim = pids(journal.born, journal.born[-1].generation)[turn % WORKERS]
            with contextlib.suppress(ProcessLookupError):  # the last fault is not mended yet
                os.kill(victim, signal.SIGKILL)
                faults += 1
    except DidNotCome as error:
        return Outcome(None, str(error))
    full = [step for step in full_steps(journal.steps) if step.at <= end * 1e9]
    try:
        worked = len({step.number for step in full}) * step_seconds(full)
    except statistics.StatisticsError:
        return Outcome(None, "no steps")
    return Outcome(minutes * 60 / worked, phases=(worked / (minutes * 60), float(faults), float(len(full))))


def cases(minutes: float) -> tuple[Case, ...]:
    """The case, for so many minutes."""
    return (
        Case(
            name="goodput",
            title=f"goodput: {minutes:g} minutes, and every {FAULT_SECONDS:g} s one of {WORKERS} workers is killed",
            about="Goodput is the number of full steps, those that were done again not counted, times the usual time "
            "of a step, divided by the time since the launcher's start. The table shows its inverse: the time that an "
            f"hour of steps takes, in hours. --max-restarts={RESTARTS}.",
            until="end of the time",
            bound=minutes * 60,
            ours=OURS,
            peers=(IN_PLACE, TORCHRUN),
            measure=lambda arena, launcher, _: measure(arena, launcher, minutes),
            phases=("goodput", "faults", "full steps, all"),
            first_phase="",
            unit="h per h",
            parts="median of",
        ),
    )


CASES = cases(1.0)
