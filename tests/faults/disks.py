"""Disks that are full, of bytes or of names."""

import contextlib
import itertools
from pathlib import Path


def fill(folder: Path) -> None:
    """Until no byte more can be written there."""
    with contextlib.suppress(OSError), (folder / "hog").open("wb", buffering=0) as hog:
        while True:
            hog.write(bytes(4096))


def fill_with_names(folder: Path) -> None:
    """Until no file and no folder more can be made there."""
    with contextlib.suppress(OSError):
        for number in itertools.count():
            (folder / f"{number}").touch()
