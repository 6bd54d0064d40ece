"""The rows of a table: what they begin with, and that they follow their gradients as in the frameworks."""

from typing import Any

import numpy as np
import pytest
import torch

from elastic_run.adapters.servers import kernels
from elastic_run.adapters.servers.rows import Array, Rows
from elastic_run.adapters.servers.specs import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    Initializer,
    Momentum,
    Normal,
    Optimizer,
    TableSpec,
    Uniform,
    Zeros,
)
from elastic_run.master.servers.slot_table import SLOTS

MEMORY = 1 << 24

ALL_SLOTS = np.ones(SLOTS, np.bool_)

OPTIMIZERS = [SGD(0.1), Momentum(0.1, 0.8), Adagrad(0.1, initial_accumulator_value=0.5), Adam(0.1), FTRL(0.1)]


def table(optimizer: Optimizer = SGD(1.0), initializer: Initializer = Zeros(), columns: int = 3, **more: Any) -> Rows:  # noqa: B008  frozen values
    return Rows(TableSpec("t", columns, optimizer, initializer, **more), MEMORY)


def step(rows: Rows, ids: Array, gradients: Array) -> None:
    rows.apply(rows.make(ids, rows.find(ids)), gradients)


def values(rows: Rows, ids: Array) -> Array:
    return rows.read(rows.find(ids), ids)


def of_torch(optimizer: Optimizer, parameter: torch.nn.Parameter) -> torch.optim.Optimizer:
    match optimizer:
        case SGD(lr):
            return torch.optim.SGD([parameter], lr)
        case Momentum(lr, momentum):
            return torch.optim.SGD([parameter], lr, momentum)
        case Adagrad(lr, eps, begun):
            return torch.optim.Adagrad([parameter], lr, initial_accumulator_value=begun, eps=eps)
        case Adam(lr, beta1, beta2, eps):
            return torch.optim.Adam([parameter], lr, (beta1, beta2), eps)
        case FTRL():
            raise AssertionError("torch has none")


@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.1), Momentum(0.1, 0.8), Adagrad(0.1), Adagrad(0.1, initial_accumulator_value=0.5), Adam(0.1, 0.8, 0.9)],
)
def test_rows_follow_their_gradients_as_parameters_of_torch_do(optimizer: Optimizer) -> None:
    draws = np.random.default_rng(7)
    rows, ids = table(optimizer, Normal(std=1.0)), np.array([5, -3, 2**62, 0])
    parameters = [torch.nn.Parameter(torch.tensor(values(rows, ids[i : i + 1])[0])) for i in range(len(ids))]
    optimizers = [of_torch(optimizer, each) for each in parameters]
    for _ in range(20):
        chosen = draws.permutation(len(ids))[: draws.integers(1, len(ids) + 1)]
        gradients = draws.standard_normal((len(chosen), 3)).astype(np.float32)
        step(rows, ids[chosen], gradients)
        for number, gradient in zip(chosen, gradients, strict=True):  # one optimizer each: a row has its own steps
            parameters[number].grad = torch.tensor(gradient)
            optimizers[number].step()  # pyright: ignore[reportUnknownMemberType]
    expected = torch.stack([each.detach() for each in parameters]).numpy()
    np.testing.assert_allclose(values(rows, ids), expected, rtol=2e-5, atol=2e-6)


def test_rows_of_ftrl_are_those_of_its_paper() -> None:
    lr, beta, l1, l2 = 0.3, 1.0, 0.2, 0.1
    rows, one = table(FTRL(lr, beta, l1, l2), columns=1), np.array([9])
    z = n = w = 0.0
    for gradient in (0.5, -1.0, 0.1, 2.0, -0.3):
        step(rows, one, np.array([[gradient]], np.float32))
        sigma = (np.sqrt(n + gradient**2) - np.sqrt(n)) / lr
        z, n = z + gradient - sigma * w, n + gradient**2
        w = 0.0 if abs(z) <= l1 else -(z - np.sign(z) * l1) / ((beta + np.sqrt(n)) / lr + l2)
        assert values(rows, one)[0, 0] == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize("initializer", [Uniform(-2.0, 3.0), Normal(1.0, 2.0)])
def test_a_row_begins_by_its_id_and_the_seed_alone(initializer: Initializer) -> None:
    ids = np.concatenate([np.arange(-1000, 1000), [2**63 - 1, -(2**63)]])
    asked = values(table(initializer=initializer, seed=3), ids)  # no row is there: what they would begin with
    made = table(initializer=initializer, seed=3)
    for piece in np.array_split(np.random.default_rng(1).permutation(ids), 7):
        step(made, piece, np.zeros((len(piece), 3), np.float32))
    assert (values(made, ids) == asked).all()
    assert (values(table(initializer=initializer, seed=4), ids) != asked).any(axis=1).all()
    mean, std = (0.5, 5 / np.sqrt(12)) if isinstance(initializer, Uniform) else (1.0, 2.0)
    assert asked.mean() == pytest.approx(mean, abs=0.1)
    assert asked.std() == pytest.approx(std, abs=0.1)
    if isinstance(initializer, Uniform):
        assert -2.0 <= asked.min() < asked.max() < 3.0


