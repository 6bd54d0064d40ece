"""What a job's nodes leave in its store for the same command, typed again."""

from pathlib import Path

import pytest

from elastic_run.launcher import finished
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.membership import OUTCOME_TTL
from elastic_run.rendezvous.store.contract import Put
from elastic_run.rendezvous.store.memory_store import MemoryStore

KEYS = Keys("job")


async def succeeded() -> MemoryStore:
    """A store in which the job has just succeeded."""
    store = MemoryStore()
    await store.txn([], [Put(KEYS.outcome, b"end", await store.grant(OUTCOME_TTL))])
    return store


async def test_an_end_is_known_to_what_begins_after_it_under_that_name_on_that_machine_and_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await succeeded()
    await finished.note(store, KEYS, "a", "run", 10.0)
    await finished.note(store, KEYS, "a", "run", 20.0)  # its namesake on this machine
    assert await finished.runs_before(store, KEYS, "a", 15.0) == {"run"}
    assert await finished.runs_before(store, KEYS, "a", 10.0) == frozenset()
    assert await finished.runs_before(store, KEYS, "b", 15.0) == frozenset()
    (tmp_path / "boot_id").write_text("another machine\n")
    monkeypatch.setattr(finished, "BOOT", tmp_path / "boot_id")
    assert await finished.runs_before(store, KEYS, "a", 15.0) == frozenset()


async def test_the_word_goes_with_the_tombstone() -> None:
    store = await succeeded()
    tombstone = await store.get(KEYS.outcome)
    assert tombstone
    await finished.note(store, KEYS, "a", "run", 10.0)
    await store.revoke(tombstone.lease)
    await finished.note(store, KEYS, "a", "run", 10.0)
    assert (await store.list(KEYS.root)).items == ()


async def test_what_cannot_be_read_is_not_known() -> None:
    store = await succeeded()
    await store.txn([], [Put(KEYS.seen_end("a", "run"), b"\xff")])
    assert await finished.runs_before(store, KEYS, "a", 15.0) == frozenset()


async def test_without_a_name_for_the_machine_nothing_is_known_and_the_job_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await succeeded()
    monkeypatch.setattr(finished, "BOOT", tmp_path / "absent")
    await finished.note(store, KEYS, "a", "run", 10.0)
    assert await finished.runs_before(store, KEYS, "a", 15.0) == frozenset()
