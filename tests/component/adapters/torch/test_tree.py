"""States as text and tensors."""

import collections
import math

import numpy
import pytest
import torch

from elastic_run.adapters.torch.tree import UnsupportedState, flatten, places, unflatten


def back(value: object) -> object:
    text, tensors = flatten(value, "state")
    return unflatten(text, tensors)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        -1.5,
        "text",
        [],
        [1, [2, None]],
        (1, (2,), []),
        {},
        {"a": 1, 3: {"b": (0.9, 0.999)}},
        {"T": 1, "t": [2], "d": {"T": 3}},
        collections.Counter({30: 1, 80: 2}),
        float("inf"),
    ],
)
def test_what_is_plain_comes_back_as_it_was(value: object) -> None:
    assert back(value) == value
    assert type(back(value)) is type(value)


@pytest.mark.parametrize("value", [numpy.float64(0.25), numpy.float32(0.5), numpy.int64(3)])
def test_numpys_numbers_come_back_as_pythons(value: object) -> None:
    text, tensors = flatten({"lr": value}, "state")
    found = unflatten(text, tensors)["lr"]
    assert found == value
    assert type(found) in (int, float)


def test_not_a_number_comes_back() -> None:
    found = back(math.nan)
    assert isinstance(found, float)
    assert math.isnan(found)


def test_an_ordered_dict_comes_back_in_its_order() -> None:
    found = back(collections.OrderedDict([("z", 1), ("a", 2)]))
    assert isinstance(found, dict)
    assert list(found) == ["z", "a"]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_tensors_are_named_by_place_type_and_shape(kind: torch.dtype) -> None:
    one, other = torch.ones(2, 3, dtype=kind), torch.zeros((), dtype=kind)
    text, tensors = flatten({"one": [one], 5: (other,)}, "state")
    assert [each is one or each.data_ptr() == one.data_ptr() for each in tensors] == [True, False]
    assert places(text) == [("['one'][0]", kind, (2, 3)), ("[5][0]", kind, ())]
    found = unflatten(text, tensors)
    assert torch.equal(found["one"][0], one)
    assert torch.equal(found[5][0], other)


def test_an_optimizers_state_comes_back() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()  # pyright: ignore[reportUnknownMemberType]
    other = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
    text, tensors = flatten(optimizer.state_dict(), "state")
    other.load_state_dict(unflatten(text, tensors))
    assert str(other.state_dict()) == str(optimizer.state_dict())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [object()]}, r"state\['a'\]\[0\] is a builtins.object: .* nothing is pickled"),
        ({(1, 2): 3}, r"state has the key \(1, 2\): .* strings or whole numbers"),
        ({1, 2}, "state is a builtins.set"),
        (b"raw", "state is a builtins.bytes"),
        (lambda: None, "function"),
    ],
)
def test_anything_else_is_refused_by_its_place(value: object, words: str) -> None:
    with pytest.raises(UnsupportedState, match=words):
        flatten(value, "state")
