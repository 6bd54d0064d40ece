"""What fitted features make of columns, with all that is missing, unseen and ugly in them."""

import datetime
import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.features import serving
from elastic_run.adapters.features.declared import Category, Cross, Features, IdSequence, Numeric, Words
from elastic_run.adapters.features.fitting import fit_features, looks_of
from elastic_run.adapters.features.inference import infer_features, looks_at
from elastic_run.adapters.features.serving import FittedFeatures, hash_text, number_of, text_of
from elastic_run.adapters.features.summary import Summary
from elastic_run.features import FittedFeatures as Public


def fit(features: Features, columns: dict[str, Any]) -> FittedFeatures:
    summary = Summary(looks_of(features))
    summary.add(columns)
    return FittedFeatures(json.loads(json.dumps(fit_features(features, summary).facts)))


NAN, INF = math.nan, math.inf

SEEN: dict[str, Any] = {
    "x": np.array([1.0, 3.0, NAN, INF]),
    "city": ["Rom", "Bonn", "Rom", None],
    "day": [1, 2, 3, 4],
    "list": ["a b a", "b", "", None],
    "title": ["The Cat's hat", "THE end", None, "."],
}


def test_numbers_are_standardized_and_what_is_missing_is_the_mean_and_told() -> None:
    fitted = fit(
        Features(x=Numeric(), y=Numeric("x", log=True, indicator=False), z=Numeric("x", standardize=False)), SEEN
    )
    found = fitted({"x": [1, "3", None, "no", INF, -INF, 1e300, True, 2.0]})
    assert found["x"].tolist() == [[-1, 0], [1, 0], [0, 1], [0, 1], [1, 0], [-1, 0], [1, 0], [-1, 0], [0, 0]]
    assert found["x"].dtype == torch.float32 and found["y"].shape == (9, 1)
    assert found["y"][:3, 0].tolist() == [-1, 1, 0]
    assert found["z"][:4, 0].tolist() == [1, 3, 0, 0]


def test_values_that_are_listed_are_found_however_long_they_are() -> None:
    fitted = fit(Features(x=Category(vocabulary=("a", "b" * 300))), {"x": []})
    assert fitted({"x": ["a", "b" * 300, "b" * 301]})["x"].tolist() == [2, 3, 1]


def test_bins_are_ids_by_quantiles_or_edges() -> None:
    numbers = np.arange(1000.0)
    fitted = fit(Features(q=Numeric("x", bins=4), e=Numeric("x", bins=(10, 20))), {"x": numbers})
    found = fitted({"x": [None, -5, 9.99, 10, 20, INF, 260, 999]})
    assert found["e"].tolist() == [0, 1, 1, 2, 3, 3, 3, 3]
    assert found["q"].tolist() == [0, 1, 1, 1, 1, 4, 2, 4]
    assert (fitted.rows_of("q"), fitted.rows_of("e"), fitted.rows) == (5, 4, 9)


def test_a_column_of_one_value_or_of_none_has_numbers_that_are_finite() -> None:
    features = Features(x=Numeric(), b=Numeric("x", bins=3), c=Category("x"))
    for values in ([], [None, ""], [7.0] * 3, [INF, -INF], [1.7e308, -1.7e308], [0.1] * 9):
        found = fit(features, {"x": values})({"x": [7, None, INF, 0, -1e308, 0.1]})
        assert torch.isfinite(found["x"]).all(), values
        assert 0 <= int(found["b"].min()) <= int(found["b"].max()) <= 3


