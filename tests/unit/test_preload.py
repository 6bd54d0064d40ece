"""What is known of a script's imports from one run to the next, and when it is not believed."""

import json
import os
import pwd
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastic_run.elastic_agent.preload import (
    OUTDATED,
    QUIET_SECONDS,
    VERSION,
    Learnt,
    Lessons,
    beyond,
    cache_file,
    load,
    save,
    stamp,
)
from elastic_run.elastic_agent.seed import Recipe
from elastic_run.elastic_agent.warm import imports


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "train.py").write_text("import json\n")
    return Recipe(
        argv=("/usr/bin/python3", "-u", "train.py", "--lr", "1"),
        environment={"HOME": "/home/me", "OMP_NUM_THREADS": "1"},
        kind="script",
        target="train.py",
        per_worker=frozenset(["RANK"]),
    )


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def place_of(recipe: Recipe, folder: Path, **environ: str) -> Path:
    file = cache_file(recipe, environ, folder)
    assert file is not None
    return file


def name_of(recipe: Recipe, folder: Path) -> str:
    return place_of(recipe, folder, HOME="/home/me").name


# -- where it is kept -------------------------------------------------------------------------------------------------


def test_it_is_kept_in_the_users_cache(recipe: Recipe, tmp_path: Path) -> None:
    assert place_of(recipe, tmp_path, HOME="/home/me").parent == Path("/home/me/.cache/elastic-run/preload")
    assert place_of(recipe, tmp_path, XDG_CACHE_HOME="/cache").parent == Path("/cache/elastic-run/preload")


