"""CSV files as programs really write them, against Python's csv module."""

import csv
import gzip
import io
import math
import os
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastic_run.adapters.readers.csv_reader import CsvReader
from elastic_run.adapters.readers.errors import BadFiles, FileChanged


def written(folder: Path, content: str | bytes, name: str = "a.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def everything(file: str, **options: Any) -> dict[str, list[Any]]:
    reader = CsvReader([file], options.pop("kinds", {}), **options)
    columns = reader.read(file, range(reader.size(file)))
    assert not columns.bad
    return {name: list(values) for name, values in columns.items()}


UGLY = {
    "Excel, with a mark, semicolons and a quoted line end": (
        '\ufeffid;name;text\r\n1;"Müller; Söhne";"two\r\nlines"\r\n2;"the ""best""";\r\n',
        {"delimiter": ";"},
        {"id": [1, 2], "name": ["Müller; Söhne", 'the "best"'], "text": ["two\r\nlines", ""]},
    ),
    "no final line end": ("a,b\n1,2\n3,4", {}, {"a": [1, 3], "b": [2, 4]}),
    "Python on Windows, with text mode": ("a,b\r\r\n1,2\r\r\n3,4\r\r\n", {}, {"a": [1, 3], "b": [2, 4]}),
    "a report with empty lines": ("\n\na,b\n\n1,2\n\r\n\n3,4\n\n\n", {}, {"a": [1, 3], "b": [2, 4]}),
    "inches, unquoted": (
        'size,item\n5" disk,1\n"3.5"" disk",2\n"x"y"z,3\n',
        {},
        {"size": ['5" disk', '3.5" disk', 'xy"z'], "item": [1, 2, 3]},
    ),
    "pandas, with its index": (",x\n0,1.5\n1,\n", {}, {"": [0, 1], "x": [1.5, "nan"]}),
    "no header": ("1,a\n2,b\n", {"header": False}, {"column_0": [1, 2], "column_1": ["a", "b"]}),
    "a header elsewhere": ("1,a\n", {"header": ("n", "s")}, {"n": [1], "s": ["a"]}),
    "codes with zeros in front": ("zip,n\n01234,1\n99999,2\n", {}, {"zip": ["01234", "99999"], "n": [1, 2]}),
    "one column, with quoted empty fields": ('t\n""\nx\n', {}, {"t": ["", "x"]}),
    "a header and nothing else, and its line end": ("a,b\r\n", {}, {"a": [], "b": []}),
    "a header and nothing else": ("a,b", {}, {"a": [], "b": []}),
    "all fields quoted": ('"a","b"\n"1","2.5"\n', {}, {"a": [1], "b": [2.5]}),
    "a NUL in a text": ("a,b\n1,x\0y\n", {}, {"a": [1], "b": ["x\0y"]}),
}


@pytest.mark.parametrize("name", UGLY)
def test_a_file_is_read_as_it_was_meant(name: str, tmp_path: Path) -> None:
    content, options, wanted = UGLY[name]
    found = everything(written(tmp_path, content), **options)
    assert {key: ["nan" if value != value else value for value in values] for key, values in found.items()} == wanted


def test_tabs_divide_the_fields_of_a_tsv_file(tmp_path: Path) -> None:
    assert everything(written(tmp_path, "a\tb\n1\tx,y\n", "a.TSV")) == {"a": [1], "b": ["x,y"]}


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=3)), min_size=1, max_size=20),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_python_has_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, str]], quoting: Any, end: str
) -> None:
    bare = end == "\n" and quoting == csv.QUOTE_MINIMAL  # then older versions leave a carriage return unquoted
    assume(not (bare and any("\r" in first + last for first, _, last in rows)))
    text = io.StringIO(newline="")
    csv.writer(text, quoting=quoting, lineterminator=end).writerows([("a", "b", "c"), *rows])
    file = written(tmp_path_factory.mktemp("csv"), text.getvalue().encode(errors="replace"))
    wanted = [tuple(str(field).encode(errors="replace").decode() for field in row) for row in rows]
    reader = CsvReader([file], {"a": "str", "b": "int64", "c": "str"})
    backwards = range(reader.size(file) - 1, -1, -1)
    columns = reader.read(file, backwards)
    assert not columns.bad
    assert [*zip(columns["a"], map(str, columns["b"]), columns["c"], strict=True)] == wanted[::-1]


def big(folder: Path, count: int = 30_000) -> tuple[str, list[list[str]]]:
    """A file of many blocks, and its rows."""
    rows = [[str(number), f"{number / 7:.3f}", f'text "{number}"\n' * (number % 5)] for number in range(count)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["n", "x", "t"], *rows])
    return written(folder, text.getvalue()), rows


