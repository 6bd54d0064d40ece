"""A query of DuckDB as records: it runs once for the same text and files."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elastic_run import data
from elastic_run.exceptions import BadFiles


def test_a_query_runs_once_for_the_same_text_and_files(tmp_path: Path) -> None:
    for name, rows in (("a1.csv", "1,x\n2,y\n"), ("a2.csv", "3,z\n")):
        (tmp_path / name).write_text("n,s\n" + rows)
    text = f"WITH big AS (SELECT * FROM read_csv(['{tmp_path}/a*.csv'])) SELECT n * random() AS r, s FROM big; -- all"
    with ThreadPoolExecutor(4) as threads:  # as workers that begin together
        found = [each.read(range(3)) for each in threads.map(lambda _: data.query(text, tmp_path / "rows"), range(4))]
    assert all(each["r"].tolist() == found[0]["r"].tolist() for each in found) and found[0]["s"] == ["x", "y", "z"]
    assert len([*(tmp_path / "rows").iterdir()]) == 1
    (tmp_path / "a2.csv").write_text("n,s\n3,z\n4,w\n")
    assert len(data.query(text, tmp_path / "rows")) == 4
    assert len([*(tmp_path / "rows").iterdir()]) == 2


@pytest.mark.parametrize(
    "source", ["'d/**/*.csv'", "read_csv(['d/*/*/a.csv'], nullstr='*')", "'file://{here}/d/e/f/a.csv'", "'d/e/f/a.csv'"]
)
def test_rows_are_those_of_the_files_as_they_are(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("one", "two"):  # relative names in another working folder are other files
        (tmp_path / folder / "d/e/f").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / folder)
        for value in ("1", "2"):
            path = Path("d/e/f/a.csv")
            path.write_text(f"n\n{folder}{value}\n")
            os.utime(path, ns=(int(value), int(value)))
            text = f"SELECT * FROM {source.format(here=Path.cwd())}"
            assert data.query(text, tmp_path / "rows").read([0])["n"] == [f"{folder}{value}"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT 1; SELECT 2", "a query is one SELECT, and here are 2"),
        ("DROP TABLE x", "no SELECT"),
        ("SELECT FROM", "no SELECT"),
        ("SELECT * FROM 'none.parquet'", "No files found"),
        ("SELECT * FROM 'https://localhost:1/a.parquet'", "httpfs"),
        ("SELECT * FROM paths", "paths does not exist"),
        ("SELECT * FROM read_csv('a' || '.csv')", "must name its files by texts"),
        ("SELECT * FROM query('SELECT 1')", "hides which files it reads"),
    ],
)
def test_what_is_no_query_is_refused_and_leaves_nothing(text: str, why: str, tmp_path: Path) -> None:
    paths = ["a variable that is no table"]
    with pytest.raises(BadFiles, match=why):
        data.query(text, tmp_path / "rows")
    assert paths and not [*tmp_path.glob("rows/*")] and not [*tmp_path.glob("rows/.*")]
