"""Files whose lines are records: any cut of their bytes into ranges gives each line once."""

from itertools import pairwise
from pathlib import Path

import pytest

from elastic_run.adapters.streams import line_files
from elastic_run.adapters.streams.contract import BadSource, OffsetsGone
from elastic_run.adapters.streams.line_files import LineFiles

CONTENT = b"one\n\ntwo and\n" + b"x" * 9 + b"\n\n"


@pytest.mark.parametrize("cuts", [(), (1,), (3,), (4,), (4, 5), (0, 2, 9, 14), tuple(range(len(CONTENT)))])
def test_each_line_is_in_one_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...]) -> None:
    monkeypatch.setattr(line_files, "BLOCK", 2)
    (tmp_path / "a.txt").write_bytes(CONTENT + b"not whole")
    source = LineFiles(tmp_path)
    assert source.partitions() == {"a.txt": (0, len(CONTENT))}
    found: list[bytes] = []
    for first, stop in pairwise((0, *cuts, len(CONTENT))):
        records, after = source.read("a.txt", first, stop)
        assert after == stop
        assert all(first <= record.offset < stop for record in records)
        found += [record.value for record in records]
    assert found == CONTENT.split(b"\n")[:-1]


def test_files_grow_and_arrive_and_may_not_go(tmp_path: Path) -> None:
    source = LineFiles(tmp_path, "**/*.log")
    assert source.partitions() == {}
    path = tmp_path / "day" / "1.log"
    path.parent.mkdir()
    path.write_bytes(b"a\nb")
    (tmp_path / ".2.log").write_bytes(b"not yet\n")
    assert source.partitions() == {"day/1.log": (0, 2)}
    path.write_bytes(b"a\nb\nc\n")
    assert source.partitions() == {"day/1.log": (0, 6)}
    path.write_bytes(b"a\n")
    with pytest.raises(OffsetsGone, match="has 2 bytes, and had 6"):
        source.read("day/1.log", 2, 6)
    with pytest.raises(BadSource, match=r"'day/1\.log' has 2 bytes, and had 6: files may only grow"):
        source.partitions()
    path.unlink()
    with pytest.raises(OffsetsGone, match="is not in"):
        source.read("day/1.log", 2, 6)
    assert source.partitions() == {}
    with pytest.raises(BadSource, match="pattern="):
        LineFiles(tmp_path, "/x")
