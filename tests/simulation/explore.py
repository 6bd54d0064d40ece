"""Many schedules: run them on every core, and make what fails small enough to read."""

import dataclasses
import hashlib
import itertools
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .schedule import Schedule, Shape, Unreadable, draw, parse
from .world import Outcome, run

ROOT = str(Path(__file__).parents[2])

CHUNK = 50
"""Seeds that one process takes at a time."""

SHRINKING = 30.0
"""Seconds of real time after which a schedule is small enough."""

TAIL = 40
"""Lines of a failure's trace that are shown at once; one command shows the rest."""

CRASHED = "the simulation itself works"
"""The rule that an exception breaks."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that broke a rule, and how."""

    schedule: Schedule
    rule: str
    what: str


@dataclass(slots=True)
class Tale:
    """What many schedules came to.

    Attributes:
        schedules: how many were lived through.
        faults: what was done, by kind.
        rounds: that were published.
        seconds: of virtual time.
        states: how the jobs ended, by the state of the last header; "" where there was none.
        failures: who broke a rule, in the order of the seeds.
    """

    schedules: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    rounds: int = 0
    seconds: float = 0.0
    states: Counter[str] = field(default_factory=Counter[str])
    failures: list[Failure] = field(default_factory=list[Failure])

    def add(self, other: "Tale") -> None:
        """Sums up."""
        self.schedules += other.schedules
        self.faults.update(other.faults)
        self.rounds += other.rounds
        self.seconds += other.seconds
        self.states.update(other.states)
        self.failures += other.failures

    @property
    def text(self) -> str:
        """In one line."""
        ends = ", ".join(f"{count} {state or 'without a round'}" for state, count in sorted(self.states.items()))
        return (
            f"{self.schedules} schedules, {self.faults.total()} faults, {self.rounds} rounds, "
            f"{self.seconds / 3600:.1f} virtual hours; jobs: {ends}; {len(self.failures)} broke a rule"
        )


def attempt(schedule: Schedule) -> Outcome | str:
    """The outcome, or the error that the simulated world itself ended with."""
    try:
        return run(schedule)
    except Exception:  # noqa: BLE001  whatever it is, it belongs to this schedule and is reported with it
        return traceback.format_exc()


def rule_broken(schedule: Schedule) -> tuple[str, str] | None:
    """The first rule that the schedule breaks, and how."""
    outcome = attempt(schedule)
    if isinstance(outcome, str):
        return CRASHED, outcome
    if outcome.violations:
        return outcome.violations[0].rule, outcome.violations[0].what
    return None


def tell(seeds: Iterable[int], enough: int | None = None) -> Tale:
    """Lives through the schedules of these seeds, one after the other, until `enough` have broken a rule."""
    tale = Tale()
    for seed in seeds:
        schedule = draw(seed)
        outcome = attempt(schedule)
        tale.schedules += 1
        if isinstance(outcome, str):
            tale.failures.append(Failure(schedule, CRASHED, outcome))
        else:
            tale.faults.update(outcome.faults)
            tale.rounds += outcome.rounds
            tale.seconds += outcome.seconds
            tale.states[outcome.state] += 1
            if outcome.violations:
                first = outcome.violations[0]
                tale.failures.append(Failure(schedule, first.rule, first.what))
        if enough is not None and len(tale.failures) >= enough:
            break
    return tale


def tell_all(seeds: Sequence[int], jobs: int | None = None, enough: int | None = None) -> Tale:
    """The same on `jobs` processes; by default as many as there are cores for this one."""
    jobs = jobs or len(os.sched_getaffinity(0))
    tale = Tale()
    for part in _parts(seeds, jobs, enough):
        tale.add(part)
        if enough is not None and len(tale.failures) >= enough:
            break
    return tale


