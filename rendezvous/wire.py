"""Values to JSON and back: frozen dataclasses of plain fields, checked as they are read.

What comes from another process is untrusted in shape: `decode` accepts exactly the declared types, ignores fields
it does not know (a newer version may send more) and says what was wrong with the rest. Never pickle.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class Malformed(ValueError):
    """The bytes are not the value that was expected."""


def encode(value: object) -> bytes:
    """A frozen dataclass as compact JSON."""
    return json.dumps(dataclasses.asdict(typing.cast(Any, value)), separators=(",", ":")).encode()


def decode(kind: type[T], data: bytes) -> T:
    """The `kind` that `data` holds. Raises Malformed with the path of the first field that does not fit."""
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{kind.__name__}: not JSON ({error})") from None
    return typing.cast(T, _read(kind, raw, kind.__name__))


@cache
def _fields(kind: type) -> Mapping[str, Any]:  # Any: what `get_type_hints` gives is not a type to pyright
    return typing.get_type_hints(kind)


def _read(kind: Any, raw: Any, where: str) -> object:  # Any: raw JSON and type forms
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        if raw is None:
            return None
        (inner,) = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        return _read(inner, raw, where)
    if origin is typing.Literal:
        if raw not in typing.get_args(kind):
            raise Malformed(f"{where}: {raw!r} is none of {typing.get_args(kind)}")
        return raw
    if origin is tuple:
        if not isinstance(raw, list):
            raise Malformed(f"{where}: expected a list")
        inner = typing.get_args(kind)[0]
        items = typing.cast(list[object], raw)
        return tuple(_read(inner, item, f"{where}[{index}]") for index, item in enumerate(items))
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast(type, kind), raw, where)
    if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        try:
            return float(raw)
        except OverflowError:
            raise Malformed(f"{where}: the number is too large") from None
    if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
        raise Malformed(f"{where}: expected {kind.__name__}, found {type(raw).__name__}")
    return typing.cast(object, raw)


def _read_dataclass(kind: type, raw: Any, where: str) -> object:  # Any: raw JSON
    if not isinstance(raw, dict):
        raise Malformed(f"{where}: expected an object")
    mapping = typing.cast(dict[str, object], raw)
    hints = _fields(kind)
    values: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        if field.name in mapping:
            values[field.name] = _read(hints[field.name], mapping[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Malformed(f"{where}.{field.name}: missing")
    return kind(**values)
