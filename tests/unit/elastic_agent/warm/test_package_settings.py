"""What packages read beside their own files when they are imported is noticed once it changes."""

import os
from pathlib import Path

import pytest

from elastic_run.elastic_agent.warm.package_settings import LOOKS, Settings, makes_temporary_folder

YEAR = 2026


def imported(*names: str) -> Settings:
    settings = Settings(LOOKS, YEAR)
    settings.note([*names, "other"], settings.now())
    return settings


def test_nothing_has_changed_where_nothing_was_read() -> None:
    assert Settings(LOOKS, YEAR).changed(YEAR) == ""


def test_another_year_is_told() -> None:
    assert Settings(LOOKS, YEAR).changed(YEAR + 1) == "the year has changed"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FSSPEC_CONFIG_DIR", "MATPLOTLIBRC", "MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def test_a_file_of_fsspec_that_comes_changes_or_goes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, file = tmp_path / "fsspec", tmp_path / "fsspec" / "conf.json"
    monkeypatch.setenv("FSSPEC_CONFIG_DIR", str(folder))
    before = imported("fsspec.config")
    assert before.changed(YEAR) == ""
    folder.mkdir()
    assert before.changed(YEAR) == f"{folder} has changed"
    file.write_text("{}")
    there = imported("fsspec.config")
    assert there.changed(YEAR) == ""
    file.write_text('{"file": {}}')
    assert there.changed(YEAR) == f"{file} has changed"
    there = imported("fsspec.config")
    file.unlink()
    assert there.changed(YEAR).endswith("has changed")


PLACES: tuple[tuple[str, dict[str, str], str], ...] = (
    ("matplotlib", {}, "work/matplotlibrc"),
    ("matplotlib", {"MATPLOTLIBRC": "given"}, "given"),
    ("matplotlib", {"MATPLOTLIBRC": "given"}, "given/matplotlibrc"),
    ("matplotlib", {}, "home/.config/matplotlib/matplotlibrc"),
    ("matplotlib", {"XDG_CONFIG_HOME": "xdg"}, "xdg/matplotlib/matplotlibrc"),
    ("matplotlib", {"MPLCONFIGDIR": "own", "XDG_CONFIG_HOME": "xdg"}, "own/matplotlibrc"),
    ("matplotlib.style", {}, "home/.config/matplotlib/stylelib/a"),
    ("matplotlib.style", {"MPLCONFIGDIR": "own"}, "own/stylelib/a"),
    ("fsspec.config", {}, "home/.config/fsspec/conf.json"),
)


@pytest.mark.parametrize(("module", "variables", "where"), PLACES)
def test_a_file_of_settings_that_comes_is_told_to_whom_it_concerns(
    module: str, variables: dict[str, str], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    before, others = imported(module), imported(*LOOKS.keys() - {module})
    assert before.changed(YEAR) == ""
    file = tmp_path / where
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("lines.linewidth: 3")
    assert before.changed(YEAR).endswith("has changed")
    assert others.changed(YEAR) == ""


@pytest.mark.parametrize(
    ("variables", "folder"),
    [({}, "home/.cache/matplotlib"), ({"XDG_CACHE_HOME": "xdg"}, "xdg/matplotlib"), ({"MPLCONFIGDIR": "own"}, "own")],
)
def test_a_list_of_fonts_that_changes_is_told(
    variables: dict[str, str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    file = tmp_path / folder / "fontlist-v390.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    before = imported("matplotlib.font_manager")
    (file.parent / "tex.cache").mkdir()
    assert before.changed(YEAR) == ""
    file.write_text("{...}")
    assert before.changed(YEAR) == f"{file} has changed"


def test_a_list_of_fonts_that_the_import_makes_is_no_change(home: Path) -> None:
    file = home / ".cache/matplotlib/fontlist-v390.json"
    settings = Settings(LOOKS, YEAR)
    before = settings.now()
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    settings.note(["matplotlib.font_manager"], before)
    assert settings.changed(YEAR) == ""
    file.write_text("{...}")
    assert settings.changed(YEAR) == f"{file} has changed"


@pytest.mark.parametrize("change", ["comes", "changes", "goes", "is moved here"])
def test_a_change_between_the_reading_and_the_end_of_the_import_is_told(change: str, home: Path) -> None:
    file, other = home / ".config/matplotlib/matplotlibrc", home / "other"
    file.parent.mkdir(parents=True)
    other.write_text("{}")
    if change != "comes":
        file.write_text("{}")
        os.utime(file, ns=(0, 0))
    os.utime(other, ns=(0, 0))
    settings = Settings(LOOKS, YEAR)
    before = settings.now()
    match change:
        case "goes":
            file.unlink()
        case "is moved here":
            other.rename(file)
        case _:
            file.write_text("{...}")
    settings.note(["matplotlib"], before)
    assert settings.changed(YEAR) == f"{file} has changed"


def test_where_another_variable_names_the_folder_in_the_meantime_all_counts_as_changed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(LOOKS, YEAR)
    before = settings.now()
    monkeypatch.setenv("MPLCONFIGDIR", str(home / "own"))
    settings.note(["matplotlib"], before)
    assert settings.changed(YEAR) == f"{home}/own/matplotlibrc has changed"


@pytest.mark.parametrize("folder", ["/proc/nowhere", "/sys/nowhere/deep", "/dev/null/nowhere"])
@pytest.mark.parametrize("variable", ["HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"])
def test_matplotlib_is_refused_where_it_could_not_make_its_folder(
    folder: str, variable: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    assert makes_temporary_folder("matplotlib") == ""
    monkeypatch.setenv(variable, folder)
    assert makes_temporary_folder("matplotlib").startswith(f"would create a temporary folder, because {folder}")
    assert makes_temporary_folder("numpy") == ""
    assert not home.exists()
