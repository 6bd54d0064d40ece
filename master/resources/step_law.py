"""How long a step takes by the number of nodes, learnt from sizes that were measured (pure).

A step takes `a/n + b(n-1)/n + c log2(n) + d(n-1)` seconds with n nodes: what the nodes share, what a ring moves or
each does in full, a tree, and what each further node adds. All four are at least 0: each term is a cost. That is
Amdahl's law with the terms of communication, as in Pollux (OSDI '21). The fit is a non-negative least squares of
relative errors; with four terms, trying each subset of them is exact, and short enough for an agent without numpy.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, combinations

from ...rendezvous.base.frozen import dataclass

TERMS = 4


def _terms(nodes: int) -> tuple[float, ...]:
    return 1 / nodes, (nodes - 1) / nodes, math.log2(nodes), float(nodes - 1)


@dataclass(frozen=True, slots=True)
class StepLaw:
    """`weights`: of the four terms, in seconds."""

    weights: tuple[float, ...]

    def seconds(self, nodes: int) -> float:
        """Of one step with so many nodes."""
        return sum(weight * term for weight, term in zip(self.weights, _terms(nodes), strict=True))


def fit(seconds: Mapping[int, float]) -> StepLaw:
    """The law that is nearest to `seconds` of a step by nodes, of which there is at least one."""
    rows = [[term / taken for term in _terms(nodes)] for nodes, taken in seconds.items()]
    best, least = (0.0,) * TERMS, math.inf
    subsets = chain.from_iterable(combinations(range(TERMS), size) for size in range(1, min(TERMS, len(rows)) + 1))
    for subset in subsets:
        found = _solve([[row[term] for term in subset] for row in rows])
        if found is None or min(found) < 0:
            continue
        weights = dict(zip(subset, found, strict=True))
        whole = tuple(weights.get(term, 0.0) for term in range(TERMS))
        error = sum((1 - sum(w * r for w, r in zip(whole, row, strict=True))) ** 2 for row in rows)
        if error < least - 1e-12:
            best, least = whole, error
    return StepLaw(best)


def _solve(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """What is nearest to 1 in each row, by the normal equations; None where the columns depend on each other."""
    size = len(rows[0])
    left = [[sum(row[i] * row[j] for row in rows) for j in range(size)] for i in range(size)]
    right = [sum(row[i] for row in rows) for i in range(size)]
    for place in range(size):
        pivot = max(range(place, size), key=lambda row: abs(left[row][place]))
        if abs(left[pivot][place]) < 1e-12:
            return None
        left[place], left[pivot], right[place], right[pivot] = left[pivot], left[place], right[pivot], right[place]
        for row in range(place + 1, size):
            factor = left[row][place] / left[place][place]
            left[row] = [mine - factor * other for mine, other in zip(left[row], left[place], strict=True)]
            right[row] -= factor * right[place]
    found = [0.0] * size
    for place in reversed(range(size)):
        rest = sum(left[place][other] * found[other] for other in range(place + 1, size))
        found[place] = (right[place] - rest) / left[place][place]
    return found
