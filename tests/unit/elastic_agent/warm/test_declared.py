"""What may be imported ahead, by the table that the agent sends."""

import sys
from pathlib import Path

import pytest

from elastic_run.adapters.contract import ImportsAhead
from elastic_run.adapters.imports_ahead import PACKAGES
from elastic_run.elastic_agent.warm.declared import Table, installed_version
from elastic_run.launcher.early import table_rows


def table(*rows: tuple[str, ...], extra: tuple[str, ...] = ()) -> Table:
    return Table(rows, extra)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path)])
    return tmp_path


def test_what_nobody_declared_is_refused_and_the_way_out_is_named() -> None:
    assert table().problem("mylib.part") == (
        "mylib has not been tested for import ahead; --preload=mylib imports it ahead"
    )


def test_the_users_word_is_enough() -> None:
    given = table(("refused", "mylib", "reads RANK"), extra=("mylib.part",))
    assert given.problem("mylib") == "" and given.problem("other") != ""


def test_the_standard_library_may_be_imported_but_for_what_is_refused() -> None:
    given = table(("refused", "readline", "prepares the terminal"))
    assert given.problem("json.decoder") == ""
    assert given.problem("readline") == "prepares the terminal"


def test_a_refusal_may_name_a_part_of_a_package(site: Path) -> None:
    given = table(("package", "pack", "pack", "", ""), ("refused", "pack.bad", "prints"))
    assert (given.problem("pack.good"), given.problem("pack.bad")) == ("", "prints")


@pytest.mark.parametrize(
    ("version", "tested"),
    [("2.13.0+cpu", True), ("2.13", True), ("2.14.1", True), ("2.12.9", False), ("2.15.0", False), ("3.0", False)],
)
def test_only_versions_that_were_tested_are_imported_ahead(site: Path, version: str, tested: bool) -> None:
    (site / f"Pa_ck-{version}.dist-info").mkdir()
    problem = table(("package", "pack", "pa-ck", "2.13", "2.14")).problem("pack.part")
    assert (problem == "") == tested
    assert tested or problem == (f"pack {version} was not tested, only 2.13 to 2.14; --preload=pack imports it ahead")


def test_a_package_whose_version_cannot_be_told_is_refused(site: Path) -> None:
    assert table(("package", "pack", "pack", "1", "2")).problem("pack") == ("the installed version of pack is unknown")


def test_the_first_folder_that_names_a_version_wins(site: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    (later / "pack-2.0.dist-info").mkdir(parents=True)
    (site / "pack-1.0.dist-info").mkdir()
    sys.path.append(str(later))
    assert installed_version("pack") == "1.0"


def test_names_that_belong_to_no_package_are_known_by_their_beginning() -> None:
    given = table(("nameless", "_cython_*"), ("nameless", "cython_runtime"))
    assert given.problem("_cython_3_1_2") == "" and given.problem("cython_runtime") == ""
    assert given.problem("cython_other") != ""


def test_the_whole_table_arrives() -> None:
    given = Table(table_rows(ImportsAhead()))
    assert {late.module for late in given.late} >= {"torch._dynamo"}
    assert all(late.wanted_by for late in given.late)
    assert given.may_walk >= {"tqdm.utils"}
    for name, package in PACKAGES.items():
        assert (given.problem(name) == "") or package.tested is not None
