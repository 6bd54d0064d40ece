"""The workers' clocks under one leadership: hears agents, and answers when what they want is so, or with the reason."""

import asyncio
from collections.abc import Callable

from ...rendezvous.rpc.envelope import Caller
from .current_round import Current
from .ledger import named
from .worker_clocks import LowestClock, NodeClocks, WorkerClocks

ANSWER_SECONDS = 1.0
"""After which an agent is told why the lowest clock is not what it wants. It asks again."""


class ClockService:
    """Answers while a master leads.

    Args:
        current: the round that the job is in, None where this master does not know yet.
        ended: the ranks of that round whose workers have ended with exit code 0.
        adopted: the number of the round that an earlier master has left; 0: none has.
        say: prints one line for a person.
        now: the clock, seconds.
    """

    def __init__(
        self,
        current: Callable[[], Current | None],
        ended: Callable[[], frozenset[int]],
        adopted: int,
        *,
        say: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self._current = current
        self._ended = ended
        self._say = say
        self._now = now
        found = current()
        before = [each for each in found.ranks if found.earliest(each) <= adopted] if found else []
        self._clocks = WorkerClocks(before, now())
        self._woken = False, 0  # of what those who wait have heard: whether the lowest clock is known, and which it is
        self._silent: frozenset[int] = frozenset()
        self._waiting: set[asyncio.Future[None]] = set()

    async def answer(self, node: NodeClocks, caller: Caller) -> LowestClock:
        """The lowest clock, once it is what is wanted, or after ANSWER_SECONDS."""
        until = self._now() + ANSWER_SECONDS
        if self._clocks.hear_node(caller.incarnation, node, self._now()):
            self.look_again()
        while not (known := self._clocks.is_known(self._now())) or self._clocks.lowest < node.wants:
            if (left := until - self._now()) <= 0:
                return LowestClock(self._clocks.lowest, self._clocks.explain(node.wants, self._now()), known)
            await self._wait(left)
        return LowestClock(self._clocks.lowest)

    def look_again(self) -> None:
        """The round, or who has ended in it, may be others: works the lowest clock out anew."""
        current = self._current()
        if current is None or not current.running:
            return
        lowest = self._clocks.raise_lowest(current.ranks, current.earliest, self._ended(), self._now())
        known = self._clocks.is_known(self._now())
        if (known, lowest) > self._woken:
            self._woken = known, lowest
            for each in self._waiting:
                if not each.done():
                    each.set_result(None)
        if more := self._clocks.silent - self._silent:
            ranks = sorted(more)
            self._say(
                f"{named(ranks)} {'has' if len(ranks) == 1 else 'have'} made no step for a long time: max_staleness "
                "has nobody wait for that any more, until another push"
            )
        self._silent = self._clocks.silent

    async def _wait(self, seconds: float) -> None:
        """Until the lowest clock has risen, or so long; then time itself may have changed who is present."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            self._waiting.discard(waiter)
        if not waiter.done():
            self.look_again()
