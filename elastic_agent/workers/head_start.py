"""Rank 0 first: forked workers begin at the same moment, and some frameworks meet badly where another one is earlier.

Their adapter says so (`Plain.meets_through`). Then the other workers of rank 0's node begin a little later. Those of
other nodes, whose agents hear of a round at other moments and fork faster or slower, are held until that node tells
through the store that rank 0 listens. Where no word comes, they begin after `Meeting.held` seconds. A script notices
none of this: its agent asks the kernel who listens, and no held worker has begun.
"""

import asyncio
import contextlib
from collections.abc import Callable

from ...adapters.contract import Meeting
from ...rendezvous import membership
from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.errors import StoreError
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.keys import Keys
from ...rendezvous.ranks import Assignment
from ...rendezvous.store.contract import Store
from ..inbox import Inbox
from ..zygotes.zygote import AT_ONCE, Begin

LOOK_SECONDS = 0.003
"""Between two looks whether rank 0 listens: each takes 0.1 ms."""

TOLD_SECONDS = 1.0
"""How long anybody tries to tell, or to hear, of it: a start waits for neither."""


def begin(meeting: Meeting | None, assignment: Assignment, rank: int) -> Begin:
    """When the worker with this rank begins (pure)."""
    if meeting is None or rank == 0:
        return AT_ONCE
    if assignment.group_rank == 0:
        return Begin(meeting.module, later=meeting.later)
    return Begin(meeting.module, held=meeting.held)


@dataclass(eq=False, repr=False)
class HeadStart:
    """What one agent does for it, in one round after the other.

    Args:
        meeting: as the adapter says; None where no worker is held.
        store, keys: where the job is.
        inbox: what the agent knows.
        listens: whether somebody listens at that port of this machine.
        let_go: has the held workers begin.
    """

    _meeting: Meeting | None
    _store: Store
    _keys: Keys
    _inbox: Inbox
    _listens: Callable[[int], bool]
    _let_go: Callable[[], None]

    def __post_init__(self) -> None:
        self._started = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self, assignment: Assignment, rank: int) -> Begin:
        """See the function."""
        return begin(self._meeting, assignment, rank)

    async def expect(self, header: Header, assignment: Assignment) -> None:
        """This node's workers of that round are about to be started."""
        await self.close()
        self._started = asyncio.Event()
        if self._meeting is None or assignment.group_size == 1:
            return
        first = assignment.group_rank == 0
        work = self._tell(header) if first else self._hear(header, self._inbox.state.known.revision)
        self._task = asyncio.create_task(work, name="rank 0 first")

    def started(self) -> None:
        """They were started."""
        self._started.set()

    async def close(self) -> None:
        """No worker is waited for any more."""
        task, self._task = self._task, None
        await cancel(*([task] if task else []))

    async def _tell(self, header: Header) -> None:
        await self._started.wait()
        registration = self._inbox.state.key.registration
        lease = registration.lease if registration else 0
        with contextlib.suppress(TimeoutError, StoreError, OSError):  # then they begin by themselves
            async with asyncio.timeout(TOLD_SECONDS):
                while not self._listens(header.master_port):  # noqa: ASYNC110 - the kernel sends no word of it
                    await asyncio.sleep(LOOK_SECONDS)
                await membership.tell_of_listening(self._store, self._keys, header, lease)

    async def _hear(self, header: Header, revision: int) -> None:
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(TOLD_SECONDS):
                await membership.hear_of_listening(self._store, self._keys, header, revision)
        await self._started.wait()
        self._let_go()
