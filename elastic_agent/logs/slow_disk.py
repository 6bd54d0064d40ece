"""A file system that may hang, as NFS does whose server is away: the event loop waits for it only a moment."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ...rendezvous.base.threads import T, begin
from ...rendezvous.host.named_files import LARGEST_SETTINGS, read_named

MOMENT_SECONDS = 0.5
"""A tenth of a lease, and a thousand times what a local disk needs for a small file."""


class SlowDisk:
    """Asks one question at a time. While one hangs, no other is asked: so all of them hold the loop up once."""

    def __init__(self) -> None:
        self._asked: Future[Any] | None = None  # Any: of whatever type

    def within(self, work: Callable[[], T], seconds: float = MOMENT_SECONDS) -> T:
        """What `work` returns, on a thread of its own.

        Raises what `work` raises; OSError (a TimeoutError is one) where it does not end in time or cannot be begun.
        """
        if self._asked is not None and not self._asked.done():
            raise TimeoutError("its file system does not answer")
        self._asked = asked = begin(work)
        return asked.result(seconds)

    def read_error_file(self, path: Path, rank: int, say: Callable[[str], None]) -> bytes | None:
        """What the worker of that rank has written there; None: nothing that can be read now."""
        try:
            return self.within(lambda: read_named(path, LARGEST_SETTINGS))
        except TimeoutError:
            say(f"the error file of rank {rank} is not read: its file system does not answer")
        except OSError:
            pass
        return None
