"""What the workers get done a second, over time (pure)."""

import itertools
from collections.abc import Sequence

from ..history.records import Point

MOST = 120
"""Values of a curve."""

SHORTEST = 5.0
"""Seconds of one value: shards are done in bursts."""


def records_a_second(points: Sequence[Point]) -> list[tuple[float, float]]:
    """(time, value) in order; empty where no dataset is known. What a lost worker gives back counts once."""
    if not any(each.datasets for each in points):
        return []
    made = list[tuple[float, float]]()
    for those in _parts(points):
        records = sum(max(0, _records(after) - _records(before)) for before, after in itertools.pairwise(those))
        made.append((those[0].unix, records / (those[-1].unix - those[0].unix)))
    return made


def steps_a_second(points: Sequence[Point]) -> list[tuple[float, float]]:
    """The same of optimizer steps; empty where nobody tells of them."""
    if all(each.steps is None for each in points):
        return []
    return [
        (those[0].unix, sum(each.steps or 0.0 for each in those[1:]) / (len(those) - 1)) for those in _parts(points)
    ]


def _records(point: Point) -> int:
    return sum(each.records for each in point.datasets)


def _parts(points: Sequence[Point]) -> list[Sequence[Point]]:
    """Neighbours, for at least SHORTEST seconds but for the last; each begins with the last point of the one before."""
    if len(points) < 2:
        return []
    least = max(SHORTEST, (points[-1].unix - points[0].unix) / MOST)
    parts, begun = list[Sequence[Point]](), 0
    for at, point in enumerate(points):
        if at > begun and (point.unix - points[begun].unix >= least or at == len(points) - 1):
            parts.append(points[begun : at + 1])
            begun = at
    return [each for each in parts if each[-1].unix > each[0].unix]
