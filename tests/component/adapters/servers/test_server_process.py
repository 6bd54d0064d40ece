"""Servers as processes: told by lines on their stdin, and by each other, on one machine and over TLS."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastic_run.adapters.servers import frames, kernels
from elastic_run.adapters.servers.event_log import EventLog
from elastic_run.adapters.servers.frames import Asking, Replying
from elastic_run.adapters.servers.job_servers import ServerOrders
from elastic_run.adapters.servers.requests import (
    ApplyStep,
    OpenTable,
    PrepareGradients,
    PullRows,
    PushGradients,
    PushSource,
    ReadMarks,
    ReadPiece,
    Reply,
    Request,
    StepShare,
)
from elastic_run.adapters.servers.server import ServedMachine
from elastic_run.adapters.servers.server_events import ServerEffect, ServerEvent
from elastic_run.adapters.servers.server_links import AskerLink
from elastic_run.adapters.servers.server_machine import ServerMachine
from elastic_run.adapters.servers.specs import Adam, LeastFrequent, TableSpec, Uniform
from elastic_run.master.servers.checkpoint_folder import CheckpointFolder, CheckpointManifest
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, SlotTable
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.identity.servers import ServersIssuer, ServersTls
from elastic_run.rendezvous.wire.values import encode

from .held_table import Holder, slot_of

SECONDS = 120.0  # to compile its loops, the first time

TABLE = TableSpec("t", 4, Adam(0.1), Uniform())


class Process:
    """A server, as an agent keeps it."""

    def __init__(self, number: int, node: str, tls: ServersTls | None, *words: str) -> None:
        command = [sys.executable, "-m", "elastic_run.adapters.servers.server", "--memory=8000000", *words]
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.orders = ServerOrders(SlotTable(), f"incarnation-{number}", "127.0.0.1", "127.0.0.1", tls)
        self.tell(SlotTable())
        local, remote, *_ = self.hear()
        self.running = RunningServer(number, self.orders.incarnation, node, local, remote)

    def tell(self, table: SlotTable) -> None:
        assert self.popen.stdin is not None
        print(encode(replace(self.orders, table=table)).decode(), file=self.popen.stdin, flush=True)

    def hear(self) -> tuple[str, str, int, int]:
        """What it says next."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if "goes on with its log" in line:
            line = self.popen.stdout.readline()
        ready, local, remote, joined, saved = line.split()
        assert ready == "ready:"
        return local, remote, int(joined), int(saved)

    def ask(self, request: Request, *arrays: Any) -> tuple[Reply, list[Any]]:
        """Over a connection of its own."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(SECONDS)
            asking.connect("\0" + self.running.local.removeprefix("@"))
            for part in frames.pack(Asking(request, frames.shapes_of(arrays)), arrays):
                asking.sendall(part)
            with asking.makefile("rb") as answers:
                length = frames.length_of_head(answers.read(frames.PREFIX.size))
                head: Replying = frames.read_head(Replying, answers.read(length))
                found = frames.make_arrays(head.arrays)
                for buffer in frames.buffers_of(found):
                    assert answers.readinto(buffer) == len(buffer)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
                return head.reply, found

    def end(self) -> tuple[int, str]:
        _, said = self.popen.communicate(timeout=SECONDS)  # closes stdin
        return self.popen.returncode, said


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[list[Process]]:
    tls = None
    if getattr(request, "param", "one node") == "three nodes":
        tls, _ = ServersIssuer(Identity(new_secret()), "job").certificates(time.time())
    with ExitStack() as stack:
        made: list[Process] = []
        for number in range(3):
            process = Process(number, "n" if tls is None else f"n{number}", tls)
            stack.callback(process.end)
            stack.callback(process.popen.kill)
            made.append(process)
        yield made


def table_of(version: int, servers: list[Process], *holders: int) -> SlotTable:
    """All slots have the same primary, backup and joining server."""
    primary, backup, joining = ((at,) * SLOTS for at in holders)
    return SlotTable(version, (), tuple(each.running for each in servers), primary, backup, joining)


def tell_all(servers: list[Process], table: SlotTable) -> None:
    for each in servers:
        each.tell(table)


def push(server: Process, begin: int, version: int, ids: Any) -> None:
    gradients = np.random.default_rng(begin).standard_normal((len(ids), 4)).astype(np.float32)
    source = PushSource("d", 0, 1, begin, begin + 1)
    reply, _ = server.ask(PushGradients(("t",), source, version), ids, gradients)
    assert (reply.refused, reply.count) == ("", len(ids)), reply


@pytest.mark.parametrize("servers", ["one node", "three nodes"], indirect=True)
def test_a_server_that_joins_has_all_that_was_pushed_when_the_others_are_killed(servers: list[Process]) -> None:
    ids = np.arange(30_000)
    tell_all(servers, table_of(1, servers, 0, 1, NOBODY))
    assert servers[0].ask(OpenTable(TABLE, 1))[0].refused == ""
    push(servers[0], 0, 1, ids)
    tell_all(servers, table_of(2, servers, 0, 1, 2))
    push(servers[0], 1, 2, ids[:100])  # while it is copied
    assert servers[0].hear()[2] == 2
    push(servers[0], 2, 2, ids[100:200])
    _, (before,) = servers[0].ask(PullRows(("t",), 2), ids)
    servers[0].popen.kill()
    tell_all(servers[1:], table_of(3, servers, 1, 2, NOBODY))
    _, (of_backup,) = servers[1].ask(PullRows(("t",), 3), ids)
    servers[1].popen.kill()
    tell_all(servers[2:], table_of(4, servers, 2, NOBODY, NOBODY))
    _, (after,) = servers[2].ask(PullRows(("t",), 4), ids)
    assert (before == of_backup).all()
    assert (before == after).all()
    assert servers[2].ask(ReadMarks("d", 0, 2, 4))[0].marks == (3,)
    assert servers[2].ask(OpenTable(TABLE, 4))[0].count == 30_000


def test_a_server_that_is_killed_goes_on_with_its_log_and_with_what_was_prepared(tmp_path: Path) -> None:
    """Its log is begun anew meanwhile; a lease that was fenced off stays so."""
    ids = np.arange(1_000)
    gradients = np.ones((len(ids), 4), np.float32)
    source = PushSource("steps", 0, 1, 0, 1)
    version, killed = 0, list[Any]()
    with ExitStack() as stack:
        for turn in range(4):
            server = Process(0, "n", None, f"--log={tmp_path / 'log'}", "--log-bytes=20000")
            stack.callback(server.end)
            stack.callback(server.popen.kill)
            version += 1
            server.tell(table_of(version, [server], 0, NOBODY, NOBODY))
            assert server.ask(OpenTable(TABLE, version))[0].count == (1_000 if turn else 0)
            if turn:
                assert (server.ask(PullRows(("t",), version), ids)[1][0] == killed[-1]).all()
                assert server.ask(ReadMarks("d", 0, 2, version))[0].marks == (4 * turn,)
                early = PushSource("d", 0, 1, 4 * turn, 4 * turn + 1)
                assert server.ask(PushGradients(("t",), early, version), ids, gradients)[0].refused == "records"
            for at in range(4):
                begin = 4 * turn + at
                source = PushSource("d", 0, 2, begin, begin + 1)
                assert server.ask(PushGradients(("t",), source, version), ids, gradients)[0].refused == ""
            step = PushSource("steps", turn, 1, 0, 1)
            if turn == 2:
                share = StepShare(0, 1)
                assert server.ask(PrepareGradients(("t",), step, share, version), ids, gradients)[0].refused == ""
            if turn == 3:
                before = server.ask(PullRows(("t",), version), ids)[1][0]
                assert server.ask(ApplyStep("steps", 2, 1, 1, version))[0].refused == ""
                assert (server.ask(PullRows(("t",), version), ids)[1][0] != before).all()
            killed.append(server.ask(PullRows(("t",), version), ids)[1][0])
            server.popen.kill()
    assert EventLog(tmp_path / "log").base >= 1 and not (tmp_path / "log" / "log-0").exists()


def test_a_log_of_rows_that_came_from_a_checkpoint_outlasts_that_checkpoint(tmp_path: Path) -> None:
    words, ids = (f"--checkpoints={tmp_path}", "--job=j"), np.arange(100)
    folder = CheckpointFolder(tmp_path, "j")
    with ExitStack() as stack:

        def start(*more: str) -> Process:
            server = Process(0, "n", None, *words, *more)
            stack.callback(server.end)
            stack.callback(server.popen.kill)
            return server

        def save(server: Process, table: SlotTable, version: int) -> None:
            server.tell(replace(table, version=version, checkpoint=version))
            assert server.hear()[3] == version
            folder.complete_checkpoint(CheckpointManifest(version, (0,)))

        first = start()
        first.tell(table_of(1, [first], 0, NOBODY, NOBODY))
        first.ask(OpenTable(TABLE, 1))
        push(first, 0, 1, ids)
        save(first, table_of(1, [first], 0, NOBODY, NOBODY), 2)
        server = start(f"--log={tmp_path / 'log'}")
        table = replace(table_of(3, [server], 0, NOBODY, NOBODY), restore=2)
        server.tell(table)
        assert server.ask(OpenTable(TABLE, 3))[0].count == 100
        push(server, 1, 3, ids)
        for version in (4, 5):
            save(server, table, version)
        until = time.monotonic() + 20.0
        while not (tmp_path / "log" / "base-1").exists() and time.monotonic() < until:
            time.sleep(0.01)
        folder.remove_old(6)
        assert not folder.name_part(2, 0).exists()
        before = server.ask(PullRows(("t",), 5), ids)[1][0]
        server.popen.kill()
        again = start(f"--log={tmp_path / 'log'}")
        again.tell(replace(table_of(6, [again], 0, NOBODY, NOBODY), restore=2))
        assert (again.ask(PullRows(("t",), 6), ids)[1][0] == before).all()


def test_a_server_that_is_to_serve_what_it_was_not_given_ends_with_the_reason(servers: list[Process]) -> None:
    tell_all(servers, table_of(1, servers, 0, 1, NOBODY))
    servers[2].tell(table_of(1, servers, 0, 1, NOBODY))
    servers[2].tell(table_of(2, servers, 0, 2, NOBODY))
    code, said = servers[2].end()
    assert code == 1
    assert "version 2 of the slot table names this server for 1024 slots that it was not given" in said


def test_a_folder_where_no_rows_can_be_written_ends_a_server_before_it_is_ready() -> None:
    command = [sys.executable, "-m", "elastic_run.adapters.servers.server", "--disk=/dev/null/rows", "--disk-size=9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert "this parameter server ends: rows cannot be written to /dev/null/rows: " in done.stderr


def test_whatever_goes_wrong_in_an_event_ends_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(machine: ServerMachine, event: ServerEvent) -> list[ServerEffect]:
        raise ArithmeticError("half done")

    async def fail_once() -> None:
        process = ServedMachine(ServerOrders(SlotTable(), "only"), 1 << 20, lambda *_: None)
        process.take_orders(ServerOrders(SlotTable(1), "only"))
        with pytest.raises(ArithmeticError, match="half done"):
            process.failed.result()

    monkeypatch.setattr(ServerMachine, "on", fail)
    asyncio.run(fail_once())


def test_connections_from_other_machines_are_given_up_when_they_are_silent() -> None:
    async def take_one() -> tuple[int, int]:
        links = list[AskerLink]()
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def take(link: AskerLink) -> None:
            links.append(link)
            done.set()

        async with await loop.create_server(
            lambda: AskerLink(lambda *_: None, take, lambda _: None), "127.0.0.1", 0
        ) as (server):
            with socket.create_connection(server.sockets[0].getsockname()):
                await asyncio.wait_for(done.wait(), SECONDS)
                transport = links[0]._transport  # pyright: ignore[reportPrivateUsage]
                assert transport is not None
                taken: socket.socket = transport.get_extra_info("socket")
                return (
                    taken.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                )

    assert asyncio.run(take_one()) == (1, 10_000)


def test_pieces_of_a_table_are_of_the_slots_whose_primary_a_server_is(servers: list[Process]) -> None:
    nobody, half = (NOBODY,) * SLOTS, tuple(slot % 2 for slot in range(SLOTS))
    running = tuple(each.running for each in servers)
    tell_all(servers, SlotTable(1, (), running, half, tuple(1 - at for at in half), nobody))
    ids = np.arange(1000)
    mine = ids[[kernels.slot_of(each) % 2 == 1 for each in ids]]
    servers[1].ask(OpenTable(TABLE, 1))
    push(servers[1], 0, 1, mine)
    found, first = list[int](), -1
    while first != (reply := servers[1].ask(ReadPiece("t", max(first, 0), 1)))[0].count:
        first = reply[0].count
        found += reply[1][0].tolist()
    assert sorted(found) == mine.tolist()
    assert servers[0].ask(ReadPiece("t", 0, 1))[1][0].tolist() == []
    refused, _ = servers[0].ask(PullRows(("t",), 1), mine)
    assert "some ids are of slots that are another server's" in refused.text
    assert servers[0].ask(PullRows(("t",), 0), mine)[0] == Reply("moved", version=1)


def test_every_loop_is_compiled_before_a_server_is_ready() -> None:
    code = (
        "from elastic_run.adapters.servers import compiling, kernels\n"
        "compiling.compile_loops()\n"
        "print([name for name, loop in vars(kernels).items() if getattr(loop, 'signatures', None) == []])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS)
    assert (done.stdout.strip(), done.stderr) == ("['mix', 'part_of']", "")  # they are parts of the others


def test_rows_marks_and_steps_go_through_a_checkpoint_to_another_number_of_servers(tmp_path: Path) -> None:
    words = (f"--checkpoints={tmp_path}", "--job=a/job")
    folder = CheckpointFolder(tmp_path, "a/job")
    ids, half = np.arange(1000), tuple(slot % 2 for slot in range(SLOTS))
    odd = np.array([kernels.slot_of(each) % 2 == 1 for each in ids])
    nobody = (NOBODY,) * SLOTS
    with ExitStack() as stack:
        servers = [Process(number, "n", None, *words) for number in range(2)]
        for each in servers:
            stack.callback(each.end)
            stack.callback(each.popen.kill)
        table = SlotTable(1, (), tuple(each.running for each in servers), half, tuple(1 - at for at in half), nobody)
        tell_all(servers, table)
        for server, mine in zip(servers, (ids[~odd], ids[odd]), strict=True):
            server.ask(OpenTable(TABLE, 1))
            push(server, 0, 1, mine)
        push(servers[1], 1, 1, ids[odd])  # the other has not got this one
        tell_all(servers, replace(table, version=2, checkpoint=2))
        assert [each.hear()[3] for each in servers] == [2, 2]
        before = [
            server.ask(PullRows(("t",), 2), mine)[1][0]
            for server, mine in zip(servers, (ids[~odd], ids[odd]), strict=True)
        ]
        for begin in (2, 3):
            push(servers[1], begin, 2, ids[odd])  # is not in the checkpoint
        folder.complete_checkpoint(CheckpointManifest(2, (0, 1)))
    with ExitStack() as stack:
        one = Process(0, "n", None, *words)
        stack.callback(one.end)
        stack.callback(one.popen.kill)
        one.tell(replace(table_of(9, [one], 0, NOBODY, NOBODY), restore=2))
        (after,) = one.ask(PullRows(("t",), 9), ids)[1]
        assert (after[~odd] == before[0]).all()
        assert (after[odd] == before[1]).all()
        assert one.ask(ReadMarks("d", 0, 0, 9))[0].marks == (1, 2)
        assert one.ask(OpenTable(TABLE, 9))[0].count == len(ids)  # as it was declared before
        refused, _ = one.ask(OpenTable(replace(TABLE, seed=7), 9))
        assert "table 't' comes from checkpoint 2 of an earlier run, with seed" in refused.text
        (start,) = [path for path in folder.read_parts(2) if path.name == "part-1"]
        start.write_bytes(start.read_bytes()[:-1] + b"?")
        other = Process(1, "n", None, *words)
        other.tell(replace(table_of(9, [other], 0, NOBODY, NOBODY), restore=2))
        code, said = other.end()
        assert code == 1
        assert "part-1 is damaged: its checksum is another one" in said


SMALL = TableSpec("t", 4, Adam(0.1), Uniform(), admit_after=2, evict=LeastFrequent(rows=2 * SLOTS))


def test_a_table_that_stays_within_a_size_goes_on_from_a_checkpoint_on_another_number_of_servers(
    tmp_path: Path,
) -> None:
    """As another does that was never in a checkpoint."""
    words = (f"--checkpoints={tmp_path}", "--job=a/job")
    half, nobody = tuple(slot % 2 for slot in range(SLOTS)), (NOBODY,) * SLOTS
    draws, twin = np.random.default_rng(3), Holder(SMALL)
    pushes = [np.unique(draws.zipf(1.2, 3000) % 20_000) for _ in range(12)]

    def push_to(servers: list[Process], begin: int, version: int) -> None:
        ids = pushes[begin]
        gradients = np.random.default_rng(begin).standard_normal((len(ids), 4)).astype(np.float32)
        of = np.array([half[slot_of(each)] for each in ids.tolist()]) % len(servers)
        for at, server in enumerate(servers):
            source = PushSource("d", 0, 1, begin, begin + 1)
            arrays = ids[of == at], gradients[of == at]
            assert server.ask(PushGradients(("t",), source, version), *arrays)[0].refused == ""
        twin.push(ids.tolist(), 0, gradients)

    with ExitStack() as stack:
        two = [Process(number, "n", None, *words) for number in range(2)]
        for each in two:
            stack.callback(each.end)
            stack.callback(each.popen.kill)
        table = SlotTable(1, (), tuple(each.running for each in two), half, tuple(1 - at for at in half), nobody)
        tell_all(two, table)
        for each in two:
            assert each.ask(OpenTable(SMALL, 1))[0].refused == ""
        for begin in range(6):
            push_to(two, begin, 1)
        tell_all(two, replace(table, version=2, checkpoint=2))
        assert [each.hear()[3] for each in two] == [2, 2]
        CheckpointFolder(tmp_path, "a/job").complete_checkpoint(CheckpointManifest(2, (0, 1)))
    with ExitStack() as stack:
        one = Process(0, "n", None, *words)
        stack.callback(one.end)
        stack.callback(one.popen.kill)
        one.tell(replace(table_of(9, [one], 0, NOBODY, NOBODY), restore=2))
        for begin in range(6, 12):
            push_to([one], begin, 9)
        ids = np.unique(np.concatenate(pushes))
        (after,) = one.ask(PullRows(("t",), 9), ids)[1]
        assert (after == twin.pull(ids.tolist())).all()
        rows = one.ask(OpenTable(SMALL, 9))[0].count
        assert rows == len(twin.rows()) <= 2 * SLOTS
        assert len(ids) > 2 * rows
        refused, _ = one.ask(OpenTable(replace(SMALL, admit_after=3), 9))
        assert "comes from checkpoint 2 of an earlier run, with admit_after 2 in place of 3" in refused.text
