"""How far each worker is, and which may go on while others are slower (pure): the clock of stale synchronous parallel.

A worker's *clock* is the number of its pushes that all servers have acknowledged. With a bound of k it begins a step at
clock c only when the *lowest* clock is c - k or more. So the rows that it pulls lack no push of another worker that is
older than k steps. Source: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", 2013.

The lowest clock is that of the workers that are *present*, and it never falls:

  - A worker is present while its process belongs to the job's round, it has records to train on, and it is not silent.
  - Whoever becomes present begins at the lowest clock at least. Where nobody is present, that stays what it was.
  - A worker is *silent* that has said nothing for SILENT_SECONDS, or for SLOWER times the longest step that was seen.

So no wait is for ever: whoever has the lowest clock never waits, and counts a push, or is not present any more.

Nothing of this is stored. An agent tells each master all that its workers have said, and the highest lowest clock that
they were told. A new master takes over from an earlier one, of whose workers it knows nothing: the lowest clock that it
has is not *known* to be the lowest, it is not raised and no worker becomes present, before all nodes that were there
have spoken, or AWAITED_SECONDS are over.

Invariants: the lowest clock never falls, and is never above the clock of a worker that is present; no worker's clock
exceeds the lowest by more than its bound and one.
"""

from collections.abc import Callable, Collection, Mapping

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Number
from .ledger import named

SILENT_SECONDS = 60.0
"""Without a word after which a worker holds nobody back."""

SLOWER = 4.0
"""Times the longest step that was seen: the same, where that is more."""

AWAITED_SECONDS = 10.0
"""For the agents of an earlier master's round to speak to the next master; they do so each second."""


@dataclass(frozen=True, slots=True)
class WorkerClock:
    """What one worker says of itself.

    Attributes:
        rank, round: which worker, and the round for which it was started; no two processes have both.
        count: of what it has said, ascending.
        clock: see above.
        works: it has records to train on. False: it waits for some, or there are no more.
    """

    rank: Number
    round: Number
    count: Number
    clock: Number
    works: bool = True


@dataclass(frozen=True, slots=True)
class NodeClocks:
    """What a worker asks its agent with its own clock alone, and the agent the master with those of all its workers.

    Attributes:
        clocks: the last words of each.
        lowest: the highest lowest clock that they were told.
        wants: the answer may wait for a while until the lowest clock is that.
    """

    clocks: tuple[WorkerClock, ...]
    lowest: Number = 0
    wants: Number = 0


@dataclass(frozen=True, slots=True)
class LowestClock:
    """The answer.

    Attributes:
        lowest: the lowest clock.
        why: what it waits for, in words, where it is lower than was wanted.
        known: see above.
    """

    lowest: Number
    why: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class SeenClock:
    """The last words of a worker, from which incarnation of its node, and when."""

    said: WorkerClock
    incarnation: str
    at: float


class WorkerClocks:
    """Of one job, under one master.

    Args:
        awaited: incarnations of nodes that an earlier master had in its round.
        now: the caller's clock, seconds.

    Attributes:
        lowest: the lowest clock.
        silent: ranks that hold nobody back, because they say nothing.
    """

    def __init__(self, awaited: Collection[str], now: float) -> None:
        self.lowest = 0
        self.silent: frozenset[int] = frozenset()
        self._awaited = set(awaited)
        self._awaited_until = now + AWAITED_SECONDS
        self._seen: dict[int, SeenClock] = {}  # by rank
        self._holding: set[int] = set()  # ranks with the lowest clock, when it was worked out
        self._longest = 0.0  # seconds of a step

    def hear_node(self, incarnation: str, node: NodeClocks, now: float) -> bool:
        """Takes in what an agent tells; whether the lowest clock may have risen, which `raise_lowest` says."""
        may_rise = node.lowest > self.lowest or incarnation in self._awaited
        self.lowest = max(self.lowest, node.lowest)
        self._awaited.discard(incarnation)
        for said in node.clocks:
            before = self._seen.get(said.rank)
            if before and (said.round, said.count) <= (before.said.round, before.said.count):
                continue
            if (
                before
                and before.said.works
                and said.clock == before.said.clock + 1
                and not self._is_silent(before, now)
            ):
                self._longest = max(self._longest, now - before.at)
            self._seen[said.rank] = SeenClock(said, incarnation, now)
            self._holding.discard(said.rank)
        return may_rise or not self._holding

    def raise_lowest(
        self, ranks: Mapping[str, range], since: Callable[[str], int], ended: Collection[int], now: float
    ) -> int:
        """The lowest clock, as it is now.

        Args:
            ranks: by incarnation, of the nodes that train.
            since: for which round the workers of an incarnation were started at the earliest.
            ended: the ranks whose processes have ended in order.
        """
        self._seen = {
            rank: seen
            for rank, seen in self._seen.items()
            if rank in ranks.get(seen.incarnation, ()) and seen.said.round >= since(seen.incarnation)
        }
        self._awaited &= ranks.keys()
        works = {rank: seen for rank, seen in self._seen.items() if seen.said.works and rank not in ended}
        self.silent = frozenset(rank for rank, seen in works.items() if self._is_silent(seen, now))
        present = {rank: seen.said.clock for rank, seen in works.items() if rank not in self.silent}
        if present and self.is_known(now):
            self.lowest = max(self.lowest, min(present.values()))
        self._holding = {rank for rank, clock in present.items() if clock <= self.lowest}
        return self.lowest

    def explain(self, wants: int, now: float) -> str:
        """Why the lowest clock is not `wants` yet, in words."""
        if not self.is_known(now):
            return f"{len(self._awaited)} nodes have not told the job's new master yet how far their workers are"
        ranks = sorted(self._holding)
        have = "has" if len(ranks) == 1 else "have"
        return (
            f"{named(ranks)} {have} made {self.lowest} pushes, and within max_staleness this worker goes on when all "
            f"have made {wants}"
        )

    def is_known(self, now: float) -> bool:
        """Whether the lowest clock is: see above."""
        return not self._awaited or now >= self._awaited_until

    def _is_silent(self, seen: SeenClock, now: float) -> bool:
        return now >= seen.at + max(SILENT_SECONDS, SLOWER * self._longest)
