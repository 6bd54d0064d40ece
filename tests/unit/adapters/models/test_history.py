"""What a training has come to: what is kept of it after a loss, and which evaluation is the best."""

import json
import math
from pathlib import Path

import pytest

from elastic_run.adapters.models.errors import BadModel
from elastic_run.adapters.models.history import Aim, Evaluated, TrainingHistory, format_table, read_aim

AUCS = [Evaluated(step, 10 * step, {"loss": 1 / step, "auc": auc}) for step, auc in ((10, 0.7), (20, 0.9), (30, 0.9))]


def test_lines_of_steps_that_come_again_are_dropped_and_those_before_are_kept(tmp_path: Path) -> None:
    file, events = tmp_path / "history.jsonl", tmp_path / "events"
    before = TrainingHistory(file, events, 0)
    for step in (10, 20, 30):
        before.add_training(step, 10 * step, 0.5)
        before.add_evaluation(Evaluated(step, 10 * step, {"auc": math.nan if step == 10 else 0.5}))
    file.write_text(file.read_text() + '{"step": 40, "rec')  # its writer was killed
    after = TrainingHistory(file, events, 20)
    after.add_training(30, 300, 0.25)
    assert [each.step for each in after.evaluations] == [10, 20] and math.isnan(after.evaluations[0].values["auc"])
    assert "NaN" not in file.read_text()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["step"], [*line][2]) for line in lines] == [
        (10, "training"),
        (10, "validation"),
        (20, "training"),
        (20, "validation"),
        (30, "training"),
    ]
    assert lines[-1] == {"step": 30, "records": 300, "training": {"loss": 0.25}}
    assert TrainingHistory(file, events, 0).evaluations == [] and file.read_text() == ""


@pytest.mark.parametrize(
    ("text", "aim", "best"),
    [("loss", Aim("loss"), 2), ("auc", Aim("auc", highest=True), 1), ("auc:min", Aim("auc"), 0)],
)
def test_the_best_is_the_first_of_the_highest_or_of_the_lowest(text: str, aim: Aim, best: int) -> None:
    assert read_aim(text) == aim and aim.find_best(AUCS) == best


def test_what_is_no_number_is_never_the_best() -> None:
    nothing, one = Evaluated(1, 1, {"loss": math.nan}), Evaluated(2, 2, {"loss": 1.0})
    assert (Aim().find_best([nothing]), Aim().find_best([nothing, one])) == (-1, 1)


def test_an_aim_that_nothing_has_is_told() -> None:
    with pytest.raises(BadModel, match="--best=ACU: there is no such metric, but loss, auc"):
        Aim("ACU", highest=True).find_best(AUCS)
    with pytest.raises(ValueError, match="auc:most"):
        read_aim("auc:most")


def test_the_table_names_the_best() -> None:
    assert format_table(AUCS, Aim("auc", highest=True)).splitlines() == [
        "step  records       loss  auc",
        "  10      100        0.1  0.7",
        "  20      200       0.05  0.9  best",
        "  30      300  0.0333333  0.9",
    ]
