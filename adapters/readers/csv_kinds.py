"""What kind of values a column of text has, by its first records (pure).

int64       whole numbers that fit, without leading zeros
float64     numbers, "nan", "inf" and empty fields, which become NaN
str         all else; so are columns of codes with leading zeros, and empty ones
"""

import re
from collections.abc import Sequence

KINDS = ("int64", "float64", "str")

_LEADING_ZERO = re.compile(r"\s*[+-]?0[0-9]")


def kind_of(values: Sequence[str]) -> str:
    """The narrowest kind that all values have."""
    if any(map(_LEADING_ZERO.match, values)):
        return "str"
    for kind, read in (("int64", whole_numbers), ("float64", numbers)):
        try:
            read(values)
        except (ValueError, OverflowError):
            continue
        return kind if any(values) else "str"
    return "str"


def whole_numbers(values: Sequence[str]) -> list[int]:
    """The values as integers. Raises ValueError, also where one does not fit into 64 bits."""
    _check_plain(values)
    found = list(map(int, values))
    if found and not -(2**63) <= min(found) <= max(found) < 2**63:
        raise ValueError("a number does not fit into 64 bits")
    return found


def numbers(values: Sequence[str]) -> list[float]:
    """The values as floating-point numbers; NaN where one is empty. Raises ValueError."""
    _check_plain(values)
    return [float(value or "nan") for value in values]


def _check_plain(values: Sequence[str]) -> None:
    """Python reads 1_000 and digits of other scripts as numbers, too; other programs that read the file do not."""
    together = "".join(values)
    if "_" in together or not together.isascii():
        raise ValueError("it is no number")


def unfit(value: str, kind: str) -> str:
    """Why a value is not of that kind, in words; empty where it is."""
    shown = repr(value if len(value) <= 40 else value[:40] + "...")
    if kind == "str":
        return ""
    if not value and kind == "int64":
        return "is empty, and the column is of whole numbers (kinds={...: 'float64'} reads it as NaN)"
    try:
        (whole_numbers if kind == "int64" else numbers)([value])
    except ValueError:
        what = "whole number of 64 bits" if kind == "int64" else "number"
        return f"is {shown}, and not a {what}"
    return ""
