"""Rows that are on disk are the same rows: a server with little memory beside one that has all of them there."""

import asyncio
import errno
import mmap
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastic_run.adapters.servers import record_file
from elastic_run.adapters.servers.buffer_pool import describe_record
from elastic_run.adapters.servers.job_servers import ServerOrders
from elastic_run.adapters.servers.kernels import write_slots
from elastic_run.adapters.servers.marks import Marks
from elastic_run.adapters.servers.part_files import PartReader, write_part
from elastic_run.adapters.servers.part_saver import PartSaver
from elastic_run.adapters.servers.record_file import DiskLimit, RecordFile, RowsUnreadable
from elastic_run.adapters.servers.requests import (
    ApplyStep,
    OpenTable,
    PrepareGradients,
    PushGradients,
    PushSource,
    Request,
    StepShare,
)
from elastic_run.adapters.servers.reserved_memory import give_back, reserve
from elastic_run.adapters.servers.row_memory import TableFull
from elastic_run.adapters.servers.server import ServedMachine
from elastic_run.adapters.servers.server_events import AnswerAsker, Array, ServerAsked, TableRead
from elastic_run.adapters.servers.server_machine import ServerMachine
from elastic_run.adapters.servers.specs import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    LeastFrequent,
    LeastRecent,
    Momentum,
    Normal,
    OlderThan,
    TableSpec,
)
from elastic_run.adapters.servers.tables import Tables, apply_parts, apply_where_present, find_parts
from elastic_run.master.servers.slot_table import SLOTS, SlotTable

from ....doubles.one_server import OneServer, table_of_one
from .held_table import ALL_SLOTS

MEMORY = 300_000

MUCH = 1 << 26


def limited(folder: Path, memory: int = MEMORY, disk: int = MUCH) -> Tables:
    return Tables(memory, DiskLimit(folder, disk))


def push(tables: Tables, name: str, ids: Array, gradients: Array, at: int = 0) -> None:
    found = find_parts(tables.read_push((name,), [ids, gradients], ALL_SLOTS))
    tables.check_room(found)
    apply_parts(found, reuse=True, at=at)


def pull(tables: Tables, name: str, ids: Array) -> Array:
    return tables.pull_rows((name,), [ids], ALL_SLOTS)[0]


def all_rows(tables: Tables, name: str) -> dict[int, list[bytes]]:
    """What each row is, by id."""
    rows, first, following = tables.find_table(name), -1, 0
    found = dict[int, list[bytes]]()
    while first != following:
        first = following
        (ids, *parts), following = rows.copy_piece(first, ALL_SLOTS, 777)
        found |= {id_: [part[at].tobytes() for part in parts] for at, id_ in enumerate(ids.tolist())}
    return found


def on_disk(tables: Tables, name: str) -> int:
    rows = tables.find_table(name)
    assert rows.pool is not None
    return rows.count - rows.pool.used


def test_a_record_is_what_arrays_have_of_a_row_one_after_the_other_and_a_checksum() -> None:
    arrays = [np.zeros((1, 3), np.float32), np.zeros((1, 3), np.float32), np.zeros(1, np.int64)]
    record = describe_record(arrays)
    assert record.fields is not None
    offsets = [int(record.fields[name][1]) for name in ("f0", "f1", "f2", "checksum")]
    assert (offsets, record.itemsize) == ([0, 12, 24, 32], 40)
    assert describe_record(arrays[:1]).itemsize == 24


SPECS = [
    TableSpec("t", 16, Adagrad(0.1), Normal(), evict=LeastRecent(rows=6 * SLOTS)),
    TableSpec("t", 9, Adam(0.1), Normal(), evict=LeastFrequent(rows=6 * SLOTS), admit_after=2),
    TableSpec("t", 16, FTRL(0.1), Normal(), evict=OlderThan(0.04)),
    TableSpec("t", 32, SGD(0.1), Normal(), dtype="bfloat16"),
    TableSpec("t", 12, Momentum(0.1), Normal(), unusable="skip"),
]


