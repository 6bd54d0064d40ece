"""Parquet, ORC and Arrow files: the same records as in CSV, whatever their groups."""

import datetime
import decimal
import math
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather, orc, parquet

from elastic_run import data
from elastic_run.adapters.readers.arrow_readers import ParquetReader
from elastic_run.exceptions import BadFiles, BadRecords, FileChanged


def write_ipc(table: Any, path: Path, rows: int) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def write_csv(table: Any, path: Path, rows: int) -> None:
    lines = (",".join("" if value is None else str(value) for value in row.values()) for row in table.to_pylist())
    path.write_text("\n".join([",".join(table.column_names), *lines, ""]))


WRITERS: dict[str, Callable[[Any, Path, int], Any]] = {
    "csv": write_csv,
    "parquet": lambda table, path, rows: parquet.write_table(table, path, row_group_size=rows),
    "orc": lambda table, path, rows: orc.write_table(table, path, stripe_size=rows * 16),
    "arrow": write_ipc,
    "feather": lambda table, path, rows: feather.write_feather(table, path, chunksize=rows),
}
FORMATS = [name for name in WRITERS if name != "csv"]


def table_of(numbers: range) -> Any:
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "x": pa.array([None if number % 7 == 0 else number / 4 for number in numbers], pa.float64()),
            "t": pa.array([f"text {number}" for number in numbers], pa.string()),
        }
    )


@pytest.mark.parametrize("format", WRITERS)
def test_records_are_the_same_in_every_format(format: str, tmp_path: Path) -> None:
    for name, numbers in (("b", range(7_000, 10_000)), ("a", range(7_000)), ("c", range(0))):
        WRITERS[format](table_of(numbers), tmp_path / f"{name}.{format}", 1_000)
    opened = data.open(tmp_path)
    assert (len(opened), opened.columns) == (10_000, {"n": "int64", "x": "float64", "t": "str"})
    drawn = random.Random(0).sample(range(10_000), 500)
    for indices in (drawn, [4_242], [], range(9_999, 6_500, -1)):
        columns = opened.read(indices)
        assert columns["n"].tolist() == [*indices] and columns["n"].dtype == "int64"
        assert columns["t"] == [f"text {index}" for index in indices]
        for index, value in zip(indices, columns["x"].tolist(), strict=True):
            assert math.isnan(value) if index % 7 == 0 else value == index / 4
    seen = list[int]()
    for shard in opened.shards("s", shard_size=600, commit="ack"):
        seen += shard.read()["n"].tolist()
        shard.done()
    assert sorted(seen) == [*range(10_000)]


def test_types_become_the_kinds_of_their_values(tmp_path: Path) -> None:
    time = datetime.datetime(2026, 11, 27, 10, 30)
    columns = {
        "small": pa.array([1, 2], pa.uint8()),
        "hash": pa.array([2**64 - 1, 0], pa.uint64()),
        "half": pa.array([0.5, None], pa.float32()),
        "flag": pa.array([True, False]),
        "word": pa.array(["b", None], pa.dictionary(pa.int8(), pa.string())),
        "long": pa.array(["y", "z"], pa.large_string()),
        "time": pa.array([time, None], pa.timestamp("us")),
        "day": pa.array([time.date(), None]),
        "list": pa.array([[1, 2], []]),
        "money": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)),
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    opened = data.open(tmp_path)
    assert [*opened.columns.values()][:6] == ["int64", "uint64", "float64", "bool", "str", "str"]
    assert (opened.columns["time"], opened.columns["day"]) == ("datetime64[us]", "datetime64[D]")
    read = opened.read([1, 0])
    assert read["hash"].tolist() == [0, 2**64 - 1] and read["flag"].tolist() == [False, True]
    assert math.isnan(read["half"][0]) and read["half"][1] == 0.5
    assert (read["word"], read["long"], read["list"]) == ([None, "b"], ["z", "y"], [[], [1, 2]])
    assert read["time"].tolist() == [None, time] and read["day"].tolist() == [None, time.date()]
    assert opened.columns["money"] == "decimal128(5, 2)" and read["money"] == [None, decimal.Decimal("1.50")]


def test_a_whole_number_without_a_value_is_a_bad_row_unless_it_is_read_as_a_float(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"n": pa.array([1, None, 3, None]), "t": [*"abcd"]}), path, row_group_size=3)
    with pytest.raises(BadRecords, match=r"a\.parquet, record 3 \(row group 1\): column 'n' has no value \(kinds="):
        data.open(path).read([0, 3])
    columns = data.open(path, bad=0.6).read([3, 2, 1, 0])
    assert columns["n"].tolist() == [3, 1] and columns["t"] == ["c", "a"]
    assert [each.position for each in columns.bad] == [0, 2]
    columns = data.open(path, kinds={"n": "float64", "t": "str"}).read([2, 1])
    assert columns["n"][0] == 3.0 and math.isnan(columns["n"][1])
    assert data.open(path, kinds={"n": "str"}).read(range(4))["n"] == ["1", None, "3", None]


