"""A job that runs, as an observer sees it: whichever agent answers is asked, and the job's store is not.

The agents are those that the credentials name, and later those that the newest answer named: so somebody who looks
all the time follows the job to nodes that came after the credentials were made.
"""

import asyncio
import time
from asyncio.staggered import staggered_race
from functools import partial

from ...elastic_agent.observation import OBSERVE
from ...master.status import Status
from ...rendezvous import failure_detector
from ...rendezvous.base.errors import RendezvousError
from ...rendezvous.identity.observer import Credentials
from ...rendezvous.rpc.client import Connection
from ...rendezvous.rpc.envelope import Caller, Nothing
from .running_job import AGAIN, PATIENCE, NoAnswer

ASKING = 5.0
"""Seconds for the answer of one agent, which may have to ask the master."""


NEXT = 0.25
"""Seconds until another agent is dialled beside one that has not greeted yet: a machine that is gone may be silent."""


def agents_of(status: Status) -> tuple[str, ...]:
    """Where the job's agents listen: those of the round in rank order, then the others (pure)."""
    return tuple(node.address for node in (*status.nodes, *status.standbys) if node.address)


class ObservedJob:
    """One job, for the holder of credentials. Raises NoIdentity where they cannot be used."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._tls = credentials.client
        self._agents = credentials.agents
        self._connection: Connection | None = None
        self._writer: asyncio.StreamWriter | None = None  # of that connection
        self._seen = False

    async def status(self, patience: float = PATIENCE) -> Status:
        """The first answer within `patience` seconds. Raises NoAnswer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        job = self._credentials.job
        while True:
            if time.time() >= self._credentials.until:
                raise NoAnswer(f"the credentials for job {job!r} have ended: have new ones made")
            try:
                async with asyncio.timeout_at(deadline):
                    status = await self._ask()
            except (RendezvousError, OSError) as error:
                trouble = str(error) or "no answer in time"
            except ExceptionGroup as errors:
                if errors.split(ConnectionRefusedError)[1] is None and self._seen:
                    raise NoAnswer(f"all agents of job {job!r} have ended", over=True) from None
                trouble = "; ".join(sorted({str(each) for each in errors.exceptions}))
            else:
                self._agents, self._seen = agents_of(status) or self._agents, True
                return status
            if loop.time() >= deadline:
                asked = ", ".join(sorted(self._agents))
                raise NoAnswer(
                    f"no agent of job {job!r} has answered for {patience:g} s ({asked}): {trouble}. "
                    "Where all of them have ended since the credentials were made, new ones are needed"
                )
            await asyncio.sleep(AGAIN)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        if self._writer is not None:
            self._writer.transport.abort()  # nobody waits for the end of TLS

    async def _ask(self) -> Status:
        """Raises RpcError; OSError; ExceptionGroup of OSError where no agent can be reached."""
        if self._connection is None or self._connection.lost:
            self._connection, self._writer = await self._dial()
        try:
            return await self._connection.ask(OBSERVE, Nothing(), Status, ASKING)
        except RendezvousError:
            self._connection.hang_up()  # another agent is asked next, which may reach the master
            raise

    async def _dial(self) -> tuple[Connection, asyncio.StreamWriter]:
        """To the first agent that greets. Raises ExceptionGroup of OSError."""
        greeted, _, errors = await staggered_race([partial(self._dial_one, each) for each in self._agents], NEXT)
        if greeted is not None:
            return greeted
        whys = [each for each in errors if isinstance(each, Exception)]
        raise ExceptionGroup("no agent can be reached", whys or [OSError("the credentials name no agent")])

    async def _dial_one(self, address: str) -> tuple[Connection, asyncio.StreamWriter]:
        """Raises OSError."""
        self._agents = (*self._agents[1:], self._agents[0])  # one that is silent is not the first to be tried again
        reader, writer = await failure_detector.dial(address, None, self._tls)
        return Connection(reader, writer, f"the agent at {address}", Caller(node="observer")), writer
