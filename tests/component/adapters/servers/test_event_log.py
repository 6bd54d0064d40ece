"""What a server's log has is what the server was, wherever its process has ended."""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastic_run.adapters.servers.event_log import EventLog, LogDamaged
from elastic_run.adapters.servers.job_servers import ServerOrders
from elastic_run.adapters.servers.marks import Marks
from elastic_run.adapters.servers.part_files import PartReader, write_part
from elastic_run.adapters.servers.requests import OpenTable, PushGradients, PushSource
from elastic_run.adapters.servers.server import ServedMachine
from elastic_run.adapters.servers.server_events import CopyTurn, PeerBroken, ServerAsked, ServerEvent, TableRead
from elastic_run.adapters.servers.server_machine import ServerMachine
from elastic_run.adapters.servers.slot_sets import NO_SLOTS
from elastic_run.adapters.servers.tables import Tables
from elastic_run.master.servers.slot_table import SLOTS, SlotTable

from ....doubles.one_server import table_of_one
from .machine_network import COUNTS, STEPS, Network, Worker, pull_counts

ALL = ~NO_SLOTS


class LoggedNetwork(Network):
    """Each server has a log."""

    def __init__(self, draw: random.Random, folder: Path) -> None:
        super().__init__(draw)
        self.folder = folder
        self.logs: dict[str, EventLog] = {}

    def happen(self, name: str, event: ServerEvent) -> None:
        super().happen(name, event)
        if name not in self.logs:
            self.logs[name] = EventLog(self.folder / name)
        self.logs[name].append_event(event)

    def go_on_by_log(self, name: str) -> None:
        """Another process is what that server was; all of its connections are lost."""
        turns = self.turns[name]
        self.machines[name] = read_machine(name, self.folder / name, self.memory)
        del self.logs[name]
        for number, link in list(self.links.items()):
            if link.asker == name:
                del self.links[number]
            elif link.server == name:
                self.break_link(number)
        for peer in self.machines[name].peers:
            self.happen(name, PeerBroken(peer))
        self.turns[name] = turns


def read_machine(name: str, folder: Path, memory: int = 1 << 22) -> ServerMachine:
    machine = ServerMachine(name, memory)
    for event in EventLog(folder).read_events():
        machine.on(event)
    return machine


def all_of(machine: ServerMachine) -> list[Any]:
    """Its rows, marks and version, as bytes."""
    found: list[Any] = [machine.version]
    for spec in machine.tables.specs:
        rows, place = machine.tables.find_table(spec.name), 0
        while place < rows.end:
            arrays, place = rows.copy_piece(place, ALL, 1 << 16)
            found += [spec, *(each.tobytes() for each in arrays)]
    names, arrays = machine.marks.take_slots(ALL)
    return [*found, names, *(each.tobytes() for each in arrays)]


