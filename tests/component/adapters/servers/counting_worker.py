"""A worker whose table counts ids, and that may die within a push."""

import contextlib
import random
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Protocol

import numpy as np
import pytest

from elastic_run.adapters.servers.client import ServersConnection
from elastic_run.adapters.servers.line import ServerLine
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.adapters.servers.table_source import TableSource

TABLE = TableSpec("t", 1, SGD(1.0), Zeros())


class JobOfServers(Protocol):
    """What such a worker is among."""

    ends: ExitStack

    def source(self) -> TableSource: ...


class CountingWorker:
    """Its gradient counts each id once."""

    def __init__(self, servers: JobOfServers, seconds: float = 20.0) -> None:
        self.connection = ServersConnection(servers.source(), seconds)
        servers.ends.callback(self.connection.close)
        self.client = ServersClient(self.connection)
        self.client.open_table(TABLE)

    def use(self, *ids: int) -> list[float]:
        """The rows of these ids, whose gradient counts each of them once."""
        distinct, rows, inverse = self.client.pull("t", np.array(ids))
        counts = np.bincount(inverse, minlength=len(distinct)).astype(np.float32)[:, None]
        self.client.await_gradient("t", distinct, lambda: -counts)
        return rows[inverse][:, 0].tolist()

    def push(self, begin: int, end: int, shard: int = 0, lease: int = 1) -> None:
        self.client.push("d", shard, lease, begin, end)

    def rows(self, *ids: int) -> list[float]:
        _, rows, inverse = self.client.pull("t", np.array(ids))
        return rows[inverse][:, 0].tolist()


class WorkerLost(Exception):
    """A worker dies here."""


def train_shards(
    servers: JobOfServers, records: Sequence[Sequence[int]], draw: random.Random, dying_worker: list[int]
) -> None:
    """Workers that die within pushes, each followed by the next: it gets a shard where the ledger stands, which is
    anywhere up to where it is done, and begins at the marks."""
    for shard, ids in enumerate(records):
        lease, done = 0, 0
        while done < len(ids):
            lease += 1
            with contextlib.suppress(WorkerLost):
                worker = CountingWorker(servers)
                offset, *cuts = worker.client.cuts("d", shard, lease, draw.randint(0, done))
                for begin, end in pairwise([offset, *cuts, len(ids)]):
                    for first in range(begin, end, 5):
                        last = min(first + 5, end)
                        worker.use(*ids[first:last])
                        dying_worker[:] = [draw.randrange(3)] if draw.random() < 0.2 else []
                        worker.push(first, last, shard, lease)
                        done = max(done, last)
                done = len(ids)
    dying_worker.clear()


@pytest.fixture
def dying_worker(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where it has a number, the worker dies when a push has gone to so many servers more."""
    left, send = list[int](), ServerLine.send_request

    def send_some(line: ServerLine, parts: Sequence[bytes | memoryview]) -> None:
        if left and b"PushGradients" in bytes(parts[0]):
            if not left[0]:
                left.clear()
                raise WorkerLost
            left[0] -= 1
        send(line, parts)

    monkeypatch.setattr(ServerLine, "send_request", send_some)
    return left
