"""Shards of a dataset: each record once in an epoch, in an order that stays what it is, and refusals in words."""

import hashlib
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.master.data.ledger import Piece, Position
from elastic_run.master.data.permutation import Permutation, key
from elastic_run.master.data.shard import LARGEST, MAX_NAME, BadDataset, BadShardsState, Layout, ShardsError, inner_key

FILES = [("a.csv", 25), ("empty.csv", 0), ("c.csv", 7)]


def records(layout: Layout, epoch: int) -> Counter[tuple[str, int]]:
    """How often each record comes in an epoch."""
    spans = [layout.span(epoch * layout.shards + shard_index) for shard_index in range(layout.shards)]
    return Counter((span.file, index) for span in spans for index in layout.indices(span))


@given(st.integers(1, 500), st.integers(1, 60), st.booleans(), st.integers(0, 5), st.integers(-(2**63), 2**63 - 1))
def test_each_record_comes_once_in_an_epoch(size: int, shard_size: int, shuffle: bool, epoch: int, seed: int) -> None:
    layout = Layout("data", size, shard_size, epochs=6, shuffle=shuffle, seed=seed)
    assert records(layout, epoch) == Counter({("", index): 1 for index in range(size)})


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any), st.integers(1, 20), st.booleans())
def test_each_record_of_each_file_comes_once(counts: list[int], shard_size: int, shuffle: bool) -> None:
    files = [(f"{number}.csv", count) for number, count in enumerate(counts)]
    layout = Layout("data", files, shard_size, shuffle=shuffle)
    assert layout.size == sum(counts)
    assert records(layout, 0) == Counter({(name, index): 1 for name, count in files for index in range(count)})


def test_no_shard_spans_two_files() -> None:
    layout = Layout("files", FILES, 10, shuffle=False)
    spans = [layout.span(shard_index) for shard_index in range(layout.shards)]
    assert [(span.file, span.start, span.stop) for span in spans] == [
        ("a.csv", 0, 10),
        ("a.csv", 10, 20),
        ("a.csv", 20, 25),
        ("c.csv", 0, 7),
    ]


def test_without_shuffle_the_data_come_as_they_stand() -> None:
    layout = Layout("data", 25, 10, epochs=2, shuffle=False)
    assert [index for shard_index in range(6) for index in layout.indices(layout.span(shard_index))] == [
        *range(25),
        *range(25),
    ]


def test_the_order_is_the_one_that_checkpoints_count_on() -> None:
    layout = Layout("train", 1000, 100, epochs=3, seed=7)
    assert [layout.span(shard_index).number for shard_index in range(20)] == [
        *(6, 9, 4, 8, 0, 3, 2, 1, 5, 7),
        *(6, 9, 1, 0, 5, 8, 7, 4, 2, 3),
    ]
    assert layout.indices(layout.span(1))[:8] == [942, 988, 939, 927, 976, 918, 968, 966]
    assert layout.indices(layout.span(10))[:8] == [639, 619, 683, 682, 627, 621, 632, 670]
    large = Layout("ü", 10**12, 10**5, epochs=10**6, seed=5)
    assert large.span(1234567890123).number == 7593588
    assert large.indices(large.span(1234567890123))[:2] == [759358820732, 759358880004]


def test_the_order_is_the_one_that_is_documented() -> None:
    layout = Layout("some name", 1000, 30, epochs=9, seed=-3)
    for shard_index in (0, 33, 34, 200):
        epoch, at = shard_index // 34, shard_index % 34
        span = layout.span(shard_index)
        assert span.number == Permutation(34, key(-3, epoch, "some name"))[at]
        secret = hashlib.shake_128(f"elastic-run shard 1 -3 {epoch} {span.number} some name".encode())
        drawn = struct.unpack(f"<{len(span)}Q", secret.digest(8 * len(span)))
        expected = [span.start + record for _, record in sorted(zip(drawn, range(len(span)), strict=True))]
        assert layout.indices(span) == expected
    assert inner_key(-3, 1, 2, "x") == b"elastic-run shard 1 -3 1 2 x"


