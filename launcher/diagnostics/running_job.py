"""Jobs that run, as somebody sees them who takes no part in them: which there are, and how each is.

Who leads a job stands in the store; the leader's agent answers with the job's `Status`. Nothing is started and nothing
is written.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ...elastic_agent.master_client import Link
from ...master.diagnosis.evidence import NodeEvidence
from ...master.diagnosis.requests import Look
from ...master.status import Status
from ...rendezvous import membership
from ...rendezvous.base.errors import RendezvousError, StoreError
from ...rendezvous.header import Header
from ...rendezvous.keys import ROOT, Keys
from ...rendezvous.rpc.envelope import Caller, Security
from ...rendezvous.store.contract import Store
from ...rendezvous.store.endpoint import Endpoint
from ..console import say
from ..options.reach import Reach
from ..store_access import etcd_at, stranger

if TYPE_CHECKING:
    from ...rendezvous.identity.contexts import Identity

PATIENCE = 10.0
"""Seconds for one answer. A job whose master was lost has another one sooner."""

AGAIN = 0.3
"""Seconds until the leader is looked for again."""


class NoAnswer(RendezvousError):
    """The job cannot be asked; says why.

    Attributes:
        over: there is no such job any more.
    """

    def __init__(self, why: str, *, over: bool = False) -> None:
        super().__init__(why)
        self.over = over


async def jobs(store: Store) -> list[str]:
    """The ids of the jobs in the store, in order. Raises StoreError."""
    found = await store.list(ROOT, keys_only=True)
    return sorted({unquote(item.key.removeprefix(ROOT).partition("/")[0]) for item in found.items})


async def only_job(store: Store, where: str) -> str:
    """The id of the job that is in the store, which is at `where`. Raises NoAnswer, StoreError."""
    ids = await jobs(store)
    if not ids:
        raise NoAnswer(f"there is no job in the store at {where}")
    if len(ids) > 1:
        raise NoAnswer(f"the store at {where} has {len(ids)} jobs, name one of them with --rdzv-id: {', '.join(ids)}")
    return ids[0]


@contextlib.asynccontextmanager
async def job_at(endpoints: Sequence[Endpoint], reach: Reach) -> AsyncGenerator[tuple["RunningJob", "Identity | None"]]:
    """The job in the store there, which is the only one or named by `reach`, and who asks it; hangs up afterwards.

    Raises NoAnswer, NoIdentity.
    """
    where = ",".join(map(str, endpoints))
    store, security, identity = etcd_at(endpoints, reach.store.credentials, reach.trust, say)
    try:
        try:
            running = RunningJob(store, reach.job_id or await only_job(store, where), security)
        except StoreError as error:
            why = await stranger(endpoints, reach.trust)
            words = f"cannot be asked: {why}" if why else f"does not answer: {error}"
            raise NoAnswer(f"the store at {where} {words}") from None
        try:
            yield running, identity
        finally:
            await running.close()
    finally:
        await store.close()


class RunningJob:
    """One job.

    Args:
        store: where it is; the caller closes it.
        security: what its agents speak.
    """

    def __init__(self, store: Store, job: str, security: Security) -> None:
        self.job = job
        self._store = store
        self._keys = Keys(job)
        self._known: Header | None = None
        self._link = Link(store, self._keys, lambda: None, self._caller, security)

    def _caller(self) -> Caller:
        return Caller(self._known.run if self._known else "", "status")

    async def status(self, patience: float = PATIENCE) -> Status:
        """The first answer within `patience` seconds, also of a master that is only just elected. Raises NoAnswer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while True:
            try:
                found = await membership.read_header(self._store, self._keys)
                self._known = found[0] if found else None
                return await self._link.status()
            except (RendezvousError, OSError) as error:
                job = self.job
                if await self._is_gone():
                    why = f"there is no job {job!r} in the store; the keys of a job are removed when it ends"
                    raise NoAnswer(why, over=True) from None
                if loop.time() >= deadline:
                    raise NoAnswer(f"job {job!r} has not answered for {patience:g} s: {error}") from None
            await asyncio.sleep(AGAIN)

    async def see_rank(self, status: Status, rank: int, *, tail: bool) -> NodeEvidence:
        """What the agent of a rank's node sees of that rank.

        Args:
            status: says where it is.
            tail: what it has printed last; else where it is, with its stacks.

        Raises NoAnswer.
        """
        node = status.node_of(rank)
        if node is None:
            raise NoAnswer(f"round {status.round} has no rank {rank}")
        try:
            return await self._link.look(node.node, Look(status.round, rank=rank, tail=tail))
        except (RendezvousError, OSError) as error:
            raise NoAnswer(f"node {node.node} does not tell: {error}") from None

    async def close(self) -> None:
        await self._link.close()

    async def _is_gone(self) -> bool:
        """No key of the job is in the store, but for the marks of its success."""
        try:
            found = await self._store.list(self._keys.root, keys_only=True)
        except StoreError:
            return False
        return all(self._keys.is_mark(item.key) for item in found.items)
