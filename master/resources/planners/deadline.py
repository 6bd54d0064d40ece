"""The fewest nodes with which a job's work is done in time (pure)."""

from ....rendezvous.base.plural import plural
from . import SizeChoice, SizesSeen
from .goodput import ByGoodput

SLACK = 0.9
"""A size is enough where it would be done in this share of the time that is left; it is too small where it would not be
done in all of it. Between the two the job stays as it is."""


class ByDeadline(ByGoodput):
    """One job's. Where no size that was measured is in time, it looks for more as `goodput` does.

    Args:
        work: that the job has to do: steps times workers, or steps where `batch` is `job`.
        seconds: that it has, from its first step on.
        batch, cap: as for `goodput`.
    """

    def __init__(self, work: str, seconds: str, batch: str = "worker", cap: str = "0.05") -> None:
        super().__init__(batch, cap)
        self._work, self._seconds = float(work), float(seconds)
        if not (self._work > 0 and self._seconds > 0):
            raise ValueError(f"work={work}, seconds={seconds}: both are more than 0")

    def choose(self, seen: SizesSeen) -> SizeChoice:
        """The fewest nodes that are done in time, with some slack; else those that do most."""
        enough = [size for size, rate in seen.rates.items() if rate >= self._needed(seen) / SLACK]
        if not enough:
            found = super().choose(seen)
            return SizeChoice(found.nodes, f"{found.why}; no number that was measured is done in time")
        nodes = min(enough)
        spare = seen.elapsed + (self._work - seen.work) / seen.rates[nodes]
        why = f"{plural(nodes, 'node')}: done after {spare:.0f} s of {self._seconds:g} s"
        return SizeChoice(nodes, f"{why}, the fewest of those that were measured")

    def explore(self, seen: SizesSeen) -> SizeChoice | None:
        """More nodes where the job is late; else fewer that should be in time, by the law."""
        needed = self._needed(seen) / SLACK
        enough = [size for size, rate in seen.rates.items() if rate >= needed]
        if not enough:
            return super().explore(seen)
        fewer = [size for size in seen.sizes if size < min(enough) and size not in seen.rates]
        should = [size for size in fewer if self._rate(self._law(seen.rates), size) >= needed]
        if not should:
            return None
        return SizeChoice(should[0], f"{plural(should[0], 'node')} should be done in time, too")

    def moves(self, seen: SizesSeen, best: SizeChoice) -> bool:
        """To more nodes where these are late, to fewer where those are enough."""
        late = seen.rates[seen.nodes] < self._needed(seen)
        return best.nodes < seen.nodes or (late and best.nodes > seen.nodes)

    def _needed(self, seen: SizesSeen) -> float:
        """Work a second; as good as endless once the time is over."""
        return max(0.0, self._work - seen.work) / max(self._seconds - seen.elapsed, 1e-9)