@pytest.mark.parametrize("indices", [[29_999, 0, 17, 17, 12_345], [5], range(100, 9_000), []])
def test_records_are_read_in_the_order_in_which_they_are_asked_for(indices: Sequence[int], tmp_path: Path) -> None:
    file, rows = big(tmp_path)
    columns = CsvReader([file], {}).read(file, indices)
    assert [*zip(columns["n"].tolist(), columns["x"].tolist(), columns["t"], strict=True)] == [
        (int(rows[index][0]), float(rows[index][1]), rows[index][2]) for index in indices
    ]
    assert (columns["n"].dtype, columns["x"].dtype) == ("int64", "float64")


BAD = {
    "x,2.5,t": "column 'n' is 'x', and not a whole number of 64 bits",
    ",2.5,t": "column 'n' is empty, and the column is of whole numbers",
    "99999999999999999999,2.5,t": "column 'n' is '99999999999999999999', and not a whole number of 64 bits",
    "007,2.5,t": "column 'n' is '007', with a zero in front",
    "1,00.5,t": "column 'x' is '00.5', with a zero in front",
    "1,1.2.3,t": "column 'x' is '1.2.3', and not a number",
    "1,2.5": "it has 2 fields, and the file has 3 columns",
    "1,2.5,t,u": "it has 4 fields, and the file has 3 columns",
    "1,2.5,\udcff": "it is not UTF-8, from character 7 of the record on",
    "1,2.5,a\rb": "new-line character seen in unquoted field",
}


@pytest.mark.parametrize("record", BAD)
def test_a_record_that_does_not_fit_is_left_out_and_told_of(record: str, tmp_path: Path) -> None:
    lines = ["n,x,t", *(["1,2.5,t"] * 1200), "2,,é", record, "3,0,u"]
    file = written(tmp_path, "\n".join(lines).encode(errors="surrogateescape"))
    reader = CsvReader([file], {})
    columns = reader.read(file, [1202, 1201, 1200, 0])
    assert columns["n"].tolist() == [3, 2, 1]
    assert math.isnan(columns["x"][1]) and columns["t"] == ["u", "é", "t"]
    [bad] = columns.bad
    assert bad.position == 1 and bad.why.startswith(BAD[record])
    assert reader.place(file, 1201) == f"{file}, line 1203"


def test_the_line_of_a_record_counts_those_within_records(tmp_path: Path) -> None:
    file = written(tmp_path, 'a,b\n1,"x\ny\nz"\n\n2,w\n')
    assert CsvReader([file], {}).place(file, 1) == f"{file}, line 6"


def test_a_kind_may_be_given(tmp_path: Path) -> None:
    file = written(tmp_path, "a,b\n1,2\n")
    assert CsvReader([file], {"a": "str", "b": "float64"}).columns == {"a": "str", "b": "float64"}
    late = written(tmp_path, "a,b\n1,2\n" + "1,2\n" * 1000 + "007,08\n", "late.csv")
    columns = CsvReader([late], {"a": "int64", "b": "float64"}).read(late, [1001])
    assert not columns.bad and (columns["a"][0], columns["b"][0]) == (7, 8)
    for kinds, why in ({"c": "str"}, "kinds= names the column 'c'"), ({"a": "int"}, "the kind 'int' of column 'a'"):
        with pytest.raises(BadFiles, match=why):
            CsvReader([file], kinds)


def test_an_empty_file_beside_others_has_no_records(tmp_path: Path) -> None:
    files = [written(tmp_path, "", "a.csv"), written(tmp_path, "n\n7\n", "b.csv"), written(tmp_path, "n", "c.csv")]
    reader = CsvReader(files, {})
    assert [reader.size(file) for file in files] == [0, 1, 0]
    assert reader.columns == {"n": "int64"}


