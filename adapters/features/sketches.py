"""Small summaries of many values, which can be merged: quantiles, how many are distinct, and which are frequent.

What they tell depends on the values and on how these were divided, and never on chance: whoever merges the same parts
in the same order finds the same.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

SKETCHED = 512
"""Numbers in the highest level of a sketch of quantiles: a rank is then right to about 1 %."""

SHRINKS = 2 / 3
"""How much shorter each lower level is."""

REGISTERS = 2048
"""Of a count of distinct values, which is then right to about 2 %."""


class QuantileSketch:
    """Numbers on levels: one of level n stands for 2**n numbers (Karnin, Lang and Liberty, 2016).

    A level that is full is sorted, and each second number moves up: in turn the first of each pair and the second.
    """

    def __init__(self, levels: Sequence[Sequence[float]] = ((),), turns: int = 0) -> None:
        self._levels: list[Array] = [np.asarray(each, np.float64) for each in levels]
        self._turns = turns

    def add(self, numbers: Array) -> None:
        """Adds finite numbers, float64."""
        self._levels[0] = np.concatenate([self._levels[0], numbers])
        self._compact()

    def merge(self, other: "QuantileSketch") -> None:
        """Adds all that another has."""
        for level, numbers in enumerate(other._levels):
            if level == len(self._levels):
                self._levels.append(np.empty(0))
            self._levels[level] = np.concatenate([self._levels[level], numbers])
        self._compact()

    def _compact(self) -> None:
        level = 0
        while level < len(self._levels):
            depth = len(self._levels) - 1 - level
            if len(self._levels[level]) > max(8, math.ceil(SKETCHED * SHRINKS**depth)):
                numbers = np.sort(self._levels[level])
                even = len(numbers) // 2 * 2
                self._levels[level] = numbers[even:]
                if level + 1 == len(self._levels):
                    self._levels.append(np.empty(0))
                moved = numbers[self._turns % 2 : even : 2]
                self._levels[level + 1] = np.concatenate([self._levels[level + 1], moved])
                self._turns += 1
                level = -1  # the levels below may be too long now
            level += 1

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The numbers that these shares of all are not above; none where there is no number."""
        numbers = np.concatenate(self._levels)
        if not len(numbers):
            return []
        weights = np.concatenate([np.full(len(each), 2**level, np.int64) for level, each in enumerate(self._levels)])
        order = np.argsort(numbers, kind="stable")
        reached = np.cumsum(weights[order])
        places: Array = cast(Any, reached).searchsorted(np.asarray(shares) * reached[-1])
        return [float(each) for each in numbers[order][np.minimum(places, len(numbers) - 1)]]

    def to_facts(self) -> list[Any]:
        """For JSON."""
        return [[each.tolist() for each in self._levels], self._turns]


class DistinctCount:
    """How many different values there were, by their hashes (HyperLogLog: Flajolet et al., 2007)."""

    def __init__(self, registers: str = "") -> None:
        known = np.frombuffer(base64.b64decode(registers), np.uint8) if registers else np.zeros(REGISTERS, np.uint8)
        self._registers = known.copy()

    def add(self, hashes: Sequence[int]) -> None:
        """Adds hashes, whole numbers of 63 bits."""
        given = np.asarray(hashes, np.int64)
        places: Array = given % REGISTERS  # 11 bits
        rest: Array = given // REGISTERS  # 52
        _, lengths = cast("tuple[Array, Array]", np.frexp(rest.astype(np.float64)))
        ranks = 53 - lengths  # zeros before the first bit, and one more
        np.maximum.at(self._registers, places, ranks.astype(np.uint8))

    def merge(self, other: "DistinctCount") -> None:
        """Adds all that another has."""
        self._registers = np.maximum(self._registers, other._registers)

    def estimate(self) -> int:
        """About how many."""
        zeros = int((self._registers == 0).sum())
        found = (
            0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS**2 / float((2.0 ** -self._registers.astype(np.float64)).sum())
        )
        if found <= 2.5 * REGISTERS and zeros:
            found = REGISTERS * math.log(REGISTERS / zeros)
        return round(found)

    def to_facts(self) -> str:
        """For JSON."""
        return base64.b64encode(self._registers.tobytes()).decode()


class FrequentValues:
    """Texts and how often they were there, at least: any that was there more than `dropped` times is among them.

    Of more than twice as many as are kept, the least frequent go, and all lose as much as these had (Misra and Gries,
    1982; Agarwal et al., 2012).
    """

    def __init__(self, kept: int, counts: Mapping[str, int] | None = None, dropped: int = 0) -> None:
        self._kept = kept
        self.counts: dict[str, int] = dict(counts or {})
        self.dropped = dropped

    def add(self, counts: Mapping[str, int]) -> None:
        """Adds texts, with how often each was there."""
        for text, count in counts.items():
            self.counts[text] = self.counts.get(text, 0) + count
        if len(self.counts) > 2 * self._kept:
            least = sorted(self.counts.values(), reverse=True)[self._kept]
            self.counts = {text: count - least for text, count in self.counts.items() if count > least}
            self.dropped += least

    def merge(self, other: "FrequentValues") -> None:
        """Adds all that another has."""
        self.dropped += other.dropped
        self.add(other.counts)

    def most(self, limit: int, min_count: int = 1) -> list[str]:
        """Up to `limit` texts that were there so often, the most frequent first."""
        found = [(-count, text) for text, count in self.counts.items() if count + self.dropped >= min_count]
        return [text for _, text in sorted(found)[:limit]]

    def to_facts(self) -> list[Any]:
        """For JSON."""
        return [self._kept, self.counts, self.dropped]
