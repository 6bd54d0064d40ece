"""Ids that are strings: the hashes are the same everywhere, and follow each byte, the length and the seed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.specs import collision_probability
from elastic_run.adapters.servers.string_ids import hash_strings

MASK = 2**64 - 1


def mix(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def plain_hash(string: str, seed: int) -> int:
    """In plain Python."""
    text = string.encode(errors="surrogatepass")
    hashed = mix(mix((seed + 0x9E3779B97F4A7C15) & MASK) ^ len(text))
    for first in range(0, len(text), 8):
        hashed = mix(hashed ^ int.from_bytes(text[first : first + 8], "little"))
    return hashed - 2**64 if hashed >> 63 else hashed


@given(strings=st.lists(st.text(st.characters(), max_size=40)), seed=st.integers(0, 2**63 - 1))
def test_hashes_are_those_of_a_plain_model(strings: list[str], seed: int) -> None:
    assert hash_strings(strings, seed).tolist() == [plain_hash(each, seed) for each in strings]


def test_hashes_stay_what_they_were() -> None:
    """Or the rows of a checkpoint would belong to no string."""
    assert hash_strings(["", "user-1", "Zürich"], 0).tolist() == [
        5197578548964807871,
        -5296986696445307254,
        -4132874039021675978,
    ]


def test_strings_that_differ_in_little_have_different_hashes() -> None:
    strings = [f"{'x' * (number % 23)}{number}" for number in range(200_000)]
    assert len(np.unique(hash_strings(strings, 1))) == len(strings)
    assert not set(hash_strings(strings, 1).tolist()) & set(hash_strings(strings, 2).tolist())
    assert len({*hash_strings(["", "\0", "\0\0", "a", "a\0"], 0).tolist()}) == 5


@pytest.mark.parametrize("dtype", [str, object])
def test_ids_have_the_shape_of_the_strings(dtype: Any) -> None:
    lists = [["a", "ä"], ["c", "d"], ["a", "f"]]
    found = hash_strings(lists, 3)
    assert found.shape == (3, 2)
    assert found[0, 0] == found[2, 0]
    assert (hash_strings(np.array(lists, dtype), 3) == found).all()
    assert (hash_strings(("a", "ä", "c", "d", "a", "f"), 3) == found.reshape(-1)).all()
    assert hash_strings([], 3).shape == (0,)


@pytest.mark.parametrize(
    ("strings", "words"),
    [
        ([["a"], ["b", "c"]], "sequences of strings must have one length"),
        ([["a"], "b"], "sequences of strings must have one length"),
        (["a", 7], "7 is a int among ids that are strings"),
        ([b"a"], "b'a' is a bytes among ids"),
        (np.arange(3), "0 is a int among ids that are strings"),
    ],
)
def test_what_are_no_strings_is_refused(strings: Any, words: str) -> None:
    with pytest.raises(TableMisused, match=words):
        hash_strings(strings, 0)


def test_the_probability_of_a_collision_is_that_of_birthdays() -> None:
    assert collision_probability(0) == collision_probability(1) == 0.0
    assert collision_probability(2) == pytest.approx(2.0**-64)
    assert collision_probability(10**9) == pytest.approx(0.02674, rel=1e-3)
