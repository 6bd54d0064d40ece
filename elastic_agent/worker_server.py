"""Where this node's workers ask their agent, and who answers them; their side is `adapters/client/channel.py`."""

import asyncio
import secrets
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, get_args

from ..adapters.client.channel import MEMORY_SUFFIX, Back, Call, Kind
from ..master.data.ledger import Answer
from ..master.machine.memory_report import MemoryReport
from ..master.machine.pace import Stepped
from ..master.machine.parameter_servers import MOST_AWAITED, RankWait
from ..rendezvous import membership
from ..rendezvous.base.errors import StoreError
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.host.local_socket import is_own_peer
from ..rendezvous.keys import Keys
from ..rendezvous.rpc.acceptor import Acceptor
from ..rendezvous.rpc.envelope import Caller
from ..rendezvous.rpc.server import Method, Methods, Server
from ..rendezvous.store.contract import Store
from ..rendezvous.store.waits import Waits
from ..rendezvous.wire.frame import TooLong
from ..rendezvous.wire.values import decode_or_none
from .master_client import Link

if TYPE_CHECKING:
    from .memory_holder import MemoryHolder, MemoryPeers

CALL_SECONDS = 60.0
"""For the master's answer to one call."""

CURRENT_SECONDS = 10.0
"""For the store to say whether a round is the current one."""

STEPS: frozenset[Kind] = frozenset(("ledger", "saved", "steps"))
"""What only a worker asks that comes on."""

Respond = Callable[[Call], Awaitable[Back]]


@dataclass(frozen=True, slots=True)
class CallHandler:
    """Answers the workers' calls.

    Attributes:
        store, keys: where the job is.
        link: to the job's master.
        waits: what waits for the store on this node.
        saved: is told of a checkpoint, with the round in which it was written.
        leases: is told that a worker opens a dataset whose position is in checkpoints.
        current: what a round is called now whose workers went on into a later one.
        stepped: is told how many steps rank 0 has committed in its process.
        servers: what a worker is told of the job's parameter servers that knows this version, waits for some of them,
            and was started for this round; nothing: it has none.
    """

    store: Store
    keys: Keys
    link: Link
    waits: Waits
    saved: Callable[[int], None]
    leases: Callable[[], None] = lambda: None
    current: Callable[[int], int] = lambda round: round
    stepped: Callable[[Stepped], Awaitable[None]] | None = None
    servers: Callable[[int, RankWait, int], Awaitable[str]] | None = None

    async def answer(self, call: Call) -> Back:
        """The answer to one call, within CALL_SECONDS."""
        match call.kind:
            case "ledger":
                opened = call.request.dataset if call.request else None
                if opened and opened.tracking == "checkpoint":
                    self.leases()
                return await self._ask(call)
            case "current":
                return await self._is_current(self.current(call.round))
            case "saved":
                self.saved(call.round)
                return Back()
            case "steps":
                if call.rank == 0 and self.stepped:
                    memory = decode_or_none(MemoryReport, call.told.encode()) if call.told else None
                    await self.stepped(Stepped(self.current(call.round), call.steps, call.counter, memory))
                return Back()
            case "servers":
                wait = RankWait(call.rank, call.awaits[:MOST_AWAITED], call.seconds)
                return Back(told=await self.servers(call.steps, wait, call.round) if self.servers else "")
            case "clocks":
                return await self._ask_clocks(call)

    async def _ask_clocks(self, call: Call) -> Back:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self.link.tell_clocks(call)
        except TimeoutError:
            return Back(text=self._silence)

    @property
    def _silence(self) -> str:
        why = self.link.trouble or "it is silent"
        return f"the job's master has not answered for {CALL_SECONDS:g} s: {why}"

    async def _ask(self, call: Call) -> Back:
        if call.request is None:
            return Back(text="a call to the ledger without a request")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return Back(answer=await self.link.ask(call.request))
        except TimeoutError:
            return Back(text=self._silence)
        except TooLong as error:
            return Back(answer=Answer("refused", str(error)))

    async def _is_current(self, round: int) -> Back:
        try:
            async with asyncio.timeout(CURRENT_SECONDS):
                found = await self.waits.until_answered(
                    "a worker's question whether its round is the current one",
                    lambda: membership.read_header(self.store, self.keys),
                )
        except (TimeoutError, StoreError) as error:
            why = str(error) or f"it has not answered for {CURRENT_SECONDS:g} s"
            return Back(text=f"the store does not say whether round {round} is the current one: {why}")
        if found is None:
            return Back(text="the store holds no round of this job")
        header = found[0]
        # Preempted: all nodes leave, their scripts save, and no round follows in this run.
        if header.number == round and header.state in ("open", "preempted"):
            return Back(current=True, run=header.run)
        return Back(text=f"round {round} is over: the job is in round {header.number} ({header.state})")


class WorkerServer:
    """Listens for this node's workers on an abstract Unix socket, which leaves no file behind.

    Args:
        respond: answers a call.
        also: what other processes may ask.
        say: prints one line for a person.

    Attributes:
        address: for ELASTIC_RUN_AGENT, once it is started.
        calls: by rank, how often a worker has told of a checkpoint or of steps, or asked for data.
        rounds: by rank, for which round the worker was started that has last done so.
    """

    def __init__(self, respond: Respond, also: Methods, say: Callable[[str], None]) -> None:
        self.calls: Counter[int] = Counter()
        self.rounds: dict[int, int] = {}

        async def answer(caller: Caller, call: Call) -> Back:
            if caller.rank is not None and call.kind in STEPS:
                self.calls[caller.rank] += 1
                self.rounds[caller.rank] = call.round
            return await respond(call)

        methods = {**also, **{kind: Method(Call, answer) for kind in get_args(Kind)}}
        self._server = Server(methods, lets_in=is_own_peer, say=say)
        self._memory: MemoryHolder | None = None
        self._node: Callable[[], str] = str
        self._peers: MemoryPeers | None = None
        self._memory_acceptor: Acceptor | None = None
        self.address = ""

    async def start(self) -> None:
        """Raises OSError."""
        name = f"elastic-run-{secrets.token_hex(16)}"
        self._memory_acceptor = Acceptor(_bound(f"{name}{MEMORY_SUFFIX}"), self._let_in_memory, lambda _: None)
        self._memory_acceptor.start(1024)
        self._server.listen(_bound(name))
        self.address = f"@{name}"

    async def close(self) -> None:
        """Stops listening, hangs up on every worker, and gives up the memory that they have left here."""
        if self._memory_acceptor is not None:
            self._memory_acceptor.close()
        if self._memory is not None:
            self._memory.close()
        await self._server.close()

    def reach_peers(self, node: Callable[[], str], peers: "MemoryPeers") -> None:
        """Before `start`: the memory of other nodes; `node` gives this agent's name."""
        self._node, self._peers = node, peers

    @property
    def memory(self) -> "MemoryHolder":
        """What workers have left here."""
        if self._memory is None:
            from .memory_holder import MemoryHolder  # most jobs have nothing to hold

            self._memory = MemoryHolder(self._node, self._peers)
        return self._memory

    def _let_in_memory(self, connection: socket.socket) -> None:
        self.memory.let_in(connection)


def _bound(name: str) -> socket.socket:
    """An abstract socket of that name. Raises OSError."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.bind(f"\0{name}")
    except OSError:
        found.close()
        raise
    return found
