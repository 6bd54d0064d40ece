"""Modules that were imported ahead: out of sight until the script imports them, and then as if just imported."""

import importlib
import importlib.util
import itertools
import os
import random
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastic_run.elastic_agent.warm import specs
from elastic_run.elastic_agent.warm.hazards import Watch, added_to
from elastic_run.elastic_agent.warm.imports import Group, Stash, Surroundings
from elastic_run.elastic_agent.warm.step import Step, step_text

from .conftest import write


class Spoiled(Exception):
    """What was imported ahead does not fit."""


def spoil(name: str, why: str) -> None:
    raise Spoiled(f"{name}: {why}")


def ahead(*names: str, repairs: dict[str, Callable[[Any], None]] | None = None) -> Stash:
    """Imports these ahead, a group for each, and hides them, as a warm interpreter and its worker do."""
    environment = dict(os.environ)
    lists = [list(listed) for listed in added_to()]
    groups: list[Group] = []
    for text in names:
        step = Step(text)
        name = step.name
        if name in sys.modules:
            continue
        if step.path is not None:
            sys.path[:] = step.path
        before, folders = set(sys.modules), set(sys.path_importer_cache)
        with Watch(-1, frozenset()) as watch:
            importlib.import_module(name)
        new = {found: module for found, module in sys.modules.items() if found not in before}
        looked = {folder: finder for folder, finder in sys.path_importer_cache.items() if folder not in folders}
        assert watch.added is not None
        groups.append(Group(step, new, watch.written, watch.added, watch.drawn, looked))
    stash = Stash(repairs or {}, spoil)
    stash.hide(groups, lists)
    os.environ.clear()
    os.environ.update(environment)
    stash.surroundings = Surroundings(sys.path)
    specs.add(stash.look)
    return stash


def visible(prefix: str = "wi_") -> list[str]:
    return [name for name in sys.modules if name.startswith(prefix)]


@pytest.fixture(autouse=True)
def three(packages: Path) -> Path:
    """Three things to import; the second one imports a part of the first, and the third one more."""
    write(
        packages,
        wi_one__init="import itertools\nVALUE = object()",
        wi_one__part="",
        wi_one__late="",
        wi_two="import wi_one.part",
        wi_three="import wi_one.late\nfrom wi_two import wi_one",
    )
    importlib.invalidate_caches()
    return packages


# -- out of sight -----------------------------------------------------------------------------------------------------


def test_after_hiding_the_modules_are_those_of_before() -> None:
    before = list(sys.modules.items())
    ahead("wi_one", "wi_two", "wi_three")
    assert list(sys.modules.items()) == before


def test_what_is_hidden_is_known_by_name_and_number() -> None:
    stash = ahead("wi_one", "wi_three")
    assert stash.names == ["wi_one", "wi_three"]
    assert stash.modules == 5
    assert stash.has("wi_two") and not stash.has("json")


def test_looking_for_a_hidden_module_does_not_reveal_it() -> None:
    stash = ahead("wi_one")
    for _ in range(2):
        spec = importlib.util.find_spec("wi_one")
        assert spec is not None and spec.origin is not None and spec.origin.endswith("wi_one/__init__.py")
        assert spec.loader is not None and spec.loader.is_package("wi_one")  # type: ignore[attr-defined]  # its own has it
    assert visible() == [] and stash.names == ["wi_one"]


def test_looking_for_what_is_not_there_finds_nothing() -> None:
    ahead("wi_one")
    assert importlib.util.find_spec("wi_nothing") is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'wi_nothing'"):
        importlib.import_module("wi_nothing")


def test_a_package_that_was_loaded_before_loses_the_parts_that_came_later() -> None:
    one: Any = importlib.import_module("wi_one")
    ahead("wi_two")
    assert not hasattr(one, "part")
    importlib.import_module("wi_two")
    assert one.part is sys.modules["wi_one.part"]


# -- revealed ---------------------------------------------------------------------------------------------------------


def test_an_import_gives_the_very_module_that_was_imported_ahead() -> None:
    stash = ahead("wi_one", "wi_two")
    hidden = {name: stash.module(number, name) for number, name in enumerate(("wi_one", "wi_two"))}
    assert importlib.import_module("wi_two") is hidden["wi_two"]
    assert sys.modules["wi_one"] is hidden["wi_one"]


