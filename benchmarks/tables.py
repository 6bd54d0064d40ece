"""`python -m benchmarks.tables`: one worker pulls and pushes rows of a table, of elastic-run and of torch's RPC.

Each in turn, in one run: a server process with a table of dimension 16 and Adagrad, and a worker that draws distinct
ids of two million, 60,000 at a time. torch's is what its tutorial builds: a table of fixed size behind `rpc_sync`,
updated by sparse gradients and `torch.optim.Adagrad`. Rows a second of the worker's time, and of the server's
processor.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed import rpc

from elastic_run.adapters.servers.job_servers import ServerOrders
from elastic_run.adapters.servers.requests import PushSource
from elastic_run.adapters.servers.specs import Adagrad, TableSpec, Uniform
from elastic_run.rendezvous.wire.values import encode
from tests.doubles.one_server import OneServer, table_of_one

from .arena import free_port

IDS, COLUMNS, BATCH = 2_000_000, 16, 60_000

Step = Callable[[Any], object]
"""Takes ids."""


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rates(step: Step, pid: int, batches: int) -> tuple[float, float]:
    """Rows a second: of time, and of the server's processor."""
    draws = np.random.default_rng(0)
    ids = [draws.choice(IDS, BATCH, replace=False) for _ in range(batches)]
    begun, used = time.perf_counter(), _processor_seconds(pid)
    for each in ids:
        step(each)
    seconds, used = time.perf_counter() - begun, _processor_seconds(pid) - used
    return batches * BATCH / seconds, batches * BATCH / max(used, 0.01)


def ours(batches: int) -> dict[str, tuple[float, float]]:
    """A server of elastic-run, whose table is empty at first."""
    command = [sys.executable, "-m", "elastic_run.adapters.servers.server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        print(encode(ServerOrders(table_of_one(""), "only")).decode(), file=server.stdin, flush=True)
        connection = OneServer(table_of_one(server.stdout.readline().split()[1]))
        connection.open_table(TableSpec("t", COLUMNS, Adagrad(lr=0.02), Uniform()))
        gradients, records = np.ones((BATCH, COLUMNS), np.float32), iter(range(10**9))

        def push(ids: Any) -> None:
            begin = next(records)
            connection.push(PushSource("d", 0, 0, begin, begin + 1), t=(ids, gradients))

        everything = np.arange(IDS)
        for first in range(0, IDS, BATCH):  # each row is made, as torch's are from the beginning
            ids = everything[first : first + BATCH]
            begin = next(records)
            connection.push(PushSource("d", 0, 0, begin, begin + 1), t=(ids, gradients[: len(ids)]))
        found = {
            "pulled": _rates(lambda ids: connection.pull(t=ids), server.pid, batches),
            "pushed": _rates(push, server.pid, batches),
        }
        connection.close()
        server.stdin.close()
    return found


_table: list[Any] = []  # Any: a parameter and its optimizer, in the process that serves


def _make() -> int:
    parameter = torch.nn.Parameter(torch.rand(IDS, COLUMNS) * 0.1 - 0.05)
    _table[:] = [parameter, torch.optim.Adagrad([parameter], lr=0.02)]
    return os.getpid()


def _pull(ids: torch.Tensor) -> torch.Tensor:
    return _table[0].detach()[ids]


def _push(ids: torch.Tensor, gradients: torch.Tensor) -> None:
    parameter, optimizer = _table
    parameter.grad = torch.sparse_coo_tensor(ids[None], gradients, parameter.shape)
    optimizer.step()


def _serve(port: int) -> None:
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
    rpc.init_rpc("server", rank=1, world_size=2, rpc_backend_options=options)
    rpc.shutdown()


def torchs(batches: int) -> dict[str, tuple[float, float]]:
    """A server of torch's RPC."""
    port = free_port()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,))
    server.start()
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
    rpc.init_rpc("worker", rank=0, world_size=2, rpc_backend_options=options)
    pid, gradients = rpc.rpc_sync("server", _make), torch.ones(BATCH, COLUMNS)
    found = {
        "pulled": _rates(lambda ids: rpc.rpc_sync("server", _pull, (torch.as_tensor(ids),)), pid, batches),
        "pushed": _rates(lambda ids: rpc.rpc_sync("server", _push, (torch.as_tensor(ids), gradients)), pid, batches),
    }
    rpc.shutdown()
    server.join()
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=5, help="rounds")
    parser.add_argument("--batches", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds = [(ours(options.batches), torchs(options.batches)) for _ in range(options.n)]
    print(f"load {os.getloadavg()[0]:.1f}; median (least to most) of {options.n} rounds, million rows a second")
    for what in ("pulled", "pushed"):
        for place, of in enumerate(("of time", "of the server's processor")):
            mine, peers = ([pair[side][what][place] / 1e6 for pair in rounds] for side in range(2))
            ratios = [one / other for one, other in zip(mine, peers, strict=True)]
            words = (
                f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in (mine, peers, ratios)
            )
            print(f"{what}, {of}: elastic-run {next(words)}, torch's RPC {next(words)}, ratio {next(words)}")


if __name__ == "__main__":
    main()
