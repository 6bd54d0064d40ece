"""What the job's time went into, as far as the master sees it (pure)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..rendezvous.member import Report
from ..rendezvous.round import Cause
from ..rendezvous.time_split import MICROSECONDS, RAN, Category, Split, SplitUntil, category, microseconds
from .events import Found


@dataclass(frozen=True, slots=True)
class Goodput:
    """How much of its time since its first round a job has trained: docs/monitoring.md says what counts as what.

    Attributes:
        trained: seconds in which all workers of a round ran, repeated steps included, and a standstill not.
        elapsed: seconds since the first round was opened; 0 before it.
        split: the same time by category.
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
        now: the category since then, while workers ran.
    """

    __slots__ = ("_at_risk", "_missing", "_now", "_since", "_split", "_stands_still", "_unkept")

    def __init__(self, before: Split | None = None, at: float = 0.0, now: Category | None = None) -> None:
        self._split = before or Split()
        after = now or "infrastructure_recovery_from_disruption"
        self._now: Category | None = after if self._split.total else None
        self._since = microseconds(at)
        self._missing: set[str] = set()  # incarnations of the round that have not reported that their workers run
        self._at_risk: int | None = None  # productive since the newest checkpoint; None: no worker told of one
        self._stands_still = now == "infrastructure_recovery_from_disruption"
        self._unkept = False  # nothing that a next master reads tells of the newest change

    def unkept(self, round: int, now: float) -> SplitUntil | None:
        """What a next master is to know of `round` beside its header; None where this has told it before."""
        told, self._unkept = self._unkept, False
        return SplitUntil(round, self._now, self.until(now).split) if told and self._now else None

    @classmethod
    def continued(cls, found: Found, reports: Mapping[str, Report | None], now: float) -> "TrainingTime":
        """Goes on from what an earlier master has left; `reports`: of its round's nodes, None of who has gone."""
        header, spent, at = found.header, found.spent, found.published
        assert header is not None, "without a header there is nothing to continue"
        if spent and spent.round == header.number and header.state == "open":
            time = cls(spent.split, found.spent_at, spent.now)
            if not any(report.stalled for report in reports.values() if report):
                time.goes_on(now)
            return time
        time = cls(header.split, at)
        if header.state == "open":
            time.opened(reports, at, header.cause, in_place=True)  # what was repeated is counted
            for each, report in reports.items():
                if report is None or report.round == header.number:  # who has gone has run, too
                    time.runs(each, at)
        return time

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
            self._stands_still = self._unkept = True

    def goes_on(self, now: float) -> None:
        """The workers make progress, again where they stood still."""
        if self._stands_still:
            self._become("productive", now)
            self._stands_still, self._unkept = False, True

    def saved(self, now: float) -> None:
        """A worker has told of a checkpoint."""
        self._become(self._now, now)
        self._at_risk = 0

    def ended(self, now: float, why: Category = "infrastructure_recovery_from_disruption") -> None:
        """There is evidence that the round does not train any more; `why`: what the time from now on is."""
        if self._now is not None:
            self._become(why, now)
        self._missing = set()
        self._stands_still = self._unkept = False  # the next header tells

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
