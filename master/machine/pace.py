"""How many optimizer steps a second a job makes, by what rank 0 tells of its own (pure).

Ranks of synchronous training step together, so one of them stands for all.
"""

from collections import deque
from dataclasses import replace

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Number
from ..status import Status
from .memory_report import MemoryReport

WINDOW = 30.0
"""Seconds over which it is taken."""

MOST = 64
"""Counts of one counter that are kept."""

COUNTERS = 8
"""Counters that are kept: those that were told of last."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """One counter in the process of rank 0 has counted so many steps up to `round`.

    Attributes:
        counter: its id. Each part of a script that commits counts by itself: a checkpoint, a sampler, an evaluation.
        memory: of a checkpoint that is kept in memory.
    """

    round: Number
    steps: Number
    counter: Number = 0
    memory: MemoryReport | None = None


class Pace:
    """Of one job.

    Attributes:
        counters: for each, when it was told of and its count; the one that was told of last comes last.
    """

    def __init__(self) -> None:
        self._round = 0
        self.counters = dict[int, deque[tuple[float, int]]]()
        self._memory: MemoryReport | None = None

    def told(self, told: Stepped, now: float) -> None:
        """The count at `now`, seconds. One of a round that is over comes too late."""
        if told.round < self._round:
            return
        if told.round > self._round:
            self._round = told.round
            self.counters.clear()
            self._memory = None
        self._memory = told.memory or self._memory
        counts = self.counters.pop(told.counter, None) or deque[tuple[float, int]](maxlen=MOST)
        counts.append((now, told.steps))
        self.counters[told.counter] = counts
        if len(self.counters) > COUNTERS:
            del self.counters[next(iter(self.counters))]

    def complete(self, status: Status, now: float) -> Status:
        """With what is known here."""
        return replace(status, steps=self.rate(status.round, now), memory=self.memory(status.round))

    def memory(self, round: int) -> MemoryReport | None:
        """What nodes hold of the checkpoint in `round`; None where nobody has told."""
        return self._memory if round == self._round else None

    def rate(self, round: int, now: float) -> float | None:
        """Steps a second in `round` until now; None where that is not known. It falls while nothing is told.

        It is that of the counter that counts fastest: an evaluation that has ended stands still.
        """
        if round != self._round:
            return None
        rates = (_rate(counts, now) for counts in self.counters.values())
        return max((rate for rate in rates if rate is not None), default=None)


def _rate(counts: deque[tuple[float, int]], now: float) -> float | None:
    """That of one counter, without what is older than WINDOW."""
    while len(counts) > 1 and counts[0][0] < now - WINDOW:
        counts.popleft()
    (begun, before), (_, count) = counts[0], counts[-1]
    if count <= before:
        return 0.0 if now - begun > WINDOW else None
    return (count - before) / (now - begun)