def test_groups_are_kept_up_to_their_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(tmp_path / "a.parquet")
    parquet.write_table(pa.table({"n": range(10_000)}), file, row_group_size=1_000)
    decoded = list[int]()

    class Counted(ParquetReader):
        def decode_group(self, file: str, number: int) -> Any:
            decoded.append(number)
            return super().decode_group(file, number)

    reader = Counted([file], {}, memory=3 * 8_000)
    for index in (0, 1_000, 2_000, 5, 3_000, 6, 1_001, 2_999):
        assert reader.read(file, [index])["n"].tolist() == [index]
    assert decoded == [0, 1, 2, 3, 1, 2]
    decoded.clear()
    reader = Counted([file], {}, memory=0)
    for index in (0, 1, 1_000, 0):
        reader.read(file, [index])
    assert decoded == [0, 1, 0]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_such_file_is_refused_in_words(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{format}"
    path.write_text("n\n1\n")
    with pytest.raises(BadFiles, match=rf"a\.{format} cannot be read as (Parquet|ORC|an Arrow file)"):
        data.open(path)


def test_a_damaged_group_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"n": range(10_000)}), path, row_group_size=5_000, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[10:60] = b"\xff" * 50
    path.write_bytes(content)
    opened = data.open(path)
    assert opened.read([7_000])["n"].tolist() == [7_000]
    with pytest.raises(BadFiles, match=r"a\.parquet, row group 0, cannot be read as Parquet"):
        opened.read([0])


def test_a_stream_of_arrow_is_refused_with_what_to_do(tmp_path: Path) -> None:
    table, path = table_of(range(5)), tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(BadFiles, match="a stream of Arrow has no index: write it as a file"):
        data.open(path)


@pytest.mark.parametrize("format", FORMATS)
def test_files_with_different_columns_are_refused_by_name(format: str, tmp_path: Path) -> None:
    WRITERS[format](pa.table({"n": [1], "x": [1.5]}), tmp_path / f"a.{format}", 1_000)
    WRITERS[format](pa.table({"n": [1], "x": ["y"]}), tmp_path / f"b.{format}", 1_000)
    with pytest.raises(
        BadFiles, match=rf"column 2 is 'x \(float64\)' in .*a\.{format} and 'x \(str\)' in .*b\.{format}"
    ):
        data.open(tmp_path)


@pytest.mark.parametrize("empty", ["a", "c"])
def test_a_file_without_records_needs_no_types(empty: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"n": [1], "t": ["x"]}), tmp_path / "b.parquet")
    parquet.write_table(pa.table({"n": [], "t": []}), tmp_path / f"{empty}.parquet")
    opened = data.open(tmp_path)
    assert (len(opened), opened.columns) == (1, {"n": "int64", "t": "str"})
    parquet.write_table(pa.table({"n": [], "u": []}), tmp_path / f"{empty}.parquet")
    with pytest.raises(BadFiles, match="the files have different columns: column 2 is"):
        data.open(tmp_path)


def test_kinds_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"t": ["a"]}), path)
    with pytest.raises(BadFiles, match=r"column 't' of .* is of kind str, and cannot be read as 'int64'"):
        data.open(path, kinds={"t": "int64"})
    with pytest.raises(BadFiles, match="kinds= names the column 'u'"):
        data.open(path, kinds={"u": "int64"})


def test_a_file_that_changes_is_refused_though_its_group_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"n": [1]}), path)
    opened = data.open(path)
    opened.read([0])
    os.utime(path, (1, 1))
    with pytest.raises(FileChanged, match="was written since it was opened"):
        opened.read([0])


def test_a_truth_without_a_value_is_told_what_reads_it(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"b": pa.array([True, None])}), tmp_path / "a.parquet")
    with pytest.raises(
        BadRecords, match=r"column 'b' has no value \(kinds=\{'b': 'float64'\}, or --kinds=b:float64, reads it"
    ):
        data.open(tmp_path).read([1])
    assert data.open(tmp_path, kinds={"b": "str"}).read([0, 1])["b"] == ["true", None]
    assert str(data.open(tmp_path, kinds={"b": "float64"}).read([0, 1])["b"]) == "[ 1. nan]"


def test_a_group_that_is_written_while_it_is_decoded_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(table_of(range(10)), file)
    reader, decode = ParquetReader([str(file)], {}), ParquetReader.decode_group

    def decode_and_write(self: ParquetReader, name: str, number: int) -> Any:
        os.utime(file, (1, 1))
        return decode(self, name, number)

    monkeypatch.setattr(ParquetReader, "decode_group", decode_and_write)
    with pytest.raises(FileChanged, match="was written since it was opened"):
        reader.read(str(file), [1])


def test_a_process_that_is_spawned_gets_no_decoded_groups(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"n": range(100_000)}), file)
    reader = ParquetReader([str(file)], {})
    reader.read(str(file), [1])
    content = pickle.dumps(reader)
    assert len(content) < 10_000
    assert pickle.loads(content).read(str(file), [7])["n"].tolist() == [7]
