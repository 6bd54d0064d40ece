"""What features need to know of the records: moments, quantiles, frequent values; in one pass, in parts that merge.

summary = Summary(looks)      # which columns, and at what
summary.add(columns)          # a batch of records
summary.merge(other)          # what another process has seen
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from ...rendezvous.base.frozen import dataclass
from .errors import BadFeatures
from .serving import hash_text, numbers_of, split_value, text_of, values_of
from .sketches import Array, DistinctCount, FrequentValues, QuantileSketch

KEPT = 2048
"""Frequent values of a column, where nobody says how many."""


@dataclass(frozen=True, slots=True)
class ColumnLook:
    """What is to be known of a column.

    Attributes:
        column: of the records.
        what: its values as numbers, or as texts.
        split: what values consist of: see `split_value`; None: they are whole.
        kept: how many of the most frequent texts are to be told.
        gives_up: texts are counted until one is a number with a fraction: then it is no category.
    """

    column: str
    what: Literal["numbers", "texts"]
    split: str | None = None
    kept: int = KEPT
    gives_up: bool = False


class Moments:
    """Count, mean and the sum of squared distances from it (Chan, Golub and LeVeque, 1979)."""

    def __init__(self, count: int = 0, mean: float = 0.0, squares: float = 0.0) -> None:
        self.count, self.mean, self.squares = count, mean, squares

    def add(self, numbers: Array) -> None:
        """Adds finite numbers."""
        if len(numbers):
            mean = float(np.mean(numbers))
            self.merge(Moments(len(numbers), mean, float(np.sum((numbers - mean) ** 2))))

    def merge(self, other: "Moments") -> None:
        """Adds all that another has."""
        count = self.count + other.count
        if other.count:
            apart = other.mean - self.mean
            self.mean += apart * (other.count / count)
            self.squares += other.squares + apart * apart * (self.count * other.count / count)
            self.count = count

    @property
    def deviation(self) -> float:
        """The standard deviation of all; infinite or NaN where the numbers are too large for it."""
        return math.sqrt(max(self.squares, 0.0) / self.count) if self.count else 0.0

    def to_facts(self) -> list[float]:
        """For JSON."""
        return [self.count, self.mean, self.squares]


class NumberSummary:
    """A column as numbers.

    Attributes:
        missing: records without one.
        infinite: records with one that is not finite; nothing else counts them.
        low, high: the smallest and the largest; infinite where there is none.
        plain: moments of the numbers.
        logs: moments of sign(x) * log(1 + abs(x)).
        sketch: of their quantiles.
    """

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        known = facts or {}
        self.missing: int = known.get("missing", 0)
        self.infinite: int = known.get("infinite", 0)
        self.low = float(known.get("low", math.inf))
        self.high = float(known.get("high", -math.inf))
        self.plain, self.logs = Moments(*known.get("plain", ())), Moments(*known.get("logs", ()))
        self.sketch = QuantileSketch(*known.get("sketch", ()))

    def add(self, values: Any) -> None:  # Any: a column
        """Adds a column of some records."""
        numbers: Array = numbers_of(values).numpy()
        finite = numbers[np.isfinite(numbers)]
        self.missing += (missing := int(np.isnan(numbers).sum()))
        self.infinite += len(numbers) - missing - len(finite)
        if len(finite):
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
            with np.errstate(over="ignore", invalid="ignore"):
                self.plain.add(finite)
            self.logs.add(np.sign(finite) * np.log1p(np.abs(finite)))
            self.sketch.add(finite)

    def merge(self, other: "NumberSummary") -> None:
        """Adds what another has seen."""
        self.missing += other.missing
        self.infinite += other.infinite
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.plain.merge(other.plain)
        self.logs.merge(other.logs)
        self.sketch.merge(other.sketch)

    def to_facts(self) -> dict[str, Any]:
        """For JSON, in which Python reads infinite numbers as well."""
        own = {"missing": self.missing, "infinite": self.infinite, "low": self.low, "high": self.high}
        return {
            **own,
            "plain": self.plain.to_facts(),
            "logs": self.logs.to_facts(),
            "sketch": self.sketch.to_facts(),
        }


class TextSummary:
    """A column as texts, or as what these consist of.

    Attributes:
        count: texts.
        missing: records without one.
        spaces: in all texts.
        gave_up: they were counted no longer: see `ColumnLook`.
        frequent: those that are.
        distinct: how many.
    """

    def __init__(self, look: ColumnLook, facts: Mapping[str, Any] | None = None) -> None:
        known = facts or {}
        self.look = look
        self.count: int = known.get("count", 0)
        self.missing: int = known.get("missing", 0)
        self.spaces: int = known.get("spaces", 0)
        self.gave_up: bool = known.get("gave_up", False)
        self.frequent = FrequentValues(*known.get("frequent", (look.kept,)))
        self._distinct = DistinctCount(known.get("distinct", ""))

    def add(self, values: Any) -> None:  # Any: a column
        """Adds a column of some records."""
        if self.look.gives_up and (self.gave_up or _has_fraction(values)):
            self._give_up()
            return
        listed = values_of(values)
        split = self.look.split
        if split is None:
            counts = _count_texts(listed)
            missing = counts.pop("", 0)
        else:
            each = [split_value(value, split) for value in listed]
            counts = Counter(text for texts in each for text in texts)
            missing = sum(not texts for texts in each)
        self.missing += missing
        self.count += sum(counts.values())
        self.spaces += sum(text.count(" ") * count for text, count in counts.items())
        self._distinct.add([hash_text(text) for text in counts if text not in self.frequent.counts])
        self.frequent.add(counts)

    def merge(self, other: "TextSummary") -> None:
        """Adds what another has seen."""
        if self.gave_up or other.gave_up:
            self._give_up()
            return
        self.count += other.count
        self.missing += other.missing
        self.spaces += other.spaces
        self._distinct.merge(other._distinct)
        self.frequent.merge(other.frequent)

    def _give_up(self) -> None:
        self.__init__(self.look, {"gave_up": True})

    @property
    def distinct(self) -> int:
        """How many different texts there were: exactly, or about."""
        return self._distinct.estimate() if self.frequent.dropped else len(self.frequent.counts)

    def to_facts(self) -> dict[str, Any]:
        """For JSON."""
        own = {"count": self.count, "missing": self.missing, "spaces": self.spaces, "gave_up": self.gave_up}
        return {**own, "frequent": self.frequent.to_facts(), "distinct": self._distinct.to_facts()}


def _has_fraction(values: Any) -> bool:  # Any: a column
    """Whether one is a number of a float's kind and not whole."""
    array = np.asarray(values) if hasattr(values, "dtype") else np.empty(0)
    if array.dtype.kind == "f":
        finite = array[np.isfinite(array)]
        return bool((finite != np.trunc(finite)).any())
    return False


