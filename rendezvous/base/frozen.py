"""Frozen dataclasses with slots, whose methods are compiled for the first instance, and not when they are declared.

A launcher declares nearly 300 and uses a third of them before its workers' first line. The standard library compiles
six functions for each at once: half of the time until that line. In all else they are its dataclasses.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

__all__ = ["dataclass", "field", "fields", "replace"]


_plain = cast(Callable[..., Callable[[type], Any]], dataclasses.dataclass)  # Any: a class, with what it gets here


def _dataclass(**options: bool) -> Callable[[type], Any]:  # as above
    """As the standard library's, which makes all those that are not just frozen and slotted."""
    if options != {"frozen": True, "slots": True}:
        return _plain(**options)

    def declare(cls: type) -> Any:  # as above
        cls.__doc__ = cls.__doc__ or cls.__name__  # else it becomes the signature, for which methods are made
        made = _plain(init=False, repr=False, eq=False, slots=True)(cls)
        made.__init__, made.__reduce__ = _Init(made), _reduce
        return made

    return declare


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


class _Init:
    """Stands for the `__init__` of a class until somebody asks for it, and then makes its methods."""

    def __init__(self, made: type) -> None:
        self._made = made

    def __get__(self, instance: object, owner: type) -> Any:  # Any: a function, or a bound one
        if vars(self._made)["__init__"] is self:
            _complete(self._made)
        return vars(self._made)["__init__"].__get__(instance, owner)


def _complete(made: type) -> None:
    """Gives a class the methods of a frozen dataclass, but for those that it has written itself."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}  # Any: values and functions
    given, body = [""], list[str]()
    for each in (each for each in fields(made) if each.init):
        name, default, makes = each.name, f"_default_{each.name}", each.default_factory is not MISSING
        names[default] = each.default_factory if makes else each.default
        given.append(f"{name}=_missing" if makes else name if each.default is MISSING else f"{name}={default}")
        value = f"{default}() if {name} is _missing else {name}" if makes else name
        body.append(f" _set(self, {name!r}, {value})\n")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()\n")
    mine = "".join(f"self.{each.name}, " for each in fields(made) if each.compare)
    others = mine.replace("self.", "other.")
    exec(
        f"def __init__(self{', '.join(given)}):\n{''.join(body) or ' pass'}\n"
        f"def __eq__(self, other):\n"
        f" return ({mine}) == ({others}) if other.__class__ is self.__class__ else NotImplemented\n"
        f"def __hash__(self):\n return hash(({mine}))\n",
        names,
    )
    names["__init__"].__qualname__ = f"{made.__qualname__}.__init__"
    names |= {"__repr__": _repr, "__setattr__": _refuse, "__delattr__": _refuse}
    for name in ("__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__"):
        if vars(made).get(name) is None:
            setattr(made, name, names[name])
    made.__init__ = names["__init__"]  # last: until then whoever makes an instance makes these methods, too


def _reduce(self: Any) -> tuple[Any, ...]:  # Any: whatever is declared
    """For those that copy: a data loader sends its dataset to its own processes."""
    return _restore, (type(self), [getattr(self, each.name) for each in fields(self)])


def _restore(made: Any, values: list[object]) -> object:  # as above
    restored, _ = object.__new__(made), made.__init__  # with which its methods are made
    for each, value in zip(fields(made), values, strict=True):
        object.__setattr__(restored, each.name, value)
    return restored


def _repr(self: Any) -> str:  # as above
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse(self: object, name: str, value: object = None) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
