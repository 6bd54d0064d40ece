"""Some `ServerMachine`s, the connections between them, and workers, in one thread: what arrives when is drawn."""

import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elastic_run.adapters.servers import kernels
from elastic_run.adapters.servers.frames import Asking, Replying, shapes_of
from elastic_run.adapters.servers.requests import (
    OpenTable,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    Reply,
    WorkerRequest,
)
from elastic_run.adapters.servers.server_events import (
    AnswerAsker,
    Arrays,
    CopiesWhole,
    CopyTurn,
    HangUpPeer,
    PeerAnswered,
    PeerBroken,
    ServerAsked,
    ServerEvent,
    TableRead,
    TellPeer,
    WantTurn,
)
from elastic_run.adapters.servers.server_machine import ServerMachine
from elastic_run.adapters.servers.specs import SGD, Adam, LeastRecent, TableSpec, Uniform, Zeros
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, SlotTable
from elastic_run.rendezvous.wire.values import decode, encode

COUNTS = TableSpec("counts", 1, SGD(1.0), Zeros())

STEPS = TableSpec("steps", 2, Adam(0.1), Uniform())

SMALL_STEPS = TableSpec("steps", 2, Adam(0.1), Uniform(), admit_after=2, evict=LeastRecent(rows=SLOTS))

BOTH = ("counts", "steps")


@dataclass(slots=True)
class Link:
    """A connection from one server, or from a worker, to a server.

    Attributes:
        asker: the incarnation, or a worker's name.
        server: whom it asks.
        asked: what is on its way there.
        answers: on their way back.
        busy: one is there, and not answered.
    """

    asker: str
    server: str
    asked: deque[tuple[Any, Arrays]] = field(default_factory=deque[tuple[Any, Arrays]])
    answers: deque[tuple[Reply, Arrays]] = field(default_factory=deque[tuple[Reply, Arrays]])
    busy: bool = False


