"""Asks a server whether it still answers, and what it does: one that hangs keeps its workers waiting, unseen."""

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path

from ...adapters.servers.requests import Reply
from ...master.machine.parameter_servers import ServerMeasure
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.host.local_socket import NotOwnSocket, own_peer
from ...rendezvous.wire.values import Malformed, decode

PAUSE = 0.5
"""Seconds from an answer to the next question."""

WORKING_SECONDS = 60.0
"""That a server may be silent while it computes, has to wait for a processor, for its memory or for a disk: all of it
stands still for a fork, the more the more memory it has."""

WORKING = "RD"
"""States of a process, as /proc has them, in which it does not wait for an event."""

PREFIX = struct.Struct("<I")
"""How long a message's head is, as in `adapters/servers/frames.py`, which loads numpy."""

MOST_ANSWER = 1 << 20
"""Bytes of an answer to a ping."""

PAGE = os.sysconf("SC_PAGE_SIZE")

_HEAD = b'{"request":{"code":"Ping"},"arrays":[]}'
PING = PREFIX.pack(len(_HEAD)) + _HEAD


@dataclass(frozen=True, slots=True)
class PingAnswer:
    """The head of the answer to a ping."""

    reply: Reply


Heard = Callable[[int, ServerMeasure], None]
"""Takes the process that has answered, and what it said of itself."""


async def await_silence(address: str, patience: float, heard: Heard) -> float:
    """Returns when the server at `address` does not answer any more: for how many seconds it has not.

    These are `patience` where it did not work meanwhile either: it is stopped, or waits for what does not come. One
    that works has WORKING_SECONDS, if these are more. It is asked twice at least, because the first answer may be late
    for this process's own fault: it was stopped (Ctrl-Z).

    Args:
        address: `@` and the name of its abstract Unix socket.
        patience: see above.
        heard: is called with each answer.
    """
    pid, failed, idle = 0, 0, 0
    while idle < 2 and failed * patience / 2 < max(WORKING_SECONDS, patience):
        before = read_activity(pid)
        try:
            reader, writer = await asyncio.open_unix_connection(f"\0{address.removeprefix('@')}")
        except OSError:
            await asyncio.sleep(patience / 2)
        else:
            try:
                pid = own_peer(writer.get_extra_info("socket")) or 0
                if not pid:
                    raise NotOwnSocket("another user's process listens there")
                while True:
                    before = read_activity(pid)
                    async with asyncio.timeout(patience / 2):
                        writer.write(PING)
                        measure = await _read_answer(reader)
                    heard(pid, measure)
                    failed = idle = 0
                    await asyncio.sleep(PAUSE)
            except TimeoutError:
                pass
            except (OSError, EOFError, Malformed):  # it has closed the connection, or is about to end
                await asyncio.sleep(patience / 2)
            finally:
                writer.transport.abort()
        failed += 1
        after = read_activity(pid)
        idle = 0 if after[0] in WORKING or after[1] != before[1] else idle + 1
    return failed * patience / 2


def read_activity(pid: int) -> tuple[str, int]:
    """Of a process: its state, and its processor time in ticks. One that is not there is dead."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return words[0], int(words[11]) + int(words[12])


def read_resident(pid: int) -> int:
    """Bytes of memory that a process has; 0 where it is not there."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


async def _read_answer(reader: asyncio.StreamReader) -> ServerMeasure:
    """Raises EOFError, OSError, Malformed where it is none."""
    (length,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
    if length > MOST_ANSWER:
        raise OSError("no answer to a ping is that long")
    return decode(PingAnswer, await reader.readexactly(length)).reply.measure or ServerMeasure()