def test_every_int64_is_an_id_and_has_one_row_however_the_table_grows() -> None:
    rows, draws, counted = table(columns=1), np.random.default_rng(2), dict[int, int]()
    edges = np.array([0, -1, 1, 2**63 - 1, -(2**63)])
    for _ in range(60):
        drawn = np.concatenate([draws.integers(-30_000, 30_000, 1500), draws.choice(edges, 3)])
        ids, times = np.unique(drawn, return_counts=True)
        step(rows, ids, -times.astype(np.float32)[:, None])
        for id_, count in zip(ids.tolist(), times.tolist(), strict=True):
            counted[id_] = counted.get(id_, 0) + count
    found, first, following = dict[int, int](), -1, 0
    while first != following:
        first = following
        piece, _, following = rows.read_piece(first, ALL_SLOTS)
        found.update(zip(piece.tolist(), values(rows, piece)[:, 0].astype(int).tolist(), strict=True))
    assert found == counted
    assert rows.count == len(counted)


def test_gradients_that_are_no_numbers_leave_their_rows_as_they_are_where_the_table_says_so() -> None:
    rows, ids = table(unusable="skip"), np.array([1, 2, 3])
    gradients = np.ones((3, 3), np.float32)
    gradients[1, 2] = np.nan
    step(rows, ids, gradients)
    assert values(rows, ids)[:, 0].tolist() == [-1.0, 0.0, -1.0]
    assert rows.skipped == 1


def slots_of(ids: Array) -> Array:
    return np.array([int(kernels.slot_of(each)) for each in ids])


def remove(rows: Rows, slots: Array) -> None:
    rows.forget_slots(slots)
    while rows.remove_some():
        pass
    assert not rows.has_rows(slots)


def choose(draws: np.random.Generator, share: float) -> Array:
    return draws.random(SLOTS) < share


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_that_are_removed_begin_anew_and_the_others_stay_as_they_are(optimizer: Optimizer) -> None:
    rows, twin, draws = table(optimizer, Normal()), table(optimizer, Normal()), np.random.default_rng(5)
    there = set[int]()
    for _ in range(30):
        ids = np.unique(draws.integers(-4000, 4000, 800))
        gradients = draws.standard_normal((len(ids), 3)).astype(np.float32)
        step(rows, ids, gradients)
        there |= set(ids.tolist())
        if draws.random() < 0.3:
            gone = choose(draws, draws.choice([0.01, 0.5]))
            remove(rows, gone)
            all_ids = np.array(sorted(there))
            there = set(all_ids[~gone[slots_of(all_ids)]].tolist())
        assert rows.count == len(there)
        present = rows.find(np.arange(-4000, 4000))
        assert set((np.flatnonzero(present >= 0) - 4000).tolist()) == there
    remove(rows, ALL_SLOTS)
    end, ids = rows.end, np.arange(-4000, 4000)
    for _ in range(3):
        gradients = draws.standard_normal((len(ids), 3)).astype(np.float32)
        step(rows, ids, gradients)
        step(twin, ids, gradients)
    assert (values(rows, ids) == values(twin, ids)).all()
    assert rows.end <= max(end, len(ids))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_copy_of_rows_goes_on_as_the_rows_do(optimizer: Optimizer) -> None:
    rows, copy, draws = table(optimizer, Uniform()), table(optimizer, Uniform()), np.random.default_rng(6)
    ids, some = np.arange(3000), choose(draws, 0.4)
    step(rows, ids, draws.standard_normal((len(ids), 3)).astype(np.float32))
    first, following = -1, 0
    while first != following:
        first = following
        piece, following = rows.copy_piece(first, some, 100)
        assert len(piece[0]) <= 100
        copy.put_piece(piece)
    mine = ids[some[slots_of(ids)]]
    assert copy.count == len(mine)
    gradients = draws.standard_normal((len(mine), 3)).astype(np.float32)
    step(rows, mine, gradients)
    step(copy, mine, gradients)
    assert (values(rows, mine) == values(copy, mine)).all()
    with pytest.raises(ValueError, match="no rows of table 't'"):
        copy.put_piece([mine, gradients.astype(np.float64)])


def test_no_row_takes_a_free_place_while_that_is_forbidden() -> None:
    rows = table()
    step(rows, np.arange(100), np.zeros((100, 3), np.float32))
    remove(rows, ALL_SLOTS)
    later = np.arange(100, 110)
    assert rows.make(later, rows.find(later), reuse=False).tolist() == list(range(100, 110))
    later = np.arange(200, 210)
    assert rows.make(later, rows.find(later)).max() < 100
