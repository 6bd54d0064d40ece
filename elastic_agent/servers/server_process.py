"""One parameter server: a process of this node, told of each table of slots, heard, and looked at."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

from ...adapters.contract import Service
from ...adapters.servers.job_servers import ServerOrders
from ...master.diagnosis.evidence import HALTED
from ...master.machine.parameter_servers import ServerMeasure, ServerReport, ServerState
from ...master.servers.slot_table import RunningServer
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.values import encode
from ..workers.services import GRACE_SECONDS, Services
from .silence import PAUSE, WORKING, await_silence, read_activity, read_resident

ANSWERED = 2.0 + PAUSE
"""Seconds for which an answer counts as one of a moment ago: this process may be late itself."""

MODULE = "elastic_run.adapters.servers.server"


@dataclass(eq=False, repr=False)
class ServerProcess:
    """From its start to its end. Another one in its place is another incarnation.

    Args:
        number: of its place.
        services: of this process alone.
        changed: is called when it is given up.
        patience: seconds for which it may be silent, once it was ready, and not at work (`silence.py`).
        ready_seconds: that it has to be ready.

    Attributes:
        arguments: what follows the interpreter.
        incarnation: its own, or that of the one whose log it reads.
        rows_from: `SlotTable.rows_from` when it was started.
        ready: it was.
        hung: why it is given up, though it lives, as the rest of a sentence; empty where it is not.
        registered: its lease and what it said, as the store has it; None: the store has nothing of it.
        revision: of the store, that wrote it; 0: none did.
    """

    number: int
    _services: Services
    _changed: Callable[[], None]
    _patience: float
    _ready_seconds: float

    def __post_init__(self) -> None:
        self.arguments: tuple[str, ...] = ("-m", MODULE)
        self.incarnation = secrets.token_hex(8)
        self.rows_from = 0
        self.ready = False
        self.hung = ""
        self.registered: tuple[int, RunningServer] | None = None
        self.revision = 0
        self._told: ServerOrders | None = None
        self._now = asyncio.get_running_loop().time
        self._heard_at = self._now()  # when it has answered last, or was started
        self._pid, self._measure = 0, ServerMeasure()
        self._activity = ("", 0)  # as of the last look
        self._looking: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """It has, or it is given up."""
        return bool(self.hung) or not self._services.alive

    @property
    def failure(self) -> str:
        """Why it has ended, in words."""
        return f"server {self.number} {self.hung}" if self.hung else self._services.failure or "a server has ended"

    async def start(self, orders: ServerOrders, python: Sequence[str], environment: Mapping[str, str]) -> None:
        """Raises StartFailed, with words."""
        self._told, self.rows_from = orders, orders.table.rows_from
        service = Service(f"server {self.number}", self.arguments, "job")
        await self._services.enter((service,), encode(orders) + b"\n", python, environment)
        self._looking = asyncio.create_task(self._wait_until_ready(), name=f"server {self.number} is ready")

    def tell_orders(self, orders: ServerOrders) -> None:
        """Has it know these orders, unless it does already."""
        if orders != self._told:
            self._told = orders
            self._services.tell(encode(orders) + b"\n", answers=False)

    def listen(self, node: str) -> RunningServer | None:
        """What it says of itself, on that node; None where it is not ready yet, or cannot be understood."""
        said = next(iter(self._services.said.values()), "")
        if not said:
            return None
        try:
            local, remote, *numbers = said.split(" ")
            joined, saved = map(int, numbers)
        except ValueError:
            self._give_up(f"has said {said!r}, which is not where it listens")
            return None
        if not self.ready and self._looking is not None:
            self.ready, self._heard_at = True, self._now()
            self._looking.cancel()
            self._looking = asyncio.create_task(self._notice_silence(local), name=f"server {self.number} answers")
        remote = "" if remote == "-" else remote
        return RunningServer(self.number, self.incarnation, node, local, remote, joined, saved, self.rows_from)

    def describe(self) -> ServerReport:
        """How it is now; whose slots it has, others know."""
        seconds = self._now() - self._heard_at
        if not self.ready or self.ended:
            return ServerReport(self.number, self.incarnation, "starting", seconds)
        before, self._activity = self._activity, read_activity(self._pid)
        state: ServerState = "silent"
        if self._activity[0] in HALTED:
            state = "stopped"
        elif seconds < ANSWERED:
            state = "answers"
        elif self._activity[0] in WORKING or (before[0] and self._activity[1] != before[1]):
            state = "works"
        resident = read_resident(self._pid)
        return ServerReport(self.number, self.incarnation, state, seconds, resident=resident, measure=self._measure)

    def pause(self) -> None:
        """Stops it where it is."""
        self._services.pause()

    def resume(self) -> None:
        """Lets it continue."""
        self._services.resume()

    async def end(self, *, at_once: bool = False) -> None:
        """Ends it, and looks at it no more."""
        if self._looking is not None:
            self._looking.cancel()
        await self._services.end(("job",), 0.0 if at_once else GRACE_SECONDS)

    async def _wait_until_ready(self) -> None:
        await asyncio.sleep(self._ready_seconds)
        self._give_up(f"was not ready within {self._ready_seconds:g} s")

    async def _notice_silence(self, address: str) -> None:
        silent = await await_silence(address, self._patience, self._take_measure)
        self._give_up(f"has not answered for {silent:g} s")

    def _take_measure(self, pid: int, measure: ServerMeasure) -> None:
        self._heard_at, self._pid, self._measure = self._now(), pid, measure
        self._activity = read_activity(pid)

    def _give_up(self, why: str) -> None:
        self.hung = why
        self._changed()
