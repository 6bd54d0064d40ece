"""The index of a CSV file: the same records as the loop that looks at each byte, whatever was kept before."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.readers import csv_index, kept_indexes
from elastic_run.adapters.readers.csv_index import CsvIndex, Indexed, indexes_of, line_of
from elastic_run.adapters.readers.csv_masks import BLOCK, find_records_fast, find_records_quickly
from elastic_run.adapters.readers.csv_split import LINE_START, QUOTED
from elastic_run.adapters.readers.errors import BadFiles, FileChanged
from elastic_run.adapters.readers.found_files import known

COMMA = ord(",")


def index_of(path: Path, begin: int = 0) -> CsvIndex:
    [found] = indexes_of([Indexed(known(str(path)), begin, COMMA)])
    return found


def starts_of(data: bytes) -> list[int]:
    starts = np.empty(len(data) + 1, np.int64)
    count, mode = find_records_fast(np.frombuffer(data, np.uint8), len(data), COMMA, LINE_START, starts)
    assert mode != QUOTED
    return starts[:count].tolist()


def kept(path: Path) -> Path:
    return path.with_name(f".{path.name}.elastic-run-index")


PIECES = st.sampled_from(
    [
        "1,2\n",
        "\n",
        "\r\n",
        "1,x\r\n",
        '"a\nb",2\n',
        '"a ""quoted"" word","\r\n\n"\r\n',
        "x" * 63 + "\n",
        '"' + "y,\n" * 30 + '"\n',
    ]
)
STRAY = st.sampled_from(['5" disk,1\n', 'a"b"c,2\n', ' "x\n', '"a"b"c"\n'])


@settings(max_examples=60)
@given(st.lists(PIECES, max_size=30), st.integers(0, 70), st.booleans())
def test_words_of_64_bytes_find_what_the_loop_finds(pieces: list[str], before: int, end: bool) -> None:
    text = ("z" * before + "\n" + "".join(pieces)).encode() + (b"" if end else b"tail")
    data = np.zeros(64 + len(text) + 64, np.uint8)
    data[64:-64] = np.frombuffer(text, np.uint8)
    starts = np.empty(len(text) + 1, np.int64)
    count = find_records_quickly(data, 64, len(text), np.uint8(COMMA), starts)
    assert starts[:count].tolist() == starts_of(text)


@given(st.lists(PIECES, max_size=5), STRAY, st.lists(PIECES, max_size=5))
def test_words_of_64_bytes_see_a_quote_where_none_can_stand(before: list[str], stray: str, after: list[str]) -> None:
    text = "".join([*before, stray, *after]).encode()
    data = np.zeros(64 + len(text) + 64, np.uint8)
    data[64:-64] = np.frombuffer(text, np.uint8)
    starts = np.empty(len(text) + 1, np.int64)
    assert find_records_quickly(data, 64, len(text), np.uint8(COMMA), starts) == -1


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    index, starts = index_of(path), starts_of(data)
    assert index.size == len(starts)
    for number, begin in zip(index.numbers.tolist(), index.begins.tolist(), strict=True):
        # What follows the place is that record, or empty lines before it.
        assert data[begin : [*starts, len(data)][number]].strip(b"\r\n") == b""
        assert begin == 0 or data[begin - 1 : begin] == b"\n"
    assert index.numbers[0] == index.begins[0] == 0
    assert len(index.numbers) <= len(data) // BLOCK + 2


def drawn(pieces: list[str], size: int, seed: int) -> bytes:
    generator = np.random.default_rng(seed)
    return "".join(pieces[number] for number in generator.integers(0, len(pieces), size)).encode()


PLAIN = ["1,2\n", "\n", "\r\n", "1,x\r\n", "x" * 63 + "\n"]
QUOTES = [*PLAIN, '"a\nb",2\n', '"a ""quoted"" word","\r\n\n"\r\n', '"' + "y,\n" * 20_000 + '"\n']


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pieces", [PLAIN, QUOTES, [*QUOTES, '5" disk,1\n']])
def test_an_index_has_the_records_of_the_loop(
    pieces: list[str], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_index, "PIECE", 3 * BLOCK)
    monkeypatch.setattr(csv_index, "BUFFER", 2 * BLOCK)
    for end in (b"", b"no end", b"\r"):
        check(tmp_path / "a.csv", drawn(pieces, 2_000, seed) + end)


def test_a_quote_where_none_can_stand_is_seen_in_a_block_that_begins_within_quotes(tmp_path: Path) -> None:
    long = b'"' + b"y\n" * BLOCK + b'",0\n'  # its end is in the third block
    check(tmp_path / "a.csv", long + b'5" disk,1\n6" disk,2\n' + b"1,2\n" * BLOCK)


def test_a_quoted_field_that_is_never_closed_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'1,2\n"a\nb",2\n\n3,"4\n' + b"5,6\n" * 5000)
    with pytest.raises(
        BadFiles, match=r"a\.csv, line 5: a quoted field in the record that begins here is never closed"
    ):
        index_of(path)


def test_an_index_is_kept_for_this_user_alone_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1,2\n" * 10_000)
    made = index_of(path)
    assert kept(path).stat().st_mode & 0o777 == 0o600
    written = kept(path).stat()
    again = index_of(path)
    assert (again.size, again.begins.tolist()) == (made.size, made.begins.tolist())
    assert kept(path).stat() == written


def test_what_another_worker_has_indexed_meanwhile_is_not_indexed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}.csv" for number in range(9)]
    for path in paths:
        path.write_bytes(b"1,2\n" * 10)
        index_of(path)
    others = {kept(path): kept(path).read_bytes() for path in paths}
    for each in others:
        each.unlink()
    counted, count = list[int](), csv_index.count_blocks

    def count_beside_another(*arguments: Any) -> None:
        count(*arguments)
        counted.append(1)
        for each, content in others.items():
            each.write_bytes(content)

    monkeypatch.setattr(csv_index, "count_blocks", count_beside_another)
    monkeypatch.setattr(csv_index, "BATCH", 1)
    found = indexes_of([Indexed(known(str(path)), 0, COMMA) for path in paths])
    assert [index.size for index in found] == [10] * 9 and len(counted) == 1


@pytest.mark.parametrize(
    "change", ["cut", "byte", "size", "other", "empty", "words", "negative", "deep", "pipe", "link"]
)
def test_an_index_that_is_damaged_or_of_another_file_is_made_anew(change: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1,2\n" * 10_000)
    index_of(path)
    content = kept(path).read_bytes()
    head, _, body = content.partition(b"\n")
    match change:
        case "cut":
            kept(path).write_bytes(content[:-16])
        case "byte":
            kept(path).write_bytes(content[:-9] + bytes([content[-9] ^ 4]) + content[-8:])
        case "size":
            kept(path).write_bytes(json.dumps({**json.loads(head), "records": 20_000}).encode() + b"\n" + body)
        case "other":
            path.write_bytes(b"1,2\n" * 9_000)
        case "empty":
            kept(path).write_bytes(b"")
        case "words":
            kept(path).write_bytes(b"[1]\n")
        case "negative":
            kept(path).write_bytes(json.dumps({**json.loads(head), "records": -1}).encode() + b"\n" + body)
        case "deep":
            kept(path).write_bytes(b"[" * 1_000_000 + b"\n")
        case "pipe":
            kept(path).unlink()
            os.mkfifo(kept(path))
        case _:
            kept(path).unlink()
            kept(path).symlink_to("/dev/zero")
    assert index_of(path).size == (9_000 if change == "other" else 10_000)


def test_an_index_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1,2\n" * 100)
    index_of(path)
    before = kept(path).stat()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    index_of(path)
    assert kept(path).stat().st_ino != before.st_ino


def test_an_index_is_kept_in_the_users_cache_where_the_folder_of_the_data_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = tmp_path / "data" / "a.csv", tmp_path / "cache"
    path.parent.mkdir()
    path.write_bytes(b"1,2\n" * 100)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    made = kept_indexes.tempfile.mkstemp

    def refused(*, dir: Path, prefix: str) -> tuple[int, str]:  # root may write everywhere
        if dir == path.parent:
            raise PermissionError
        return made(dir=dir, prefix=prefix)

    monkeypatch.setattr(kept_indexes.tempfile, "mkstemp", refused)
    index_of(path)
    assert not kept(path).exists()
    [written] = (cache / "elastic-run" / "indexes").iterdir()
    before = written.stat()
    assert before.st_mode & 0o777 == 0o600
    assert index_of(path).size == 100
    assert written.stat() == before


def test_a_file_that_is_written_while_it_is_indexed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1,2\n" * 100)
    wanted = Indexed(known(str(path)), 0, COMMA)
    path.write_bytes(b"1,2\n" * 200)
    with pytest.raises(FileChanged, match=r"a\.csv has another size since it was opened"):
        indexes_of([wanted])


def test_the_line_of_a_byte_is_counted_from_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1,2\n" * 300_000)
    assert [line_of(path, begin) for begin in (0, 4, 1_199_996)] == [1, 2, 300_000]
