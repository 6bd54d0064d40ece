"""A node's own place in the job: it registers under a lease, reports, and reads what concerns it.

Only the node writes its key, always comparing the create revision it registered with. So a key that the master
deleted (an eviction) cannot come back by a late report. A node that finds its key gone without a word of the master
takes up its registration again where the job has not gone on without it (`resume`); else it is out.
"""

import contextlib
import dataclasses
from collections.abc import Collection
from typing import Literal, TypeVar

from . import peers
from .base.errors import AlreadyOver, MaybeApplied, Refused, Sealed, StoreUnavailable, Unreadable
from .base.frozen import dataclass
from .header import Eviction, Header
from .identity.secret import OTHER_SECRET
from .keys import Keys
from .member import Member, Report
from .peers import NodePeers
from .ranks import Assignment
from .store.contract import Compare, Delete, KeyValue, Put, Store
from .store.seal import unreadable
from .wire.values import Malformed, decode, decode_or_none, encode

T = TypeVar("T")

OUTCOME_TTL = 60
"""Seconds for which a job id that has just succeeded is refused."""

_MAX_NAMESAKES = 1000


async def read_member(store: Store, keys: Keys, node: str) -> Member:
    """What a node says of itself. Raises StoreUnavailable, and ConnectionError where that cannot be known."""
    found = await store.get(keys.node(node))
    if found is None:
        raise ConnectionError(f"node {node} is not registered")
    try:
        return decode(Member, found.value)
    except Malformed as error:
        raise ConnectionError(f"node {node} has registered as another version does: {error}") from None


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered node: its member value as last written, its key's create revision, and that of the last write."""

    member: Member
    key: str
    revision: int
    lease: int
    written: int


async def refuse_if_over(
    store: Store, keys: Keys, own_run: str | None = None, known: Collection[str] = ()
) -> Header | None:
    """Raises Refused where this job id has succeeded within the last minute.

    Returns the end where the node was in the job before, and missed it: it is done, too. Another run may have taken
    the place of its own meanwhile, where all others of that were lost.

    Args:
        known: runs whose success was known before this node was started: it comes to run the job again, so the id is
            free for every node from here on.
        own_run: the run that the node was in; "" where it was registered and heard of none; None where the node has
            just come.
    """
    tombstone = await store.get(keys.outcome)
    if tombstone is None:
        return None
    with contextlib.suppress(Malformed):
        end = decode(Header, tombstone.value)
        if own_run is not None:
            return end
        if end.run in known:
            await store.txn([Compare(keys.outcome, tombstone.create_revision)], [Delete(keys.outcome)], idempotent=True)
            return None
    raise _over(keys)


def _over(keys: Keys) -> AlreadyOver:
    return AlreadyOver(
        f"job {keys.job!r} has just succeeded; its id is refused for {OUTCOME_TTL} s, so that a late node does not "
        f"start it again. To run it again now, choose another id: --rdzv-id={keys.job}-2"
    )


async def register(store: Store, keys: Keys, member: Member, lease: int) -> Registration:
    """Registers `member` under `lease`; where another incarnation has its name, under name-2, name-3, ...

    Raises StoreError, and LeaseLost where the lease ended meanwhile.
    """
    base = member.node
    for number in range(1, _MAX_NAMESAKES):
        name = base if number == 1 else f"{base}-{number}"
        named = dataclasses.replace(member, node=name)
        key = keys.node(name)
        try:
            result = await store.txn([Compare(key, 0), Compare(keys.outcome, 0)], [Put(key, encode(named), lease)])
        except MaybeApplied:
            held = await store.get(key)
            if held is None or incarnation_of(held.value) != member.incarnation:
                raise
            return Registration(named, key, held.create_revision, lease, held.mod_revision)
        if result.succeeded:
            return Registration(named, key, result.revision, lease, result.revision)
        held, tombstone = result.current
        if tombstone is not None:
            raise _over(keys)
        if held is not None and incarnation_of(held.value) == member.incarnation:
            return Registration(named, key, held.create_revision, lease, held.mod_revision)
    raise Refused(f"{_MAX_NAMESAKES} nodes are called {base!r} already: give this one a name with --node-name")


async def resume(
    store: Store, keys: Keys, registration: Registration, lease: int, header_revision: int
) -> Registration | Literal["out", "moved"]:
    """Registers the same incarnation again, under `lease`, after its own lease has ended.

    A lease also ends where the store was away for too long, and then nothing has happened to the node. What tells that
    from an eviction is the header: while it is the one that the node knows, nobody has opened a round without it. Both
    are compared in the transaction that writes the key, so a node that was replaced or evicted never comes back so. A
    node that knows no header has nothing to compare: a run may have come and gone since. Nor has it anything to lose.

    Args:
        registration: the one whose lease has ended.
        header_revision: the mod revision of the header that the node knows; 0 where there was none.

    Returns:
        The new registration; "moved" where the job has another header by now, or the node knew none, so that it has
        to read that first; "out" where it was evicted, or another node has its name.

    Raises StoreError, and LeaseLost where `lease` has ended.
    """
    if not header_revision:
        return "moved"
    key, member = registration.key, registration.member
    compares = [
        Compare(key, 0),
        Compare(keys.eviction(member.incarnation), 0),
        Compare(keys.round, header_revision, "mod"),
    ]
    result = await store.txn(compares, [Put(key, encode(member), lease)], idempotent=True)
    if result.succeeded:
        return Registration(member, key, result.revision, lease, result.revision)
    held, word, _ = result.current
    if held is not None and incarnation_of(held.value) == member.incarnation:
        if held.lease == lease:  # by an attempt whose answer was lost
            return Registration(member, key, held.create_revision, lease, held.mod_revision)
        raise StoreUnavailable("this node's old key is still there, and expires with its lease")
    return "moved" if held is None and word is None else "out"


