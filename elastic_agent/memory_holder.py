"""Holds memory of this node's workers, so that it outlives them: two generations of each part of their checkpoints.

It has descriptors alone, and maps and copies nothing for its own workers; what is in them is
`adapters/client/memory_state.py`'s matter. What another node asks for is read a range at a time. All are closed with
the agent, however that ends.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..adapters.client.memory_channel import MOST_PARTS, MemoryReply, MemoryRequest, create_memory
from ..adapters.client.memory_state import HEADER_BYTES, read_mark
from ..rendezvous.base.errors import RendezvousError
from ..rendezvous.base.threads import begin
from ..rendezvous.host.control_groups import free_memory
from ..rendezvous.host.local_socket import own_peer
from ..rendezvous.wire.frame import TooLong, framed, take_frames
from ..rendezvous.wire.values import Malformed, decode, encode

MOST_HOLDERS = 64
"""Checkpoints of one job; a script that makes ever new ones would use up this process's descriptors."""

_MOST_DESCRIPTORS = 253
"""In one message, as the kernel has it."""


class NotHeld(LookupError):
    """The generation of which bytes are wanted is not held here, or not any more."""


class MemoryPeers(Protocol):
    """The memory of other nodes."""

    async def read(self, request: MemoryRequest, /) -> bytes:
        """Bytes that `request.node` holds. Raises NotHeld, OSError, RendezvousError."""
        ...

    def replicate(self, request: MemoryRequest, /) -> bool:
        """Begins to copy a generation to `request.node`, unless that is done or on its way; whether it is done."""
        ...


@dataclass(slots=True, eq=False)
class _Asker:
    """One connection of a worker."""

    connection: socket.socket
    got: bytearray = field(default_factory=bytearray)
    rights: list[int] = field(default_factory=list[int])


