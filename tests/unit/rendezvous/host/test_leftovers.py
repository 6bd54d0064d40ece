"""Which folders of earlier jobs are removed from the temporary folder, and which are never touched."""

import asyncio
import os
import tempfile
import time
from io import BytesIO
from pathlib import Path

import pytest

from elastic_run.elastic_agent.logs.output import Output
from elastic_run.launcher.launch import CALL_PREFIX, call_folder
from elastic_run.rendezvous.host import leftovers
from elastic_run.rendezvous.host.leftovers import FRESH_SECONDS, KEEP_SECONDS, hold, prune

PREFIX = "elastic-run_"
WEEKS = 3 * KEEP_SECONDS
"""The time now, where files are as old as the epoch."""


def old(parent: Path, name: str = f"{PREFIX}job") -> Path:
    """A folder with a file in it, both written long ago."""
    folder = parent / name
    (folder / "attempt_1").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    (folder / "attempt_1" / "stderr.log").write_text("it failed")
    for path in (folder / "attempt_1" / "stderr.log", folder / "attempt_1", folder):
        os.utime(path, (1, 1))
    return folder


def test_an_old_folder_of_a_job_is_removed(tmp_path: Path) -> None:
    folder = old(tmp_path)
    prune(tmp_path, PREFIX, WEEKS)
    assert not folder.exists()


def test_one_that_is_not_old_stays(tmp_path: Path) -> None:
    folder = old(tmp_path)
    prune(tmp_path, PREFIX, KEEP_SECONDS)
    assert folder.exists()


def test_of_many_the_oldest_go_as_soon_as_they_are_no_longer_fresh(tmp_path: Path) -> None:
    folders = [old(tmp_path, f"{PREFIX}{number}") for number in range(5)]
    for number, folder in enumerate(folders):
        for path in (folder / "attempt_1" / "stderr.log", folder / "attempt_1", folder):
            os.utime(path, (number, number))
    prune(tmp_path, PREFIX, FRESH_SECONDS, most=2)
    assert all(each.exists() for each in folders)
    prune(tmp_path, PREFIX, FRESH_SECONDS + 2.5)
    assert all(each.exists() for each in folders), "no bound was given"
    prune(tmp_path, PREFIX, FRESH_SECONDS + 1.5, most=2)
    assert [each.exists() for each in folders] == [False, False, True, True, True]
    prune(tmp_path, PREFIX, FRESH_SECONDS + 9.0, most=2)
    assert [each.exists() for each in folders] == [False, False, False, True, True]


def test_one_in_which_something_was_written_lately_stays(tmp_path: Path) -> None:
    folder = old(tmp_path)
    os.utime(folder / "attempt_1" / "stderr.log", (WEEKS, WEEKS))
    prune(tmp_path, PREFIX, WEEKS)
    assert folder.exists()


def test_one_that_is_taken_up_while_it_is_looked_at_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = old(tmp_path)
    lock = leftovers.fcntl.flock

    def taken_up(descriptor: int, operation: int) -> None:
        os.utime(folder, (WEEKS, WEEKS))
        lock(descriptor, operation)

    monkeypatch.setattr(leftovers.fcntl, "flock", taken_up)
    prune(tmp_path, PREFIX, WEEKS)
    assert folder.exists()


def test_one_that_a_living_job_holds_stays(tmp_path: Path) -> None:
    folder = old(tmp_path)
    held = hold(folder)
    assert held is not None
    prune(tmp_path, PREFIX, WEEKS)
    assert folder.exists()
    os.close(held)
    prune(tmp_path, PREFIX, WEEKS)
    assert not folder.exists()


def test_what_is_not_a_job_s_stays(tmp_path: Path) -> None:
    """Another name; a folder that others can write to; a link, and what it leads to."""
    strange, shared = old(tmp_path, "mine"), old(tmp_path, f"{PREFIX}shared")
    shared.chmod(0o777)
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(strange)
    prune(tmp_path, PREFIX, WEEKS)
    assert strange.exists() and shared.exists() and link.is_symlink()


def test_a_job_removes_old_folders_of_others_and_holds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = old(tmp_path)
    output = Output(host="n", log_dir=None, job_id="next", stream_out=BytesIO(), stream_err=BytesIO())
    assert not folder.exists()
    prune(tmp_path, PREFIX, time.time() + WEEKS)
    assert output.root.exists()
    asyncio.run(output.close(succeeded=True))
    assert not output.root.exists()


def test_a_call_removes_old_folders_of_others_and_holds_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = old(tmp_path, f"{CALL_PREFIX}abc")
    with call_folder() as folder:
        assert not killed.exists()
        prune(tmp_path, CALL_PREFIX, time.time() + WEEKS)
        assert folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    prune(tmp_path / "missing", PREFIX, WEEKS)
    assert hold(tmp_path / "missing") is None
