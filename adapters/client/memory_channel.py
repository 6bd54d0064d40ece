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
from ...rendezvous.wire.fields import Number, Words
from ...rendezvous.wire.frame import framed, take_frames
from ...rendezvous.wire.values import Count, Text, Within, decode, encode
from .channel import MEMORY_SUFFIX, AgentGone, AgentTimeout
from .checkpoints import BadCheckpoint

SECONDS = 30.0
"""For one question to the agent."""

GENERATIONS = 2
"""Of each part: the newer one is whole while the older one is written."""

MOST_GENERATIONS = 4
"""With one that is being copied to another node, and the one before it, which is there already."""

PAGE = 4096

MOST_PARTS = 1024
"""Of one holder on one node."""

RANGE_BYTES = 1 << 20
"""At most, in one answer with bytes of another node's memory."""

Slot = Annotated[int, Within(0, MOST_GENERATIONS - 1)]
PartName = Annotated[str, Text(100, printable=True)]


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """What a worker asks of the memory that its agent holds.

    Attributes:
        kind: "give": the descriptor that comes with this is held in `slot` from now on, and what was there is closed.
            "take": duplicates of the part's descriptors are wanted. "list": the names of the holder's parts are.
            "drop": the part is held no more, or with `slots` these of it. "read": bytes that `node` holds are wanted.
            "replicate": `node` is to hold a copy of this generation, and keeps those in `slots`.
        holder: whose state it is: the path of a checkpoint.
        part: of the state: empty, or which rank's shards (`shard_plan.name_part`).
        slots: see "drop" and "replicate".
        node, mark: a node's name, and the mark of the generation.
        begin, length: see "read": which of its bytes.
        size: see "replicate": of the generation, bytes.
    """

    kind: Literal["give", "take", "list", "drop", "read", "replicate"]
    holder: Annotated[str, Text(4096)]
    slot: Slot = 0
    part: PartName = ""
    slots: Annotated[tuple[Slot, ...], Count(MOST_GENERATIONS)] = ()
    node: Annotated[str, Text(253)] = ""
    mark: Annotated[int, Within(0, (1 << 32) - 1)] = 0
    begin: Number = 0
    length: Annotated[int, Within(0, RANGE_BYTES)] = 0
    size: Number = 0


@dataclass(frozen=True, slots=True)
class MemoryReply:
    """What the agent says.

    Attributes:
        slots: of the descriptors that come with this, in their order.
        text: where it cannot, why.
        parts: the names of those that it holds.
        node: the agent's own name in the job.
        length: bytes that follow this.
        done: the other node holds the copy.
    """

    slots: Annotated[tuple[Slot, ...], Count(MOST_GENERATIONS)] = ()
    text: Words = ""
    parts: Annotated[tuple[PartName, ...], Count(MOST_PARTS)] = ()
    node: Annotated[str, Text(253)] = ""
    length: Annotated[int, Within(0, RANGE_BYTES)] = 0
    done: bool = False


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


def give_memory(agent: str, holder: str, slot: int, descriptor: int, part: str = "") -> None:
    """Has the agent hold it. The caller closes its own descriptor.

    Raises AgentGone, AgentTimeout, and BadCheckpoint.
    """
    _, descriptors, _ = _ask_agent(agent, MemoryRequest("give", holder, slot, part), [descriptor])
    _close(descriptors)


def take_memory(agent: str, holder: str, part: str = "") -> dict[int, int]:
    """Descriptors of what the agent holds, by slot; the caller closes them.

    Raises AgentGone, AgentTimeout, and BadCheckpoint.
    """
    reply, descriptors, _ = _ask_agent(agent, MemoryRequest("take", holder, part=part), [])
    if len(descriptors) != len(reply.slots):
        _close(descriptors)
        raise BadCheckpoint("descriptors were lost on their way: this process may not open as many files")
    return dict(zip(reply.slots, descriptors, strict=True))


def list_parts(agent: str, holder: str) -> tuple[str, tuple[str, ...]]:
    """The agent's name in the job, and the names of the parts that it holds. Raises as `take_memory`."""
    reply, _, _ = _ask_agent(agent, MemoryRequest("list", holder), [])
    return reply.node, reply.parts


def drop_memory(agent: str, holder: str, part: str, slots: Sequence[int] = ()) -> None:
    """Has the agent give up a part, or these slots of it. Raises as `take_memory`."""
    _ask_agent(agent, MemoryRequest("drop", holder, part=part, slots=tuple(slots)), [])


def replicate_memory(agent: str, request: MemoryRequest) -> bool:
    """Has the agent copy a generation to another node; whether that node holds it by now. Raises as `take_memory`."""
    reply, _, _ = _ask_agent(agent, request, [])
    return reply.done


def read_memory(agent: str, request: MemoryRequest) -> bytes:
    """Bytes that another node holds, which this node's agent reads there. Raises as `take_memory`."""
    _, _, data = _ask_agent(agent, request, [])
    return data


def _ask_agent(agent: str, request: MemoryRequest, given: list[int]) -> tuple[MemoryReply, list[int], bytes]:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))] if given else []
    descriptors: list[int] = []
    try:
        with closing(connected(f"{agent}{MEMORY_SUFFIX}", SECONDS)) as connection:
            connection.settimeout(SECONDS)
            message = framed(encode(request))
            sent = connection.sendmsg([message], rights)
            connection.sendall(message[sent:])
            reply, data = _receive(connection, descriptors)
    except TimeoutError as error:
        _close(descriptors)
        raise AgentTimeout(f"the agent has not answered for {SECONDS:g} s about the memory that it holds") from error
    except OSError as error:
        _close(descriptors)
        raise AgentGone(f"cannot reach the memory that the agent holds ({error}): its launcher has exited") from error
    if reply.text:
        _close(descriptors)
        raise BadCheckpoint(reply.text)
    return reply, descriptors, data


def _receive(connection: socket.socket, descriptors: list[int]) -> tuple[MemoryReply, bytes]:
    got = bytearray()
    reply: MemoryReply | None = None
    while reply is None or len(got) < reply.length:
        data, more, _, _ = socket.recv_fds(connection, 1 << 18, MOST_GENERATIONS, socket.MSG_CMSG_CLOEXEC)
        descriptors += more
        if not data:
            raise ConnectionError("the agent closed the connection")
        got += data
        if reply is None and (body := next(take_frames(got), None)) is not None:
            reply = decode(MemoryReply, body)
    return reply, bytes(got)


def _close(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)
