"""The fewest nodes that do nearly as much work as any number could (pure).

It begins with what it has, and doubles as long as that helps. What lies between the measured sizes is looked at where
one of two says that more is to be had: the law of a step that fits what was measured (`step_law.py`), or, where no law
fits, a bound that holds for any job whose nodes help less and less: beyond two sizes, no size does more than a straight
line through them. The law finds the place; the bound is for jobs of a kind that the law does not contain.
"""

from collections.abc import Mapping

from ....rendezvous.base.plural import plural
from ..step_law import StepLaw, fit
from . import SizeChoice, SizesSeen

NEARLY = 0.975
"""A size that does this share of the best one's work is as good, and has fewer nodes."""

WORTH, WORTH_BY_BOUND = 0.02, 0.05
"""How much more must be had for a look: by the law, and by the bound, which promises too much."""

FAR, FAR_BEYOND = 2, 4
"""So many times the largest measured size is looked at: where it does most, and where it does less than a smaller one.
The second step into a ring costs most, and more nodes may make up for it: that is not seen by a short step."""

HYSTERESIS = 0.04
"""Without a look, the job moves to another size that was measured only where that does so much more."""

FEWER = 0.8
"""A size that should do nearly as much is worth a look where it has at most this share of the nodes."""

FITTED, FITS = 4, 0.03
"""The law is trusted, and the bound not asked, where it is that near to what so many sizes did."""


class ByGoodput:
    """One job's.

    Args:
        batch: `worker` where each worker has a batch of its own size, `job` where the script divides one.
        cap: as in `Planner`.
    """

    def __init__(self, batch: str = "worker", cap: str = "0.05") -> None:
        if batch not in ("worker", "job"):
            raise ValueError(f"batch={batch}: each worker has a batch, or the job: write batch=worker or batch=job")
        self.steps_alone, self.cap = batch == "job", float(cap)
        if not 0 < self.cap <= 1:
            raise ValueError(f"cap={cap} is no share of the work above 0, up to 1: write cap=0.05 for 5 %")

    def choose(self, seen: SizesSeen) -> SizeChoice:
        """The fewest nodes that did nearly as much as the best."""
        best = max(seen.rates.values())
        nodes = min(size for size, rate in seen.rates.items() if rate >= NEARLY * best)
        return SizeChoice(nodes, self._explain(nodes, seen))

    def explore(self, seen: SizesSeen) -> SizeChoice | None:
        """Twice as many at first; then where the law, or else the bound, says that more is to be had."""
        rates, best = seen.rates, max(seen.rates.values())
        far = FAR if rates[max(rates)] >= best else FAR_BEYOND
        around = [size for size in seen.sizes if min(rates) / 2 <= size <= far * max(rates)]
        if len(rates) == 1:
            other = around[-1] if around[-1] not in rates else around[0]
            if other in rates:
                return None
            return SizeChoice(other, f"{plural(other, 'node')}, to see what they do beside {_list(rates)}")
        law = self._law(rates)
        likely = {size: rates.get(size) or self._rate(law, size) for size in around}
        top, good = max(likely.values()), min(size for size, rate in rates.items() if rate >= NEARLY * best)
        goal = min(size for size, rate in likely.items() if rate >= NEARLY * top)
        more = likely[goal] / best - 1
        if goal not in rates and (more >= WORTH if goal > good else goal <= FEWER * good):
            what = f"do {_percent(more)} more" if more > 0 else f"do nearly as much ({_percent(more)})"
            return SizeChoice(goal, f"{plural(goal, 'node')} should {what}, by what {_list(rates)} did")
        if len(rates) >= FITTED and all(abs(self._rate(law, size) / rate - 1) <= FITS for size, rate in rates.items()):
            return None  # it is known what the others do
        bounds = {size: _bound(rates, size) for size in around if size not in rates}
        other = max(bounds, key=lambda size: (bounds[size], -size), default=0)
        if other and bounds[other] >= best * (1 + WORTH_BY_BOUND):
            beside = [size for size in bounds if bounds[size] >= best * (1 + WORTH_BY_BOUND)]
            gap = [size for size in beside if not any(min(size, other) < one < max(size, other) for one in rates)]
            if other < max(rates):
                other = gap[len(gap) // 2]  # the bound is highest at an end of the gap where there is none from above
            more = bounds[other] / best - 1
            return SizeChoice(other, f"{plural(other, 'node')} may do up to {_percent(more)} more than {_list(rates)}")
        few = min((size for size, bound in bounds.items() if bound >= NEARLY * best), default=good)
        if few <= FEWER * good:
            return SizeChoice(few, f"{plural(few, 'node')} may do as much as {plural(good, 'node')}")
        return None

    def moves(self, seen: SizesSeen, best: SizeChoice) -> bool:
        """Where the other did so much more."""
        return seen.rates[seen.nodes] < (1 - HYSTERESIS) * seen.rates[best.nodes]

    def _law(self, rates: Mapping[int, float]) -> StepLaw:
        return fit({size: self._per_step(size) / rate for size, rate in rates.items()})

    def _rate(self, law: StepLaw, size: int) -> float:
        return self._per_step(size) / max(law.seconds(size), 1e-9)

    def _per_step(self, size: int) -> int:
        return 1 if self.steps_alone else size

    def _explain(self, nodes: int, seen: SizesSeen) -> str:
        """`4 nodes: a fifth would add 3 %, by what 2, 4 and 8 nodes did`."""
        own = plural(nodes, "node")
        if len(seen.rates) < 2:
            return f"{own}, the only number that was measured"
        after = [size for size in seen.sizes if size > nodes]
        if not after:
            return f"{own}, the most that the job may have, by what {_list(seen.rates)} did"
        rate = seen.rates.get(after[0]) or self._rate(self._law(seen.rates), after[0])
        more = rate / seen.rates[nodes] - 1
        what = f"add {_percent(more)}" if more >= 0 else f"cost {_percent(-more)}"
        return f"{own}: {plural(after[0] - nodes, 'more node')} would {what}, by what {_list(seen.rates)} did"


def _bound(rates: Mapping[int, float], size: int) -> float:
    """The most that `size` can do if each further node helps less than the one before; no nodes do nothing."""
    known = sorted({0: 0.0, **rates}.items())
    below = [each for each in known if each[0] < size]
    below = [each for each in below if each is below[-1] or each[0] <= FEWER * below[-1][0]]  # else noise is the slope
    above = [each for each in known if each[0] > size]
    lines = [pair for pair in (below[-2:], above[:2]) if len(pair) == 2]
    if not lines:
        return max(rates.values())
    bound = min(_on_line(first, second, size) for first, second in lines)
    return max(bound, 0.0)


def _on_line(first: tuple[int, float], second: tuple[int, float], size: int) -> float:
    slope = (second[1] - first[1]) / (second[0] - first[0])
    return first[1] + slope * (size - first[0])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _list(rates: Mapping[int, float]) -> str:
    """`2, 4 and 8 nodes`."""
    sizes = [str(size) for size in sorted(rates)]
    if len(sizes) == 1:
        return plural(int(sizes[0]), "node")
    return f"{', '.join(sizes[:-1])} and {sizes[-1]} nodes"
