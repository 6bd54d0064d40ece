"""What one version of the slot table says of one server (pure)."""

from collections.abc import Iterable

import numpy as np

from ...master.servers.slot_table import NOBODY, SLOTS, SlotTable
from ...rendezvous.base.frozen import dataclass
from .server_events import Peer
from .slot_sets import NO_SLOTS, SlotSet


@dataclass(frozen=True, slots=True)
class SlotRoles:
    """Of one server.

    Attributes:
        version: of the table.
        mine: the slots whose primary it is.
        kept: those whose backup it is.
        backups: of `mine`, by their backup.
        joining: of `mine`, by the server that joins.
        kept_of: of `kept`, by their primary.
        joined_of: slots that it joins, by their primary.
    """

    version: int
    mine: SlotSet
    kept: SlotSet
    backups: dict[Peer, SlotSet]
    joining: dict[Peer, SlotSet]
    kept_of: dict[Peer, SlotSet]
    joined_of: dict[Peer, SlotSet]

    def copied_from(self, peer: Peer) -> SlotSet:
        """The slots that this server joins, and whose primary that peer is."""
        return self.joined_of.get(peer, NO_SLOTS)


def read_roles(table: SlotTable, incarnation: Peer) -> SlotRoles:
    """Those of the server of that incarnation."""
    me = table.index_of(incarnation)
    if me == NOBODY or len(table.primary) != SLOTS:
        return SlotRoles(table.version, NO_SLOTS, NO_SLOTS, {}, {}, {}, {})
    primary, backup, joining = (
        np.array(each or (NOBODY,) * SLOTS, np.int64) for each in (table.primary, table.backup, table.joining)
    )
    names = [each.incarnation for each in table.servers]

    def by_holder(slots: SlotSet, holders: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> dict[Peer, SlotSet]:
        found: Iterable[int] = np.unique(holders[slots & (holders != NOBODY)]).tolist()
        return {names[at]: slots & (holders == at) for at in found}

    mine, kept = primary == me, backup == me
    return SlotRoles(
        table.version,
        mine,
        kept,
        by_holder(mine, backup),
        by_holder(mine, joining),
        by_holder(kept, primary),
        by_holder(joining == me, primary),
    )


def union_of(sets: Iterable[SlotSet]) -> SlotSet:
    """The slots that are in any of them."""
    found = NO_SLOTS
    for each in sets:
        found = found | each
    return found