def test_no_code_of_a_module_runs_again(three: Path) -> None:
    write(three, wi_count="import sys\nsys.wi_count = getattr(sys, 'wi_count', 0) + 1")
    ahead("wi_count")
    importlib.import_module("wi_count")
    count: int = sys.wi_count  # type: ignore[attr-defined]
    del sys.wi_count  # type: ignore[attr-defined]
    assert count == 1


def test_an_import_reveals_all_that_came_before_it_and_nothing_that_came_after() -> None:
    stash = ahead("wi_one", "wi_two", "wi_three")
    importlib.import_module("wi_two")
    assert set(visible()) == {"wi_one", "wi_one.part", "wi_two"}
    assert stash.names == ["wi_three"]


def test_modules_come_in_the_order_of_a_plain_import(three: Path) -> None:
    importlib.import_module("wi_one")
    importlib.import_module("wi_three")
    plain = visible()
    for name in plain:
        del sys.modules[name]
    ahead("wi_one", "wi_three")
    importlib.import_module("wi_one")
    importlib.import_module("wi_three")
    assert visible() == plain


def test_a_part_of_a_package_is_there_only_when_it_was_imported() -> None:
    ahead("wi_one", "wi_two", "wi_three")
    one: Any = importlib.import_module("wi_one")
    assert not hasattr(one, "part") and not hasattr(one, "late")
    importlib.import_module("wi_two")
    assert hasattr(one, "part") and not hasattr(one, "late")
    importlib.import_module("wi_three")
    assert hasattr(one, "late")


def test_from_a_package_a_part_can_be_imported_that_is_still_hidden() -> None:
    ahead("wi_one", "wi_two")
    scope: dict[str, Any] = {}
    exec("from wi_one import part", scope)
    assert scope["part"].__name__ == "wi_one.part"


def test_a_revealed_module_has_its_own_spec_and_loader(three: Path) -> None:
    importlib.import_module("wi_one")
    plain = (type(sys.modules["wi_one"].__loader__), repr(sys.modules["wi_one"]), sys.modules["wi_one"].__spec__)
    del sys.modules["wi_one"]
    ahead("wi_one")
    module = importlib.import_module("wi_one")
    assert module.__spec__ is not None and module.__spec__.loader is module.__loader__
    assert (type(module.__loader__), repr(module), module.__spec__) == plain
    assert not getattr(module.__spec__, "_initializing", False)


def test_a_folder_without_code_can_be_hidden_too(three: Path) -> None:
    write(three, wi_space__inner="")
    stash = ahead("wi_space.inner")
    inner = importlib.import_module("wi_space.inner")
    assert inner is stash.module(0, "wi_space.inner")
    assert getattr(sys.modules["wi_space"], "__file__", None) is None
    assert list(sys.modules["wi_space"].__path__) == [str(three / "wi_space")]


def test_a_revealed_module_can_be_loaded_again(three: Path) -> None:
    ahead("wi_one")
    module = importlib.import_module("wi_one")
    value = module.VALUE
    assert importlib.reload(module) is module
    assert module.VALUE is not value


def test_a_revealed_module_that_was_deleted_is_imported_anew() -> None:
    ahead("wi_one")
    first = importlib.import_module("wi_one")
    del sys.modules["wi_one"]
    assert importlib.import_module("wi_one") is not first


def test_a_module_of_the_scripts_own_making_stays_in_its_place() -> None:
    ahead("wi_one", "wi_two")
    fake = type(sys)("wi_one")
    sys.modules["wi_one"] = fake
    importlib.import_module("wi_two")
    assert sys.modules["wi_one"] is fake


ODD = {
    "without a spec": "class Thing:\n    x = 1\nsys.modules[__name__] = Thing()",
    "that answers everything": "class Thing:\n    def __getattr__(self, name): return lambda: 1\n    x = 1\n"
    "sys.modules[__name__] = Thing()",
    "that cannot be changed": "class Thing(type(sys)):\n    x = 1\n"
    "    def __setattr__(self, *_): raise TypeError('frozen')\n"
    "thing = Thing(__name__)\nvars(thing)['__spec__'] = __spec__\nsys.modules[__name__] = thing",
}


