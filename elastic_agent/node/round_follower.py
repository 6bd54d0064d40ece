"""Follows the job's rounds in the store: the header, and what it gives this node. `known_round.take` judges it."""

import asyncio
import contextlib
from collections.abc import Callable

from ...rendezvous import membership
from ...rendezvous.base.errors import StoreUnavailable, Unreadable
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.keys import Keys
from ...rendezvous.member import Member
from ...rendezvous.peers import NodePeers
from ...rendezvous.ranks import Assignment
from ...rendezvous.store.contract import KeyValue, Store
from ...rendezvous.store.waits import Waits
from ..agent_trace import Recorder
from ..candidate import REFUSED_PAUSE
from ..inbox import Inbox
from ..logs.output import Output
from ..machine.node_events import OthersKeep, RoundRead
from ..say_once import SayOnce

NEWS = "reading the state of the job"
"""What may wait for the store."""

LOOK_INSIDE_SECONDS = (0.25, 30.0)
"""Between two looks of a node that is in no round at those that are: at first, and in the end."""


@dataclass(eq=False, repr=False)
class RoundFollower:
    """Keeps what the agent knows of the job's round equal to what the store says.

    Args:
        store, keys: where the job is.
        inbox: what the agent knows.
        reporter: where lines for a person go.
        waits: what waits for the store on this node.
        trace: where headers are recorded.
        alive: how many workers this node has.
    """

    _store: Store
    _keys: Keys
    _inbox: Inbox
    _reporter: Output
    _waits: Waits
    _trace: Recorder
    _alive: Callable[[], int]

    def __post_init__(self) -> None:
        self._say_once = SayOnce(self._reporter.say)

    async def watch(self, registered: asyncio.Event) -> None:
        """Takes every header, once it is known which run's end is not this one's: when this node is registered."""
        await registered.wait()
        await self._waits.follow_key(NEWS, self._store, self._keys.round, self._take_value)

    async def look_again(self, within: float) -> None:
        """Reads the header once more; raises StoreUnavailable where the store is silent for `within` seconds."""

        async def look() -> None:
            found = await membership.read_header(self._store, self._keys)
            if found:
                await self.take(*found)

        try:
            await self._waits.until_answered("this node's assignment", look, within=within)
        except Unreadable as error:
            self._say_once("unreadable", f"ignored: {error}")

    async def confirm(self, header: Header) -> bool:
        """Whether the store still has this header, just before something is done on account of it."""
        try:
            fresh = await membership.read_header(self._store, self._keys)
        except StoreUnavailable as error:
            self._say_once("store", f"cannot start round {header.number} yet: {error}")
            return False
        except Unreadable as error:
            self._say_once("unreadable", f"cannot start round {header.number} yet: {error}")
            await asyncio.sleep(REFUSED_PAUSE)
            return False
        if fresh is None or fresh[0] != header:
            if fresh:
                await self.take(*fresh)  # superseded while this node was getting ready
            return False
        return True

    async def peers(self, header: Header, each: int) -> tuple[NodePeers, ...] | None:
        """Where the workers of `header`'s round are; None where the store does not say so, or not any more."""
        try:
            return await membership.read_peers(self._store, self._keys, header, each)
        except StoreUnavailable as error:
            self._say_once("store", f"cannot start round {header.number} yet: {error}")
            return None
        except Unreadable as error:
            # Of a round that has been superseded nothing is left; only where it has not does somebody have to know.
            if await self.confirm(header):
                self._say_once("unreadable", f"cannot start round {header.number} yet: {error}")
                await asyncio.sleep(REFUSED_PAUSE)
            return None

    async def look_inside(self, address: str) -> None:
        """A node that has no part in the round finds out whether the workers of those that have keep their process.

        Args:
            address: where this node's workers can ask for a rank; without it they cannot get ready for one.
        """
        seen, pause = 0, LOOK_INSIDE_SECONDS[0]
        while address:
            heard = self._inbox.count
            known, header = self._inbox.state.known, self._inbox.state.known.header
            apart = header is not None and header.state == "open" and not known.assignment
            if not apart or known.others_keep or not self._inbox.state.key.registration:
                await self._inbox.news(heard)
                continue
            assert header is not None
            if header.number != seen:
                seen, pause = header.number, LOOK_INSIDE_SECONDS[0]
            with contextlib.suppress(StoreUnavailable):
                if await membership.round_keeps(self._store, self._keys, header):
                    self._inbox.post(OthersKeep())
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_INSIDE_SECONDS[1])

    async def take(self, header: Header, revision: int) -> None:
        """Makes `header` known together with this node's assignment in it, and wakes the loop."""
        while True:
            member = self._member()
            assignment = None
            if member and header.state == "open":
                assignment = await self._assignment(header, member)
            now = self._member()
            if (now and now.incarnation) != (member and member.incarnation):
                continue  # this node has been born again meanwhile, and what was read is the dead one's
            if assignment or header.final or not self._alive():
                break
            # Before workers are ended on account of it: the news may be late, and this node is in the round after it.
            newest = None
            with contextlib.suppress(StoreUnavailable, Unreadable):
                newest = await membership.read_header(self._store, self._keys)
            if newest is None or newest[1] <= revision:
                break
            header, revision = newest
        before = self._inbox.state
        after = self._inbox.post(RoundRead(header, revision, assignment))
        if after is not before and before.known.revision != revision:
            self._trace.header(header, mine=assignment is not None)

    def _member(self) -> Member | None:
        registration = self._inbox.state.key.registration
        return registration.member if registration else None

    async def _take_value(self, found: KeyValue | None) -> bool:
        try:
            if found:
                await self.take(membership.header_of(found), found.mod_revision)
        except Unreadable as error:
            self._say_once("unreadable", f"ignored: {error}")
        return False

    async def _assignment(self, header: Header, member: Member) -> Assignment | None:
        """What `header`'s round gives this node; None where nothing, or nothing that can be meant, which is said."""
        try:
            return await membership.read_assignment(self._store, self._keys, header, member)
        except Unreadable as error:
            self._say_once("unreadable", f"this node takes no part in round {header.number}: {error}")
            return None
