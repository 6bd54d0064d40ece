"""Made-up clicks in the form of Criteo's: 13 numbers, 26 categories and a click, each record by its number alone.

    python examples/click_records.py        # how difficult they are

Any range of records can be made anywhere, and exactly again with the same numpy. Nothing is stored: a record's draws
are hashes of the seed, the column and its number, and what an id does is a hash of the seed and the id.

- Ids are of Zipf's law (exponent 1.05) in each column; there are 1.8 million in all.
- The logit of a click is the sum of a bias, of the 13 numbers, of what each id does by itself, and of products of what
  two ids of one record are. Products have no mean for either id, so that no sum of single effects has a part in them.
- Effects of ids turn slowly (`drift`): after a million records they are at 0.96 of what they were.

The three parts are scaled so that the best that can be known has these areas under the curve (AUC), for every seed:
0.65 from the numbers alone, 0.76 from all single effects (the bound of a logistic regression), 0.81 from the truth.
That was fixed before the first model was trained. A model has not seen many of the ids often, and stays below: a
logistic regression (Adagrad, one pass over a million records of seed 0) had 0.744 on the next 100,000.
"""

import argparse
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

NUMBERS, CATEGORIES = 13, 26

# fmt: off
SIZES = (
    1460, 583, 400_000, 200_000, 305, 24, 12_517, 633, 3, 93_145, 5_683, 300_000, 3_194,
    27, 14_992, 250_000, 10, 5_652, 2_173, 4, 300_000, 18, 15, 120_000, 105, 80_000,
)
# fmt: on
"""Ids of each column."""

PAIRS = ((0, 1), (4, 6), (5, 10), (7, 12), (13, 14), (17, 18), (24, 0), (1, 4), (10, 7), (18, 24))
"""Columns whose ids act together."""

FACTORS = 4
EXPONENT = 1.05
BIAS, OF_NUMBERS, OF_IDS, OF_PAIRS = -1.4, 0.70, 0.99, 0.77
"""Of the logit: what it is in the middle, and the deviation of each part."""

SAMPLE = 1 << 16
"""Records whose parts have exactly these deviations."""


@dataclass(frozen=True, slots=True)
class Clicks:
    """Some records.

    Attributes:
        numbers: (n, 13) float32, of mean 0 and deviation 1.
        ids: (n, 26) int64; no two columns have the same.
        clicks: (n,) float32, 0 or 1.
        parts: (n, 3) float64: what numbers, ids and pairs add to the logit, which no model may see.
    """

    numbers: Array
    ids: Array
    clicks: Array
    parts: Array


@dataclass(frozen=True)
class ClickRecords:
    """All records of one seed.

    Args:
        seed: of everything.
        drift: radians that the effects of ids turn in a million records.
    """

    seed: int = 0
    drift: float = 0.3

    def make(self, records: Array) -> Clicks:
        """The records of these numbers (int64, from 0)."""
        numbers, ranks = self._draw(records)
        parts = self._parts(records, numbers, ranks) * self._scales
        chance = 1 / (1 + np.exp(-BIAS - parts.sum(axis=1)))
        clicks = (self._uniform(90, records) < chance).astype(np.float32)
        ids = ranks + (np.arange(CATEGORIES, dtype=np.int64) << 32)
        return Clicks(numbers.astype(np.float32), ids, clicks, parts)

    @cached_property
    def _scales(self) -> Array:
        records = np.arange(SAMPLE)
        return np.array([OF_NUMBERS, OF_IDS, OF_PAIRS]) / self._parts(records, *self._draw(records)).std(axis=0)

    def _draw(self, records: Array) -> tuple[Array, Array]:
        """Numbers (n, 13), and the rank of each id in its column (n, 26)."""
        numbers, ranks = np.empty((len(records), NUMBERS)), np.empty((len(records), CATEGORIES), np.int64)
        for column in range(NUMBERS):
            radius = np.sqrt(-2 * np.log1p(-self._uniform(column, records)))
            numbers[:, column] = radius * np.cos(2 * np.pi * self._uniform(20 + column, records))
        for column, size in enumerate(SIZES):
            top = 1 - (size + 1) ** (1 - EXPONENT)  # the inverse of Zipf's distribution, taken as continuous
            found = (1 - top * self._uniform(40 + column, records)) ** (1 / (1 - EXPONENT))
            ranks[:, column] = np.minimum(found.astype(np.int64) - 1, size - 1)
        return numbers, ranks

    def _parts(self, records: Array, numbers: Array, ranks: Array) -> Array:
        turned = self.drift * records / 1e6
        first, second = np.cos(turned), np.sin(turned)
        ids, pairs = np.zeros(len(records)), np.zeros(len(records))
        for column, effects in enumerate(self._effects):
            found = effects[ranks[:, column]]
            ids += first * found[:, 0] + second * found[:, 1]
        for one, other in PAIRS:
            pairs += (self._effects[one][ranks[:, one], 2:] * self._effects[other][ranks[:, other], 2:]).sum(axis=1)
        return np.stack([numbers @ (0.8 ** np.arange(NUMBERS)), ids, pairs], axis=1)

    @cached_property
    def _effects(self) -> list[Array]:
        """Of each column (ids, 2 + FACTORS) float32: an id by itself, first and turned, and with others."""
        found: list[Array] = []
        for column, size in enumerate(SIZES):
            ranks = np.arange(size)
            effects = np.stack([self._uniform(100 * (column + 1) + each, ranks) for each in range(2 + FACTORS)], axis=1)
            below = np.arange(1, size + 2) ** (1 - EXPONENT)
            often = (below[:-1] - below[1:]) / (below[0] - below[-1])
            effects -= often @ effects  # no mean
            effects /= np.sqrt(often @ effects**2)
            effects[:, :2] *= min(1.0, 2000 / size) ** 0.25  # what is rare says less
            found.append(effects.astype(np.float32))
        return found

    def _uniform(self, stream: int, keys: Array) -> Array:
        """From 0 to 1, by seed, stream and key: splitmix64."""
        begin = (self.seed * 0xD1342543DE82EF95 + stream * 0x2545F4914F6CDD1D + 1) % 2**64
        word = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(begin)
        for _ in range(2):
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
        return (word >> np.uint64(11)) * 2.0**-53


def area_under_curve(scores: Array, clicks: Array) -> float:
    """How often a record with a click has a higher score than one without (AUC); equal scores count by half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    clicked = clicks > 0
    positive = int(clicked.sum())
    return float((ranks[clicked].sum() - positive * (positive + 1) / 2) / (positive * (len(clicks) - positive)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made = ClickRecords(options.seed).make(np.arange(options.records))
    known = np.cumsum(made.parts, axis=1)
    print(
        f"{options.records} records, {made.clicks.mean():.1%} with a click, {len(np.unique(made.ids))} ids among them"
    )
    for words, scores in zip(("the numbers alone", "all single effects", "the truth"), known.T, strict=True):
        print(f"AUC of {words}: {area_under_curve(scores, made.clicks):.4f}")


if __name__ == "__main__":
    main()
