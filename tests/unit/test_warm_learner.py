"""What counts as an import by the script itself, and when the learning ends."""

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic_run.elastic_agent.warm import learner as module
from elastic_run.elastic_agent.warm import specs
from elastic_run.elastic_agent.warm.frames import unpack
from elastic_run.elastic_agent.warm.imports import Surroundings
from elastic_run.elastic_agent.warm.learner import Learner, tell
from elastic_run.elastic_agent.warm.step import step_text

from .conftest import write


class Lesson:
    """A script's imports, and what is told of them."""

    def __init__(self, folder: Path) -> None:
        self._reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._writing = writing
        self.file = f"/proc/self/fd/{writing}"
        self.folder = folder
        self.learner: Learner | None = None

    def _is_own(self, thing: Any) -> bool:
        spec = thing if hasattr(thing, "submodule_search_locations") else getattr(thing, "__spec__", None)
        return Path(getattr(spec, "origin", None) or "/").name.startswith("own_")

    def do(self, source: str) -> None:
        """Runs a part of the script."""
        if self.learner is None:  # not before the test itself: pytest names it in the environment
            self.learner = Learner(self.file, Surroundings(sys.path), self._is_own, frozenset(["RANK"]))
            specs.add(self.learner.look)
        exec(compile(source, "train.py", "exec"), {"__name__": "__main__"})

    @property
    def told(self) -> list[tuple[str, ...]]:
        """What was told since the last look."""
        try:
            data = os.read(self._reading, 1 << 20)
        except BlockingIOError:
            return []
        frames, rest = unpack(data)
        assert rest == b""
        return [tuple(map(os.fsdecode, words)) for words in frames]

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


def listening() -> bool:
    """Whether anybody looks at what is loaded."""
    return bool(specs._looks)  # type: ignore[attr-defined]


@pytest.fixture
def lesson(packages: Path) -> Iterator[Lesson]:
    write(
        packages,
        wl_a="import wl_inner\nVALUE = 1\ndef call(): pass\nclass Kind: pass",
        wl_b="",
        wl_inner="",
        wl_pack__init="",
        wl_pack__part="",
        own_mine="import wl_a",
    )
    importlib.invalidate_caches()
    made = Lesson(packages)
    yield made
    made.close()


# -- what counts ------------------------------------------------------------------------------------------------------


def test_an_import_of_the_script_is_told_and_those_inside_of_it_are_not(lesson: Lesson) -> None:
    lesson.do("import wl_a")
    assert lesson.told == [("import", "wl_a")]


def test_each_import_is_told_once_and_in_order(lesson: Lesson) -> None:
    lesson.do("import wl_b\nimport wl_a\nimport wl_b")
    assert lesson.told == [("import", "wl_b"), ("import", "wl_a")]


def test_a_part_of_a_package_is_an_import_of_its_own(lesson: Lesson) -> None:
    lesson.do("import wl_pack.part")
    assert lesson.told == [("import", "wl_pack"), ("import", "wl_pack.part")]


def test_a_part_that_is_taken_from_a_package_counts(lesson: Lesson) -> None:
    lesson.do("from wl_pack import part")
    assert lesson.told == [("import", "wl_pack"), ("import", "wl_pack.part")]


def test_an_import_by_importlib_counts(lesson: Lesson) -> None:
    lesson.do("import importlib\nimportlib.import_module('wl_a')")
    assert lesson.told == [("import", "wl_a")]


def test_an_import_inside_a_function_counts_when_it_is_called(lesson: Lesson) -> None:
    lesson.do("def f():\n    import wl_b\nimport wl_a\nf()")
    assert lesson.told == [("import", "wl_a"), ("import", "wl_b")]


def test_the_scripts_own_module_is_told_as_such_and_its_imports_count(lesson: Lesson) -> None:
    lesson.do("import own_mine")
    assert lesson.told == [("own", str(lesson.folder / "own_mine.py")), ("import", "wl_a")]


