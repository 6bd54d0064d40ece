"""The process that keeps a job's tables: workers connect to a Unix socket of this machine.

    python -m elastic_run.adapters.servers.server [--memory=BYTES] [--address=NAME]

It is a service of an agent (`adapters/contract.py`): told of each round on its stdin, and `ready: ADDRESS` when it can
answer, with its loops compiled. Requests are answered one after the other, on one core.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Iterator

import numpy as np

from ...rendezvous.host.control_groups import usable_memory
from ...rendezvous.host.local_socket import is_own_peer
from ...rendezvous.wire.values import Malformed
from ..contract import FOLLOWS
from . import frames
from .client import merge
from .errors import TableMisused
from .frames import Asking, Replying
from .session import sum_parts
from .specs import FTRL, SGD, Adagrad, Adam, Momentum, Normal, TableSpec, Uniform, Zeros
from .tables import Arrays, OpenTable, PullRows, PushGradients, PushSource, Reply, Tables

LOST = "the server before this one is lost, and with it the rows of the job's tables: start the job again"


class WorkerConnection(asyncio.BufferedProtocol):
    """One worker's connection.

    Args:
        tables: what it asks.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._transport: asyncio.Transport | None = None
        self._reading = self._read()
        self._into = next(self._reading)

    def _read(self) -> Iterator[memoryview]:
        """Each buffer that is to be filled next; answers each message that is whole. Raises Malformed."""
        while True:
            prefix = bytearray(frames.PREFIX.size)
            yield memoryview(prefix)
            head = bytearray(frames.length_of_head(prefix))
            yield memoryview(head)
            asking = frames.read_head(Asking, head)
            arrays = frames.make_arrays(asking.arrays)
            yield from frames.buffers_of(arrays)
            self._reply(*self._tables.answer(asking.request, arrays))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not is_own_peer(transport.get_extra_info("socket")):
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._into

    def buffer_updated(self, nbytes: int) -> None:
        self._into = self._into[nbytes:]
        try:
            while not self._into:
                self._into = next(self._reading)
        except Malformed as error:
            self._reply(Reply("misused", str(error)), ())
            if self._transport is not None:
                self._transport.close()

    def _reply(self, reply: Reply, arrays: Arrays) -> None:
        try:
            parts = frames.pack(Replying(reply, frames.shapes_of(arrays)), arrays)
        except TableMisused as error:
            parts = frames.pack(Replying(Reply("misused", str(error))), ())
        if self._transport is not None:
            self._transport.writelines(parts)

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None


def half_of_memory() -> int:
    """Of this machine, or of the control group of this process, bytes: what tables may take unless it is said."""
    return usable_memory() // 2


def compile_loops() -> None:
    """Has each loop compiled, or read from numba's cache."""
    tables = Tables(1 << 20)
    ids, gradients = np.arange(2), np.zeros((2, 1), np.float32)
    for optimizer in (SGD(1.0), Momentum(1.0), Adagrad(), Adam(), FTRL()):
        for initializer in (Zeros(), Uniform(), Normal()):
            name = f"{optimizer.code} {initializer.code}"
            tables.answer(OpenTable(TableSpec(name, 1, optimizer, initializer)), ())
            tables.answer(PushGradients((name,), PushSource(name, 0, 0, 0, 1)), (ids, gradients))
            tables.answer(PullRows((name,)), (ids,))
    sum_parts([(merge(ids)[0], gradients), (ids, gradients)])  # for the workers


async def serve(address: str, memory: int) -> None:
    """Answers until stdin ends."""
    loop = asyncio.get_running_loop()
    tables = Tables(memory)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("\0" + address)
    listening.listen(1024)
    server = await loop.create_unix_server(lambda: WorkerConnection(tables), sock=listening)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with server:
        while await reader.readline():
            if os.environ.get(FOLLOWS):
                sys.exit(LOST)
            print(f"ready: {address}", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", type=int, default=half_of_memory())
    parser.add_argument("--address", default=f"elastic-run-servers-{secrets.token_hex(8)}")
    options = parser.parse_args()
    compile_loops()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.address, options.memory))


if __name__ == "__main__":
    main()
