"""The process that keeps a part of a job's tables: workers and other servers connect to it.

    python -m elastic_run.adapters.servers.server [--memory=BYTES] [--disk=FOLDER --disk-size=BYTES]
                                                  [--checkpoints=FOLDER --job=JOB] [--log=FOLDER]

An agent keeps it (`elastic_agent/servers/`), and tells it the table of slots by lines of JSON on its stdin, each a
`ServerOrders`. It says `ready: LOCAL REMOTE JOINED SAVED` on stdout when it can answer, with its loops compiled, and
again when more copies are whole, or its part of a checkpoint is written. What it
decides is in `server_machine.py`; all of that happens on one core.
"""

import argparse
import asyncio
import contextlib
import secrets
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from ...master.machine.parameter_servers import ServerMeasure
from ...master.servers.checkpoint_folder import CheckpointFolder
from ...master.servers.slot_table import SLOTS, SlotTable
from ...rendezvous.base.frozen import replace
from ...rendezvous.host import process_limits
from ...rendezvous.host.control_groups import usable_memory
from ...rendezvous.wire.values import Malformed, decode
from .compiling import compile_loops
from .counters import ServerCounters
from .event_log import SHORTEST, EventLog, LogDamaged
from .job_servers import UNREADABLE, ServerOrders
from .part_files import PartDamaged, PartReader, write_part
from .part_saver import PartSaver
from .record_file import DiskLimit, RecordFile
from .requests import (
    ForwardPrepare,
    ForwardPush,
    OpenTable,
    Ping,
    PrepareGradients,
    PullRows,
    PushGradients,
    Reply,
    Request,
)
from .row_memory import TableFull
from .server_events import (
    AnswerAsker,
    Array,
    Arrays,
    Connection,
    CopiesWhole,
    CopyTurn,
    HangUpPeer,
    Peer,
    PeerAnswered,
    PeerBroken,
    SayWords,
    ServerAsked,
    ServerEffect,
    ServerEvent,
    TableRead,
    TellPeer,
    WantTurn,
)
from .server_links import HANDSHAKE_SECONDS, AskerLink, PeerLink
from .server_machine import RowsMissing, ServerMachine
from .slot_roles import read_roles

FEW = 64
"""Rows that are read from disk while everybody waits."""


