"""Numbers of rows and gradients as they go over a connection: float32, or rounded to half of its bits (no I/O).

numpy has no bfloat16: such an array is uint16 there, the upper half of each float32. Nothing else is uint16.
"""

import numpy as np

from . import kernels
from .server_events import Array
from .specs import Numbers

WIRE_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(np.uint16), "float16": np.dtype(np.float16)}

MOST_FLOAT16 = 65504.0


def round_numbers(numbers: Array, dtype: Numbers) -> Array:
    """Those of float32, each to the nearest of that type; what is too large becomes infinite."""
    match dtype:
        case "float32":
            return numbers
        case "float16":
            with np.errstate(over="ignore"):
                return numbers.astype(np.float16)
        case "bfloat16":
            out = np.empty(numbers.shape, np.uint16)
            kernels.round_bits(np.ascontiguousarray(numbers).view(np.uint32).reshape(-1), out.reshape(-1))
            return out


def round_rows(rows: Array, dtype: Numbers) -> Array:
    """As `round_numbers`; what is too large becomes the largest number that there is."""
    return round_numbers(np.clip(rows, -MOST_FLOAT16, MOST_FLOAT16) if dtype == "float16" else rows, dtype)


def read_numbers(array: Array) -> Array:
    """As float32."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32, copy=False)
