"""The value of one flag: a whole number, seconds, a name, a folder. Each raises UsageError with what to write."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError
from .flags import Scanned
from .preflight import check_planted, check_room

LONGEST_LABEL = 200
"""Characters of a name that this node gives itself; it becomes part of keys in the store, and may get a number."""


def whole(scanned: Scanned, name: str, least: int, most: int | None = None, range_in_words: str = "") -> int:
    text, source = (scanned.text(name) or "").strip(), scanned.source(name)
    if not re.fullmatch(r"[+-]?[0-9]{1,12}", text):
        raise UsageError(f"{source} is not a whole number")
    value = int(text)
    if value < least or (most is not None and value > most):
        raise UsageError(f"{source} is out of range: {range_in_words or f'it must be at least {least}'}")
    return value


def seconds(text: str, source: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{source} is not a number of seconds: write for example 30 or 0.5")
    return value


def size(text: str, source: str) -> int:
    """Bytes."""
    match = re.fullmatch(r"([0-9]{1,15})(?:([KMGT])i?B?)?", text.strip(), re.IGNORECASE)
    if not match or not int(match[1]):
        raise UsageError(f"{source} is no size: write for example 500MiB or 8GiB")
    return int(match[1]) << 10 * (1 + "KMGT".index(match[2].upper()) if match[2] else 0)


def label(scanned: Scanned, name: str) -> str | None:
    """What this node calls itself for the others."""
    text = scanned.text(name)
    source = scanned.source(name).partition("=")[0]
    if text is not None and len(text) > LONGEST_LABEL:
        raise UsageError(f"{source} has {len(text)} characters, and takes at most {LONGEST_LABEL}")
    if text is not None and not text.isprintable():
        first = next(each for each in text if not each.isprintable())
        what = "a byte that is not UTF-8" if "\udc80" <= first <= "\udcff" else "a character that cannot be printed"
        raise UsageError(f"{source} has {what} ({ascii(first)[1:-1]}): leave it out")
    return text


def folder_of(scanned: Scanned, name: str) -> Path | None:
    text = scanned.text(name)
    if text is None:
        return None
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{scanned.source(name)} is a file: name a folder")
    check_planted(path, scanned.source(name))
    check_room(path, scanned.source(name))
    return path


def shutdown_timeout(scanned: Scanned, environ: Mapping[str, str]) -> float:
    elsewhere = environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "")
    if elsewhere and not scanned.has("shutdown-timeout"):
        return seconds(elsewhere, f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT={elsewhere}")
    return seconds(scanned.text("shutdown-timeout") or "", scanned.source("shutdown-timeout"))
