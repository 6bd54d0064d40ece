"""What a store's values look like to those who may read the store and do not belong to the job.

A store that seals has each value encrypted before it is written and opened after it is read, at this one place. The
key's name is bound to it: a value that is copied to another key cannot be opened there. Keys' names stay as they are.
"""

from typing import Protocol

SEALED = b"elastic-run sealed 1\n"
"""Begins a sealed value; and is all that a reader gets of a value that it cannot open, which no value of a job is."""


class Seal(Protocol):
    """Encrypts and authenticates values."""

    def sealed(self, key: bytes, value: bytes) -> bytes:
        """What is written under `key`; begins with SEALED."""
        ...

    def opened(self, key: bytes, data: bytes) -> bytes:
        """The value; SEALED where it was not sealed, for another key, or with another secret."""
        ...


def unreadable(value: bytes) -> bool:
    """It was sealed with another secret, or (where the reader seals) with none (pure)."""
    return value.startswith(SEALED)
