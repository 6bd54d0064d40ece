"""A message with arrays, as it goes over a connection: how long its head is, the head in JSON, the arrays' bytes.

Numbers are little-endian. The head says of each array what it is, so that its bytes are read to where they stay.
"""

import io
import math
import struct
import zlib
from collections.abc import Generator, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.values import Count, Malformed, Within, decode, encode
from .errors import TableMisused
from .requests import Reply, Request
from .server_events import Array, Arrays

PREFIX = struct.Struct("<I")

LONGEST_HEAD = 1 << 20
"""Bytes."""

MOST_BYTES = 1 << 28
"""Of a message's arrays together."""

_Length = Annotated[int, Within(0, MOST_BYTES)]


@dataclass(frozen=True, slots=True)
class Shape:
    """What an array is: its numbers, and how many in each dimension."""

    dtype: Literal["i8", "f4", "f2", "u2", "u1"]
    lengths: Annotated[tuple[_Length, ...], Count(2)]


@dataclass(frozen=True, slots=True)
class Asking:
    """The head of a request."""

    request: Request
    arrays: Annotated[tuple[Shape, ...], Count(4096)] = ()


@dataclass(frozen=True, slots=True)
class Replying:
    """The head of an answer."""

    reply: Reply
    arrays: Annotated[tuple[Shape, ...], Count(4096)] = ()


def shapes_of(arrays: Arrays) -> tuple[Shape, ...]:
    """What a head says of these, each of int64, float32, bytes, or numbers as in `wire_numbers.py`."""
    return tuple(Shape(each.dtype.str[1:], each.shape) for each in arrays)  # pyright: ignore[reportArgumentType]


def pack(head: Any, arrays: Arrays) -> list[bytes | memoryview]:
    """What goes over the connection; whole arrays are not copied. Raises TableMisused where it is too much.

    Any: a value that has their shapes as `arrays`.
    """
    check_size(sum(each.nbytes for each in arrays))
    body = encode(head)
    return [PREFIX.pack(len(body)) + body, *(_bytes_of(np.ascontiguousarray(each)) for each in arrays if each.size)]


def check_size(size: int) -> None:
    """Raises TableMisused where these are more bytes than a message's arrays may have."""
    if size > MOST_BYTES:
        raise TableMisused(
            f"{size >> 20} MiB at a time, and {MOST_BYTES >> 20} is the most: use smaller batches, or more servers"
        )


def make_arrays(shapes: Sequence[Shape]) -> list[Array]:
    """Arrays for what such a head announces. Raises Malformed where it is too much."""
    if sum(math.prod(each.lengths) * int(each.dtype[1]) for each in shapes) > MOST_BYTES:
        raise Malformed(f"a message's arrays have at most {MOST_BYTES} bytes: use smaller batches")
    return [np.empty(each.lengths, each.dtype) for each in shapes]


def length_of_head(prefix: bytes | bytearray) -> int:
    """How many bytes the head has. Raises Malformed."""
    (length,) = PREFIX.unpack(prefix)
    if length > LONGEST_HEAD:
        raise Malformed(f"a head of {length} bytes: it has at most {LONGEST_HEAD}")
    return length


def read_head(kind: Any, head: bytes | bytearray) -> Any:
    """An Asking or a Replying. Raises Malformed."""
    return decode(kind, bytes(head))


def buffers_of(arrays: Arrays) -> list[memoryview]:
    """Where the arrays' bytes are to be read to."""
    return [_bytes_of(each) for each in arrays if each.size]


def fill_message(kind: Any) -> Generator[memoryview, None, tuple[Any, list[Array]]]:
    """Each buffer of one message that is to be filled next; returns its head, of this kind, and its arrays.

    Raises Malformed.
    """
    prefix = bytearray(PREFIX.size)
    yield memoryview(prefix)
    body = bytearray(length_of_head(prefix))
    yield memoryview(body)
    head = read_head(kind, body)
    arrays = make_arrays(head.arrays)
    yield from buffers_of(arrays)
    return head, arrays


def read_message(file: io.BufferedReader, kind: Any, checksum: int) -> tuple[Any, list[Array], int]:
    """A message of this kind in a file: its head, its arrays, and what `checksum` is with its bytes.

    Raises EOFError, Malformed.
    """
    buffers = fill_message(kind)
    while True:
        try:
            buffer = next(buffers)
        except StopIteration as whole:
            return *whole.value, checksum
        if file.readinto(buffer) != len(buffer):
            raise EOFError("it ends too early")
        checksum = zlib.crc32(buffer, checksum)


def _bytes_of(array: Array) -> memoryview:
    return array.data.cast("B")
