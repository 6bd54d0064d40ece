"""The master's writes: each compares the leader key's create revision, so a deposed master changes nothing.

Each is repeated when its answer is lost, and an earlier attempt may still lie in a member of the store that stands
still: it may be applied at any later time, while this very master leads. So each write also compares something that
the master's later writes change: the header's mod revision, or the create revision of the key that it deletes.

A round is published in two steps: its assignments, in batches that fit a transaction, under a prefix that nobody
knows yet; then the header that names the prefix, which makes the round the current one, and compares the header before
it.
"""

import itertools
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..rendezvous.base.errors import Deposed
from ..rendezvous.election import Leadership
from ..rendezvous.header import Eviction, Header
from ..rendezvous.keys import Keys
from ..rendezvous.membership import OUTCOME_TTL, incarnation_of
from ..rendezvous.node_reasons import RunEnded
from ..rendezvous.peers import Peers
from ..rendezvous.ranks import Assignment
from ..rendezvous.store.contract import Compare, Delete, KeyValue, Operation, Put, Store, TxnResult
from ..rendezvous.time_split import SplitUntil
from ..rendezvous.wire.values import encode
from .machine.targets import Targets

BATCH = 100
"""Assignments in one transaction; etcd takes 128 operations."""

WORDS, WORDS_AT_ONCE = 100, 16
"""Evictions whose words are kept, and how many older words one eviction removes."""

WITHDRAWN = 100
"""Withdrawn rounds since the last header whose assignments are removed again with the next: as many as fit."""

ANOTHER_HEADER = "another master wrote the job's header"


