"""What a node keeps of its job's events."""

import dataclasses
import os
import threading
from pathlib import Path

import pytest

from elastic_run.launcher.history import journal as journals
from elastic_run.launcher.history.journal import Journal, with_tail
from elastic_run.launcher.history.records import (
    MOST_EXITS,
    MOST_POINTS,
    MOST_ROUNDS,
    Begun,
    Ended,
    Kept,
    Over,
    Point,
    Published,
    line,
    read,
)
from elastic_run.rendezvous.member import Exit

from ....doubles.statuses import running
from ...histories import BEGAN, FAILED, SPLIT, header, job

BEGUN = Begun(BEGAN, "job/../x", "a", "a.host", "train.py", "1:2", 2, "0.1.0")


def test_what_is_written_is_read_again() -> None:
    records = [each for node in job().values() for each in node]
    assert list(read(map(line, records))) == records


def test_a_line_that_is_cut_or_of_another_version_is_told_apart() -> None:
    whole = line(BEGUN)
    assert list(read([whole[:-5], b'{"kind":"New","value":{}}\n', b"[]\n", b"[" * 100_000, whole])) == [
        *[None] * 4,
        BEGUN,
    ]


def test_a_journal_writes_what_an_agent_sees_into_a_file_of_its_own(tmp_path: Path) -> None:
    said: list[str] = []
    journal = Journal(BEGUN, tmp_path / "deep", said.append, now=lambda: BEGAN + 5.0)
    status = running().controller.status(5.0)
    journal.exits((FAILED,))
    journal.exits((FAILED, dataclasses.replace(FAILED, pid=1, code=0)))
    journal.noticed("SIGTERM")
    journal.looked(status)
    journal.over(1, "because")
    journal.close()
    (file,) = (tmp_path / "deep").iterdir()
    assert file.name == f"job_.._x.a.{os.getpid()}.events.jsonl" and not said
    records = list(read(file.read_bytes().splitlines()))
    assert [type(each).__name__ for each in records] == [
        "Begun", "Ended", "Ended", "Noticed", "Point", "Snapshot", "Over",
    ]  # fmt: skip
    assert records == list(journal.kept) or set(map(str, records)) == set(map(str, journal.kept))


def test_a_file_with_what_workers_print_is_for_this_user_alone_and_no_link(tmp_path: Path) -> None:
    said: list[str] = []
    Journal(BEGUN, tmp_path, said.append).close()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and not said
    target = tmp_path / "target"
    target.write_text("mine")
    file.unlink()
    file.symlink_to(target)
    Journal(BEGUN, tmp_path, said.append).close()
    assert target.read_text() == "mine" and "cannot be written" in said[0]


def test_long_names_in_any_script_are_a_files_name(tmp_path: Path) -> None:
    said: list[str] = []
    Journal(dataclasses.replace(BEGUN, job="\U00020000" * 99, node="\u5b57" * 99), tmp_path, said.append).close()
    assert len(list(tmp_path.iterdir())) == 1 and not said


def test_a_failed_workers_last_output_is_kept_with_it(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("x" * 50_000 + "the end\n")
    failed = Ended(BEGAN, dataclasses.replace(FAILED, log=str(log)))
    told = with_tail(failed)
    assert isinstance(told, Ended) and told.tail.endswith("xthe end\n") and len(told.tail) == journals.MAX_TAIL
    assert list(read([line(told)])) == [told]
    gone = Ended(BEGAN, dataclasses.replace(FAILED, log=str(tmp_path / "none")))
    assert with_tail(gone) == gone


def test_whatever_happens_what_is_kept_is_bounded() -> None:
    kept = Kept()
    kept.add(BEGUN)
    reason = job()["a"][1].reason  # type: ignore[union-attr]
    for number in range(20_000):
        at = float(number)
        kept.add(header(number, at, 4, reason))
        kept.add(Ended(BEGAN + at, Exit(number, 0, 0, number, code=1)))
        if kept.wants_point(BEGAN + at):
            kept.add(Point(BEGAN + at, number, 4, SPLIT, ()))
    kept.add(Over(BEGAN, 0, ""))
    assert len(list(kept)) < MOST_ROUNDS * 1.2 + MOST_EXITS + MOST_POINTS + 10
    assert kept.first[0].number == 0 and kept.newest[Published][-1].number == 19_999
    gaps = [after.unix - before.unix for before, after in zip(kept.points, kept.points[1:], strict=False)]
    assert max(gaps) <= 2 * kept.distance and len(kept.points) >= MOST_POINTS / 2, "all of the time is told, evenly"


def test_a_file_that_has_grown_is_written_anew_with_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "GROWTH", 8_000)
    monkeypatch.setattr(journals, "CLOSING", 30.0)  # on a busy machine all that is written here takes seconds
    journal = Journal(BEGUN, tmp_path, print)
    for number in range(2_000):
        journal.exits((Exit(number, 0, 0, 1, code=1, message="no"),))
    journal.close()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < 80_000
    records = list(read(file.read_bytes().splitlines()))
    assert records[0] == BEGUN and None not in records
    last = records[-1]
    assert isinstance(last, Ended) and last.exit.round == 1_999


def test_a_folder_that_cannot_be_written_is_said_once_and_events_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    journal = Journal(BEGUN, tmp_path / "file" / "folder", said.append)
    journal.close()
    for number in range(10):
        journal.exits((Exit(number, 0, 0, 1, code=1),))
    assert len(said) == 1 and "cannot be written" in said[0] and len(journal.kept.newest[Ended]) == 10


def test_a_file_system_that_hangs_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(journals, "WAITING", 10)
    monkeypatch.setattr(journals, "CLOSING", 0.01)
    monkeypatch.setattr(journals, "with_tail", lambda record: (hangs.wait(60), record)[1])  # in the thread that writes
    said: list[str] = []
    journal = Journal(BEGUN, tmp_path, said.append)
    try:
        for number in range(100):
            journal.exits((Exit(number, 0, 0, 1, code=1),))
        journal.close()
        assert any("does not answer" in words for words in said), said
    finally:
        hangs.set()
