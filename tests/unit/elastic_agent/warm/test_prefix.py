"""Which imports a script is sure to make first, told from its source and nothing else."""

import warnings
from pathlib import Path

import pytest

from elastic_run.elastic_agent.warm import prefix
from elastic_run.elastic_agent.warm.prefix import Prefix, mentions, read_prefix
from elastic_run.elastic_agent.warm.stamps import first_changed

from ...conftest import write


def leading_imports(kind: str, target: str) -> list[str]:
    """The names of the modules, in order and once."""
    return list(dict.fromkeys(step.name for step in read_prefix(kind, target, frozenset(["RANK"])).steps))


def of(folder: Path, source: str, **others: str) -> list[str]:
    """The leading imports of a script with this source, beside which these modules lie."""
    write(folder, train=source, **others)
    return leading_imports("script", str(folder / "train.py"))


def read(folder: Path, source: str, **others: str) -> Prefix:
    write(folder, train=source, **others)
    return read_prefix("script", str(folder / "train.py"), frozenset(["RANK"]))


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


HEAD = """from __future__ import annotations
import os, sys, time, datetime, logging, warnings, functools, dataclasses, typing, abc, enum, collections, torch
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional, TypeVar
from pathlib import Path
import torch.nn as nn
"""


@pytest.mark.parametrize(
    "between",
    [
        "",
        "pass",
        "...",
        "'a text'",
        "LARGE = 1 << 20",
        "RATE: float = 0.1",
        "SIZES = OTHERS = (1, -2)",
        "TABLE = {'a': [1, 2], 'b': {3}}",
        "a, b = 1, 2",
        "KIND = torch.float16",
        "Alias = dict[str, list[int]]",
        "Name = Optional[int] | None",
        "T = TypeVar('T')",
        "log = logging.getLogger(__name__)",
        "here = os.path.dirname(os.path.abspath(__file__))",
        "has_data = os.path.isdir(os.path.join(os.getcwd(), 'data'))",
        "FIRST_LINE = time.monotonic_ns()",
        "BEGAN = datetime.datetime.now() - datetime.timedelta(hours=1)",
        "root = Path(__file__)",
        "rank = int(os.environ.get('RANK', 0))",
        "rank = os.environ['RANK']",
        "begun = time.time()",
        "RATE = 1\ntext = f'{RATE:g}'",
        "print('starting', torch.__version__)",
        "square = lambda x: x * x",
        "def f(x=1, *, y=None):\n    import os; os.environ['A'] = '1'",
        "def f(x: unknown) -> unknown: pass",
        "async def f(): pass",
        "@functools.lru_cache(maxsize=None)\ndef f(): pass",
        "@torch.no_grad()\ndef f(): pass",
        "class Plain:\n    'doc'\n    size = 1\n    rate: float = 2.0\n    def f(self): print(1)",
        "class Child(nn.Module): pass",
        "class Child(nn.Module):\n    @property\n    def x(self): pass\n    @x.setter\n    def x(self, y): pass",
        "class Child(nn.Module):\n    @torch.no_grad()\n    def x(self): pass",
        "class A: pass\nclass B(A): pass",
        "class G(typing.Generic[typing.Any]): pass",
        "@dataclass\nclass C:\n    x: int = 1\n    y: list = field(default_factory=list)",
        "@dataclasses.dataclass(frozen=True)\nclass C:\n    x: int = 1",
        "class E(enum.Enum):\n    A = enum.auto()",
        "if TYPE_CHECKING:\n    import nothing_real\n    anything()",
        "if __name__ == '__main__':\n    pass",
        "try:\n    import tomllib\nexcept ImportError:\n    tomllib = None",
        "try:\n    import tomllib\nexcept (ImportError, ModuleNotFoundError):\n    HAS = False\nelse:\n    HAS = True",
        "os.environ['OMP_NUM_THREADS'] = '1'",
        "os.environ.setdefault('WI_THREADS', '1')",
        "warnings.filterwarnings('ignore')",
        "warnings.simplefilter('ignore', append=True)",
    ],
)
def test_what_can_do_nothing_may_stand_between_imports(tmp_path: Path, between: str) -> None:
    assert of(tmp_path, f"{HEAD}{between}\nimport csv")[-1] == "csv"


