"""Forged agents: what somebody who is no agent of a job writes into its store, and asks its master."""

from dataclasses import dataclass, replace
from typing import TypeVar

from elastic_run.elastic_agent.master_client import LEDGER
from elastic_run.master.data.ledger import Answer, Dataset, Mark, Request
from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.rpc.client import Connection
from elastic_run.rendezvous.rpc.envelope import Caller, RpcError
from elastic_run.rendezvous.wire.values import decode, encode

from ..integration.cluster import DEADLINE, Cluster
from .strangers import SECONDS, Stranger

T = TypeVar("T")


EVIL = "evil.example"
"""A host of the attacker's."""


CROWD = 120
"""Workers of a forged round."""


@dataclass(frozen=True, slots=True)
class Forger:
    """Writes what an agent would write.

    Attributes:
        cluster: the job.
        stranger: who writes.
        reader: who reads what a forgery has to look like; an attacker may know all of it.
    """

    cluster: Cluster
    stranger: Stranger
    reader: Stranger

    @property
    def keys(self) -> Keys:
        """The job's."""
        return Keys(self.cluster.job)

    async def reads(self, key: str, kind: type[T]) -> T:
        """What lies under a key of the job."""
        async with self.reader.at(str(self.cluster.endpoint), DEADLINE) as store:
            found = await store.get(key)
        assert found is not None, f"there is no {key}"
        return decode(kind, found.value)

    async def puts(self, key: str, value: object) -> bool:
        """Whether it could be written."""
        return await self.stranger.puts(str(self.cluster.endpoint), key, encode(value))

    async def end(self) -> bool:
        """A header that says that the job has succeeded."""
        return await self.puts(self.keys.round, replace(await self.reads(self.keys.round, Header), state="succeeded"))

    async def round(self) -> bool:
        """A round in which the worker of A is one of a crowd that meets elsewhere."""
        header = await self.reads(self.keys.round, Header)
        node = await self.reads(self.keys.node("A"), Member)
        forged = replace(header, number=header.number + 1, prefix="forged", nodes=1, world_size=CROWD, master_addr=EVIL)
        part = Assignment(
            round=forged.number,
            node="A",
            incarnation=node.incarnation,
            group_rank=0,
            group_size=1,
            first_rank=0,
            nproc=node.nproc,
            world_size=CROWD,
            role_first_rank=0,
            role_world_size=CROWD,
        )
        return await self.puts(self.keys.assignment("forged", "A"), part) and await self.puts(self.keys.round, forged)

    async def node(self) -> bool:
        """A node that asks for the first rank, on another host."""
        member = await self.reads(self.keys.node("A"), Member)
        forged = replace(member, node="X", incarnation="X1", host=EVIL, node_rank=0)
        return await self.puts(self.keys.node("X"), forged)

    async def master(self, address: str = "127.0.0.1:1") -> bool:
        """Another master, whom the nodes ask for shards."""
        return await self.puts(self.keys.leader, Leader("X", "X1", address))


SHARDS = 10


RECORDS = Dataset("records", size=10 * SHARDS, shard_size=10, shards=SHARDS)
"""As the workers declare it."""


async def steals(thief: Stranger, reader: Stranger, cluster: Cluster) -> bool:
    """Whether it can lease all shards of the job and say that they are done, with all that the job's worker knows."""
    knows = Forger(cluster, reader, reader)
    header = await knows.reads(knows.keys.round, Header)
    leader = await knows.reads(knows.keys.leader, Leader)
    node = await knows.reads(knows.keys.node("A"), Member)
    try:
        answers, writer = await failure_detector.dial(leader.agent_address, leader.incarnation, thief.client)
    except OSError:
        return False
    connection = Connection(answers, writer, "the master", Caller(header.run, "A", node.incarnation))
    request = Request("exchange", RECORDS.name, header.number, 0, 1, part=1)
    try:
        await connection.ask(LEDGER, replace(request, kind="open", part=0, dataset=RECORDS), Answer, SECONDS)
        leased = await connection.ask(LEDGER, replace(request, sequence=1, wants=SHARDS), Answer, SECONDS)
        marks = tuple(Mark(piece.shard_index) for piece in leased.leases)
        done = await connection.ask(LEDGER, replace(request, sequence=2, marks=marks), Answer, SECONDS)
        return len(marks) == SHARDS and done.kind == "ok"
    except (OSError, RpcError):
        return False
    finally:
        await connection.close()
        writer.transport.abort()
