"""What columns become for a model: tensors, by features that were fitted. It is also the `predict.py` of an export.

So it imports the standard library and torch alone, and nothing of elastic-run: what serves computes what has trained.

    missing     None, NaN, a date that is none, an empty text; in numbers also a text that is no number
    ids         0: missing, or padding; 1: a value that the vocabulary does not have; others: from 1 or 2 on
    infinite    the largest or smallest number that was seen
"""

import datetime
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

LONGEST = 200
"""Characters of a value; of a longer one its beginning and its hash count."""

CACHED = 1 << 16
"""Values of a column whose ids are remembered."""

EXACT = 2**53
"""Up to here every whole number is a floating-point number."""

WORDS = "words"
"""Splits a text into its words, in lower case."""

SINGLE = ("bins", "vocabulary", "hash", "table", "cross")
"""Kinds of features that are one id for each record."""

PROGRAM, FEATURES = "model.pt2", "features.json"
"""Files of an export."""

Facts = Mapping[str, Any]
"""Of one fitted feature, as JSON has it."""


def text_of(value: object) -> str:
    """A value as text, the same whether a file has it as a number or as text; empty: it is missing."""
    if not isinstance(value, str | bool | int | float) and hasattr(value, "item"):
        single = cast(Any, value)  # of numpy
        value = single.item() if single.ndim == 0 else single.tolist()
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, float | Decimal):
        whole = math.isfinite(value) and abs(value) < EXACT and value == int(value)
        text = (
            str(int(value)) if whole else f"{value.normalize():f}" if isinstance(value, Decimal) else repr(float(value))
        )
    elif isinstance(value, int):
        text = str(int(value))
    else:
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}#{hash_text(text):x}"


def number_of(value: object) -> float:
    """A value as a number, a date as seconds since 1970; NaN: it is missing, or no number."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        text = value.strip()
        try:
            return math.nan if "_" in text else float(text)
        except ValueError:
            pass
        try:
            value = datetime.datetime.fromisoformat(text) if text[4:5] == "-" else None
        except ValueError:
            return math.nan
    if isinstance(value, datetime.date):
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime(value.year, value.month, value.day)
        return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp()
    try:
        return float(cast(Any, value))
    except OverflowError:
        return math.inf if cast(int, value) > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def numbers_of(values: Any) -> Tensor:
    """A column, an array, a tensor or a list, as float64, (records,)."""
    if isinstance(values, Tensor):
        return values.detach().to(torch.float64).reshape(-1)
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if kind == "M":
        moments = torch.as_tensor(values.astype("datetime64[us]").astype("int64"))
        return torch.where(moments == torch.iinfo(torch.int64).min, math.nan, moments.to(torch.float64) / 1e6)
    if kind and kind in "biuf":
        return torch.as_tensor(values.astype("float64"))
    return torch.tensor([number_of(each) for each in values], dtype=torch.float64)


def values_of(values: Any) -> "list[object]":
    """A column, an array, a tensor or a list, as a list of Python's values."""
    if getattr(getattr(values, "dtype", None), "kind", "") == "M":
        values = values.astype("datetime64[us]")  # others become whole numbers
    return values.tolist() if hasattr(values, "tolist") else list(values)


def split_value(value: object, split: str) -> "list[str]":
    """What a value consists of, as texts: elements of a list, words of a text, or what a separator is between."""
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        parts = map(text_of, values_of(value))
    else:
        text = "" if value is None or value != value else value if isinstance(value, str) else text_of(value)
        parts = re.findall(r"\w+", text.lower()) if split == WORDS else text.split(split) if split else [text]
        parts = map(text_of, parts)
    return [each for each in parts if each]


