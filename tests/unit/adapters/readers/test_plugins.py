"""Which reader a file gets, and what is said where there is none."""

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from elastic_run.adapters.readers.errors import BadFiles
from elastic_run.adapters.readers.plugins import GROUP, format_of, reader_class


def test_the_format_is_the_extension_or_the_scheme_unless_it_is_given() -> None:
    assert format_of(["a/b.CSV", "c.csv"], "") == "csv"
    assert format_of(["warehouse://clicks.csv"], "") == "warehouse"
    assert format_of(["part-0", "part-1"], "csv") == "csv"


def test_files_of_different_formats_are_refused_by_name() -> None:
    with pytest.raises(BadFiles, match=r"a\.csv and b\.orc are of different formats"):
        format_of(["a.csv", "b.orc"], "")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("txt", r"f cannot be opened: no reader knows the format 'txt'\. There are readers of .*csv.*tsv"),
        ("", "no reader knows a format without an extension, unless format= names it"),
        ("gz", "no reader knows the format 'gz', nor could the records of a file that is compressed"),
    ],
)
def test_an_unknown_format_is_refused_with_those_that_are_known(name: str, why: str) -> None:
    with pytest.raises(BadFiles, match=why):
        reader_class(name, "f")


def test_an_installed_package_may_bring_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("warehouse", "fractions:Fraction", GROUP)

    def entry_points(*, group: str) -> EntryPoints:
        return EntryPoints([point]).select(group=group)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert reader_class("warehouse", "f").__name__ == "Fraction"
    with pytest.raises(BadFiles, match="warehouse"):
        reader_class("txt", "f")