@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_a_main_module_that_no_import_brings_is_told_once(
    lesson: Lesson, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = write_main(lesson.folder)
    main: Any = type(sys)(name)
    main.__file__ = file
    main.__spec__ = importlib.util.spec_from_file_location(name, file)
    monkeypatch.setitem(sys.modules, name, main)
    lesson.do("import wl_b\nimport wl_a")
    assert lesson.told == [("own", file), ("import", "wl_b"), ("import", "wl_a")]


def test_a_script_is_not_told(lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    main: Any = type(sys)("__main__")
    main.__file__ = write_main(lesson.folder)
    monkeypatch.setitem(sys.modules, "__main__", main)
    lesson.do("import wl_b")
    assert lesson.told == [("import", "wl_b")]


def test_a_script_that_is_run_in_the_place_of_the_main_module_is_learnt(lesson: Lesson) -> None:
    lesson.do("import wl_b\nimport sys\nsys.modules['__main__'] = type(sys)('__main__')\nimport wl_a")
    assert lesson.told == [("import", "wl_b"), ("import", "wl_a")]


def write_main(folder: Path) -> str:
    write(folder, own_main="")
    return str(folder / "own_main.py")


def test_an_import_by_a_function_of_an_installed_module_counts_when_the_script_calls_it(lesson: Lesson) -> None:
    write(lesson.folder, wl_lazy="def load():\n    import wl_b")
    importlib.invalidate_caches()
    lesson.do("import wl_lazy\nwl_lazy.load()")
    assert lesson.told == [("import", "wl_lazy"), ("import", "wl_b")]


def test_an_import_in_another_thread_does_not_count(lesson: Lesson) -> None:
    lesson.do("")
    thread = threading.Thread(target=lesson.do, args=("import wl_a",))
    thread.start()
    thread.join()
    assert lesson.told == []


def test_what_is_not_there_is_not_told(lesson: Lesson) -> None:
    with pytest.raises(ModuleNotFoundError):
        lesson.do("import wl_nothing")
    assert lesson.told == []


def test_what_is_loaded_already_is_not_told(lesson: Lesson) -> None:
    lesson.do("import sys, os, importlib")
    assert lesson.told == []


def test_a_module_sees_its_own_loader_while_it_is_loaded_and_after(lesson: Lesson) -> None:
    write(lesson.folder, wl_sees="SEEN = type(__loader__).__name__, type(__spec__.loader).__name__, __file__")
    importlib.invalidate_caches()
    lesson.do("import wl_sees")
    seen = sys.modules["wl_sees"]
    saw = seen.SEEN
    assert saw == ("SourceFileLoader", "SourceFileLoader", str(lesson.folder / "wl_sees.py"))
    assert seen.__spec__ is not None and seen.__spec__.loader is seen.__loader__


def test_a_loader_of_the_old_kind_is_left_alone(lesson: Lesson) -> None:
    write(
        lesson.folder,
        wl_old="import sys, importlib.machinery\nclass Loader:\n    def load_module(self, name):\n"
        "        return sys.modules.setdefault(name, type(sys)(name))\n"
        "class Finder:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'wl_older': return importlib.machinery.ModuleSpec(name, Loader())\n"
        "sys.meta_path.append(Finder())",
    )
    importlib.invalidate_caches()
    with pytest.warns(ImportWarning):
        lesson.do("import wl_old\nimport wl_older")
    assert ("import", "wl_old") in lesson.told


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_that_the_script_forks_tells_nothing(lesson: Lesson) -> None:
    lesson.do(
        "import wl_b\nimport os\npid = os.fork()\nif pid == 0:\n    import wl_a\n    os._exit(0)\nos.waitpid(pid, 0)"
    )
    assert lesson.told == [("import", "wl_b")]


def test_a_module_that_cannot_be_loaded_raises_as_it_does_without_a_learner(lesson: Lesson) -> None:
    write(lesson.folder, wl_fails="raise ValueError('broken')")
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match="broken"):
        lesson.do("import wl_fails")
    lesson.do("import wl_b")
    assert lesson.told == [("import", "wl_fails"), ("import", "wl_b")]


# -- the end of the learning ------------------------------------------------------------------------------------------


def test_what_the_script_has_set_before_an_import_is_told_with_it(lesson: Lesson) -> None:
    lesson.do("import wl_b\nimport os\nos.environ['WL'] = '1'\nimport wl_a")
    assert lesson.told == [("import", "wl_b"), ("import", step_text("wl_a", {"WL": "1"}))]


def test_the_search_path_that_the_script_has_changed_is_told_with_an_import(lesson: Lesson) -> None:
    lesson.do("import wl_b\nimport sys\nsys.path.insert(0, '/wl')\nimport wl_a\nimport wl_pack")
    assert lesson.told == [
        ("import", "wl_b"),
        ("import", step_text("wl_a", {}, ["/wl", *sys.path[1:]])),
        ("import", "wl_pack"),
    ]


def test_what_is_not_the_same_for_all_workers_ends_it(lesson: Lesson) -> None:
    lesson.do("import wl_b\nimport os\nos.environ['RANK'] = '1'\nimport wl_a")
    (_, (word, name, why)) = lesson.told
    assert (word, name) == ("until", "wl_a")
    assert why == "the script changes RANK in its environment, which is not the same for all workers"


def test_after_its_end_nothing_is_told_and_nobody_listens(lesson: Lesson) -> None:
    lesson.do("import os\nos.environ['RANK'] = '1'\nimport wl_a\nimport wl_b")
    assert [words[0] for words in lesson.told] == ["until"]
    assert not listening()


REPLACEMENTS = {
    "a function": ("wl_a.call = lambda: 1", "replaces wl_a.call"),
    "a class": ("wl_a.Kind = int", "replaces wl_a.Kind"),
    "a function that is removed": ("del wl_a.call", "replaces wl_a.call"),
    "a function of Python's own": ("import json\njson.dumps = print", "replaces json.dumps"),
    "a builtin function": ("import builtins\nbuiltins.open = print", "replaces builtins.open"),
    "a module": ("import sys\nsys.modules['wl_b'] = object()", "adds the module wl_b"),
    "a module in another's place": ("import sys\nsys.modules['wl_a'] = object()", "replaces the module wl_a"),
    "a module that is removed": ("import sys\ndel sys.modules['wl_inner']", "replaces the module wl_inner"),
    "a search path of no texts": ("import sys, pathlib\nsys.path.append(pathlib.Path('/wl'))", "cannot be told"),
    "a very long search path": ("import sys\nsys.path.append('/wl' * 1000)", "cannot be told"),
    "the working directory": ("import os\nos.chdir('/')", "changes its working directory"),
}


@pytest.mark.parametrize("what", REPLACEMENTS)
def test_what_the_script_imports_after_it_replaced_something_is_not_learnt(
    lesson: Lesson, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    import builtins
    import json

    monkeypatch.setattr(builtins, "open", builtins.open)
    monkeypatch.setattr(json, "dumps", json.dumps)
    act, why = REPLACEMENTS[what]
    lesson.do(f"import wl_a\n{act}\nimport wl_pack")
    first, last = lesson.told
    assert first == ("import", "wl_a")
    assert last[:2] == ("until", "wl_pack") and why in last[2]


@pytest.mark.parametrize(
    "act", ["wl_a.VALUE = 2", "wl_a.new = print", "wl_a.VALUE = print", "import sys; sys.excepthook = print"]
)
def test_plain_values_and_new_names_may_change(lesson: Lesson, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    lesson.do(f"import wl_a\n{act}\nimport wl_b")
    assert lesson.told == [("import", "wl_a"), ("import", "wl_b")]


def test_what_an_import_replaces_or_sets_by_itself_is_no_act_of_the_script(lesson: Lesson) -> None:
    write(
        lesson.folder,
        wl_patches="import os, sys, wl_a\nwl_a.call = print\nos.environ['WL'] = '1'\nsys.path.append('/wl')\n"
        "sys.modules['wl_made'] = wl_a",
    )
    importlib.invalidate_caches()
    lesson.do("import wl_a\nimport wl_patches\nimport wl_b")
    assert lesson.told == [("import", "wl_a"), ("import", "wl_patches"), ("import", "wl_b")]


def test_what_the_scripts_own_module_replaces_is_an_act_of_the_script(lesson: Lesson) -> None:
    write(lesson.folder, own_patches="import wl_a\nwl_a.call = print")
    importlib.invalidate_caches()
    lesson.do("import own_patches\nimport wl_b")
    assert lesson.told[-1][:2] == ("until", "wl_b")


def test_a_script_that_imports_very_much_by_itself_is_not_learnt_to_the_end(
    lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    lesson.do("import wl_a\nimport wl_b\nimport wl_pack")
    assert lesson.told == [("import", "wl_a"), ("until", "wl_b", "it makes more than 1 imports by itself")]


def test_where_nobody_listens_the_learning_ends_without_a_word(packages: Path) -> None:
    write(packages, wl_a="")
    importlib.invalidate_caches()
    deaf = Learner("/no/such/file", Surroundings(sys.path), lambda _: False)
    specs.add(deaf.look)
    importlib.import_module("wl_a")
    assert not listening()


def test_a_pipe_that_is_full_does_not_hold_the_script_back(lesson: Lesson) -> None:
    for word in ("x" * 900, "x"):
        while tell(lesson.file, "import", word):
            pass
    lesson.do("import wl_a")
    assert not listening()