def hash_text(text: str) -> int:
    """A whole number of 63 bits, the same everywhere."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class _IdsOfValues(dict[Any, int]):
    """The id of each value that was looked up."""

    def __init__(self, id_of: Callable[[str], int]) -> None:
        super().__init__()
        self._id_of = id_of

    def __missing__(self, value: Any) -> int:
        found = self._id_of(text_of(value))
        if len(self) < CACHED and value == value and not (isinstance(value, str | bytes) and len(value) > LONGEST):
            self[value] = found
        return found

    def look_up(self, values: Iterable[object]) -> "list[int]":
        """Of each value, in order."""
        try:
            return [self[each] for each in values]
        except TypeError:  # a list or a mapping is among them, which no dict has as a key
            return [self._id_of(text_of(each)) for each in values]


def _ids_of_texts(facts: Facts) -> Callable[[str], int]:
    """What gives a text its id."""
    if "values" in facts:
        known = {text: number for number, text in enumerate(facts["values"], 2)}
        return lambda text: known.get(text, 1) if text else 0
    salt, buckets = f"{facts['salt']}\0", facts.get("buckets", 0)
    if buckets:
        return lambda text: 1 + hash_text(salt + text) % buckets if text else 0
    return lambda text: hash_text(salt + text) if text else 0


class _FittedFeature:
    """One feature. Args: facts: as `FittedFeatures` has them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.name: str = facts["name"]
        self.kind: str = facts["kind"]
        self.columns: list[str] = facts.get("columns") or [facts["column"]]
        if self.kind == "bins":
            self._edges = torch.tensor(facts["edges"], dtype=torch.float64)
        elif self.kind != "number":
            self._ids = _IdsOfValues(_ids_of_texts(facts))

    def compute(self, columns: Mapping[str, Any]) -> "dict[str, Tensor]":
        """Tensors by name. Raises ValueError where a column is missing."""
        for column in self.columns:
            if column not in columns:
                raise ValueError(f"there is no column {column!r}, which the feature {self.name!r} is made of")
        given = columns[self.columns[0]]
        if self.kind == "number":
            return {self.name: self._standardize(numbers_of(given))}
        if self.kind == "bins":
            numbers = numbers_of(given)
            ids = torch.bucketize(numbers, self._edges, right=True) + 1
            return {self.name: ids.masked_fill(numbers.isnan(), 0)}
        if self.kind == "sequence":
            return self._list_ids(given)
        values = self._cross(columns) if self.kind == "cross" else values_of(given)
        return {self.name: torch.tensor(self._ids.look_up(values), dtype=torch.int64)}

    def _standardize(self, numbers: Tensor) -> Tensor:
        facts, missing = self.facts, numbers.isnan()
        numbers = numbers.nan_to_num(facts["low"], math.inf, -math.inf).clamp(facts["low"], facts["high"])
        if facts["log"]:
            numbers = numbers.sign() * numbers.abs().log1p()
        numbers = ((numbers - facts["mean"]) / facts["deviation"]).masked_fill(missing, 0.0)
        parts = [numbers, missing.to(torch.float64)] if facts["indicator"] else [numbers]
        return torch.stack(parts, dim=1).to(torch.float32)

    def _cross(self, columns: Mapping[str, Any]) -> "list[str]":
        parts = zip(*([text_of(each) for each in values_of(columns[name])] for name in self.columns), strict=True)
        return [hash_texts(each) if any(each) else "" for each in parts]

    def _list_ids(self, values: Any) -> "dict[str, Tensor]":
        length = self.facts["length"]
        found = [self._ids.look_up(split_value(each, self.facts["split"])) for each in values_of(values)]
        if length:
            padded = [(each[:length] + [0] * length)[:length] for each in found]
            return {self.name: torch.tensor(padded, dtype=torch.int64).reshape(len(found), length)}
        ends = [0]
        for each in found:
            ends.append(ends[-1] + len(each))
        flat = torch.tensor([one for each in found for one in each], dtype=torch.int64)
        return {self.name: flat, f"{self.name}_offsets": torch.tensor(ends[:-1], dtype=torch.int64)}


def hash_texts(texts: Iterable[str]) -> str:
    """A text for several, another one for any others."""
    return f"{hash_text(json.dumps(list(texts))):x}"


