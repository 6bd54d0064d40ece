"""This user's jobs on this machine, as their agents tell it: no store is asked, and no secret is needed.

Each agent listens on an abstract Unix socket. Everybody may listen under such a name, so the kernel is asked whose
process it is before a word is sent.
"""

import asyncio
import contextlib
import re
import socket
from pathlib import Path

from ...elastic_agent.observation import JOB, RANK
from ...master.diagnosis.evidence import NodeEvidence
from ...master.diagnosis.requests import Look
from ...master.status import Status
from ...rendezvous.base.errors import RendezvousError
from ...rendezvous.host.local_socket import own_peer
from ...rendezvous.rpc.client import Connection
from ...rendezvous.rpc.envelope import Caller, Nothing
from .running_job import PATIENCE, NoAnswer

FIRST = 2.0
"""Seconds for the first answers, which take milliseconds where no agent is stopped."""

MOST = 256
"""Agents that are asked."""

LISTENS = re.compile(r" 00010000 0001 01 +\d+ (@elastic-run-[0-9a-f]{32})$", re.MULTILINE)
"""A row of /proc/net/unix: a stream's listening socket with an agent's kind of name."""


class LocalJob:
    """A job, by an agent of it that runs here. `job`: its id, once it has said how it is."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.job = ""

    async def status(self, patience: float = PATIENCE) -> Status:
        """Raises NoAnswer."""
        try:
            async with asyncio.timeout(patience):
                status = await self._connection.ask(JOB, Nothing(), Status, patience)
        except (RendezvousError, OSError) as error:
            why = str(error) or f"the job's agent here has not answered for {patience:g} s"
            raise NoAnswer(why, over=self._connection.lost) from None
        self.job = status.job
        return status

    async def see_rank(self, status: Status, rank: int, *, tail: bool) -> NodeEvidence:
        """As `RunningJob.see_rank`. Raises NoAnswer."""
        try:
            return await self._connection.ask(RANK, Look(status.round, rank=rank, tail=tail), NodeEvidence, PATIENCE)
        except (RendezvousError, OSError) as error:
            raise NoAnswer(str(error)) from None

    async def close(self) -> None:
        await self._connection.close()


async def local_jobs() -> dict[LocalJob, Status]:
    """One for each job that has an agent here which answers, and how it is."""
    names = ""
    with contextlib.suppress(OSError):
        names = await asyncio.to_thread(Path("/proc/net/unix").read_text, errors="replace")
    agents = list[LocalJob]()
    for name in dict.fromkeys(LISTENS.findall(names)):
        if len(agents) < MOST and (agent := await _dial(name)):
            agents.append(agent)
    answers = await asyncio.gather(*(each.status(FIRST) for each in agents), return_exceptions=True)
    jobs, known = dict[LocalJob, Status](), set[tuple[str, str]]()
    for agent, answer in zip(agents, answers, strict=True):
        if isinstance(answer, Status) and (answer.job, answer.run) not in known:
            known.add((answer.job, answer.run))
            jobs[agent] = answer
        else:
            await agent.close()
    return jobs


async def _dial(name: str) -> LocalJob | None:
    """To who listens under that name, where it is this user and has room; waits for nobody."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with contextlib.suppress(OSError):
        found.connect("\0" + name.removeprefix("@"))
        if own_peer(found) is not None:
            streams = await asyncio.open_connection(sock=found)
            return LocalJob(Connection(*streams, "the job's agent here", Caller(node="status")))
    found.close()
    return None
