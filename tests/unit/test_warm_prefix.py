"""Which imports a script is sure to make first, told from its source and nothing else."""

from pathlib import Path

import pytest

from elastic_run.elastic_agent.warm import prefix
from elastic_run.elastic_agent.warm.prefix import leading_imports

from .conftest import write


def of(folder: Path, source: str, **others: str) -> list[str]:
    """The leading imports of a script with this source, beside which these modules lie."""
    write(folder, train=source, **others)
    return leading_imports("script", str(folder / "train.py"))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("", []),
        ("import json", ["json"]),
        ("import json as j, csv", ["json", "csv"]),
        ("import xml.dom.minidom", ["xml.dom.minidom"]),
        ("from xml.dom import minidom", ["xml.dom"]),
        ("from json import *", ["json"]),
        ("import sys, json", ["sys", "json"]),
        ("import json\nimport json\nfrom json import loads", ["json"]),
        ('"""What it does."""\n\n# a comment\nimport json', ["json"]),
    ],
)
def test_imports_at_the_beginning_are_named_in_order_and_once(tmp_path: Path, source: str, names: list[str]) -> None:
    assert of(tmp_path, source) == names


@pytest.mark.parametrize(
    "between",
    [
        "",
        "from __future__ import annotations",
        "pass",
        "...",
        "'a text'",
        "LARGE = 1 << 20",
        "RATE: float = 0.1",
        "SIZES = OTHERS = (1, -2)",
        "TABLE = {'a': [1, 2], 'b': {3}}",
        "Name = other.thing",
        "Alias = dict[str, list[int]]",
        "def f(x=1, *, y=None):\n    import os; os.environ['A'] = '1'",
        "async def f(): pass",
        "class Plain:\n    'doc'\n    size = 1\n    rate: float = 2.0\n    def f(self): print(1)",
        "class Child(base.Parent): pass",
        "class Generic(Base[int]): pass",
    ],
)
def test_what_can_do_nothing_may_stand_between_imports(tmp_path: Path, between: str) -> None:
    # What must come first in a file comes first here.
    assert of(tmp_path, f"{between}\nimport json\n{between.replace('from __future__', 'from json')}\nimport csv") == [
        "json",
        "csv",
    ]


@pytest.mark.parametrize(
    "between",
    [
        "print(1)",
        "x = f()",
        "x = [f()]",
        "x = [f for f in fs]",
        "x = f'{y}'",
        "x = lambda: 1",
        "x += 1",
        "x.y = 1",
        "x['y'] = 1",
        "a, b = 1, 2",
        "import os; os.environ['OMP_NUM_THREADS'] = '1'",
        "import os; os.environ.setdefault('OMP_NUM_THREADS', '1')",
        "import sys; sys.path.insert(0, 'lib')",
        "del x",
        "assert x",
        "raise SystemExit",
        "for x in y: pass",
        "while True: pass",
        "with x: pass",
        "if x: pass",
        "if __name__ == '__main__': pass",
        "match x:\n    case _: pass",
        "try:\n    import tomllib\nexcept ImportError:\n    tomllib = None",
        "@decorated\ndef f(): pass",
        "@decorated\nclass C: pass",
        "def f(x=g()): pass",
        "def f(*, x=g()): pass",
        "class C(base()): pass",
        "class C(metaclass=M): pass",
        "class C:\n    x = f()",
        "class C:\n    import tomllib",
        "class C:\n    print(1)",
        "class C:\n    @property\n    def x(self): pass",
    ],
)
def test_what_may_do_something_ends_the_reading(tmp_path: Path, between: str) -> None:
    found = of(tmp_path, f"import json\n{between}\nimport csv")
    assert found[0] == "json"
    assert "csv" not in found and "tomllib" not in found


def test_a_module_beside_the_script_is_read_and_not_named(tmp_path: Path) -> None:
    assert of(tmp_path, "import json\nimport mine\nimport csv", mine="import tomllib") == ["json", "tomllib", "csv"]


