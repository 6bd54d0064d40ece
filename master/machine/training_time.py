"""What the job's time went into, as far as the master sees it (pure)."""

from collections.abc import Collection, Mapping

from ...rendezvous.base.frozen import dataclass, field, replace
from ...rendezvous.header import Header
from ...rendezvous.member import Report
from ...rendezvous.round import Cause
from ...rendezvous.time_split import MICROSECONDS, RAN, Category, Split, SplitUntil, category, microseconds
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
        ran = sum(value for name, value in split if name in RAN)
        return cls(ran / MICROSECONDS, split.total / MICROSECONDS, split)

    @property
    def share(self) -> float | None:
        """From 0 to 1; None before the first round."""
        if self.elapsed <= 0:
            return None
        return max(0.0, self.trained - self.split.wasted_progress_from_disruption / MICROSECONDS) / self.elapsed


@dataclass(frozen=True, slots=True)
class Training:
    """How a job trains at one moment.

    Attributes:
        running: all workers of its round run.
        in_place: they keep their process in a change.
        repeated: seconds of training that were lost and made again, since the job began.
    """

    running: bool
    in_place: bool
    repeated: float


class TrainingTime:
    """Adds up `Goodput`: at each time the job is in one category. A new master continues with what the header says.

    Args:
        before: what an earlier master has counted.
        at: when it had (the caller's clock, seconds, as all times here).
        now: the category since then.
        at_risk: as in `SplitUntil`.
    """

    __slots__ = ("_at_risk", "_missing", "_now", "_since", "_split", "_stands_still", "_unkept")

    def __init__(
        self,
        before: Split | None = None,
        at: float = 0.0,
        now: Category = "infrastructure_recovery_from_disruption",
        at_risk: int | None = None,
    ) -> None:
        self._split = before or Split()
        self._now: Category | None = now if self._split.total else None
        self._since = microseconds(at)
        self._missing: set[str] = set()  # incarnations of the round that have not reported that their workers run
        self._at_risk = at_risk
        self._stands_still = False
        self._unkept = False  # nothing that a next master reads tells of the newest change

    def unkept(self, round: int, now: float) -> SplitUntil | None:
        """What a next master is to know of a `round` that has begun, beside its header; None where it was told."""
        if self._now is None or not self._unkept or not (self._now == "productive" or self._stands_still):
            return None
        self._unkept = False
        return SplitUntil(round, self._now, *self._by(now))

    def headed(self, header: Header, now: float) -> Header:
        """The header with what the job's time went into when its workers begin, in place or from a checkpoint."""
        split, at_risk = self._by(now)
        if header.state == "open" and not header.in_place:
            split, at_risk = _begun_again(split, at_risk)
        return replace(header, split=split, at_risk=at_risk)

    @classmethod
    def continued(cls, found: Found, reports: Mapping[str, Report | None], now: float) -> "TrainingTime":
        """Goes on from what an earlier master has left; `reports`: of its round's nodes, None of who has gone."""
        header, spent, at = found.header, found.spent, found.published
        assert header is not None, "without a header there is nothing to continue"
        if spent and spent.round == header.number and header.state == "open":
            time = cls(spent.split, found.spent_at, spent.now, spent.at_risk)
            time._stands_still = spent.now != "productive"
            if not any(report.stalled for report in reports.values() if report):
                time.goes_on(now)
            return time
        time = cls(header.split, at, since(header), header.at_risk)
        if header.state == "open":
            time.opened(reports, at, header.cause, in_place=True)  # the header has counted what is repeated
        return time

    def opened(self, nodes: Collection[str], now: float, cause: Cause = "start", *, in_place: bool = False) -> None:
        """A round of these incarnations is opened; `in_place`: their workers keep their state."""
        self._become(category(cause), now)
        if not in_place:
            self._split, self._at_risk = _begun_again(self._split, self._at_risk)
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
        return Goodput.of(self._by(now)[0])

    @property
    def trains(self) -> bool:
        """All workers of the round run, and make progress."""
        return self._now == "productive"

    def _by(self, now: float) -> tuple[Split, int | None]:
        """The split, and what is at risk."""
        if self._now is None:
            return self._split, self._at_risk
        more = max(0, microseconds(now) - self._since)
        risk = self._at_risk if self._at_risk is None or self._now != "productive" else self._at_risk + more
        return self._split.adding(self._now, more), risk

    def _become(self, what: Category | None, now: float) -> None:
        self._split, self._at_risk = self._by(now)
        self._since = microseconds(now) if self._now is None else max(self._since, microseconds(now))
        self._now, self._unkept = what, True


def since(header: Header) -> Category:
    """Of the time after a header, until workers run."""
    return "other" if header.final else category(header.cause)


def _begun_again(split: Split, at_risk: int | None) -> tuple[Split, int | None]:
    """What is at risk is trained again, from the newest checkpoint."""
    if at_risk is None:
        return split, None
    return split.moving("productive", "wasted_progress_from_disruption", at_risk), 0
