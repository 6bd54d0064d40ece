"""What the masters of a simulated cluster decide follows from the events that their controllers were told."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from elastic_run.elastic_agent import candidate
from elastic_run.master.history import History, replay
from elastic_run.master.master import Master

from .explore import attempt
from .schedule import draw

SEEDS = range(100)


def test_every_decision_is_made_again_from_the_recorded_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    made: list[History] = []

    def recorded(*args: Any, **named: Any) -> Master:
        made.append(History(tmp_path / str(next(numbers)), pytest.fail))
        return Master(*args, **{**named, "history": made[-1]})

    monkeypatch.setattr(candidate, "Master", recorded)
    for seed in SEEDS:
        attempt(draw(seed))
    for each in made:
        each.close()
    histories = sorted(tmp_path.iterdir())
    assert len(histories) > len(SEEDS)
    lines = [history.read_bytes().splitlines() for history in histories]
    assert sum(b'"kind":"Publish"' in line for each in lines for line in each) > 2 * len(SEEDS)
    assert [found for each in lines for found in replay(each)] == []