def test_the_files_digest_is_the_one_that_checkpoints_count_on() -> None:
    expected = hashlib.blake2b(b"25 5 a.csv0 9 empty.csv7 5 c.csv", digest_size=16).hexdigest()
    assert Layout("files", FILES, 10).files == expected == "6732db74e596bf93b737eaccc0c2a210"
    others = [FILES[::-1], [*FILES[:-1], ("c.csv", 8)], [*FILES[:-1], ("d.csv", 7)]]
    assert expected not in {Layout("files", other, 10).files for other in others}
    assert Layout("files", 32, 10).files == ""


def test_the_rest_of_a_shard_is_the_end_of_its_order() -> None:
    layout = Layout("data", 100, 40)
    span = layout.span(1)
    assert list(layout.indices(span, 13)) == list(layout.indices(span))[13:]
    straight = Layout("data", 100, 40, shuffle=False)
    assert list(straight.indices(straight.span(1), 13)) == [*range(53, 80)]


def test_epochs_names_and_seeds_have_orders_of_their_own() -> None:
    def order(name: str, seed: int, epoch: int) -> tuple[int, ...]:
        layout = Layout(name, 1000, 10, epochs=2, seed=seed)
        return tuple(layout.span(epoch * 100 + shard_index).number for shard_index in range(100))

    orders = {order(name, seed, epoch) for name in ("a", "b") for seed in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 8


def test_a_shards_key_is_its_own_and_sorts_as_the_data_stand() -> None:
    layout = Layout("data", 1000, 10, epochs=2)
    spans = [layout.span(shard_index) for shard_index in range(200)]
    assert len({span.key for span in spans}) == 200
    ordered = sorted(spans, key=lambda span: span.key)
    assert all((a.epoch, a.number) < (b.epoch, b.number) for a, b in pairwise(ordered))
    assert Layout("data", 1000, 10, shuffle=False).span(3).key == "e00000-s000000003"


def test_a_dataset_of_any_size_costs_nothing_until_it_is_read() -> None:
    layout = Layout("data", LARGEST // 1000, 1, epochs=1000)
    assert layout.shards == LARGEST // 1000
    assert len(layout.span(LARGEST - 1000)) == 1


def test_paths_name_files() -> None:
    assert Layout("files", [(Path("a") / "b.csv", 3)], 10).span(0).file == "a/b.csv"


def test_a_name_may_be_as_long_as_the_ledger_takes() -> None:
    assert Layout("x" * MAX_NAME, 1, 1).shards == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": 0}, "size=0 must be a whole number from 1"),
        ({"size": -1}, "nothing to lease"),
        ({"size": 2**62 + 1}, "size="),
        ({"size": 2**61, "shard_size": 1, "epochs": 3}, "in 3 epochs"),
        ({"shard_size": 0}, "shard_size=0 must be"),
        ({"shard_size": -5}, "shard_size=-5 must be"),
        ({"epochs": 0}, "epochs=0 must be"),
        ({"seed": 2**63}, "seed=9223372036854775808 must be"),
        ({"size": []}, "an empty list of files"),
        ({"size": [("a", 0), ("b", 0)]}, "2 files and no record"),
        ({"size": [("a", -1)]}, "the records of file 'a'=-1 must be"),
        ({"size": [("a", 1), ("b", 2), ("a", 3)]}, "the file 'a' is listed twice"),
        ({"name": ""}, "has 0 characters"),
        ({"name": "x" * 201}, "has 201 characters"),
        ({"name": "\ud800"}, "is not a valid string"),
    ],
)
def test_what_cannot_be_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    arguments = {"name": "data", "size": 100, "shard_size": 10} | given
    with pytest.raises(BadDataset, match=words):
        Layout(**arguments)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": True}, "size=True must be a whole number"),
        ({"size": 1.5}, "a number of records, or a list of pairs"),
        ({"size": "a.csv"}, "a list of pairs"),
        ({"size": {"a.csv": 3}}, "a list of pairs"),
        ({"size": None}, "a list of pairs"),
        ({"size": ["a.csv"]}, "'a.csv' among its files"),
        ({"size": [("a.csv", 1, 2)]}, "among its files"),
        ({"size": [("a.csv", 1.5)]}, "must be a whole number"),
        ({"size": [("a.csv", True)]}, "must be a whole number"),
        ({"size": [(b"a.csv", 1)]}, "must be a string"),
        ({"shard_size": 1.0}, "shard_size=1.0 must be a whole number"),
        ({"shard_size": True}, "shard_size=True"),
        ({"epochs": "1"}, "epochs='1'"),
        ({"seed": None}, "seed=None"),
        ({"shuffle": 1}, "shuffle=1 must be True or False"),
        ({"name": 3}, "name 3 must be a text"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    arguments = {"name": "data", "size": 100, "shard_size": 10} | given
    with pytest.raises(TypeError, match=words):
        Layout(**arguments)


def test_an_unknown_tracking_mode_is_refused() -> None:
    with pytest.raises(BadDataset, match="commit='never' is unknown: use one of 'checkpoint', 'ack'"):
        Layout("data", 10, 1).dataset("never")  # pyright: ignore[reportArgumentType]


# -- positions in checkpoints -----------------------------------------------------------------------------------------

LAYOUT = Layout("data", 100, 10, epochs=2, seed=4)
POSITION = Position(7, (Piece(2, 0), Piece(5, 9)))
STATE = {
    "version": 1,
    "name": "data",
    "size": 100,
    "shard_size": 10,
    "shuffle": True,
    "seed": 4,
    "files": "",
    "frontier": 7,
    "todo": [[2, 0], [5, 9]],
}


def test_a_position_is_plain_values_and_comes_back() -> None:
    assert LAYOUT.state(POSITION) == STATE
    assert LAYOUT.restored(STATE) == POSITION
    assert LAYOUT.restored(STATE | {"todo": ((2, 0), (5, 9))}) == POSITION


def test_another_number_of_epochs_takes_the_position() -> None:
    assert Layout("data", 100, 10, epochs=1, seed=4).restored(STATE | {"frontier": 15}).frontier == 15


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other"},
        {"size": 101},
        {"shard_size": 11},
        {"shuffle": False},
        {"seed": 5},
        {"files": "6732db74e596bf93b737eaccc0c2a210"},
    ],
)
def test_another_datasets_position_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(BadShardsState, match="is of another dataset or order"):
        LAYOUT.restored(STATE | other)