@pytest.mark.parametrize(
    "between",
    [
        "x = f()",
        "x = [f()]",
        "x = [f for f in fs]",
        "x = other.thing",
        "x += 1",
        "args = sys.argv or []\nargs += ['--more']",
        "paths = [sys.path][0]\npaths *= 0",
        "x.y = 1",
        "x['y'] = 1",
        "os.environ['RANK'] = '1'",
        "os.environ['A'] = str(1)",
        "os.environ[name] = '1'",
        "os.environ.update(A='1')",
        "os.environ = {}",
        "os.environ['A'] = os.environ['B'] = '1'",
        "os.putenv('A', '1')",
        "sys.path.insert(0, 'lib')",
        "sys.path = []",
        "time.sleep(1)",
        "torch.manual_seed(0)",
        "torch.set_default_dtype(torch.float64)",
        "logging.basicConfig()",
        "warnings.filterwarnings('error')",
        "warnings.simplefilter('ignore', category=UserWarning)",
        "print = torch.manual_seed\nprint(0)",
        "print(f())",
        "int = 3\nint('1')",
        "Path('x').mkdir()",
        "open('x', 'w')",
        "del os",
        "assert x",
        "raise SystemExit",
        "for x in (1, 2): pass",
        "while True: pass",
        "with x: pass",
        "if x: pass",
        "if os.environ.get('X'): pass",
        "if __name__ == '__main__':\n    main()",
        "__name__ = '__main__'\nif __name__ == '__main__':\n    pass",
        "match x:\n    case _: pass",
        "try:\n    import tomllib\nexcept ImportError:\n    install()",
        "try:\n    import tomllib\nexcept OSError:\n    pass",
        "try:\n    import tomllib\nexcept:\n    pass",
        "try:\n    import tomllib\nfinally:\n    f()",
        "try:\n    f()\nexcept ImportError:\n    pass",
        "try:\n    os.environ['A'] = '1'\nexcept ImportError:\n    pass",
        "@decorated\ndef f(): pass",
        "@decorated\nclass C: pass",
        "@torch.compile\ndef f(): pass",
        "def f(x=g()): pass",
        "def f(*, x=g()): pass",
        "class C(base()): pass",
        "class C(Unknown): pass",
        "class C(metaclass=abc.ABCMeta): pass",
        "class A:\n    def __init_subclass__(cls): import os; os.environ['A'] = '1'\nclass B(A): pass",
        "class A:\n    def __class_getitem__(cls, x): f()\nx = A[1]",
        "class C:\n    x = f()",
        "class C:\n    import tomllib",
        "class C:\n    f()",
        "from json import *\nprint(1)",
        "env: typing.Any = os.environ\nenv |= {'A': '1'}",
        "import collections\nx = collections.defaultdict(list)['a']",
        "class E(enum.Enum):\n    A = 1\n    def __init__(self, x): f()",
        "class E(enum.Enum): pass\nclass F(E):\n    A = 1",
        "from http import IntEnum\nclass E(IntEnum):\n    A = 1\n    def __init__(self, x): f()",
        "@functools.partial(f, '1')\ndef g(): pass",
        "def h(cls): f()\nclass A:\n    __init_subclass__ = classmethod(h)\nclass B(A): pass",
        "try:\n    N = int(os.environ['X'])\n    import tomllib\nexcept Exception:\n    pass",
    ],
)
def test_what_may_do_something_ends_the_reading(tmp_path: Path, between: str) -> None:
    found = of(tmp_path, f"{HEAD}{between}\nimport csv")
    assert "torch.nn" in found and "csv" not in found