def test_categories_are_ids_with_one_for_missing_and_one_for_unseen_values() -> None:
    features = Features(
        v=Category("city"),
        twice=Category("city", min_count=2),
        listed=Category("city", vocabulary=("Bonn",)),
        h=Category("city", hash=50),
        t=Category("city", table=True),
        c=Cross(("city", "day"), hash=1000),
    )
    fitted = fit(features, SEEN)
    found = fitted({"city": ["Rom", "Bonn", "Wien", None, "", NAN], "day": [1, 1, 1, 1, None, None]})
    assert found["v"].tolist() == [2, 3, 1, 0, 0, 0]
    assert found["twice"].tolist() == [2, 1, 1, 0, 0, 0]
    assert found["listed"].tolist() == [1, 2, 1, 0, 0, 0]
    assert found["h"][3:].tolist() == [0, 0, 0] and 1 <= int(found["h"][:3].min()) <= int(found["h"].max()) <= 50
    assert found["t"].tolist() == [*(hash_text(f"t\0{each}") for each in ("Rom", "Bonn", "Wien")), 0, 0, 0]
    assert len(set(found["c"][:5].tolist())) == 5 and found["c"][4:].tolist() == [0, 0]
    assert fitted.rows == 0  # for ids of a table there is no number
    assert FittedFeatures([each for each in fitted.facts if each["name"] != "t"]).rows == 4 + 3 + 3 + 51 + 1001


def test_lists_and_words_are_padded_or_have_offsets() -> None:
    features = Features(
        padded=IdSequence("list", length=2),
        open=IdSequence("list"),
        words=Words("title", length=4, vocabulary=10),
        hashed=Words("title", hash=9),
    )
    found = fit(features, SEEN)({"list": ["a b c", None, ["b"]], "title": ["the DOG", None, "hat the the the the"]})
    assert found["padded"].tolist() == [[2, 3], [0, 0], [3, 0]]
    assert found["open"].tolist() == [2, 3, 1, 3] and found["open_offsets"].tolist() == [0, 3, 3]
    assert found["words"].tolist() == [[2, 1, 0, 0], [0, 0, 0, 0], [5, 2, 2, 2]]
    assert found["hashed"].shape == (7,) and found["hashed_offsets"].tolist() == [0, 2, 2]


def test_join_gives_each_id_a_row_of_its_own() -> None:
    fitted = fit(Features(x=Numeric(), city=Category(), day=Category(hash=5), b=Numeric("x", bins=(2,))), SEEN)
    inputs = fitted(SEEN)
    numbers, ids = fitted.join(inputs)
    assert numbers.shape == (4, fitted.numbers) and ids.shape == (4, fitted.fields) and fitted.rows == 4 + 6 + 3
    assert torch.equal(ids - torch.tensor([0, 4, 10]), torch.stack([inputs["city"], inputs["day"], inputs["b"]], dim=1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"), (3.0, "3"), (True, "1"), (np.int64(3), "3"), (np.float32(0.5), "0.5"), (Decimal("3.00"), "3"),
        (Decimal("0.50"), "0.5"), (2**63 - 1, "9223372036854775807"), (-0.0, "0"), (1e300, "1e+300"), (INF, "inf"),
        (b"a", "a"), (None, ""), (NAN, ""), (np.datetime64("NaT"), ""), ("", ""), (" ", " "), ("NaN", "NaN"),
        (datetime.date(2024, 2, 1), "2024-02-01"), (np.array([1, 2]), "[1, 2]"),
    ],
)  # fmt: skip
def test_a_value_is_the_same_text_however_a_file_has_it(value: object, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (" 7 ", 7.0), ("1e3", 1000.0), (True, 1.0), (2**2000, INF), (-(2**2000), -INF), ("2024-01-01", 1704067200.0),
        ("2024-01-01T00:00:00+01:00", 1704063600.0), (datetime.date(2024, 1, 1), 1704067200.0), (Decimal("1.5"), 1.5),
        ("", NAN), ("1_000", NAN), ("seven", NAN), (None, NAN), ([1], NAN), (b"7", 7.0),
    ],
)  # fmt: skip
def test_a_value_is_a_number_or_missing(value: object, number: float) -> None:
    assert number_of(value) == pytest.approx(number, nan_ok=True)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.dates(), st.lists(st.text())
)


