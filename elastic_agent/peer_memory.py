"""Reads what other nodes hold in memory, and lets them read what this one holds, agent to agent."""

import asyncio
import base64
from collections.abc import Callable
from typing import Annotated

from ..adapters.client.memory_channel import RANGE_BYTES, MemoryRequest
from ..rendezvous import failure_detector
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.keys import Keys
from ..rendezvous.member import Member
from ..rendezvous.rpc.client import Connection
from ..rendezvous.rpc.envelope import Caller, RpcError, Security
from ..rendezvous.rpc.server import Method, Methods
from ..rendezvous.store.contract import Store
from ..rendezvous.wire.values import Malformed, Text, decode
from .memory_holder import MemoryHolder, NotHeld

MEMORY = "memory"
"""The method that takes a `MemoryRequest` of the kind "read" and gives a `MemoryRange`."""

SECONDS = 20.0
"""For one range of bytes."""

MOST_CHARACTERS = RANGE_BYTES * 4 // 3 + 4


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """The bytes that were asked for, in base64."""

    data: Annotated[str, Text(MOST_CHARACTERS)]


class PeerMemory:
    """This agent's connections to the others, for what they hold: one to each, dialled when something is asked.

    Args:
        store, keys: where the nodes are registered.
        caller: who this agent is.
        security: what the others must have and speak.
    """

    def __init__(self, store: Store, keys: Keys, caller: Callable[[], Caller], security: Security) -> None:
        self._store, self._keys = store, keys
        self._caller, self._security = caller, security
        self._connections: dict[str, Connection] = {}
        self._dialling: dict[str, asyncio.Lock] = {}

    async def read(self, request: MemoryRequest) -> bytes:
        """Bytes that `request.node` holds. Raises NotHeld, OSError, RendezvousError."""
        connection = await self._connected(request.node)
        try:
            found = await connection.ask(MEMORY, request, MemoryRange, SECONDS)
        except RpcError as error:
            raise NotHeld(str(error)) from None
        return base64.b64decode(found.data)

    async def close(self) -> None:
        """Hangs up."""
        for each in self._connections.values():
            await each.close()

    async def _connected(self, node: str) -> Connection:
        async with self._dialling.setdefault(node, asyncio.Lock()):
            if (known := self._connections.get(node)) is not None and not known.lost:
                return known
            found = await self._store.get(self._keys.node(node))
            if found is None:
                raise NotHeld(f"node {node} is not registered")
            try:
                member = decode(Member, found.value)
            except Malformed as error:
                raise NotHeld(f"node {node} has registered as another version does: {error}") from None
            reader, writer = await failure_detector.dial(
                member.agent_address, member.incarnation, self._security.client
            )
            made = self._connections[node] = Connection(reader, writer, f"node {node}", self._caller())
            return made


def methods(memory: Callable[[], MemoryHolder]) -> Methods:
    """What other agents may ask this one."""

    async def read(_: Caller, request: MemoryRequest) -> MemoryRange:
        try:
            data = memory().read_range(request)
        except (NotHeld, OSError) as error:
            raise RpcError("moved", str(error)) from None
        return MemoryRange(base64.b64encode(data).decode())

    return {MEMORY: Method(MemoryRequest, read)}
