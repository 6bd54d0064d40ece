"""Has all nodes of a round looked at closely, and says who is named for it: the edge of `suspects.py`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.rpc.envelope import Caller, RpcError, Security
from .evidence import Answer, Frame, NodeEvidence, Shared
from .findings import MAX_SHOWN, Finding
from .requests import Condemned, Done, Look, Replacement, Suspected

if TYPE_CHECKING:
    from ...rendezvous.rpc.client import Connection

EVIDENCE = "evidence"
"""The method of an agent that takes a `Look` and gives its `NodeEvidence`."""

CONDEMN = "condemn"
"""The method that takes a `Condemned` and gives `Done`."""

REPLACE = "replace"
"""The method that takes a `Replacement` and gives `Done`."""

SECONDS = 25.0
"""For one node's evidence: looks at its workers take about a second, more on a busy machine."""

AT_ONCE = 64
"""Nodes that are asked at the same time."""

PAUSE = 2.0
"""Seconds between two examinations of a job."""

MAX_WORKERS = 2048
"""Of a round that is looked at: the evidence of all of them is in the memory of the leading node at once."""


@dataclass(frozen=True, slots=True)
class Here:
    """The agent in which the master runs, which is asked without a connection.

    Attributes:
        look, condemn, replace: its methods.
        tell: takes each finding, for the summary.
    """

    incarnation: Callable[[], str]
    look: Callable[[Look], Awaitable[NodeEvidence]]
    condemn: Callable[[Condemned], Done]
    replace: Callable[[Replacement], Done]
    tell: Callable[[Finding], None]