def test_a_user_without_a_home_has_no_cache(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    nowhere = cache_file(recipe, {}, tmp_path)
    assert nowhere is None
    save(nowhere, Learnt(steps=("json",)))
    assert load(nowhere) is None


def test_the_same_command_has_the_same_file(recipe: Recipe, tmp_path: Path) -> None:
    assert name_of(recipe, tmp_path) == name_of(replace(recipe), tmp_path)


CHANGES: dict[str, Callable[[Recipe], Recipe]] = {
    "an argument": lambda recipe: replace(recipe, argv=(*recipe.argv[:-1], "2")),
    "a flag of the interpreter": lambda recipe: replace(recipe, argv=(recipe.argv[0], "-O", *recipe.argv[1:])),
    "the interpreter": lambda recipe: replace(recipe, argv=("/bin/sh", *recipe.argv[1:])),
    "the kind of the command": lambda recipe: replace(recipe, kind="run_path"),
    "the script's name": lambda recipe: replace(recipe, target="other.py"),
    "a new variable": lambda recipe: replace(recipe, environment={**recipe.environment, "NEW": "1"}),
    "a variable's value": lambda recipe: replace(recipe, environment={**recipe.environment, "OMP_NUM_THREADS": "2"}),
    "a missing variable": lambda recipe: replace(recipe, environment={"HOME": "/home/me"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_command_has_another_file(recipe: Recipe, tmp_path: Path, change: str) -> None:
    assert name_of(CHANGES[change](recipe), tmp_path) != name_of(recipe, tmp_path)


def test_a_script_that_was_edited_has_another_file(recipe: Recipe, tmp_path: Path) -> None:
    before = name_of(recipe, tmp_path)
    (tmp_path / "train.py").write_text("import csv\n")
    assert name_of(recipe, tmp_path) != before


def test_a_script_that_was_only_touched_has_the_same_file(recipe: Recipe, tmp_path: Path) -> None:
    before = name_of(recipe, tmp_path)
    os.utime(tmp_path / "train.py", (1, 1))
    assert name_of(recipe, tmp_path) == before


def test_a_script_of_another_folder_has_another_file(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.py").write_bytes((tmp_path / "train.py").read_bytes())
    assert name_of(recipe, tmp_path / "elsewhere") != name_of(recipe, tmp_path)


@pytest.mark.parametrize(
    ("kind", "target", "file"),
    [
        ("module", "mine", "mine.py"),
        ("module", "package.mine", "package/mine.py"),
        ("module", "package", "package/__main__.py"),
        ("script", "program", "program/__main__.py"),
        ("run_path", "program", "program/__main__.py"),
    ],
)
def test_a_main_module_that_was_edited_has_another_file(
    recipe: Recipe, tmp_path: Path, kind: str, target: str, file: str
) -> None:
    main = tmp_path / file
    main.parent.mkdir(exist_ok=True)
    main.write_text("import json\n")
    using = replace(recipe, kind=kind, target=target)
    before = name_of(using, tmp_path)
    main.write_text("import csv\n")
    assert name_of(using, tmp_path) != before


@pytest.mark.parametrize("target", ["package.module", "no/such/file.py", "."])
def test_what_is_no_file_can_be_kept_too(recipe: Recipe, tmp_path: Path, target: str) -> None:
    assert name_of(replace(recipe, target=target), tmp_path).endswith(".json")


def test_an_interpreter_that_was_replaced_has_another_file(recipe: Recipe, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("3.11")
    using = replace(recipe, argv=(str(python), "train.py"))
    before = name_of(using, tmp_path)
    python.write_text("3.11.1")
    assert name_of(using, tmp_path) != before


@pytest.mark.parametrize(
    "name",
    ["ELASTIC_RUN_TAG", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SSH_CONNECTION", "PWD", "OLDPWD", "SHLVL", "_", "TERM"],
)
def test_a_variable_of_the_session_or_the_job_does_not_matter(recipe: Recipe, tmp_path: Path, name: str) -> None:
    with_it = replace(recipe, environment={**recipe.environment, name: "123"})
    assert name_of(with_it, tmp_path) == name_of(recipe, tmp_path)


def test_the_order_of_the_variables_does_not_matter(recipe: Recipe, tmp_path: Path) -> None:
    turned = replace(recipe, environment=dict(reversed(list(recipe.environment.items()))))
    assert name_of(turned, tmp_path) == name_of(recipe, tmp_path)


# -- what is believed -------------------------------------------------------------------------------------------------


@pytest.fixture
def learnt(tmp_path: Path) -> Learnt:
    (tmp_path / "mine.py").write_text("import json\n")
    return Learnt(
        steps=("json", "xml.dom"),
        until=("late", "the script changes A in its environment"),
        complete=True,
        files={str(tmp_path / "mine.py"): stamp(str(tmp_path / "mine.py"))},
        folders={str(tmp_path): stamp(str(tmp_path))[0]},
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "preload" / "0123.json"


def test_what_was_saved_is_loaded(file: Path, learnt: Learnt) -> None:
    file.parent.mkdir(parents=True)
    learnt = replace(learnt, folders={})
    save(file, learnt)
    assert load(file) == learnt


def test_saving_makes_the_folder_for_nobody_else(file: Path) -> None:
    save(file, Learnt(steps=("json",)))
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [found.name for found in file.parent.iterdir()] == [file.name]


def test_saving_again_replaces_it(file: Path) -> None:
    save(file, Learnt(steps=("json",)))
    save(file, Learnt(steps=("csv",)))
    assert load(file) == Learnt(steps=("csv",))


def test_where_it_cannot_be_saved_that_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(OSError):
        save(tmp_path / "cache" / "preload" / "0123.json", Learnt())


def test_what_is_saved_is_for_nobody_else_to_write_whatever_new_files_usually_are(file: Path) -> None:
    os.umask(0)
    save(file, Learnt(steps=("json",)))
    assert file.stat().st_mode & 0o777 == 0o600
    assert load(file) is not None


@pytest.mark.parametrize("what", ["the file", "the folder"])
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_what_others_can_write_is_nothing(file: Path, what: str, mode: int) -> None:
    save(file, Learnt(steps=("json",)))
    (file if what == "the file" else file.parent).chmod(mode)
    assert load(file) is None


def test_what_belongs_to_somebody_else_is_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(file, Learnt(steps=("json",)))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert load(file) is None


def test_a_link_in_the_place_of_the_file_is_nothing(file: Path) -> None:
    save(file, Learnt(steps=("json",)))
    file.rename(file.with_name("other"))
    file.symlink_to("other")
    assert load(file) is None


@pytest.mark.parametrize("problem", ["can be written by others", "belongs to somebody else"])
def test_nothing_is_saved_in_a_folder_that(file: Path, monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    file.parent.mkdir(parents=True)
    if problem == "can be written by others":
        file.parent.chmod(0o777)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError):
        save(file, Learnt(steps=("json",)))
    assert list(file.parent.iterdir()) == []


def test_what_came_to_nothing_because_packages_were_installed_is_not_saved(file: Path) -> None:
    save(file, Learnt(until=("json", OUTDATED)))
    assert not file.exists()
    assert OUTDATED == imports.OUTDATED


def test_what_is_not_there_is_nothing(file: Path) -> None:
    assert load(file) is None


GOOD = (
    f'{{"version": {VERSION}, "steps": ["json"], "until": null, "complete": false, "watched": 2.5, '
    '"files": {}, "folders": {}}'
)


def test_the_format_is_what_it_is(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(GOOD)
    assert load(file) == Learnt(steps=("json",), watched=2.5)


@pytest.mark.parametrize(
    "content",
    [
        "",
        GOOD[:-2],
        "[]",
        "null",
        "7",
        "{}",
        "[" * 100_000,
        GOOD.replace(f'"version": {VERSION}', f'"version": {VERSION + 1}'),
        GOOD.replace(f'"version": {VERSION}', '"version": null'),
        GOOD.replace('["json"]', "7"),
        GOOD.replace('"until": null', '"until": ["one"]'),
        GOOD.replace('"until": null', '"until": 7'),
        GOOD.replace('"files": {}', '"files": []'),
        GOOD.replace('"files": {}', '"files": {"/x": 7}'),
        GOOD.replace('"files": {}', '"files": {"/x": ["a", "b"]}'),
        GOOD.replace('"folders": {}', '"folders": {"/x": "y"}'),
        GOOD.replace('"folders": {}', '"folders": {"/x": null}'),
        "\udcff",
    ],
)
def test_what_is_damaged_or_of_another_version_is_nothing(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert load(file) is None


def test_it_does_not_hold_where_a_module_of_the_script_was_edited(learnt: Learnt, tmp_path: Path) -> None:
    assert learnt.holds
    (tmp_path / "mine.py").write_text("import csv, json\n")
    assert not learnt.holds


def test_it_does_not_hold_where_a_module_of_the_script_is_gone(learnt: Learnt, tmp_path: Path) -> None:
    (tmp_path / "mine.py").unlink()
    assert not learnt.holds


def test_it_does_not_hold_where_something_was_installed(learnt: Learnt, tmp_path: Path) -> None:
    os.utime(tmp_path, (1, 1))
    assert not learnt.holds


def test_what_does_not_hold_is_not_loaded(file: Path, learnt: Learnt, tmp_path: Path) -> None:
    save(file, replace(learnt, folders={}))
    os.utime(tmp_path / "mine.py", (1, 1))
    assert load(file) is None


def test_a_folder_that_was_missing_may_stay_missing(file: Path) -> None:
    save(file, Learnt(steps=("json",), folders={"/no/such/folder": stamp("/no/such/folder")[0]}))
    assert load(file) is not None


def test_the_file_is_plain_json(file: Path, learnt: Learnt) -> None:
    save(file, learnt)
    assert json.loads(file.read_text())["steps"] == ["json", "xml.dom"]


# -- what comes next --------------------------------------------------------------------------------------------------


def test_the_next_one_imports_what_this_one_did_and_what_was_told() -> None:
    assert beyond(["json", "csv"], None, ["late", "later"]) == ("json", "csv", "late", "later")


def test_the_next_one_imports_nothing_twice() -> None:
    assert beyond(["json", "csv"], None, ["csv", "late", "late"]) == ("json", "csv", "late")


def test_the_next_one_stops_before_what_this_one_could_not_import() -> None:
    assert beyond(["json"], ("noisy", "prints"), ["late", "noisy", "later"]) == ("json", "late")


def test_what_could_not_be_imported_and_was_not_told_stops_nothing() -> None:
    assert beyond(["json"], ("noisy", "prints"), ["late"]) == ("json", "late")


def test_the_next_one_does_not_import_what_this_one_should_not_have() -> None:
    assert beyond(["json", "late", "later"], ("late", "the script changes A"), ["last"]) == ("json",)


def test_without_news_the_next_one_is_as_this_one() -> None:
    assert beyond(["json"], None, []) == ("json",)


# -- who tells --------------------------------------------------------------------------------------------------------


def test_the_first_workers_tell_and_those_after_them_do_not() -> None:
    lessons = Lessons(over=False)
    assert lessons.begin(100.0)
    lessons.told(101.0)
    assert not lessons.begin(101.0 + QUIET_SECONDS)
    assert not lessons.begin(104.0)


def test_workers_that_end_before_they_import_anything_settle_nothing() -> None:
    lessons = Lessons(over=False)
    assert lessons.begin(100.0)
    assert lessons.watched(102.5) == 0.0
    assert lessons.begin(102.5)
    lessons.told(104.0)
    assert not lessons.begin(104.0 + QUIET_SECONDS)


def test_workers_tell_again_where_those_before_them_had_not_told_all() -> None:
    lessons = Lessons(over=False)
    assert lessons.begin(100.0)
    lessons.told(101.0)
    assert lessons.begin(100.9 + QUIET_SECONDS)
    assert lessons.begin(101.0 + QUIET_SECONDS)  # that was too soon after their own start


def test_workers_tell_again_after_those_that_came_much_further() -> None:
    lessons = Lessons(over=False)
    assert lessons.begin(100.0)
    assert not lessons.begin(110.0)
    assert not lessons.begin(130.0)
    assert lessons.begin(150.1)
    assert not lessons.begin(161.0)
    assert not lessons.begin(180.0)


def test_in_a_run_after_one_that_was_quiet_nobody_tells_until_workers_come_much_further() -> None:
    first = Lessons(over=False)
    assert first.begin(100.0)
    first.told(103.0)
    assert first.watched(104.0) == 0.0
    assert first.watched(108.0) == 8.0
    second = Lessons(over=False, watched=first.watched(108.0))
    assert not second.begin(500.0)
    assert second.watched(510.0) == 8.0
    assert not second.begin(516.0)
    assert second.begin(532.1)


def test_nobody_tells_where_all_is_known() -> None:
    assert not Lessons(over=True).begin(100.0)
    lessons = Lessons(over=False)
    assert lessons.begin(100.0)
    lessons.over = True
    assert not lessons.begin(100.5)
