"""The parts of a State, without the State: what may be one, and how all of them travel as text and tensors."""

from typing import Any

import pytest
import torch
from torch import nn

from elastic_run.adapters.torch.errors import UnsupportedState
from elastic_run.adapters.torch.state_values import StateValues


def made(number: float, **others: Any) -> StateValues:
    model = nn.Linear(2, 1)
    nn.init.constant_(model.weight, number)
    optimizer = torch.optim.SGD(model.parameters(), lr=number, momentum=0.9)
    return StateValues({"model": model, "optimizer": optimizer, "epoch": number, **others}, ())


def test_what_one_has_becomes_what_the_other_has() -> None:
    source, target = made(3.0), made(5.0)
    target.load(*source.flattened(large=True), large=True)
    assert torch.equal(target.parts["model"].weight, source.parts["model"].weight)
    assert (target.parts["epoch"], target.parts["optimizer"].param_groups[0]["lr"]) == (3.0, 3.0)


def test_what_only_a_step_changes_stays_where_the_rest_is_loaded() -> None:
    source, target = made(3.0), made(5.0)
    target.load(*source.flattened(large=False), large=False)
    assert target.parts["model"].weight.flatten()[0] == 5.0
    assert (target.parts["epoch"], target.parts["optimizer"].param_groups[0]["lr"]) == (3.0, 3.0)


def test_what_a_step_changes_is_what_modules_and_optimizers_have() -> None:
    values = made(1.0)
    assert len(values.large()) == 2
    values.parts["model"](torch.ones(1, 2)).sum().backward()
    values.parts["optimizer"].step()
    assert len(values.large()) == 4, "with the momentum of each"
    values.drop_begun()
    assert values.parts["model"].weight.grad is None


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"_own": 1}, "hide a part of State"),
        ({"step": 1}, "hide a part of State"),
        ({"both": [nn.Linear(1, 1)]}, "give each its own name"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.ones(3))])}, "no module of this State has"),
    ],
)
def test_what_cannot_travel_is_refused_in_words(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedState, match=words):
        StateValues(parts, ("step",))
