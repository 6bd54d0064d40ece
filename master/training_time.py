"""How much of the job's time its workers trained (pure)."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goodput:
    """Seconds in which the job trained, out of those since its first round was opened.

    A round trains from the moment in which the last of its nodes reports that all its workers run, to the first
    evidence of its end: a failure, a loss, a node that leaves, or the next header. What the script does in that time
    (imports, loading a checkpoint, steps that are repeated later) is not known here, and counts as training. Time
    before the first round is not looked at; a suspension is time without training. A new master takes a round that
    runs to have trained since its header was published.

    Attributes:
        trained: seconds.
        elapsed: seconds since the first round was opened; 0 before it.
    """

    trained: float = 0.0
    elapsed: float = 0.0

    @property
    def share(self) -> float | None:
        """From 0 to 1; None before the first round."""
        return self.trained / self.elapsed if self.elapsed > 0 else None


class TrainingTime:
    """Adds up `Goodput`. A new master goes on with what the header says.

    Args:
        before: what an earlier master has counted.
        at: when it had (the caller's clock, seconds, as all times here).
    """

    __slots__ = ("_began", "_missing", "_since", "_trained")

    def __init__(self, before: Goodput | None = None, at: float = 0.0) -> None:
        self._trained = before.trained if before else 0.0
        self._began = at - before.elapsed if before and before.elapsed > 0 else None
        self._missing: set[str] = set()  # incarnations of the round that have not reported that their workers run
        self._since: float | None = None  # all of them run

    def opened(self, nodes: Collection[str], now: float) -> None:
        """A round of these incarnations is opened."""
        self.ended(now)
        self._began = now if self._began is None else self._began
        self._missing = set(nodes)

    def runs(self, incarnation: str, now: float) -> None:
        """All workers of a node in the round run."""
        if incarnation in self._missing:
            self._missing.remove(incarnation)
            if not self._missing:
                self._since = now

    def ended(self, now: float) -> None:
        """There is evidence that the round does not train any more."""
        if self._since is not None:
            self._trained += max(0.0, now - self._since)
        self._since, self._missing = None, set()

    def until(self, now: float) -> Goodput:
        """What it comes to by now."""
        trained = self._trained + (max(0.0, now - self._since) if self._since is not None else 0.0)
        return Goodput(trained, max(0.0, now - self._began) if self._began is not None else 0.0)
