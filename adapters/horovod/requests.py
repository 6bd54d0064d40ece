"""The little of HTTP that Horovod's workers speak: one request on each connection, and its answer."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ...rendezvous.identity import SERVER_NAME

BODY_BYTES = 1 << 24
"""At most."""

READ_SECONDS = 30.0
"""For a request to come as a whole."""


class BadRequest(ValueError):
    """What came is no request."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: as GET.
        path: from its first slash on.
    """

    method: str
    path: str
    body: bytes = b""


Respond = Callable[[Request], Awaitable[bytes | None]]
"""What gives the body of an answer; None: 404."""


def parse_head(head: bytes) -> tuple[str, str, int]:
    """The first word, the second, and how long the body is, of a request or an answer. Raises BadRequest."""
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) < 2:
        raise BadRequest(f"{first[:100]!r} is no line of HTTP")
    length = 0
    for line in rest:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-length":
            digits = value.strip()
            # Python itself refuses to read a number of thousands of digits.
            if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or int(digits) > BODY_BYTES:
                raise BadRequest(f"{value[:100]!r} is no length of a body")
            length = int(digits)
    return words[0], words[1], length


def written(request: Request, host: str) -> bytes:
    """A request as it is sent."""
    head = f"{request.method} {request.path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(request.body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + request.body


async def serve(respond: Respond, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads one request and answers it; ends at once where the asker goes."""
    with contextlib.suppress(OSError, EOFError, BadRequest, TimeoutError, asyncio.LimitOverrunError):
        try:
            async with asyncio.timeout(READ_SECONDS):
                method, path, body = await _read(reader)
            answering = asyncio.ensure_future(respond(Request(method, path, body)))
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    found = answering.result()
                    status = "404 Not Found" if found is None else "200 OK"
                    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(found or b'')}\r\nConnection: close\r\n\r\n"
                    writer.write(head.encode() + (found or b""))
                    await writer.drain()
            finally:
                for task in (answering, gone):
                    task.cancel()
                await asyncio.gather(answering, gone, return_exceptions=True)
        finally:
            writer.close()


async def ask(host: str, port: int, request: Request, tls: ssl.SSLContext | None = None) -> bytes | None:
    """Sends a request, and waits for the body of its answer; None: 404. Raises OSError, EOFError, BadRequest."""
    name = SERVER_NAME if tls is not None else None
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
    try:
        writer.write(written(request, host))
        _, status, body = await _read(reader)
        return body if status == "200" else None
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, second, length = parse_head(head[:-4])
    return first, second, await reader.readexactly(length)
