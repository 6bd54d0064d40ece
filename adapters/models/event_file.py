"""Numbers over time in the format that TensorBoard reads: records of protocol buffers with checksums.

A file is a row of records: the length (8 bytes, little-endian), its checksum, an `Event` and its checksum. A checksum
is CRC-32C, rotated and offset, as TFRecord has it.
"""

import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

VERSION = b"brain.Event:2"

MASK = 0xA282EAD8


def _make_table() -> tuple[int, ...]:
    table: list[int] = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


TABLE = _make_table()


def compute_crc(data: bytes) -> int:
    """CRC-32C (pure)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def encode_record(event: bytes) -> bytes:
    """A record of the file (pure)."""
    length = struct.pack("<Q", len(event))
    return length + _encode_checksum(length) + event + _encode_checksum(event)


def encode_event(
    seconds: float, step: int = 0, scalars: Mapping[str, float] | None = None, *, version: bool = False
) -> bytes:
    """An `Event` (pure).

    Args:
        seconds: since 1970.
        scalars: numbers of this step, by name; None: a session starts here, and what other files have of this step
            and later ones counts no more.
        version: it is the first of its file, and says of which format that is.
    """
    head = b"\x09" + struct.pack("<d", seconds) + b"\x10" + _encode_varint(step)
    if version:
        return head + _encode_field(3, VERSION)
    if scalars is None:
        return head + _encode_field(7, b"\x08\x01")
    values = (
        _encode_field(1, _encode_field(1, name.encode()) + b"\x15" + _encode_float(value))
        for name, value in scalars.items()
    )
    return head + _encode_field(5, b"".join(values))


class EventFile:
    """A new file in this folder.

    Args:
        folder: of all runs of a training; it is made.
        step: with which this run begins.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{now:017.6f}.{socket.gethostname()}.{os.getpid()}"  # TensorBoard sorts by name
        self._path = folder / name
        self._append(encode_event(now, version=True), encode_event(now, step))

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Numbers of this step, by name: there for a reader at once. Raises OSError."""
        self._append(encode_event(time.time(), step, scalars))

    def _append(self, *events: bytes) -> None:
        with self._path.open("ab") as file:
            file.write(b"".join(map(encode_record, events)))


def _encode_checksum(data: bytes) -> bytes:
    crc = compute_crc(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF)


def _encode_varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _encode_float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _encode_field(number: int, content: bytes) -> bytes:
    """Of bytes, text or another message."""
    return _encode_varint(number << 3 | 2) + _encode_varint(len(content)) + content
