"""How many CPUs of a simulated cluster each owner has, and trains with, over time."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Curve:
    """A number of CPUs that changes at moments. `times` ascend; before the first it is 0."""

    times: list[float] = field(default_factory=list[float])
    values: list[float] = field(default_factory=list[float])

    def add(self, change: float, now: float) -> None:
        """It changes by that."""
        self.set((self.values[-1] if self.values else 0.0) + change, now)

    def set(self, value: float, now: float) -> None:
        """It is that from now on."""
        if self.times and self.times[-1] == now:
            self.values[-1] = value
        elif not self.values or self.values[-1] != value:
            self.times.append(now)
            self.values.append(value)

    def at(self, moment: float) -> float:
        """Its value then."""
        place = bisect_right(self.times, moment)
        return self.values[place - 1] if place else 0.0

    def total(self, begin: float, end: float) -> float:
        """CPU-seconds between the two."""
        found = 0.0
        for place, value in enumerate(self.values):
            after = self.times[place + 1] if place + 1 < len(self.times) else end
            found += value * max(0.0, min(after, end) - max(self.times[place], begin))
        return found


@dataclass(slots=True)
class Usage:
    """By owner, the CPUs of its pods, and of those the ones that train."""

    has: dict[str, Curve] = field(default_factory=dict[str, Curve])
    works: dict[str, Curve] = field(default_factory=dict[str, Curve])

    def held(self, owner: str, change: float, now: float) -> None:
        """Pods of it got, or lost, CPUs."""
        self.has.setdefault(owner, Curve()).add(change, now)

    def trains(self, owner: str, cpus: float, now: float) -> None:
        """It trains with so many from now on."""
        self.works.setdefault(owner, Curve()).set(cpus, now)


def total(curves: Sequence[Curve], begin: float, end: float) -> float:
    """CPU-seconds of all of them between the two."""
    return sum(curve.total(begin, end) for curve in curves)
