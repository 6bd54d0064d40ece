"""As fast as can be had for a number of node-seconds (pure)."""

from ....rendezvous.base.frozen import replace
from ....rendezvous.base.plural import plural
from . import SizeChoice, SizesSeen
from .goodput import ByGoodput


class ByBudget(ByGoodput):
    """One job's. Where no size that was measured can be paid, it takes the cheapest, and says so.

    Args:
        work: that the job has to do: steps times workers, or steps where `batch` is `job`.
        node_seconds: that it may have in all, each node counted for as long as it takes part.
        batch, cap: as for `goodput`.
    """

    def __init__(self, work: str, node_seconds: str, batch: str = "worker", cap: str = "0.05") -> None:
        super().__init__(batch, cap)
        self._work, self._budget = float(work), float(node_seconds)
        if not (self._work > 0 and self._budget > 0):
            raise ValueError(f"work={work}, node_seconds={node_seconds}: both are more than 0")

    def choose(self, seen: SizesSeen) -> SizeChoice:
        """The one that does most of those that can be paid until the work is done; else the cheapest."""
        rates = {size: rate for size, rate in seen.rates.items() if self._can_pay(size, rate, seen)}
        if rates:
            found = super().choose(replace(seen, rates=rates, nodes=min(rates)))
            return SizeChoice(found.nodes, f"{found.why}, within its budget")
        nodes = min(seen.rates, key=lambda size: size / seen.rates[size])
        words = f"{plural(nodes, 'node')}, the cheapest of those that were measured"
        return SizeChoice(nodes, f"{words}: none can do the rest of the work within the budget")

    def explore(self, seen: SizesSeen) -> SizeChoice | None:
        """What `goodput` would look at, where the law says that it can be paid; any number while one was measured."""
        law = self._law(seen.rates)
        paid = [size for size in seen.sizes if size in seen.rates or self._can_pay(size, self._rate(law, size), seen)]
        return super().explore(replace(seen, sizes=paid if len(seen.rates) > 1 else seen.sizes))

    def moves(self, seen: SizesSeen, best: SizeChoice) -> bool:
        """Away from what cannot be paid, and to what does more."""
        unpaid = not self._can_pay(seen.nodes, seen.rates[seen.nodes], seen)
        return best.nodes != seen.nodes and (unpaid or super().moves(seen, best))

    def _can_pay(self, size: int, rate: float, seen: SizesSeen) -> bool:
        return size * max(0.0, self._work - seen.work) <= (self._budget - seen.node_seconds) * rate
