"""Where the members of a store have their locks and data on a machine, and how their supervisors know of a user."""

import asyncio
import os
from pathlib import Path

from elastic_run.rendezvous.store.embedded.folders import StoreFolders
from elastic_run.rendezvous.store.embedded.member_start import StoreUses
from elastic_run.rendezvous.store.embedded.watchdog import take_lock
from elastic_run.rendezvous.store.endpoint import Endpoint

ONE, OTHER = Endpoint("a", 2379), Endpoint("b", 2381)


def folders(folder: Path) -> StoreFolders:
    return StoreFolders((ONE, OTHER), folder / "data", folder / "locks")


def test_a_lock_is_its_ports_and_the_folder_is_made_where_it_is_to_be_held(tmp_path: Path) -> None:
    found = folders(tmp_path)
    assert found.lock(ONE, make=False) == tmp_path / "locks" / "etcd-2379.lock" and not (tmp_path / "locks").exists()
    assert found.lock(ONE).parent.is_dir()
    assert found.users(OTHER) == tmp_path / "locks" / "etcd-2381.users"


def test_members_and_generations_have_folders_of_their_own(tmp_path: Path) -> None:
    found = folders(tmp_path)
    first, second = found.homes(ONE)
    assert len({first.path, second.path, found.home(OTHER).path}) == 3
    assert {first.path.parent, second.path.parent} == {tmp_path / "data"}
    assert found.home(ONE) == first
    found.generation = 2
    assert found.home(ONE) == second


def test_data_of_either_generation_is_found_and_else_the_present_one_is_named(tmp_path: Path) -> None:
    found = folders(tmp_path)
    first, second = found.homes(ONE)
    assert found.home_with_data(ONE) == first
    (second.data / "member" / "wal").mkdir(parents=True)
    assert found.home_with_data(ONE) == second


def test_a_supervisor_knows_of_a_user_until_it_lets_go(tmp_path: Path) -> None:
    found = folders(tmp_path)

    async def scene() -> None:
        uses = StoreUses(found, asyncio.get_running_loop().time() + 60.0)
        await uses.add(ONE)
        await uses.add(ONE)
        assert len(uses.descriptors) == 1 and take_lock(found.users(ONE)) is None
        for descriptor in uses.descriptors:
            os.close(descriptor)
        held = take_lock(found.users(ONE))
        assert held is not None
        late = StoreUses(found, asyncio.get_running_loop().time())
        await late.add(ONE)  # the supervisor has it, and there is no time left
        assert late.descriptors == ()
        os.close(held)

    asyncio.run(scene())