class Network:
    """Of one job.

    Args:
        draw: decides what happens next.
        memory: of each server, bytes.
    """

    def __init__(self, draw: random.Random, memory: int = 1 << 22) -> None:
        self.draw = draw
        self.memory = memory
        self.machines: dict[str, ServerMachine] = {}
        self.turns = Counter[str]()
        self.whole: dict[str, int] = {}
        self.tables = [SlotTable()]
        self.links: dict[int, Link] = {}
        self.count = 0

    # -- servers ----------------------------------------------------------------------------------------------------

    def start_server(self) -> str:
        """A new one, which no table names yet."""
        self.count += 1
        name = f"s{self.count}"
        self.machines[name] = ServerMachine(name, self.memory)
        return name

    def kill_server(self, name: str) -> None:
        """With all of its connections; the peers find out one by one."""
        del self.machines[name]
        self.turns.pop(name, None)
        for number, link in list(self.links.items()):
            if link.asker == name:
                del self.links[number]
            elif link.server == name:
                self.break_link(number)

    def break_link(self, number: int) -> None:
        """What is on its way is lost."""
        link = self.links.pop(number)
        if link.asker in self.machines:
            self.happen(link.asker, PeerBroken(link.server))

    def link_from(self, asker: str, server: str) -> Link:
        """The connection there; a new one where there is none."""
        for link in self.links.values():
            if (link.asker, link.server) == (asker, server):
                return link
        self.count += 1
        made = self.links[self.count] = Link(asker, server)
        return made

    def happen(self, name: str, event: ServerEvent) -> None:
        """To that server."""
        for effect in self.machines[name].on(event):
            match effect:
                case AnswerAsker(connection, reply, arrays):
                    if (link := self.links.get(connection)) is not None:
                        read = decode(Replying, encode(Replying(reply, shapes_of(arrays)))).reply
                        link.answers.append((read, arrays))
                        link.busy = False
                case TellPeer(peer, request, arrays):
                    self.link_from(name, peer).asked.append((request, arrays))
                case HangUpPeer(peer):
                    for number, link in list(self.links.items()):
                        if (link.asker, link.server) == (name, peer):
                            del self.links[number]
                case CopiesWhole(version):
                    self.whole[name] = version
                case WantTurn():
                    self.turns[name] += 1

    def choices(self) -> list[tuple[Any, ...]]:
        """All that can happen next."""
        found: list[tuple[Any, ...]] = [(self.take_turn, name) for name, count in self.turns.items() if count]
        found += [(self.read_table, name) for name, each in self.machines.items() if each.version < self.table.version]
        for number, link in self.links.items():
            if link.server in self.machines and link.asked and not link.busy:
                found.append((self.deliver, number))
            if link.answers and link.asker in self.machines:
                found.append((self.deliver_answer, number))
        return found

    def take_turn(self, name: str) -> None:
        self.turns[name] -= 1
        self.happen(name, CopyTurn())

    def read_table(self, name: str) -> None:
        versions = [each for each in self.tables if each.version > self.machines[name].version]
        self.happen(name, TableRead(self.draw.choice(versions)))

    def deliver(self, number: int) -> None:
        link = self.links[number]
        request, arrays = link.asked.popleft()
        link.busy = True
        read = decode(Asking, encode(Asking(request, shapes_of(arrays)))).request
        self.happen(link.server, ServerAsked(number, read, [each.copy() for each in arrays]))

    def deliver_answer(self, number: int) -> None:
        link = self.links[number]
        self.happen(link.asker, PeerAnswered(link.server, link.answers.popleft()[0]))

    def step(self) -> bool:
        """One of them; False: nothing can."""
        if not (choices := self.choices()):
            return False
        act, argument = self.draw.choice(choices)
        act(argument)
        return True

    def settle(self) -> None:
        """Until nothing can happen."""
        for _ in range(20_000):
            if not self.step():
                return
        raise AssertionError("it does not come to rest")

    # -- what the job's leader does ---------------------------------------------------------------------------------

    @property
    def table(self) -> SlotTable:
        """The newest."""
        return self.tables[-1]

    def write_table(self, servers: Sequence[str], holders: Sequence[tuple[str, str, str]]) -> None:
        """The next version: by slot the primary, the backup and who joins ("" for nobody)."""
        index = {name: at for at, name in enumerate(servers)} | {"": NOBODY}
        primary, backup, joining = (tuple(index[each[which]] for each in holders) for which in range(3))
        places = tuple(RunningServer(at, name, "node") for at, name in enumerate(servers))
        self.tables.append(SlotTable(self.table.version + 1, (), places, primary, backup, joining))

    def holders(self) -> list[tuple[str, str, str]]:
        """Of the newest table, as `write_table` takes them."""
        table = self.table
        names = [each.incarnation for each in table.servers] + [""]
        return [(names[p], names[b], names[j]) for p, b, j in zip(*self.columns(table), strict=True)]

    @staticmethod
    def columns(table: SlotTable) -> tuple[tuple[int, ...], ...]:
        return table.primary, table.backup, table.joining

    def plan(self, replicas: int) -> bool:
        """One step of the planner, for servers that live; whether the table changed."""
        servers, before = sorted(self.machines), self.holders()
        after = list[tuple[str, str, str]]()
        for slot, (primary, backup, joining) in enumerate(before):
            done = self.whole.get(primary, 0) >= self.table.version
            if primary not in self.machines:
                assert backup in self.machines, "all of a slot is lost"
                primary, backup = backup, ""
            backup = backup if backup in self.machines else ""
            if joining not in self.machines or joining == primary:
                joining = ""
            elif done and primary in self.machines and before[slot][0] == primary:
                primary, backup, joining = (primary, joining, "") if replicas else (joining, "", "")
            others = [each for each in servers if each != primary]
            if replicas and not backup and not joining and others:
                joining = others[slot % len(others)]
            after.append((primary, backup, joining))
        if after == before:
            return False
        self.write_table(servers, after)
        return True

    def swap(self, some: float) -> None:
        """Some primaries and their backups change places, as the planner does for the balance."""
        holders = self.holders()
        if any(joining or backup not in self.machines or not backup for _, backup, joining in holders):
            return
        chosen = [self.draw.random() < some for _ in holders]
        self.write_table(
            sorted(self.machines), [(b, p, j) if c else (p, b, j) for (p, b, j), c in zip(holders, chosen, strict=True)]
        )

    def move(self, some: float) -> None:
        """Some slots are copied to a server that has nothing of them."""
        holders = self.holders()
        if any(joining or {primary, backup} - {""} - set(self.machines) for primary, backup, joining in holders):
            return
        moved = list[tuple[str, str, str]]()
        for primary, backup, _ in holders:
            others = [each for each in sorted(self.machines) if each not in (primary, backup)]
            moved.append((primary, backup, self.draw.choice(others) if others and self.draw.random() < some else ""))
        if moved != holders:
            self.write_table(sorted(self.machines), moved)

    # -- workers ----------------------------------------------------------------------------------------------------

    def ask(self, worker: str, server: str, request: WorkerRequest, arrays: Arrays = ()) -> Link:
        """Puts it on its way."""
        link = self.link_from(worker, server)
        link.asked.append((request, arrays))
        return link

    def ask_now(self, server: str, request: WorkerRequest, arrays: Arrays = ()) -> tuple[Reply, Arrays]:
        """Asks, and lets things happen until it is answered."""
        link = self.ask(f"w{self.count}", server, request, arrays)
        for _ in range(20_000):
            if link.answers:
                return link.answers.popleft()
            assert self.step(), f"{request} is not answered"
        raise AssertionError(f"{request} is not answered")

    def read_rows(self, name: str, table: str, slots: Sequence[int]) -> dict[int, list[Any]]:
        """All that a server has of these slots: values, states, steps, by id (from inside)."""
        rows = self.machines[name]._tables.find_table(table)  # pyright: ignore[reportPrivateUsage]
        chosen = np.zeros(SLOTS, np.bool_)
        chosen[list(slots)] = True
        found, place, following = dict[int, list[Any]](), -1, 0
        while place != following:
            place = following
            (ids, *parts), following = rows.copy_piece(place, chosen, 1 << 20)
            found |= {id_: [part[at].tolist() for part in parts] for at, id_ in enumerate(ids.tolist())}
        return found


