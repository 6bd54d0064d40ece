"""What a job's parameter servers do, as their nodes tell the master each second or two (values, and pure).

A server counts (`adapters/servers/counters.py`), its agent asks it for that with the question whether it still answers
(`elastic_agent/servers/silence.py`), and passes it on. Nothing of it decides anything: it is for people.
"""

from collections import deque
from typing import Annotated, Literal

from ...rendezvous.base.frozen import dataclass, field
from ...rendezvous.wire.fields import Name, Number
from ...rendezvous.wire.values import Count

MOST_TOLD = 32
"""Tables of one server that it tells of: those with most rows. A job's status has to fit into one message."""

MOST_AWAITED = 256
"""Servers that one rank, or one server, can wait for: all of a job's."""

WINDOW = 30.0
"""Seconds over which rates are taken."""

GONE = 15.0
"""Seconds after which what a node told last is forgotten: it tells something every other second."""

LONG = 1.0
"""Seconds from which a wait for a server is told to people: shorter ones come and go with each step."""

Numbers = Annotated[tuple[Number, ...], Count(MOST_AWAITED)]
"""Of servers."""


@dataclass(frozen=True, slots=True)
class TableMeasure:
    """One table on one server, where all but rows, bytes and on_disk count since the server's beginning.

    Attributes:
        rows, bytes: that it has, of all slots that it holds: also those of which it is the backup.
        given: ids of batches for which workers have pulled rows, each as often as it came: of what a worker asks of
            several servers each counts a share.
        pulled: ids that were asked of this server: workers ask for each id of a batch once.
        pulls, pull_seconds: answers to workers, and the time from the question to each of them together.
        pushed: ids whose gradients came.
        on_disk: of the rows, those that are on disk alone.
        read: rows that were read from there.
    """

    table: Name
    rows: Number
    bytes: Number
    given: Number = 0
    pulled: Number = 0
    pulls: Number = 0
    pull_seconds: float = 0.0
    pushed: Number = 0
    on_disk: Number = 0
    read: Number = 0


@dataclass(frozen=True, slots=True)
class ServerMeasure:
    """What a server says of itself.

    Attributes:
        tables: see MOST_TOLD.
        pulls, pull_seconds: answers to workers since its beginning, and the time from the question to each of them
            together.
        pushes, push_seconds: the same; a push is of all tables, and is answered when the backups have it.
        copying: slots on their way from here to another server.
        saved_ago: seconds since its last part of a checkpoint was written; None: it has written none.
        awaits: servers for whose answer its first push has waited since it was asked last.
    """

    tables: Annotated[tuple[TableMeasure, ...], Count(MOST_TOLD)] = ()
    pulls: Number = 0
    pull_seconds: float = 0.0
    pushes: Number = 0
    push_seconds: float = 0.0
    copying: Number = 0
    saved_ago: float | None = None
    awaits: Numbers = ()


ServerState = Literal["starting", "answers", "works", "silent", "stopped"]
"""starting: it is not ready yet, or another one is about to be started in the place of one that has ended. answers: it
has answered its agent a moment ago. works: it has not, and computes, or waits for a processor, a disk or memory.
silent: it has not, and does nothing. stopped: the kernel says so."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server, as its node's agent sees it.

    Attributes:
        number: of its place.
        incarnation: of the process; empty where there is none.
        state: see there.
        seconds: since it has answered last; since it was started, where it is not ready yet.
        slots, backups: those whose primary it is, and of which it has the second copy.
        bare: those whose primary it is and that have no second copy.
        resident: bytes of memory that the process has.
        measure: what it said last.
    """

    number: Number
    incarnation: Name = ""
    state: ServerState = "starting"
    seconds: float = 0.0
    slots: Number = 0
    backups: Number = 0
    bare: Number = 0
    resident: Number = 0
    measure: ServerMeasure = ServerMeasure()


