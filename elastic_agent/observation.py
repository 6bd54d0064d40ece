"""What an observer of the job may ask any of its agents: how the job is.

The agent asks the job's master, if that is not its own. So an observer needs no access to the store, in which the
master's address stands, and none to the master.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ..master.diagnosis.evidence import NodeEvidence
from ..master.diagnosis.requests import Look
from ..master.status import Diagnosis, Status
from ..rendezvous.base.errors import RendezvousError
from ..rendezvous.base.tasks import Tasks
from ..rendezvous.node_reasons import cut
from ..rendezvous.rpc.envelope import Caller, Encoded, Nothing, RpcError
from ..rendezvous.rpc.server import Method, Methods
from ..rendezvous.wire.values import encode

OBSERVE = "observe"
"""The method that takes `Nothing` and gives the job's `Status`, whichever agent of the job is asked."""

JOB, RANK = "job", "rank"
"""Methods for this user's processes on this machine: the whole `Status`, and what is seen of a `Look`'s rank."""

FRESH = 0.5
"""Seconds for which an answer is good: however many observers ask, the master is asked no more often than that."""


class Observation:
    """What observers may ask this agent.

    The agent's own task asks the master: an observer that hangs up, or wants its answer at once, does not end it.

    Args:
        ask: gives the job's status. Raises RendezvousError or OSError where nobody tells it now.
        now: the clock, seconds.
    """

    def __init__(self, ask: Callable[[], Awaitable[Status]], now: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._tasks = Tasks()
        self._newest: asyncio.Task[Encoded | str] | None = None  # it may still wait for the master
        self._at = float("-inf")  # when that began

    @property
    def methods(self) -> Methods:
        """For the agent's port."""
        return {OBSERVE: Method(Nothing, self._observe, observers=True)}

    async def close(self) -> None:
        """Asks no more."""
        await self._tasks.close()

    async def _observe(self, _: Caller, __: Nothing) -> Encoded:
        if self._newest is None or (self._newest.done() and self._now() - self._at >= FRESH):
            self._at = self._now()
            self._newest = self._tasks.begin(self._known(), "asks how the job is")
        known = await asyncio.shield(self._newest)
        if isinstance(known, str):
            raise RpcError("moved", known)
        return known

    async def _known(self) -> Encoded | str:
        """The answer, or why there is none."""
        try:
            return Encoded(encode(shown(await self._ask())))
        except (RendezvousError, OSError) as error:
            return f"the job's master does not answer this agent: {error}"


def local_methods(
    ask: Callable[[], Awaitable[Status]], look: Callable[[str, Look], Awaitable[NodeEvidence]]
) -> Methods:
    """What this user's other processes on this machine may ask; `ask`, `look`: of the agent."""

    async def tell_job(_: Caller, __: Nothing) -> Status:
        try:
            return await ask()
        except (RendezvousError, OSError) as error:
            raise RpcError("moved", f"the job's master does not answer this node's agent: {error}") from None

    async def see_rank(caller: Caller, wanted: Look) -> NodeEvidence:
        node = (await tell_job(caller, Nothing())).node_of(wanted.rank or 0)
        if node is None:
            raise RpcError("moved", f"the job has no rank {wanted.rank}")
        try:
            return await look(node.node, wanted)
        except (RendezvousError, OSError) as error:
            raise RpcError("moved", f"node {node.node} does not tell: {error}") from None

    return {JOB: Method(Nothing, tell_job), RANK: Method(Look, see_rank)}


def shown(status: Status) -> Status:
    """What an observer sees of it: not what the script prints, nor where in the script its workers are (pure)."""
    return replace(status, diagnosis=tuple(map(_shown, status.diagnosis)))


def _shown(found: Diagnosis) -> Diagnosis:
    finding = replace(found.finding, where="", waiting_where="", last_lines=(), frames=())
    return replace(found, finding=finding, words=cut(str(finding)))
