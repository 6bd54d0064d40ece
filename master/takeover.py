"""What an earlier master has left in the store, read by the next one before it decides anything."""

from collections.abc import Callable

from ..rendezvous.base.errors import OtherSecret
from ..rendezvous.header import Eviction, Header
from ..rendezvous.identity.secret import runs_with_another
from ..rendezvous.keys import Keys
from ..rendezvous.member import Member
from ..rendezvous.node_reasons import EvictedBefore
from ..rendezvous.ranks import Assignment
from ..rendezvous.store.contract import Store
from ..rendezvous.store.seal import unreadable
from ..rendezvous.time_split import SplitUntil
from ..rendezvous.wire.values import decode_or_none
from .machine import events
from .publish import Publisher


async def find(store: Store, keys: Keys, publisher: Publisher, say: Callable[[str], None]) -> events.Found:
    """The header, and all that belongs to it; what was written for a round that no header names is removed.

    Tells `publisher` which header it replaces. A header that this version cannot read is said, and counts as none.
    Raises OtherSecret where it is that of a job whose nodes, with another secret, are there.
    """
    found = await store.get(keys.round)
    revision = publisher.header_revision = found.mod_revision if found else 0
    published = store.reached(revision)
    header = decode_or_none(Header, found.value) if found else None
    if found and header is None:
        other = unreadable(found.value)
        if other and any(unreadable(item.value) for item in (await store.list(keys.nodes)).items):
            raise OtherSecret(runs_with_another(keys.job))
        who = "a node with this secret" if other else "this version"
        say(f"{who} cannot read the value of {found.key}: the job starts over")
    await publisher.drop_abandoned(header.prefix if header else "")
    if header is None:
        return events.Found(None, revision, published)
    assigned: list[Assignment] = []
    spent, spent_at = None, 0.0
    if header.prefix:
        for item in (await store.list(f"{keys.assignments}{header.prefix}/")).items:
            if item.key == keys.time(header.prefix):
                spent, spent_at = decode_or_none(SplitUntil, item.value), store.reached(item.mod_revision)
            elif assignment := decode_or_none(Assignment, item.value):
                assigned.append(assignment)
    assigned.sort(key=lambda assignment: assignment.group_rank)
    done = await successes(store, keys)
    evictions: list[events.EarlierEviction] = []
    if not header.final:
        for item in (await store.list(keys.evictions)).items:
            word = decode_or_none(Eviction, item.value)
            incarnation = item.key.removeprefix(keys.evictions)
            evictions.append(events.EarlierEviction(incarnation, word.reason if word else EvictedBefore()))
    return events.Found(header, revision, published, tuple(assigned), done, tuple(evictions), spent, spent_at)


async def successes(store: Store, keys: Keys) -> tuple[events.Success, ...]:
    """Nodes that have left after all their workers had succeeded."""
    items = (await store.list(keys.successes)).items
    return tuple(
        events.Success(item.key.removeprefix(keys.successes), decode_or_none(Member, item.value)) for item in items
    )
