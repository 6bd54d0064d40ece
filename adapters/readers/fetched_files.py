"""Files at addresses, as of an object store: copied once to this node, and read there.

fsspec lists and fetches them: `s3://`, `gs://`, `https://` and whatever else a package of it knows. A copy is bound to
the address, the size and what the store says of the file's version, and is complete or absent. All workers of a node,
and later jobs, use the same one: whoever comes while it is made waits for that.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from ..client.channel import say_line
from .contract import Columns, RecordReader
from .errors import BadFiles, ReadersError
from .found_files import check_named_once
from .kept_indexes import cache_folder

FETCHES = 4
"""Files that one process copies at the same time."""

VERSIONS = (
    "ETag",
    "etag",
    "checksum",
    "md5Hash",
    "content_md5",
    "generation",
    "mtime",
    "LastModified",
    "last_modified",
)
"""What stores call that which changes with a file's content."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file at an address.

    Attributes:
        address: as a script names it, without options.
        path: the same, in the words of its file system.
        size: bytes.
        version: what changes with its content, as far as the store tells.
    """

    address: str
    path: str
    size: int
    version: str

    @property
    def digest(self) -> str:
        """Names its copy."""
        known = f"{self.address}\n{self.size}\n{self.version}"
        return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()


def is_fetched(address: str) -> bool:
    """Whether fsspec knows the scheme of an address."""
    try:
        return address.partition("://")[0] in import_module("fsspec").available_protocols()
    except ModuleNotFoundError:
        return False


def find_remote_files(given: Sequence[str]) -> tuple[Any, list[RemoteFile]]:
    """The file system of the addresses, which are of one scheme, and the files of each: sorted by address.

    An address with `*`, `?` or `[` is a pattern; of a folder it is the files in it whose names do not begin with a dot
    or an underline. Raises BadFiles.
    """
    fsspec = import_module("fsspec")
    if other := next((each for each in given if _scheme_of(each) != _scheme_of(given[0])), None):
        raise BadFiles(f"{given[0]} and {other} cannot be opened together: give addresses of one scheme")
    with _explained(given[0]):
        system, _ = fsspec.core.url_to_fs(given[0])
    found: list[RemoteFile] = []
    for address in given:
        with _explained(address):
            path = system._strip_protocol(address)  # the only way, of every file system of fsspec
            paths = _paths_of(system, address, path)
            found += [_remote_file(system, address, each) for each in paths]
    found.sort(key=lambda file: file.address)
    check_named_once([file.address for file in found])
    return system, found


def fetch_files(given: Sequence[str], folder: Path | None) -> dict[str, str]:
    """Copies the files of addresses, patterns or folders to this node: the path of each copy by address, sorted.

    Raises BadFiles.
    """
    folder = folder or cache_folder() / "files"
    system, files = find_remote_files(given)
    copies = {file: folder / file.digest / PurePosixPath(file.path).name for file in files}
    missing = sum(file.size for file, copy in copies.items() if not _is_whole(copy, file))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise BadFiles(
            f"copies cannot be kept in {folder}: {error.strerror}. Name another folder with cache="
        ) from None
    if missing > free:
        raise BadFiles(
            f"{missing >> 20} MiB are to be copied to this node, and {folder} has {free >> 20} MiB left: name a folder "
            "with more room by cache=, or remove copies there that no job needs"
        )
    with ThreadPoolExecutor(FETCHES, "elastic-run-fetch") as pool:
        list(pool.map(partial(_fetch, system), copies, copies.values()))
    return {file.address: str(copy) for file, copy in copies.items()}


class FetchedReader:
    """Reads the copies of files at addresses, under the names of those; a `RecordReader` around another one.

    Args:
        files, kinds, options: see `RecordReader`.
        copies: the path of each copy, by address.
        reader: the class that reads the copies.

    Raises what that class raises.
    """

    def __init__(
        self,
        files: Sequence[str],
        kinds: Mapping[str, str],
        *,
        copies: Mapping[str, str],
        reader: type[RecordReader],
        **options: Any,  # Any: of the format
    ) -> None:
        self._copies = copies
        with self._named():
            self._reader = reader([copies[file] for file in files], kinds, **options)

    @property
    def columns(self) -> Mapping[str, str]:
        """See `RecordReader`."""
        return self._reader.columns

    def size(self, file: str) -> int:
        """See `RecordReader`."""
        return self._reader.size(self._copies[file])

    def read(self, file: str, indices: Sequence[int]) -> Columns:
        """See `RecordReader`."""
        with self._named():
            return self._reader.read(self._copies[file], indices)

    def place(self, file: str, index: int) -> str:
        """See `RecordReader`."""
        return self._reader.place(self._copies[file], index).replace(self._copies[file], file)

    @contextmanager
    def _named(self) -> Generator[None]:
        """Errors name addresses, not copies."""
        try:
            yield
        except ReadersError as error:
            words = str(error)
            for address, copy in self._copies.items():
                words = words.replace(copy, address)
            raise type(error)(words) from None


def _scheme_of(address: str) -> str:
    """As its file system has it."""
    scheme, _, _ = address.partition("://")
    return "http" if scheme == "https" else scheme


def _paths_of(system: Any, address: str, path: str) -> list[str]:
    """In the words of the file system."""
    if any(sign in path for sign in ("*[" if path.startswith("http") else "*?[")):  # there `?` begins a query
        if found := [each for each, info in system.glob(path, detail=True).items() if info["type"] == "file"]:
            return found
        raise BadFiles(f"no file matches {address!r}: the job needs at least one")
    if not address.endswith("/") and system.info(path)["type"] != "directory":
        return [path]
    listed = [each["name"] for each in system.ls(path, detail=True) if each["type"] == "file"]
    if found := [each for each in listed if not PurePosixPath(each).name.startswith((".", "_"))]:
        return found
    raise BadFiles(f"there is no file in the folder {address}; folders within it are not looked into")


def _remote_file(system: Any, address: str, path: str) -> RemoteFile:
    info: Mapping[str, Any] = system.info(path)  # Any: of the store
    if info["type"] != "file" or not isinstance(info.get("size"), int):
        raise BadFiles(f"{system.unstrip_protocol(path)} has no size, and its records cannot be numbered")
    version = next((str(info[key]) for key in VERSIONS if info.get(key)), "")
    return RemoteFile(str(system.unstrip_protocol(path)), path, info["size"], version)


def _is_whole(copy: Path, file: RemoteFile) -> bool:
    """A machine that lost its power may have kept a part."""
    return copy.exists() and copy.stat().st_size == file.size


def _fetch(system: Any, file: RemoteFile, copy: Path) -> None:
    """Copies a file unless that is done. Raises BadFiles."""
    if _is_whole(copy, file):
        return
    with _explained(file.address):
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        with _only_one(copy.parent, file.address):
            if _is_whole(copy, file):  # meanwhile
                return
            for left in copy.parent.glob(".part-*"):  # of a process that was killed
                left.unlink(missing_ok=True)
            descriptor, part = tempfile.mkstemp(prefix=".part-", dir=copy.parent)
            os.close(descriptor)
            try:
                system.get_file(file.path, part)
                if (size := Path(part).stat().st_size) != file.size:
                    raise BadFiles(
                        f"{file.address} gave {size} bytes of {file.size}: it changed, or the copy was cut off"
                    )
                Path(part).replace(copy)
            finally:
                Path(part).unlink(missing_ok=True)


@contextmanager
def _only_one(folder: Path, address: str) -> Generator[None]:
    """One process of the node is in there; its death lets the next one in."""
    with (folder / ".lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say_line(f"waiting for another process of this node, which copies {address} to {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _explained(address: str) -> Generator[None]:
    """What a file system raises becomes an error of ours."""
    try:
        yield
    except BadFiles:
        raise
    except ImportError as error:
        raise BadFiles(f"{address} cannot be opened: {error}") from None
    except Exception as error:  # of whatever package reads that scheme
        # fsspec takes whatever went wrong with a web server for a file that is not there.
        why = error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ else error
        missing = isinstance(why, FileNotFoundError) or getattr(why, "status", None) in (404, 410)
        told = "it is not there" if missing else f"{type(why).__name__}: {why}"
        raise BadFiles(f"{address} cannot be opened: {told}") from error