class ServedMachine:
    """A machine and its connections.

    Args:
        orders: the first.
        memory: bytes that rows may take there.
        ready: says where it listens, the version whose copies are whole, and the last checkpoint that is written.
        checkpoints: where they are; None: there are none.
        disk: where others may be; None: nowhere.
        log: of its events; None: what it has is lost with its process.
    """

    def __init__(
        self,
        orders: ServerOrders,
        memory: int,
        ready: Callable[[str, str, int, int], None],
        checkpoints: CheckpointFolder | None = None,
        disk: DiskLimit | None = None,
        log: EventLog | None = None,
    ) -> None:
        self._log = log
        self._bases = PartSaver(self._end_base, self._try_base, self._miss_base)
        self._machine = ServerMachine(orders.incarnation, memory, disk)
        self._orders = orders
        self._ready = ready
        self._local = f"elastic-run-servers-{secrets.token_hex(8)}"
        self._remote = "-"
        self._joined = self._saved = 0
        self._saved_at: float | None = None
        self._counters = ServerCounters()
        self._waited: tuple[int, tuple[Peer, ...]] = (0, ())  # as of the last ping
        self._now = asyncio.get_running_loop().time
        self._checkpoints = checkpoints
        self._saver = PartSaver(self._take_saved, self._save_left_out, print_words)
        self._numbers = count(1)
        self._askers: dict[int, AskerLink] = {}
        self._number_of: dict[AskerLink, int] = {}
        self._peers: dict[Peer, PeerLink] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
        if orders.tls is not None:
            self._contexts = orders.tls.make_server(), orders.tls.make_client()

    async def listen(self) -> list[asyncio.Server]:
        """On its local socket, and where other nodes reach it. Raises OSError."""
        loop = asyncio.get_running_loop()
        local = socket.socket(socket.AF_UNIX)
        local.bind("\0" + self._local)
        local.listen(1024)
        servers: list[asyncio.Server] = [await loop.create_unix_server(self._make_link, sock=local)]
        orders = self._orders
        if orders.bind is not None:
            accepting = self._contexts[0] if self._contexts is not None else None
            patience = HANDSHAKE_SECONDS if accepting is not None else None
            servers.append(
                await loop.create_server(
                    self._make_link,
                    orders.bind or None,
                    0,
                    ssl=accepting,
                    backlog=1024,
                    ssl_handshake_timeout=patience,
                )
            )
            port = servers[-1].sockets[0].getsockname()[1]
            self._remote = f"[{orders.host}]:{port}" if ":" in orders.host else f"{orders.host}:{port}"
        return servers

    def take_orders(self, orders: ServerOrders) -> None:
        """A newer table, or newer certificates. Raises OSError."""
        if orders.tls is not None and self._contexts is not None and orders.tls != self._orders.tls:
            orders.tls.renew(*self._contexts)
        if orders.table.version < self._orders.table.version:
            # The machine goes by the newest, so peers are found there.
            orders = replace(orders, table=self._orders.table)
        self._orders = orders
        for server in orders.table.servers:
            if (link := self._peers.get(server.incarnation)) is not None:
                link.follow_peer(server)
        is_newer = orders.table.version > self._machine.version
        self._do(TableRead(orders.table))
        if is_newer and orders.table.checkpoint == orders.table.version:
            self._save_part(orders.table)

    async def load_rows(self, orders: ServerOrders) -> None:
        """Before the first table with slots: what a checkpoint has of them. Pings are answered meanwhile.

        Raises OSError, PartDamaged, TableFull, Malformed.
        """
        table, machine = orders.table, self._machine
        if machine.has_begun or not table.serves or not table.restore or self._checkpoints is None:
            return
        roles = read_roles(table, orders.incarnation)
        wanted = roles.mine | roles.kept
        reader = PartReader(table.restore, wanted, machine.tables, machine.marks)
        if wanted.any():
            await asyncio.to_thread(_read_parts, reader, self._checkpoints, table.restore)
            if self._log is not None:
                self._log.need_base()
        machine.tables.note_restored(table.restore)
        if missing := int((wanted & ~reader.found).sum()):
            raise PartDamaged(f"checkpoint {table.restore} lacks {missing} slots")

    def _save_part(self, table: SlotTable) -> None:
        machine, slots = self._machine, self._machine.serving
        if self._checkpoints is not None and slots.any():
            number = table.servers[table.index_of(self._orders.incarnation)].number
            path = self._checkpoints.name_part(table.version, number)
            write = partial(write_part, path, table.version, slots, machine.tables, machine.marks)
            self._saver.save_part(table.version, path, write, machine.tables.shared)

    def _save_left_out(self) -> None:
        """The part of the table by which the server goes, if it orders one still."""
        table = self._orders.table
        if table.checkpoint == table.version == self._machine.version:
            self._save_part(table)

    def _take_saved(self, version: int) -> None:
        self._saved, self._saved_at = version, self._now()
        self.say_ready()

    def close(self) -> None:
        """Nothing of it goes on."""
        self._saver.close()
        self._bases.close()

    # -- the log ----------------------------------------------------------------------------------------------------

    async def read_log(self) -> None:
        """Is what the process was that has written it, before anybody can ask. What that wanted done may be done again.

        Raises OSError, PartDamaged, LogDamaged, TableFull, Malformed.
        """
        if (log := self._log) is None or log.is_new:
            return
        machine, turns, last = self._machine, 0, 0
        if log.base:
            every = np.ones(SLOTS, np.bool_)
            reader = PartReader(log.base, every, machine.tables, machine.marks, keeps_leases=True)
            await asyncio.to_thread(reader.read_part, log.base_path)
        for event in log.read_events():
            if isinstance(event, TableRead):
                self._orders = replace(self._orders, table=event.table)
                if not log.base:
                    await self.load_rows(self._orders)
            elif isinstance(event, ServerAsked):
                last = max(last, event.connection)
            turns -= isinstance(event, CopyTurn) and turns > 0  # one that was wanted before the base is no other's
            for effect in machine.on(event):
                turns += isinstance(effect, WantTurn)
                self._joined = effect.version if isinstance(effect, CopiesWhole) else self._joined
        self._numbers = count(last + 1)
        self._find_saved()
        for peer in machine.peers:
            self._do(PeerBroken(peer))
        for _ in range(turns):
            self._do(CopyTurn())
        rows = sum(each.count for each in machine.tables.list_rows())
        # Not to stderr, whose last line is taken for why a process has ended.
        print(f"this parameter server goes on with its log: it has {rows} rows", flush=True)

    def _find_saved(self) -> None:
        """The part of the last checkpoint, if it was written."""
        table, at = self._orders.table, self._orders.table.index_of(self._orders.incarnation)
        if self._checkpoints is not None and table.checkpoint and at >= 0:
            if self._checkpoints.name_part(table.checkpoint, table.servers[at].number).exists():
                self._saved = table.checkpoint
            else:
                self._save_left_out()

    def _try_base(self) -> None:
        """Begins the next log, if this one is long: from a state that rows and marks say all of."""
        if self._log is None or not self._log.is_long or not self._machine.is_settled:
            return
        machine, version = self._machine, self._machine.version
        number, path = self._log.begin_next()
        self._log.append_event(TableRead(self._orders.table))
        for spec in machine.tables.declared_specs:
            self._log.append_event(ServerAsked(0, OpenTable(spec, version)))
        write = partial(write_part, path, number, machine.serving, machine.tables, machine.marks)
        self._bases.save_part(number, path, write)

    def _end_base(self, number: int) -> None:
        if self._log is not None:
            self._log.end_base(number)

    def _miss_base(self, words: str) -> None:
        print_words(f"{words}: its log goes on")
        if self._log is not None:
            self._log.miss_base()

    # -- what happens -----------------------------------------------------------------------------------------------

    @property
    def failed(self) -> "asyncio.Future[None]":
        """Raises RowsMissing when it must end, and what an event has raised."""
        return self._failed

    def say_ready(self) -> None:
        """Where it listens."""
        self._ready(f"@{self._local}", self._remote, self._joined, self._saved)

    def _make_link(self) -> AskerLink:
        return AskerLink(self._take_asked, self._add_asker, self._lose_asker)

    def _add_asker(self, link: AskerLink) -> None:
        self._number_of[link] = number = next(self._numbers)
        self._askers[number] = link

    def _lose_asker(self, link: AskerLink) -> None:
        number = self._number_of.pop(link, 0)
        self._askers.pop(number, None)
        self._counters.forget_connection(number)

    def _take_asked(self, link: AskerLink, request: Request, arrays: Arrays) -> None:
        number = self._number_of[link]
        self._counters.begin_request(number, request, arrays, self._now())
        if reading := self._plan_reading(request, arrays):
            task = asyncio.create_task(
                self._read_first(reading, ServerAsked(number, request, arrays)), name="reads rows"
            )
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        else:
            self._do(ServerAsked(number, request, arrays))

    def _plan_reading(self, request: Request, arrays: Arrays) -> list[tuple[RecordFile, Array]]:
        """What of it is on disk, where that may take a while."""
        tables = self._machine.tables
        if tables.shared is None:
            return []
        match request:
            case PullRows(names):
                reading = tables.plan_reading(names, arrays)
            case PushGradients(names) | PrepareGradients(names):
                reading = tables.plan_reading(names, arrays[::2])
            case ForwardPush(_, names) | ForwardPrepare(_, names):
                reading = tables.plan_reading(names, arrays[::2])
            case _:
                return []
        return reading if sum(len(positions) for _, positions in reading) > FEW else []

    async def _read_first(self, reading: Sequence[tuple[RecordFile, Array]], asked: ServerAsked) -> None:
        """A request that comes a moment later: others are answered until the kernel has read what this one needs."""
        for file, positions in reading:
            await asyncio.to_thread(file.read_ahead, positions)
        self._do(asked)

    def _answer(self, connection: Connection, reply: Reply, arrays: Arrays) -> None:
        asked = self._counters.end_request(connection, reply, self._now())
        if (link := self._askers.get(connection)) is not None:
            link.answer(replace(reply, measure=self._measure()) if isinstance(asked, Ping) else reply, arrays)

    def _measure(self) -> ServerMeasure:
        """What it says of itself to whoever pings it."""
        machine, table = self._machine, self._orders.table
        before, self._waited = self._waited, machine.awaited
        waits = self._waited[1] if before[0] == self._waited[0] else ()  # for longer than a moment
        numbers = {each.incarnation: each.number for each in table.servers}
        return replace(
            self._counters.measure_server(machine.tables.list_rows()),
            copying=machine.copying,
            saved_ago=None if self._saved_at is None else self._now() - self._saved_at,
            awaits=tuple(sorted(numbers[peer] for peer in waits if peer in before[1] and peer in numbers)),
        )

    def _do(self, event: ServerEvent) -> None:
        """One that fails ends the server: what is half done must not go on."""
        if self._failed.done():
            return
        try:
            effects = self._machine.on(event)
            if self._log is not None:
                self._log.append_event(event)
            self._do_effects(effects)
            if (shared := self._machine.tables.shared) is not None and shared.space.starves:
                self._saver.give_up(shared.space.failure)
            self._try_base()
        except Exception as error:  # noqa: BLE001  whatever it is
            self._failed.set_exception(error)

    def _do_effects(self, effects: Sequence[ServerEffect]) -> None:
        for effect in effects:
            match effect:
                case AnswerAsker(connection, reply, arrays):
                    self._answer(connection, reply, arrays)
                case TellPeer(peer, request, arrays):
                    self._link_to(peer).tell_server(request, arrays)
                case HangUpPeer(peer):
                    self._hang_up(peer)
                case CopiesWhole(version):
                    self._joined = version
                    self.say_ready()
                case SayWords(words):
                    print_words(words)
                case WantTurn():
                    asyncio.get_running_loop().call_soon(self._do, CopyTurn())

    def _link_to(self, peer: Peer) -> PeerLink:
        if (link := self._peers.get(peer)) is None:
            table, me = self._orders.table, self._orders.incarnation
            server, mine = table.servers[table.index_of(peer)], table.servers[table.index_of(me)]
            same = server.node == mine.node
            dialling = self._contexts[1] if self._contexts is not None else None
            link = self._peers[peer] = PeerLink(
                server,
                same,
                dialling,
                lambda reply: self._do(PeerAnswered(peer, reply)),
                lambda: self._do(PeerBroken(peer)),
                print_words,
            )
        return link

    def _hang_up(self, peer: Peer) -> None:
        if (link := self._peers.pop(peer, None)) is not None:
            task = asyncio.create_task(link.close(), name="hangs up")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def print_words(words: str) -> None:
    """To people."""
    print(words, file=sys.stderr, flush=True)


