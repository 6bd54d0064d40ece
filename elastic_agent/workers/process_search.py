"""Which processes of this machine belong to the workers of one agent: all that a stop has to end."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable

from ...rendezvous.store.embedded import KEPT_VARIABLE
from ..processes.guardian import (
    Process,
    belonging,
    descendants,
    is_manager,
    process,
    service_tag,
    started_with,
    words_of,
)
from ..processes.reaper import Reaper

FIRST_PROCESS = 1
"""The pid that is given every orphan of its namespace."""


class ProcessSearch:
    """Looks for what is in the workers' sessions, carries the agent's tag or descends from such a process.

    Args:
        tag: the agent's incarnation; no comma.
        reaper: is told of orphans.
        spared: sessions that no stop of the workers ends: those of warm interpreters and of services.
        alone: nothing else in this process starts others, so that every daemon which appears below it is a worker's.
    """

    def __init__(self, tag: str, reaper: Reaper, spared: Callable[[], Collection[int]], *, alone: bool) -> None:
        self._tag = tag
        self._reaper = reaper
        self._spared = spared
        self._since: int | None = None if alone else -1  # when the first worker was started; -1: no daemon is sought

    def note_start(self, pid: int) -> None:
        """This worker has been started."""
        if self._since is None:
            with contextlib.suppress(OSError):
                found = process(pid)
                self._since = found.started if found else None

    def find_left(
        self, sessions: Collection[int], *, all_of_ours: bool = True, only: Collection[int] | None = None
    ) -> list[Process] | None:
        """What of the workers that lead these sessions still runs; None where no descriptor is left to look.

        Args:
            all_of_ours: what carries the tag and daemons as well, and not only what is in these sessions or descends
                from them.
            only: of all that, what is in one of these, or was started by a service; None: all.
        """
        try:
            # The kernel's list of children may skip some while others end: believed when it is empty twice.
            left = self._find(sessions, all_of_ours) or self._find(sessions, all_of_ours)
            self._reaper.adopt(found.pid for found in left if found.pid not in sessions)
            left = [found for found in left if not is_manager(words_of(found.pid))]
        except OSError:
            return None
        if only is None:
            return left
        of_services = {found.pid for found in belonging(left, (), service_tag(self._tag))}
        return [found for found in left if found.session in only or found.pid in of_services]

    def find_detached(self, sessions: Collection[int]) -> list[Process]:
        """What lives on where `find_left` found nothing more of its `only`; nothing where that cannot be seen."""
        with contextlib.suppress(OSError):
            return [each for each in self._find(sessions) if not is_manager(words_of(each.pid))]
        return []

    def _find(self, sessions: Collection[int], all_of_ours: bool = True) -> list[Process]:
        """All is decided by one look at the processes: a daemon that is given to this one between two is in neither."""
        spared = self._spared()
        below = [found for found in descendants(os.getpid()) if found.session not in spared]
        if not all_of_ours:
            return belonging(below, sessions, None)
        return belonging(below, {*sessions, *self._daemons(below)}, self._tag)

    def _daemons(self, below: Iterable[Process]) -> set[int]:
        """The sessions of daemons that workers have started with another environment (no tag is in it).

        Such a process was given to this one, a subreaper, when its own parent ended. What this process starts itself is
        in its session, or is marked. As a container's first process it is given what others have started there, too.
        """
        since, me, own = self._since, os.getpid(), os.getsid(0)
        if since is None or since < 0 or me == FIRST_PROCESS:
            return set()
        return {
            found.session
            for found in below
            if found.parent == me
            and found.session != own
            and found.started >= since
            and not started_with(found.pid, KEPT_VARIABLE)
        }