@dataclass(frozen=True, slots=True)
class RankWait:
    """A worker that waits for servers, as it has told its agent.

    Attributes:
        rank: its own.
        servers: the numbers of those that have not answered; none: the job's servers have not started.
        seconds: for which it has.
    """

    rank: Number
    servers: Numbers = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeServers:
    """What one node tells: its servers, and its workers that wait for some."""

    node: Name
    servers: Annotated[tuple[ServerReport, ...], Count(MOST_AWAITED)] = ()
    waits: tuple[RankWait, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server, for the job's status.

    Attributes:
        node: where it is.
        report: as its node has told it last.
        pulls, pushes: a second, over half a minute; None: not known yet.
        pull_seconds, push_seconds: that each took on average in that time; None: there were none.
    """

    node: Name
    report: ServerReport
    pulls: float | None = None
    pushes: float | None = None
    pull_seconds: float | None = None
    push_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ServersStatus:
    """All servers of a job; nothing where it has none.

    Attributes:
        servers: by number.
        waits: of ranks that have waited for LONG, by rank.
    """

    servers: tuple[ServerStatus, ...] = ()
    waits: tuple[RankWait, ...] = ()

    def node_of(self, number: int) -> str:
        """The node of a server; empty where none tells of it."""
        return next((each.node for each in self.servers if each.report.number == number), "")

    def sum_tables(self) -> tuple[TableMeasure, ...]:
        """Each table, over all servers, so that a row with a second copy counts twice; by name."""
        sums: dict[str, TableMeasure] = {}
        for one in self.servers:
            for each in one.report.measure.tables:
                sums[each.table] = _add(sums[each.table], each) if each.table in sums else each
        return tuple(sums[name] for name in sorted(sums))


def _add(one: TableMeasure, other: TableMeasure) -> TableMeasure:
    return TableMeasure(
        one.table,
        one.rows + other.rows,
        one.bytes + other.bytes,
        one.given + other.given,
        one.pulled + other.pulled,
        one.pulls + other.pulls,
        one.pull_seconds + other.pull_seconds,
        one.pushed + other.pushed,
        one.on_disk + other.on_disk,
        one.read + other.read,
    )


Measures = deque[tuple[float, ServerMeasure]]
"""Of one server: when, in seconds, and what it said; the last one last."""


@dataclass(slots=True)
class _NodeWord:
    """What a node told last, and when."""

    at: float
    servers: NodeServers
    since: dict[int, float]  # by number: when it has told of that server first, without a break
    measures: dict[str, Measures] = field(default_factory=dict[str, Measures])  # by incarnation


class ServersSeen:
    """What the nodes have told of one job's servers."""

    def __init__(self) -> None:
        self._told: dict[str, _NodeWord] = {}

    def take_word(self, told: NodeServers, now: float) -> None:
        """What a node tells at `now`, seconds."""
        before = self._told.get(told.node)
        known = before.measures if before else {}
        measures: dict[str, Measures] = {}
        for each in told.servers:
            if each.incarnation:
                mine = measures[each.incarnation] = known.get(each.incarnation) or Measures()
                if mine and (each.measure.pulls < mine[-1][1].pulls or each.measure.pushes < mine[-1][1].pushes):
                    mine.clear()  # it has ended, and says nothing any more
                mine.append((now, each.measure))
                while len(mine) > 2 and mine[1][0] < now - WINDOW:
                    mine.popleft()
        begun = before.since if before else {}
        since = {each.number: begun.get(each.number, now) for each in told.servers}
        self._told[told.node] = _NodeWord(now, told, since, measures)

    def list_servers(self, now: float) -> ServersStatus:
        """As far as is known at `now`, seconds."""
        self._told = {node: each for node, each in self._told.items() if each.at >= now - GONE}
        home: dict[int, str] = {}  # a server that moves is told of by two nodes for a moment
        for node, told in sorted(self._told.items(), key=lambda each: each[1].at):
            for number, since in told.since.items():
                if number not in home or since >= self._told[home[number]].since[number]:
                    home[number] = node
        servers = [
            _judge(node, each, told)
            for node, told in self._told.items()
            for each in told.servers.servers
            if home[each.number] == node
        ]
        waits = [each for told in self._told.values() for each in told.servers.waits if each.seconds >= LONG]
        return ServersStatus(
            tuple(sorted(servers, key=lambda each: (each.report.number, each.node))),
            tuple(sorted(waits, key=lambda each: each.rank)),
        )


def _judge(node: str, report: ServerReport, told: _NodeWord) -> ServerStatus:
    measures = told.measures.get(report.incarnation)
    if not measures or measures[-1][0] <= measures[0][0]:
        return ServerStatus(node, report)
    (begun, first), (at, last) = measures[0], measures[-1]
    pulls, pushes = last.pulls - first.pulls, last.pushes - first.pushes
    return ServerStatus(
        node,
        report,
        pulls / (at - begun),
        pushes / (at - begun),
        (last.pull_seconds - first.pull_seconds) / pulls if pulls else None,
        (last.push_seconds - first.push_seconds) / pushes if pushes else None,
    )