@pytest.mark.parametrize("seed", range(6))
def test_a_server_goes_on_by_its_log_while_slots_move_and_counts_each_record_once(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    network = LoggedNetwork(draw, tmp_path)
    names = [network.start_server() for _ in range(2)]
    network.write_table(names, [(names[slot % 2], "", "") for slot in range(SLOTS)])
    for spec in (COUNTS, STEPS):
        for name in names:
            assert network.ask_now(name, OpenTable(spec, network.table.version))[0].refused == ""
    workers = [Worker(network, shard, [draw.randrange(-50, 50) for _ in range(30)], 4) for shard in range(2)]
    for turn in range(4_000):
        for worker in workers:
            worker.go_on()
        if not network.step() and all(worker.done for worker in workers):
            break
        if turn % 60 == 30:
            network.plan(0)
            network.move(0.1)
        if turn % 100 == 99:
            network.go_on_by_log(draw.choice(names))
    assert all(worker.done for worker in workers)
    network.settle()
    for name in names:
        assert all_of(read_machine(name, tmp_path / name)) == all_of(network.machines[name])
    counted = Counter(record for worker in workers for record in worker.records)
    assert pull_counts(network, list(counted)) == counted


def write_some(folder: Path, count: int) -> None:
    log = EventLog(folder)
    for number in range(count):
        log.append_event(PeerBroken(f"peer {number}"))


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_what_is_torn_at_the_end_is_left_out_and_what_follows_comes_in_its_place(tmp_path: Path, cut: int) -> None:
    write_some(tmp_path, 3)
    path = tmp_path / "log-0"
    os.truncate(path, path.stat().st_size - cut)
    log = EventLog(tmp_path)
    whole = list(log.read_events())
    assert whole == [PeerBroken(f"peer {number}") for number in range(len(whole))] and len(whole) in (1, 2)
    log.append_event(CopyTurn())
    assert list(EventLog(tmp_path).read_events()) == [*whole, CopyTurn()]


def test_a_byte_that_was_changed_ends_the_log_before_it_and_is_refused_in_the_middle(tmp_path: Path) -> None:
    write_some(tmp_path, 3)
    path = tmp_path / "log-0"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert len(list(EventLog(tmp_path).read_events())) == 1
    path.write_bytes(data)
    log = EventLog(tmp_path)
    log.begin_next()
    log.append_event(CopyTurn())
    with pytest.raises(LogDamaged, match="log-0 is damaged after"):
        list(EventLog(tmp_path).read_events())


def test_logs_before_a_base_go_when_it_is_there_and_not_before(tmp_path: Path) -> None:
    log = EventLog(tmp_path, shortest=1)
    log.append_event(PeerBroken("a"))
    assert log.is_long
    number, path = log.begin_next()
    log.append_event(PeerBroken("b"))
    assert not log.is_long  # one at a time
    assert list(EventLog(tmp_path).read_events()) == [PeerBroken("a"), PeerBroken("b")]
    path.write_bytes(bytes(100))
    log.end_base(number)
    again = EventLog(tmp_path, shortest=1)
    assert again.base == number and list(again.read_events()) == [PeerBroken("b")]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["base-1", "log-1"]
    assert not again.is_long  # than its base


def test_a_server_has_the_memory_that_its_first_process_had_or_it_would_refuse_what_was_applied(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    assert log.keep_memory(1_000) == 1_000
    log.append_event(CopyTurn())
    assert EventLog(tmp_path).keep_memory(500) == 1_000
    (tmp_path / "memory").write_text("1_0 00")
    with pytest.raises(LogDamaged, match="memory is damaged"):
        EventLog(tmp_path).keep_memory(500)


def test_a_log_that_begins_with_a_checkpoint_needs_a_base_and_one_that_fails_is_not_tried_at_each_event(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    log.append_event(CopyTurn())
    assert not log.is_long
    log.need_base()
    assert log.is_long
    log.begin_next()
    assert not log.is_long
    log.miss_base()
    assert not log.is_long


def test_a_turn_that_was_wanted_before_a_base_is_not_taken_for_one_of_after(tmp_path: Path) -> None:
    """Or rows that are to go would stay, and a copy of their slots would wait for ever."""
    table, ids = table_of_one("@a"), np.arange(1_000)
    source, gradients = PushSource("d", 0, 1, 0, 1), np.ones((len(ids), COUNTS.columns), np.float32)
    log = EventLog(tmp_path)
    for event in (
        TableRead(table),
        CopyTurn(),
        ServerAsked(1, OpenTable(COUNTS, 1)),
        ServerAsked(1, PushGradients((COUNTS.name,), source, 1), (ids, gradients)),
        TableRead(SlotTable(2, table.places, table.servers)),
    ):
        log.append_event(event)

    async def count_rows() -> int:
        process = ServedMachine(ServerOrders(table, "only"), 1 << 22, lambda *_: None, log=EventLog(tmp_path))
        await process.read_log()
        return process._machine.tables.find_table(COUNTS.name).count  # pyright: ignore[reportPrivateUsage]

    assert asyncio.run(count_rows()) == 0


def test_a_base_of_more_rows_than_the_memory_for_them_is_read(tmp_path: Path) -> None:
    """They have come with slots of another server, which nobody may refuse."""
    tables, marks, ids = Tables(1 << 16), Marks(), np.arange(1_500)
    tables.take_table(COUNTS)
    tables.find_table(COUNTS.name).put_piece([ids, np.ones((len(ids), COUNTS.columns), np.float32)])
    write_part(tmp_path / "base-1", 1, ALL, tables, marks)
    again = Tables(1 << 16)
    PartReader(1, ALL, again, Marks(), keeps_leases=True).read_part(tmp_path / "base-1")
    assert again.find_table(COUNTS.name).count == len(ids)
