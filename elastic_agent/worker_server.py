"""Where this node's workers ask their agent, and who answers them; their side is `adapters/client/channel.py`."""

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import get_args

from ..adapters.client.channel import Back, Call, Kind
from ..master.data.ledger import Answer
from ..rendezvous import membership
from ..rendezvous.errors import StoreError, StoreUnavailable
from ..rendezvous.keys import Keys
from ..rendezvous.rpc.envelope import Caller
from ..rendezvous.rpc.server import Method, Server
from ..rendezvous.store.contract import Store
from ..rendezvous.wire.frame import TooLong
from .master_client import Link

CALL_SECONDS = 60.0
"""For the master's answer to one call."""

CURRENT_SECONDS = 10.0
"""For the store to say whether a round is the current one."""

RETRY_PAUSE = 0.1
"""Seconds; the store paces its own attempts, this only yields to the other tasks."""

_CREDENTIALS = struct.Struct("3i")
"""What SO_PEERCRED gives: pid, uid, gid."""

Respond = Callable[[Call], Awaitable[Back]]


def own_caller(connection: socket.socket) -> int | None:
    """The pid of who has connected, where it is this user's; abstract sockets have no permissions of their own."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid if uid == os.getuid() else None


class CallHandler:
    """Answers the workers' calls.

    Args:
        store, keys: where the job is.
        link: to the job's master.
        saved: is told of a checkpoint, with the round in which it was written.
        leases: is told that a worker asks for shards.
        current: what a round is called now whose workers went on into a later one.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        link: Link,
        saved: Callable[[int], None],
        leases: Callable[[], None] = lambda: None,
        current: Callable[[int], int] = lambda round: round,
    ) -> None:
        self._store = store
        self._keys = keys
        self._link = link
        self._saved = saved
        self._leases = leases
        self._current = current

    async def answer(self, call: Call) -> Back:
        """The answer to one call, within CALL_SECONDS."""
        match call.kind:
            case "ledger":
                self._leases()
                return await self._ask(call)
            case "current":
                return await self._is_current(self._current(call.round))
            case "saved":
                self._saved(call.round)
                return Back()

    async def _ask(self, call: Call) -> Back:
        if call.request is None:
            return Back(text="a call to the ledger without a request")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return Back(answer=await self._link.ask(call.request))
        except TimeoutError:
            why = self._link.trouble or "it is silent"
            return Back(text=f"the job's master has not answered for {CALL_SECONDS:g} s: {why}")
        except TooLong as error:
            return Back(answer=Answer("refused", str(error)))

    async def _is_current(self, round: int) -> Back:
        try:
            async with asyncio.timeout(CURRENT_SECONDS):
                while True:
                    try:
                        found = await membership.read_header(self._store, self._keys)
                        break
                    except StoreUnavailable:
                        await asyncio.sleep(RETRY_PAUSE)
        except (TimeoutError, StoreError) as error:
            why = str(error) or f"it has not answered for {CURRENT_SECONDS:g} s"
            return Back(text=f"the store does not say whether round {round} is the current one: {why}")
        if found is None:
            return Back(text="the store holds no round of this job")
        header = found[0]
        if header.number == round and header.state == "open":
            return Back(current=True)
        return Back(text=f"round {round} is over: the job is in round {header.number} ({header.state})")


class WorkerServer:
    """Listens for this node's workers on an abstract Unix socket, which leaves no file behind.

    Args:
        respond: answers a call.

    Attributes:
        address: for ELASTIC_RUN_AGENT, once it is started.
    """

    def __init__(self, respond: Respond) -> None:
        async def answer(_: Caller, call: Call) -> Back:
            return await respond(call)

        methods = {kind: Method(Call, answer) for kind in get_args(Kind)}
        self._server = Server(methods, admit=lambda peer: own_caller(peer.get_extra_info("socket")) is not None)
        self.address = ""

    async def start(self) -> None:
        """Raises OSError."""
        name = f"elastic-run-{secrets.token_hex(16)}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(f"\0{name}")
            start = asyncio.get_running_loop().create_unix_server
            await self._server.listen(start, sock=listening, backlog=1024)
        except BaseException:
            listening.close()
            raise
        self.address = f"@{name}"

    async def close(self) -> None:
        """Stops listening, and hangs up on every worker."""
        await self._server.close()
