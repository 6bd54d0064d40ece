"""Features that are inferred from the columns of records, by what a summary of all of them tells (pure)."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...rendezvous.base.frozen import dataclass
from .declared import VOCABULARY, Category, Feature, Features, IdSequence, Numeric, Words
from .errors import BadFeatures
from .summary import ColumnLook, NumberSummary, Summary, TextSummary

NUMERIC = 0.95
"""The share of values that are numbers, from which on a column of texts is one of numbers."""

FEW = 20
"""Different whole numbers, up to which they are categories."""

NEARLY_ALL = 0.9
"""The share of values that are there once, from which on they tell records apart and no more."""

WORDY = 3
"""Spaces in a text, from which on it is one of words."""

LENGTH = 20
"""Words of a text, and ids of a list."""

KEY = re.compile(r"(^|[^A-Za-z])(id|ID|Id)$|[a-z]I[Dd]$")
"""Names of columns whose numbers tell things apart."""

LARGEST = 2**31
"""Whole numbers beyond are no amounts but keys."""

MOST_BUCKETS = 1 << 20


@dataclass(frozen=True, slots=True)
class Inferred:
    """Features for columns.

    Attributes:
        features: that are declared for them.
        left_out: columns that have none, and why.
    """

    features: Features
    left_out: Mapping[str, str]

    def __str__(self) -> str:
        """The Python that declares the same."""
        without = [f"# left out: {column!r}, {why}" for column, why in self.left_out.items()]
        return "\n".join([*without, str(self.features)])


def looks_at(kinds: Mapping[str, str], label: str) -> tuple[ColumnLook, ...]:
    """All that is to be known of the columns with these kinds, but the label."""
    return tuple(_looks_at({name: kind for name, kind in kinds.items() if name != label}))


def _looks_at(kinds: Mapping[str, str]) -> Iterable[ColumnLook]:
    for column in kinds:
        yield ColumnLook(column, "numbers")
        yield ColumnLook(column, "texts", gives_up=True)


def infer_features(kinds: Mapping[str, str], label: str, summary: Summary) -> Inferred:
    """Features for all columns that tell something. Raises BadFeatures where none does."""
    found: dict[str, Feature] = {}
    left_out: dict[str, str] = {}
    for column, kind in kinds.items():
        if column != label:
            feature = infer_feature(column, kind, summary.numbers(column), summary.texts(column))
            if isinstance(feature, str):
                left_out[column] = feature
            else:
                name = f"{column}_" if column == "self" or column.endswith("_offsets") else column
                found[name] = replace(feature, column=column) if name != column else feature  # pyrefly: ignore  # no Cross
    if not found:
        why = "; ".join(f"{column!r} {each}" for column, each in left_out.items())
        raise BadFeatures(f"no feature can be inferred from the columns: {why or 'there is none but the label'}")
    return Inferred(Features(found), left_out)


def infer_feature(name: str, kind: str, numbers: NumberSummary, texts: TextSummary) -> Feature | str:
    """A column's feature, or why it has none.

    Args:
        name: of the column.
        kind: as readers name it.
    """
    count = numbers.plain.count
    if texts.gave_up:
        return _infer_number(numbers)
    if not texts.count:
        return "has no value"
    if texts.distinct == 1 and not texts.missing:
        return "has one value"
    if "list" in kind:
        return IdSequence(hash=MOST_BUCKETS >> 6, length=LENGTH)
    if "datetime" in kind or "date" in kind or "timestamp" in kind:
        return Numeric()
    tells_apart = texts.distinct >= NEARLY_ALL * texts.count and texts.count >= 100
    if count + numbers.infinite >= NUMERIC * texts.count:
        if kind == "bool" or texts.distinct <= FEW:
            return Category(vocabulary=FEW)
        counts_up = tells_apart and numbers.high - numbers.low < 2 * texts.distinct
        if max(abs(numbers.low), abs(numbers.high)) < LARGEST and not counts_up and not KEY.search(name):
            return _infer_number(numbers)
    if tells_apart:
        if texts.spaces >= WORDY * texts.count:
            return Words(hash=MOST_BUCKETS >> 6, length=LENGTH)
        return "has another value in nearly each record"
    if texts.spaces >= WORDY * texts.count and texts.distinct > VOCABULARY:
        return Words(hash=MOST_BUCKETS >> 6, length=LENGTH)
    if texts.distinct <= VOCABULARY:
        return Category(vocabulary=VOCABULARY)
    return Category(hash=min(MOST_BUCKETS, 1 << math.ceil(math.log2(4 * texts.distinct))))


def _infer_number(numbers: NumberSummary) -> Feature | str:
    if numbers.low == numbers.high and not numbers.missing and not numbers.infinite:
        return "has one value"
    low, middle, high = numbers.sketch.quantiles([0.01, 0.5, 0.99]) or (0.0, 0.0, 0.0)
    return Numeric(log=numbers.low >= 0 and high - middle > 10 * (middle - low) and high > 10)
