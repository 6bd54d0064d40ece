"""The job that a command which trains, evaluates or predicts stands for."""

from pathlib import Path

import pytest

from elastic_run.launcher import cli
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.model_job import job_words, main, split_flags

MODEL = "forward = loss = optimizer = feed = print\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "data.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_flags_of_the_launcher_stand_before_our_module_and_those_of_the_command_after_it(folder: Path) -> None:
    words = "train --nnodes 2:8 --data data.csv model.py --epochs=2 --nproc-per-node=4 --servers=1"
    ours = "-m elastic_run.models train model.py --data data.csv --epochs=2"
    wanted = f"--nnodes 2:8 --nproc-per-node=4 --servers=1 --preload=torch {ours}"
    assert job_words(words.split()) == wanted.split()


def test_two_dashes_before_the_model_change_nothing(folder: Path) -> None:
    plain = job_words(["train", "--nnodes=2", "model.py", "--data=data.csv"])
    assert job_words(["train", "--nnodes=2", "--", "model.py", "--data=data.csv"]) == plain


def test_modules_that_the_user_has_imported_ahead_are_left_as_they_are(folder: Path) -> None:
    words = job_words(["evaluate", "--preload=none", "model.py", "--data=data.csv", f"--state={folder / 'data.csv'}"])
    assert "--preload=torch" not in words and words[0] == "--preload=none"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train --data=data.csv", "no model is named"),
        ("train model.py more.py --data=data.csv", "'more.py' follows model.py, and is no flag"),
        ("train model.py --data=data.csv --nproc=2 --wrong", "unknown flag --wrong"),
        ("train -m model --data=data.csv", "-m is not for elastic-run train, whose model is a file: write model.py"),
        ("train --no-python model.py --data=data.csv", "--no-python is not for elastic-run train"),
        ("train model.py --data=data.csv --validate=none", "--validate: none cannot be opened"),
        ("train model.py --data=data.csv --state=none/model.pt", "there is no folder none: make it"),
        ("predict model.py --data=data.csv --output=out", "there is no file model.pt, which elastic-run train"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, words: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        job_words(words.split())


@pytest.mark.parametrize("command", ["train", "new", "status"])
def test_a_script_with_the_name_of_a_command_is_told_how_it_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    hint = f"to run the script {command} that is here, write ./{command}"
    assert cli.main([command, "--lr=1"]) == 2
    assert hint not in capsys.readouterr().err
    (folder / command).write_text("")
    assert cli.main([command, "--lr=1"]) == 2
    assert hint in capsys.readouterr().err


def test_a_value_of_its_own_word_goes_with_its_flag() -> None:
    assert split_flags(["--data", "a", "--nnodes", "2", "--on"], {"--data": True, "--on": False}) == (
        ["--data", "a", "--on"],
        ["--nnodes", "2"],
    )


def test_a_model_to_begin_with_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logistic-regression"], {}) == 0
    assert "features = Features(" in capsys.readouterr().out
    with pytest.raises(UsageError, match="NAME is one of dcn_v2, deepfm, logistic_regression"):
        main(["unknown"], {})
