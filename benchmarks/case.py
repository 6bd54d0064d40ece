"""What one case of the benchmark is: who takes part, and how one run of it is measured."""

from collections.abc import Callable
from dataclasses import dataclass

from .arena import Arena
from .launchers import Launcher


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave.

    Attributes:
        seconds: the time it took, or what else the case measures, in its unit; None where it did not get there within
            the bound.
        note: why it did not, in words.
        phases: the seconds of each phase of the case, where it has any and they were told.
    """

    seconds: float | None
    note: str = ""
    phases: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is timed.

    Attributes:
        name: one word, which marks the case's section of a document.
        title: what is timed, from when to when.
        about: what a reader must know of how it is run.
        common: the same of all cases of its kind; a document has it once, above their tables.
        until: what ends a run, in few words.
        bound: seconds after which a run is given up.
        ours: what the others are compared with.
        peers: the others.
        measure: runs one launcher once, in the contest's round of that number.
        phases: the names of the phases that `measure` tells.
        first_phase: what ends the first of them, which then has rows of its own in the table; empty: it has none.
        own_rows: so many of the first phases have each a row of its own in the table, with those peers that told it.
        unit: of what is measured; less of it is better.
        parts: what the numbers of the table of phases are.
        warm_up: whether a first run of each is left out, because it reads files that the later ones find in memory.
    """

    name: str
    title: str
    about: str
    until: str
    bound: float
    ours: Launcher
    peers: tuple[Launcher, ...]
    measure: Callable[[Arena, Launcher, int], Outcome]
    phases: tuple[str, ...] = ()
    first_phase: str = "user's first line"
    own_rows: int = 0
    unit: str = "s"
    parts: str = "median seconds of"
    common: str = ""
    warm_up: bool = False