class FittedFeatures:
    """Features with what they need to know of the data: called with columns, it returns the inputs of a model.

    Args:
        facts: of each feature, in order; JSON holds them.

    Attributes:
        facts: as given.
        numbers: how many numbers of a record `join` returns.
        fields: how many ids of a record `join` returns.
        rows: how many different ids these may be, or 1: the length of an `nn.Embedding`; 0: ids of a table are among
            them.
    """

    def __init__(self, facts: Iterable[Facts]) -> None:
        self.facts: list[Facts] = list(facts)
        self._features = [_FittedFeature(each) for each in self.facts]
        self._numbers = [each for each in self._features if each.kind == "number"]
        self._single = [each for each in self._features if each.kind in SINGLE]
        rows = [each.facts.get("rows", 0) for each in self._single]
        self._firsts: list[int] = [
            sum(rows[:at]) if each.kind != "table" else 0 for at, each in enumerate(self._single)
        ]
        self.numbers = sum(2 if each.facts["indicator"] else 1 for each in self._numbers)
        self.fields = len(self._single)
        self.rows: int = max(sum(rows), 1) if all(rows) else 0

    @property
    def columns(self) -> "list[str]":
        """Of the records that features are made of."""
        return list(dict.fromkeys(column for each in self._features for column in each.columns))

    def __call__(self, columns: Mapping[str, Any]) -> "dict[str, Tensor]":
        """The inputs of some records, by the name of the feature. Raises ValueError where there is no such column.

            Numeric             (records, 2) float32: the number, and 1 where it is missing, else 0
            Numeric, in bins    (records,) int64
            Category, Cross     (records,) int64
            IdSequence, Words    (records, length) int64; or ids (any,) and NAME_offsets (records,), int64

        Args:
            columns: a list, an array or a tensor of values for each, of one length.
        """
        found: dict[str, Tensor] = {}
        for each in self._features:
            found.update(each.compute(columns))
        return found

    def join(self, inputs: Mapping[str, Tensor]) -> "tuple[Tensor, Tensor]":
        """All numbers, (records, numbers) float32, and all ids but those of sequences, (records, fields) int64.

        No two features have ids in common, so that one embedding of `rows` rows has a row for each.
        """
        numbers = [inputs[each.name] for each in self._numbers]
        ids = [inputs[each.name] + first for each, first in zip(self._single, self._firsts, strict=True)]
        some = next(iter(inputs.values()))
        return (
            torch.cat(numbers, dim=1) if numbers else torch.zeros((some.shape[0], 0)),
            torch.stack(ids, dim=1) if ids else torch.zeros((some.shape[0], 0), dtype=torch.int64),
        )

    def rows_of(self, name: str) -> int:
        """How many different ids a feature has, with those of padding and of unseen values; 0: any int64."""
        return next(each.facts.get("rows", 0) for each in self._features if each.name == name)


class Predictor:
    """An exported model.

    Args:
        folder: of the export.
    """

    def __init__(self, folder: Path) -> None:
        self.features = FittedFeatures(json.loads((folder / FEATURES).read_text(encoding="utf-8"))["features"])
        from torch.export import load  # here: it takes a second, and training does not need it

        self._module: Any = load(str(folder / PROGRAM)).module()

    def __call__(
        self, records: "Mapping[str, Any] | Sequence[Mapping[str, Any]]"
    ) -> Any:  # Any: what the module returns
        """The module's output for some records.

        Args:
            records: a list, an array or a tensor of values for each column; or a mapping of columns to values for each
                record, where a column that a record lacks is missing.

        Raises ValueError where there is no such column.
        """
        if not isinstance(records, Mapping):
            records = {column: [each.get(column) for each in records] for column in self.features.columns}
        with torch.no_grad():
            return self._module(tuple(self.features(records).values()))


@functools.cache
def _load_here() -> Predictor:
    return Predictor(Path(__file__).parent)


def predict(records: "Mapping[str, Any] | Sequence[Mapping[str, Any]]") -> Any:  # Any: as above
    """The output for some records of the model in whose folder this file is: see `Predictor`."""
    return _load_here()(records)