def slot_of(id_: int) -> int:
    return int(kernels.slot_of(np.int64(id_)))


class Worker:
    """Trains on one shard, under leases that follow each other, with a table of slots that may be an old one.

    Args:
        network: the job.
        shard: its index.
        records: an id each.
        batch: records of a push, unless a mark cuts it.
    """

    def __init__(self, network: Network, shard: int, records: list[int], batch: int) -> None:
        self.network = network
        self.shard = shard
        self.records = records
        self.batch = batch
        self.lease = 0
        self.said = 0  # to the ledger
        self.begin_lease()

    def begin_lease(self) -> None:
        """Another worker takes over, from where the ledger stands. What the one before has sent may still arrive."""
        self.lease += 1
        self.at = self.said
        self.cuts: list[int] | None = None
        self.asking: dict[str, Link] = {}
        self.answered = dict[str, Reply]()
        self.connect()

    @property
    def done(self) -> bool:
        return self.said == len(self.records)

    def go_on(self) -> None:
        """Reads what has come, and asks what is next."""
        if self.done:
            return
        if self.asking:
            self.take_answers()
        if not self.asking:
            self.ask_all()

    def take_answers(self) -> None:
        for server, link in list(self.asking.items()):
            if server not in self.network.machines or not any(link is each for each in self.network.links.values()):
                if self.network.table.version > self.table.version or server in self.network.machines:
                    self.connect()
                return
            if link.answers:
                self.answered[server] = link.answers.popleft()[0]
        if len(self.answered) < len(self.asking):
            return
        refused = {reply.refused for reply in self.answered.values()}
        assert refused <= {"", "moved"}, self.answered
        if refused == {""}:
            self.take_success()
        else:  # with a newer table, or a server is behind
            self.connect()

    def connect(self) -> None:
        """Anew, to the servers of the newest table; what was sent before may still arrive."""
        self.network.count += 1
        self.name = f"w{self.shard}.{self.lease}.{self.network.count}"
        self.table = self.network.table
        self.asking.clear()

    def take_success(self) -> None:
        self.asking.clear()
        if self.cuts is None:
            marks = sorted({mark for reply in self.answered.values() for mark in reply.marks})
            self.at = max(self.said, marks[0])
            self.cuts = [mark for mark in marks if mark > self.at]
            self.said = self.at
        else:
            self.at = self.said = self.end()

    def end(self) -> int:
        assert self.cuts is not None
        return min([self.at + self.batch, len(self.records), *(cut for cut in self.cuts if cut > self.at)])

    def ask_all(self) -> None:
        """The same of every server, each with its ids."""
        self.answered = {}
        primaries = sorted(set(self.table.primary))
        names = [self.table.servers[at].incarnation for at in primaries]
        if any(name not in self.network.machines for name in names):
            self.connect()
            return
        for at, name in zip(primaries, names, strict=True):
            if self.cuts is None:
                request, arrays = ReadMarks("d", self.shard, self.lease, self.table.version), list[Any]()
            else:
                mine = [each for each in self.records[self.at : self.end()] if self.table.primary[slot_of(each)] == at]
                ids, times = np.unique(np.array(mine, np.int64), return_counts=True)
                counts = -times.astype(np.float32)[:, None]
                arrays = [ids, counts, ids, np.concatenate([counts, counts * 0.5], axis=1)]
                source = PushSource("d", self.shard, self.lease, self.at, self.end())
                request = PushGradients(BOTH, source, self.table.version)
            self.asking[name] = self.network.ask(self.name, name, request, arrays)


