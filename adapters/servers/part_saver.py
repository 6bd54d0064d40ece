"""Writes a server's part of a checkpoint while it goes on: a copy of the process does it, with the memory as it was."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from .row_memory import RowMemory

NICE = 10
"""Serving comes first."""

MOST_WORDS = 1000
"""Bytes of why a part was not written."""


class PartSaver:
    """One copy at a time.

    Args:
        saved: hears of a checkpoint whose part is written.
        left_out: is called when one that was left out can be written.
        say: to people.
    """

    def __init__(self, saved: Callable[[int], None], left_out: Callable[[], None], say: Callable[[str], None]) -> None:
        self._saved = saved
        self._left_out = left_out
        self._say = say
        self._pid = 0
        self._more = False  # one was left out
        self._given_up = ""  # why the copy was ended
        self._on_disk: RowMemory | None = None  # what the copy reads there

    def save_part(self, version: int, path: Path, write: Callable[[], None], on_disk: RowMemory | None = None) -> None:
        """Has a copy of this process `write` the part of that checkpoint. What stands still is this call.

        What is `on_disk` stays as it is there until the copy has ended.
        """
        if self._pid:
            self._more = True  # the disk is slow
            return
        try:
            words = os.memfd_create("why a part was not written")
        except OSError as error:
            self._say(f"no part of checkpoint {version}: {error}")
            return
        try:
            self._pid = os.fork()
        except OSError as error:
            os.close(words)
            self._say(f"no part of checkpoint {version}: {error}")
            return
        if not self._pid:
            _write_and_exit(write, words, on_disk.descriptors if on_disk is not None else ())
        if on_disk is not None:
            on_disk.hold_records()
        self._on_disk, self._given_up = on_disk, ""
        descriptor = os.pidfd_open(self._pid)
        asyncio.get_running_loop().add_reader(descriptor, self._end_copy, descriptor, words, version, path)

    def give_up(self, why: str) -> None:
        """Ends a copy that is writing, whose part is not written for that reason."""
        self._given_up = why
        self.close()

    def close(self) -> None:
        """A copy that is writing is ended."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _end_copy(self, descriptor: int, words: int, version: int, path: Path) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        if self._on_disk is not None:
            self._on_disk.let_records_go()
        if (code := os.waitstatus_to_exitcode(status)) == 0:
            self._saved(version)
        else:
            said = os.pread(words, MOST_WORDS, 0).decode(errors="replace")
            why = said or self._given_up or f"its writer was ended by signal {-code}"
            self._say(f"{path} could not be written: {why}")
        os.close(words)
        if self._more:
            self._more = False
            self._left_out()


def _write_and_exit(write: Callable[[], None], words: int, files: Sequence[int]) -> None:
    """Ends this process; what went wrong is in the file `words`."""
    code = 1
    try:
        # No connection may stay open for it when the server is lost.
        for each in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):
                if int(each.name) > 2 and int(each.name) not in (words, *files):
                    os.close(int(each.name))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.nice(NICE)
        write()
        code = 0
    except Exception as error:  # noqa: BLE001 - the parent tells it
        os.write(words, (str(error) if isinstance(error, OSError) else repr(error)).encode()[:MOST_WORDS])
    finally:
        os._exit(code)
