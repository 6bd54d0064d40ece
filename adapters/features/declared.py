"""How a model's features are declared, in Python or as a table of a file (pure; loads no framework).

    features = Features(age=Numeric(), price=Numeric(log=True), city=Category(), user=Category(table=True))

A feature is made of the column of its name, or of the one that it names. `Features({"my column": Numeric()})` takes any
names.
"""

import json
import keyword
import math
import tomllib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from .errors import BadFeatures

VOCABULARY = 1000
"""Values, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """A number: standardized to mean 0 and deviation 1, with an indicator of missing values; or the id of a bin.

    Args:
        column: of the records; empty: that of the feature's name.
        log: the logarithm of it counts: sign(x) * log(1 + abs(x)).
        standardize: False: the number itself.
        bins: how many, of as many records each as quantiles can tell; or their inner edges, which grow. A bin has its
            lower edge. 0: none.
        indicator: a second number, 1 where there is no value; False: none.
    """

    column: str = ""
    _: KW_ONLY
    log: bool = False
    standardize: bool = True
    bins: int | tuple[float, ...] = 0
    indicator: bool = True

    def __post_init__(self) -> None:
        """Raises BadFeatures."""
        if isinstance(self.bins, int):
            if isinstance(self.bins, bool) or self.bins < 0 or self.bins == 1:
                raise BadFeatures(f"bins={self.bins}: say how many, from 2, or their inner edges, [18, 30, 50]")
            return
        edges = tuple(float(each) for each in self.bins)
        if not edges or not all(map(math.isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
            raise BadFeatures(f"bins={list(edges)}: edges are finite numbers that grow")
        object.__setattr__(self, "bins", edges)


@dataclass(frozen=True, slots=True)
class Category:
    """One of many values, as an id. Of `vocabulary`, `hash` and `table` one is given; nothing: a vocabulary of 1000.

    Args:
        column: as of `Numeric`.
        vocabulary: how many of the most frequent values have an id of their own; or these values.
        min_count: how often a value must be there to be one of them.
        hash: into how many buckets values are hashed.
        table: values are hashed into ids of a table, int64, as `elastic_run.torch.Embedding` takes.
    """

    column: str = ""
    _: KW_ONLY
    vocabulary: int | tuple[str, ...] = 0
    min_count: int = 1
    hash: int = 0
    table: bool = False

    def __post_init__(self) -> None:
        """Raises BadFeatures."""
        _settle_ids(self)


@dataclass(frozen=True, slots=True)
class Cross:
    """What several columns have together, hashed.

    Args:
        columns: two or more.
        hash: into how many buckets.
        table: as of `Category`.
    """

    columns: tuple[str, ...]
    _: KW_ONLY
    hash: int = 0
    table: bool = False

    def __post_init__(self) -> None:
        """Raises BadFeatures."""
        if isinstance(self.columns, str) or len(self.columns) < 2:
            raise BadFeatures(
                f'a cross is of two or more columns: Cross(["city", "hour"], hash=10_000), not {self.columns!r}'
            )
        if bool(self.hash) == bool(self.table) or self.hash < 0:
            raise BadFeatures(f"Cross({list(self.columns)}): say hash=BUCKETS or table=True")
        object.__setattr__(self, "columns", tuple(map(str, self.columns)))


@dataclass(frozen=True, slots=True)
class IdSequence:
    """Several values in one column, in order, as ids: a list, or a text with a separator.

    Args:
        column, vocabulary, min_count, hash, table: as of `Category`.
        separator: between the values of a text.
        length: ids of a record: what is more is cut off, what is less is padded with 0. 0: as many as there are, with
            offsets as `nn.EmbeddingBag` takes them.
    """

    column: str = ""
    _: KW_ONLY
    separator: str = " "
    length: int = 0
    vocabulary: int | tuple[str, ...] = 0
    min_count: int = 1
    hash: int = 0
    table: bool = False

    def __post_init__(self) -> None:
        """Raises BadFeatures."""
        _settle_ids(self)
        if not self.separator:
            raise BadFeatures("separator='' is none: name what is between the values of a text")


@dataclass(frozen=True, slots=True)
class Words:
    """A text, as the ids of its words in lower case. Args: as of `IdSequence`."""

    column: str = ""
    _: KW_ONLY
    length: int = 0
    vocabulary: int | tuple[str, ...] = 0
    min_count: int = 1
    hash: int = 0
    table: bool = False

    def __post_init__(self) -> None:
        """Raises BadFeatures."""
        _settle_ids(self)


Feature = Numeric | Category | Cross | IdSequence | Words

KINDS: Mapping[str, type[Feature]] = {
    "numeric": Numeric,
    "category": Category,
    "cross": Cross,
    "sequence": IdSequence,
    "words": Words,
}
"""By the word that a file has for it."""


def _as_text(value: Any) -> str:  # Any: of a script or a file
    """As records of that value have it."""
    whole = isinstance(value, bool | float) and abs(value) < 2**53 and value == int(value)
    return str(int(value)) if whole else str(value)


def _settle_ids(feature: Any) -> None:  # Any: one of those that have a vocabulary
    """Gives it its default. Raises BadFeatures."""
    kind, vocabulary = type(feature).__name__, feature.vocabulary
    if isinstance(vocabulary, str):
        raise BadFeatures(f"{kind}(vocabulary={vocabulary!r}): say how many values, or list them")
    given = (bool(vocabulary), bool(feature.hash), bool(feature.table))
    if sum(given) > 1:
        raise BadFeatures(f"{kind}: of vocabulary, hash and table say one")
    for name in ("hash", "min_count", *(["vocabulary"] if isinstance(vocabulary, int) else []), "length"):
        number = getattr(feature, name, 0)
        if not isinstance(number, int) or isinstance(number, bool) or number < (name == "min_count"):
            raise BadFeatures(f"{kind}({name}={number!r}): it is a whole number from {int(name == 'min_count')}")
    if not isinstance(vocabulary, int):
        object.__setattr__(feature, "vocabulary", tuple(dict.fromkeys(map(_as_text, vocabulary))))
    elif not any(given):
        object.__setattr__(feature, "vocabulary", VOCABULARY)


class Features:
    """The features of a model, by name, in order.

    Args:
        declared: names and features; for names that are no Python names.
        more: the same, as keywords.

    Raises:
        elastic_run.exceptions.BadFeatures: something else than a feature is given, or nothing.
    """

    def __init__(self, declared: Mapping[str, Feature] | None = None, /, **more: Feature) -> None:
        self.declared: dict[str, Feature] = {**(declared or {}), **more}
        if not self.declared:
            raise BadFeatures('no feature is declared: Features(age=Numeric(), city=Category()), or features = "auto"')
        for name, feature in self.declared.items():
            if not isinstance(name, str) or name == "self":  # pyright: ignore[reportUnnecessaryIsInstance]  # as below
                raise BadFeatures(f'{name!r} cannot be the name of a feature: Features(other=Numeric("{name}"))')
            if name.endswith("_offsets") and name.removesuffix("_offsets") in self.declared:
                raise BadFeatures(
                    f"the feature {name!r} has the name of the offsets of another one: give it another name"
                )
            if not isinstance(feature, tuple(KINDS.values())):  # pyright: ignore[reportUnnecessaryIsInstance]  # of a script that is not typed
                raise BadFeatures(
                    f"the feature {name!r} is {feature!r}: it is one of Numeric(), Category(), Cross(), ..."
                )

    def __eq__(self, other: object) -> bool:
        """Whether both declare the same, in the same order."""
        return isinstance(other, Features) and list(self.declared.items()) == list(other.declared.items())

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # a dict has none

    def __str__(self) -> str:
        """The Python that declares them."""
        plain = all(name.isidentifier() and not keyword.iskeyword(name) for name in self.declared)
        lines = [
            f"    {name}={describe_feature(each)}," if plain else f"    {name!r}: {describe_feature(each)},"
            for name, each in self.declared.items()
        ]
        begin, end = ("(", ")") if plain else ("({", "})")
        return "\n".join([f"features = Features{begin}", *lines, end])

    def to_tables(self) -> dict[str, dict[str, Any]]:
        """What a file has of them."""
        words = {kind: word for word, kind in KINDS.items()}
        return {name: {"kind": words[type(each)], **_given(each)} for name, each in self.declared.items()}


def _given(feature: Feature) -> dict[str, Any]:
    """What differs from the defaults."""
    found: dict[str, Any] = {}
    for each in fields(feature):
        value: Any = getattr(feature, each.name)
        is_default = value in (0, VOCABULARY) if each.name == "vocabulary" else value == each.default
        if not is_default:
            found[each.name] = list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
    return found


def describe_feature(feature: Feature) -> str:
    """The Python that declares it."""
    given = [
        repr(value) if name in ("column", "columns") else f"{name}={value!r}" for name, value in _given(feature).items()
    ]
    return f"{type(feature).__name__}({', '.join(given)})"


def list_columns(name: str, feature: Feature) -> tuple[str, ...]:
    """The columns that a feature of this name is made of."""
    return feature.columns if isinstance(feature, Cross) else (feature.column or name,)


def read_tables(tables: object, source: str) -> Features:
    """Features as a file has them. Raises BadFeatures, which names `source`."""
    declared: dict[str, Feature] = {}
    for name, table in cast("Mapping[str, Any]", tables).items() if isinstance(tables, Mapping) else ():
        if not isinstance(table, Mapping):
            raise BadFeatures(f"{source}: {name!r} is {table!r}: a feature is a table with its kind: [{name}]")
        given = dict(cast("Mapping[str, Any]", table))
        kind = KINDS.get(str(given.pop("kind", "")))
        if kind is None:
            raise BadFeatures(f"{source}: the kind of {name!r} is one of {', '.join(KINDS)}")
        if unknown := set(given) - {each.name for each in fields(kind)}:
            raise BadFeatures(
                f"{source}: {name!r} has {', '.join(sorted(unknown))}, which {kind.__name__} does not know"
            )
        try:
            declared[name] = kind(**given)
        except (BadFeatures, TypeError, ValueError) as error:
            raise BadFeatures(f"{source}: {name!r}: {error}") from None
    if not declared:
        raise BadFeatures(f'{source} declares no feature: each is a table, such as [age] with kind = "numeric"')
    return Features(declared)


def read_features(path: Path) -> Features:
    """Features of a TOML or JSON file. Raises BadFeatures."""
    try:
        text = path.read_text(encoding="utf-8")
        return read_tables(json.loads(text) if path.suffix == ".json" else tomllib.loads(text), str(path))
    except OSError as error:
        raise BadFeatures(f"the features {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadFeatures(f"the features {path} are neither TOML nor JSON: {error}") from None
