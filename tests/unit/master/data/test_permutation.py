"""The order of an epoch: each record once, the same for ever, and shuffled as well as a shuffled list."""

import fractions
import hashlib
import itertools
import math
import struct
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.master.data.permutation import SMALL, Permutation, key


def excess(found: Counter[tuple[int, ...]], cells: int) -> float:
    """Chi-square against equal chances, in standard deviations above what chance gives."""
    total = found.total()
    expected = total / cells
    chi = sum(number * number for number in found.values()) / expected - total
    return (chi - (cells - 1)) / math.sqrt(2 * (cells - 1))


@pytest.mark.parametrize("n", [*range(1, 300), 1000, 4093, 10_000])
def test_each_number_comes_once(n: int) -> None:
    assert sorted(Permutation(n, key(0, 0))) == list(range(n))


@settings(deadline=None)
@given(st.integers(1, 3000), st.binary(max_size=20))
def test_each_number_comes_once_under_any_key(n: int, secret: bytes) -> None:
    assert sorted(Permutation(n, secret)) == list(range(n))


@pytest.mark.parametrize("n", [2**20 + 7, 10**9, 2**40, 2**64])
def test_an_order_of_any_length_costs_nothing_until_it_is_read(n: int) -> None:
    order = Permutation(n, key(3, 1))
    indices = [0, 1, 2, n // 3, n // 2, n - 2, n - 1]
    found = [order[index] for index in indices]
    assert len(set(found)) == len(indices)
    assert all(0 <= number < n for number in found)


def by_the_book(n: int, secret: bytes, index: int) -> int:
    """What the module's docstring says, word by word."""
    height = 1 if n == 1 else next(h for h in itertools.count(max(0, math.isqrt(n) - 3)) if h % 2 == 0 and h * h >= n)
    width = math.ceil(fractions.Fraction(n, height))
    while True:
        left, right = index // width, index % width
        for number in range(24 if n < 256 else 8):
            digest = hashlib.blake2b(
                number.to_bytes(1, "big") + n.to_bytes(16, "big") + secret, digest_size=64
            ).digest()
            a, b, c = struct.unpack(">3Q", digest[:24])
            y = ((right if number % 2 == 0 else left) + a) * (b | 1) % 2**64
            f = (y ^ (y // 2**32)) * (c | 1) % 2**64 // 2**32
            if number % 2 == 0:
                left = (left + f) % height
            else:
                right = (right + f) % width
        index = left * width + right
        if index < n:
            return index


@settings(deadline=None)
@given(st.integers(1, 2**64), st.binary(max_size=20), st.data())
def test_the_construction_is_the_one_that_is_documented(n: int, secret: bytes, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, n - 1))
    assert Permutation(n, secret)[index] == by_the_book(n, secret, index)


@settings(deadline=None)
@given(st.integers(1, 2**50), st.data())
def test_many_at_once_are_what_one_by_one_gives(n: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, min(n, start + 20)))
    order = Permutation(n, key(0, 0))
    assert order.slice(start, stop) == [order[index] for index in range(start, stop)]


# These may never change: checkpoints hold indices in these orders.
GOLDEN = {
    (1, 0, 0, ""): [0],
    (2, 0, 0, ""): [1, 0],
    (10, 0, 0, ""): [7, 3, 8, 6, 2, 4, 0, 5, 1, 9],
    (10, 0, 1, ""): [8, 6, 7, 2, 0, 9, 4, 5, 1, 3],
    (10, 7, 0, ""): [4, 6, 3, 2, 5, 9, 0, 7, 8, 1],
    (10, -1, 0, ""): [8, 0, 4, 5, 7, 3, 6, 2, 9, 1],
    (10, 0, 0, "digits"): [4, 2, 8, 9, 6, 5, 7, 3, 1, 0],
    (255, 5, 2, ""): [72, 200, 47, 176, 63, 90, 114, 204, 141, 220],
    (256, 5, 2, ""): [44, 69, 227, 242, 149, 112, 205, 255, 170, 239],
    (60_000, 0, 0, ""): [4898, 55187, 59049, 13083, 30432, 45985, 14443, 56802, 51451, 20152],
    (2**40, 12_345, 6, "größe"): [935544692858, 98564084416, 20306331655, 220883850503],
    (2**64, 2**63 - 1, 99, ""): [8244642115792767794, 14933486000857683924, 12324683222521562679, 8175511223464620954],
}


@pytest.mark.parametrize(("n", "seed", "epoch", "name"), GOLDEN)
def test_an_order_is_the_same_for_ever(n: int, seed: int, epoch: int, name: str) -> None:
    assert (
        Permutation(n, key(seed, epoch, name)).slice(0, len(GOLDEN[n, seed, epoch, name]))
        == GOLDEN[n, seed, epoch, name]
    )


def test_the_middle_and_the_end_of_a_long_order_are_the_same_for_ever() -> None:
    order = Permutation(2**40, key(0, 0))
    assert order.slice(2**39, 2**39 + 3) == [714309909720, 1046904030074, 154504233028]
    assert order.slice(2**40 - 3, 2**40) == [867748709252, 645139577259, 135146496278]


@pytest.mark.parametrize("n", range(2, 7))
def test_every_order_of_a_few_is_as_likely_as_any_other(n: int) -> None:
    found = Counter(tuple(Permutation(n, key(0, epoch))) for epoch in range(3 * math.factorial(n) + 1000))
    assert abs(excess(found, math.factorial(n))) < 4
    assert len(found) > 0.9 * math.factorial(n)


@pytest.mark.parametrize("n", [7, 8, 9, 25, 49])
def test_odd_orders_are_as_likely_as_even_ones(n: int) -> None:
    odd = 0
    for epoch in range(400):
        order = list(Permutation(n, key(0, epoch)))
        odd += sum(a > b for a, b in itertools.combinations(order, 2)) % 2
    assert 140 < odd < 260


@pytest.mark.parametrize("n", [20, SMALL - 1, SMALL, 1000])
def test_two_indices_hold_any_two_numbers_with_the_same_chance(n: int) -> None:
    bins = 5
    for here, there in ((0, 1), (0, n - 1), (n // 3, n // 2)):
        orders = (Permutation(n, key(1, epoch)) for epoch in range(2000))
        found = Counter((order[here] * bins // n, order[there] * bins // n) for order in orders)
        # Two numbers are never the same, which few bins and many numbers make small.
        assert excess(found, bins * bins) < 5 + 2000 / n**1.5


@pytest.mark.parametrize("n", [10_007, 10**6, 10**9, 2**40])
@pytest.mark.parametrize(
    "look",
    [
        lambda a, b, n: (a * 16 // n, b * 16 // n),
        lambda a, b, n: (a % 16, b % 16),
        lambda a, b, n: ((b - a) % n * 256 // n,),
    ],
    ids=["high", "low", "distance"],
)
def test_neighbours_in_an_order_have_nothing_to_do_with_each_other(
    n: int, look: Callable[[int, int, int], tuple[int, ...]]
) -> None:
    order = Permutation(n, key(5, 1)).slice(n // 3, n // 3 + 6000)
    found = Counter(look(a, b, n) for a, b in itertools.pairwise(order))
    assert abs(excess(found, 256)) < 5


def test_epochs_seeds_and_names_have_orders_of_their_own() -> None:
    keys = [key(seed, epoch, name) for seed in (0, 1, 11) for epoch in (0, 1, 11) for name in ("", "1", "11")]
    orders = {tuple(Permutation(50, each)) for each in keys}
    assert len(orders) == len(keys)


def test_the_orders_of_two_epochs_agree_no_more_than_chance_lets_them() -> None:
    first, second = Permutation(5000, key(0, 0)), Permutation(5000, key(0, 1))
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 10


def test_what_is_not_there_is_refused() -> None:
    order = Permutation(5, key(0, 0))
    for index in (-1, 5):
        with pytest.raises(IndexError, match="of an order of 5"):
            order[index]
    for start, stop in ((-1, 2), (3, 2), (0, 6)):
        with pytest.raises(IndexError, match="of an order of 5"):
            order.slice(start, stop)
    for n in (0, -3, 2**64 + 1):
        with pytest.raises(ValueError, match="from 1 to"):
            Permutation(n, b"")