REFUSED: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {
    "another name": (
        {"a.csv": b"n,x\n1,2\n", "b.csv": b"n,y\n1,2\n"},
        {},
        "the files have different columns: column 2 is 'x' in .*a.csv and 'y' in .*b.csv",
    ),
    "another number": ({"a.csv": b"n,x\n", "b.csv": b"n\n"}, {}, "a.csv has 2, and .*b.csv has 1"),
    "nothing": ({"a.csv": b"", "b.csv": b"\n\n"}, {}, "there is no record in .*a.csv and the other files"),
    "a name twice": ({"a.csv": b"n,n\n"}, {}, "a.csv names the column 'n' twice"),
    "UTF-16": ({"a.csv": "n\n".encode("utf-16")}, {}, "is UTF-16, and not CSV in UTF-8: convert it"),
    "gzip": ({"a.csv": gzip.compress(b"n\n1\n")}, {}, "is compressed by gzip"),
    "an old Mac": ({"a.csv": b"n,x\r1,2\r3,4\r"}, {}, "line 1: lines end with a carriage return alone"),
    "an old Mac, at length": ({"a.csv": b"n,x\r" + b"1,2\r" * 300_000}, {}, "line 1: lines end with a carriage return"),
    "Latin-1": (
        {"a.csv": "größe\n1\n".encode("latin-1")},
        {},
        "line 1: it is not UTF-8, but perhaps Latin-1: convert it",
    ),
    "a header of another width": ({"a.csv": b"1,2\n"}, {"header": ["n"]}, "has 2 columns, and header= names 1"),
    "two characters": ({"a.csv": b"n\n"}, {"delimiter": "||"}, "delimiter=.* must be one ASCII character"),
    "a long first record": ({"a.csv": b'"' + b"x\n" * 600_000}, {}, "the first record has more than 1 MiB"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_in_words(name: str, tmp_path: Path) -> None:
    contents, options, why = REFUSED[name]
    files = [written(tmp_path, content, file) for file, content in contents.items()]
    with pytest.raises(BadFiles, match=why):
        CsvReader(files, {}, **options)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.write_text("n\n1\n22\n"), "has another size since it was opened"),
        (lambda path: os.utime(path, (1, 1)), "was written since it was opened"),
        (lambda path: path.unlink(), "is not there any more"),
    ],
)
def test_a_file_that_changes_while_it_is_used_is_refused(change: Any, why: str, tmp_path: Path) -> None:
    file = written(tmp_path, "n\n1\n2\n")
    reader = CsvReader([file], {})
    assert reader.read(file, [1])["n"].tolist() == [2]
    change(Path(file))
    with pytest.raises(FileChanged, match=why):
        reader.read(file, [1])


@pytest.mark.parametrize("header", [None, "n,x", 1])
def test_a_header_that_makes_no_sense_is_refused_in_words(header: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be True, False, or a list of the columns' names"):
        CsvReader([written(tmp_path, "1,2\n")], {}, header=header)


def test_a_file_that_is_written_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "n\n1\n2\n")
    reader, read = CsvReader([file], {}), os.preadv

    def read_and_write(descriptor: int, *rest: Any) -> int:
        os.utime(file, (1, 1))
        return read(descriptor, *rest)

    monkeypatch.setattr(os, "preadv", read_and_write)
    with pytest.raises(FileChanged, match="was written since it was opened"):
        reader.read(file, [1])


def test_a_process_that_is_spawned_opens_its_own_files(tmp_path: Path) -> None:
    file, other = written(tmp_path, "n\n1\n"), written(tmp_path, "n\n2\n", "b.csv")
    reader = CsvReader([file], {})
    reader.read(file, [0])
    content = pickle.dumps(reader)
    [descriptor] = reader._opened.values()
    copied = pickle.loads(content)
    with Path(other).open() as unrelated:  # what has that number in another process
        os.dup2(unrelated.fileno(), descriptor)
        assert copied.read(file, [0])["n"].tolist() == [1]
        del copied
        os.fstat(descriptor)


def test_threads_do_not_close_the_files_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [written(tmp_path, f"n\n{number}\n", f"{number:03}.csv") for number in range(2)]
    reader, read = CsvReader(files, {}), os.preadv
    monkeypatch.setattr("elastic_run.adapters.readers.csv_reader.MOST_OPEN", 1)
    reading, found = threading.Event(), list[int]()

    def read_beside_another(descriptor: int, *rest: Any) -> int:
        if not reading.is_set():
            reading.set()
            other.join(0.3)  # it would close this descriptor now
        return read(descriptor, *rest)

    monkeypatch.setattr(os, "preadv", read_beside_another)
    first = threading.Thread(target=lambda: found.append(reader.read(files[0], [0])["n"][0]))
    other = threading.Thread(target=lambda: reading.wait(10) and reader.read(files[1], [0]))
    other.start()
    first.start()
    first.join(10)
    other.join(10)
    assert found == [0]


def test_records_that_are_not_where_the_index_says_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "n\n1\n2\n")
    reader, before = CsvReader([file], {}), os.stat(file)  # noqa: PTH116
    Path(file).write_text("n\n123\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(FileChanged, match="has other records than its index says, from record 1 on"):
        reader.read(file, [1])


def test_more_files_than_are_kept_open_are_read(tmp_path: Path) -> None:
    files = [written(tmp_path, f"n\n{number}\n", f"{number:03}.csv") for number in range(100)]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    reader = CsvReader(files, {})
    for _ in range(2):
        assert [reader.read(file, [0])["n"][0] for file in files] == list(range(100))
    assert len(os.listdir("/proc/self/fd")) - before < 80  # noqa: PTH208
