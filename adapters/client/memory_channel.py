"""Memory that outlives its worker: made by the worker, and held by its node's agent; here is the worker's end.

The agent has duplicates of the descriptors and nothing else: it reads and copies no byte. Its side is
`elastic_agent/memory_holder.py`.
"""

import array
import fcntl
import os
import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Literal

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.host.local_socket import connected
from ...rendezvous.wire.fields import Words
from ...rendezvous.wire.frame import framed, take_frames
from ...rendezvous.wire.values import Count, Text, Within, decode, encode
from .channel import MEMORY_SUFFIX, AgentGone, AgentTimeout
from .checkpoints import BadCheckpoint

SECONDS = 30.0
"""For one question to the agent."""

GENERATIONS = 2
"""Of each holder: the newer one is whole while the older one is written."""

PAGE = 4096

Slot = Annotated[int, Within(0, GENERATIONS - 1)]


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What a worker asks of the memory that its agent holds.

    Attributes:
        kind: "give": the descriptor that comes with this is held in `slot` from now on, and what was there is closed.
            "take": duplicates of the holder's descriptors are wanted.
        holder: whose state it is: the path of a checkpoint.
    """

    kind: Literal["give", "take"]
    holder: Annotated[str, Text(4096)]
    slot: Slot = 0


@dataclass(frozen=True, slots=True)
class MemoryReply:
    """What the agent says.

    Attributes:
        slots: of the descriptors that come with this, in their order.
        text: where it cannot, why.
    """

    slots: Annotated[tuple[Slot, ...], Count(GENERATIONS)] = ()
    text: Words = ""


def create_memory(size: int) -> int:
    """A descriptor of so many bytes of zeros, which nobody can make shorter or longer. Raises OSError."""
    descriptor = os.memfd_create("elastic-run-checkpoint", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, -(-size // PAGE) * PAGE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def give_memory(agent: str, holder: str, slot: int, descriptor: int) -> None:
    """Has the agent hold it. The caller closes its own descriptor.

    Raises AgentGone, AgentTimeout, and BadCheckpoint.
    """
    _, descriptors = _ask_agent(agent, MemoryRequest("give", holder, slot), [descriptor])
    _close(descriptors)


def take_memory(agent: str, holder: str) -> dict[int, int]:
    """Descriptors of what the agent holds, by slot; the caller closes them.

    Raises AgentGone, AgentTimeout, and BadCheckpoint.
    """
    reply, descriptors = _ask_agent(agent, MemoryRequest("take", holder), [])
    if len(descriptors) != len(reply.slots):
        _close(descriptors)
        raise BadCheckpoint("descriptors were lost on their way: this process may not open as many files")
    return dict(zip(reply.slots, descriptors, strict=True))


def _ask_agent(agent: str, request: MemoryRequest, given: list[int]) -> tuple[MemoryReply, list[int]]:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))] if given else []
    descriptors: list[int] = []
    try:
        with closing(connected(f"{agent}{MEMORY_SUFFIX}", SECONDS)) as connection:
            connection.settimeout(SECONDS)
            message = framed(encode(request))
            sent = connection.sendmsg([message], rights)
            connection.sendall(message[sent:])
            reply = _receive(connection, descriptors)
    except TimeoutError as error:
        _close(descriptors)
        raise AgentTimeout(f"the agent has not answered for {SECONDS:g} s about the memory that it holds") from error
    except OSError as error:
        _close(descriptors)
        raise AgentGone(f"cannot reach the memory that the agent holds ({error}): its launcher has exited") from error
    if reply.text:
        _close(descriptors)
        raise BadCheckpoint(reply.text)
    return reply, descriptors


def _receive(connection: socket.socket, descriptors: list[int]) -> MemoryReply:
    got = bytearray()
    while True:
        for body in take_frames(got):
            return decode(MemoryReply, body)
        data, more, _, _ = socket.recv_fds(connection, 65536, GENERATIONS, socket.MSG_CMSG_CLOEXEC)
        descriptors += more
        if not data:
            raise ConnectionError("the agent closed the connection")
        got += data


def _close(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)
