"""Holds memory of this node's workers, so that it outlives them: two generations of each of their checkpoints.

It has descriptors alone. No byte is read, mapped or copied here; what is in them is `adapters/client/memory_state.py`'s
matter. All are closed with the agent, however that ends.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..adapters.client.memory_channel import MemoryReply, MemoryRequest
from ..rendezvous.base.threads import begin
from ..rendezvous.host.local_socket import own_peer
from ..rendezvous.wire.frame import TooLong, framed, take_frames
from ..rendezvous.wire.values import Malformed, decode, encode

MOST_HOLDERS = 64
"""Checkpoints of one job; a script that makes ever new ones would use up this process's descriptors."""

_MOST_DESCRIPTORS = 253
"""In one message, as the kernel has it."""


@dataclass(slots=True, eq=False)
class _Asker:
    """One connection of a worker."""

    connection: socket.socket
    got: bytearray = field(default_factory=bytearray)
    rights: list[int] = field(default_factory=list[int])


class MemoryHolder:
    """Takes what workers give, and gives it to those that come after them.

    Attributes:
        held: the descriptors, by checkpoint and slot.
    """

    def __init__(self) -> None:
        self.held: dict[str, dict[int, int]] = {}
        self._askers: set[_Asker] = set()

    def close(self) -> None:
        """Gives up all that is held."""
        for asker in tuple(self._askers):
            self._drop(asker)
        _free([descriptor for slots in self.held.values() for descriptor in slots.values()])
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

    def _answer(self, asker: _Asker, request: MemoryRequest) -> None:
        if request.kind == "give":
            asker.connection.sendall(framed(encode(self._keep_given(asker, request))))
            return
        held = self.held.get(request.holder, {})
        message = framed(encode(MemoryReply(tuple(held))))
        if held:
            socket.send_fds(asker.connection, [message], [*held.values()])
        else:
            asker.connection.sendall(message)

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
        slots = self.held.setdefault(request.holder, {})
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