@pytest.mark.parametrize("seed", range(10))
def test_rows_have_the_same_bits_whatever_was_on_disk_when(seed: int, tmp_path: Path) -> None:
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    spec = SPECS[seed % len(SPECS)]
    small, large = limited(tmp_path), Tables(1 << 28)
    both, other = (small, large), TableSpec("u", 64, Adam(), Normal())
    for each in both:
        each.open_table(spec)
        each.open_table(other)
    ids = numbers.integers(-(2**63), 2**63 - 1, 900)
    most = 0
    for at in range(120):
        name = draw.choice(("t", "t", "u"))
        chosen = np.unique(numbers.choice(ids[: draw.choice((200, len(ids)))], draw.randint(1, 150)))
        columns = small.find_table(name).spec.columns
        match draw.choice(("push", "push", "push", "pull", "pull", "present", "copy", "forget", "turn", "hold")):
            case "push":
                gradients = numbers.standard_normal((len(chosen), columns)).astype(np.float32)
                if name == "t" and spec.dtype == "bfloat16":
                    gradients = (gradients.view(np.uint32) >> 16).astype(np.uint16)
                elif spec.unusable == "skip" and name == "t":
                    gradients[0] = np.nan
                for each in both:
                    push(each, name, chosen, gradients, at)
            case "pull":
                again = numbers.choice(chosen, 2 * len(chosen))  # some twice
                assert pull(small, name, again).tobytes() == pull(large, name, again).tobytes()
            case "present" if name == "u":
                gradients = numbers.standard_normal((len(chosen), columns)).astype(np.float32)
                for each in both:
                    apply_where_present(each.read_push((name,), [chosen, gradients], ALL_SLOTS))
            case "copy":
                rows = large.find_table(name).copy_ids(chosen)
                assert [each.tobytes() for each in small.find_table(name).copy_ids(chosen)] == [
                    each.tobytes() for each in rows
                ]
                part = [each[: len(rows[0]) // 2] for each in rows]
                for each in both:
                    each.find_table(name).remove_ids(part[0])
                    each.find_table(name).put_piece(part)
            case "forget":
                slots = np.zeros(SLOTS, np.int64)[: len(chosen)]
                write_slots(chosen[: len(slots)], slots)
                gone = np.zeros(SLOTS, np.bool_)
                gone[slots[: draw.randint(0, 20)]] = True
                for each in both:
                    each.forget_slots(gone)
                    while each.remove_some():
                        pass
            case "turn":
                assert small.shared is not None
                small.shared.make_some_room()
            case "hold":
                assert small.shared is not None
                draw.choice((small.shared.hold_records, small.shared.let_records_go))()
            case _:
                pass
        assert small.shared is not None
        assert small.shared.taken <= MEMORY
        most = max(most, on_disk(small, "t") + on_disk(small, "u"))
    for name in (each.name for each in small.specs):
        assert all_rows(small, name) == all_rows(large, name)
    assert most > 200


def test_a_table_twenty_times_as_large_as_its_memory_counts_each_push(tmp_path: Path) -> None:
    spec = TableSpec("t", 1024, SGD(1.0), Normal(std=0.0))
    tables, draws = limited(tmp_path, memory=500_000), np.random.default_rng(3)
    tables.open_table(spec)
    counted = np.zeros(2_500, np.int64)
    for _ in range(250):
        ids = np.sort(draws.choice(len(counted), 50, replace=False))
        counted[ids] += 1
        push(tables, "t", ids, np.full((len(ids), 1024), -1.0, np.float32))
        assert tables.shared is not None
        assert tables.shared.taken <= 500_000
    seen = np.flatnonzero(counted)
    assert len(seen) * spec.number_bytes > 20 * 500_000
    assert (pull(tables, "t", seen) == counted[seen][:, None]).all()


def test_rows_that_are_used_again_and_again_stay_in_memory_while_others_pass_through_it(tmp_path: Path) -> None:
    tables, often = limited(tmp_path), np.arange(200)
    tables.open_table(TableSpec("t", 64, SGD(1.0), Normal()))
    (rows,) = tables.list_rows()
    for first in range(0, 2_000, 100):
        push(tables, "t", np.arange(first, first + 100), np.ones((100, 64), np.float32))
    for first in range(200, 2_000, 50):
        pull(tables, "t", often)
        pull(tables, "t", often)
        pull(tables, "t", np.arange(first, first + 50))  # once
    assert rows.pool is not None
    assert rows.pool.count_on_disk(rows.find(often)) == 0
    assert rows.pool.count_on_disk(rows.find(np.arange(200, 2_000))) > 1_000


def test_a_disk_that_is_full_refuses_new_rows_in_words_and_changes_none(tmp_path: Path) -> None:
    spec = TableSpec("t", 64, SGD(1.0), Normal())
    tables = limited(tmp_path, disk=400_000)
    tables.open_table(spec)
    ones = np.ones((100, 64), np.float32)
    with pytest.raises(TableFull, match="on disk: give --ps-disk more"):
        for first in range(0, 10_000, 100):
            push(tables, "t", np.arange(first, first + 100), ones)
    before = all_rows(tables, "t")
    with pytest.raises(TableFull):
        push(tables, "t", np.arange(90_000, 90_100), ones)
    assert all_rows(tables, "t") == before
    assert 1_200 < len(before) < 1_500
    ids = np.array(sorted(before))
    values = pull(tables, "t", ids)
    for _ in range(3):  # rows that are there are trained as before
        for first in range(0, len(ids), 100):
            push(tables, "t", ids[first : first + 100], ones[: len(ids[first : first + 100])])
    assert (pull(tables, "t", ids) == ((values - 1) - 1) - 1).all()


def test_an_error_of_the_disk_is_told_and_leaves_rows_in_memory_until_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = limited(tmp_path)
    tables.open_table(TableSpec("t", 64, SGD(1.0), Normal()))
    ones, refuse = np.ones((100, 64), np.float32), True

    def write(fd: int, positions: Array, records: Array) -> int:
        return 0 if refuse else real(fd, positions, records)

    def fail(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real = record_file.record_loops.write_records
    monkeypatch.setattr(record_file.record_loops, "write_records", write)
    monkeypatch.setattr(record_file.os, "pwrite", fail)
    pushed = 0
    with pytest.raises(TableFull, match="No space left on device: make room there"):
        for pushed in range(0, 10_000, 100):
            push(tables, "t", np.arange(pushed, pushed + 100), ones)
    refuse = False
    push(tables, "t", np.arange(pushed, pushed + 100), ones)
    assert len(all_rows(tables, "t")) == pushed + 100


def test_what_the_disk_gives_back_otherwise_than_it_was_written_ends_the_server(tmp_path: Path) -> None:
    tables = limited(tmp_path)
    tables.open_table(TableSpec("t", 64, SGD(1.0), Normal()))
    for first in range(0, 2_000, 100):
        push(tables, "t", np.arange(first, first + 100), np.ones((100, 64), np.float32))
    assert tables.shared is not None
    (file,) = tables.shared.descriptors
    os.pwrite(file, b"\1", 264 * 3 + 5)
    with pytest.raises(RowsUnreadable, match="are not what was written: look at that disk"):
        pull(tables, "t", np.arange(2_000))


async def test_a_part_of_a_checkpoint_has_what_was_on_disk_when_it_was_ordered(tmp_path: Path) -> None:
    tables, ids, saved = limited(tmp_path), np.arange(1_200), asyncio.Event()
    tables.open_table(TableSpec("t", 64, Adagrad(), Normal()))
    (rows,) = tables.list_rows()
    gate, found = tmp_path / "gate", tmp_path / "found"
    os.mkfifo(gate)

    def train(times: int) -> None:
        for first in range(0, times * len(ids), 100):
            some = ids[first % len(ids) :][:100]
            push(tables, "t", some, np.ones((len(some), 64), np.float32))

    def describe() -> str:
        return sha256(repr(all_rows(tables, "t")).encode()).hexdigest()

    def write() -> None:
        gate.read_text()  # waits until the rows are others
        found.write_text(describe())

    train(2)
    before = describe()
    PartSaver(lambda _: saved.set(), lambda: None, print).save_part(1, found, write, tables.shared)
    train(6)
    gate.write_text("")
    await asyncio.wait_for(saved.wait(), 30)
    assert found.read_text() == before != describe()
    assert tables.shared is not None
    taken = tables.shared.space.taken
    train(6)
    assert rows.count == len(ids)
    assert tables.shared.space.taken <= taken  # what was kept for the copy is written again


def test_a_part_of_a_checkpoint_goes_through_little_memory_there_and_back(tmp_path: Path) -> None:
    spec, numbers = TableSpec("t", 256, Adam(), Normal(), evict=LeastRecent(rows=4 * SLOTS)), np.random.default_rng(5)
    saved, marks = limited(tmp_path, memory=500_000), Marks()
    saved.open_table(spec)
    for at in range(60):
        ids = np.unique(numbers.integers(0, 2_000, 60))
        push(saved, "t", ids, numbers.standard_normal((len(ids), 256)).astype(np.float32), at)
    write_part(tmp_path / "part", 7, ALL_SLOTS, saved, marks)
    restored = limited(tmp_path, memory=500_000)
    PartReader(7, ALL_SLOTS, restored, Marks()).read_part(tmp_path / "part")
    assert all_rows(restored, "t") == all_rows(saved, "t")
    for each in (saved, restored):
        assert on_disk(each, "t") > 1_000
        assert each.shared is not None
        assert each.shared.taken <= 500_000


def test_a_checkpoint_for_which_the_disk_has_no_room_is_to_be_given_up(tmp_path: Path) -> None:
    tables, ids = limited(tmp_path, disk=350_000), np.arange(1_200)
    tables.open_table(TableSpec("t", 64, SGD(1.0), Normal(std=0.0)))
    assert tables.shared is not None
    times = 0
    while not tables.shared.space.starves:
        assert times < 6
        for first in range(0, len(ids), 100):
            push(tables, "t", ids[first : first + 100], np.full((100, 64), -1.0, np.float32))
        times += 1
        tables.shared.hold_records()
    assert times > 1
    tables.shared.let_records_go()
    assert (pull(tables, "t", ids) == times).all()


async def test_others_are_answered_while_rows_of_a_request_are_read_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, goes_on, told = threading.Event(), threading.Event(), list[str]()

    def wait(file: RecordFile, positions: Array) -> None:
        reads.set()
        assert goes_on.wait(60)

    def use(table: SlotTable) -> Array:
        one, other = OneServer(table), OneServer(table)
        one.open_table(TableSpec("t", 256, SGD(1.0), Normal(std=0.0)))
        for first in range(0, 1_000, 50):
            ids = np.arange(first, first + 50)
            one.push(PushSource("d", 0, 0, first, first + 50), t=(ids, np.full((50, 256), -1.0, np.float32)))
        with ThreadPoolExecutor(1) as pool:
            pulled = pool.submit(lambda: one.pull(t=np.arange(1_000))[0])
            assert reads.wait(60)
            assert other.pull(t=np.arange(1_000, 1_050))[0].any() == np.False_
            assert not pulled.done()
            goes_on.set()
            found = pulled.result(60)
        one.close()
        other.close()
        return found

    monkeypatch.setattr(RecordFile, "read_ahead", wait)
    orders = ServerOrders(table_of_one(""), "only")
    disk = DiskLimit(tmp_path, MUCH)

    def hear(local: str, *_: Any) -> None:
        told.append(local)

    process = ServedMachine(orders, 500_000, hear, None, disk)
    servers = await process.listen()
    process.say_ready()
    table = table_of_one(told[0])
    process.take_orders(replace(orders, table=table))
    assert (await asyncio.to_thread(use, table) == 1.0).all()
    for each in servers:
        each.close()


def test_files_have_no_name(tmp_path: Path) -> None:
    limited(tmp_path).open_table(SPECS[0])
    assert list(tmp_path.iterdir()) == []


def test_ids_alone_may_not_fill_the_memory(tmp_path: Path) -> None:
    tables = limited(tmp_path)
    tables.open_table(TableSpec("t", 16, SGD(1.0), Normal()))
    with pytest.raises(TableFull, match="are there also of rows on disk: give servers more memory"):
        for first in range(0, 10_000, 100):
            push(tables, "t", np.arange(first, first + 100), np.ones((100, 16), np.float32))
    push(tables, "t", np.arange(200), np.ones((200, 16), np.float32))  # rows that are there can be trained


def test_frames_give_their_memory_back_where_ids_need_it(tmp_path: Path) -> None:
    tables = limited(tmp_path, 30_000_000, 1 << 28)
    tables.open_table(TableSpec("t", 64, SGD(1.0), Normal(std=0.0)))
    (rows,), shared = tables.list_rows(), tables.shared
    assert rows.pool is not None
    assert shared is not None
    ones = np.full((10_000, 64), -1.0, np.float32)
    for first in range(0, 260_000, len(ones)):
        push(tables, "t", np.arange(first, first + len(ones)), ones)
        while shared.is_short and shared.make_some_room():
            pass
        assert shared.taken + rows.pool.spare_bytes <= 1.1 * shared.limit
    for first in range(0, 260_000, 130_000):
        assert (pull(tables, "t", np.arange(first, first + 130_000)) == 1.0).all()


def test_memory_that_is_given_back_is_zeros_and_what_is_before_stays() -> None:
    array = reserve((10_000, 3), np.float32)
    array[:] = 1.0
    give_back(array, 5_000)
    left = np.flatnonzero(array[:, 2] == 0.0)
    assert 5_000 <= left[0] <= 5_000 + mmap.PAGESIZE // 12 + 1
    assert len(left) == 10_000 - left[0]
    assert (array[: left[0] - 1] == 1.0).all()


def test_a_server_whose_memory_is_full_of_ids_has_nothing_to_write_and_does_not_try_for_ever(tmp_path: Path) -> None:
    tables, ids = limited(tmp_path), np.arange(4_200)
    tables.take_table(TableSpec("t", 16, SGD(0.1), Normal()))
    rows = tables.find_table("t")
    rows.put_piece([ids, np.zeros((len(ids), 16), np.float32)])  # as of another server's copy, which nobody may refuse
    shared = tables.shared
    assert shared is not None and rows.count * rows.head_bytes > MEMORY * 15 // 16
    for _ in range(1_000):
        if not shared.is_short:
            break
        shared.make_some_room()
    assert not shared.is_short


def test_a_step_that_all_ranks_have_prepared_is_refused_by_no_disk_and_no_memory(tmp_path: Path) -> None:
    """What one rank has of it is refused when it is prepared, where its rows would not fit."""
    machine = ServerMachine("only", 2_000_000, DiskLimit(tmp_path, MUCH))
    machine.on(TableRead(table_of_one("@a")))

    def ask(request: Request, *arrays: Array) -> str:
        effects = machine.on(ServerAsked(1, request, arrays))
        (reply,) = [each.reply for each in effects if isinstance(each, AnswerAsker)]
        return reply.refused

    def prepare(rank: int, world: int, first: int, count: int) -> str:
        request = PrepareGradients(("t",), PushSource("s", 0, 1, 0, world), StepShare(rank, world), 1)
        return ask(request, np.arange(first, first + count), np.ones((count, 16), np.float32))

    assert ask(OpenTable(TableSpec("t", 16, Adam(), Normal()), 1)) == ""
    for first in range(0, 20_000, 1_000):
        ids, source = np.arange(first, first + 1_000), PushSource("d", 0, 1, first, first + 1_000)
        assert ask(PushGradients(("t",), source, 1), ids, np.ones((1_000, 16), np.float32)) == ""
    assert prepare(0, 1, 0, 6_000) == "full"  # they are all on disk
    assert prepare(0, 1, 30_000, 1_500) == "full"  # their ids are too many
    assert [prepare(0, 2, 0, 1_600), prepare(1, 2, 4_000, 1_600)] == ["", ""]
    assert ask(ApplyStep("s", 0, 1, 2, 1)) == ""
    assert machine.marks.read("s", 0, machine.serving) == (2,)
