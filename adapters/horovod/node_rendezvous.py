"""Where the Horovod workers of one node find those of the job: a process beside them, as long as the job.

Each worker has a port of its own on loopback, where nothing is read of another user's process, so what it asks is known
to be its. What it tells the others goes to the store of its round (`round_store.py`), which is on the node of rank 0:
there directly, from elsewhere over one listener, on the port that elastic-run holds for the round. In the next round it
is another node's, if that of rank 0 is lost, and no worker notices.

A worker that uses `hvd.elastic` registers here before it trains. From then on it keeps its process when the membership
changes, and this process tells the agent what a worker that imports elastic-run would tell it itself
(`client/rounds.py`): that it stays, that it has left its process group (Horovod asks for its new rank then), and that
the next one stands. Of a planned change Horovod tells all workers through rank 0.
"""

import asyncio
import contextlib
import json
import os
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...rendezvous.base.plural import ranks
from ...rendezvous.host.local_socket import connected, is_own_peer
from ...rendezvous.identity.contexts import written_pair
from ...rendezvous.wire.frame import framed, read_frame
from ...rendezvous.wire.values import decode, encode
from ..client.channel import SUFFIX, News, Word
from ..client.context import AGENT
from ..client.rounds import CONNECT_SECONDS
from . import messages
from .adapter import TIMEOUT, TIMEOUT_SECONDS
from .interfaces import interface_to
from .rank_assignment import RankAssignment, assign, read_assignment
from .requests import BadRequest, Request, ask, serve
from .round_store import RoundStore

ARRIVE_SECONDS = 5.0
"""For one question whether all are there; then it is asked again, of a node that may be gone."""

PATIENCE_SECONDS = 30.0
"""After so long it is said whom the others wait for."""

AGAIN_SECONDS = 0.2
"""Before what another node did not answer is asked again."""

NOTIFY_SECONDS = 2.0
"""Between two notifications of the same change: a worker that has just begun to listen may miss one."""

SEND_SECONDS = 5.0
"""For one notification."""


@dataclass(frozen=True, slots=True)
class Told:
    """A round, as the agent has told it.

    Attributes:
        workers: how many each node has, by its rank.
        hosts: of the nodes, by their ranks.
        node: this node's rank.
        listens, dials: what TLS is spoken with between nodes; None: no TLS.
    """

    number: int
    workers: tuple[int, ...]
    hosts: tuple[str, ...]
    node: int
    master_addr: str
    master_port: int
    listens: ssl.SSLContext | None = None
    dials: ssl.SSLContext | None = None

    @property
    def world_size(self) -> int:
        return sum(self.workers)


def told_by(line: bytes) -> Told:
    found: dict[str, Any] = json.loads(line)  # Any: JSON
    peers: list[dict[str, Any]] = found["peers"]
    by_node: dict[int, list[str]] = {}
    for peer in peers:
        by_node.setdefault(int(peer["node"]), []).append(str(peer["host"]))
    nodes = [by_node[number] for number in sorted(by_node)]
    listens, dials = written_pair(found["tls"]) if "tls" in found else (None, None)
    return Told(
        number=int(found["round"]),
        workers=tuple(len(hosts) for hosts in nodes),
        hosts=tuple(hosts[0] for hosts in nodes),
        node=int(found["node_rank"]),
        master_addr=str(found["master_addr"]),
        master_port=int(found["master_port"]),
        listens=listens,
        dials=dials,
    )


class RemoteStore:
    """The `RoundStore` of another node. Each call goes on until that answers: who waits for it ends before."""

    def __init__(self, told: Told) -> None:
        self._told = told

    async def arrive(self, rank: int, seconds: float) -> bool:
        """The other end decides how long it waits."""
        return await self._ask("GET", f"arrive/{rank}") is not None

    async def carry_out(self, method: str, key: str, value: bytes) -> bytes | None:
        """As there."""
        return await self._ask(method, f"value/{key}", value)

    async def _ask(self, method: str, what: str, body: bytes = b"") -> bytes | None:
        told = self._told
        while True:
            with contextlib.suppress(OSError, EOFError, BadRequest, TimeoutError):
                async with asyncio.timeout(4 * ARRIVE_SECONDS):
                    asked = Request(method, f"/{told.number}/{what}", body)
                    return await ask(told.master_addr, told.master_port, asked, told.dials)
            await asyncio.sleep(AGAIN_SECONDS)


async def respond_from(store: RoundStore, number: int, request: Request) -> bytes | None:
    """Answers other nodes' `RemoteStore`s."""
    parts = request.path.split("/", 3)
    if len(parts) != 4 or parts[1] != str(number):
        return None
    match request.method, parts[2], parts[3]:
        case "GET", "arrive", rank if rank.isascii() and rank.isdigit():
            return b"" if await store.arrive(int(rank), ARRIVE_SECONDS) else None
        case method, "value", key:
            return await store.carry_out(method, key, request.body)
        case _:
            return None