@settings(deadline=None, max_examples=100)
@given(seen=st.lists(VALUES, max_size=8), served=st.lists(VALUES, min_size=1, max_size=8))
def test_whatever_was_seen_whatever_comes_has_finite_numbers_and_ids_within_their_rows(
    seen: list[object], served: list[object]
) -> None:
    features = Features(
        x=Numeric("c"), l=Numeric("c", log=True), b=Numeric("c", bins=3), v=Category("c", vocabulary=3),
        h=Category("c", hash=3), s=IdSequence("c", length=2, hash=3), t=Words("c", vocabulary=2),
        k=Cross(("c", "c"), hash=2),
    )  # fmt: skip
    fitted = fit(features, {"c": seen})
    found = fitted({"c": served})
    for name, each in found.items():
        if each.is_floating_point():
            assert torch.isfinite(each).all()
        elif each.numel() and "_offsets" not in name:
            assert 0 <= int(each.min()) <= int(each.max()) < fitted.rows_of(name)
    alone = [fitted({"c": [value]}) for value in served]  # a record's inputs do not depend on those beside it
    for name in ("x", "l", "b", "v", "h", "s", "k"):
        assert torch.equal(found[name], torch.cat([each[name] for each in alone]))


def test_it_runs_without_elastic_run_and_without_numpy(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(Path(serving.__file__).read_text())
    fitted = fit(Features(x=Numeric(), city=Category(), list=IdSequence(length=2, hash=10)), SEEN)
    columns = {"x": [2, None, "x"], "city": ["Rom", "", "Wien"], "list": ["a b c", None, "a"]}
    script = f"""
import sys, json, warnings
warnings.simplefilter("ignore")  # torch's, of numpy
sys.modules["numpy"] = None
import alone
found = alone.FittedFeatures({fitted.facts!r})({columns!r})
assert not any(name.startswith("elastic_run") for name in sys.modules)
print(json.dumps({{name: each.tolist() for name, each in found.items()}}))
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {name: each.tolist() for name, each in fitted(columns).items()}
    assert Public is FittedFeatures


def test_a_missing_column_is_told() -> None:
    with pytest.raises(ValueError, match="there is no column 'city', which the feature 'where' is made of"):
        fit(Features(where=Category("city", hash=5)), SEEN)({"x": [1]})


KINDS = {
    "number": "int64", "item_id": "int64", "key": "int64", "mixed": "str", "click": "int64", "empty": "float64",
    "one": "str", "age": "int64", "price": "float64", "few": "int64", "flag": "bool", "when": "datetime64[us]",
    "note": "str", "city": "str", "many": "str", "tags": "list<item: string>",
}  # fmt: skip


def test_features_are_inferred_of_what_columns_hold() -> None:
    draws, count = np.random.default_rng(2), 3000
    columns: dict[str, Any] = {
        "number": np.arange(count),
        "item_id": draws.integers(0, 300, count),
        "key": draws.integers(0, 50, count) * 2**57,
        "mixed": [str(each) if each % 40 else "n/a" for each in draws.integers(0, 90, count)],
        "click": draws.integers(0, 2, count),
        "empty": np.full(count, NAN),
        "one": ["x"] * count,
        "age": draws.integers(18, 80, count),
        "price": draws.lognormal(3, 2, count),
        "few": draws.integers(0, 5, count),
        "flag": draws.random(count) < 0.5,
        "when": np.datetime64("2024-01-01", "us") + draws.integers(0, 10**12, count),
        "note": [f"word {each} of a note {each * 7}" for each in range(count)],
        "city": [f"city {each}" for each in draws.integers(0, 40, count)],
        "many": [f"user{each}" for each in draws.integers(0, 2500, count)],
        "tags": [["a", "b"]] * (count - 1) + [[]],
    }
    summary = Summary(looks_at(KINDS, "click"))
    summary.add(columns)
    inferred = infer_features(KINDS, "click", summary)
    assert inferred.left_out == {
        "number": "has another value in nearly each record", "empty": "has no value", "one": "has one value",
    }  # fmt: skip
    assert inferred.features == Features(
        item_id=Category(), key=Category(), mixed=Numeric(), age=Numeric(), price=Numeric(log=True),
        few=Category(vocabulary=20),
        flag=Category(vocabulary=20), when=Numeric(), note=Words(hash=1 << 14, length=20), city=Category(),
        many=Category(hash=1 << 13), tags=IdSequence(hash=1 << 14, length=20),
    )  # fmt: skip
    assert "# left out: 'one', has one value\nfeatures = Features(\n    item_id=Category(),\n" in str(inferred)
    fitted = fit_features(inferred.features, summary)
    assert torch.isfinite(fitted.join(fitted(columns))[0]).all()
