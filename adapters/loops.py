"""Loops that numba compiles, of whichever wing has some (imported by these alone: it loads numba)."""

from collections.abc import Callable
from typing import Any

import numba


def compiled(loop: Callable[..., Any]) -> Any:  # Any: numba has no types that pyright could check
    """The loop, to be compiled at its first call; kept for the next process where a folder for that can be written."""
    try:
        return numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:
        return numba.njit(nogil=True)(loop)