def test_annotations_are_worked_out_where_they_are_not_left_for_later(tmp_path: Path) -> None:
    assert of(tmp_path, "def f(x: g()): pass\nimport csv") == []
    assert of(tmp_path, "x: g() = 1\nimport csv") == []
    assert of(tmp_path, "from __future__ import annotations\ndef f(x: g()) -> h(): pass\nx: g() = 1\nimport csv") == [
        "csv"
    ]


def test_where_the_reading_ends_is_told_without_any_value(tmp_path: Path) -> None:
    assert read(tmp_path, "import csv\nlogin(token='secret')").ended == ("train.py:2", "a call of login")
    assert read(tmp_path, "import csv\nx['y'] = 'secret'").ended == ("train.py:2", "an assignment")
    assert read(tmp_path, "import mine", mine="import csv\nwith x: pass").ended == ("mine.py:2", "a statement (with)")
    assert read(tmp_path, "import csv").ended == ("", "")


def test_what_the_script_sets_before_an_import_belongs_to_that_import(tmp_path: Path) -> None:
    steps = read(
        tmp_path,
        "import os, warnings\nos.environ['A'] = '1'\nwarnings.filterwarnings('ignore')\nimport csv\nimport json",
    ).steps
    assert [step.environment for step in steps] == [{}, {}, {"A": "1"}, {}]
    assert [step.filters for step in steps] == [[], [], [("filterwarnings", ["ignore"], {})], []]


def test_what_is_taken_from_a_module_is_known(tmp_path: Path) -> None:
    (step, other) = read(tmp_path, "from xml.dom import minidom, Node as N\nfrom json import *").steps
    assert (step.name, step.names, other.names) == ("xml.dom", ("minidom", "Node"), ("*",))


def test_imports_of_one_try_statement_belong_together(tmp_path: Path) -> None:
    source = (
        "import csv\ntry:\n    import json\n    import tomllib\nexcept ImportError:\n    tomllib = None\nimport zlib"
    )
    assert [step.tried for step in read(tmp_path, source).steps] == [0, 1, 1, 0]


def test_a_file_that_was_edited_since_is_named(tmp_path: Path) -> None:
    prefix = read(tmp_path, "import mine", mine="import json")
    assert first_changed(prefix.files) == ""
    (tmp_path / "mine.py").write_text("import json, csv", encoding="utf-8")
    assert first_changed(prefix.files) == str(tmp_path / "mine.py")


def test_names_and_texts_of_the_whole_script_and_its_modules_are_known(tmp_path: Path) -> None:
    write(
        tmp_path,
        train="def f():\n    from mine.inner import g\n    g(KEY='v')",
        mine__init="",
        mine__inner="from torch import optim\nimport os\nos.environ['X_Y'] = 'z'\nfrom . import third",
        mine__third="a.Adam",
    )
    identifiers, texts = mentions("script", str(tmp_path / "train.py"), {})
    assert {"optim", "Adam", "g"} <= identifiers and "json" not in identifiers
    assert {"X_Y", "KEY", "v", "z"} <= texts


def test_a_file_that_was_read_for_its_imports_is_not_read_again(tmp_path: Path) -> None:
    prefix = read(tmp_path, "import json\nimport mine\ndef f():\n    import later\n", mine="a.Adam", later="b.Lamb")
    for name in ("train", "mine"):
        (tmp_path / f"{name}.py").write_text("")
    identifiers, _ = mentions("script", str(tmp_path / "train.py"), prefix.trees)
    assert {"Adam", "Lamb", "later"} <= identifiers


def test_a_module_beside_the_script_is_read_and_not_named(tmp_path: Path) -> None:
    assert of(tmp_path, "import json\nimport mine\nimport csv", mine="import tomllib") == ["json", "tomllib", "csv"]


def test_a_module_beside_the_script_that_does_something_ends_the_reading(tmp_path: Path) -> None:
    assert of(tmp_path, "import mine\nimport csv", mine="import json\nact(1)\nimport tomllib") == ["json"]


