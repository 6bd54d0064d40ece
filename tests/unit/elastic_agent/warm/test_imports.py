"""Modules that were imported ahead: out of sight until the script imports them, and then as if just imported."""

import importlib
import importlib.util
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from elastic_run.elastic_agent.warm import specs
from elastic_run.elastic_agent.warm.declared import Table
from elastic_run.elastic_agent.warm.hazards import Watch, added_to
from elastic_run.elastic_agent.warm.imports import Group, Stash
from elastic_run.elastic_agent.warm.stamps import Folders

from ...conftest import write


def ahead(
    *names: str,
    repairs: dict[str, Callable[[Any], None]] | None = None,
    rereads: dict[str, Callable[[Any], None]] | None = None,
    stale: Callable[[str, list[str]], None] = lambda name, variables: None,
) -> Stash:
    """Imports these ahead, a group for each, and hides them, as a warm interpreter and its worker do."""
    environment = dict(os.environ)
    lists = [list(listed) for listed in added_to()]
    groups: list[Group] = []
    for name in names:
        if name in sys.modules:
            continue
        with Watch(-1, frozenset(), Table(())) as watch:
            importlib.import_module(name)
        assert watch.added is not None
        groups.append(Group(name, watch.modules, watch.written, watch.reads, watch.added, watch.folders))
    stash = Stash(repairs or {}, rereads or {}, stale)
    stash.hide(groups, lists)
    os.environ.clear()
    os.environ.update(environment)
    specs.add(stash.look)
    return stash


def hidden_in(stash: Stash, name: str) -> ModuleType:
    return stash._groups[stash._index[name]].modules[name]  # type: ignore[attr-defined]


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


def test_what_is_hidden_is_known_by_name() -> None:
    stash = ahead("wi_one", "wi_three")
    assert stash.modules == 5
    assert stash.has("wi_two") and not stash.has("json")


def test_looking_for_a_hidden_module_does_not_reveal_it() -> None:
    ahead("wi_one")
    for _ in range(2):
        spec = importlib.util.find_spec("wi_one")
        assert spec is not None and spec.origin is not None and spec.origin.endswith("wi_one/__init__.py")
        assert spec.loader is not None and spec.loader.is_package("wi_one")  # type: ignore[attr-defined]  # its own has it
    assert visible() == []


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
    hidden = {name: hidden_in(stash, name) for name in ("wi_one", "wi_two")}
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
    ahead("wi_one", "wi_two", "wi_three")
    importlib.import_module("wi_two")
    assert set(visible()) == {"wi_one", "wi_one.part", "wi_two"}
    assert "wi_three" not in visible()


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
    assert inner is hidden_in(stash, "wi_space.inner")
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
    assert found is hidden_in(stash, "wi_odd") and found.x == 1


def test_another_module_of_that_name_that_the_script_has_arranged_for_is_imported(three: Path) -> None:
    ahead("wi_two")
    write(three / "wi_one", wi_two="OTHER = True")
    sys.path.insert(0, str(three / "wi_one"))
    importlib.invalidate_caches()
    module: Any = importlib.import_module("wi_two")
    assert module.OTHER


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


@pytest.mark.parametrize("order", list(itertools.permutations(["wi_one", "wi_two", "wi_three"])), ids="-".join)
@pytest.mark.parametrize("hidden", list(itertools.permutations(["wi_one", "wi_two", "wi_three"])), ids="-".join)
def test_in_whatever_order_all_is_there_in_the_end_and_once(order: Sequence[str], hidden: Sequence[str]) -> None:
    stash = ahead(*hidden)
    known = {name: hidden_in(stash, name) for name in stash._index}  # type: ignore[attr-defined]
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


# -- variables that have changed since --------------------------------------------------------------------------------

READS = "import os\nVALUE = os.environ.get('WI_READ'), os.environ.get('WI_OTHER')"


def reread(module: Any) -> None:
    module.VALUE = os.environ.get("WI_READ"), os.environ.get("WI_OTHER")


def test_a_variable_that_changed_after_it_was_read_is_told_and_read_again(three: Path) -> None:
    write(three, wi_reads=READS)
    told: list[tuple[str, list[str]]] = []
    ahead("wi_reads", rereads={"wi_reads": reread}, stale=lambda *what: told.append(what))
    os.environ["WI_READ"] = "new"
    module: Any = importlib.import_module("wi_reads")
    assert module.VALUE == ("new", None)
    assert told == [("wi_reads", ["WI_READ"])]


def test_variables_that_nobody_read_may_change(three: Path) -> None:
    write(three, wi_reads=READS)
    told: list[tuple[str, list[str]]] = []
    ahead("wi_reads", rereads={"wi_reads": told.append}, stale=lambda *what: told.append(what))
    os.environ["WI_NEW"] = "new"
    importlib.import_module("wi_reads")
    assert told == []


def test_a_variable_that_was_changed_back_has_not_changed(three: Path) -> None:
    write(three, wi_reads=READS)
    told: list[tuple[str, list[str]]] = []
    ahead("wi_reads", stale=lambda *what: told.append(what))
    os.environ["WI_READ"] = "new"
    del os.environ["WI_READ"]
    importlib.import_module("wi_reads")
    assert told == []


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


def test_a_package_that_was_installed_since_is_seen(site: Path) -> None:
    folders = Folders()
    assert not folders.changed()
    (site / "wi_installed-2.dist-info").mkdir()
    assert folders.changed()


def test_what_python_compiles_is_no_package_that_was_installed(site: Path) -> None:
    (site / "__pycache__").rmdir()
    os.utime(site, (1, 1))
    folders = Folders()
    (site / "__pycache__").mkdir()
    assert not folders.changed()


# -- the end ----------------------------------------------------------------------------------------------------------


def test_at_the_end_all_of_it_is_taken_out_of_sight_and_kept() -> None:
    stash = ahead("wi_one", "wi_two")
    importlib.import_module("wi_one")
    held = sys.getrefcount(stash._groups[0].modules)  # type: ignore[attr-defined]
    stash.keep()
    assert visible() == []
    assert sys.getrefcount(stash._groups[0].modules) > held  # type: ignore[attr-defined]
