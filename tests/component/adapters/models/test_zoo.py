"""The models of the zoo, and that of the page, for whatever features there are."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from elastic_run.adapters.features.declared import Category, Features, IdSequence, Numeric
from elastic_run.adapters.features.fitting import fit_features, looks_of
from elastic_run.adapters.features.summary import Summary
from elastic_run.adapters.models.commands import read_task
from elastic_run.adapters.models.exporting import export_model
from elastic_run.adapters.models.featured import ModelFeatures
from elastic_run.adapters.models.user_model import UserModel
from elastic_run.adapters.models.zoo_files import ZOO, list_names
from elastic_run.adapters.servers import session
from elastic_run.adapters.servers.own_server import OwnServer
from elastic_run.adapters.servers.session import ServersClient

from ....house import pages

COLUMNS: dict[str, Any] = {"x": [1.0, 2.0, None], "city": ["a", "b", None]}


def declare(features: Features) -> ModelFeatures:
    summary = Summary(looks_of(features))
    summary.add(COLUMNS)
    found = ModelFeatures(features, "click", "model.py")
    found.fitted = fit_features(features, summary)
    return found


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")  # of torch, of layers without inputs
@pytest.mark.parametrize("name", [*list_names(), "page"])
@pytest.mark.parametrize(
    "features",
    [
        Features(x=Numeric()),
        Features(city=Category(hash=9)),
        Features(city=IdSequence(hash=9, length=2)),
        Features(x=Numeric(), city=Category(hash=9)),
    ],
    ids=["no-fields", "no-numbers", "neither", "both"],
)
def test_a_model_takes_features_of_one_kind_alone(
    name: str, features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = ServersClient(OwnServer())
    monkeypatch.setattr(session, "session", lambda: tables)
    path = ZOO / f"{name}.py"
    if name == "page":
        path = tmp_path / "page.py"
        path.write_text(
            next(each.text for each in pages.blocks() if each.page == "features" and each.language == "python")
        )
    functions = runpy.run_path(str(path))
    fitted = declare(features).fitted
    assert fitted
    module = functions["forward"](fitted)
    output = module(**fitted(COLUMNS))
    assert output.shape == (3,) and bool(output.isfinite().all())
    functions["loss"](output, torch.tensor([0, 1, 1])).backward()


def test_a_feature_of_any_name_is_exported(tmp_path: Path) -> None:
    own = declare(Features({'it\'s "x"]': Numeric("x"), "Größe\n": Category("city", hash=9)}))
    user = UserModel(runpy.run_path(str(ZOO / "wide_deep.py")), "model.py", own)
    task = read_task(["export", "model.py", f"--output={tmp_path / 'served'}"])
    export_model(user, user.make_module(0), task)
    assert (tmp_path / "served" / "predict.py").is_file()
