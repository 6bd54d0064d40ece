"""A job's servers as they are, with the planner of their slots, in one thread.

What agents and the leader do is done at once.
Each server has its sockets and its machine, and may be killed; what it had is gone then, and another one is started in
its place. Each hears of a new slot table after a moment of its own, as does the workers' agent.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Generator
from typing import Any

from elastic_run.adapters.servers.job_servers import ServerOrders
from elastic_run.adapters.servers.server import ServedMachine
from elastic_run.master.servers.placement import ServersWanted, plan_slots
from elastic_run.master.servers.slot_table import NOBODY, RunningServer, SlotTable
from elastic_run.rendezvous.identity.servers import ServersTls

from .many_servers import DoubleSource

ENOUGH = 30.0
"""Seconds that no test takes."""

LOCALHOST = "127.0.0.1"

MOMENT = 0.02
"""Seconds that the news of a table take at most."""


class HostedServer:
    """One server.

    Attributes:
        running: as its agent registers it.
    """

    def __init__(self, number: int, node: str, incarnation: str, servers: "RealServers") -> None:
        self.running = RunningServer(number, incarnation, node)
        self._servers = servers
        self._process = ServedMachine(
            ServerOrders(SlotTable(), incarnation, LOCALHOST, LOCALHOST), 1 << 24, self._say_ready
        )
        self._listening: list[asyncio.Server] = []

    def _say_ready(self, local: str, remote: str, joined: int, _: int) -> None:
        was = self.running
        self.running = RunningServer(was.number, was.incarnation, was.node, local, remote, joined)
        self._servers.plan()

    async def start(self) -> None:
        self._listening = await self._process.listen()
        self._process.say_ready()

    def tell(self, table: SlotTable) -> None:
        self._process.take_orders(ServerOrders(table, self.running.incarnation, LOCALHOST, LOCALHOST))
        if self._process.failed.done() and not self._process.failed.cancelled():
            self._servers.wrong.append(str(self._process.failed.exception()))

    def hang_up(self) -> None:
        """Loses its workers' connections, and those of other servers."""
        process: Any = self._process  # Any: what is private there
        for link in list(process._askers.values()):
            if link._transport is not None:
                link._transport.abort()

    async def end(self) -> None:
        """As a process that is killed."""
        self._process.failed.cancel()
        process: Any = self._process  # as above
        loop = asyncio.get_running_loop()
        for server in self._listening:
            for each in server.sockets:
                loop.remove_reader(each.fileno())
        for _ in range(5):  # a connection that is being accepted while asyncio's server closes would be left open
            await asyncio.sleep(0)
        for server in self._listening:
            server.close()
        for link in list(process._peers.values()):
            await link.close()
        for _ in range(5):  # what is accepted comes to be known in a turn of the loop after that
            self.hang_up()
            await asyncio.sleep(0)


class RealServers:
    """The servers of a job.

    Args:
        wanted: how many.
        nodes: the names of nodes that there are, with one agent each.
        draw: how long news take.

    Attributes:
        known: the slot table that the workers' agent has.
        table: the newest.
        wrong: what must not happen.
    """

    node = "a"
    worker_tls: ServersTls | None = None

    def __init__(self, wanted: ServersWanted, nodes: list[str], draw: random.Random) -> None:
        self._wanted, self._draw = wanted, draw
        self.nodes = nodes
        self.known = self.table = SlotTable()
        self.wrong: list[str] = []
        self.ends = contextlib.ExitStack()
        self._hosted: dict[int, HostedServer] = {}  # by number
        self._starting: set[int] = set()
        self._made: list[HostedServer] = []  # all that ever were: what is left of their connections is closed at last
        self._sources: list[DoubleSource] = []
        self.waits: list[tuple[tuple[int, ...], float]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def source(self) -> DoubleSource:
        made = DoubleSource(self)
        self._sources.append(made)
        return made

    def plan(self) -> None:
        """What the leader does when something has changed, and each agent then. In the loop's thread."""
        running = [each.running for each in self._hosted.values()]
        while (planned := plan_slots(self.table, running, self.nodes, self._wanted)) is not self.table:
            self.table = planned
            if planned.lost:
                self.wrong.append(planned.lost)
        for each in self._hosted.values():
            self._loop.call_later(self._draw.uniform(0, MOMENT), each.tell, self.table)
        self._loop.call_later(self._draw.uniform(0, MOMENT), self._tell_agent, self.table)
        wanted = {(place.number, place.node) for place in self.table.places}
        for number, each in self._hosted.items():
            if (number, each.running.node) not in wanted:
                self._spawn(self._end(number))
        for place in self.table.places:
            if place.number not in self._hosted and place.number not in self._starting:
                self._starting.add(place.number)
                self._spawn(self._start(place.number, place.node))

    def _tell_agent(self, table: SlotTable) -> None:
        if table.version > self.known.version:
            self.known = table
            for each in self._sources:
                each.look()

    def _spawn(self, what: Any) -> None:  # Any: a coroutine
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, number: int, node: str) -> None:
        await asyncio.sleep(self._draw.uniform(0, 5 * MOMENT))
        made = HostedServer(number, node, f"server-{number}-{len(self._made)}", self)
        self._made.append(made)
        await made.start()
        self._starting.discard(number)
        self._hosted[number] = made
        self.plan()

    async def _end(self, number: int) -> None:
        if (found := self._hosted.pop(number, None)) is not None:
            await found.end()
            await asyncio.sleep(self._draw.uniform(0, MOMENT))
            self.plan()

    def _call(self, what: Any) -> None:  # as above
        asyncio.run_coroutine_threadsafe(what, self._loop).result(ENOUGH)

    def kill(self, draw: random.Random) -> bool:
        """One of them, where each slot has a backup."""
        if not self.table.serves or NOBODY in self.table.backup or not self._hosted:
            return False
        self._call(self._end(draw.choice(sorted(self._hosted))))
        return True

    def hang_up(self, draw: random.Random) -> None:
        """All connections to one of them."""

        async def do() -> None:
            if self._hosted:
                self._hosted[draw.choice(sorted(self._hosted))].hang_up()

        self._call(do())

    def set_nodes(self, nodes: list[str]) -> None:
        """Those that servers may be on: the others are left, and give away what they have."""

        async def do() -> None:
            self.nodes = nodes
            self.plan()

        self._call(do())

    def start(self) -> None:
        async def do() -> None:
            self.plan()

        self._thread.start()
        self._call(do())

    def stop(self) -> None:
        async def do() -> None:
            for task in list(self._tasks):
                task.cancel()
            for each in self._hosted.values():
                await each.end()
            await asyncio.sleep(0.01)
            left: Any = self._loop  # Any: its transports are private
            for transport in list(left._transports.values()):
                transport.abort()  # one that was just accepted, or was given up while it was made
            await asyncio.sleep(0.01)

        self._call(do())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ENOUGH)
        self._loop.close()


@contextlib.contextmanager
def real_servers(wanted: ServersWanted, nodes: list[str], draw: random.Random) -> Generator[RealServers]:
    """They run; workers await the first table."""
    made = RealServers(wanted, nodes, draw)
    made.start()
    try:
        yield made
    finally:
        made.ends.close()
        made.stop()
    assert made.wrong == []
