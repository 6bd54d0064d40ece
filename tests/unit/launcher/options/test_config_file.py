"""Flags from a file: which file, which values, and what comes first."""

from pathlib import Path

import pytest

from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.config_file import completed
from elastic_run.launcher.options.flags import scan
from elastic_run.launcher.options.parse import parse


def given(folder: Path, *words: str, **environ: str) -> dict[str, str]:
    scanned, _ = completed(scan([*words, "train.py"], environ), folder)
    return {name: value.text for name, value in scanned.given.items()}


def test_without_a_file_nothing_is_added(tmp_path: Path) -> None:
    assert given(tmp_path) == {}
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nname = 'elastic-run'\n")
    assert given(tmp_path) == {}


def test_every_kind_of_value_is_taken(tmp_path: Path) -> None:
    (tmp_path / "elastic-run.toml").write_text(
        "nnodes = '2:8'\nnproc_per_node = 2\nshutdown-timeout = 2.5\nstandalone = true\nmodule = false\n"
        "roles = 'a:1,b:1'\nrole-options = ['a:nproc=1', 'b:nproc=2']\n"
    )
    assert given(tmp_path) == {
        "nnodes": "2:8",
        "nproc-per-node": "2",
        "shutdown-timeout": "2.5",
        "standalone": "1",
        "roles": "a:1,b:1",
        "role-options": "a:nproc=1\nb:nproc=2",
    }


def test_the_command_line_and_the_environment_come_first(tmp_path: Path) -> None:
    (tmp_path / "elastic-run.toml").write_text("nnodes = '2:8'\nnproc-per-node = 2\ntee = 3\n")
    found = given(tmp_path, "--nnodes=1", PET_NPROC_PER_NODE="4")
    assert found == {"nnodes": "1", "nproc-per-node": "4", "tee": "3"}


def test_its_own_file_comes_before_the_shared_one_and_either_may_be_named(tmp_path: Path) -> None:
    shared = tmp_path / "pyproject.toml"
    shared.write_text("[tool.elastic-run]\nnnodes = 3\n")
    assert given(tmp_path) == {"nnodes": "3"}
    (tmp_path / "elastic-run.toml").write_text("nnodes = 2\n")
    other = tmp_path / "other.toml"
    other.write_text("nnodes = 4\n")
    assert given(tmp_path)["nnodes"] == "2"
    assert given(tmp_path, f"--config={shared}")["nnodes"] == "3"
    assert given(tmp_path, f"--config={other}")["nnodes"] == "4"
    assert "nnodes" not in given(tmp_path, "--config=none")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nnode = 2", "there is no flag --nnode: did you mean --nnodes"),
        ("config = 'x'", "--config belongs on the command line"),
        ("dry-run = true", "--dry-run belongs on the command line"),
        ("standalone = 1", "standalone takes true or false"),
        ("nnodes = true", "nnodes takes a value, such as N"),
        ("nnodes = [1, 2]", "nnodes takes a text or a number$"),
        ("role-options = []", "role-options takes a text or a number or a list of them"),
        ("nnodes = ''", "is empty"),
        ("color = 'later'", "is not one of"),
        ("nnodes = ", "cannot be read"),
        ("[nnodes]\nx = 1", "nnodes takes a text or a number"),
    ],
)
def test_a_file_with_an_error_is_refused_by_its_name(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "elastic-run.toml").write_text(text + "\n")
    with pytest.raises(UsageError, match=sentence) as refused:
        given(tmp_path)
    assert "elastic-run.toml" in str(refused.value)


def test_a_file_that_is_named_and_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        given(tmp_path, f"--config={tmp_path / 'missing.toml'}")


def test_what_it_adds_is_told_and_goes_to_the_other_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "elastic-run.toml").write_text("nnodes = '2:8'\n")
    options = parse(["train.py"], {}, folder=tmp_path)
    assert options.nodes.maximum == 8 and options.given == ("--nnodes=2:8",)
    assert options.notes[0] == "elastic-run.toml adds --nnodes=2:8"


def test_a_function_is_launched_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "elastic-run.toml").write_text("nnodes = '2:8'\n")
    assert parse(["train.py"], {}).nodes.maximum == 1
    with pytest.raises(UsageError, match="for the command elastic-run only"):
        parse(["--config=elastic-run.toml", "train.py"], {})
