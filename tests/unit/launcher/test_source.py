"""Which sources make a job the same one as another node's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from elastic_run.launcher.settings import Command
from elastic_run.launcher.source import NAMED, digests
from elastic_run.rendezvous.member import Fingerprint, differing_sources

Kind = Literal["script", "module", "executable", "run_path"]
PROJECT = {
    "train.py": "import os\nimport net\n\ndef main():\n    from data import load\n\nmain()\n",
    "net.py": "import torch\nfrom layers.wide import Wide\n",
    "layers/__init__.py": "",
    "layers/wide.py": "from . import base\nfrom .. import nothing\n",
    "layers/base.py": "",
    "data.py": "",
    "scratch.py": "",
}


def lay(folder: Path, files: Mapping[str, str] = PROJECT, **more: str) -> Path:
    for name, text in {**files, **more}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def of(monkeypatch: pytest.MonkeyPatch, folder: Path, target: str = "train.py", kind: Kind = "script") -> list[str]:
    """The digests of a command that is typed in `folder`."""
    monkeypatch.chdir(folder)
    return list(digests(Command(kind, target, (), "python")))


def differing(here: list[str], there: list[str]) -> list[str]:
    mine, theirs = (Fingerprint("train.py", (), "2", "1", "0", tuple(entries)) for entries in (here, there))
    return differing_sources(mine, theirs)


def names(entries: list[str]) -> list[str]:
    return [entry.rpartition(":")[0] for entry in entries]


def test_the_script_and_its_own_modules_count_wherever_they_are_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = of(monkeypatch, lay(tmp_path))
    assert names(found) == ["train.py", "data.py", "layers/__init__.py", "layers/base.py", "layers/wide.py", "net.py"]


def test_the_same_project_at_another_path_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = of(monkeypatch, lay(tmp_path / "here"))
    assert of(monkeypatch, lay(tmp_path / "there" / "deep")) == here
    assert of(monkeypatch, tmp_path, str(tmp_path / "here" / "train.py")) == here


def test_another_source_of_a_module_is_named_and_one_that_is_not_imported_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = of(monkeypatch, lay(tmp_path / "here"))
    there = of(monkeypatch, lay(tmp_path / "there", {**PROJECT, "layers/base.py": "x = 1\n", "scratch.py": "y = 1\n"}))
    assert differing(here, there) == ["layers/base.py"]


def test_a_module_that_only_one_of_them_has_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = of(monkeypatch, lay(tmp_path / "here", {"train.py": "import more\n", "more.py": ""}))
    there = of(monkeypatch, lay(tmp_path / "there", {"train.py": "import more\n"}))
    assert differing(here, there) == ["more.py"]


def test_where_one_of_them_has_no_digests_nothing_differs() -> None:
    assert differing([], ["train.py:1"]) == differing(["train.py:1"], []) == []


@pytest.mark.parametrize(
    ("kind", "target", "first"),
    [
        ("run_path", "train.py", "train.py"),
        ("module", "train", "train.py"),
        ("module", "layers.wide", "layers/__init__.py"),
        ("script", "layers/../train.py", "train.py"),
    ],
)
def test_every_way_to_start_python_is_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Kind, target: str, first: str
) -> None:
    assert names(of(monkeypatch, lay(tmp_path), target, kind))[0] == first


@pytest.mark.parametrize(
    "line",
    [
        "import os, part as p",
        "    import part  # here",
        "try: import part",
        "import os; import part",
        "from part import *",
        "from part import (\n    a,  # one\n    b,\n)",
        "from part \\\n    import a",
        "from . import part",
        "from .part import a",
    ],
)
def test_every_form_of_an_import_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    lay(tmp_path, {"pkg/__init__.py": "", "pkg/train.py": f"{line}\n", "pkg/part.py": "", "part.py": ""})
    module = of(monkeypatch, tmp_path, "pkg.train", "module")
    assert ("pkg/part.py" if "from ." in line else "part.py") in names(module)


def test_a_folder_is_read_from_its_main_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lay(tmp_path, {"app/__main__.py": "import part\n", "app/part.py": ""})
    assert names(of(monkeypatch, tmp_path, "app")) == ["__main__.py", "part.py"]


def test_what_is_installed_or_no_source_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert of(monkeypatch, tmp_path, "torch.distributed.run", "module") == []
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    (tmp_path / "run.sh").write_text("#!/bin/sh\ntrue\n")
    assert of(monkeypatch, tmp_path, "./binary", "executable") == []
    assert of(monkeypatch, tmp_path, "sh", "executable") == []
    assert names(of(monkeypatch, tmp_path, "./run.sh", "executable")) == ["run.sh"]


def test_a_script_with_a_syntax_error_counts_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert names(of(monkeypatch, lay(tmp_path, {"train.py": "import (\n"}))) == ["train.py"]


def test_many_modules_take_little_room_and_each_still_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    many = {f"m{number:03}.py": "" for number in range(300)}
    script = {"train.py": "".join(f"import m{number:03}\n" for number in range(300))}
    here = of(monkeypatch, lay(tmp_path / "here", {**many, **script}))
    there = of(monkeypatch, lay(tmp_path / "there", {**many, **script, "m299.py": "x = 1\n"}))
    assert len(here) == NAMED + 1
    assert differing(here, there) == ["293 more"]


def test_a_word_that_is_no_name_of_a_file_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, {"train.py": f"import {'x' * 300}\n"})
    assert len(of(monkeypatch, tmp_path)) == 1


def test_an_entry_without_a_digest_is_compared_all_the_same() -> None:
    assert differing(["train.py"], ["train.py:1"]) == ["", "train.py"]