def test_a_package_beside_the_script_is_read_from_its_own_beginning(tmp_path: Path) -> None:
    found = of(tmp_path, "from mine.inner import thing", mine__init="import json", mine__inner="import csv")
    assert found == ["json", "csv"]


def test_modules_that_are_taken_from_a_package_beside_the_script_are_read(tmp_path: Path) -> None:
    found = of(tmp_path, "from mine import inner", mine__init="import json", mine__inner="import csv")
    assert found == ["json", "csv"]


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    assert of(tmp_path, "import one\nimport csv", one="import two\nimport json", two="import one") == ["json", "csv"]


def test_relative_imports_of_the_scripts_own_package_are_read(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        "import mine.deep.a\nimport csv",
        mine__init="import json\nfrom . import inner",
        mine__inner="import zlib",
        mine__deep__init="",
        mine__deep__a="from ..other import x\nfrom .b import y",
        mine__other="import bz2",
        mine__deep__b="import lzma",
    )
    assert found == ["json", "zlib", "bz2", "lzma", "csv"]


def test_a_relative_import_without_a_package_ends_the_reading(tmp_path: Path) -> None:
    assert of(tmp_path, "import json\nfrom . import mine\nimport csv", mine="") == ["json"]
    assert of(tmp_path, "import pack.a\nimport csv", pack__init="", pack__a="from ... import x") == []


def test_what_is_tried_of_the_scripts_own_ends_the_reading(tmp_path: Path) -> None:
    source = "try:\n    import nothing\n    import mine\nexcept ImportError:\n    pass\nimport csv"
    assert of(tmp_path, source, mine="import os\nos.environ['A'] = '1'") == ["nothing"]


def test_all_of_a_module_that_names_what_is_all_ends_the_reading(tmp_path: Path) -> None:
    found = of(tmp_path, "from mine import *\nimport csv", mine__init="__all__ = ['config']", mine__config="act()")
    assert found == []


def test_a_name_that_a_module_does_not_bind_is_not_taken_for_pythons_own(tmp_path: Path) -> None:
    assert of(tmp_path, "from mine import print\nprint(1)\nimport csv", mine="from json import *") == ["json"]


def test_an_import_of_the_script_itself_ends_the_reading(tmp_path: Path) -> None:
    assert of(tmp_path, "import mine\nimport csv", mine="import json\nimport train") == ["json"]


def test_no_warning_is_lost_to_the_reading(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        before = list(warnings.filters)
        assert of(tmp_path, "import json\nx = 1 is 1") == ["json"]
        assert seen == [] and warnings.filters == before
        compile((tmp_path / "train.py").read_text(), str(tmp_path / "train.py"), "exec")
        assert len(seen) == 1, "the script's own is given"


def test_a_module_that_works_its_names_out_ends_the_reading(tmp_path: Path) -> None:
    assert of(tmp_path, "from mine import x\nimport csv", mine="def __getattr__(name): pass") == []


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


def test_an_archive_as_script_gives_none(tmp_path: Path) -> None:
    (tmp_path / "train.pyz").write_bytes(b"PK\3\4\xff\0")
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


def test_of_a_module_inside_a_package_the_packages_are_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of(tmp_path, "", mine__init="import json", mine__train="from .other import x\nimport csv", mine__other="import bz2")
    monkeypatch.chdir(tmp_path)
    assert leading_imports("module", "mine.train") == ["json", "bz2", "csv"]


def test_of_a_folder_as_script_its_main_is_read(tmp_path: Path) -> None:
    of(tmp_path, "", mine__init="", mine__main="import other", mine__other="import json")
    assert leading_imports("script", str(tmp_path / "mine")) == ["json"]


def test_by_run_path_modules_are_looked_for_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    of(tmp_path / "deep", "import mine", mine="import json")
    (tmp_path / "mine.py").write_text("import csv", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert leading_imports("run_path", "deep/train.py") == ["csv"]
