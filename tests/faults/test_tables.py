"""Tables on parameter servers under faults: each record of each epoch counts exactly once, whatever dies.

The table of `count_tables.py` counts. A fault that takes a server's process waits until every slot has its backup
again, as the page promises no more than that; all others come when they come.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from elastic_run.master.servers.slot_table import NOBODY, SlotTable
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.wire.values import decode

from ..integration.cluster import DEADLINE, MARK, seal
from ..integration.conftest import Cluster as Etcd
from ..sampling import SEEDS, SOAK
from .counted import Counted, Kind
from .scene import (
    NODES,
    Scene,
    agent_is_killed,
    machine_is_lost,
    masters_machine_is_lost,
    node_is_told_to_go,
    pick_one,
    worker_exits,
    worker_is_killed,
)

pytestmark = [pytest.mark.torch, pytest.mark.slow]

IN_A_ROW = 10 if SOAK else 5

KINDS = (
    Kind("count_tables.py", epochs=60),
    Kind("count_tables.py", epochs=60, options=("--commit=checkpoint",)),
)

SERVERS = {"servers": f"2:{NODES}", "ps_replicas": "1"}


def table_of(counted: Counted) -> SlotTable:
    """Who holds which slot now, by the store."""
    assert counted.etcd is not None
    endpoints = [member.endpoint for member in counted.etcd.members if member.process is not None]

    async def read() -> SlotTable:
        store = EtcdStore(endpoints, seal=seal())
        try:
            found = await store.get(Keys(counted.job).slots)
            return decode(SlotTable, found.value) if found else SlotTable()
        finally:
            await store.close()

    return asyncio.run(read())


def await_backups(counted: Counted, before: SlotTable) -> SlotTable:
    """The table, once a server of `before` is gone from it each node has one, and each slot its backup."""
    gone = {each.incarnation for each in before.servers}
    until = time.monotonic() + DEADLINE
    while True:
        table = table_of(counted)
        there = {each.incarnation for each in table.servers}
        whole = table.serves and NOBODY not in table.backup and len(there) == len(table.places) == NODES
        if whole and not (gone and gone <= there) and {each.node for each in table.servers} <= set(counted.running()):
            return table
        if time.monotonic() > until:
            raise counted.failed(f"not every slot has its backup: {table.servers}, {table.places}, {table.lost}")
        time.sleep(0.1)  # the store would have to be watched for it


def servers_of(counted: Counted) -> list[int]:
    """The pids of the job's server processes."""
    found: list[int] = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            line, environment = (each / "cmdline").read_bytes(), (each / "environ").read_bytes()
        except OSError:
            continue
        if b"adapters.servers.server" in line and f"{MARK}={counted.mark}".encode() in environment:
            found.append(int(each.name))
    return sorted(found)


def server_is_killed(scene: Scene, pick: float) -> None:
    scene.job.fault("SIGKILL to a server")
    os.kill(pick_one(servers_of(scene.job), pick), signal.SIGKILL)  # type: ignore[arg-type]


def server_is_silent(scene: Scene, pick: float) -> None:
    scene.job.fault("SIGSTOP to a server")
    os.kill(pick_one(servers_of(scene.job), pick), signal.SIGSTOP)  # type: ignore[arg-type]


TAKES_SERVERS: dict[str, Callable[[Scene, float], None]] = {
    fault.__name__: fault
    for fault in (
        server_is_killed,
        server_is_silent,
        agent_is_killed,
        machine_is_lost,
        masters_machine_is_lost,
        node_is_told_to_go,
    )
}

FAULTS = {**TAKES_SERVERS, worker_is_killed.__name__: worker_is_killed, worker_exits.__name__: worker_exits}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_counts_once_whatever_server_worker_or_node_dies(
    frail_counted: Counted, etcd: Etcd, seed: int
) -> None:
    counted, draw = frail_counted, random.Random(f"tables {seed}")
    counted.kind = KINDS[seed % len(KINDS)]
    scene = Scene(counted, etcd)

    def fill() -> None:
        missing = NODES - len(scene.staying())
        if missing > 0:
            names = [next(scene.names) for _ in range(missing)]
            counted.train(*names, nnodes=f"1:{NODES}", conf={"last_call_timeout": 5.0}, **SERVERS)

    fill()
    last = SlotTable()
    for name in (*draw.choices(sorted(FAULTS), k=IN_A_ROW - 1), server_is_killed.__name__):
        if draw.random() < 0.7:
            counted.advances(5)
        if name in TAKES_SERVERS:
            last = await_backups(counted, last)
        FAULTS[name](scene, draw.random())
        fill()
    counted.advances()
    codes = counted.ends()
    assert codes == {node: 143 if node in scene.told else 0 for node in codes}
    assert any(code == 0 for code in codes.values())


@pytest.mark.parametrize("kind", KINDS, ids=["ack", "checkpoint"])
def test_workers_that_die_around_a_push_leave_nothing_out_and_nothing_twice(counted: Counted, kind: Kind) -> None:
    counted.kind = kind
    counted.train("A", "B", nnodes=2, **SERVERS)
    for point in (
        "before a push, rank 1",
        "between a push and the ledger, rank 1",
        "between done and the next request, rank 1",
    ):
        counted.advances(5)
        counted.worker(1)
        counted.happens(point)
    counted.advances(5)
    assert counted.ends() == {"A": 0, "B": 0}
