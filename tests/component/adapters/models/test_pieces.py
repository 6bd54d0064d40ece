"""Outputs and evaluations in pieces: each whole or absent, and none missing at the end."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from elastic_run import context
from elastic_run.adapters.models import pieces
from elastic_run.adapters.models.commands import read_task
from elastic_run.adapters.models.errors import BadModel
from elastic_run.adapters.models.pieces import evaluate, identify, predict
from elastic_run.adapters.models.saved_state import write_whole
from elastic_run.adapters.models.user_model import UserModel
from elastic_run.adapters.readers.contract import Columns
from elastic_run.adapters.readers.opened import open_files


def model_with(feed: Callable[[Columns], object]) -> UserModel:
    functions: dict[str, Callable[..., Any]] = {"forward": list, "optimizer": list, "feed": feed}
    return UserModel({**functions, "loss": lambda output, labels: (output - labels).square().mean()}, "model.py")


def test_a_piece_is_there_without_a_trace_of_its_writing(tmp_path: Path) -> None:
    write_whole(tmp_path / "piece.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["piece.json"]


@pytest.mark.parametrize("removed", ["the folder", "a file"])
def test_a_prediction_whose_files_go_away_meanwhile_fails_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text("x,id\n" + "1,2\n" * 10)
    for name in ("model.py", "model.pt"):
        Path(name).write_text("")
    fed = 0

    def feed(columns: Columns) -> tuple[Any, None]:
        nonlocal fed
        fed += 1
        if fed == 2 and removed == "the folder":
            shutil.rmtree("out")
        elif fed == 2:
            next(Path("out").glob("*.csv")).unlink()
        return columns["x"].astype(float)[:, None], None

    task = read_task(["predict", "model.py", "--data=data.csv", "--output=out", "--shard-size=4", "--batch-size=4"])
    told = {"the folder": "the folder out was removed while files were written", "a file": "out has 2 of 3 files"}
    with pytest.raises(BadModel, match=told[removed]):
        predict(model_with(feed), nn.Linear(1, 1), open_files("data.csv"), task)


def test_an_evaluation_whose_pieces_another_rank_has_merged_ends_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text("x,id\n" + "1,2\n" * 10)
    for name in ("model.py", "model.pt"):
        Path(name).write_text("")
    task = read_task(["evaluate", "model.py", "--data=data.csv", "--shard-size=4", "--batch-size=4"])
    result = tmp_path / "model.pt.evaluations" / f"{identify(task, open_files('data.csv'))}.json"

    def feed(columns: Columns) -> tuple[Any, Any]:
        if not result.exists():
            result.write_text('{"records": 10, "loss": 0.5}')
            result.with_suffix("").rename(result.with_suffix(".gone"))
        return columns["x"].astype(float)[:, None], columns["id"][:, None]

    monkeypatch.setattr(pieces, "context", lambda: replace(context(), rank=1))
    assert evaluate(model_with(feed), nn.Linear(1, 1), open_files("data.csv"), task) == {}