async def report(
    store: Store,
    keys: Keys,
    registration: Registration,
    what: Report,
    ports: tuple[int, ...],
    worker_ports: tuple[int, ...] = (),
) -> Registration | None:
    """Writes the node's report and its ports. None: it is no longer registered (evicted, or its lease ended).

    A success is also written where the node's lease does not reach, so that it counts when the node has gone. An
    attempt of an earlier report may still lie in a member of the store that stands still: each replaces just the one
    before it, so that none is ever undone.
    """
    member = dataclasses.replace(registration.member, report=what, ports=ports, worker_ports=worker_ports)
    value = encode(member)
    operations = [Put(registration.key, value, registration.lease)]
    if what.state == "succeeded":
        operations.append(Put(keys.success(member.incarnation), value))
    born, written = Compare(registration.key, registration.revision), registration.written
    while True:
        last = Compare(registration.key, written, "mod")
        result = await store.txn([born, last], operations, idempotent=True)
        if result.succeeded:
            return dataclasses.replace(registration, member=member, written=result.revision)
        held = result.current[0]
        if held is None or held.create_revision != registration.revision:
            return None
        if held.value == value:  # by an attempt whose answer was lost
            return dataclasses.replace(registration, member=member, written=held.mod_revision)
        written = held.mod_revision


async def deregister(store: Store, registration: Registration) -> None:
    """Takes the node out of the job. Raises StoreUnavailable; then the lease does it."""
    await store.txn([Compare(registration.key, registration.revision)], [Delete(registration.key)], idempotent=True)


async def read_header(store: Store, keys: Keys) -> tuple[Header, int] | None:
    """The current round's header and the revision that wrote it, or None before the first."""
    found = await store.get(keys.round)
    return (header_of(found), found.mod_revision) if found else None


def header_of(found: KeyValue) -> Header:
    """The header that the key holds. Raises Unreadable."""
    return _decoded(Header, found)


async def read_assignment(store: Store, keys: Keys, header: Header, member: Member) -> Assignment | None:
    """What `header`'s round gives to `member`, or None where it has no part in it.

    Raises Unreadable, also for an assignment that does not fit the node.
    """
    found = await store.get(keys.assignment(header.prefix, member.node))
    if found is None:
        return None
    assignment = _decoded(Assignment, found)
    mine = assignment.incarnation == member.incarnation and assignment.round == header.number
    if not mine:
        return None
    declared = header.roles or assignment.nproc == member.nproc  # a role may say how many workers its nodes have
    if not declared or not assignment.fits:
        raise Unreadable(
            f"{found.key} assigns {assignment.nproc} workers to this node, from rank {assignment.first_rank} of "
            f"{assignment.world_size}, but this node has {member.nproc}: did another program write it?"
        )
    return assignment


async def read_peers(store: Store, keys: Keys, header: Header, each: int) -> tuple[NodePeers, ...]:
    """Where the workers of `header`'s round are, in rank order, with `each` ports a worker.

    Raises Unreadable, also where some are missing.
    """
    listing = await store.list(keys.peers(header.prefix))
    try:
        return peers.joined([_decoded(peers.Peers, item) for item in listing.items], header.world_size, each)
    except ValueError as error:
        raise Unreadable(f"{keys.peers(header.prefix)} does not say where all workers are: {error}") from None


async def tell_of_listening(store: Store, keys: Keys, header: Header, lease: int) -> None:
    """Tells the other nodes of `header`'s round that its rank 0 listens for them. Raises StoreError.

    Where it is applied late, its readers are in another round already, and nobody takes it for theirs.
    """
    await store.txn([], [Put(keys.listening, header.prefix.encode(), lease)], idempotent=True)


async def hear_of_listening(store: Store, keys: Keys, header: Header, revision: int) -> None:
    """Returns once rank 0 of `header`'s round, which is in the store since `revision`, listens. Raises StoreError."""
    async with contextlib.aclosing(store.watch(keys.listening, revision)) as events:
        async for changes in events:
            if any(change.kind == "put" and change.kv.value == header.prefix.encode() for change in changes):
                return


async def round_keeps(store: Store, keys: Keys, header: Header) -> bool:
    """Whether the workers of `header`'s round say that they keep their process when the membership changes."""
    listing = await store.list(keys.nodes)
    members = [decode_or_none(Member, item.value) for item in listing.items]  # the master says which cannot be read
    reports = [member.report for member in members if member and member.report.state == "running"]
    return len(reports) == header.nodes and all(found.keeps and found.run == header.run for found in reports)


async def read_eviction(store: Store, keys: Keys, incarnation: str) -> Eviction | None:
    """Why that incarnation was evicted, where the master left word."""
    found = await store.get(keys.eviction(incarnation))
    return decode_or_none(Eviction, found.value) if found else None


def _decoded(kind: type[T], found: KeyValue) -> T:
    try:
        return decode(kind, found.value)
    except Malformed as error:
        if unreadable(found.value):
            raise Sealed(f"this node cannot read {found.key}: the job's nodes have {OTHER_SECRET}") from None
        raise Unreadable(
            f"{found.key} has a value that this version of elastic-run cannot read ({error}): does another version "
            "run a job with this id? Choose another --rdzv-id"
        ) from None


def incarnation_of(value: bytes) -> str:
    """Whose member value this is; empty where it is none."""
    member = decode_or_none(Member, value)
    return member.incarnation if member else ""
