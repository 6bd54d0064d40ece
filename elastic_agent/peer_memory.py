"""Reads what other nodes hold in memory, copies to them what this one holds, and lets them do the same, by agents."""

import asyncio
import base64
from collections.abc import Callable
from typing import Annotated

from ..adapters.client.memory_channel import RANGE_BYTES, MemoryRequest
from ..adapters.client.memory_state import HEADER_BYTES
from ..rendezvous import failure_detector
from ..rendezvous.base.errors import RendezvousError
from ..rendezvous.base.frozen import dataclass, replace
from ..rendezvous.keys import Keys
from ..rendezvous.membership import read_member
from ..rendezvous.rpc.client import Connection
from ..rendezvous.rpc.envelope import Caller, Nothing, RpcError, Security
from ..rendezvous.rpc.server import Method, Methods
from ..rendezvous.store.contract import Store
from ..rendezvous.wire.values import Text
from .memory_holder import MemoryHolder, NotHeld

MEMORY = "memory"
"""The method that takes a `MemoryRequest` of the kind "read" and gives a `MemoryRange`."""

COPY = "memory_copy"
"""The method that takes a `MemoryPush` and gives `Nothing`."""

SECONDS = 20.0
"""For one range of bytes."""

RATE = 64 << 20
"""Bytes a second that this node sends of copies, at most: the agent has other things to do, and so has the network."""

AGAIN_SECONDS = 2.0
"""Until a copy that came to nothing is tried again."""

MOST_CHARACTERS = RANGE_BYTES * 4 // 3 + 4


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """The bytes that were asked for, in base64."""

    data: Annotated[str, Text(MOST_CHARACTERS)]


@dataclass(frozen=True, slots=True)
class MemoryPush:
    """Bytes of a copy, in base64; `range`: which of which generation, of the kind "replicate"."""

    range: MemoryRequest
    data: Annotated[str, Text(MOST_CHARACTERS)]


class PeerMemory:
    """This agent's connections to the others, for what they hold: one to each, dialled when something is asked.

    Args:
        store, keys: where the nodes are registered.
        caller: who this agent is.
        security: what the others must have and speak.
        memory: what this node holds.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        caller: Callable[[], Caller],
        security: Security,
        memory: Callable[[], MemoryHolder],
    ) -> None:
        self._store, self._keys = store, keys
        self._caller, self._security = caller, security
        self._connections: dict[str, Connection] = {}
        self._dialling: dict[str, asyncio.Lock] = {}
        self._memory = memory
        self._copying: dict[tuple[str, str], tuple[MemoryRequest, asyncio.Task[bool]]] = {}  # by holder and part
        self._turn = asyncio.Lock()  # one range at a time, of all copies

    async def read(self, request: MemoryRequest) -> bytes:
        """Bytes that `request.node` holds. Raises NotHeld, OSError, RendezvousError."""
        connection = await self._connected(request.node)
        try:
            found = await connection.ask(MEMORY, request, MemoryRange, SECONDS)
        except RpcError as error:
            raise NotHeld(str(error)) from None
        return base64.b64decode(found.data)

    def replicate(self, request: MemoryRequest) -> bool:
        """Copies a generation to `request.node`, unless it is on its way; whether that node has it by now."""
        known = self._copying.get((request.holder, request.part))
        if known is None or known[0] != request:
            if known is not None:
                known[1].cancel()
            held = self._memory().held.get(request.holder, {})
            for holder, part in [each for each in self._copying if each[0] == request.holder and each[1] not in held]:
                self._copying.pop((holder, part))[1].cancel()  # of a round that is over
            task = asyncio.get_running_loop().create_task(self._copy(request), name="copies memory to another node")
            known = self._copying[request.holder, request.part] = request, task
        return known[1].done() and not known[1].cancelled() and known[1].result()

    async def finish(self, request: MemoryRequest) -> None:
        """Returns when that copy is there. Raises KeyError where it was not begun."""
        await asyncio.shield(self._copying[request.holder, request.part][1])

    async def _copy(self, request: MemoryRequest) -> bool:
        """Until the other node has it; False: this one has it no more."""
        while True:
            try:
                for begin in (*range(HEADER_BYTES, request.size, RANGE_BYTES), 0):
                    end = min(begin + RANGE_BYTES, request.size) if begin else HEADER_BYTES
                    part = replace(request, begin=begin, length=end - begin)
                    async with self._turn:
                        try:
                            data = self._memory().read_range(part)
                        except (NotHeld, OSError):
                            return False
                        await self._push(MemoryPush(part, base64.b64encode(data).decode()))
                        await asyncio.sleep(len(data) / RATE)
                return True
            except (NotHeld, OSError, RendezvousError):  # of the other node, which may be gone, or have no room
                await asyncio.sleep(AGAIN_SECONDS)

    async def _push(self, push: MemoryPush) -> None:
        connection = await self._connected(push.range.node)
        await connection.ask(COPY, push, Nothing, SECONDS)

    async def close(self) -> None:
        """Copies nothing more, and hangs up."""
        tasks = [task for _, task in self._copying.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self._connections.values():
            await each.close()

    async def _connected(self, node: str) -> Connection:
        async with self._dialling.setdefault(node, asyncio.Lock()):
            if (known := self._connections.get(node)) is not None and not known.lost:
                return known
            member = await read_member(self._store, self._keys, node)
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

    async def copy(_: Caller, push: MemoryPush) -> Nothing:
        try:
            memory().write_range(push.range, base64.b64decode(push.data, validate=True))
        except (NotHeld, OSError, ValueError) as error:
            raise RpcError("moved", str(error)) from None
        return Nothing()

    return {MEMORY: Method(MemoryRequest, read), COPY: Method(MemoryPush, copy)}
