"""When a checkpoint of the tables is ordered, when it is whole, and what stays in its folder."""

import asyncio
import threading
from pathlib import Path

import pytest

from elastic_run.master.servers import checkpoint_keeper
from elastic_run.master.servers.checkpoint_folder import CheckpointFolder, CheckpointManifest
from elastic_run.master.servers.checkpoint_keeper import CheckpointKeeper, can_be_saved, is_saved
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, SlotTable
from elastic_run.rendezvous.base.cancel import cancel
from elastic_run.rendezvous.base.frozen import replace

SERVERS = (RunningServer(0, "a", "A"), RunningServer(3, "b", "B"), RunningServer(4, "c", "C"))

TABLE = SlotTable(7, (), SERVERS, (0, 1) * (SLOTS // 2), (2,) * SLOTS, (NOBODY,) * SLOTS)
"""The last server is no slot's primary."""


def saved_by(version: int, *servers: RunningServer) -> list[RunningServer]:
    return [replace(each, saved=version) for each in servers]


def write_parts(folder: CheckpointFolder, version: int) -> None:
    for number in (0, 3):
        path = folder.name_part(version, number)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"rows")


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path, "a/job")


def test_nothing_is_saved_while_a_slot_has_no_primary_or_is_on_its_way() -> None:
    assert can_be_saved(TABLE, SERVERS)
    assert can_be_saved(TABLE, SERVERS[:2])
    assert not can_be_saved(TABLE, SERVERS[1:])
    assert not can_be_saved(replace(TABLE, joining=(2,) + (NOBODY,) * (SLOTS - 1)), SERVERS)
    assert not can_be_saved(replace(TABLE, lost="rows"), SERVERS)
    assert not can_be_saved(SlotTable(7), SERVERS)


def test_a_checkpoint_is_whole_when_all_primaries_have_saved_it_in_the_version_that_orders_it() -> None:
    ordered = replace(TABLE, version=8, checkpoint=8)
    assert is_saved(ordered, saved_by(8, *SERVERS[:2]))
    assert not is_saved(ordered, saved_by(8, SERVERS[0]))
    assert not is_saved(ordered, [*saved_by(8, SERVERS[0]), *saved_by(7, SERVERS[1])])
    assert not is_saved(replace(ordered, version=9), saved_by(8, *SERVERS))


async def test_one_is_ordered_when_the_one_before_it_is_whole(folder: CheckpointFolder) -> None:
    changed, said = asyncio.Event(), list[str]()
    keeper = CheckpointKeeper(folder, 0.0, said.append, changed.set)
    await keeper.read_folder()
    assert (keeper.newest, keeper.largest) == (0, 0)
    ordered = keeper.order_checkpoint(TABLE, SERVERS)
    assert ordered == replace(TABLE, version=8, checkpoint=8)
    assert keeper.order_checkpoint(ordered, SERVERS) is ordered
    write_parts(folder, 8)
    keeper.finish_checkpoint(ordered, saved_by(8, *SERVERS[:2]))
    await asyncio.wait_for(changed.wait(), 10)
    assert (keeper.newest, said) == (8, [])
    assert [path.name for path in folder.read_parts(8)] == ["part-0", "part-3"]
    assert keeper.order_checkpoint(ordered, SERVERS).checkpoint == 9


async def test_one_that_was_overtaken_by_another_table_is_ordered_anew(folder: CheckpointFolder) -> None:
    keeper = CheckpointKeeper(folder, 0.0, print, lambda: None)
    ordered = keeper.order_checkpoint(TABLE, SERVERS)
    assert keeper.order_checkpoint(replace(ordered, version=9), SERVERS).checkpoint == 10


async def test_a_folder_that_another_machine_sees_elsewhere_is_complained_of_once(folder: CheckpointFolder) -> None:
    changed, said = asyncio.Event(), list[str]()
    keeper = CheckpointKeeper(folder, 0.0, said.append, changed.set)
    table = TABLE
    for _ in range(2):
        table = keeper.order_checkpoint(table, SERVERS)
        keeper.finish_checkpoint(table, saved_by(table.version, *SERVERS))
        await asyncio.wait_for(changed.wait(), 10)
        changed.clear()
    assert (keeper.newest, table.version) == (0, 9)
    assert len(said) == 1 and "part-0 is not there: is it the same folder on all machines?" in said[0]


