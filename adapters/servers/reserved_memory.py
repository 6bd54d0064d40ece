"""Arrays of virtual memory, as long as they may ever be: a page is taken when it is first written."""

import contextlib
import mmap
from typing import Any

import numpy as np

from .server_events import Array

NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE, of which Python's `mmap` has no name: what is not written takes nothing."""


def give_back(array: Array, first: int) -> None:
    """What `reserve` has given, from that place on, takes no memory: zeros again. All before is as it was."""
    base: Any = array  # Any: a view of a view of a map
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    if not isinstance(base, mmap.mmap):
        return  # an array of nothing
    begin = -(-first * array.strides[0] // mmap.PAGESIZE) * mmap.PAGESIZE
    if begin < len(base):
        base.madvise(mmap.MADV_DONTNEED, begin, len(base) - begin)


def reserve(shape: tuple[int, ...], dtype: Any) -> Array:
    """One of zeros."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    with contextlib.suppress(OSError):  # a kernel without huge pages knows no such advice
        memory.madvise(mmap.MADV_NOHUGEPAGE)  # or the first row of each part would take 2 MiB
    return np.frombuffer(memory, dtype).reshape(shape)
