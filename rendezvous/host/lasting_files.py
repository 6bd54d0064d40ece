"""Files that are there wholly or not at all, also after the machine has lost its power."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def write_whole(path: Path) -> Generator[BinaryIO]:
    """A file to be written, which becomes `path` at the end of the `with`; nothing is left of one that fails.

    Raises OSError.
    """
    writing = path.with_name(path.name + ".writing")
    try:
        with writing.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            writing.rename(path)
            sync_directory(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):  # why it could not be written is what is told
            writing.unlink()
        raise


def sync_directory(directory: Path) -> None:
    """Has the names in it outlast a crash of the machine. Raises OSError."""
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
