"""The memory that this node's workers leave with their agent, as other nodes reach it, and how it reaches theirs.

Made when somebody asks: most jobs leave nothing, and a job of one node has nobody else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..rendezvous.keys import Keys
from ..rendezvous.rpc.envelope import Caller
from ..rendezvous.rpc.server import Methods
from ..rendezvous.store.contract import Store
from .setup import Setup
from .worker_server import WorkerServer

if TYPE_CHECKING:
    from .memory_holder import MemoryHolder
    from .peer_memory import PeerMemory


class NodeMemory:
    """What of it other agents may ask this one, and what this one asks them.

    Args:
        setup: what the agent is started with.
        store, keys: where the nodes are registered.
        caller: who this agent is.

    Attributes:
        methods: of the agents' port.
    """

    def __init__(self, setup: Setup, store: Store, keys: Keys, caller: Callable[[], Caller]) -> None:
        self._caller = caller
        self._peers: PeerMemory | None = None
        self._server: WorkerServer | None = None
        self.methods: Methods = {}
        if setup.bind is not None:
            from . import peer_memory  # here, because a job of one node has no other agent

            self._peers = peer_memory.PeerMemory(store, keys, caller, setup.security, self._held)
            self.methods = peer_memory.methods(self._held)

    def attach(self, server: WorkerServer) -> WorkerServer:
        """Before it is started: what workers leave comes to this server. Returns it."""
        self._server = server
        if self._peers is not None:
            server.reach_peers(lambda: self._caller().node, self._peers)
        return server

    async def close(self) -> None:
        """Asks no other agent any more."""
        if self._peers is not None:
            await self._peers.close()

    def _held(self) -> "MemoryHolder":
        assert self._server is not None
        return self._server.memory
