"""What a script says of its own time, in the trace of its node."""

import random
from pathlib import Path

import pytest

from elastic_run.launcher.goodput import marks
from elastic_run.launcher.goodput.marks import Mark
from elastic_run.launcher.goodput.words import lost
from elastic_run.rendezvous.host.trace_file import Trace
from elastic_run.rendezvous.time_split import MARKED, Split


def traced(tmp_path: Path) -> tuple[Path, Trace]:
    file = tmp_path / "trace.json"
    return file, Trace(str(file), "node", create=True)


def test_spans_of_the_lowest_rank_are_counted_by_their_names(tmp_path: Path) -> None:
    file, trace = traced(tmp_path)
    trace.record(1.0, 3.0, "data_loading", "rank 2", {})
    trace.record(1.0, 2.0, "data loading", "rank 1", {})
    trace.record(4.0, 4.5, "checkpoint-save", "rank 1", {"step": 3})
    trace.record(5.0, 6.0, "step", "rank 1", {})
    trace.record(1.0, 9.0, "data_loading", "rank 0, loader", {})  # a thread beside training
    trace.instant("data_loading", "rank 1")
    trace.close()
    assert marks.of_file(file) == {"data_loading": 1_000_000, "checkpoint_save": 500_000}


def test_a_file_that_is_cut_or_missing_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file, trace = traced(tmp_path)
    trace.record(1.0, 2.0, "checkpoint_restore", "rank 0", {})
    trace.close()
    with file.open("ab") as more:
        more.write(b'nonsense "X"\n{"ph":"X","name":"data_loading"},\n{"ph":"X","ts":')
    assert marks.of_file(file) == {"checkpoint_restore": 1_000_000}
    assert marks.of_file(tmp_path / "none") == {}


def test_of_spans_inside_each_other_the_inner_counts() -> None:
    outer, inner = Mark(0, "training_preparation", 0, 100), Mark(0, "checkpoint_restore", 20, 50)
    assert marks.exclusive([outer, inner]) == {"training_preparation": 70, "checkpoint_restore": 30}


def test_no_time_counts_twice_however_spans_overlap() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        begins = [chance.randrange(50) for _ in range(chance.randrange(1, 8))]
        spans = [Mark(0, chance.choice(MARKED), begun, begun + chance.randrange(20)) for begun in begins]
        covered = {moment for span in spans for moment in range(span.begun, span.ended)}
        assert sum(marks.exclusive(spans).values()) == len(covered), f"seed {seed}"


def test_what_took_the_most_is_named_first_and_trifles_are_not() -> None:
    split = Split(productive=9_000_000, initialization=2_000_000, elastic_scale_up=300_000_000, other=10_000)
    assert lost(split) == "elastic scale up 5.0 min, initialization 2.0 s"
    assert lost(Split(productive=5)) == ""


def test_of_a_long_trace_the_beginning_and_the_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, trace = traced(tmp_path)
    for number in range(1000):
        trace.record(number, number + 0.5, "data_loading", "rank 0", {})
    trace.close()
    assert marks.of_file(file) == {"data_loading": 500_000_000}
    assert marks.unread(file) == 0
    monkeypatch.setattr(marks, "FIRST", 1000)
    monkeypatch.setattr(marks, "LAST", 10_000)
    assert marks.unread(file) == file.stat().st_size - 11_000 > 0
    read = marks.of_file(file)["data_loading"]
    lines = [*file.read_bytes()[:1000].splitlines(), *file.read_bytes()[-10_000:].splitlines()]
    assert read == 500_000 * sum(
        1 for line in lines if line.startswith(b"{") and line.endswith(b"},") and b'"X"' in line
    )
