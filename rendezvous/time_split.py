"""What a job's time went into, as one value (pure).

The categories are those of Google's `ml-goodput-measurement`, the names that the field uses for lost time; `productive`
is what is left for training. Times are whole microseconds, so that the categories sum to the job's time exactly.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from .base.frozen import dataclass, fields, replace
from .round import Cause
from .wire.fields import Number

MICROSECONDS = 1_000_000
"""In a second."""

Category = Literal[
    "productive",
    "initialization",
    "training_preparation",
    "data_loading",
    "checkpoint_save",
    "checkpoint_restore",
    "wasted_progress_from_disruption",
    "infrastructure_recovery_from_disruption",
    "elastic_scale_up",
    "elastic_scale_down",
    "other",
]

CATEGORIES: tuple[Category, ...] = get_args(Category)

Marked = Literal["training_preparation", "data_loading", "checkpoint_save", "checkpoint_restore"]
"""Those that only a script can tell of: for the launcher, its workers train in that time."""

MARKED: tuple[Marked, ...] = get_args(Marked)

RAN: tuple[Category, ...] = ("productive", *MARKED, "wasted_progress_from_disruption")
"""In these, all workers of a round ran."""


def microseconds(seconds: float) -> int:
    """Rounded."""
    return round(seconds * MICROSECONDS)


def category(cause: Cause) -> Category:
    """Of the time from the evidence for a round of this cause until all its workers run."""
    match cause:
        case "start":
            return "initialization"
        case "joined":
            return "elastic_scale_up"
        case "left":
            return "elastic_scale_down"
        case "failure" | "lost" | "problem":
            return "infrastructure_recovery_from_disruption"


@dataclass(frozen=True, slots=True)
class Split:
    """Microseconds by category; docs/monitoring.md says what each is."""

    productive: Number = 0
    initialization: Number = 0
    training_preparation: Number = 0
    data_loading: Number = 0
    checkpoint_save: Number = 0
    checkpoint_restore: Number = 0
    wasted_progress_from_disruption: Number = 0
    infrastructure_recovery_from_disruption: Number = 0
    elastic_scale_up: Number = 0
    elastic_scale_down: Number = 0
    other: Number = 0

    def __iter__(self) -> Iterator[tuple[Category, int]]:
        """Each category with its microseconds, in order."""
        return ((name, getattr(self, name)) for name in CATEGORIES)

    @property
    def total(self) -> int:
        return sum(value for _, value in self)

    @property
    def seconds(self) -> Mapping[Category, float]:
        return {name: value / MICROSECONDS for name, value in self}

    def adding(self, name: Category, value: int) -> "Split":
        """With so many microseconds more of one category."""
        changes: dict[str, int] = {name: getattr(self, name) + value}
        return replace(self, **changes)

    def moving(self, source: Category, target: Category, value: int) -> "Split":
        """With so many microseconds of one category counted as another, at most what the first has."""
        moved = min(value, getattr(self, source))
        return self.adding(source, -moved).adding(target, moved)

    def marking(self, marks: Mapping[Marked, int]) -> "Split":
        """With what a script says of the time in which its workers ran; the sum stays the same."""
        found = self
        for name in MARKED:
            found = found.moving("productive", name, marks.get(name, 0))
        return found


@dataclass(frozen=True, slots=True)
class SplitUntil:
    """What the job's time went into until its category became `now` while round `round` ran.

    Attributes:
        at_risk: microseconds that were productive since the newest checkpoint; None: no worker told of one.
    """

    round: Number
    now: Category
    split: Split
    at_risk: Number | None = None


assert tuple(each.name for each in fields(Split)) == CATEGORIES
