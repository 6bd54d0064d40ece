"""Files at addresses, of a real HTTP server: copied once to a node, whole or not at all, named as the script does."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

import pytest

from elastic_run import data
from elastic_run.exceptions import BadFiles, BadRecords

ROWS = 400


class Shelf(ThreadingHTTPServer):
    """Serves the files of a folder.

    Attributes:
        gets: the paths of files that were asked for as a whole.
        cut: bytes that are left out at the end of each file.
    """

    gets: list[str]
    cut = 0


class Counted(SimpleHTTPRequestHandler):
    """Counts."""

    server: Shelf  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        if not self.path.endswith("/"):
            self.server.gets.append(self.path)
        super().do_GET()

    def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        body = source.read()
        outputfile.write(body[: len(body) - self.server.cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    """Two files of 400 records in all, b before a in time."""
    folder = tmp_path / "served"
    folder.mkdir()
    for name, numbers in (("b.csv", range(300, ROWS)), ("a.csv", range(300))):
        (folder / name).write_text("n,t\n" + "".join(f"{number},t{number}\n" for number in numbers))
    (folder / "_SUCCESS").touch()
    with Shelf(("127.0.0.1", 0), partial(Counted, directory=str(folder))) as server:
        server.gets = []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _address(shelf: Shelf, name: str) -> str:
    return f"http://127.0.0.1:{shelf.server_address[1]}/{name}"


@pytest.mark.parametrize("pattern", ["*.csv", ""])
def test_files_at_addresses_are_copied_once_and_keep_their_names(shelf: Shelf, tmp_path: Path, pattern: str) -> None:
    for _ in range(2):
        numbers = data.open(_address(shelf, pattern), cache=tmp_path / "copies")
        assert numbers.files == ((_address(shelf, "a.csv"), 300), (_address(shelf, "b.csv"), 100))
        assert numbers.read([399, 0, 300])["n"].tolist() == [399, 0, 300]
        assert numbers.read([1], _address(shelf, "b.csv"))["t"] == ["t301"]
    assert sorted(shelf.gets) == ["/a.csv", "/b.csv"]


def test_processes_of_a_node_copy_a_file_once(shelf: Shelf, tmp_path: Path) -> None:
    opens = (
        "import sys; from elastic_run import data\n"
        f"print(len(data.open({_address(shelf, '*.csv')!r}, cache={str(tmp_path / 'copies')!r})))"
    )
    both = [subprocess.Popen([sys.executable, "-c", opens], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate(timeout=100)[0] for one in both] == [f"{ROWS}\n"] * 2
    assert sorted(shelf.gets) == ["/a.csv", "/b.csv"]


def test_another_version_of_a_file_is_another_copy(shelf: Shelf, tmp_path: Path) -> None:
    assert len(data.open(_address(shelf, "b.csv"), cache=tmp_path / "copies")) == 100
    with (tmp_path / "served" / "b.csv").open("a") as file:
        file.write("1000,t1000\n")
    assert data.open(_address(shelf, "b.csv"), cache=tmp_path / "copies").read([100])["n"].tolist() == [1000]


def test_a_copy_that_was_cut_off_is_not_read_nor_kept(shelf: Shelf, tmp_path: Path) -> None:
    shelf.cut = 10
    with pytest.raises(BadFiles, match=r"http://\S+/a\.csv cannot be opened"):
        data.open(_address(shelf, "a.csv"), cache=tmp_path / "copies")
    assert not [file for file in (tmp_path / "copies").rglob("*") if file.is_file() and file.name != ".lock"]
    shelf.cut = 0
    assert len(data.open(_address(shelf, "a.csv"), cache=tmp_path / "copies")) == 300


def test_what_a_killed_process_left_of_a_copy_is_removed(shelf: Shelf, tmp_path: Path) -> None:
    def leftovers() -> list[Path]:
        return [*(tmp_path / "copies").rglob(".part-*")]

    data.open(_address(shelf, "a.csv"), cache=tmp_path / "copies")
    [copy] = (tmp_path / "copies").rglob("a.csv")
    copy.rename(copy.with_name(".part-killed"))
    data.open(_address(shelf, "a.csv"), cache=tmp_path / "copies")
    assert not leftovers()


def test_a_server_that_does_not_answer_is_no_missing_file(shelf: Shelf, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/a.csv"
        with pytest.raises(BadFiles, match=r"cannot be opened: .*Cannot connect"):
            data.open(address, cache=tmp_path)
    with pytest.raises(BadFiles, match="cannot be opened: it is not there"):
        data.open(_address(shelf, "none.csv"), cache=tmp_path)


@pytest.mark.parametrize("other", ["memory://b.csv", "/data/b.csv"])
def test_addresses_of_two_schemes_are_refused(shelf: Shelf, tmp_path: Path, other: str) -> None:
    with pytest.raises(BadFiles, match="cannot be opened together: give addresses"):
        data.open([_address(shelf, "a.csv"), other], cache=tmp_path)


def test_a_copy_of_which_a_part_is_left_is_made_again(shelf: Shelf, tmp_path: Path) -> None:
    data.open(_address(shelf, "a.csv"), cache=tmp_path / "copies")
    [copy] = (tmp_path / "copies").rglob("a.csv")
    os.truncate(copy, 100)
    assert len(data.open(_address(shelf, "a.csv"), cache=tmp_path / "copies")) == 300


def test_errors_name_addresses(shelf: Shelf, tmp_path: Path) -> None:
    cache = tmp_path / "copies"
    (tmp_path / "served" / "c.csv").write_text("n\n1\n" + "2\n" * 1100 + "x\n")
    (tmp_path / "served" / "d.csv").write_text("m\n1\n")
    with pytest.raises(BadRecords, match=rf"{_address(shelf, 'c.csv')}, line 1103"):
        data.open(_address(shelf, "c.csv"), cache=cache).read([1101])
    with pytest.raises(BadFiles, match=rf"'m' in {_address(shelf, 'd.csv')}"):
        data.open([_address(shelf, name) for name in ("c.csv", "d.csv")], cache=cache)
    for name, said in (("e.csv", "it is not there"), ("*.orc", "no file matches")):
        with pytest.raises(BadFiles, match=said):
            data.open(_address(shelf, name), cache=cache)
    with pytest.raises(BadFiles, match="no reader knows the format 'nowhere'"):
        data.open("nowhere://a.csv", cache=cache)
    with pytest.raises(BadFiles, match="is named twice"):
        data.open([_address(shelf, "b.csv")] * 2, cache=cache)


def test_more_than_the_disk_has_is_refused_before_anything_is_copied(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100}))
    with pytest.raises(BadFiles, match="MiB left: name a folder with more room by cache="):
        data.open(_address(shelf, "a.csv"), cache=tmp_path / "copies")
    assert shelf.gets == []
