"""How fast a round makes steps, and how well that is known (pure)."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ...rendezvous.base.frozen import dataclass

WARM_SECONDS = 2.0
"""After the first step that a round tells of: caches fill, and steps are compiled."""

ENOUGH, ENOUGH_ERROR = 5, 0.015
"""So many reports, and so small a relative standard error of their mean, are a measurement."""

MOST = 30
"""Reports that count, the newest; so many are a measurement however much they vary."""


@dataclass(frozen=True, slots=True)
class StepRate:
    """Steps a second. `known`: it is a measurement."""

    rate: float
    known: bool


def measure(counters: Iterable[Sequence[tuple[float, int]]], first_at: float) -> StepRate | None:
    """What a round tells of its steps; None where there are no two reports yet.

    Args:
        counters: of each counter of rank 0's process, when it was told of and its count. The one that has gone furthest
            is the job's: others count evaluations, say.
        first_at: when the first step of the round was told of.
    """
    counts = max(counters, key=lambda each: each[-1][1] - each[0][1], default=())
    warm = [each for each in counts if each[0] >= first_at + WARM_SECONDS][-MOST - 1 :]
    gaps = [
        (now - then, count - before)
        for (then, before), (now, count) in pairwise(warm)
        if now > then and count >= before
    ]
    if not gaps:
        return None
    rates = [steps / seconds for seconds, steps in gaps]
    mean = sum(rates) / len(rates)
    known = len(gaps) >= MOST
    if not known and len(gaps) >= ENOUGH:
        error = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1) / len(rates))
        known = error <= ENOUGH_ERROR * mean
    return StepRate(sum(steps for _, steps in gaps) / sum(seconds for seconds, _ in gaps), known)