def test_a_module_beside_the_script_that_does_something_ends_the_reading(tmp_path: Path) -> None:
    assert of(tmp_path, "import mine\nimport csv", mine="import json\nprint(1)\nimport tomllib") == ["json"]


def test_a_package_beside_the_script_is_read_from_its_own_beginning(tmp_path: Path) -> None:
    found = of(tmp_path, "from mine.inner import thing", mine__init="import json", mine__inner="import csv")
    assert found == ["json", "csv"]


def test_modules_that_are_taken_from_a_package_beside_the_script_are_read(tmp_path: Path) -> None:
    found = of(tmp_path, "from mine import inner", mine__init="import json", mine__inner="import csv")
    assert found == ["json", "csv"]


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    assert of(tmp_path, "import one\nimport csv", one="import two\nimport json", two="import one") == ["json", "csv"]


def test_a_relative_import_ends_the_reading(tmp_path: Path) -> None:
    found = of(tmp_path, "import mine\nimport csv", mine__init="import json\nfrom . import inner", mine__inner="")
    assert found == ["json"]


def test_a_folder_without_init_ends_the_reading(tmp_path: Path) -> None:
    assert of(tmp_path, "import json\nimport mine.inner\nimport csv", mine__inner="") == ["json"]


def test_a_module_that_is_missing_in_a_package_beside_the_script_ends_the_reading(tmp_path: Path) -> None:
    assert of(tmp_path, "import mine.nothing\nimport csv", mine__init="import json") == ["json"]


def test_a_module_of_the_interpreter_itself_comes_before_one_beside_the_script(tmp_path: Path) -> None:
    assert of(tmp_path, "import sys\nimport csv", sys="print(1)") == ["sys", "csv"]


def test_the_folder_of_a_script_is_where_a_link_to_it_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    of(tmp_path / "real", "import mine", mine="import json")
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "train.py")
    assert leading_imports("script", str(tmp_path / "link.py")) == ["json"]


@pytest.mark.parametrize(
    "source", ["import json\nif True print(1)", "import json\n\0", "# coding: nothing\nimport json"]
)
def test_a_source_that_python_does_not_take_gives_none(tmp_path: Path, source: str) -> None:
    assert of(tmp_path, source) == []


def test_a_script_that_is_not_there_gives_none(tmp_path: Path) -> None:
    assert leading_imports("script", str(tmp_path / "nothing.py")) == []


def test_a_folder_or_an_archive_as_script_gives_none(tmp_path: Path) -> None:
    (tmp_path / "train.pyz").write_bytes(b"PK\3\4\xff\0")
    assert leading_imports("script", str(tmp_path)) == []
    assert leading_imports("script", str(tmp_path / "train.pyz")) == []


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    assert of(tmp_path, f"import json\n#{'x' * prefix.LARGEST}\n") == []


def test_an_encoding_of_the_sources_own_is_understood(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes("# coding: latin-1\n'\xe4'\nimport json\n".encode("latin-1"))
    assert leading_imports("script", str(tmp_path / "train.py")) == ["json"]


def test_deeply_nested_source_does_no_harm(tmp_path: Path) -> None:
    assert of(tmp_path, f"import json\nx = {'(' * 5000}1{')' * 5000}") in ([], ["json"])
    assert of(tmp_path, f"import json\nx = {'-' * 5000}1") in ([], ["json"])


def test_a_module_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of(tmp_path, "import mine\nimport csv", mine="import json")
    monkeypatch.chdir(tmp_path)
    assert leading_imports("module", "train") == ["json", "csv"]


def test_of_a_package_as_module_its_main_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of(tmp_path, "", mine__init="", mine__main="import json")
    monkeypatch.chdir(tmp_path)
    assert leading_imports("module", "mine") == ["json"]


def test_a_module_inside_a_package_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of(tmp_path, "", mine__init="", mine__train="import json")
    monkeypatch.chdir(tmp_path)
    assert leading_imports("module", "mine.train") == []


def test_by_run_path_modules_are_looked_for_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    of(tmp_path / "deep", "import mine", mine="import json")
    (tmp_path / "mine.py").write_text("import csv", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert leading_imports("run_path", "deep/train.py") == ["csv"]