def _read_parts(reader: PartReader, checkpoints: CheckpointFolder, version: int) -> None:
    """In a thread: a shared folder may be slow. Raises OSError, PartDamaged, TableFull, Malformed."""
    for path in checkpoints.read_parts(version):
        reader.read_part(path)


def share_of_memory(table: SlotTable) -> int:
    """Bytes for the rows of one server: half of what there is, divided by the servers of the node that has most."""
    on_node = Counter(place.node for place in table.places)
    return usable_memory() // (2 * max(on_node.values(), default=1))


async def serve(
    memory: int | None, checkpoints: CheckpointFolder | None, disk: DiskLimit | None, log: EventLog | None
) -> None:
    """Answers until stdin ends. Raises RowsMissing, OSError, Malformed, and as `load_rows` and `read_log` do."""
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    if not (line := await reader.readline()):
        return
    orders = decode(ServerOrders, line)
    memory = memory or share_of_memory(orders.table)
    process = ServedMachine(
        orders,
        log.keep_memory(memory) if log is not None else memory,
        lambda local, remote, joined, saved: print("ready:", local, remote, joined, saved, flush=True),
        checkpoints,
        disk,
        log,
    )
    await process.read_log()
    async with contextlib.AsyncExitStack() as stack:
        for server in await process.listen():
            stack.callback(server.close)
        process.say_ready()
        reading = asyncio.ensure_future(_read_orders(process, orders, reader))
        stack.callback(reading.cancel)
        stack.callback(process.close)
        await asyncio.wait((reading, process.failed), return_when=asyncio.FIRST_COMPLETED)
        for each in (process.failed, reading):
            if each.done():
                each.result()