def test_the_seed_does_not_matter_where_nothing_is_shuffled() -> None:
    straight = Layout("data", 100, 10, shuffle=False, seed=5)
    assert straight.restored(STATE | {"shuffle": False}) == POSITION


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"version": None},
        {"size": "100"},
        {"size": True},
        {"shuffle": 1},
        {"frontier": -1},
        {"frontier": 7.0},
        {"frontier": True},
        {"frontier": 2**63},
        {"todo": None},
        {"todo": [2]},
        {"todo": [[2]]},
        {"todo": [[2, 0, 0]]},
        {"todo": [[2, "0"]]},
        {"todo": [[2, True]]},
        {"todo": [[5, 0], [2, 0]]},
        {"todo": [[2, 0], [2, 0]]},
        {"todo": [[7, 0]]},
        {"todo": [[-1, 0]]},
        {"todo": [[2, 10]]},
        {"todo": [[2, -1]]},
    ],
)
def test_a_damaged_position_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(BadShardsState, match=r"damaged|version"):
        LAYOUT.restored(STATE | damage)


@pytest.mark.parametrize("missing", sorted(STATE))
def test_a_position_with_something_missing_is_refused(missing: str) -> None:
    with pytest.raises(BadShardsState):
        LAYOUT.restored({name: value for name, value in STATE.items() if name != missing})


def test_refusals_are_of_one_tree() -> None:
    assert issubclass(BadDataset, ShardsError) and issubclass(BadDataset, ValueError)
    assert issubclass(BadShardsState, ShardsError) and issubclass(BadShardsState, ValueError)


@pytest.mark.parametrize("state", [None, [], "x", 5])
def test_a_state_that_is_none_is_refused_in_words(state: object) -> None:
    with pytest.raises(BadShardsState, match=r"not a result of `state_dict\(\)`"):
        Layout("data", 10, 2).restored(state)  # type: ignore[arg-type]  # that is the point


def test_a_file_has_a_name() -> None:
    with pytest.raises(BadDataset, match="a file without a name"):
        Layout("data", [("", 3)], 2)
