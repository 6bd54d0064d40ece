"""Leadership: one agent at a time runs the master, and every write of the master is fenced.

The leader is who created the key `leader`; its create revision is the fencing token. A lock in etcd alone is not
safe, because its holder can be stopped and go on after its lease has ended: so the master's writes all compare the
key's create revision, and those of a deposed master change nothing.
"""

from .base.errors import MaybeApplied
from .base.frozen import dataclass
from .header import Eviction, Header, Leader
from .keys import Keys
from .membership import incarnation_of
from .node_reasons import NodeReason
from .store.contract import Compare, Delete, KeyValue, Operation, Put, Store
from .wire.values import decode_or_none, encode

DEPOSE_PAUSE = 30.0
"""Seconds: one agent deposes at most once in this time. Proxies and firewalls refuse connections too, and a master
must not be deposed again and again by one agent that cannot reach it; its lease still bounds a real loss."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """The right to write as the master: the leader key and the revision that created it."""

    key: str
    revision: int

    @property
    def fence(self) -> Compare:
        """Holds only while this leadership does."""
        return Compare(self.key, self.revision)

    def over(self, leader: KeyValue | None) -> str:
        """Why it does not hold any more, in words, where that is the leader key; empty where it does."""
        if leader is None:
            return "its lease expired, or another node declared it dead"
        return "" if leader.create_revision == self.revision else "another master leads"


@dataclass(frozen=True, slots=True)
class Held:
    """Another leads: its key, and the store's revision at which that was seen (to watch from)."""

    key: KeyValue
    revision: int


@dataclass(frozen=True, slots=True)
class Succeeded:
    """Nobody leads, and the job has succeeded within the last minute: with this header; None: it does not say which."""

    end: Header | None


async def campaign(
    store: Store, keys: Keys, me: Leader, lease: int, *, after_success: int | None = None
) -> Leadership | Held | Succeeded:
    """Tries to become the leader: the leadership, or who holds it. Raises StoreError, LeaseLost.

    Args:
        after_success: also where nobody leads because the job has just succeeded, as long as this is the revision that
            wrote its header (0: it is removed): who was slow would lead a job over the empty store.
    """
    over = Compare(keys.outcome, 0) if after_success is None else Compare(keys.round, after_success, "mod")
    compares = [Compare(keys.leader, 0), over]
    try:
        result = await store.txn(compares, [Put(keys.leader, encode(me), lease)])
    except MaybeApplied:
        listing = await store.list(keys.leader)
        if not listing.items:
            raise
        held, revision = listing.items[0], listing.revision
    else:
        if result.succeeded:
            return Leadership(keys.leader, result.revision)
        held, *marks = result.current
        if held is None:
            (tombstone,) = marks
            if after_success is not None:
                return Succeeded(None)
            assert tombstone is not None, "a compare failed, so one of the two keys exists"
            return Succeeded(decode_or_none(Header, tombstone.value))
        revision = result.revision
    if decode_or_none(Leader, held.value) == me:
        return Leadership(keys.leader, held.create_revision)
    return Held(held, revision)


async def depose(store: Store, keys: Keys, held: KeyValue, leader: Leader, why: NodeReason, lease: int) -> bool:
    """Removes a leader that is known to be dead, and with it the dead agent's own registration.

    Both deletions compare create revisions: a new leader, or a new life of the node, is never touched. A mark says that
    the node was evicted, because the evidence may be wrong: who lives must not take up that registration again.

    Args:
        why: the evidence.
        lease: of the node that deposes; the mark goes with it.

    Returns False where it was no longer the leader. Raises MaybeApplied where it may have been this very call that
    removed it; StoreError, LeaseLost.
    """
    compares = [Compare(keys.leader, held.create_revision)]
    operations: list[Operation] = [Delete(keys.leader)]
    node = await store.get(keys.node(leader.node))
    if node is not None and incarnation_of(node.value) == leader.incarnation:
        compares.append(Compare(node.key, node.create_revision))
        operations += [Delete(node.key), Put(keys.eviction(leader.incarnation), encode(Eviction(why)), lease)]
    return (await store.txn(compares, operations)).succeeded


async def resign(store: Store, leadership: Leadership) -> None:
    """Gives the leadership up, so that another agent takes over at once. Raises StoreUnavailable."""
    await store.txn([leadership.fence], [Delete(leadership.key)], idempotent=True)
