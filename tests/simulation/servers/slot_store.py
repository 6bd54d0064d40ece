"""What the store has of a job's servers, who leads, and what each agent has seen of it.

The leader plans with the product's `plan_slots`, from what was in the store a moment before it writes. An agent sees
the table later than it is written, and not each version. The keeper's writes and fences are tested where it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from elastic_run.elastic_agent.servers.server_host import choose_table
from elastic_run.master.servers.placement import ServersWanted, plan_slots
from elastic_run.master.servers.slot_table import RunningServer, ServerPlace, SlotTable

from .lines import LineNetwork, Machine
from .saved_tables import SavedTables
from .server_process import ServerProcess

AWAITED_SECONDS = 10.0
"""For which a server that has gone from the store may come back, before its rows are lost."""

ANSWER_SECONDS = 1.0
"""After which an agent tells a worker what it knows, though that is nothing new."""


@dataclass(slots=True)
class SlotStore:
    """What is in the store.

    Attributes:
        table: of slots.
        nodes: those that are registered, and whether they stay.
        running: servers by number, under the leases of their nodes.
        leader: counts the leaders.
        history: each table that was ever written.
        round: of the workers that are started now.
        rows_from: the last round that was opened to go back.
    """

    table: SlotTable
    nodes: dict[str, bool]
    running: dict[int, RunningServer]
    leader: int
    history: list[SlotTable]
    round: int = 1
    rows_from: int = 0


class SlotLeader:
    """Whoever leads the job; one after the other.

    Args:
        saved: where checkpoints are.
        written: hears of each new table.
    """

    def __init__(
        self,
        network: LineNetwork,
        store: SlotStore,
        wanted: ServersWanted,
        saved: SavedTables,
        written: Callable[[SlotTable], object],
    ) -> None:
        self._network = network
        self._store = store
        self._wanted = wanted
        self._saved = saved
        self._written = written
        self._planning = False
        self._gone: dict[str, float] = {}  # incarnations, and until when they may come back
        self._seen: set[str] = set()

    def look(self) -> None:
        """Something has changed."""
        if not self._planning:
            self._planning = True
            self._network.timeline.after(self._network.random.uniform(0.001, 0.02), self._plan)

    def elect_another(self, seconds: float) -> None:
        """Nobody leads for so long; what this one has on its way to the store is refused there."""
        self._store.leader += 1
        self._planning = True

        def lead() -> None:
            self._gone, self._seen, self._planning = {}, set(), False
            self.look()

        self._network.timeline.after(seconds, lead)

    def _plan(self) -> None:
        store, now, leader = self._store, self._network.timeline.now, self._store.leader
        running = [each for _, each in sorted(store.running.items()) if each.node in store.nodes]
        here = {each.incarnation for each in running}
        known = self._seen | {each.incarnation for each in store.table.servers}
        self._gone = {each: self._gone.get(each, now + AWAITED_SECONDS) for each in sorted(known - here)}
        self._seen |= here
        awaited = [each for each, until in self._gone.items() if until > now]
        staying = [node for node, stays in store.nodes.items() if stays]
        planned = plan_slots(store.table, running, staying, self._wanted, awaited, self._saved.newest, store.rows_from)
        if planned is store.table:
            planned = self._saved.order(store.table, running, now)
        if planned is store.table:
            self._planning = False
            if awaited:
                self._network.timeline.after(AWAITED_SECONDS / 4, self.look)
            return
        before = store.table.version

        def write() -> None:
            if store.leader != leader:
                return
            self._planning = False
            if store.table.version == before:
                store.table = planned
                store.history.append(planned)
                self._written(planned)
            self.look()

        self._network.timeline.after(self._network.random.uniform(0.001, 0.01), write)


class SlotAgent:
    """What a node's agent does for servers and workers.

    Args:
        start: starts a server process of an incarnation on this node's machine, with what hears of its whole copies
            and of its saved parts.
        changed: says that something in the store is another.
        say: for the trace.

    Attributes:
        machine: its node's.
        table: the newest that it has seen.
        servers: the processes that it keeps, by number.
        registered: its node has a lease.
        lag: seconds that it is behind at most.
        rows_from: of the newest header that it has seen.
    """

    def __init__(
        self,
        network: LineNetwork,
        store: SlotStore,
        machine: Machine,
        start: Callable[[str, Callable[[int], object], Callable[[int], object]], ServerProcess],
        changed: Callable[[], object],
        say: Callable[[str], object],
    ) -> None:
        self.network = network
        self.machine = machine
        self.table = store.table
        self.servers: dict[int, ServerProcess] = {}
        self.registered = True
        self.lag = 0.02
        self.rows_from = store.rows_from
        self._store = store
        self._start = start
        self._changed = changed
        self._say = say
        self._joined: dict[str, int] = {}
        self._saved: dict[str, int] = {}
        self._rows_from: dict[str, int] = {}  # of servers, by incarnation
        self._ready: set[str] = set()
        self._starting: set[int] = set()
        self._asked: list[tuple[int, int, Callable[[SlotTable], object]]] = []
        self._stays = True
        store.nodes[machine.name] = True

    @property
    def node(self) -> str:
        """Its name."""
        return self.machine.name

    def see_later(self, table: SlotTable) -> None:
        """The table was written."""
        self.network.timeline.after(self.network.random.uniform(0.0005, self.lag), lambda: self._see(table))

    def see_round_later(self, rows_from: int) -> None:
        """A round was opened to go back."""

        def see() -> None:
            self.rows_from = max(self.rows_from, rows_from)

        self.network.timeline.after(self.network.random.uniform(0.0005, self.lag), see)

    def ask_newer(self, version: int, round: int, told: Callable[[SlotTable], object]) -> None:
        """A worker of this node that was started for that round wants a table that is newer."""
        table = choose_table(self.table, round, self.rows_from)
        if table.serves and table.version > version:
            told(table)
            return
        entry = (version, round, told)
        self._asked.append(entry)

        def give_up() -> None:
            if entry in self._asked:
                self._asked.remove(entry)
                told(choose_table(self.table, round, self.rows_from))

        self.network.timeline.after(ANSWER_SECONDS, give_up)

    def lose_lease(self, seconds: float) -> None:
        """The node and its servers vanish from the store, and come back as they were."""
        self.registered = False
        self._store.nodes.pop(self.node, None)
        self._forget_servers()
        self._changed()
        self.network.timeline.after(seconds, self._register)

    def vanish(self) -> None:
        """The lease of a machine without power ends."""
        self._store.nodes.pop(self.node, None)
        self._forget_servers()
        self._changed()

    def leave(self) -> None:
        """The node is to go: it stays until its servers hold nothing."""
        self._stays = self._store.nodes[self.node] = False
        self._changed()

    def lose_server(self, process: ServerProcess) -> None:
        """One of its processes has ended."""
        number = next((number for number, each in self.servers.items() if each is process), None)
        if number is None or not self.machine.on:
            return
        del self.servers[number]
        self._ready.discard(process.incarnation)
        self.network.timeline.after(self.network.random.uniform(0.002, 0.05), lambda: self._unregister(process))
        self._keep_places()

    def _see(self, table: SlotTable) -> None:
        if not self.machine.on or table.version <= self.table.version:
            return
        self.table = table
        self._keep_places()
        for process in self.servers.values():
            self._pass_on(process)
        asked, self._asked = self._asked, []
        for version, round, told in asked:
            chosen = choose_table(table, round, self.rows_from)
            if chosen.serves and chosen.version > version:
                told(chosen)
            else:
                self._asked.append((version, round, told))

    def _pass_on(self, process: ServerProcess) -> None:
        table = self.table
        self.network.timeline.after(self.network.random.uniform(0.0001, 0.003), lambda: process.read_table(table))

    def _keep_places(self) -> None:
        for number, process in tuple(self.servers.items()):
            if self._rows_from[process.incarnation] != self.table.rows_from:
                self._say(f"{self.node} ends server {number} ({process.incarnation}), whose rows are of before")
                del self.servers[number]
                process.end()
                self._unregister(process)
        wanted = {place.number for place in self.table.places if place.node == self.node}
        if self.table.goes_back:
            return
        for number in sorted(self.servers.keys() - wanted):
            process = self.servers.pop(number)
            self._say(f"{self.node} ends server {number} ({process.incarnation}), whose place has gone")
            process.end()
            self._unregister(process)
        for number in sorted(wanted - self.servers.keys() - self._starting):
            self._starting.add(number)
            self.network.timeline.after(
                self.network.random.uniform(0.1, 0.6), lambda number=number: self._begin(number)
            )

    def _begin(self, number: int) -> None:
        self._starting.discard(number)
        wanted = ServerPlace(number, self.node) in self.table.places
        if not self.machine.on or number in self.servers or not wanted:
            return

        def report(version: int) -> None:
            self.network.timeline.after(self.network.random.uniform(0.0005, 0.01), lambda: self._join(process, version))

        def report_saved(version: int) -> None:
            self.network.timeline.after(self.network.random.uniform(0.01, 0.3), lambda: self._save(process, version))

        process = self.servers[number] = self._start(f"s{number}", report, report_saved)
        self._rows_from[process.incarnation] = self.table.rows_from
        self._pass_on(process)
        self.network.timeline.after(self.network.random.uniform(0.01, 0.1), lambda: self._get_ready(process))

    def _get_ready(self, process: ServerProcess) -> None:
        if process.alive and self.machine.on:
            self._ready.add(process.incarnation)
            self._register_server(process)

    def _join(self, process: ServerProcess, version: int) -> None:
        self._joined[process.incarnation] = max(version, self._joined.get(process.incarnation, 0))
        if process.incarnation in self._ready:
            self._register_server(process)

    def _save(self, process: ServerProcess, version: int) -> None:
        self._saved[process.incarnation] = version
        if process.incarnation in self._ready:
            self._register_server(process)

    def _register(self) -> None:
        if not self.machine.on:
            return
        self.registered = True
        self._store.nodes[self.node] = self._stays
        for process in self.servers.values():
            if process.incarnation in self._ready:
                self._register_server(process)
        self._changed()

    def _register_server(self, process: ServerProcess) -> None:
        number = next((number for number, each in self.servers.items() if each is process), None)
        if number is None or not self.registered or not process.alive or not self.machine.on:
            return
        found = self._store.running.get(number)
        if found is not None and found.node != self.node:  # another node has that number still
            self.network.timeline.after(0.1, lambda: self._register_server(process))
            return
        joined = self._joined.get(process.incarnation, 0)
        self._store.running[number] = RunningServer(
            number,
            process.incarnation,
            self.node,
            f"@{process.incarnation}",
            f"{self.node}:1",
            joined,
            self._saved.get(process.incarnation, 0),
            self._rows_from[process.incarnation],
        )
        self._changed()

    def _unregister(self, process: ServerProcess) -> None:
        for number, each in tuple(self._store.running.items()):
            if each.incarnation == process.incarnation:
                del self._store.running[number]
        self._changed()

    def _forget_servers(self) -> None:
        for number, each in tuple(self._store.running.items()):
            if each.node == self.node:
                del self._store.running[number]


def first_store() -> SlotStore:
    """An empty one."""
    return SlotStore(SlotTable(), {}, {}, 1, [])
