"""A server's process and its clients, over its socket."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from elastic_run.adapters.servers import frames
from elastic_run.adapters.servers.client import merge
from elastic_run.adapters.servers.errors import PushRefused, ServerFull, ServerGone, TableMisused
from elastic_run.adapters.servers.frames import Asking, Shape
from elastic_run.adapters.servers.job_servers import ServerOrders
from elastic_run.adapters.servers.requests import Ping, PullRows, PushSource
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.master.machine.parameter_servers import ServerMeasure, TableMeasure
from elastic_run.rendezvous.wire.values import encode

from ....doubles.one_server import OneServer, table_of_one

SECONDS = 120.0  # to compile its loops, the first time

TABLE = TableSpec("t", 4, SGD(1.0), Zeros())


class Process:
    """A server that holds everything, as an agent keeps it."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "elastic_run.adapters.servers.server", *arguments]
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)

    def tell(self) -> str:
        """The table; where it listens."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(encode(ServerOrders(table_of_one(""), "only")) + b"\n")
        self.popen.stdin.flush()
        ready, local, remote, joined, saved = self.popen.stdout.readline().decode().split()
        assert (ready, remote, joined, saved) == ("ready:", "-", "0", "0")
        return local

    def end(self) -> tuple[int, str]:
        _, said = self.popen.communicate(timeout=SECONDS)  # closes stdin
        return self.popen.returncode, said.decode()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    process = Process("--memory=2000000")
    yield process.tell()
    assert process.end() == (0, "")


@pytest.fixture
def server(address: str) -> Iterator[OneServer]:
    connection = OneServer(table_of_one(address))
    yield connection
    connection.close()


def test_what_is_pushed_is_pulled_and_read_whole(server: OneServer) -> None:
    assert server.open_table(TABLE) == 0
    ids = np.array([3, -1, 2**63 - 1])
    assert server.push(PushSource("a", 0, 1, 0, 1), t=(ids, np.full((3, 4), -2.0, np.float32))) == 3
    rows, none = server.pull(t=np.array([-1, 5])), server.pull(t=np.array([], np.int64))
    assert rows[0].tolist() == [[2.0] * 4, [0.0] * 4]
    assert none[0].shape == (0, 4)
    assert server.read_marks("a", 0) == (1,)
    found, values = server.read_piece("t", 0)
    assert dict(zip(found.tolist(), values[:, 0].tolist(), strict=True)) == {3: 2.0, -1: 2.0, 2**63 - 1: 2.0}


def test_a_ping_is_answered_with_what_workers_asked_and_were_given(address: str) -> None:
    def measure(connection: OneServer) -> tuple[ServerMeasure, TableMeasure]:
        whole = connection.ask(Ping())[0].measure
        assert whole is not None
        return whole, next(each for each in whole.tables if each.table == "seen")

    with closing(OneServer(table_of_one(address))) as connection:
        connection.open_table(TableSpec("seen", 4, SGD(1.0), Zeros()))
        before, _ = measure(connection)
        ids = np.arange(7)
        connection.push(PushSource("seen", 0, 1, 0, 1), seen=(ids, np.ones((7, 4), np.float32)))
        connection.ask(PullRows(("seen",), table_of_one(address).version, given=40), ids[:5])
        with pytest.raises(TableMisused):
            connection.ask(PullRows(("seen",), table_of_one(address).version, given=40), np.zeros((2, 2), np.int64))
        after, table = measure(connection)
    assert (after.pushes - before.pushes, after.pulls - before.pulls) == (1, 1)
    assert after.push_seconds > before.push_seconds and after.pull_seconds > before.pull_seconds
    assert (table.rows, table.given, table.pulled, table.pulls, table.pushed) == (7, 40, 5, 1, 7)
    assert table.bytes >= 7 * 4 * 4 and (after.copying, after.saved_ago, after.awaits) == (0, None, ())


def test_refusals_are_errors_and_the_connection_goes_on(server: OneServer) -> None:
    server.open_table(TABLE)
    ids, gradients = np.arange(2), np.ones((2, 4), np.float32)
    with pytest.raises(TableMisused, match="there is no table 'other'"):
        server.pull(other=ids)
    server.push(PushSource("b", 0, 2, 0, 2), t=(ids, gradients))
    with pytest.raises(PushRefused, match="applied in part"):
        server.push(PushSource("b", 0, 2, 1, 3), t=(ids, gradients))
    many = np.arange(60_000)
    with pytest.raises(ServerFull, match="KiB more are wanted"):
        server.push(PushSource("b", 0, 2, 2, 3), t=(many, np.ones((len(many), 4), np.float32)))
    assert server.push(PushSource("b", 0, 2, 2, 3), t=(ids, gradients)) == 2


def test_what_is_too_much_for_one_message_is_said_on_either_side(server: OneServer) -> None:
    server.open_table(TableSpec("wide", 4096, SGD(1.0), Zeros()))
    many = np.arange(20_000)
    with pytest.raises(TableMisused, match="312 MiB at a time, and 256 is the most: use smaller batches"):
        server.pull(wide=many)
    with pytest.raises(TableMisused, match="use smaller batches"):
        server.push(PushSource("e", 0, 0, 0, 1), wide=(many, np.zeros((len(many), 4096), np.float32)))
    assert server.pull(wide=many[:2])[0].shape == (2, 4096)


def test_many_workers_at_once_have_each_push_applied_once(address: str) -> None:
    def work(rank: int) -> None:
        connection = OneServer(table_of_one(address))
        connection.open_table(TableSpec("shared", 1, SGD(1.0), Zeros()))
        for step in range(50):
            ids, _ = merge(np.random.default_rng(step).integers(0, 40, 100))
            claim = PushSource("c", rank, 1, step, step + 1)
            connection.push(claim, shared=(ids, np.full((len(ids), 1), -1.0, np.float32)))
        connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    expected = np.zeros(40)
    for step in range(50):
        expected[np.unique(np.random.default_rng(step).integers(0, 40, 100))] += 8
    with closing(OneServer(table_of_one(address))) as connection:
        (rows,) = connection.pull(shared=np.arange(40))
    assert rows[:, 0].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (frames.PREFIX.pack(2**31), "a head of 2147483648 bytes"),
        (frames.PREFIX.pack(5) + b"hello", "not JSON"),
        (frames.PREFIX.pack(2) + b"{}", "request"),
        (
            (lambda body: frames.PREFIX.pack(len(body)) + body)(
                encode(Asking(PullRows(("t",), 0), (Shape("i8", (2**26, 2)),)))
            ),
            "at most",
        ),
    ],
)
def test_what_is_no_request_is_refused_and_its_connection_closed(address: str, sent: bytes, words: str) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(SECONDS)
        stranger.connect("\0" + address.removeprefix("@"))
        stranger.sendall(sent)
        got = b""
        while part := stranger.recv(2**16):
            got += part
    assert words in got[frames.PREFIX.size :].decode()
    assert b'"refused":"misused"' in got


def test_a_server_that_dies_is_an_error_with_its_number() -> None:
    process = Process()
    address = process.tell()
    with closing(OneServer(table_of_one(address), 1.0)) as connection:
        connection.open_table(TABLE)
        process.popen.kill()
        process.end()
        with pytest.raises(ServerGone, match=r"server 0 on node here has not answered \(.*refused"):
            connection.pull(t=np.arange(3))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_is_hung_up_on(address: str) -> None:
    if not (child := os.fork()):
        os.setuid(65534)
        stranger = socket.socket(socket.AF_UNIX)
        stranger.connect("\0" + address.removeprefix("@"))
        try:
            os._exit(0 if stranger.recv(10) == b"" else 1)
        except ConnectionResetError:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_who_imports_torch_without_tables_loads_no_numba() -> None:
    code = "import sys, elastic_run.torch, elastic_run.servers; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=SECONDS).returncode == 0
