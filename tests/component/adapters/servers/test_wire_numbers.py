"""Rows and gradients that travel with half of their bits."""

from typing import Any

import numpy as np
import pytest
import torch

from elastic_run.adapters.servers import routing
from elastic_run.adapters.servers.requests import PullRows
from elastic_run.adapters.servers.server_events import Array
from elastic_run.adapters.servers.specs import SGD, Numbers, TableSpec, Zeros
from elastic_run.adapters.servers.wire_numbers import MOST_FLOAT16, WIRE_DTYPES, read_numbers, round_numbers, round_rows

from ....doubles.one_server import table_of_one
from .machine_tables import Tables, opened, push_gradients

HALVES: tuple[Numbers, ...] = ("bfloat16", "float16")


def some_numbers() -> Array:
    """Of each size, and those that are hard to round."""
    draws = np.random.default_rng(0)
    bits = draws.integers(0, 2**32, 100_000, np.uint32)
    ties = (draws.integers(0, 2**16, 1000, np.uint32) << np.uint32(16)) | np.uint32(0x8000)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 65520.0, 1e-8, 3.4e38], np.float32)
    numbers = np.concatenate([bits.view(np.float32), ties.view(np.float32), special])
    return numbers[: len(numbers) // 4 * 4].reshape(-1, 4)


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_are_rounded_as_torch_does(dtype: Numbers) -> None:
    numbers = some_numbers()
    rounded = round_numbers(numbers, dtype)
    assert rounded.dtype == WIRE_DTYPES[dtype]
    assert rounded.itemsize == 2
    expected = torch.tensor(numbers).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(read_numbers(rounded), expected)
    again = read_numbers(round_numbers(read_numbers(rounded), dtype))
    np.testing.assert_array_equal(again, expected)  # what came so can go on without a loss


def test_a_row_that_is_too_large_for_float16_becomes_its_largest_number() -> None:
    rows = np.array([[1e6, -1e6, 0.5, np.nan]], np.float32)
    found = read_numbers(round_rows(rows, "float16"))
    np.testing.assert_array_equal(found, [[MOST_FLOAT16, -MOST_FLOAT16, 0.5, np.nan]])
    assert round_rows(rows, "float32") is rows


@pytest.mark.parametrize("dtype", HALVES)
def test_rows_of_half_of_the_bits_are_put_in_the_order_of_servers(dtype: Numbers) -> None:
    rows = round_numbers(np.random.default_rng(1).standard_normal((50, 3)).astype(np.float32), dtype)
    grouped = routing.Routes(table_of_one("")).group_ids(np.arange(50))
    assert (grouped.reorder_rows(rows) == rows[grouped.order]).all()
    assert grouped.reorder_rows(rows).dtype == rows.dtype


@pytest.mark.parametrize("dtype", HALVES)
def test_rows_are_kept_whole_and_travel_rounded(dtype: Numbers) -> None:
    tables = opened(TableSpec("t", 2, SGD(1.0), Zeros(), dtype=dtype))
    ids, small = np.arange(3), np.full((3, 2), -1.0 / 4096, np.float32)
    for begin in range(4096):  # none of it would change a row of half of the bits that is 1 already
        push_gradients(tables, "t", ids, round_numbers(small, dtype), begin)
    push_gradients(tables, "t", ids, round_numbers(small - 1.0, dtype), 4096)
    (found,) = pull(tables, ids)
    assert found.dtype == WIRE_DTYPES[dtype]
    assert (read_numbers(found) == 2.0).all()


def test_gradients_of_another_type_or_too_large_are_refused() -> None:
    tables = opened(TableSpec("t", 2, SGD(1.0), Zeros(), dtype="float16"))
    gradients = np.array([[1.0, 1e9]], np.float32)
    reply = push_gradients(tables, "t", np.arange(1), gradients, 0)
    assert "gradients of float32 (1, 2), and not of float16 (1, 2)" in reply.text
    reply = push_gradients(tables, "t", np.arange(1), round_numbers(gradients, "float16"), 0)
    assert "is not a finite number, or too large for float16; nothing of this push" in reply.text


def pull(tables: Tables, ids: Any) -> Any:
    return tables.answer(PullRows(("t",), 1), [ids])[1]