async def test_one_that_could_not_be_finished_is_not_tried_again(folder: CheckpointFolder) -> None:
    changed, said = asyncio.Event(), list[str]()
    keeper = CheckpointKeeper(folder, 0.0, said.append, changed.set)
    ordered = keeper.order_checkpoint(TABLE, SERVERS)
    keeper.finish_checkpoint(ordered, saved_by(8, *SERVERS))
    await asyncio.wait_for(changed.wait(), 10)
    changed.clear()
    write_parts(folder, 8)
    keeper.finish_checkpoint(ordered, saved_by(8, *SERVERS))
    await keeper.close()
    assert (keeper.newest, list(folder.folder.glob("*.json")), changed.is_set()) == (0, [], False)


async def test_old_ones_that_cannot_be_removed_do_not_undo_the_new_one(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError("not permitted")

    changed, said = asyncio.Event(), list[str]()
    keeper = CheckpointKeeper(folder, 0.0, said.append, changed.set)
    write_parts(folder, 7)
    monkeypatch.setattr("shutil.rmtree", refuse)
    ordered = keeper.order_checkpoint(TABLE, SERVERS)
    write_parts(folder, 8)
    keeper.finish_checkpoint(ordered, saved_by(8, *SERVERS))
    await asyncio.wait_for(changed.wait(), 10)
    assert (keeper.newest, said) == (8, ["checkpoints of the tables: not permitted"])


def test_a_folder_that_never_answers_is_said_and_does_not_hold_the_end_of_its_process(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(CheckpointFolder, "list_versions", lambda _: release.wait())
    monkeypatch.setattr(checkpoint_keeper, "FOLDER_SECONDS", 0.01)
    said = list[str]()

    async def read_until_told() -> None:
        told = asyncio.Event()

        def say(words: str) -> None:
            said.append(words)
            told.set()

        reading = asyncio.create_task(CheckpointKeeper(folder, 0.0, say, lambda: None).read_folder())
        await told.wait()
        await cancel(reading)

    process = threading.Thread(target=lambda: asyncio.run(read_until_told()))
    process.start()
    process.join(10)
    ended = not process.is_alive()
    release.set()
    process.join()
    assert ended
    assert said == [f"checkpoints of the tables: {folder.folder} has not answered in 0.01 s: trying again"]


async def test_one_that_is_late_is_said_and_ordered_anew(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_keeper, "SAVE_SECONDS", 0.0)
    said = list[str]()
    keeper = CheckpointKeeper(folder, 0.0, said.append, lambda: None)
    ordered = keeper.order_checkpoint(TABLE, SERVERS)
    assert keeper.order_checkpoint(ordered, SERVERS).checkpoint == 9
    assert said == ["checkpoints of the tables: not all servers have written checkpoint 8 in time"]


def test_the_newest_two_stay_and_what_is_older_or_torn_goes(folder: CheckpointFolder) -> None:
    other = CheckpointFolder(folder.folder, "a/job-2")
    write_parts(other, 1)
    other.complete_checkpoint(CheckpointManifest(1, (0, 3)))
    for version in (4, 5, 9):
        write_parts(folder, version)
        folder.complete_checkpoint(CheckpointManifest(version, (0, 3)))
        folder.remove_old(version)
    write_parts(folder, 7)
    write_parts(folder, 12)
    assert folder.list_versions() == (9, 12)
    write_parts(folder, 10)
    folder.complete_checkpoint(CheckpointManifest(10, (0, 3)))
    folder.remove_old(10)
    names = {path.name for path in folder.folder.iterdir()}
    assert names == {"a%2Fjob-9", "a%2Fjob-9.json", "a%2Fjob-10", "a%2Fjob-10.json", "a%2Fjob-12"} | {
        "a%2Fjob-2-1",
        "a%2Fjob-2-1.json",
    }
    assert other.list_versions() == (1, 1)
