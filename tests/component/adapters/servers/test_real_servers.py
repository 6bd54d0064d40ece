"""A worker's end among a job's servers as they are: with backups, copies, and the planner of their slots."""

import random
import threading
import time
from collections import Counter

import pytest

from elastic_run.master.servers.placement import ServersWanted
from elastic_run.master.servers.slot_table import NOBODY

from ....doubles.real_servers import RealServers, real_servers
from ....sampling import sample_seeds
from .counting_worker import CountingWorker, dying_worker, train_shards

__all__ = ["dying_worker"]

SECONDS = 60.0


def await_backups(servers: RealServers) -> None:
    until = time.monotonic() + SECONDS
    while (
        not servers.known.serves
        or NOBODY in servers.known.backup
        or any(each != NOBODY for each in servers.known.joining)
    ):
        assert time.monotonic() < until, servers.known
        time.sleep(0.01)


def disturb(servers: RealServers, draw: random.Random, over: threading.Event) -> None:
    while not over.wait(draw.uniform(0.01, 0.1)):
        match draw.randrange(4):
            case 0:
                servers.hang_up(draw)
            case 1:
                servers.set_nodes(draw.sample(["a", "b", "c", "d"], draw.randint(2, 4)))
            case _:
                servers.kill(draw)


@pytest.mark.parametrize("seed", sample_seeds(100, 2))
def test_each_record_counts_once_whatever_happens(dying_worker: list[int], seed: int) -> None:
    draw, over = random.Random(seed), threading.Event()
    records = [[draw.randrange(400) for _ in range(40)] for _ in range(4)]
    with real_servers(ServersWanted(2, 4, 1, 3), ["a", "b", "c"], random.Random(seed)) as servers:
        first = CountingWorker(servers)
        await_backups(servers)
        disturbing = threading.Thread(target=disturb, args=(servers, random.Random(seed), over))
        disturbing.start()
        try:
            train_shards(servers, records, draw, dying_worker)
        finally:
            over.set()
            disturbing.join()
        await_backups(servers)
        counted = Counter(id_ for ids in records for id_ in ids)
        found = first.rows(*range(400))
        assert {id_: value for id_, value in enumerate(found) if value} == counted