class Examination:
    """One master's examinations, one after the other.

    Args:
        run: the current run of the job, as its agents know it.
        here: see there; None: the master is alone in its process.
        tell: takes the findings of a round, whether they are of a comparison of its ranks, and how many seconds ago the
            nodes were asked.
        say: prints one line for a person.
        security: what the job's agents speak.
    """

    def __init__(
        self,
        run: Callable[[], str],
        here: Here | None,
        tell: Callable[[int, tuple[Finding, ...], bool, float], None],
        say: Callable[[str], None],
        security: Security,
    ) -> None:
        self._run = run
        self._here = here
        self._tell = tell
        self._say = say
        self._security = security
        self._wanted: tuple[int, tuple[Suspected, ...]] | None = None
        self._too_many = False  # that has been said
        self._task: asyncio.Task[None] | None = None
        self._orders: set[asyncio.Task[object]] = set()

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that were begun; who ends the leadership ends them."""
        return [*self._orders, *([self._task] if self._task else [])]

    def begin(self, round: int, nodes: tuple[Suspected, ...]) -> None:
        """Examines all `nodes` of a round: now, or right after the examination that is under way."""
        self._wanted = round, nodes
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._examine(), name="master: diagnosis")

    async def compare(self, round: int, nodes: tuple[Suspected, ...]) -> None:
        """Has it seen how the ranks of a round share their time."""
        await self._judge(round, nodes, long=True)

    def end(self, node: Suspected, condemned: Condemned) -> None:
        """Has a worker killed."""
        self._begin(self._order(node, CONDEMN, condemned, lambda here: here.condemn(condemned)))

    def replace(self, node: Suspected, replacement: Replacement) -> None:
        """Has a node leave."""
        self._begin(self._replace(node, replacement))

    async def _replace(self, node: Suspected, replacement: Replacement) -> None:
        if not await self._order(node, REPLACE, replacement, lambda here: here.replace(replacement)):
            self._say(f"node {node.node} was told to leave and has not agreed; it stays until it is found slow again")

    def _begin(self, order: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(order, name="master: acts on a diagnosis")
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _examine(self) -> None:
        while self._wanted:
            (round, nodes), self._wanted = self._wanted, None
            await self._judge(round, nodes, long=False)
            if self._wanted:
                await asyncio.sleep(PAUSE)

    async def _judge(self, round: int, nodes: Sequence[Suspected], *, long: bool) -> None:
        workers = sum(each.workers for each in nodes)
        if workers > MAX_WORKERS:
            if not self._too_many:
                self._say(f"no diagnosis: the round has {workers} workers, and at most {MAX_WORKERS} are looked at")
            self._too_many = True
            return
        asked = time.monotonic()
        try:
            if long:
                found = await self._slow(round, nodes)
            else:
                from .suspects import suspects  # here, because a job that makes progress needs none

                # In a thread: the master renews its lease meanwhile.
                answers = await self._answers(round, nodes, long=False)
                found = with_frames(await asyncio.to_thread(suspects, answers, round), answers)
            self._tell(round, found, long, time.monotonic() - asked)
        except Exception as error:  # noqa: BLE001  a diagnosis that fails must not cost the job its master
            self._say(f"the diagnosis has failed ({error!r}); the job continues")

    async def _slow(self, round: int, nodes: Sequence[Suspected]) -> tuple[Finding, ...]:
        """Ranks that are slow twice in a row: some seconds of a busy machine show too many."""
        from .stragglers import stragglers  # here, as `suspects`

        first = await asyncio.to_thread(stragglers, await self._answers(round, nodes, long=True), round)
        if not first:
            return ()
        answers = await self._answers(round, nodes, long=True)
        again = await asyncio.to_thread(stragglers, answers, round)
        known = {each.rank for each in first}
        return with_frames(tuple(each for each in again if each.rank in known), answers)

    async def _answers(self, round: int, nodes: Sequence[Suspected], *, long: bool) -> Sequence[Answer]:
        few, wanted, shared = asyncio.Semaphore(AT_ONCE), Look(round, long), Shared()

        async def ask(node: Suspected) -> Answer:
            async with few:
                answer = await self._ask(node, wanted)
            evidence = shared.of(answer.evidence) if answer.evidence else None
            return replace(answer, evidence=evidence, role=node.role, workers=node.workers)

        return await asyncio.gather(*(ask(node) for node in nodes))

    async def _ask(self, node: Suspected, wanted: Look) -> Answer:
        try:
            async with asyncio.timeout(SECONDS):
                if self._here and node.incarnation == self._here.incarnation():
                    return Answer(node.node, node.host, await self._here.look(wanted))
                async with self._connected(node) as connection:
                    before = time.time()
                    evidence = await connection.ask(EVIDENCE, wanted, NodeEvidence, SECONDS)
                    after = time.time()
        except (RpcError, OSError) as error:  # a TimeoutError is one
            if isinstance(error, RpcError) and error.code == "too long":  # its agent has answered
                self._say(f"the evidence of node {node.node} is too long to be sent: its workers are not diagnosed")
                return Answer(node.node, node.host)
            why = str(error) or f"its agent has not answered for {SECONDS:g} s"
            return Answer(node.node, node.host, trouble=why)
        ahead, behind = evidence.unix_time - after, before - evidence.unix_time
        return Answer(node.node, node.host, evidence, skew=ahead if ahead > 0 else -behind if behind > 0 else 0.0)

    async def _order(self, node: Suspected, method: str, order: object, here: Callable[[Here], Done]) -> bool:
        """Tells a node to do something, and whether it does; `here`: where it is this one."""
        try:
            async with asyncio.timeout(SECONDS):
                if self._here and node.incarnation == self._here.incarnation():
                    return here(self._here).done
                async with self._connected(node) as connection:
                    return (await connection.ask(method, order, Done, SECONDS)).done
        except (RpcError, OSError):
            return False  # an agent that does not answer is the failure detector's affair

    def _connected(self, node: Suspected) -> "AbstractAsyncContextManager[Connection]":
        """Entering it raises OSError."""
        from ...rendezvous.rpc.client import connect_to_node  # here, because a job of one node has no other agent

        caller = Caller(self._run(), "master")
        return connect_to_node(node.address, node.incarnation, node.node, caller, self._security)


INNERMOST = 2
"""Calls that are shown whose file is not the user's: what the script waits in."""


def with_frames(findings: tuple[Finding, ...], answers: Sequence[Answer]) -> tuple[Finding, ...]:
    """The findings with the calls of their suspects: the innermost, and those of the user's own files (pure)."""
    from .frames import script_frames  # here, as `suspects`

    workers = {worker.rank: worker for each in answers if each.evidence for worker in each.evidence.workers}

    def frames(rank: int | None) -> tuple[Frame, ...]:
        worker = workers.get(rank) if rank is not None else None
        seen = next((each.frames for each in reversed(worker.snapshots) if each.frames), ()) if worker else ()
        own = script_frames(seen)
        return tuple(each for at, each in enumerate(seen) if at < INNERMOST or each in own)[:MAX_SHOWN]

    return tuple(replace(each, frames=frames(each.rank)) for each in findings)
