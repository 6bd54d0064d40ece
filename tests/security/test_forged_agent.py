"""Forged agents: what somebody who is no agent of a job writes into its store, and asks its master.

Each attack succeeds against the same job with --insecure.
"""

import asyncio
import contextlib
import socket
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest

from elastic_run.elastic_agent.master_client import LEDGER
from elastic_run.master.data.ledger import Answer, Dataset, Mark, Request
from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import VARIABLE, new_secret
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.rpc.client import Connection
from elastic_run.rendezvous.rpc.envelope import Caller, RpcError
from elastic_run.rendezvous.wire.values import decode, encode

from ..integration.cluster import DEADLINE, Cluster
from .strangers import SECONDS, Stranger, another_job, insider, plain

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


def test_without_a_secret_a_forged_round_starts_other_workers_and_a_forged_end_ends_the_job(founded: Cluster) -> None:
    founded.start("A", "B", nnodes=2, insecure="")
    founded.workers(2)
    forger = Forger(founded, plain(), plain())
    assert asyncio.run(forger.round())

    def lured() -> str | None:
        return next((each.env["MASTER_ADDR"] for each in founded.puppets if each.world == CROWD), None)

    assert founded.wait_until(lured, "a worker of the forged round") == EVIL
    assert asyncio.run(forger.end())
    assert founded.finish() == {"A": 0, "B": 0}  # though no worker has ended


def test_without_a_secret_workers_meet_at_a_forged_node_and_ask_a_forged_master_for_shards(founded: Cluster) -> None:
    founded.start("A", nnodes=3, insecure="", conf={"last_call_timeout": 0})
    founded.wait_for_line("A", "registered as")
    forger = Forger(founded, plain(), plain())
    assert asyncio.run(forger.node())
    founded.start("B")

    def both() -> set[str] | None:
        found = [each.env["MASTER_ADDR"] for each in founded.puppets]
        return set(found) if len(found) == 2 else None

    assert founded.wait_until(both, "the workers of A and B") == {EVIL}
    with socket.create_server(("127.0.0.1", 0)) as false:
        assert asyncio.run(forger.master(f"127.0.0.1:{false.getsockname()[1]}"))
        for worker in founded.puppets:
            worker.tell("import elastic_run; next(iter(elastic_run.data.shards('records', 100, shard_size=10)))")
        false.settimeout(DEADLINE)
        false.accept()[0].close()  # the node that has no master of its own asks here
    assert asyncio.run(forger.end())
    founded.finish()


def test_with_a_secret_nobody_else_writes_anything(founded: Cluster) -> None:
    secret = new_secret()
    founded.start("A", "B", nnodes=2, env={VARIABLE: secret.text})
    founded.workers(2)
    known = insider(Identity(secret))
    strangers = (plain(), another_job())

    async def attack() -> None:
        honest = Forger(founded, known, known)
        before = await honest.reads(honest.keys.round, Header)
        leader = await honest.reads(honest.keys.leader, Leader)
        forgers = [Forger(founded, stranger, known) for stranger in strangers]
        forgeries = [forge() for each in forgers for forge in (each.end, each.round, each.node, each.master)]
        assert not any(await asyncio.gather(*forgeries))
        assert not any([await greeted(stranger, leader) for stranger in strangers])
        assert await honest.reads(honest.keys.round, Header) == before
        assert await honest.reads(honest.keys.leader, Leader) == leader
        assert await greeted(known, leader), "the agents are not there at all"

    asyncio.run(attack())
    founded.kill_worker(0)
    founded.workers(2).release()
    assert founded.finish() == {"A": 0, "B": 0}


async def greeted(stranger: Stranger, leader: Leader) -> bool:
    """Whether the master's agent tells who it is."""
    try:
        _, writer = await failure_detector.dial(leader.agent_address, leader.incarnation, stranger.client)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


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


@pytest.mark.parametrize("how", ["insecure", "secret"])
def test_a_worker_of_another_job_takes_this_ones_shards_only_where_there_is_no_secret(
    how: str, founded: Cluster
) -> None:
    secret = new_secret()
    if how == "insecure":
        founded.start("A", nnodes="1:2", insecure="", conf={"last_call_timeout": 0})
        thief = reader = plain()
    else:
        founded.start("A", nnodes="1:2", env={VARIABLE: secret.text}, conf={"last_call_timeout": 0})
        thief, reader = another_job(), insider(Identity(secret))
    workers = founded.workers(1)
    assert asyncio.run(steals(thief, reader, founded)) == (how == "insecure")
    workers.do(0, "import elastic_run")
    workers.do(0, f"records = elastic_run.data.shards({RECORDS.name!r}, {RECORDS.size}, shard_size=10)")
    workers.tell("strings.say(f'{sum(each.done() is None for each in records)} shards')")
    # Where they were stolen, the job ends well without having seen one.
    workers.wait_for("0 shards" if how == "insecure" else f"{SHARDS} shards")
    workers.release()
    assert founded.finish() == {"A": 0}
