"""What a script gets of files: records by number, shards, bad rows by their share, errors before anything starts."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastic_run import data
from elastic_run.exceptions import BadFiles, BadRecords, BadShardsState
from elastic_run.torch import ElasticIterableDataset, Records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files with the records 0 to 59: 25 of them, none, and 35."""
    for name, numbers in (("b.csv", range(25, 60)), ("a.csv", range(25)), ("ab.csv", range(0))):
        (tmp_path / name).write_text("n,t\n" + "".join(f"{number},t{number}\n" for number in numbers))
    (tmp_path / ".hidden").touch()
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def test_files_are_sorted_by_name_whatever_names_them(folder: Path) -> None:
    wanted = [(str(folder / "a.csv"), 25), (str(folder / "ab.csv"), 0), (str(folder / "b.csv"), 35)]
    ways: list[Any] = [
        folder,
        str(folder / "*.csv"),
        [folder / "b.csv", str(folder / "a*.csv")],
        (str(each) for each in folder.glob("*.csv")),
    ]
    for paths in ways:
        assert list(data.open(paths).files) == wanted


def test_records_are_numbered_through_all_files(folder: Path) -> None:
    numbers = data.open(folder)
    assert (len(numbers), numbers.columns) == (60, {"n": "int64", "t": "str"})
    columns = numbers.read([59, 0, 24, 25, 0, 30])
    assert columns["n"].tolist() == [59, 0, 24, 25, 0, 30]
    assert columns["t"] == ["t59", "t0", "t24", "t25", "t0", "t30"]
    assert numbers.read([])["t"] == []
    assert numbers.read([3], str(folder / "b.csv"))["n"].tolist() == [28]
    assert repr(numbers) == "<RecordFiles: 60 records in 3 files, of n, t>"


def test_a_record_that_is_not_there_is_named(folder: Path) -> None:
    numbers = data.open(folder)
    for indices in ([60], [-1], [0, 60]):
        with pytest.raises(IndexError, match=f"there is no record {indices[-1]}: they are numbered from 0 to 59"):
            numbers.read(indices)
    with pytest.raises(BadFiles, match=r"'c\.csv' is none of the files that were opened"):
        numbers.read([0], "c.csv")


@pytest.mark.parametrize("shuffle", [False, True])
def test_shards_read_their_records_in_their_order(folder: Path, shuffle: bool) -> None:
    numbers, seen = data.open(folder), list[int]()
    for shard in numbers.shards("train", shard_size=10, epochs=2, shuffle=shuffle, commit="ack"):
        first = 25 if shard.file.endswith("b.csv") else 0
        wanted = [first + index for index in shard.indices]
        assert shard.read()["n"].tolist() == wanted
        batches = [shard.read(begin, begin + 4)["n"].tolist() for begin in range(0, len(shard), 4)]
        assert [number for batch in batches for number in batch] == wanted
        assert shard.read(-2)["n"].tolist() == wanted[-2:] and shard.read(3, 1)["n"].tolist() == []
        seen += wanted
        shard.done()
    assert sorted(seen) == sorted([*range(60)] * 2)


def test_a_checkpoint_of_other_files_is_refused(folder: Path) -> None:
    shards = data.open(folder).shards("train", shard_size=10)
    state = shards.state_dict()
    (folder / "c.csv").write_text("n,t\n1,x\n")
    with pytest.raises(BadShardsState, match="its dataset 'train' has other files"):
        data.open([folder / "a.csv", folder / "c.csv", folder / "b.csv"]).shards(
            "train", shard_size=10
        ).load_state_dict({**state, "size": 61})


def bad_file(folder: Path, count: int, bad: Sequence[int]) -> str:
    lines = [f"{'x' if number in bad else ''}{number},t" for number in range(count)]
    (folder / "bad.csv").write_text("\n".join(["n,t", *lines]))
    return str(folder / "bad.csv")


def test_a_bad_row_ends_the_job_with_its_file_line_and_column(tmp_path: Path) -> None:
    file = bad_file(tmp_path, 3000, [2000])
    numbers = data.open(file)
    assert len(numbers.read(range(2000))["n"]) == 2000
    with pytest.raises(BadRecords) as caught:
        numbers.read(range(1990, 2010))
    assert str(caught.value) == (
        f"{file}, line 2002: column 'n' is 'x2000', and not a whole number of 64 bits. Repair the file, or skip such "
        "records: open(..., bad=0.001) lets one in a thousand by"
    )


def test_bad_rows_are_left_out_and_counted_once_up_to_their_share(tmp_path: Path) -> None:
    numbers = data.open(bad_file(tmp_path, 3000, [2000, 2001, 2500, 2600]), bad=0.001)
    for _ in range(2):
        columns = numbers.read([2002, 2001, 2000, 1999])
        assert columns["n"].tolist() == [2002, 1999] and [each.position for each in columns.bad] == [1, 2]
    numbers.read([2500])
    assert numbers.skipped == 3
    with pytest.raises(
        BadRecords, match=r"4 records do not fit the columns, 0\.13% of 3000, and bad=0\.001 lets 0\.10% by"
    ):
        numbers.read([2600])


