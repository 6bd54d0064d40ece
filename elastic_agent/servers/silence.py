"""Asks a server whether it still answers: one that hangs keeps its workers waiting, and nobody sees it die."""

import asyncio
import struct
from pathlib import Path

from ...rendezvous.host.local_socket import NotOwnSocket, own_peer

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

_HEAD = b'{"request":{"code":"Ping"},"arrays":[]}'
PING = PREFIX.pack(len(_HEAD)) + _HEAD


async def await_silence(address: str, patience: float) -> float:
    """Returns when the server at `address` does not answer any more: for how many seconds it has not.

    These are `patience` where it did not work meanwhile either: it is stopped, or waits for what does not come. One
    that works has WORKING_SECONDS, if these are more. It is asked twice at least, because the first answer may be late
    for this process's own fault: it was stopped (Ctrl-Z).

    Args:
        address: `@` and the name of its abstract Unix socket.
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
                        await _read_answer(reader)
                    failed = idle = 0
                    await asyncio.sleep(PAUSE)
            except TimeoutError:
                pass
            except (OSError, EOFError):  # it has closed the connection, or is about to end
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


async def _read_answer(reader: asyncio.StreamReader) -> None:
    """Raises EOFError, OSError where it is none."""
    (length,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
    if length > MOST_ANSWER:
        raise OSError("no answer to a ping is that long")
    await reader.readexactly(length)
