"""The history that a real job's master records beside the trace: its decisions are made again from it."""

from pathlib import Path

from elastic_run.master.history import replay

from .recorded_history import recorded


def test_what_a_real_jobs_master_decided_is_decided_again_from_its_history(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    published = [line for line in lines if b'"kind":"Publish"' in line]
    assert [b'"what":"open"' in line for line in published] == [True, True, False]
    assert b'"code":"WorkerFailed"' in published[1] and b'"signal":9' in published[1], published[1]
    assert list(replay(lines)) == []


def test_another_decision_than_the_recorded_one_is_found(tmp_path: Path) -> None:
    lines = [line.replace(b'"max_restarts":3', b'"max_restarts":0') for line in recorded(tmp_path)]
    found = list(replay(lines))
    assert found and '"what":"open"' in found[0].recorded[-1]
    assert not any('"what":"open"' in effect for effect in found[0].now)
