"""From what a script names to files in the order of the data, and whether a file is still the one that was opened."""

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.host.named_files import reason
from .errors import BadFiles, FileChanged

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A file, a folder or a pattern, or several of them."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as it was when it was opened: what changes with its content, as far as the system tells.

    Attributes:
        path: of the file.
        size: bytes.
        mtime: nanoseconds since 1970.
        inode: its number.
    """

    path: Path
    size: int
    mtime: int
    inode: int

    def check_unchanged(self) -> None:
        """Raises FileChanged where the file is not the one any more that was opened."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            raise FileChanged(
                f"{self.path} is not there any more: start the job again with the files that are"
            ) from None
        if (now.st_size, now.st_mtime_ns, now.st_ino) != (self.size, self.mtime, self.inode):
            what = "has another size" if now.st_size != self.size else "was written"
            raise FileChanged(
                f"{self.path} {what} since it was opened: which record is which may have changed. Write new data to "
                "new files, or start the job again"
            )


def known(file: str, descriptor: int | None = None) -> KnownFile:
    """The file as it is now, or as it is open."""
    path = Path(file)
    status = path.stat() if descriptor is None else os.fstat(descriptor)
    return KnownFile(path, status.st_size, status.st_mtime_ns, status.st_ino)


def find_files(paths: Paths) -> list[str]:
    """The files of a pattern, of a folder or of a list of these, sorted by name.

    Args:
        paths: a text with `*`, `?` or `[` is a pattern, unless a file has that name; of a folder it is the files in it
            whose names do not begin with a dot or an underline.

    Raises BadFiles, in words, where something is not there, no regular file, or named twice.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise BadFiles("there is nothing to open: the list of files is empty")
    found: list[str] = []
    for each in given:
        found += _files_of(os.fspath(each))
    found.sort()
    check_named_once(found)
    seen: dict[tuple[int, int], str] = {}
    for file in found:
        status = _check_readable(file)
        if (other := seen.setdefault((status.st_dev, status.st_ino), file)) is not file:
            raise BadFiles(f"{other} and {file} are one file: its records would be used twice in each epoch")
    return found


def check_named_once(names: Sequence[str]) -> None:
    """Raises BadFiles where two of the names, which are sorted, are the same."""
    for one, other in pairwise(names):
        if one == other:
            raise BadFiles(f"the file {one} is named twice: its records would be used twice in each epoch")


def _files_of(given: str) -> list[str]:
    if Path(given).is_dir():
        files = [
            str(each) for each in Path(given).iterdir() if not each.name.startswith((".", "_")) and not each.is_dir()
        ]
        if not files:
            raise BadFiles(f"there is no file in the folder {given}; folders within it are not looked into")
        return files
    if not glob.has_magic(given) or os.path.lexists(given):
        return [given]
    if files := [file for file in glob.glob(given, recursive=True) if not Path(file).is_dir()]:  # noqa: PTH207  # absolute ones, too
        return files
    raise BadFiles(f"no file matches {given!r}, seen from {Path.cwd()}: the job needs at least one")


def _check_readable(file: str) -> os.stat_result:
    try:
        status = Path(file).stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadFiles(f"{file} is no regular file, and its records cannot be numbered")
    except OSError as error:
        raise BadFiles(f"{file} cannot be opened: {reason(error)}") from None
    if not os.access(file, os.R_OK):
        raise BadFiles(f"{file} cannot be read by this user")
    return status


def extension_of(file: str) -> str:
    """What follows the last dot of a name, in lower case; empty where there is none."""
    return Path(file).suffix[1:].lower()