def _parts(seeds: Sequence[int], jobs: int, enough: int | None) -> Iterator[Tale]:
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        yield from map(tell, chunks, itertools.repeat(enough))
        return
    clean = multiprocessing.get_context("forkserver")  # this process may have threads
    if ROOT not in sys.path:
        sys.path.append(ROOT)  # the others import this file by its name, and inherit the path
    with ProcessPoolExecutor(jobs, mp_context=clean, initializer=_stay_behind) as pool:
        yield from pool.map(tell, chunks, itertools.repeat(enough))


def _stay_behind() -> None:
    """Gives way to the tests of real processes, and leaves Ctrl-C to the process that a person started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(10)


def digest(seed: int) -> str:
    """Of all that can be seen of a schedule's life: the same for the same seed, always."""
    outcome = attempt(draw(seed))
    seen = outcome if isinstance(outcome, str) else f"{outcome.seconds!r} {outcome.rounds}\n" + "\n".join(outcome.trace)
    return hashlib.sha256(seen.encode()).hexdigest()


def explain(tale: Tale) -> str:
    """For a person: each broken rule once, with a schedule that is small, its trace's end, and what to do next."""
    first: dict[str, Failure] = {}
    for failure in tale.failures:
        first.setdefault(failure.rule, failure)
    broken = [_explain(failure, tale) for failure in first.values()]
    return "\n\n".join([f"{len(tale.failures)} of {tale.schedules} schedules broke a rule", *broken])


def _explain(failure: Failure, tale: Tale) -> str:
    seeds = [each.schedule.seed for each in tale.failures if each.rule == failure.rule]
    others = f" (so do {len(seeds) - 1} more: {', '.join(map(str, seeds[1:9]))})" if len(seeds) > 1 else ""
    small = shrink(failure.schedule, failure.rule)
    outcome = attempt(small)
    trace = outcome.splitlines() if isinstance(outcome, str) else outcome.trace
    return "\n".join(
        (
            f"BROKEN: {failure.rule}",
            f"  how: {failure.what.strip()}",
            f"  by seed {failure.schedule.seed}{others}; with its whole trace:",
            f"      python -m tests.simulation --seed {failure.schedule.seed}",
            "  and by this smaller schedule; from a file, after changes too:",
            "      python -m tests.simulation --schedule FILE",
            "",
            *(f"    {line}" for line in small.text.splitlines()),
            "",
            f"  the last lines of the smaller one's trace ({min(TAIL, len(trace))} of {len(trace)}):",
            "",
            *(f"    {line}" for line in trace[-TAIL:]),
        )
    )


def shrink(schedule: Schedule, rule: str, *, clock: Callable[[], float] = time.monotonic) -> Schedule:
    """The smallest schedule found that breaks the same rule: fewer faults, a plainer job, rounder times.

    It ends when nothing smaller breaks the rule, or after SHRINKING seconds.
    """
    until = clock() + SHRINKING

    def breaks(candidate: Schedule) -> bool:
        found = rule_broken(candidate)
        return found is not None and found[0] == rule

    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(schedule):
            if clock() > until:
                return schedule
            if _is_readable(candidate) and breaks(candidate):
                schedule, smaller = candidate, True
                break
    return schedule


def _is_readable(schedule: Schedule) -> bool:
    """Whether it makes sense: its text will be kept."""
    try:
        parse(schedule.text)
    except Unreadable:
        return False
    return True


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for index in range(len(schedule.faults)):
        yield dataclasses.replace(schedule, faults=(*schedule.faults[:index], *schedule.faults[index + 1 :]))
    plain = Shape()
    for item in dataclasses.fields(Shape):
        value = getattr(schedule.shape, item.name)
        if value != getattr(plain, item.name):
            shape = dataclasses.replace(schedule.shape, **{item.name: getattr(plain, item.name)})
            yield dataclasses.replace(schedule, shape=shape)
    for index, fault in enumerate(schedule.faults):
        for after in (round(fault.after), round(fault.after, 1), round(fault.after, 2)):
            if after != fault.after:
                changed = dataclasses.replace(fault, after=float(after))
                yield dataclasses.replace(
                    schedule, faults=(*schedule.faults[:index], changed, *schedule.faults[index + 1 :])
                )