def begin_job(draw: random.Random, servers: int, replicas: int, steps: TableSpec = STEPS) -> Network:
    """With both tables open on all servers."""
    network = Network(draw)
    names = [network.start_server() for _ in range(servers)]
    network.write_table(
        names,
        [(names[at % servers], names[(at + 1 + at // servers % max(1, servers - 1)) % servers] if replicas else "", "")
         for at in range(SLOTS)],
    )  # fmt: skip
    network.settle()
    for name in names:
        for spec in (COUNTS, steps):
            assert network.ask_now(name, OpenTable(spec, network.table.version))[0].refused == ""
    return network


def pull_counts(network: Network, ids: Sequence[int]) -> dict[int, float]:
    """From the primaries of the newest table."""
    found: dict[int, float] = {}
    for at in sorted(set(network.table.primary)):
        mine = np.array([each for each in ids if network.table.primary[slot_of(each)] == at], np.int64)
        name = network.table.servers[at].incarnation
        reply, arrays = network.ask_now(name, PullRows(("counts",), network.table.version), [mine])
        assert reply.refused == "", reply
        found |= dict(zip(mine.tolist(), arrays[0][:, 0].tolist(), strict=True))
    return found


def check_equal(network: Network) -> None:
    """Each backup is its primary, bit by bit, and whoever holds nothing of a slot has nothing of it."""
    by_pair: dict[tuple[str, str], list[int]] = {}
    for slot, (primary, backup, joining) in enumerate(network.holders()):
        assert not joining
        by_pair.setdefault((primary, backup), []).append(slot)
    for (primary, backup), slots in by_pair.items():
        for table in (each.name for each in network.machines[primary].tables.specs):
            mine = network.read_rows(primary, table, slots)
            if backup:
                assert network.read_rows(backup, table, slots) == mine
            for other in set(network.machines) - {primary, backup}:
                assert network.machines[other]._tables._tables.get(table) is None or not network.read_rows(  # pyright: ignore[reportPrivateUsage]
                    other, table, slots
                )
