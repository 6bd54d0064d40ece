"""How features are declared: in Python, in a file, and shown as Python."""

import math
from pathlib import Path
from typing import Any, cast

import pytest

from elastic_run.adapters.features.declared import (
    Category,
    Cross,
    Features,
    IdSequence,
    Numeric,
    Words,
    read_features,
    read_tables,
)
from elastic_run.adapters.features.errors import BadFeatures

PLAIN = Features(
    age=Numeric(),
    price=Numeric("price in EUR", log=True, indicator=False),
    raw=Numeric(standardize=False),
    hour=Numeric(bins=(6, 12, 18.5)),
    city=Category(),
    country=Category(vocabulary=("de", "fr", 1, True, 2.5), min_count=3),
    user=Category(table=True),
    both=Cross(("city", "user"), hash=100),
    seen=IdSequence(separator="|", length=5, hash=1000),
    title=Words(vocabulary=500),
)

ODD = Features({"class": Numeric(), "größe in cm": Category(hash=7), "": Numeric("x")})


@pytest.mark.parametrize("features", [PLAIN, ODD])
def test_what_is_shown_declares_the_same_and_so_does_a_file(features: Features) -> None:
    names: dict[str, Any] = {each.__name__: each for each in (Category, Cross, Features, IdSequence, Numeric, Words)}
    exec(str(features), names)
    assert names["features"] == features
    assert read_tables(features.to_tables(), "a file") == features


def test_values_are_the_texts_that_records_have_and_a_default_is_a_vocabulary() -> None:
    assert PLAIN.declared["country"] == Category(vocabulary=("de", "fr", "1", "2.5"), min_count=3)
    assert Category() == Category(vocabulary=1000)
    ends = cast("Any", [math.inf, -math.inf, math.nan, 1e20])
    assert Category(vocabulary=ends).vocabulary == ("inf", "-inf", "nan", "1e+20")


def test_a_file_is_toml_or_json(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[age]\nkind = "numeric"\nlog = true\n["my city"]\nkind = "category"\nhash = 9\n')
    (tmp_path / "a.json").write_text(
        '{"age": {"kind": "numeric", "log": true}, "my city": {"kind": "category", "hash": 9}}'
    )
    wanted = Features({"age": Numeric(log=True), "my city": Category(hash=9)})
    assert read_features(tmp_path / "a.toml") == read_features(tmp_path / "a.json") == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[age]\nkind = 'number'\n", "the kind of 'age' is one of numeric, category"),
        ("[age]\nkind = 'numeric'\nlogs = true\n", "'age' has logs, which Numeric does not know"),
        ("[age]\nkind = 'numeric'\nbins = [2, 1]\n", r"'age': bins=\[2.0, 1.0\]: edges are finite numbers that grow"),
        ("[age]\nkind = 'cross'\n", "'age': .*columns"),
        ("age = 1\n", "'age' is 1: a feature is a table with its kind"),
        ("", "declares no feature"),
        ("[age\n", "neither TOML nor JSON"),
    ],
)
def test_what_a_file_cannot_declare_is_told(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(BadFeatures, match=told):
        read_features(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Features(), "no feature is declared"),
        (lambda: Features(age=Numeric), "the feature 'age' is <class"),  # pyright: ignore[reportArgumentType]
        (lambda: Features({"self": Numeric()}), r'Features\(other=Numeric\("self"\)\)'),
        (lambda: Features(a=Words(hash=5), a_offsets=Numeric()), "'a_offsets' has the name of the offsets of another"),
        (lambda: Numeric(bins=1), "say how many, from 2"),
        (lambda: Numeric(bins=(1.0, float("nan"))), "finite numbers"),
        (lambda: Category(hash=5, table=True), "of vocabulary, hash and table say one"),
        (lambda: Category(hash=-5), "hash=-5"),
        (lambda: Category(vocabulary="abc"), "list them"),  # pyright: ignore[reportArgumentType]
        (lambda: Category(min_count=0), "whole number from 1"),
        (lambda: Cross(("a",), hash=5), "two or more columns"),
        (lambda: Cross(("a", "b")), "say hash=BUCKETS or table=True"),
        (lambda: IdSequence(separator=""), "name what is between"),
    ],
)
def test_what_cannot_be_declared_is_told(make: Any, told: str) -> None:
    with pytest.raises(BadFeatures, match=told):
        make()