@dataclass(slots=True, eq=False)
class Live:
    """A round that workers are in."""

    told: Told
    store: RoundStore | RemoteStore
    listening: asyncio.Server | None = None
    saying: "asyncio.Task[None] | None" = None

    def close(self) -> None:
        """It is over for everybody."""
        if self.listening is not None:
            self.listening.close()
        if self.saying is not None:
            self.saying.cancel()


@dataclass(slots=True, eq=False)
class LocalWorker:
    """One worker of this node, from its start on, or from the start of the one that it would replace.

    Attributes:
        live: the round that it is in.
        assignment: in that round; None: it has not come yet.
        registered: where it can be notified; None: it does not use `hvd.elastic`, or not yet.
    """

    node: "NodeRendezvous"
    local_rank: int
    live: Live
    assignment: RankAssignment | None = None
    registered: messages.Registered | None = None
    server: asyncio.Server | None = None
    agent: asyncio.StreamWriter | None = None
    planned: int = 0
    over: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    assigned: Mapping[str, str] = field(default_factory=dict[str, str])
    assigned_round: int = 0
    strangers: int = 0
    tasks: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])

    @property
    def port(self) -> int:
        """Where it asks."""
        assert self.server is not None
        return self.server.sockets[0].getsockname()[1]

    async def listen(self) -> None:
        """Begins to. Raises OSError."""
        self.server = await asyncio.start_server(self._serve_own, "127.0.0.1", 0)

    async def _serve_own(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if is_own_peer(writer.get_extra_info("socket")):
            await serve(self.respond, reader, writer)
            return
        writer.transport.abort()
        if not self.strangers:
            say(f"local rank {self.local_rank}: a connection that is not of this user's process was closed unread")
        self.strangers += 1

    def close(self) -> None:
        """It has ended, or will at once."""
        if self.server is not None:
            self.server.close()
        if self.agent is not None:
            self.agent.close()
        for task in self.tasks:
            task.cancel()

    async def respond(self, request: Request) -> bytes | None:
        """What the worker asks, in its words."""
        scope, _, key = request.path.lstrip("/").partition("/")
        match request.method, scope:
            case "PUT", "worker_addresses":
                await self._register(request.body)
                return b""
            case "GET", "rank_and_size":
                return (await self._initialize_again()).answer
            case "PUT", "global" if key.startswith("rank_") and self.assignment is None:
                told = self.live.told
                self.assignment = assign(int(key.removeprefix("rank_")), self.local_rank, told.node, told.workers)
                await self._all_there()
            case _:
                pass
        found = await self.live.store.carry_out(request.method, f"{scope}/{key}", request.body)
        if request.method == "DELETE" and scope.startswith("cross_") and "_process_set_" not in request.path:
            self._say(Word("formed", self.live.told.number))  # this was the last of three scopes
        return found

    async def _all_there(self) -> bool:
        """Waits until all workers of its round have come; False where that is over before."""
        assert self.assignment is not None
        while self.over <= self.live.told.number:
            arriving = asyncio.ensure_future(self.live.store.arrive(self.assignment.rank, ARRIVE_SECONDS))
            heard = asyncio.ensure_future(self.news.wait())
            try:
                await asyncio.wait((arriving, heard), return_when=asyncio.FIRST_COMPLETED)
                if arriving.done() and arriving.result():
                    return True
            finally:
                self.news.clear()
                for each in (arriving, heard):
                    each.cancel()
                await asyncio.gather(arriving, heard, return_exceptions=True)
        return False

    async def _initialize_again(self) -> RankAssignment:
        """Its rank assignment in the next round, when all workers of that have come."""
        if self.agent is None:  # the script has shut Horovod down, and continues as before
            assert self.assignment is not None
            return self.assignment
        why = "" if self.planned > self.live.told.number else "an operation of Horovod failed"
        while True:
            left = self.live.told.number
            self._say(Word("next", left, text=why))
            while self.assigned_round <= left or (live := self.node.rounds.get(self.assigned_round)) is None:
                self.news.clear()
                await self.news.wait()
            self.live, self.assignment = live, read_assignment(self.assigned)
            if await self._all_there():
                return self.assignment
            why = ""

    # The agent.

    async def _register(self, body: bytes) -> None:
        """It keeps its process from now on. A worker that registers is connected to the others."""
        try:
            self.registered = messages.read_registration(body)
        except messages.Unexpected as error:
            say(
                f"local rank {self.local_rank} is restarted when the membership changes: what it registers is not "
                f"understood ({error})"
            )
            return
        if self.agent is not None or not (agent := os.environ.get(AGENT)):
            return
        connection = await asyncio.to_thread(connected, f"{agent}{SUFFIX}", CONNECT_SECONDS)
        connection.setblocking(False)
        reader, self.agent = await asyncio.open_unix_connection(sock=connection)
        number = self.live.told.number
        self._say(Word("stay", number, local_rank=self.local_rank))
        self._say(Word("formed", number))
        self._say(Word("state", number, count=1, seconds=self.node.leaving_seconds))
        self._begin(self._hear(reader))

    def _say(self, word: Word) -> None:
        if self.agent is not None:
            self.agent.write(framed(encode(word)))

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Takes the agent's news, until it forgets the worker."""
        with contextlib.suppress(OSError):
            while (body := await read_frame(reader)) is not None:
                news = decode(News, body)
                match news.kind:
                    case "assignment":
                        self.assigned = dict(each.split("=", 1) for each in news.environment)
                        self.assigned_round = news.round
                    case "planned":
                        self.planned = max(self.planned, news.round)
                        self._notify(news.round)
                    case "over":
                        self.over = max(self.over, news.round)
                        self._notify(news.round)
                self.news.set()
        self.node.forget(self)

    def _notify(self, number: int) -> None:
        """Through rank 0, at their next commit, all workers leave for this round."""
        if self.assignment and self.assignment.rank == 0 and self.registered and number > self.live.told.number:
            self._begin(self._keep_notifying(number, self.registered))

    async def _keep_notifying(self, number: int, to: messages.Registered) -> None:
        left = self.live
        while self.live is left and self.assigned_round < number:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(SEND_SECONDS):
                    await notify(to, number)
            await asyncio.sleep(NOTIFY_SECONDS)

    def _begin(self, work: Any) -> None:  # Any: a coroutine of whatever it yields
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


async def notify(to: messages.Registered, number: int) -> None:
    """Tells a worker that the membership is about to change. Raises OSError, EOFError."""
    failed: OSError | None = None
    for host, port in to.addresses:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            failed = error
            continue
        try:
            writer.write(messages.hosts_updated(number, to.secret))
            await reader.readexactly(1)  # of its answer, a pickle that nobody needs
        finally:
            writer.close()
        return
    if failed:
        raise failed


class NodeRendezvous:
    def __init__(self) -> None:
        self.rounds: dict[int, Live] = {}  # of which the agent has told here, by number
        self._workers: list[LocalWorker] = []
        seconds = os.environ.get(TIMEOUT, "")
        # A worker whose silent peer is lost leaves after Horovod's time-out; the agent doubles this, and adds one.
        self.leaving_seconds = (int(seconds) if seconds.isdigit() else TIMEOUT_SECONDS) / 2 + 1

    def forget(self, worker: LocalWorker) -> None:
        worker.close()
        if worker in self._workers:
            self._workers.remove(worker)

    async def enter(self, told: Told) -> str:
        """Serves this round; what the workers that start in it have to know. Raises OSError."""
        for number in [number for number in self.rounds if number < told.number - 1]:
            self.rounds.pop(number).close()
        for worker in [
            each for each in self._workers if each.agent is None and each.live.told.number < told.number - 1
        ]:
            self.forget(worker)
        live = self.rounds[told.number] = await self._open(told)
        begun = [LocalWorker(self, local, live) for local in range(told.workers[told.node])]
        for worker in begun:
            await worker.listen()
        self._workers += begun
        for worker in self._workers:
            worker.news.set()
        others = [host for number, host in enumerate(told.hosts) if number != told.node]
        return " ".join((interface_to(told.hosts[told.node], others) or "-", *(str(each.port) for each in begun)))

    async def _open(self, told: Told) -> Live:
        if told.node != 0:
            return Live(told, RemoteStore(told))
        store = RoundStore(told.world_size)
        live = Live(told, store, saying=asyncio.ensure_future(say_who_is_missing(store, told.number)))
        if len(told.workers) > 1:
            live.listening = await listen_for_nodes(told, partial(serve, partial(respond_from, store, told.number)))
        return live


async def listen_for_nodes(told: Told, serving: Any) -> asyncio.Server:  # Any: of asyncio's many kinds
    """On the address by which other nodes call this one, where it is one of this machine's. Raises OSError."""
    try:
        return await asyncio.start_server(serving, told.master_addr, told.master_port, ssl=told.listens)
    except OSError:
        return await asyncio.start_server(serving, None, told.master_port, ssl=told.listens)


async def say_who_is_missing(store: RoundStore, number: int) -> None:
    """While some workers wait for others, a line says for whom."""
    while True:
        await asyncio.sleep(PATIENCE_SECONDS)
        if store.awaited:
            say(f"round {number}: waiting for {ranks(store.missing)} to call hvd.init")


def say(line: str) -> None:
    print(line, flush=True)


async def run() -> None:
    """Serves one round after the other, until its agent has no more."""
    reader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    rendezvous = NodeRendezvous()
    while line := await reader.readline():
        say(f"ready: {await rendezvous.enter(told_by(line))}")


def main() -> None:
    try:
        asyncio.run(run())
    except OSError as error:
        sys.exit(f"cannot listen for Horovod's workers, which need this machine to have 127.0.0.1: {error}")
