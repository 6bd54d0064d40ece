"""A model's command as pods run it, with the files that travel there."""

from pathlib import Path

import pytest

from elastic_run.launcher.cluster.model_files import LARGEST, model_map, pack_model, trains_model
from elastic_run.launcher.errors import UsageError
from elastic_run.master.nodes.kubernetes import objects
from elastic_run.master.nodes.kubernetes.model_volume import MODEL_FOLDER

MODEL = "forward = loss = optimizer = feed = print\n"

WORDS = ["--data=/shared/*.csv", "--state=/shared/model.pt"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine").mkdir()
    for name in ("model.py", "layers.py", "features.toml", "rows.csv", ".hidden.py"):
        (tmp_path / "mine" / name).write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pods_run_our_module_on_the_model_where_they_have_it(folder: Path) -> None:
    packed = pack_model(["--nnodes=2"], ["train", "mine/model.py", *WORDS])
    assert packed.flags == ["--nnodes=2", "--preload=torch", "--module"]
    assert packed.command == ["elastic_run.models", "train", f"{MODEL_FOLDER}/model.py", *WORDS]
    assert sorted(packed.files) == ["features.toml", "layers.py", "model.py"]
    assert packed.files["model.py"] == MODEL.encode()
    assert "--preload=torch" not in pack_model(["--preload=none"], ["train", "mine/model.py", *WORDS]).flags


def test_a_script_with_the_name_of_a_command_is_written_as_a_path() -> None:
    assert trains_model(["train", "model.py"]) and not trains_model(["./train"]) and not trains_model(["train.py"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "mine/model.py", "--data=/a"], "--state has to name a place that all pods see, from /"),
        (["train", "mine/other.py", *WORDS], "the model mine/other.py cannot be read"),
        (["train", "mine/model.py", "--nnodes=2", *WORDS], "unrecognized arguments: --nnodes=2"),
        (["predict", "mine/model.py", *WORDS, "--output=out"], "--output has to name a place that all pods see"),
        (["train", "mine/model.py", "--validate", "mine/model.py", *WORDS], "write values behind ="),
    ],
)
def test_what_pods_could_not_do_is_refused(folder: Path, words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        pack_model([], words)


def test_files_that_no_config_map_has_are_refused(folder: Path) -> None:
    (folder / "mine" / "vocabulary.json").write_bytes(bytes(LARGEST))
    with pytest.raises(UsageError, match=r"1,048,576 go into a ConfigMap; the largest is vocabulary\.json"):
        pack_model([], ["train", "mine/model.py", *WORDS])
    (folder / "mine" / "vocabulary.json").rename(folder / "mine" / "a b.json").write_text("{}")
    with pytest.raises(UsageError, match=r"no ConfigMap has a file named 'a b\.json'"):
        pack_model([], ["train", "mine/model.py", *WORDS])


def test_only_the_nodes_of_such_a_job_have_its_files_beside_the_users_own_volumes() -> None:
    volumes = {"spec": {"volumes": [{"name": "shared"}], "containers": [{"name": "agent"}]}}
    request = objects.Request("night", "night-1", "any", (), ("m",), template=volumes, model={"model.py": b"\xff"})
    spec = objects.node_template(request, "")["spec"]
    assert [each["name"] for each in spec["volumes"]] == ["shared", "night-model"]
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == MODEL_FOLDER
    assert "volumes" not in objects.master_job(request)["spec"]["template"]["spec"]
    made = model_map(request, {"uid": "7"})
    assert made["binaryData"] == {"model.py": "/w=="} and made["metadata"]["ownerReferences"] == [{"uid": "7"}]
    assert "volumes" not in objects.node_template(objects.Request("night", "n", "any", (), ("m",)), "")["spec"]
