"""Values to JSON and back: frozen dataclasses of plain fields, checked as they are read.

What comes from another process is untrusted in shape and in size: `decode` accepts exactly the declared types within
their bounds, ignores fields it does not know (a newer version may send more) and says what was wrong with the rest.
Never pickle. A field's bounds are in its annotation (`Annotated[int, Within(1, 65535)]`); without one, a whole number
has 64 bits, a float is finite, and a text is one that this machine can encode.

How a type is read and written is worked out once for each: a master of ten thousand nodes reads nothing else all day.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

from ..base.frozen import dataclass

T = TypeVar("T")

MOST_ITEMS = 1 << 19
"""Items of all lists and objects of one value: each takes up to 200 bytes of memory, and two on the wire. The status of
a job of ten thousand nodes has a third of that."""

Reader = Callable[[Any], object]
"""Takes raw JSON (hence Any), and gives the value; raises _Unfit."""


class Malformed(ValueError):
    """The bytes are not the value that was expected."""


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a whole number, both included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Text:
    """Bounds of a text.

    Attributes:
        most: characters.
        printable: it goes into keys, addresses and lines: no control characters, nothing that UTF-8 does not hold.
    """

    most: int
    printable: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Bounds of a list: at most so many items."""

    most: int


Bounds = Within | Text | Count


class Tagged:
    """A member of a union: it is written with its `code`, by which it is read."""

    __slots__ = ()

    @property
    def code(self) -> str:
        """What programs call it: the name of its class."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class Unknown(Tagged):
    """In a union: whatever only a newer version knows, by its code."""

    name: Annotated[str, Text(100)]

    def __str__(self) -> str:
        return f"{self.name} (another version of elastic-run says why)"


_WHOLE = Within(-(1 << 63), (1 << 63) - 1)


class _Unfit(Exception):
    """Raw JSON that does not fit; `path` grows on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def encode(value: object, *, pack: Callable[[object], object] | None = None) -> bytes:
    """A frozen dataclass as compact JSON.

    With `pack`, fields that have their default are left out, which `decode` fills in again, and `pack` is asked how
    each other field's value is written.
    """
    if pack is None:
        return _ENCODER.encode(value).encode()
    write = pack

    def fields(value: object) -> dict[str, object]:
        found = ((name, default, getattr(value, name)) for name, default in _defaults(type(value)))
        return {name: write(inner) for name, default, inner in found if inner != default}

    return json.JSONEncoder(separators=(",", ":"), check_circular=False, default=fields).encode(value).encode()


def decode(kind: type[T], data: bytes, *, unpack: Callable[[object], object] | None = None) -> T:
    """The `kind` that `data` holds. Raises Malformed with the path of the first field that does not fit.

    With `unpack`, each JSON object is replaced by what that makes of it, the inner ones first.
    """
    if len(data) > MOST_ITEMS and data.count(b",") + data.count(b"[") + data.count(b"{") > MOST_ITEMS:
        raise Malformed(f"{kind.__name__}: more than {MOST_ITEMS} items")
    try:
        raw = json.loads(data, object_hook=unpack)
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{kind.__name__}: not JSON ({error})") from None
    try:
        return typing.cast(T, _reader(kind)(raw))
    except _Unfit as unfit:
        raise Malformed(f"{kind.__name__}{''.join(reversed(unfit.path))}: {unfit.what}") from None


def decode_or_none(kind: type[T], data: bytes) -> T | None:
    try:
        return decode(kind, data)
    except Malformed:
        return None


def _tag(kind: type) -> tuple[str, ...]:
    return ("code",) if issubclass(kind, Tagged) else ()


@cache
def _names(kind: type) -> tuple[str, ...]:
    return (*_tag(kind), *(field.name for field in dataclasses.fields(kind)))


@cache
def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    """Each field and its default; `MISSING`, which equals nothing else, where it has none."""
    fields = ((field.name, field.default) for field in dataclasses.fields(kind))
    return (*((name, dataclasses.MISSING) for name in _tag(kind)), *fields)


def _fields(value: object) -> dict[str, object]:
    """One level of a dataclass; the encoder asks for the next where it meets one."""
    return {name: getattr(value, name) for name in _names(type(value))}


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_fields)


