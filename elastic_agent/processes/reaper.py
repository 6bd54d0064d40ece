"""Orphans of the workers become children of this process, which collects them and takes no exit that is another's."""

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable

from .guardian import descendants, process

_PR_SET_CHILD_SUBREAPER = 36


class Reaper:
    """Makes this process the parent of its descendants' orphans, and collects them when they end.

    Never takes an exit code from its owner, also where this process has other children than workers. What it started
    itself is in its own session or leads a new one; an orphan is in another's session. An orphan that leads its session
    looks like a child, so it is collected only if `adopt` named it while it lived; a few others stay as zombies.
    """

    def __init__(self) -> None:
        self._adopted: set[int] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = False

    def adopt(self, pids: Iterable[int]) -> None:
        """These descend from workers, and no one here waits for them."""
        # Those whose own parent collected them are gone, and their numbers may go to others.
        self._adopted = {pid for pid in self._adopted if process(pid)}.union(pids)

    def start(self) -> None:
        """Become a subreaper and listen for ends; a second call does nothing."""
        if self._started:
            return
        self._started = True
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        loop = asyncio.get_running_loop()
        # Elsewhere than on the main thread orphans are collected at each stop only.
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGCHLD, self.reap)
            self._loop = loop

    def reap(self) -> None:
        """Collect the orphans that have ended."""
        # Without a free descriptor nobody can look whose they are: they wait for the next look.
        with contextlib.suppress(OSError):
            while self._started and (found := _peek()):
                if self._is_owned(found):
                    # It hides those behind it until its owner collects it.
                    self._reap_each()
                    return
                self._collect(found)

    def close(self) -> None:
        """Stop listening; orphans go to their usual parent again."""
        if not self._started:
            return
        self.reap()
        self._started = False
        if self._loop is not None:
            self._loop.remove_signal_handler(signal.SIGCHLD)
            self._loop = None
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _reap_each(self) -> None:
        me = os.getpid()
        for found in list(descendants(me)):
            if found.parent == me and not self._is_owned(found.pid):
                self._collect(found.pid)

    def _collect(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG):
                self._adopted.discard(pid)

    def _is_owned(self, pid: int) -> bool:
        if pid in self._adopted:
            return False
        found = process(pid)
        return found is None or found.session in (os.getsid(0), pid)


def _peek() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None