@pytest.mark.parametrize("odd", ODD)
def test_a_module_that_puts_something_else_into_its_place_is_that_thing(three: Path, odd: str) -> None:
    write(three, wi_odd=f"import sys\n{ODD[odd]}")
    stash = ahead("wi_odd")
    found = importlib.import_module("wi_odd")
    assert found is stash.module(0, "wi_odd") and found.x == 1


def test_another_module_of_that_name_that_the_script_has_arranged_for_spoils_it(three: Path) -> None:
    ahead("wi_two")
    write(three / "wi_one", wi_two="")
    sys.path.insert(0, str(three / "wi_one"))
    with pytest.raises(Spoiled, match="wi_two: the script has arranged for another module of that name"):
        importlib.import_module("wi_two")


def test_pythons_own_lists_show_nothing_of_it() -> None:
    before = list(sys.meta_path), list(sys.path_hooks), set(sys.path_importer_cache)
    ahead("wi_one", "wi_two")
    assert (list(sys.meta_path), list(sys.path_hooks), set(sys.path_importer_cache)) == before


def test_pythons_own_machinery_is_in_its_place_when_all_is_revealed() -> None:
    bootstrap: Any = sys.modules["_frozen_importlib"]
    own = bootstrap._find_spec
    ahead("wi_one", "wi_two")
    importlib.import_module("wi_one")
    assert bootstrap._find_spec is not own
    importlib.import_module("wi_two")
    assert bootstrap._find_spec is own


def test_folders_that_were_looked_at_are_known_when_it_is_revealed(three: Path) -> None:
    ahead("wi_one", "wi_two")
    assert str(three / "wi_one") not in sys.path_importer_cache
    importlib.import_module("wi_two")
    assert str(three / "wi_one") in sys.path_importer_cache


def test_whoever_waits_for_it_hears_of_each_revelation() -> None:
    stash = ahead("wi_one", "wi_two", "wi_three")
    heard: list[list[str]] = []
    stash.revealed = lambda: heard.append(stash.names)
    importlib.import_module("wi_two")
    importlib.import_module("wi_one")
    importlib.import_module("wi_three")
    assert heard == [["wi_three"], []]


@pytest.mark.parametrize("order", list(itertools.permutations(["wi_one", "wi_two", "wi_three"])), ids="-".join)
@pytest.mark.parametrize("hidden", list(itertools.permutations(["wi_one", "wi_two", "wi_three"])), ids="-".join)
def test_in_whatever_order_all_is_there_in_the_end_and_once(order: Sequence[str], hidden: Sequence[str]) -> None:
    stash = ahead(*hidden)
    known = {name: stash.module(stash._index[name], name) for name in stash._index}  # type: ignore[attr-defined]
    assert visible() == []
    for name in order:
        importlib.import_module(name)
        assert name in sys.modules
    assert {name: sys.modules[name] for name in visible()} == known


# -- what an import does to others ------------------------------------------------------------------------------------


def test_variables_that_an_import_sets_are_set_when_it_is_revealed(three: Path) -> None:
    write(three, wi_env="import os\nos.environ['WI_SET'] = 'yes'\nos.environ.pop('WI_GONE', None)")
    os.environ["WI_GONE"] = "1"
    ahead("wi_env")
    assert "WI_SET" not in os.environ and "WI_GONE" in os.environ
    importlib.import_module("wi_env")
    assert os.environ["WI_SET"] == "yes" and "WI_GONE" not in os.environ


def test_what_an_import_adds_to_lists_is_added_around_what_is_there(three: Path) -> None:
    write(
        three,
        wi_lists="import sys, warnings\nsys.path.insert(0, 'front')\nsys.path.append('back')\n"
        "warnings.filterwarnings('ignore', 'wi first')\nwarnings.filterwarnings('ignore', 'wi last', append=True)\n"
        "sys.meta_path.append('a finder')",
    )
    path, filters = list(sys.path), list(warnings.filters)
    ahead("wi_lists")
    assert (sys.path, list(warnings.filters)) == (path, filters)
    warnings.filterwarnings("error", "of the script")
    importlib.import_module("wi_lists")
    assert sys.path == ["front", *path, "back"]
    patterns = [getattr(found[1], "pattern", None) for found in warnings.filters]
    assert patterns[:2] == ["wi first", "of the script"] and patterns[-1] == "wi last"
    assert sys.meta_path.pop() == "a finder"


