"""What a machine remembers of jobs that have succeeded."""

import os
import time
from pathlib import Path

import pytest

from elastic_run.launcher import finished


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"elastic-run-{os.getuid()}"


def test_a_success_is_known_to_what_begins_after_it_and_to_nobody_else() -> None:
    before = time.monotonic()
    finished.note("first")
    assert finished.runs_before(before) == frozenset()
    between = time.monotonic()
    finished.note("second")
    assert finished.runs_before(between) == {"first"}
    assert finished.runs_before(time.monotonic()) == {"first", "second"}


def test_notes_of_long_ago_go_and_those_of_an_earlier_start_of_the_machine_do_not_count(runtime: Path) -> None:
    finished.note("old")
    old = runtime / "succeeded" / "old"
    os.utime(old, (0, 0))
    finished.note("new")
    assert not old.exists()
    (runtime / "succeeded" / "new").write_text("another-boot 1.0\n")
    assert finished.runs_before(time.monotonic()) == frozenset()


def test_where_there_is_no_folder_or_nonsense_in_it_nothing_is_known(runtime: Path) -> None:
    assert finished.runs_before(time.monotonic()) == frozenset()
    assert not runtime.exists(), "looking makes nothing"
    finished.note("run")
    (runtime / "succeeded" / "run").write_bytes(b"\xff")
    assert finished.runs_before(time.monotonic()) == frozenset()


def test_where_nothing_can_be_written_the_job_ends_all_the_same(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    (runtime / "succeeded").write_text("a file")
    finished.note("run")
    assert finished.runs_before(time.monotonic()) == frozenset()
