"""Opens files by their names, where somebody else may have put something under the name: another user, or a worker.

To open a named pipe may last for ever, a device has no end, and a link may lead to a file of this user's that would be
overwritten. So what is read is a regular file, and what another user has planted is not written to.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

LARGEST = 256 << 20
"""Bytes of a history that is read: a node, or a master, writes far less."""

LARGEST_SETTINGS = 4 << 20
"""Bytes of a file with settings, of a source, or of an error."""

HANDED_OVER = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What this process got open from its shell, as by `<(command)`: it may be a pipe."""


def planted(path: Path) -> str:
    """Why another user may have put there what `path` names or leads through; empty where nobody may. Opens nothing."""
    here, rest, links = Path("/"), [*reversed(path.absolute().parts[1:])], 0
    while rest and links < 40:  # as in the kernel
        folder, here = here, here / rest.pop()
        try:
            found, around = here.lstat(), folder.stat()
        except OSError:  # there is nothing yet, or whoever opens it is told
            return ""
        link = stat.S_ISLNK(found.st_mode)
        whole = link or (not rest and not stat.S_ISDIR(found.st_mode))
        if whole and found.st_uid not in (0, os.geteuid()) and around.st_mode & stat.S_IWOTH:
            return f"{here} belongs to another user (uid {found.st_uid}), and all users may write to its folder"
        if link:
            links += 1
            target = here.readlink()
            here = Path("/") if target.is_absolute() else folder
            rest += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return ""


def reason(error: Exception) -> object:
    """What a person is told of a file that cannot be used: an OSError says it without its number and its path."""
    told = error.strerror if isinstance(error, OSError) else error
    return "its values are nested too deeply" if isinstance(error, RecursionError) else told


def open_to_read(path: Path, *, pipe: bool = False) -> BinaryIO:
    """A regular file; anything else only where it may be a pipe. Raises OSError, with a sentence as its `strerror`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if pipe:
            os.set_blocking(descriptor, True)
        elif not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_named(path: Path, most: int = LARGEST) -> bytes:
    """All of a regular file, or of what the shell has handed over. Raises OSError, also where it is too long."""
    with open_to_read(path, pipe=str(path).startswith(HANDED_OVER)) as file:
        found = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    if found is None or len(found) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB", str(path))
    return found


def open_to_write(path: Path, *, append: bool = False, create: bool = True, private: bool = False) -> int:
    """A descriptor that does not wait for the reader of a pipe. Raises OSError, also where another user planted it.

    `private`: only this user may read it, and not even an own link is followed.
    """
    if why := planted(path):
        raise OSError(errno.EPERM, why, str(path))
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (os.O_APPEND if append else os.O_TRUNC)
    flags |= (os.O_CREAT if create else 0) | (os.O_NOFOLLOW if private or not path.is_symlink() else 0)
    return os.open(path, flags, 0o600 if private else 0o666)


def write_named(path: Path, text: str) -> None:
    """Writes `text` in place of what is there. Raises OSError as `open_to_write`."""
    descriptor = open_to_write(path)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
