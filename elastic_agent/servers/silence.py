"""Asks a server whether it still answers: one that hangs keeps its workers waiting, and nobody sees it die."""

import asyncio
import struct

PAUSE = 0.5
"""Seconds from an answer to the next question."""

PREFIX = struct.Struct("<I")
"""How long a message's head is, as in `adapters/servers/frames.py`, which loads numpy."""

_HEAD = b'{"request":{"code":"Ping"},"arrays":[]}'
PING = PREFIX.pack(len(_HEAD)) + _HEAD


async def await_silence(address: str, patience: float) -> None:
    """Returns when the server at `address` has not answered for `patience` seconds, asked twice.

    Twice, because the first answer may be late for this process's own fault: it was stopped (Ctrl-Z).

    Args:
        address: `@` and the name of its abstract Unix socket.
    """
    failed = 0
    while failed < 2:
        try:
            reader, writer = await asyncio.open_unix_connection(f"\0{address.removeprefix('@')}")
        except OSError:
            failed += 1
            await asyncio.sleep(patience / 2)
            continue
        try:
            while True:
                async with asyncio.timeout(patience / 2):
                    writer.write(PING)
                    await reader.readexactly(*PREFIX.unpack(await reader.readexactly(PREFIX.size)))
                failed = 0
                await asyncio.sleep(PAUSE)
        except TimeoutError:
            failed += 1
        except (OSError, EOFError):  # it has closed the connection, or is about to end
            failed += 1
            await asyncio.sleep(patience / 2)
        finally:
            writer.transport.abort()