@cache
def _reader(kind: Any) -> Reader:  # Any: type forms are no types to pyright
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        inner, *bounds = typing.get_args(kind)
        return _bounded(_reader(inner), [each for each in bounds if isinstance(each, Bounds)])
    if origin in (types.UnionType, typing.Union):
        arms = [arm for arm in typing.get_args(kind) if arm is not type(None)]
        inner = _reader(arms[0]) if len(arms) == 1 else _one_of_tagged(arms)
        return _optional(inner) if type(None) in typing.get_args(kind) else inner
    if origin is typing.Literal:
        return _one_of(typing.get_args(kind))
    if origin is tuple:
        return _sequence(_reader(typing.get_args(kind)[0]))
    if dataclasses.is_dataclass(kind):
        return _object(typing.cast(type, kind))
    if kind is float:
        return _number
    if kind is int:
        return _bounded(_plain_of(int), [_WHOLE])
    if kind is str:
        return _text
    return _plain_of(kind)


def _bounded(inner: Reader, bounds: Sequence[Bounds]) -> Reader:
    def read(raw: Any) -> object:
        value = inner(raw)
        for bound in bounds:
            if why := _outside(value, bound):
                raise _Unfit(why)
        return value

    return read


def _outside(value: Any, bound: Bounds) -> str:
    """What is wrong with a value of the right type; empty where nothing is."""
    match bound:
        case Within(least, most):
            return "" if least <= value <= most else f"a number from {least} to {most} is expected"
        case Text(most, printable):
            if len(value) > most:
                return f"{len(value)} characters, and at most {most} are expected"
            return "it holds what cannot be printed" if printable and not value.isprintable() else ""
        case Count(most):
            return f"{len(value)} items, and at most {most} are expected" if len(value) > most else ""


def _text(raw: Any) -> object:
    if type(raw) is not str:
        raise _Unfit(f"expected str, found {type(raw).__name__}")
    if not raw.isascii():
        try:
            raw.encode(errors="surrogateescape")  # as Python reads file names and arguments
        except UnicodeEncodeError:
            raise _Unfit("it is not a valid string: it contains half of a character") from None
    return raw


def _optional(inner: Reader) -> Reader:
    return lambda raw: None if raw is None else inner(raw)


def _one_of(choices: tuple[object, ...]) -> Reader:
    def read(raw: Any) -> object:
        if raw not in choices:
            raise _Unfit(f"{raw!r} is not one of {choices}")
        return raw

    return read


def _one_of_tagged(arms: Sequence[Any]) -> Reader:
    readers = {arm.__name__: _reader(arm) for arm in arms}

    def read(raw: Any) -> object:
        code = typing.cast(dict[str, object], raw).get("code") if isinstance(raw, dict) else None
        if not isinstance(code, str):
            raise _Unfit("expected an object with a code")
        if code in readers:
            return readers[code](raw)
        if Unknown not in arms:
            raise _Unfit(f"the code {code!r} is not one of {tuple(readers)}")
        return readers[Unknown.__name__]({"name": code})

    return read


def _sequence(inner: Reader) -> Reader:
    def read(raw: Any) -> object:
        if not isinstance(raw, list):
            raise _Unfit("expected a list")
        items: list[object] = []
        try:
            for item in typing.cast(list[object], raw):
                items.append(inner(item))
        except _Unfit as unfit:
            unfit.path.append(f"[{len(items)}]")
            raise
        return tuple(items)

    return read


def _object(kind: type) -> Reader:
    hints = typing.get_type_hints(kind, include_extras=True)
    missing = dataclasses.MISSING
    fields = [
        (field.name, _reader(hints[field.name]), field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
    ]

    def read(raw: Any) -> object:
        if not isinstance(raw, dict):
            raise _Unfit("expected an object")
        mapping = typing.cast(dict[str, object], raw)
        values: dict[str, object] = {}
        for name, inner, required in fields:
            try:
                if name in mapping:
                    values[name] = inner(mapping[name])
                elif required:
                    raise _Unfit("missing")
            except _Unfit as unfit:
                unfit.path.append(f".{name}")
                raise
        return kind(**values)

    return read


def _number(raw: Any) -> object:
    if isinstance(raw, int) and not isinstance(raw, bool):
        try:
            return float(raw)
        except OverflowError:
            raise _Unfit("the number is too large") from None
    if not isinstance(raw, float):
        raise _Unfit(f"expected float, found {type(raw).__name__}")
    if not math.isfinite(raw):
        raise _Unfit("a finite number is expected")
    return raw


def _plain_of(kind: type) -> Reader:
    def read(raw: Any) -> object:
        if type(raw) is not kind:  # a bool is no int here
            raise _Unfit(f"expected {kind.__name__}, found {type(raw).__name__}")
        return raw

    return read
