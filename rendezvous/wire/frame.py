"""One message after the other on a stream: four bytes that say how long it is, big-endian, and then that many bytes."""

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import StreamReader

PREFIX = struct.Struct(">I")

LIMIT = 2**24
"""Bytes in one message; more is refused on either side."""


class TooLong(ValueError):
    """A message is longer than LIMIT, or what comes is no message at all."""


def framed(body: bytes) -> bytes:
    """`body` as it goes on the stream. Raises TooLong."""
    return PREFIX.pack(length_of(len(body))) + body


def length_of(length: int) -> int:
    """The same number. Raises TooLong."""
    if length > LIMIT:
        raise TooLong(f"a message of {length} bytes: at most {LIMIT} can be sent")
    return length


def take_frames(got: bytearray) -> Iterator[bytes]:
    """Takes each whole message out of what has come so far. Raises TooLong."""
    while len(got) >= PREFIX.size:
        end = PREFIX.size + length_of(PREFIX.unpack_from(got)[0])
        if len(got) < end:
            return
        body = bytes(got[PREFIX.size : end])
        del got[:end]
        yield body


async def read_frame(reader: "StreamReader") -> bytes | None:
    """The next message, or None at the stream's end. Raises TooLong, OSError."""
    try:
        (length,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
        return await reader.readexactly(length_of(length))
    except EOFError:  # asyncio's IncompleteReadError, without asyncio: a worker loads this file as well
        return None