async def _read_orders(process: ServedMachine, orders: ServerOrders, reader: asyncio.StreamReader) -> None:
    """Until stdin ends. Raises what `ServedMachine.load_rows` does."""
    while True:
        await process.load_rows(orders)
        process.take_orders(orders)
        if not (line := await reader.readline()):
            return
        orders = decode(ServerOrders, line)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", type=int)
    parser.add_argument("--disk", type=Path)
    parser.add_argument("--disk-size", type=int)
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--job", default="")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--log-bytes", type=int, default=SHORTEST)
    options = parser.parse_args()
    log = EventLog(options.log, options.log_bytes) if options.log else None
    try:
        disk = DiskLimit(options.disk, options.disk_size) if options.disk else None
        if disk is not None:
            disk.folder.mkdir(parents=True, exist_ok=True)
        compile_loops(disk)
    except OSError as error:
        sys.exit(f"this parameter server ends: rows cannot be written to {options.disk}: {error}")
    checkpoints = CheckpointFolder(options.checkpoints, options.job) if options.checkpoints else None
    process_limits.write_no_core()  # it would have the rows in it, and a key
    try:
        with process_limits.all_allowed():  # a connection from each worker and server
            asyncio.run(serve(options.memory, checkpoints, disk, log))
    except (PartDamaged, LogDamaged) as error:
        sys.exit(f"{UNREADABLE}: {error}")
    except (RowsMissing, TableFull, OSError, Malformed) as error:
        sys.exit(f"this parameter server ends: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
