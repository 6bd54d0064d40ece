"""How the state of one step lies in memory that outlives its worker: bytes, a text, and a header that is written last.

    header   64 bytes: round, step, where the text is, checksums of the text, of the bytes and of the header itself
    bytes    of each tensor, in order, each from a multiple of 64
    text     JSON: the job's run, how many ranks have shards of the state, and of each part what a framework needs to
             make tensors of the bytes

Nothing here knows a framework, or whose memory it is: a buffer is a `bytearray` or an `mmap`. The header is cleared
before anything else is written, and written after everything else; so whoever is killed while it writes leaves memory
that holds no generation.
"""

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from mmap import mmap
from typing import Any

from ...rendezvous.base.frozen import dataclass

MAGIC = b"ERunMem1"
HEADER_BYTES = 64
ALIGNED = 64
"""Bytes: where a tensor begins, so that it can be one of any data type."""

_FIELDS = struct.Struct("<8sQQQQIQ")
_MARK = struct.Struct("<I")
_WORD = (1 << 64) - 1

Buffer = bytearray | mmap
Checksum = Callable[[memoryview], int]
"""Of the bytes of all tensors; up to 64 bits."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What a header says, whose text was checked; the tensors' bytes were not.

    Attributes:
        round, step: of the job, when the state was taken.
        run: of the job; empty where the agent did not know it.
        parts: of each part, its text.
        end: bytes from the beginning until the tensors' end.
        size: bytes until the end of everything.
        checksum: of the tensors' bytes.
        mark: of the header: the same for the same state.
        world: how many ranks have shards of the state beside it; 0: it is all here.
    """

    round: int
    step: int
    run: str
    parts: Mapping[str, str]
    end: int
    size: int
    checksum: int
    mark: int
    world: int = 0


def place_tensors(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each tensor of so many bytes begins, and where the text does."""
    offsets: list[int] = []
    end = HEADER_BYTES
    for size in sizes:
        offsets.append(end)
        end += -(-size // ALIGNED) * ALIGNED
    return offsets, end


def write_text(run: str, parts: Mapping[str, str], world: int = 0) -> bytes:
    """The text of a generation; `world`: how many ranks have shards of the state beside it."""
    held = {"run": run, "parts": dict(parts), **({"world": world} if world else {})}
    return json.dumps(held, separators=(",", ":")).encode()


def clear_generation(buffer: Buffer) -> None:
    """From now on the buffer holds none. Before its bytes are written."""
    buffer[:HEADER_BYTES] = bytes(HEADER_BYTES)


def complete_generation(buffer: Buffer, round: int, step: int, text: bytes, end: int, checksum: Checksum) -> int:
    """The tensors' bytes are written, until `end`: now the text, and at last the header. Returns its mark."""
    buffer[end : end + len(text)] = text
    with memoryview(buffer) as whole, whole[HEADER_BYTES:end] as tensors:
        checked = checksum(tensors) & _WORD
    fields = _FIELDS.pack(MAGIC, round, step, end, len(text), zlib.crc32(text), checked)
    mark = zlib.crc32(fields)
    buffer[:HEADER_BYTES] = (fields + _MARK.pack(mark)).ljust(HEADER_BYTES, b"\0")
    return mark


def read_mark(head: bytes) -> int | None:
    """The mark of the generation that has this header; None where it is none."""
    fields = head[: _FIELDS.size]
    if len(head) < HEADER_BYTES or not fields.startswith(MAGIC):
        return None
    (mark,) = _MARK.unpack_from(head, _FIELDS.size)
    return mark if mark == zlib.crc32(fields) else None


def read_generation(buffer: Buffer) -> Generation | None:
    """What the buffer holds; None where that is nothing whole."""
    if len(buffer) < HEADER_BYTES:
        return None
    head = bytes(buffer[:HEADER_BYTES])
    mark = read_mark(head)
    _, round, step, end, length, check, checksum = _FIELDS.unpack_from(head)
    if mark is None or end + length > len(buffer):
        return None
    text = bytes(buffer[end : end + length])
    if zlib.crc32(text) != check:
        return None
    held: dict[str, Any] = json.loads(text)  # Any: JSON
    world: int = held.get("world", 0)
    return Generation(round, step, held["run"], held["parts"], end, end + length, checksum, mark, world)


def is_undamaged(buffer: Buffer, generation: Generation, checksum: Checksum) -> bool:
    """Whether the tensors' bytes are still those that were written."""
    with memoryview(buffer) as whole, whole[HEADER_BYTES : generation.end] as tensors:
        return checksum(tensors) & _WORD == generation.checksum
