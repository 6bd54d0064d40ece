"""What a job's time went into, in words (pure)."""

from datetime import UTC, datetime

from ...rendezvous.time_split import MICROSECONDS, Split

SHORTEST = 50_000
"""Microseconds of a category that are told."""


def lost(split: Split) -> str:
    """Where the time went that was not productive, the most first; empty where there was none."""
    spent = [(value, name) for name, value in split if name != "productive" and value >= SHORTEST]
    parts = sorted(spent, key=lambda each: -each[0])
    return ", ".join(f"{words(name)} {span(value / MICROSECONDS)}" for value, name in parts)


def words(name: str) -> str:
    """The category as it stands in a sentence."""
    return name.replace("_", " ")


def span(seconds: float) -> str:
    if seconds < 0.95:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def steps_words(rate: float) -> str:
    """Optimizer steps a second, or seconds a step where they are slow."""
    if 0 < rate < 0.5:
        return f"{span(1 / rate)} a step"
    return f"{rate:.3g} steps/s"


def local_time(unix: float) -> str:
    """Date, time and the offset of this machine's zone."""
    try:
        return datetime.fromtimestamp(unix, UTC).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # no year of the calendar
        return "an unknown time"
