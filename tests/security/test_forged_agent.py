"""Forged agents: what somebody who is no agent of a job writes into its store, and asks its master.

Each attack succeeds against the same job with --insecure.
"""

import asyncio
import contextlib
import socket

import pytest

from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import VARIABLE, new_secret

from ..integration.cluster import DEADLINE, Cluster
from .forger import CROWD, EVIL, RECORDS, SHARDS, Forger, steals
from .strangers import Stranger, another_job, insider, plain


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
