"""What kind of values a column of text has, by its first records (pure).

int64       whole numbers that fit, without leading zeros
float64     numbers, "nan", "inf" and empty fields, which become NaN
str         all else; so are columns of codes with leading zeros, of longer whole numbers, and empty ones
"""

import re
from collections.abc import Sequence

KINDS = ("int64", "float64", "str")

_LEADING_ZERO = re.compile(r"\n[^\S\n]*[+-]?0[0-9]")
"""In values that each follow a line feed."""

_EXACT = 2**53
"""Up to here every whole number is a floating-point number."""


def kind_of(values: Sequence[str]) -> str:
    """The narrowest kind that all values have."""
    for kind, read in (("int64", whole_numbers), ("float64", numbers)):
        try:
            read(values)
        except (ValueError, OverflowError):
            continue
        return kind if any(values) and (kind == "int64" or not _are_long(values)) else "str"
    return "str"


def _are_long(values: Sequence[str]) -> bool:
    """Whether all are whole numbers or empty, and some would change as floating-point numbers: keys, most likely."""
    try:
        return any(abs(int(value)) > _EXACT for value in values if value)
    except ValueError:
        return False


def whole_numbers(values: Sequence[str], *, codes: bool = False) -> list[int]:
    """The values as integers. Raises ValueError, also where one does not fit into 64 bits.

    Args:
        codes: those with leading zeros are numbers, too.
    """
    _check_plain(values, codes)
    found = list(map(int, values))
    if found and not -(2**63) <= min(found) <= max(found) < 2**63:
        raise ValueError("a number does not fit into 64 bits")
    return found


def numbers(values: Sequence[str], *, codes: bool = False) -> list[float]:
    """The values as floating-point numbers; NaN where one is empty. Raises ValueError. `codes`: as `whole_numbers`."""
    _check_plain(values, codes)
    return [float(value or "nan") for value in values]


def _check_plain(values: Sequence[str], codes: bool) -> None:
    """Python reads 1_000 and digits of other scripts as numbers, too; other programs that read the file do not."""
    together = "\n".join(("", *values))
    if "_" in together or not together.isascii():
        raise ValueError("it is no number")
    if not codes and _LEADING_ZERO.search(together):
        raise ValueError("it is a code")


def unfit(value: str, kind: str, name: str, *, codes: bool = False) -> str:
    """Why a value of the column `name` is not of that kind, in words, and what reads it; empty where it is."""
    shown = repr(value if len(value) <= 40 else value[:40] + "...")
    if kind == "str":
        return ""
    if not value and kind == "int64":
        return f"is empty, and the column is of whole numbers ({_offer(name, 'float64')} reads it as NaN)"
    try:
        (whole_numbers if kind == "int64" else numbers)([value], codes=codes)
    except ValueError:
        what = "whole number of 64 bits" if kind == "int64" else "number"
        if _LEADING_ZERO.match(f"\n{value}") and not codes:
            return f"is {shown}, with a zero in front, in a column of numbers ({_offer(name, 'str')} keeps it)"
        return f"is {shown}, and not a {what}{_remedy(value, kind, name)}"
    return ""


def _offer(name: str, kind: str) -> str:
    return f"kinds={{{name!r}: {kind!r}}}, or --kinds={name}:{kind},"


def _remedy(value: str, kind: str, name: str) -> str:
    """What reads a number that is not of 64 bits; empty for what is no number."""
    if kind == "float64" or kind_of([value]) not in ("float64", "int64"):
        return f" ({_offer(name, 'str')} reads it)" if _are_long([value]) else ""
    return f" ({_offer(name, 'float64')} reads it)"
