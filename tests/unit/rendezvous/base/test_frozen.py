"""What is declared with our decorator is a dataclass as the standard library makes it; only when differs."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar

import pytest

from elastic_run.rendezvous.base import frozen

Declares = Callable[..., Any]  # Any: the two decorators, which a checker would tell apart


class Coded:
    __slots__ = ()

    @property
    def code(self) -> str:
        return type(self).__name__


def declared(dataclass: Declares) -> list[type[Any]]:
    """Classes with all that ours have, made by one decorator."""

    @dataclass(frozen=True, slots=True)
    class Plain(Coded):
        """With docstring."""

        name: str
        number: int = 3
        KIND: ClassVar[str] = "kind"

    @dataclass(frozen=True, slots=True)
    class Inherits(Plain):
        more: tuple[int, ...] = ()

    @dataclass(frozen=True, slots=True)
    class Derived:
        first: int
        secret: str = dataclasses.field(default="x", repr=False)
        made: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        twice: int = dataclasses.field(init=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.first)

        def __repr__(self) -> str:
            return f"<{self.first}>" if self.first < 0 else f"Derived {self.first}"

    @dataclass(frozen=True, slots=True)
    class Same:
        number: int
        noise: str = ""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Same) and other.number == self.number

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(frozen=True, slots=True)
    class Single:
        value: float

    return [Plain, Inherits, Derived, Same, Empty, Single]


GIVEN: list[tuple[tuple[Any, ...], ...]] = [
    (("a",), ("a", 3), ("a", 4)),
    (("a",), ("a", 3, (1,)), ("b", 3, (1,))),
    ((1,), (1, "x", {"a": 1}), (2,), (-1,)),
    ((1,), (1, "noise"), (2,)),
    ((),),
    ((float("nan"),), (1.0,)),
]
"""Arguments of instances of each."""


@pytest.mark.parametrize("at", range(len(GIVEN)))
def test_a_class_is_what_the_standard_library_would_have_made(at: int) -> None:
    ours, theirs = (declared(each)[at] for each in (frozen.dataclass, dataclasses.dataclass))
    assert [each.name for each in dataclasses.fields(ours)] == [each.name for each in dataclasses.fields(theirs)]
    assert (ours.__match_args__, ours.__slots__) == (theirs.__match_args__, theirs.__slots__)
    assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]
    pairs = [(ours(*each), theirs(*each)) for each in GIVEN[at]]
    for one, other in pairs:
        assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other) or one != one
        assert [one == each for each, _ in pairs] == [other == each for _, each in pairs]
        assert [hash(one) == hash(each) for each, _ in pairs] == [hash(other) == hash(each) for _, each in pairs]
        assert one != other
        for name in ("number", "other"):
            with pytest.raises((FrozenInstanceError, TypeError)):
                setattr(one, name, 1)
            with pytest.raises((FrozenInstanceError, TypeError)):
                delattr(one, name)
    with pytest.raises(TypeError):
        ours(*range(9))
    with pytest.raises(TypeError):
        ours(unknown=1)


def test_factories_are_called_and_values_can_be_replaced() -> None:
    derived: Any = declared(frozen.dataclass)[2]
    assert derived(1).made is not derived(1).made
    assert dataclasses.replace(derived(1), secret="y").secret == "y"
    with pytest.raises(ValueError, match="init=False"):
        dataclasses.replace(derived(1), twice=1)


def test_methods_are_made_for_the_first_instance_and_not_before() -> None:
    plain, inherits, *_ = declared(frozen.dataclass)
    inherits("a")
    assert "__eq__" in vars(inherits)
    assert "__eq__" not in vars(plain)
    plain("a")
    assert "__eq__" in vars(plain)


@frozen.dataclass(frozen=True, slots=True)
class Sent:
    """What a data loader sends to its own processes."""

    number: int
    twice: int = frozen.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.number)


def test_a_copy_is_equal_also_where_no_other_instance_was_made() -> None:
    assert frozen._restore(Sent, [1, 2]) == Sent(1)  # pyright: ignore[reportPrivateUsage]
    for copied in (pickle.loads(pickle.dumps(Sent(1))), copy.copy(Sent(1)), copy.deepcopy(Sent(1))):
        assert copied == Sent(1)
        assert copied is not Sent(1)
        with pytest.raises(FrozenInstanceError):
            copied.number = 2


def test_what_is_not_just_frozen_and_slotted_is_the_standard_librarys() -> None:
    @frozen.dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        number: int

    @frozen.dataclass(slots=True)
    class Changes:
        number: int

    assert Ordered(1) < Ordered(2)
    changes = Changes(1)
    changes.number = 2
    assert changes.number == 2