def test_a_warning_that_was_seen_is_looked_up_again_by_the_new_filters(three: Path) -> None:
    write(three, wi_quiet="import warnings\nwarnings.filterwarnings('ignore', 'wi quiet')")
    ahead("wi_quiet")
    warnings.filterwarnings("error", "wi quiet")
    with pytest.raises(UserWarning):
        warnings.warn("wi quiet", stacklevel=1)
    importlib.import_module("wi_quiet")
    warnings.warn("wi quiet", stacklevel=1)


def test_a_module_is_repaired_when_it_is_revealed_and_not_before() -> None:
    repaired: list[Any] = []
    ahead("wi_one", "wi_two", repairs={"wi_one": repaired.append, "wi_two": repaired.append})
    assert repaired == []
    module = importlib.import_module("wi_one")
    assert repaired == [module]


# -- surroundings that have changed -----------------------------------------------------------------------------------


class Finder:
    """One of the script's own."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        return None


def see(*_: object) -> None:
    """A tracer or profiler that is content."""


CHANGES: dict[str, tuple[Callable[[], object], str]] = {
    "a new variable": (lambda: os.environ.update(WI_NEW="1"), "changes WI_NEW in its environment"),
    "a variable's value": (lambda: os.environ.update(HOME="/x"), "changes HOME in its environment"),
    "a missing variable": (lambda: os.environ.pop("HOME"), "changes HOME in its environment"),
    "a folder in front": (lambda: sys.path.insert(0, "/x"), "changes sys.path"),
    "a folder less": (lambda: sys.path.pop(), "changes sys.path"),
    "a finder": (lambda: sys.meta_path.append(Finder()), "installs an import hook"),  # type: ignore[arg-type]
    "a path hook": (lambda: sys.path_hooks.append(lambda path: None), "installs an import hook"),  # type: ignore[arg-type]
    "another folder": (lambda: os.chdir("/"), "changes its working directory"),
    "a tracer": (lambda: sys.settrace(see), "traced or profiled"),
    "a profiler": (lambda: sys.setprofile(see), "traced or profiled"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_in_other_surroundings_nothing_is_revealed(change: str) -> None:
    act, why = CHANGES[change]
    os.environ.setdefault("HOME", "/home")
    stash = ahead("wi_one", "wi_two")
    act()
    try:
        with pytest.raises(Spoiled, match=why):
            importlib.import_module("wi_one")
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    assert visible() == [] and stash.names == ["wi_one", "wi_two"]


def test_looking_for_a_module_in_other_surroundings_does_no_harm() -> None:
    ahead("wi_one")
    os.environ["WI_NEW"] = "1"
    assert importlib.util.find_spec("wi_one") is not None


def test_imports_of_other_modules_in_other_surroundings_do_no_harm(three: Path) -> None:
    write(three, wi_other="")
    ahead("wi_one")
    os.environ["WI_NEW"] = "1"
    importlib.import_module("wi_other")


def test_what_was_revealed_before_a_change_stays() -> None:
    ahead("wi_one", "wi_two")
    importlib.import_module("wi_one")
    os.environ["WI_NEW"] = "1"
    importlib.import_module("wi_one")
    with pytest.raises(Spoiled):
        importlib.import_module("wi_two")


def test_a_search_path_that_is_known_to_be_changed_before_an_import_is_expected_there(three: Path) -> None:
    write(three / "wi_folder", wi_found="import wi_one")
    usual, changed = list(sys.path), [str(three / "wi_folder"), *sys.path]
    ahead("wi_two", step_text("wi_found", {}, changed), "wi_three")
    assert sys.path == usual
    importlib.import_module("wi_two")
    sys.path.insert(0, changed[0])
    importlib.import_module("wi_found")
    assert sys.path == changed
    assert importlib.import_module("wi_three").wi_one is importlib.import_module("wi_found").wi_one


@pytest.mark.parametrize("path", [[], ["/x", "wi_folder"], ["wi_folder", "/x"]])
def test_another_search_path_than_the_known_one_is_a_change(three: Path, path: list[str]) -> None:
    write(three / "wi_folder", wi_found="")
    usual = list(sys.path)
    ahead(step_text("wi_found", {}, [str(three / "wi_folder"), *usual]))
    sys.path[:0] = [str(three / folder) if folder == "wi_folder" else folder for folder in path]
    importlib.invalidate_caches()
    with pytest.raises(Spoiled if path else ModuleNotFoundError):
        importlib.import_module("wi_found")


def test_a_change_that_was_taken_back_is_none() -> None:
    ahead("wi_one")
    os.environ["WI_NEW"] = "1"
    del os.environ["WI_NEW"]
    importlib.import_module("wi_one")


def test_what_a_revealed_import_changes_is_no_change_of_the_script(three: Path) -> None:
    write(three, wi_first="import os, sys\nos.environ['WI_SET'] = '1'\nsys.path.append('/wi')")
    ahead("wi_first", "wi_one")
    importlib.import_module("wi_first")
    importlib.import_module("wi_one")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_in_a_child_that_the_script_forks_all_is_revealed_whatever_has_changed() -> None:
    ahead("wi_one")
    os.environ["WI_NEW"] = "1"
    pid = os.fork()
    if pid == 0:
        try:
            importlib.import_module("wi_one")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# -- packages that were installed meanwhile ---------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where packages are installed; last changed long ago, because a clock that is read twice may not have moved."""
    folder = tmp_path / "site-packages"
    (folder / "__pycache__").mkdir(parents=True)
    write(folder, wi_installed="VALUE = 1")
    sys.path.append(str(folder))
    os.utime(folder, (1, 1))
    return folder


