"""Ids that are strings: each is its hash of 64 bits, the same in every process and on every machine (no I/O)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import kernels
from .errors import TableMisused
from .server_events import Array

Strings = Sequence[Any]
"""Strings; or sequences of these, all of the same length, and so on; or an array of strings."""

SEQUENCES = (list, tuple)


def hash_strings(strings: "Strings | Array", seed: int) -> Array:
    """The ids (int64) of strings, in their shape. Raises TableMisused where they are no strings, or of no shape."""
    flat, shape = flatten_strings(strings)
    text, ends = _join_texts(flat)
    hashes = np.empty(len(flat), np.int64)
    kernels.hash_texts(text, ends, seed, hashes)
    return hashes.reshape(shape)


def flatten_strings(strings: "Strings | Array") -> tuple[list[str], tuple[int, ...]]:
    """All strings, and the shape that they have. Raises TableMisused."""
    flat: list[Any] = strings.reshape(-1).tolist() if isinstance(strings, np.ndarray) else list(strings)
    shape = strings.shape if isinstance(strings, np.ndarray) else (len(strings),)
    while flat and type(flat[0]) in SEQUENCES:
        lengths = {len(each) if type(each) in SEQUENCES else -1 for each in flat}
        if len(lengths) > 1:
            raise TableMisused("sequences of strings must have one length: give one of all strings, and offsets")
        shape = (*shape, *lengths)
        flat = [one for each in flat for one in each]
    for each in flat:
        if not isinstance(each, str):
            raise TableMisused(f"{each!r} is a {type(each).__name__} among ids that are strings")
    return flat, shape


def _join_texts(strings: list[str]) -> tuple[Array, Array]:
    """Their bytes in UTF-8, one after the other, and where each ends."""
    text = "".join(strings).encode(errors="surrogatepass")
    lengths = list(map(len, strings))
    if sum(lengths) != len(text):  # not all of it is ASCII
        lengths = [len(each.encode(errors="surrogatepass")) for each in strings]
    return np.frombuffer(text, np.uint8).copy(), np.cumsum(lengths, dtype=np.int64)
