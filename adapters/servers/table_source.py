"""Where a worker learns of the job's servers: its agent, which it asks without waiting."""

import os
from collections.abc import Sequence

from ...rendezvous.wire.values import decode
from ..client.channel import Call, Channel
from ..client.context import AGENT, ROUND
from .errors import ServerGone, TableMisused
from .job_servers import JobServers

NO_SERVERS = "this job has no servers for its tables: start it with elastic-run --servers=1"

kept_here: set[int] = set()
"""Processes that have their tables themselves (`own_server.py`)."""


class TableSource:
    """This worker's agent.

    Args:
        channel: to the agent, and nothing else goes over it.

    Attributes:
        asked: there is an answer to come.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.asked = False

    def fileno(self) -> int:
        """For `poll`."""
        return self._channel.fileno()

    def ask_agent(self, version: int, awaits: Sequence[int], seconds: float) -> None:
        """Asks for a table that is newer than that, where no answer is to come. Raises AgentGone.

        Args:
            awaits: the numbers of the servers for which this worker waits; none: those of the first table.
            seconds: for which it has.
        """
        if not self.asked:
            round, rank = int(os.environ.get(ROUND, "0")), int(os.environ.get("RANK", "0"))
            call = Call("servers", round, rank=rank, steps=version, awaits=tuple(awaits), seconds=seconds)
            self._channel.send(call)
            self.asked = True

    def read_answer(self) -> JobServers:
        """The answer, when it is there: after a second the newest that there is, perhaps no newer one.

        Raises TableMisused where the job has no servers, ServerGone where rows are lost, AgentGone, AgentTimeout.
        """
        back = self._channel.receive()
        self.asked = False
        if back.text:
            raise ServerGone(f"the agent cannot say where the job's servers are: {back.text}")
        if not back.told:
            raise TableMisused(NO_SERVERS)
        found = decode(JobServers, back.told.encode())
        if found.table.lost:
            raise ServerGone(found.table.lost)
        return found

    def close(self) -> None:
        """Hangs up."""
        self._channel.close()


def keep_tables_here() -> None:
    """Tables that this process declares from now on are its own, whether the job has servers or not."""
    kept_here.add(os.getpid())


def connect_agent() -> TableSource:
    """Raises TableMisused where there is no agent, AgentGone."""
    return TableSource(open_channel(NO_SERVERS))


def open_channel(otherwise: str) -> Channel:
    """To this worker's agent. Raises TableMisused with those words where there is none, AgentGone."""
    if not (agent := os.environ.get(AGENT)):
        raise TableMisused(otherwise)
    return Channel(agent, rank=int(os.environ.get("RANK", "0")))