def upgrade(site: Path) -> None:
    (site / "wi_installed-2.dist-info").mkdir()


def test_where_packages_were_installed_since_it_was_made_the_worker_begins_again_before_the_script(site: Path) -> None:
    stash = ahead("wi_installed")
    specs.remove(stash.look)
    upgrade(site)
    with pytest.raises(Spoiled, match="wi_installed: packages were installed"):
        stash.begin(Surroundings(sys.path))


def test_where_the_script_has_installed_packages_nothing_is_revealed_after_it(site: Path) -> None:
    stash = ahead("wi_one", "wi_installed")
    specs.remove(stash.look)
    stash.begin(Surroundings(sys.path))
    importlib.import_module("wi_one")
    upgrade(site)
    with pytest.raises(Spoiled, match="wi_installed: the script installs packages"):
        importlib.import_module("wi_installed")


def test_what_python_compiles_is_no_package_that_was_installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # but for what is made below
    (site / "__pycache__").rmdir()
    os.utime(site, (1, 1))
    ahead("wi_one", "wi_installed")
    (site / "__pycache__").mkdir()
    importlib.import_module("wi_one")
    upgrade(site)
    with pytest.raises(Spoiled):
        importlib.import_module("wi_installed")


# -- random numbers ---------------------------------------------------------------------------------------------------


@pytest.fixture
def drawing(three: Path) -> Path:
    write(three, wi_draws="import random\nVALUE = random.random()")
    return three


def test_a_draw_of_the_script_before_an_import_that_draws_spoils_it(drawing: Path) -> None:
    ahead("wi_one", "wi_draws")
    importlib.import_module("wi_one")
    random.seed(1)
    with pytest.raises(Spoiled, match="draws random numbers before"):
        importlib.import_module("wi_draws")


def test_without_a_draw_of_the_script_an_import_may_draw(drawing: Path) -> None:
    ahead("wi_one", "wi_draws")
    importlib.import_module("wi_one")
    importlib.import_module("wi_draws")


def test_a_draw_of_the_script_does_not_matter_to_imports_that_draw_nothing(drawing: Path) -> None:
    ahead("wi_one", "wi_two")
    importlib.import_module("wi_one")
    random.seed(1)
    importlib.import_module("wi_two")


# -- the end ----------------------------------------------------------------------------------------------------------


def test_at_the_end_all_of_it_is_taken_out_of_sight_and_kept() -> None:
    stash = ahead("wi_one", "wi_two")
    importlib.import_module("wi_one")
    held = sys.getrefcount(stash._groups[0].modules)  # type: ignore[attr-defined]
    stash.keep()
    assert visible() == []
    assert sys.getrefcount(stash._groups[0].modules) > held  # type: ignore[attr-defined]