def test_bad_rows_of_a_shard_are_records_of_it_nevertheless(tmp_path: Path) -> None:
    file = bad_file(tmp_path, 2000, [1003, 1004, 1019])
    for shard in data.open(file, bad=0.01).shards("s", shard_size=20, shuffle=False, commit="ack"):
        if shard.start == 1000:
            assert len(shard) == 20 and len(shard.read()["n"]) == 17
            batches = [shard.read(begin, begin + 4) for begin in range(0, 20, 4)]
            assert [batch["n"].tolist() for batch in batches][:3] == [
                [1000, 1001, 1002],
                [1005, 1006, 1007],
                [*range(1008, 1012)],
            ]
            assert [[each.position for each in batch.bad] for batch in batches] == [[3], [0], [], [], [3]]
        shard.progress(len(shard))
        shard.done()


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no such file": (lambda folder: folder / "none.csv", "none.csv cannot be opened: No such file or directory"),
    "an empty match": (lambda folder: str(folder / "*.orc"), r"no file matches '.*\*\.orc', seen from /"),
    "an empty list": (lambda folder: [], "there is nothing to open: the list of files is empty"),
    "a folder without files": (lambda folder: folder / "inner", "there is no file in the folder .*inner"),
    "a file twice": (lambda folder: [folder / "a.csv", str(folder / "*.csv")], r"a\.csv is named twice"),
    "a file by two names": (
        lambda folder: [folder / "a.csv", f"{folder}/./a.csv"],
        r"/\./a\.csv and .*/a\.csv are one file: its records would be used twice",
    ),
    "a pipe": (lambda folder: folder / "pipe.csv", r"pipe\.csv is no regular file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_opened_is_refused_in_words(name: str, folder: Path) -> None:
    (folder / "inner").mkdir()
    if name == "a pipe":
        os.mkfifo(folder / "pipe.csv")
    paths, why = REFUSED[name]
    with pytest.raises(BadFiles, match=why):
        data.open(paths(folder))


@pytest.mark.parametrize(("format", "name", "text"), [("tsv", "a.txt", "n\tt\n1\tx\n"), ("csv", "a.tsv", "n,t\n1,x\n")])
def test_a_format_that_is_named_says_what_divides_fields(format: str, name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert data.open(tmp_path / name, format=format).columns == {"n": "int64", "t": "str"}


@pytest.mark.parametrize(("bad", "error"), [("skip", TypeError), (True, TypeError), (1.0, BadFiles), (-0.1, BadFiles)])
def test_a_policy_that_makes_no_sense_is_refused(bad: Any, error: type[Exception], folder: Path) -> None:
    with pytest.raises(error, match='must be "fail", or a share of the records'):
        data.open(folder, bad=bad)


class Squares:
    """A format of others, in the least that it takes: records that are made up."""

    columns: Mapping[str, str] = {"square": "int64"}

    def __init__(self, files: Sequence[str], kinds: Mapping[str, str], *, count: int = 5) -> None:
        self.files, self.count = files, count

    def size(self, file: str) -> int:
        return self.count

    def read(self, file: str, indices: Sequence[int]) -> Any:
        return {"square": [index * index for index in indices]}

    def place(self, file: str, index: int) -> str:
        return f"{file}, record {index}"


def test_a_class_of_a_package_is_a_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_run.adapters.readers.opened.reader_class", lambda name, file: Squares)
    squares = data.open(["squares://b", "squares://a"], count=3)
    assert squares.files == (("squares://a", 3), ("squares://b", 3))
    assert squares.read([5, 0, 2]) == {"square": [4, 0, 4]}
    with pytest.raises(TypeError, match="delimiter"):
        data.open("squares://a", delimiter=";")


def test_records_are_read_in_the_processes_of_a_loader(folder: Path) -> None:
    numbers = data.open(folder)

    def read(records: Records) -> Iterator[int]:
        yield from numbers.read(records.indices, records.file)["n"].tolist()

    loader = ElasticIterableDataset(numbers.shards("l", shard_size=10), read).loader(batch_size=7, num_workers=2)
    seen = list[int]()
    for batch in loader:
        seen += batch.tolist()
        loader.commit()
    assert sorted(seen) == [*range(60)]


def test_nothing_heavy_is_loaded_before_files_are_opened_nor_pyarrow_for_csv(folder: Path) -> None:
    script = (
        "import sys, elastic_run.data\n"
        "assert not {'numpy', 'numba', 'pyarrow'} & sys.modules.keys()\n"
        f"elastic_run.data.open({str(folder)!r}).read([1])\n"
        "assert 'numba' in sys.modules and 'pyarrow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
