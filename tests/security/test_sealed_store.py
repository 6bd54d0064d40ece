"""What who may read or write a store of the user's own learns of a job there, and can do to it.

Each is done to the same job with --insecure, too, where it succeeds.
"""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.store.contract import Put
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.wire.values import decode, encode

from ..integration.cluster import Cluster

WORD = "hush-2718281828"
"""Stands in an error that a worker raises."""

HOST = "127.0.0.1"

HOW = pytest.mark.parametrize("how", ["insecure", "secret"])


def flags(how: str) -> dict[str, str]:
    return {"insecure": ""} if how == "insecure" else {}


async def written(cluster: Cluster) -> dict[str, bytes]:
    """All that is under the job's keys, as the store has it."""
    store = EtcdStore([str(cluster.endpoint)])
    try:
        return {item.key: item.value for item in (await store.list(Keys(cluster.job).root)).items}
    finally:
        await store.close()


@HOW
def test_who_reads_the_store_sees_no_error_no_address_and_no_script(how: str, job: Cluster) -> None:
    job.start("A", "B", nnodes=2, max_restarts=3, **flags(how))
    job.workers(2)
    job.puppets[-1].tell(f"raise ValueError({WORD!r})")
    workers = job.workers(2)  # of the next round
    found = asyncio.run(written(job))
    assert found and all(found.values())
    everything = b"".join(found.values())
    sought = {WORD, HOST, job.script.name}
    seen = {word for word in sought if word.encode() in everything}
    assert seen == (sought if how == "insecure" else set())
    command = [sys.executable, "-m", "elastic_run", "status", "--json", f"--rdzv-endpoint={job.typed_endpoint}"]
    command += [f"--rdzv-id={job.job}", *(["--insecure"] if how == "insecure" else [])]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(told)["nodes"] and HOST in told, "who belongs to the job reads all of it"
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}


async def forge_an_end(cluster: Cluster) -> None:
    """Puts a header that says that the job has succeeded, made of the one that is there where that can be read."""
    store, key = EtcdStore([str(cluster.endpoint)]), Keys(cluster.job).round
    reader = cluster.store()
    try:
        found = await reader.get(key)
        assert found is not None
        await store.txn([], [Put(key, encode(replace(decode(Header, found.value), state="succeeded")))])
    finally:
        await store.close()
        await reader.close()


@HOW
def test_who_writes_to_the_store_cannot_say_that_the_job_has_succeeded(how: str, job: Cluster) -> None:
    job.start("A", "B", nnodes=2, **flags(how))
    job.workers(2)
    asyncio.run(forge_an_end(job))
    if how == "insecure":
        assert job.finish() == {"A": 0, "B": 0}, "though no worker has ended"
        return
    for name in "AB":
        job.wait_for_line(name, "ignored: ")
        assert job.nodes[name].process.poll() is None
    for name in "AB":
        job.kill_agent(name)
    assert job.finish() == {}
