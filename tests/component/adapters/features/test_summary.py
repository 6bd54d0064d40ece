"""One pass over records, in parts that merge, against all records at once."""

import datetime
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from elastic_run.adapters.features.errors import BadFeatures
from elastic_run.adapters.features.serving import hash_text
from elastic_run.adapters.features.sketches import DistinctCount, FrequentValues, QuantileSketch
from elastic_run.adapters.features.summary import ColumnLook, Summary

LOOKS = (
    ColumnLook("x", "numbers"),
    ColumnLook("x", "texts", gives_up=True),
    ColumnLook("c", "texts"),
    ColumnLook("c", "texts", "words"),
)


def records(count: int, seed: int) -> dict[str, Any]:
    draws = np.random.default_rng(seed)
    numbers = draws.lognormal(2, 1.5, count)
    numbers[::50], numbers[1::100] = np.nan, np.inf
    return {"x": numbers, "c": [None if draws.random() < 0.1 else f"Wort {draws.zipf(1.7) % 60}" for _ in range(count)]}


def part(columns: dict[str, Any], begin: int, end: int) -> Summary:
    summary = Summary(LOOKS)
    summary.add({name: values[begin:end] for name, values in columns.items()})
    return Summary.from_json(LOOKS, summary.to_json())


def test_parts_that_are_merged_tell_what_all_records_tell() -> None:
    columns = records(20_000, seed=1)
    edges = [0, 1, 1, 500, 9_000, 20_000]
    together = Summary(LOOKS)
    for begin, end in pairwise(edges):
        together.merge(part(columns, begin, end))
    numbers, finite = together.numbers("x"), columns["x"][np.isfinite(columns["x"])]
    assert together.records == 20_000
    assert (numbers.missing, numbers.infinite) == (400, 200)
    assert (numbers.low, numbers.high) == (finite.min(), finite.max())
    assert numbers.plain.mean == pytest.approx(finite.mean()) and numbers.plain.deviation == pytest.approx(finite.std())
    assert numbers.logs.mean == pytest.approx(np.log1p(finite).mean())
    for share, found in zip((0.01, 0.5, 0.9), numbers.sketch.quantiles([0.01, 0.5, 0.9]), strict=True):
        assert (finite <= found).mean() == pytest.approx(share, abs=0.01)
    assert together.texts("x").gave_up and not together.texts("x").count
    texts, words = together.texts("c"), together.texts("c", "words")
    assert texts.count + texts.missing == 20_000 and texts.distinct == len({*columns["c"]} - {None})
    assert words.frequent.most(1) == ["wort"] and words.frequent.counts["wort"] == texts.count
    assert {text: columns["c"].count(text) for text in texts.frequent.counts} == texts.frequent.counts


UGLY: dict[str, Any] = {
    "texts among numbers": ["1", " 2 ", "three", "", "1_000", "-inf", "nan", None, "1e400", "x" * 1_000_000],
    "nothing": [None] * 10,
    "one value": [7.0] * 10,
    "not a number": np.full(10, np.nan),
    "no numbers": np.full(10, -np.inf),
    "large": np.array([1.7e308, -1.7e308] * 5),
    "keys": np.array([2**63 - 1, -(2**63), 2**53 + 1, 2**53, 0] * 2),
    "flags": np.array([True, False] * 5),
    "dates": np.array(["2024-01-01", "NaT"] * 5, "datetime64[D]"),
    "moments": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), datetime.date(1969, 1, 1)] * 5,
    "lists": [[1, 2], [], None, ["a", None], "a b"] * 2,
    "ünïcode 🎉": ["ß", "\ud800", "\x00", "🎉", "", "ﬀ", " ", "a", "b", "c"],
    "bytes": [b"\xff", b"1", None, b"", b"x"] * 2,
}


def test_no_column_is_too_ugly() -> None:
    looks = [
        look
        for name in UGLY
        for look in (ColumnLook(name, "numbers"), ColumnLook(name, "texts"), ColumnLook(name, "texts", "|"))
    ]
    summary = Summary(looks)
    for _ in range(2):
        summary.add(UGLY)
        summary.merge(Summary.from_json(looks, summary.to_json()))
    keys, mixed = summary.texts("keys"), summary.numbers("texts among numbers")
    assert {"9223372036854775807", "9007199254740993", "9007199254740992"} <= set(keys.frequent.counts)
    assert (mixed.plain.count, mixed.infinite, mixed.missing) == (2 * 6, 2 * 6, 6 * 6)
    assert summary.numbers("nothing").plain.count == 0 and summary.texts("nothing").missing == 60
    assert summary.numbers("dates").high == 1704067200 == summary.numbers("moments").high
    assert summary.texts("lists", "|").frequent.counts == {"a": 12, "1": 12, "2": 12, "a b": 12}
    assert all(len(text) < 300 for text in summary.texts("texts among numbers").frequent.counts)


def test_a_column_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(BadFeatures, match="there is no column 'c': the records have 'x', 'd e'"):
        Summary(LOOKS).add({"x": [1], "d e": [2]})


def test_a_sketch_stays_small_and_its_quantiles_right() -> None:
    sketch, numbers = QuantileSketch(), np.random.default_rng(5).permutation(300_000).astype(float)
    for begin in range(0, len(numbers), 7_000):
        sketch.add(numbers[begin : begin + 7_000])
    shares = [each / 20 for each in range(1, 20)]
    assert sketch.quantiles(shares) == pytest.approx([each * 300_000 for each in shares], abs=3_000)
    levels, _ = sketch.to_facts()
    assert sum(map(len, levels)) < 2_000
    assert QuantileSketch().quantiles(shares) == []


def test_different_values_are_counted_about_right_and_frequent_ones_are_not_lost() -> None:
    counted, frequent, draws = DistinctCount(), FrequentValues(100), random.Random(3)
    stream = ["often"] * 3_000 + [f"v{number}" for number in range(50_000)]
    draws.shuffle(stream)
    for begin in range(0, len(stream), 1_000):
        batch = stream[begin : begin + 1_000]
        frequent.add({text: batch.count(text) for text in set(batch)})
        counted.add([hash_text(text) for text in batch])
    assert counted.estimate() == pytest.approx(50_001, rel=0.08)
    assert frequent.most(1) == ["often"] and len(frequent.counts) <= 200
    assert frequent.counts["often"] <= 3_000 <= frequent.counts["often"] + frequent.dropped
