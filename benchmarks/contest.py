"""Runs the launchers of a case in turns, so that each round of them sees the same machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import hardware
from .arena import Arena
from .case import Case, Outcome
from .launchers import Launcher
from .table import Series, seconds


@dataclass(frozen=True, slots=True)
class Result:
    """A case that was run.

    Attributes:
        case: which one.
        ours: the runs of elastic-run.
        peers: those of the others.
        load: the load average of the last minute before and after it.
        wanted: rounds that were asked for; there are fewer runs where the time was up.
    """

    case: Case
    ours: Series
    peers: tuple[Series, ...]
    load: tuple[float, float]
    wanted: int


@dataclass(slots=True)
class _Tally:
    """The runs of one launcher so far."""

    launcher: Launcher
    outcomes: list[tuple[int, Outcome]] = field(default_factory=list[tuple[int, Outcome]])

    def series(self, bound: float) -> Series:
        return Series(
            name=self.launcher.name,
            seconds=tuple(outcome.seconds for _, outcome in self.outcomes),
            rounds=tuple(number for number, _ in self.outcomes),
            bound=bound,
            notes=tuple(outcome.note for _, outcome in self.outcomes if outcome.note),
            phases=tuple(outcome.phases for _, outcome in self.outcomes),
        )


def run(case: Case, rounds: int, *, deadline: float, keep: Path | None, say: Callable[[str], None]) -> Result:
    """Runs a case.

    Args:
        case: what is run.
        rounds: how often each launcher runs (or each `every`-th time).
        deadline: on the monotonic clock: no run begins after it.
        keep: a folder for the runs' files and logs; None removes them.
        say: told about each run as it ends.
    """
    tallies = [_Tally(launcher) for launcher in (case.ours, *case.peers)]
    before = hardware.load()
    for number in range(-1 if case.warm_up else 0, rounds):
        first = max(0, number) % len(tallies)  # nobody is always first, or always after the same one
        for tally in tallies[first:] + tallies[:first]:
            if number % tally.launcher.every or time.monotonic() > deadline:
                continue
            with Arena(f"{case.name}-{tallies.index(tally)}-{number + 1}", keep) as arena:
                outcome = case.measure(arena, tally.launcher, number)
            if number >= 0:
                tally.outcomes.append((number, outcome))
            took = f"{seconds(outcome.seconds)} {case.unit}" if outcome.seconds is not None else f"no: {outcome.note}"
            label = f"{number + 1}/{rounds}" if number >= 0 else "warm-up"
            say(f"{case.name} {label}  {tally.launcher.name}: {took}")
    ours, *peers = (tally.series(case.bound) for tally in tallies)
    return Result(case, ours, tuple(peers), (before, hardware.load()), rounds)
