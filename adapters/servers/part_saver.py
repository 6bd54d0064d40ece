"""Writes a server's part of a checkpoint while it goes on: a copy of the process does it, with the memory as it was."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

NICE = 10
"""Serving comes first."""


class PartSaver:
    """One copy at a time.

    Args:
        saved: hears of a checkpoint whose part is written.
        say: to people.
    """

    def __init__(self, saved: Callable[[int], None], say: Callable[[str], None]) -> None:
        self._saved = saved
        self._say = say
        self._pid = 0

    def save_part(self, version: int, path: Path, write: Callable[[], None]) -> None:
        """Has a copy of this process `write` the part of that checkpoint. What stands still is this call."""
        if self._pid:
            return  # the disk is too slow: this one is left out
        try:
            self._pid = os.fork()
        except OSError as error:
            self._say(f"no part of checkpoint {version}: {error}")
            return
        if not self._pid:
            _write_and_exit(write)
        descriptor = os.pidfd_open(self._pid)
        asyncio.get_running_loop().add_reader(descriptor, self._end_copy, descriptor, version, path)

    def close(self) -> None:
        """A copy that is writing is ended."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _end_copy(self, descriptor: int, version: int, path: Path) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        if (code := os.waitstatus_to_exitcode(status)) == 0:
            self._saved(version)
        else:
            why = os.strerror(code) if code > 0 else f"its writer was ended by signal {-code}"
            self._say(f"{path} could not be written: {why}")


def _write_and_exit(write: Callable[[], None]) -> None:
    """Ends this process; its code is the error's number."""
    code = 1
    try:
        # No connection may stay open for it when the server is lost.
        for each in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):
                if int(each.name) > 2:
                    os.close(int(each.name))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.nice(NICE)
        write()
        code = 0
    except OSError as error:
        code = error.errno or 1
    finally:
        os._exit(code)
