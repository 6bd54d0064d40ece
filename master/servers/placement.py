"""What the table of slots is to be next, from what it is and from who is there (pure).

`plan_slots` looks at the whole state of affairs each time, and remembers nothing: whoever leads goes on where the last
leader was. It takes one step; where the table that it returns is another one, it is to be asked again at once.

    no slots ──least servers run──▶ every slot has a primary, and with replicas a backup
    a primary has gone              its backup is the primary, at once
    a slot has no backup            another server is joining: it gets a copy from the primary
    a copy is whole                 the joining server is the backup, in place of the one that there was; without
                                    replicas it is the primary
    nothing is joining              balance: a primary changes places with its backup, which needs no copy; and for
                                    some slots another server is joining
    all holders of a slot have gone the job ends; or where a checkpoint is whole no slot has any holder, until a round
                                    is opened that goes back to it: then servers that were started for that begin

Nobody becomes a primary beside a backup that may have missed what it has, but for the two that change places: a push
may be on its way between them, and the new primary tells the old one whether it came.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ...rendezvous.base.frozen import dataclass, replace
from .slot_table import MOST_SERVERS, NOBODY, SLOTS, RunningServer, ServerPlace, SlotTable

MOST_WANTED = MOST_SERVERS // 2
"""Servers that a job may want: while places move, there are up to twice as many."""

AT_A_TIME = 64
"""Slots that one server copies to another for the balance before the next are chosen: what is copied is also pushed
to, and each push waits for one server more as soon as its copy is whole."""


@dataclass(frozen=True, slots=True)
class ServersWanted:
    """What the job was started with.

    Attributes:
        least, most: servers; between the two as many as there are nodes.
        replicas: 1: each slot has a backup; 0: none.
        nodes: that the job begins with: until there are slots, their places are left to those that have not come yet.
    """

    least: int
    most: int
    replicas: int
    nodes: int = 1


def plan_slots(
    table: SlotTable,
    running: Collection[RunningServer],
    nodes: Collection[str],
    wanted: ServersWanted,
    awaited: Collection[str] = (),
    checkpoint: int = 0,
    rows_from: int = 0,
) -> SlotTable:
    """The next table; the same object where nothing is to change.

    Args:
        running: the servers that are registered now, on registered nodes.
        nodes: names of those that may have servers: they are there and do not leave, or may come back.
        awaited: incarnations of servers that have just gone from `running`, and may come back: a slot that nobody else
            holds is not lost yet.
        checkpoint: the last that is whole; 0: none is.
        rows_from: the last round that was opened to go back to one; 0: none was.
    """
    if table.goes_back and rows_from > table.rows_from:
        return replace(table, version=table.version + 1, lost="", rows_from=rows_from)
    if table.lost:
        return table
    running = [each for each in running if each.rows_from == table.rows_from]
    kept, surplus = plan_places(table, running, nodes, wanted)
    plan = _NextTable(table, running, kept, surplus, nodes, wanted, awaited)
    if not table.primary:
        plan.split_slots()
    else:
        plan.end_copies()
        if lost := plan.drop_gone():
            return lose_rows(table, lost, checkpoint)
        plan.begin_backups()
        plan.balance()
    planned = plan.as_table()
    return table if planned == table else replace(planned, version=table.version + 1)


def lose_rows(table: SlotTable, why: str, checkpoint: int) -> SlotTable:
    """The table once rows of some slot are lost: the job ends, or goes back to that checkpoint as a whole."""
    lost = replace(table, version=table.version + 1, lost=why)
    if not checkpoint:
        return lost
    return replace(lost, restore=checkpoint, servers=(), primary=(), backup=(), joining=())


def plan_places(
    table: SlotTable, running: Collection[RunningServer], nodes: Collection[str], wanted: ServersWanted
) -> tuple[list[ServerPlace], list[ServerPlace]]:
    """The places that are wanted, by number, and those of the table that are not, or not any more.

    Each node has as many as the others, or one more; it keeps those that it has. A new place has a number of its own.
    """
    if not nodes:
        return list(table.places), []
    total = min(wanted.most, max(wanted.least, len(nodes)))
    each, more = divmod(total, len(nodes) if table.primary else max(len(nodes), wanted.nodes))
    had = {node: [place for place in table.places if place.node == node] for node in nodes}

    def rank(node: str) -> tuple[int, int, str]:
        mine = had[node]
        return -min(len(mine), each + 1), min((place.number for place in mine), default=0), node

    kept: list[ServerPlace] = []
    missing: list[str] = []
    for at, node in enumerate(sorted(nodes, key=rank)):
        count = each + (at < more)
        kept += sorted(had[node], key=lambda place: place.number)[:count]
        missing += [node] * (count - len(had[node]))
    taken = {each.number for each in (*table.places, *table.servers, *running)}
    free = (number for number in range(len(taken) + len(missing)) if number not in taken)
    surplus = [place for place in table.places if place not in kept]
    kept += [ServerPlace(number, node) for node, number in zip(missing, free, strict=False)]
    return sorted(kept, key=lambda place: place.number), surplus


class _NextTable:
    """One step, as it is worked out. Servers are indices into `_servers`; NOBODY is none."""

    def __init__(
        self,
        table: SlotTable,
        running: Collection[RunningServer],
        kept: Sequence[ServerPlace],
        surplus: Sequence[ServerPlace],
        nodes: Collection[str],
        wanted: ServersWanted,
        awaited: Collection[str],
    ) -> None:
        self._table, self._wanted = table, wanted
        self._kept, self._surplus = kept, surplus
        here = {each.incarnation: each for each in running}
        places = {(place.number, place.node) for place in kept}
        new = [each for each in running if (each.number, each.node) in places and table.index_of(each.incarnation) < 0]
        known = [here.get(each.incarnation, each) for each in table.servers]
        self._servers = [*known, *sorted(new, key=lambda each: each.number)]
        self._alive = {at for at, each in enumerate(self._servers) if each.incarnation in here}
        number_of = {each.number: each.incarnation for each in running}
        self._awaited = {
            at
            for at, each in enumerate(self._servers)
            # Another process in its place: an agent starts none before it has seen the end of the one before it.
            if each.incarnation in awaited and number_of.get(each.number, each.incarnation) == each.incarnation
        }
        self._staying = [at for at in sorted(self._alive) if self._place_of(at) in places]
        self._all_run = len(self._staying) >= len(kept)
        self._leaving = {at for at in self._alive if self._servers[at].node not in nodes}
        self._primary, self._backup = list(table.primary), list(table.backup)
        self._joining = list(table.joining)

    def _place_of(self, at: int) -> tuple[int, str]:
        return self._servers[at].number, self._servers[at].node

    def _node(self, at: int) -> str:
        return self._servers[at].node

    def as_table(self) -> SlotTable:
        """What was worked out, in the version of the table that it began with."""
        holding = {*self._primary, *self._backup, *self._joining} - {NOBODY}
        order = sorted(holding | set(self._staying), key=lambda at: (self._servers[at].number, at))
        index = {at: new for new, at in enumerate(order)} | {NOBODY: NOBODY}
        held = {self._place_of(at) for at in holding}
        places = [*self._kept, *(place for place in self._surplus if (place.number, place.node) in held)]
        return SlotTable(
            version=self._table.version,
            places=tuple(sorted(places, key=lambda place: place.number)),
            servers=tuple(replace(self._servers[at], joined=0, saved=0) for at in order),
            primary=tuple(index[at] for at in self._primary),
            backup=tuple(index[at] for at in self._backup),
            joining=tuple(index[at] for at in self._joining),
            checkpoint=self._table.checkpoint,
            restore=self._table.restore,
            rows_from=self._table.rows_from,
        )

    def split_slots(self) -> None:
        """The first holders, as soon as enough servers run: there are no rows yet that would have to be copied."""
        if len(self._staying) < max(1, self._wanted.least):
            return
        self._primary = [self._staying[slot % len(self._staying)] for slot in range(SLOTS)]
        self._backup, self._joining = [NOBODY] * SLOTS, [NOBODY] * SLOTS
        if self._wanted.replicas:
            for slot, chosen in self._choose_backups():
                self._backup[slot] = chosen

    # -- who has come and gone --------------------------------------------------------------------------------------

    def end_copies(self) -> None:
        """Joining servers that have all of their slots hold them."""
        whole = {at for at in self._alive if self._servers[at].joined >= self._table.version}
        for slot, joining in enumerate(self._joining):
            if joining in self._alive and self._primary[slot] in whole:
                self._joining[slot] = NOBODY
                if self._wanted.replicas:
                    self._backup[slot] = joining
                else:
                    self._primary[slot] = joining

    def drop_gone(self) -> str:
        """Slots go on without the servers that are gone; which rows are lost, in words, where some are."""
        for slot in range(SLOTS):
            primary, backup = self._primary[slot], self._backup[slot]
            if self._joining[slot] not in self._alive:
                self._joining[slot] = NOBODY
            if primary in self._alive:
                if backup not in self._alive:
                    self._backup[slot] = NOBODY
            elif backup in self._alive:
                self._primary[slot], self._backup[slot] = backup, NOBODY
                if self._joining[slot] == backup:
                    self._joining[slot] = NOBODY
            elif not {primary, backup} & self._awaited:
                gone = self._servers[primary]
                return (
                    f"parameter server {gone.number} on node {gone.node} has gone, and the only copy of its rows with "
                    "it"
                )
        return ""

    # -- copies -----------------------------------------------------------------------------------------------------

    def begin_backups(self) -> None:
        """Slots without a backup get one."""
        if self._wanted.replicas:
            for slot, chosen in self._choose_backups():
                self._joining[slot] = chosen

    def _choose_backups(self) -> Iterator[tuple[int, int]]:
        """A server for each slot that has neither a backup nor a joining one, where there is any."""
        load, together = self._count_held(), Counter(zip(self._primary, self._backup, strict=True))
        for slot, primary in enumerate(self._primary):
            if primary not in self._alive or self._backup[slot] != NOBODY or self._joining[slot] != NOBODY:
                continue
            others = [at for at in self._staying if at != primary]
            if elsewhere := [at for at in others if self._node(at) != self._node(primary)]:
                others = elsewhere
            if others:
                chosen = min(others, key=lambda at: (load[at] + together[primary, at], at))
                load[chosen] += 1
                together[primary, chosen] += 1
                yield slot, chosen

    def _count_held(self) -> Counter[int]:
        """Slots by server, without the holder that a joining one will replace."""
        pairs = zip(self._backup, self._joining, strict=True)
        return Counter(self._primary) + Counter(backup if joining == NOBODY else joining for backup, joining in pairs)

    # -- balance ----------------------------------------------------------------------------------------------------

    def balance(self) -> None:
        """Once each slot has all of its holders, a few of them change."""
        holders = [*self._primary, *(self._backup if self._wanted.replicas else ())]
        if all(at in self._alive for at in holders) and set(self._joining) == {NOBODY}:
            self._swap_roles()
            self._begin_moves()

    def _swap_roles(self) -> None:
        """A primary that has more slots than its backup, or is to go, is the backup, and the other way round."""
        count, swapped = Counter(self._primary), bool(self._wanted.replicas)
        while swapped:
            swapped = False
            for slot, (primary, backup) in enumerate(zip(self._primary, self._backup, strict=True)):
                if backup in self._staying and (primary not in self._staying or count[primary] > count[backup] + 1):
                    self._primary[slot], self._backup[slot] = backup, primary
                    count[primary] -= 1
                    count[backup] += 1
                    swapped = True

    def _begin_moves(self) -> None:
        """Servers join for slots of those that are to go, that share a node with the other holder, or have more."""
        replaced = self._backup if self._wanted.replicas else self._primary
        load = self._count_held()
        slots: dict[tuple[int, int], list[int]] = {}  # of each replaced holder and primary
        for slot in reversed(range(SLOTS)):
            slots.setdefault((replaced[slot], self._primary[slot]), []).append(slot)
        under_way = Counter[tuple[int, int]]()
        while move := self._choose_move(slots, load, under_way):
            holder, primary, chosen = move
            self._joining[slots[holder, primary].pop()] = chosen
            under_way[primary, chosen] += 1
            load[holder] -= 1
            load[chosen] += 1

    def _choose_move(
        self, slots: dict[tuple[int, int], list[int]], load: Counter[int], under_way: Counter[tuple[int, int]]
    ) -> tuple[int, int, int] | None:
        """The move that is most wanted: a holder, the primary of the slot, and who is to join; None: all is well."""
        targets = sorted(self._staying, key=lambda at: (load[at], at))
        for holder, primary in sorted((pair for pair, some in slots.items() if some), key=lambda pair: -load[pair[0]]):
            now = self._fault(holder, primary)
            if now == 2 and holder not in self._leaving and not self._all_run:
                continue  # who is to take its slots is being started
            others = [at for at in targets if at not in (holder, primary)]
            chosen = next((at for at in others if not self._fault(at, primary)), others[0] if others else NOBODY)
            fault = self._fault(chosen, primary)
            better = now > fault or (now == fault and load[holder] > load[chosen] + 1)
            if better and others and under_way[primary, chosen] < AT_A_TIME:
                return holder, primary, chosen
        return None

    def _fault(self, holder: int, primary: int) -> int:
        """What is wrong with a holder: 2: it is to go; 1: it is the backup on the primary's node; 0: nothing."""
        if holder not in self._staying:
            return 2
        beside = bool(self._wanted.replicas) and holder != primary  # without replicas it takes the primary's place
        return int(beside and self._node(holder) == self._node(primary))
