"""An agent's way to the job's master, for requests to the ledger: one connection, found anew as often as it is lost.

A request may be sent again, to this master or the next: the ledger knows it by its number. So whatever goes wrong, the
way out is the same: find out who leads now, dial, ask again.
"""

import asyncio
import itertools
from collections.abc import Callable

from ..master.data.ledger import Answer, Request
from ..master.data.ledger_service import PATIENCE, Ledgers
from ..master.rpc import Answered, Asked, hello
from ..rendezvous import failure_detector
from ..rendezvous.errors import Deposed, StoreError
from ..rendezvous.header import Header, Leader
from ..rendezvous.keys import Keys
from ..rendezvous.store.contract import Store
from ..rendezvous.wire.frame import TooLong, framed, read_frame
from ..rendezvous.wire.values import Malformed, decode, encode

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds until the next attempt; the last is repeated."""

SILENCE = PATIENCE + 5.0
"""Seconds without an answer, after which the connection is given up: a master that lives answers within PATIENCE."""


class Link:
    """Asks whoever leads the job.

    Args:
        store, keys: where the job is.
        here: the ledgers of this agent's own master, while it is the job's.
        header: the last one that this agent knows.

    Attributes:
        trouble: why the last attempt came to nothing, in words.
    """

    def __init__(
        self, store: Store, keys: Keys, here: Callable[[], Ledgers | None], header: Callable[[], Header | None]
    ) -> None:
        self._store = store
        self._keys = keys
        self._here = here
        self._header = header
        self._connection: _Connection | None = None
        self._dialling: asyncio.Task[_Connection | str] | None = None
        self.trouble = ""

    async def ask(self, request: Request) -> Answer:
        """Asks until there is an answer; the caller limits how long. Raises TooLong."""
        pauses = iter(PAUSES)
        while True:
            header = self._header()
            if header and header.number > request.round:
                return Answer("stale", f"round {request.round} is over: the job is in round {header.number}")
            try:
                if ledgers := self._here():
                    return await ledgers.answer(request)
                return await (await self._connected()).ask(request)
            except (Deposed, OSError) as error:
                self.trouble = str(error)
            await asyncio.sleep(next(pauses, PAUSES[-1]))

    async def close(self) -> None:
        """Hangs up; nobody may be asking any more."""
        if self._dialling:
            self._dialling.cancel()
            await asyncio.gather(self._dialling, return_exceptions=True)
        if self._connection:
            await self._connection.close()

    async def _connected(self) -> "_Connection":
        """Raises ConnectionError."""
        if self._connection and not self._connection.lost:
            return self._connection
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._dial(), name="dial the master")
            self._dialling.add_done_callback(self._dialled)
        dialled = await asyncio.shield(self._dialling)
        if isinstance(dialled, str):
            raise ConnectionError(dialled)
        return dialled

    def _dialled(self, _: object) -> None:
        self._dialling = None

    async def _dial(self) -> "_Connection | str":
        """A connection to the master, or why there is none."""
        try:
            found = await self._store.get(self._keys.leader)
            if found is None:
                return "the job has no master"
            leader = decode(Leader, found.value)
            if not leader.agent_address:
                return f"the master on node {leader.node} accepts no connections"
            reader, writer = await failure_detector.dial(leader.agent_address, leader.incarnation)
        except (StoreError, Malformed, OSError) as error:
            return f"cannot reach the job's master: {error}"
        header = self._header()
        writer.write(hello(header.run if header else ""))
        if self._connection:
            await self._connection.close()
        self._connection = _Connection(reader, writer, leader.node)
        return self._connection


class _Connection:
    """To one master, until the first trouble with it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: str) -> None:
        self._reader = reader
        self._writer = writer
        self._node = node
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self.lost = False
        self._task = asyncio.create_task(self._listen(), name="answers of the master")

    async def ask(self, request: Request) -> Answer:
        """Raises ConnectionError, TimeoutError (both are OSError), TooLong."""
        if self.lost:
            raise ConnectionError(f"the job's master on node {self._node} closed the connection")
        number = next(self._ids)
        message = framed(encode(Asked(number, request)))
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(message)
            async with asyncio.timeout(SILENCE):
                return await answer
        except TimeoutError:
            self._writer.close()  # for the others' sake too
            raise TimeoutError(f"the job's master on node {self._node} has not answered for {SILENCE:g} s") from None
        finally:
            del self._asked[number]

    async def close(self) -> None:
        """Hangs up."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self) -> None:
        try:
            while (body := await read_frame(self._reader)) is not None:
                answered = decode(Answered, body)
                answer = self._asked.get(answered.id)
                if answer and not answer.done():
                    answer.set_result(answered.answer)
        except (Malformed, TooLong, OSError):
            pass  # whatever it is, the next connection is another
        finally:
            self.lost = True
            self._writer.close()
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(
                        ConnectionError(f"the job's master on node {self._node} closed the connection")
                    )
