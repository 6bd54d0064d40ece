"""What a warm interpreter and its agent say to each other: words of bytes, none of which holds a NUL.

A frame is four bytes of length, most significant first, and the words with a NUL between them. No module names, paths,
variables or numbers need more, and the interpreter has to import nothing to read it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLE = "ELASTIC_RUN_WARM"
"""In the environment of a warm interpreter: the descriptors of its connection and of its output's reading end, and
whether there was a PYTHONPATH."""

LENGTH = 4


def pack(words: Iterable[bytes]) -> bytes:
    """One frame. ValueError where a word holds a NUL."""
    listed = list(words)
    if any(b"\0" in word for word in listed):
        raise ValueError("a word of a frame cannot hold a NUL")
    body = b"\0".join(listed)
    return len(body).to_bytes(LENGTH, "big") + body


def unpack(data: bytes) -> tuple[list[list[bytes]], bytes]:
    """The frames that `data` holds whole, and what is left of it."""
    frames: list[list[bytes]] = []
    while len(data) >= LENGTH:
        end = LENGTH + int.from_bytes(data[:LENGTH], "big")
        if len(data) < end:
            break
        frames.append(data[LENGTH:end].split(b"\0"))
        data = data[end:]
    return frames, data