class MemoryHolder:
    """Takes what workers give, and gives it to those that come after them.

    Args:
        node: gives this agent's name in the job.
        peers: the memory of other nodes; None: there is no other.

    Attributes:
        held: the descriptors, by checkpoint, part and slot.
    """

    def __init__(self, node: Callable[[], str] = str, peers: MemoryPeers | None = None) -> None:
        self.held: dict[str, dict[str, dict[int, int]]] = {}
        self._node, self._peers = node, peers
        self._askers: set[_Asker] = set()
        self._reading: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Gives up all that is held."""
        for asker in tuple(self._askers):
            self._drop(asker)
        for task in self._reading:
            task.cancel()
        _free([each for parts in self.held.values() for slots in parts.values() for each in slots.values()])
        self.held.clear()

    def let_in(self, connection: socket.socket) -> None:
        """A worker has connected."""
        if own_peer(connection) is None:
            connection.close()
            return
        asker = _Asker(connection)
        self._askers.add(asker)
        asyncio.get_running_loop().add_reader(connection, self._hear_request, asker)

    def _hear_request(self, asker: _Asker) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                asker.connection, 65536, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        asker.rights += descriptors
        asker.got += data
        try:
            for body in take_frames(asker.got):
                self._answer(asker, decode(MemoryRequest, body))
        except (Malformed, TooLong, OSError):  # no worker of ours, or one that has gone
            data = b""
        if not data:
            self._drop(asker)

    def read_range(self, request: MemoryRequest) -> bytes:
        """Bytes of a generation that is held here. Raises NotHeld where it is another one by now, and OSError."""
        descriptor = self.held.get(request.holder, {}).get(request.part, {}).get(request.slot)
        if descriptor is not None and read_mark(os.pread(descriptor, HEADER_BYTES, 0)) == request.mark:
            data = os.pread(descriptor, request.length, request.begin)
            # Its header is cleared before anything else is written: what was read before that is whole.
            if read_mark(os.pread(descriptor, HEADER_BYTES, 0)) == request.mark and len(data) == request.length:
                return data
        raise NotHeld(f"node {self._node()} holds that state no more")

    def write_range(self, copy: MemoryRequest, data: bytes) -> None:
        """Bytes of a generation of another node, which this one holds a copy of. Raises NotHeld, OSError."""
        parts = self.held.get(copy.holder, {})
        new = copy.holder not in self.held and len(self.held) >= MOST_HOLDERS
        if new or (copy.part not in parts and len(parts) >= MOST_PARTS):
            raise NotHeld(f"node {self._node()} holds the memory of as many checkpoints as it may")
        slots = self.held.setdefault(copy.holder, parts).setdefault(copy.part, {})
        if copy.begin == HEADER_BYTES:  # the first: the header comes last
            _free([slots.pop(slot) for slot in tuple(slots) if slot not in (copy.slot, *copy.slots)])
            if copy.slot not in slots or os.fstat(slots[copy.slot]).st_size < copy.size:
                if copy.size > (free := free_memory()):
                    raise NotHeld(
                        f"node {self._node()} has {free / 1e6:,.1f} MB left, and a copy takes {copy.size / 1e6:,.1f} MB"
                    )
                _free([slots.pop(copy.slot)] if copy.slot in slots else [])
                slots[copy.slot] = create_memory(copy.size)
            os.pwrite(slots[copy.slot], bytes(HEADER_BYTES), 0)
        if copy.slot not in slots or copy.begin + len(data) > os.fstat(slots[copy.slot]).st_size:
            raise NotHeld(f"node {self._node()} has no room for these bytes")
        os.pwrite(slots[copy.slot], data, copy.begin)

    def _answer(self, asker: _Asker, request: MemoryRequest) -> None:
        parts = self.held.get(request.holder, {})
        match request.kind:
            case "give":
                asker.connection.sendall(framed(encode(self._keep_given(asker, request))))
            case "take":
                held = parts.get(request.part, {})
                message = framed(encode(MemoryReply(tuple(held))))
                if held:
                    socket.send_fds(asker.connection, [message], [*held.values()])
                else:
                    asker.connection.sendall(message)
            case "list":
                asker.connection.sendall(framed(encode(MemoryReply(parts=tuple(parts), node=self._node()))))
            case "drop":
                slots = parts.get(request.part, {})
                _free([slots.pop(slot) for slot in request.slots or tuple(slots) if slot in slots])
                if not slots:
                    parts.pop(request.part, None)
                asker.connection.sendall(framed(encode(MemoryReply())))
            case "replicate":
                done = self._peers is not None and self._peers.replicate(request)
                asker.connection.sendall(framed(encode(MemoryReply(done=done))))
            case "read":
                task = asyncio.get_running_loop().create_task(self._answer_range(asker, request))
                self._reading.add(task)
                task.add_done_callback(self._reading.discard)

    async def _answer_range(self, asker: _Asker, request: MemoryRequest) -> None:
        data = b""
        try:
            if self._peers is None or request.node == self._node():
                data = self.read_range(request)
            else:
                data = await self._peers.read(request)
            reply = MemoryReply(length=len(data))
        except (NotHeld, OSError, RendezvousError) as error:
            reply = MemoryReply(text=f"bytes of a state that node {request.node} holds cannot be read: {error}")
        with contextlib.suppress(OSError):  # the worker has gone
            await asyncio.get_running_loop().sock_sendall(asker.connection, framed(encode(reply)) + data)

    def _keep_given(self, asker: _Asker, request: MemoryRequest) -> MemoryReply:
        if not asker.rights:
            return MemoryReply(text="no descriptor came: this agent may not open as many files; raise ulimit -n")
        descriptor = asker.rights.pop(0)
        if request.holder not in self.held and len(self.held) >= MOST_HOLDERS:
            _free([descriptor])
            return MemoryReply(
                text=f"the agent holds the memory of {MOST_HOLDERS} checkpoints already, each of another path, until "
                "the job ends: give the Checkpoint that goes on with the work of another one that one's path"
            )
        parts = self.held.setdefault(request.holder, {})
        if request.part not in parts and len(parts) >= MOST_PARTS:
            _free([descriptor])
            return MemoryReply(text=f"the agent holds {MOST_PARTS} parts of this checkpoint already")
        slots = parts.setdefault(request.part, {})
        if (before := slots.get(request.slot)) is not None:
            _free([before])
        slots[request.slot] = descriptor
        return MemoryReply()

    def _drop(self, asker: _Asker) -> None:
        self._askers.discard(asker)
        asyncio.get_running_loop().remove_reader(asker.connection)
        asker.connection.close()
        _free(asker.rights)


def _free(descriptors: Sequence[int]) -> None:
    """Closes them on a thread: with the last of a memory the kernel frees gigabytes, and the agent has to answer."""

    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    if descriptors:
        try:
            begin(close)
        except OSError:  # no thread can be started
            close()