def _count_texts(values: list[Any]) -> Counter[str]:  # Any: what a column has
    """How often each text is there."""
    found = Counter[str]()
    try:
        counts = Counter(values)
    except TypeError:  # lists, which cannot be counted as they are
        return Counter(map(text_of, values))
    for value, count in counts.items():
        found[text_of(value)] += count
    return found


class Summary:
    """All that features need to know of the records that were added.

    Args:
        looks: at which columns, and at what.
    """

    def __init__(self, looks: Iterable[ColumnLook]) -> None:
        self.looks = tuple(dict.fromkeys(looks))
        self.records = 0
        self._numbers = {each.column: NumberSummary() for each in self.looks if each.what == "numbers"}
        self._texts = {(each.column, each.split): TextSummary(each) for each in self._look_at_texts()}

    def _look_at_texts(self) -> list[ColumnLook]:
        """One for each column and split, that keeps what all need."""
        found: dict[tuple[str, str | None], ColumnLook] = {}
        for look in self.looks:
            if look.what == "texts":
                before = found.get(key := (look.column, look.split))
                if before is None or before.kept < look.kept:
                    found[key] = look
        return list(found.values())

    def numbers(self, column: str) -> NumberSummary:
        """Of a column that was looked at as numbers."""
        return self._numbers[column]

    def texts(self, column: str, split: str | None = None) -> TextSummary:
        """Of a column that was looked at as texts."""
        return self._texts[column, split]

    def add(self, columns: Mapping[str, Any]) -> None:  # Any: arrays and lists
        """Adds some records. Raises BadFeatures where they lack a column."""
        for look in self.looks:
            if look.column not in columns:
                raise BadFeatures(
                    f"there is no column {look.column!r}: the records have {', '.join(map(repr, columns))}"
                )
        self.records += len(next(iter(columns.values()), ()))
        for column, part in self._numbers.items():
            part.add(columns[column])
        for (column, _), part in self._texts.items():
            part.add(columns[column])

    def merge(self, other: "Summary") -> None:
        """Adds what another has seen, with the same looks."""
        self.records += other.records
        for column, part in self._numbers.items():
            part.merge(other._numbers[column])
        for key, part in self._texts.items():
            part.merge(other._texts[key])

    def to_json(self) -> str:
        """What `from_json` reads, with the same looks."""
        numbers = [part.to_facts() for part in self._numbers.values()]
        return json.dumps([self.records, numbers, [part.to_facts() for part in self._texts.values()]])

    @classmethod
    def from_json(cls, looks: Iterable[ColumnLook], text: str) -> "Summary":
        """As it was."""
        made = cls(looks)
        made.records, numbers, texts = json.loads(text)
        made._numbers = {column: NumberSummary(each) for column, each in zip(made._numbers, numbers, strict=True)}
        made._texts = {
            key: TextSummary(part.look, each) for (key, part), each in zip(made._texts.items(), texts, strict=True)
        }
        return made
