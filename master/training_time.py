"""What the job's time went into, as far as the master sees it (pure)."""

from collections.abc import Collection
from dataclasses import dataclass, field

from ..rendezvous.round import Cause
from ..rendezvous.time_split import MICROSECONDS, RAN, Category, Split, category, microseconds


@dataclass(frozen=True, slots=True)
class Goodput:
    """Seconds in which the job trained, out of those since its first round was opened.

    A round trains from the moment in which the last of its nodes reports that all its workers run, to the first
    evidence of its end: a failure, a loss, a node that leaves, or the next header. What the script does in that time
    (imports, loading a checkpoint) is not known here, and counts as training. Steps that are repeated later do not,
    where workers tell of their checkpoints, nor does the time in which a diagnosis shows that the job stands still.
    Time before the first round is not looked at; a suspension is time without training. A new master takes a round that
    runs to have trained since its header was published.

    Attributes:
        trained: seconds, repeated ones included.
        elapsed: seconds since the first round was opened; 0 before it.
        split: the same time by category, in microseconds.
    """

    trained: float = 0.0
    elapsed: float = 0.0
    split: Split = field(default_factory=Split)

    @classmethod
    def of(cls, split: Split) -> "Goodput":
        """What it amounts to."""
        ran = sum(value for name, value in split if name in RAN)
        return cls(ran / MICROSECONDS, split.total / MICROSECONDS, split)

    @property
    def share(self) -> float | None:
        """From 0 to 1; None before the first round."""
        if self.elapsed <= 0:
            return None
        return max(0.0, self.trained - self.split.wasted_progress_from_disruption / MICROSECONDS) / self.elapsed


class TrainingTime:
    """Adds up `Goodput`: at each time the job is in one category. A new master continues with what the header says.

    Args:
        before: what an earlier master has counted.
        at: when it had (the caller's clock, seconds, as all times here).
    """

    __slots__ = ("_at_risk", "_missing", "_now", "_since", "_split", "_stands_still")

    def __init__(self, before: Goodput | None = None, at: float = 0.0) -> None:
        self._split = _known(before) if before else Split()
        self._now: Category | None = "infrastructure_recovery_from_disruption" if self._split.total else None
        self._since = microseconds(at)
        self._missing: set[str] = set()  # incarnations of the round that have not reported that their workers run
        self._at_risk: int | None = None  # productive since the newest checkpoint; None: no worker told of one
        self._stands_still = False

    def opened(self, nodes: Collection[str], now: float, cause: Cause = "start", *, in_place: bool = False) -> None:
        """A round of these incarnations is opened; `in_place`: their workers keep their state."""
        self._become(category(cause), now)
        if self._at_risk is not None and not in_place:
            self._split = self._split.moving("productive", "wasted_progress_from_disruption", self._at_risk)
            self._at_risk = 0
        self._missing = set(nodes)
        self._stands_still = False

    def runs(self, incarnation: str, now: float) -> None:
        """All workers of a node in the round run."""
        if incarnation in self._missing:
            self._missing.remove(incarnation)
            if not self._missing:
                self._become("productive", now)

    def stands_still(self, now: float, seconds: float) -> None:
        """The workers run, and have made no progress for `seconds`."""
        if self._now == "productive":
            self._become("infrastructure_recovery_from_disruption", now - max(0.0, seconds))
            self._stands_still = True

    def goes_on(self, now: float) -> None:
        """The workers make progress, again where they stood still."""
        if self._stands_still:
            self._become("productive", now)
            self._stands_still = False

    def saved(self, now: float) -> None:
        """A worker has told of a checkpoint."""
        self._become(self._now, now)
        self._at_risk = 0

    def ended(self, now: float, why: Category = "infrastructure_recovery_from_disruption") -> None:
        """There is evidence that the round does not train any more; `why`: what the time from now on is."""
        if self._now is not None:
            self._become(why, now)
        self._missing = set()
        self._stands_still = False

    def until(self, now: float) -> Goodput:
        """What it comes to by now."""
        if self._now is None:
            return Goodput()
        return Goodput.of(self._split.adding(self._now, max(0, microseconds(now) - self._since)))

    def _become(self, what: Category | None, now: float) -> None:
        at = max(self._since, microseconds(now)) if self._now is not None else microseconds(now)
        if self._now is not None:
            self._split = self._split.adding(self._now, at - self._since)
            if self._now == "productive" and self._at_risk is not None:
                self._at_risk += at - self._since
        self._now, self._since = what, at


def _known(before: Goodput) -> Split:
    """What a header tells; one of another version may tell only the two sums."""
    if before.split.total:
        return before.split
    trained, elapsed = microseconds(before.trained), microseconds(before.elapsed)
    return Split(productive=min(trained, elapsed), other=max(0, elapsed - trained))
