"""How an agent asks the job's master: many requests on one connection, and their answers in any order.

The agent dials where the master's agent greets everybody (`rendezvous/failure_detector.py`), and says which run of the
job it is of. From then on there are frames (`rendezvous/wire/frame.py`): `Asked` one way, `Answered` the other.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..rendezvous.errors import Deposed
from ..rendezvous.wire.frame import TooLong, framed, read_frame
from ..rendezvous.wire.values import Malformed, decode, encode
from .data.ledger import Answer, Request

AT_ONCE = 4096
"""Requests of one agent without their answers; the next ones are not read before some are answered."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first line: the run of the job whose ledger is meant. Only who belongs to it knows its name."""

    ledger: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request; `id` is the asker's own, for this connection."""

    id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """What was asked as `id` is answered."""

    id: int
    answer: Answer


Respond = Callable[[Request], Awaitable[Answer]]
"""Raises Deposed where there will be no answer."""


def hello(run: str) -> bytes:
    """The first line."""
    return encode(Hello(run)) + b"\n"


async def serve(
    line: bytes,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    responder: Callable[[str], Respond | None],
) -> None:
    """Answers one agent until it hangs up, or says what cannot be understood; the caller closes the connection.

    Args:
        line: its first.
        responder: who answers for that run of the job; None: nobody here does.
    """
    try:
        respond = responder(decode(Hello, line).ledger)
    except Malformed:
        return
    if respond is None:
        return
    tasks: set[asyncio.Task[None]] = set()
    try:
        while (body := await read_frame(reader)) is not None:
            task = asyncio.create_task(_answer(decode(Asked, body), writer, respond), name="ledger: a request")
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await writer.drain()
            if len(tasks) >= AT_ONCE:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    except (Malformed, TooLong, OSError):
        pass  # it is gone, or not one of ours
    finally:
        left = [*tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _answer(asked: Asked, writer: asyncio.StreamWriter, respond: Respond) -> None:
    try:
        answer = await respond(asked.request)
        if not writer.is_closing():
            writer.write(framed(encode(Answered(asked.id, answer))))
    except Deposed:
        writer.close()  # it looks for the next master
