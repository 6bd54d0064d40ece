"""What is found out about records for a model's features, in one process, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from elastic_run.adapters.features.declared import Category, Features, Numeric
from elastic_run.adapters.features.errors import BadFeatures
from elastic_run.adapters.features.summary import Summary
from elastic_run.adapters.models.commands import ModelTask, read_task
from elastic_run.adapters.models.errors import BadModel
from elastic_run.adapters.models.featured import ModelFeatures, declare_features
from elastic_run.adapters.readers.contract import Columns
from elastic_run.adapters.readers.opened import RecordFiles, open_files


@pytest.fixture
def task(tmp_path: Path) -> Iterator[ModelTask]:
    rows = "".join(f"{at % 80},{'ab'[at % 2]},{at % 2}\n" for at in range(3000))
    (tmp_path / "data.csv").write_text(f"age,city,click\n{rows}")
    yield read_task(["train", "model.py", f"--data={tmp_path / 'data.csv'}", f"--state={tmp_path / 'model.pt'}"])


def opened(task: ModelTask) -> RecordFiles:
    return open_files(list(task.data))


def test_records_are_summarized_once_for_the_same_data_and_declaration(
    task: ModelTask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []
    add = Summary.add
    monkeypatch.setattr(Summary, "add", lambda self, columns: (calls.append(1), add(self, columns)))
    for features, wanted in (
        (None, 3),
        (None, 3),
        (Features(age=Numeric()), 6),
        (Features(x=Category("city", hash=9)), 6),
    ):
        own = ModelFeatures(features, "click", "model.py")
        own.fit(opened(task), task)
        assert len(calls) == wanted
    said = capsys.readouterr().out
    assert said.count("looking once at 3,000 records") == 2 and "    age=Numeric(),\n    city=Category" in said
    assert sorted(path.suffix for path in (task.state.parent / "model.pt.features").iterdir()) == [".json"] * 2


def test_the_state_has_the_features_and_refuses_others(task: ModelTask) -> None:
    inferred = ModelFeatures(None, "click", "model.py")
    inferred.fit(opened(task), task)
    state = inferred.state_dict()
    again = ModelFeatures(None, "click", "model.py")
    again.load_state_dict(state)
    batch = Columns({"age": [3, None], "city": ["a", "c"], "click": [0.0, 1.0]})
    (one, labels), (other, none) = inferred.feed(batch, labelled=True), again.feed(batch, labelled=False)
    assert all(torch.equal(one[name], other[name]) for name in ("age", "city")) and one.keys() == other.keys()
    assert labels.tolist() == [0, 1] and none is None
    with pytest.raises(
        BadModel, match=r"(?s)other features or another label.* label = 'click' and features = Features\("
    ):
        ModelFeatures(Features(age=Numeric()), "click", "model.py").load_state_dict(state)


@pytest.mark.parametrize(
    ("features", "label", "told"),
    [
        (Features(age=Numeric()), "klick", "label = 'klick' names no column: the records have 'age', 'city', 'click'"),
        (Features(x=Numeric("Age")), "click", "the feature 'x' is made of a column 'Age': the records have 'age'"),
    ],
)
def test_a_column_that_is_not_there_is_told_before_anything_is_read(
    task: ModelTask, features: Features, label: str, told: str
) -> None:
    with pytest.raises(BadModel, match=told):
        ModelFeatures(features, label, "model.py").fit(opened(task), task)


@pytest.mark.parametrize("labels", [[1.0, None], ["1", "yes"], torch.tensor([1.0, float("nan")]).numpy()])
def test_a_label_that_is_no_number_is_told(task: ModelTask, labels: Any) -> None:
    own = ModelFeatures(Features(x=Category("city", hash=9)), "click", "model.py")
    own.fit(opened(task), task)
    with pytest.raises(
        BadModel, match=r"a record has the label (None|'yes'|np\.float32\(nan\)), which is no finite number"
    ):
        own.feed(Columns({"city": ["a", "b"], "click": labels}), labelled=True)


def test_forward_gets_the_features_if_it_needs_them(task: ModelTask) -> None:
    own = ModelFeatures(Features(x=Category("city", hash=9)), "click", "model.py")
    own.fit(opened(task), task)
    fitted = own.fitted
    assert own.call_forward(lambda given: given) is fitted is own.call_forward(lambda width=3, *, features: features)
    assert own.call_forward(lambda width=3: width) == 3 and own.call_forward(lambda: 4) == 4


def test_a_file_declares_them_in_several_ways(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('[age]\nkind = "numeric"\n')
    wanted = Features(age=Numeric())

    def declare(**names: object) -> Any:
        found = declare_features(SimpleNamespace(**names), str(tmp_path / "model.py"))
        return found and found.state_dict()["features"]

    in_python = declare(features=wanted, label="click")
    assert in_python == declare(features={"age": Numeric()}, label="click") == declare(features="f.toml", label="click")
    assert in_python == declare(features=lambda: wanted, label="click")
    assert declare(features=7, feed=print) is None is declare(label="click")
    for given, told in ((7, "features is 7: it is Features"), ("g.toml", "g.toml cannot be read"), ({}, "no feature")):
        with pytest.raises((BadModel, BadFeatures), match=told):
            declare(features=given, label="click")
    with pytest.raises(BadModel, match=r"model\.py has features and no label"):
        declare(features=wanted)
