"""A model's functions, with what they may return and what they may not."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elastic_run.adapters.models.auc import AUC
from elastic_run.adapters.models.errors import BadModel
from elastic_run.adapters.models.training import add_up
from elastic_run.adapters.models.user_model import UserModel
from elastic_run.adapters.readers.contract import Columns

COLUMNS = Columns({"x": np.array([1.0, 2.0, 3.0]), "id": np.array([4, 5, 6]), "text": ["a", "b", None]})


def user(**functions: Any) -> UserModel:
    four = {
        "forward": lambda: nn.Linear(1, 1),
        "loss": lambda output, labels: (output - labels).square().mean(),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "feed": lambda columns: (columns["x"], columns["id"]),
    }
    return UserModel({**four, **functions}, "model.py")


def test_arrays_become_tensors_of_the_kind_that_modules_have() -> None:
    batch = user(feed=lambda columns: ({"a": columns["x"], "b": (columns["id"],)}, columns["id"])).feed(COLUMNS)
    assert batch.inputs["a"].dtype == torch.float32 and batch.inputs["b"][0].dtype == torch.int64
    assert (batch.count, batch.labels.tolist()) == (3, [4, 5, 6])


def test_a_tuple_of_inputs_is_spread_and_a_mapping_becomes_keywords() -> None:
    class Module(nn.Module):
        def forward(self, a: int, b: int = 0) -> tuple[int, int]:
            return a, b

    here = user()
    assert here.compute_output(Module(), (1, 2)) == (1, 2)
    assert here.compute_output(Module(), {"b": 2, "a": 1}) == (1, 2)
    assert here.compute_output(Module(), 1) == (1, 0)


def test_records_without_labels_may_be_predicted_and_not_trained_on() -> None:
    here = user(feed=lambda columns: (columns["x"], columns.get("label")))
    assert here.feed(COLUMNS, labelled=False).labels is None
    with pytest.raises(BadModel, match=r"model.py: feed\(\) returned no labels"):
        here.feed(COLUMNS)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda columns: columns["x"], r"feed\(\) returned an array of float64, and has to return two values"),
        (lambda columns: (columns["text"], columns["id"]), r"feed\(\) returned a list of 3 among its inputs"),
        (lambda columns: (columns["x"], columns["id"][:2]), r"got 3 records and returned 2 labels"),
        (lambda columns: (columns["x"], (columns["id"], torch.tensor(1.0))), r"got 3 records and returned no labels"),
    ],
)
def test_what_feed_may_not_return_is_told(given: Any, told: str) -> None:
    with pytest.raises(BadModel, match=told):
        user(feed=given).feed(COLUMNS)


def test_metrics_are_means_or_a_number_for_each_record() -> None:
    output = torch.tensor([1.0, 2.0, 6.0])
    here = user(metrics=lambda output, labels: {"each": output, "mean": output.mean(), "plain": 2})
    assert here.compute_metrics(output, output, 3) == {"each": 3.0, "mean": 3.0, "plain": 2.0}
    with pytest.raises(BadModel, match=r"metrics\(\) returned \(2,\) numbers for 'few': return their mean"):
        user(metrics=lambda output, labels: {"few": output[:2]}).compute_metrics(output, output, 3)


def test_metrics_that_are_no_numbers_or_have_a_name_of_ours_are_told() -> None:
    output = torch.ones(3)
    for given, told in [
        ({"kind": "good"}, r"metrics\(\) returned a str, and has to return numbers for 'kind'"),
        ({"records": 3}, r"metrics\(\) returned something named 'records': give it another name"),
        ({"auc": AUC(output, output)}, ""),
    ]:
        here = user(metrics=lambda output, labels, given=given: given)
        if not told:
            assert here.compute_metrics(output, output, 3) == given
            continue
        with pytest.raises(BadModel, match=told):
            here.compute_metrics(output, output, 3)


def test_arrays_that_torch_would_not_take_are_taken() -> None:
    backwards = np.arange(3, dtype=">i4")[::-1]
    batch = user(feed=lambda columns: (backwards, np.arange(3.0)[::-1])).feed(COLUMNS)
    assert (batch.inputs.tolist(), batch.labels.tolist()) == ([2, 1, 0], [2, 1, 0])
    assert batch.labels.dtype == torch.float32


def test_what_other_functions_may_not_return_is_told() -> None:
    with pytest.raises(BadModel, match=r"forward\(\) returned a int, and has to return a torch.nn.Module"):
        user(forward=lambda: 7).make_module(0)
    with pytest.raises(BadModel, match=r"loss\(\) returned a tensor \(3,\) of torch.float32, and has to return one"):
        user(loss=lambda output, labels: output).compute_loss(torch.ones(3), torch.ones(3))
    with pytest.raises(BadModel, match=r"optimizer\(\) returned None, and has to return an optimizer of torch"):
        user(optimizer=lambda parameters: None).make_optimizer([])
    with pytest.raises(BadModel, match=r"optimizer\(\) returned a LBFGS, .* whose step\(\) needs no closure"):
        user(optimizer=torch.optim.LBFGS).make_optimizer([nn.Parameter(torch.zeros(1))])
    with pytest.raises(BadModel, match=r"schedule\(\) returned a ReduceLROnPlateau, .* whose step\(\) needs nothing"):
        user(schedule=torch.optim.lr_scheduler.ReduceLROnPlateau).make_schedule(
            torch.optim.SGD([nn.Parameter(torch.zeros(1))])
        )
    with pytest.raises(BadModel, match=r"schedule\(\) returned a int, and has to return a scheduler"):
        user(schedule=lambda optimizer: 1).make_schedule(torch.optim.SGD([nn.Parameter(torch.zeros(1))]))
    with pytest.raises(BadModel, match=r"callbacks\(\) returned a list of 1, and has to return a list of functions"):
        user(callbacks=lambda: [1]).make_callbacks()
    with pytest.raises(BadModel, match=r"loss\(\) returned a number without a gradient"):
        user(loss=lambda output, labels: torch.tensor(1.0)).compute_loss(torch.ones(3), torch.ones(3))
    with pytest.raises(BadModel, match=r"EmbeddingBag\(sparse=True\) has gradients that workers cannot add up"):
        user(forward=lambda: nn.EmbeddingBag(2, 1, sparse=True)).make_module(0)


def test_the_first_numbers_follow_from_the_seed() -> None:
    first, same, other = (user().make_module(seed).weight.item() for seed in (1, 1, 2))  # type: ignore[union-attr]
    assert first == same != other


def test_one_process_has_nobody_to_add_up_with() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    assert add_up([parameter], 4, 3, 0.5) == (4, 3.0, 1.5)
    assert parameter.grad.tolist() == [1.0, 1.0]
