"""Clocks that jump: libfaketime moves the wall clock of what is started with it, and of that alone."""

from pathlib import Path

import pytest

HOUR = 3600


class JumpingClock:
    """Skips the test where there is no libfaketime.

    Attributes:
        env: with what a process is started whose clock jumps.
    """

    def __init__(self, folder: Path) -> None:
        library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
        if library is None:
            pytest.skip("no libfaketime (Debian: apt-get install faketime): no clock can jump")
        self._offset = folder / "offset"
        self.jump(0)
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else it takes the deadlines of the monotonic clock for some of the wall clock, long past: each wait for
            # Python's lock ends at once and is begun again, which takes ten times the processor and starves agents.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def jump(self, seconds: int) -> None:
        """The clock is so many seconds ahead of the machine's from now on."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._offset)  # it is read, by its name, at each look at a clock