@dataclass(slots=True)
class Publisher:
    """Writes for one leadership.

    Attributes:
        header_revision: the mod revision of the header that the next one must replace; 0 where there is none.
        token: random; the same leadership may publish again after a write whose answer was lost, and what is still
            on its way then must not mix with the new round.
        words: incarnations for which words of their eviction may be in the store, the oldest first; the keys of a
            dictionary. They last as long as the lease, so this agent's next leadership continues with them.
    """

    store: Store
    keys: Keys
    leadership: Leadership
    lease: int
    header_revision: int
    token: str = field(default_factory=lambda: secrets.token_hex(3))
    words: dict[str, None] = field(default_factory=dict[str, None])
    _withdrawn: deque[str] = field(default_factory=lambda: deque[str](maxlen=WITHDRAWN), init=False, repr=False)

    def prefix(self, number: int) -> str:
        """Where the assignments of round `number` go: nobody else writes there."""
        return f"{self.leadership.revision}.{number}.{self.token}"

    async def open(
        self,
        header: Header,
        assignments: Sequence[Assignment],
        previous_prefix: str,
        wanted: Callable[[], bool],
        peers: Sequence[Peers] = (),
    ) -> bool:
        """Makes `header`'s round the current one; False: it was not `wanted` any more when only the header was missing.

        Raises Deposed, StoreError (then nothing was published, or the header was; the next master reads which).
        """
        for start in range(0, len(assignments), BATCH):
            puts = [
                Put(self.keys.assignment(header.prefix, assignment.node), encode(assignment))
                for assignment in assignments[start : start + BATCH]
            ]
            await self._fenced(puts)
        for number, some in enumerate(peers):
            await self._fenced([Put(self.keys.peers(header.prefix, number), encode(some))])
        if not wanted():
            await self._fenced([Delete(f"{self.keys.assignments}{header.prefix}/", prefix=True)])
            self._withdrawn.append(header.prefix)
            self.token = secrets.token_hex(3)
            return False
        await self.put_header(header, drop=previous_prefix)
        return True

    async def put_header(self, header: Header, drop: str = "") -> None:
        """Replaces the header; with `drop`, the assignments under that older prefix go in the same transaction.

        Assignments of withdrawn rounds are removed again, for late attempts to write them may have come since; from
        here on such an attempt fails.

        A success leaves its tombstone in the same transaction: from the verdict on nobody starts the job again.
        """
        value = encode(header)
        operations: list[Operation] = [Put(self.keys.round, value)]
        if drop and drop != header.prefix:
            operations.append(Delete(f"{self.keys.assignments}{drop}/", prefix=True))
        operations += [Delete(f"{self.keys.assignments}{prefix}/", prefix=True) for prefix in self._withdrawn]
        if header.state == "open":
            operations.append(Delete(self.keys.successes, prefix=True))
        if header.state == "succeeded":
            tombstone = await self.store.grant(OUTCOME_TTL)
            operations.append(Put(self.keys.outcome, value, tombstone))
        result = await self._txn([self._header_unchanged], operations)
        if result.succeeded:
            self.header_revision = result.revision
        else:
            leader, current = result.current
            if self.leadership.over(leader) or current is None or current.value != value:
                raise self._deposed(leader)
            self.header_revision = current.mod_revision  # an earlier attempt was applied and its answer lost
        self._withdrawn.clear()

    async def keep_time(self, prefix: str, spent: SplitUntil) -> None:
        """Writes it beside the assignments of the current round, with which it goes. A late attempt changes nothing."""
        await self._write_over(self.keys.time(prefix), encode(spent), self._header_unchanged)

    async def put_targets(self, targets: Targets) -> None:
        """Has the job's key say that, unless an earlier leader has written the same."""
        while not await self._write_over(self.keys.targets, encode(targets)):
            pass  # an attempt whose answer was lost, or a hand, was faster

    async def _write_over(self, key: str, value: bytes, *compares: Compare) -> bool:
        """Whether the key holds it now; a late attempt changes nothing."""
        found = await self.store.get(key)
        if found and found.value == value:
            return True
        before = Compare(key, found.mod_revision if found else 0, "mod")
        result = await self._txn([before, *compares], [Put(key, value)])
        if not result.succeeded and (why := self.leadership.over(result.current[0])):
            raise Deposed(why)
        return result.succeeded

    async def confirm(self) -> None:
        """Raises Deposed where this leadership is over."""
        await self._fenced(())

    async def evict(self, key: str, create_revision: int, incarnation: str, eviction: Eviction) -> int:
        """Deletes a member and leaves word for it; only the word, where it is not there any more.

        Its lease may have ended, and it may have registered again since, so that its key has another create revision
        than the one given: when this returns, the key is not that incarnation's, and will not be again. Old words are
        removed, for nobody reads that of a process that is dead. Returns the store's revision after it.
        """
        old = list(itertools.islice(self.words, max(0, min(len(self.words) - WORDS + 1, WORDS_AT_ONCE))))
        words: list[Operation] = [Put(self.keys.eviction(incarnation), encode(eviction), self.lease)]
        words += [Delete(self.keys.eviction(each)) for each in old]
        there = True
        while True:
            result = await self._txn([Compare(key, create_revision)], [Delete(key), *words] if there else words)
            self.words[incarnation] = None  # also where it failed: an earlier attempt may have been applied
            if result.succeeded:
                break
            leader, held = result.current
            if why := self.leadership.over(leader):
                raise Deposed(why)
            there = held is not None and incarnation_of(held.value) == incarnation
            create_revision = held.create_revision if held else 0
        for each in old:
            self.words.pop(each, None)
        return result.revision

    async def abandon(self, nodes: Sequence[tuple[str, str]]) -> bool:
        """Leaves word that a run has ended without these (node, incarnation), whose keys are gone.

        So that none of them takes up its registration in that run again. False: one of them has, and the run continues;
        from its next header on a late attempt fails.
        """
        word = encode(Eviction(RunEnded()))
        for start in range(0, len(nodes), BATCH // 2):
            some = nodes[start : start + BATCH // 2]
            result = await self._txn(
                [self._header_unchanged, *(Compare(self.keys.node(node), 0) for node, _ in some)],
                [Put(self.keys.eviction(incarnation), word, self.lease) for _, incarnation in some],
            )
            if not result.succeeded:
                leader, header, *_ = result.current
                if self.leadership.over(leader) or (header.mod_revision if header else 0) != self.header_revision:
                    raise self._deposed(leader)
                return False
        return True

    async def clean_up(self, *, succeeded: bool) -> None:
        """The job is over and every node has gone: removes its keys, but for the tombstone of a success.

        A job that has not succeeded leaves its queues, and continues with them when it is started again. Rows of its
        tables go with their servers.
        """
        await self._fenced(
            [
                Delete(self.keys.assignments, prefix=True),
                Delete(self.keys.evictions, prefix=True),
                Delete(self.keys.successes, prefix=True),
                Delete(self.keys.targets),
                *self._data(queues=succeeded),
                Delete(self.keys.servers, prefix=True),
                Delete(self.keys.round),
                Delete(self.leadership.key),
            ]
        )

    async def drop_data(self, *, queues: bool) -> None:
        """Removes what an earlier run of the job, after which nobody has cleaned up, says of its datasets and tables.

        Nobody leases anything before this master's first header is published, and from then on a late attempt fails.
        Before that it removes a table of slots that nobody has used yet, which is then written anew.
        """
        await self._fenced(self._data(queues=queues))

    def _data(self, *, queues: bool) -> list[Operation]:
        held: list[Operation] = [Delete(self.keys.ledgers, prefix=True), Delete(self.keys.slots)]
        return [*held, Delete(self.keys.queues, prefix=True)] if queues else held

    async def drop_abandoned(self, keep: str) -> None:
        """Removes assignments that the current header does not name: an earlier master died before its header."""
        listing = await self.store.list(self.keys.assignments, keys_only=True)
        prefixes = {item.key.removeprefix(self.keys.assignments).split("/")[0] for item in listing.items}
        for prefix in sorted(prefixes - {keep}):
            await self._fenced([Delete(f"{self.keys.assignments}{prefix}/", prefix=True)])

    async def _fenced(self, operations: Sequence[Operation]) -> None:
        result = await self._txn([self._header_unchanged], operations)
        if not result.succeeded:
            raise self._deposed(result.current[0])

    def _deposed(self, leader: KeyValue | None) -> Deposed:
        """Why a write was refused: by the `leader` key that the store holds, or else by the header."""
        return Deposed(self.leadership.over(leader) or ANOTHER_HEADER)

    @property
    def _header_unchanged(self) -> Compare:
        return Compare(self.keys.round, self.header_revision, "mod")

    async def _txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        return await self.store.txn([self.leadership.fence, *compares], operations, idempotent=True)
