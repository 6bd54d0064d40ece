"""What is opened by its name is a regular file of bounded size, and nothing waits for a pipe."""

import os
from pathlib import Path

import pytest

from elastic_run.rendezvous.host.named_files import open_to_write, planted, read_named, write_named


def test_a_pipe_a_device_and_a_folder_are_not_read_and_a_long_file_not_either(tmp_path: Path) -> None:
    (pipe := tmp_path / "pipe", os.mkfifo(tmp_path / "pipe"))
    (zero := tmp_path / "zero").symlink_to("/dev/zero")
    for path in (pipe, zero, tmp_path):
        with pytest.raises(OSError, match="it is no regular file"):
            read_named(path)
    (file := tmp_path / "file").write_bytes(b"abc")
    assert read_named(file, 3) == b"abc"
    with pytest.raises(OSError, match="it has more than 0 MiB"):
        read_named(file, 2)
    os.truncate(file, 1 << 40)
    with pytest.raises(OSError, match="it has more than 256 MiB"):
        read_named(file)


def test_what_the_shell_hands_over_is_read_also_where_it_is_a_pipe_and_only_so_far() -> None:
    for most, data in ((100, b"nnodes = 2\n"), (10, b"x" * 11)):
        reads, writes = os.pipe()
        os.write(writes, data)
        os.close(writes)
        try:
            if len(data) <= most:
                assert read_named(Path(f"/dev/fd/{reads}"), most) == data
            else:
                with pytest.raises(OSError, match="it has more than"):
                    read_named(Path(f"/proc/self/fd/{reads}"), most)
        finally:
            os.close(reads)


def test_a_file_is_written_also_through_an_own_link_and_to_what_the_shell_hands_over(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_named(tmp_path / "link", "longer")
    write_named(tmp_path / "link", "text")
    assert (tmp_path / "file").read_text() == "text"
    with pytest.raises(OSError, match="symbolic links"):
        open_to_write(tmp_path / "link", private=True)
    with pytest.raises(OSError, match="No such device or address"):
        (os.mkfifo(tmp_path / "pipe"), write_named(tmp_path / "pipe", "nobody reads"))
    write_named(Path("/dev/null"), "text")
    reads, writes = os.pipe()
    write_named(Path(f"/dev/fd/{writes}"), "text")
    assert os.read(reads, 10) == b"text"
    os.close(reads)
    os.close(writes)


def test_what_leads_in_a_circle_or_nowhere_is_not_planted(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert not planted(tmp_path / "circle" / "file") and not planted(tmp_path / "missing" / "file")
    assert not planted(Path("/dev/stdout")) and not planted(Path("/dev/fd/1")) and not planted(Path("/"))
