"""Tar files and folders of images as records."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run import data
from elastic_run.exceptions import BadFiles, BadRecords, FileChanged

LONG = "folder/" * 30


def write_tar(path: Path, members: Mapping[str, bytes], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_members_of_one_name_are_a_record(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "b.tar",
        {f"{LONG}0001.jpg": b"\xff\xd8b", f"{LONG}0001.cls": b"7\n", "README": b"no record", ".x.cls": b"1"},
    )
    write_tar(
        tmp_path / "a.tar",
        {"ü/1.v2.JPG": b"", "ü/1.cls": b"-3", "2.cls": b"0", "2.v2.jpg": b"x" * 3000, "._2.cls": b"Mac"},
        tarfile.GNU_FORMAT,
    )
    with pytest.raises(BadFiles, match=r"column 2 is 'v2.jpg' in .*a\.tar and 'jpg' in .*b\.tar"):
        data.open(str(tmp_path / "*.tar"))
    for _ in range(2):  # the second time the index is there
        first, second = (data.open(str(tmp_path / name)) for name in ("a.tar", "b.tar"))
        assert first.columns == {"__key__": "str", "cls": "int64", "v2.jpg": "bytes"}
        found = first.read([1, 0, 1])
        assert found["__key__"] == ["2", "ü/1", "2"] and found["v2.jpg"] == [b"x" * 3000, b"", b"x" * 3000]
        assert found["cls"].tolist() == [0, -3, 0] and found["cls"].dtype == np.int64
        assert second.read([0]) == {"__key__": [f"{LONG}0001"], "cls": [7], "jpg": [b"\xff\xd8b"]}
        assert (tmp_path / ".a.tar.elastic-run-index").exists()


def test_what_does_not_fit_is_a_bad_row_with_its_name(tmp_path: Path) -> None:
    members = {"a.cls": b"x", "a.txt": b"ok", "b.cls": b"1", "b.txt": b"\xff", "c.txt": b"t", "d.cls": b"2"}
    opened = data.open(write_tar(tmp_path / "a.tar", members), bad=0.9)
    found = opened.read(range(4))
    assert found["__key__"] == ["d"] and found["cls"].tolist() == [2] and found["txt"] == [None]
    assert [each.why.partition(":")[0] for each in found.bad] == [
        "the member 'cls' is no int64",
        "the member 'txt' is no str",
        "there is no member 'cls' (kinds={'cls'",
    ]
    kinds = {"cls": "float64", "txt": "bytes"}
    whole = data.open(tmp_path / "a.tar", kinds=kinds).read([1, 2, 3])
    assert np.array_equal(whole["cls"], [1, np.nan, 2], equal_nan=True) and whole["txt"] == [b"\xff", b"t", None]
    with pytest.raises(BadRecords, match=r"a\.tar, record 0 \('a'\): the member 'cls' is no int64"):
        data.open(tmp_path / "a.tar").read([0])


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, 6 * 512 - 1), cut=st.booleans())
def test_a_damaged_file_is_refused_or_has_all_of_its_records(
    tmp_path_factory: pytest.TempPathFactory, at: int, cut: bool
) -> None:
    path = write_tar(tmp_path_factory.mktemp("tar") / "a.tar", {"a.x": b"1" * 600, "b.x": b"2" * 600, "c.x": b"3"})
    content = bytearray(path.read_bytes())
    if cut:
        del content[at + 1 :]
    else:
        content[at] ^= 0x21
    path.write_bytes(content)
    try:
        opened = data.open(path)
    except BadFiles:
        return
    # A byte of the data may change, and so may one of a field that nobody reads; a mark of the end is one block long.
    assert len(opened) == 3


def test_a_tar_file_that_changes_or_makes_no_sense_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"a.x": b"1"})
    opened = data.open(path)
    write_tar(path, {"a.x": b"1", "b.x": b"2"})
    with pytest.raises(FileChanged):
        opened.read([0])
    with pytest.raises(BadFiles, match=r"two members a\.x"):
        data.open(write_tar(tmp_path / "b.tar", {"a.x": b"1", "a.X": b"2"}))
    with pytest.raises(BadFiles, match="there is no record"):
        data.open(write_tar(tmp_path / "c.tar", {}))
    twice = tmp_path / "twice.tar"
    twice.write_bytes(path.read_bytes() * 2)
    with pytest.raises(BadFiles, match="goes on after its end"):
        data.open(twice)
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        for name, kind in (("a.x", tarfile.REGTYPE), ("b.x", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.x"
            archive.addfile(info, io.BytesIO())
    with pytest.raises(BadFiles, match=r"a link in place of the member 'b\.x'"):
        data.open(tmp_path / "link.tar")
    (tmp_path / "d.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(BadFiles, match="no whole tar file"):
        data.open(tmp_path / "d.tar")
    with pytest.raises(BadFiles, match="the kind 'image'"):
        data.open(path, kinds={"x": "image"})


def test_images_are_records_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("dog/2.PNG", "dog/10.jpg", "cat/deep/1.jpeg", "1.webp", "cat/notes.txt", "_old/1.jpg", "dog/.2.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "cat" / "loop").symlink_to(tmp_path)
    (tmp_path / "cat" / "none").mkdir()
    opened = data.open(f"images://{tmp_path}")
    found = opened.read(range(len(opened)))
    assert found["name"] == ["1.webp", "cat/deep/1.jpeg", "dog/10.jpg", "dog/2.PNG"]
    assert found["label"] == [None, "cat", "dog", "dog"]
    assert found["image"] == [name.encode() for name in found["name"]]
    with pytest.raises(BadFiles, match="is named twice"):
        data.open([f"images://{tmp_path}"] * 2)
    (tmp_path / "1.webp").unlink()
    with pytest.raises(FileChanged, match=r"1\.webp cannot be read any more"):
        opened.read([0])
    with pytest.raises(BadFiles, match="there is no image"):
        data.open(f"images://{tmp_path / 'cat' / 'loop' / 'cat' / 'none'}")
