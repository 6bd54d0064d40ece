"""Files and folders that only this user may use, in places where others may write.

Another user of the machine can make a folder or plant a link under the name that is about to be used, in /tmp above
all. So a folder is used only if it is this user's own and nobody else can enter it, and no link is followed to it.
A name from elsewhere becomes the name of a file through `file_name` alone, which cannot leave its folder.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from pathlib import Path

LONGEST_NAME, LONGEST_NAME_BYTES = 50, 100
"""Characters, and bytes of them: a file system takes 255 bytes, and others add their own, and a second such name."""

LONGEST_FILE = 65_536
"""Bytes of a file with a secret that are read."""

MOUNTED = "a read-only mount of secrets in memory, as Kubernetes and systemd make it"
"""What `mounted_secret` takes, for a person."""

_UNUSUAL = re.compile(r"[^\w.=+-]")


class NotOwn(OSError):
    """A file or a folder is not this user's alone; the message says whose it is, and what to do."""


def file_name(text: str) -> str:
    """What `text`, from whomever it comes, is called in a folder: one part of a path, never `.` or `..`, nor hidden."""
    short = _UNUSUAL.sub("_", text)[:LONGEST_NAME].encode()[:LONGEST_NAME_BYTES]
    return short.decode(errors="ignore").lstrip(".") or "job"


def own_folder(path: Path) -> None:
    """Makes the folder where it is missing, for this user alone; its parent has to be there.

    Raises NotOwn where it is another's, or a link, or can be entered by others; OSError.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:  # what Linux says of a link, too
        raise NotOwn(f"{path} is no folder, or a link to one: remove it, or name another") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise NotOwn(f"{path} belongs to another user (uid {found.st_uid}): name another folder")
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o022:
            raise NotOwn(
                f"{path} can be written by others (mode {mode:04o}): look at its content, and chmod 700 {path}"
            )
        if mode & 0o077:
            os.fchmod(descriptor, 0o700)  # made by hand
    finally:
        os.close(descriptor)


def dated_folder(parent: Path, name: str, now: float) -> Path:
    """Makes `NAME_20261127T050501Z` there for this user alone, and lets the link `latest` lead to it. Raises OSError.

    Whatever has that name already stays as it is, and the folder gets a number. No link is followed, and only a link is
    replaced.

    Args:
        now: seconds since the epoch.
    """
    stem = f"{name}_{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
    number, made = 1, parent / stem
    while True:
        try:
            made.mkdir(mode=0o700)
            break
        except FileExistsError:
            number += 1
            made = parent / f"{stem}-{number}"
    latest = parent / "latest"
    draft = _draft(latest)
    with contextlib.suppress(OSError):  # another user's in a folder like /tmp, or no links on this file system
        draft.symlink_to(made.name)
        try:
            if latest.is_symlink() or not os.path.lexists(latest):
                draft.replace(latest)
        finally:
            draft.unlink(missing_ok=True)
    return made


def read_own(path: Path, *, shared: bool = False) -> str:
    """What is in a file with a secret, which only this user can read, or which a platform has mounted.

    Args:
        shared: it may be another user's, a link and readable for a group; only not readable for every user.

    Raises NotOwn where others can read it, or it is no file of this user's; OSError, ValueError where it is no text.
    """
    flags, link = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, False
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        link, descriptor = True, _followed(path, flags)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotOwn(f"{path} is no regular file")
        if trouble := _open_to_others(path, found, link=link, shared=shared):
            from .mounts import mounted_secret  # here, because few are open to others

            if not mounted_secret(path, descriptor):
                raise NotOwn(trouble)
        return os.read(descriptor, LONGEST_FILE).decode("utf-8")
    finally:
        os.close(descriptor)


def _followed(path: Path, flags: int) -> int:
    """Where a link leads, which is read only in a mount of secrets. Raises NotOwn, OSError."""
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        raise NotOwn(f"{path} is a link, and a link is not followed outside of {MOUNTED}") from None


def _open_to_others(path: Path, found: os.stat_result, *, link: bool, shared: bool) -> str:
    """Why a file that is not mounted as a secret may be known to others; empty where it is this user's (pure)."""
    mode = stat.S_IMODE(found.st_mode)
    if link and not shared:
        return f"{path} is a link, and a link is not followed outside of {MOUNTED}: name the file itself"
    if not shared and found.st_uid != os.geteuid():
        return f"{path} belongs to another user (uid {found.st_uid}): it must be your own, or in {MOUNTED}"
    if mode & (stat.S_IRWXO if shared else stat.S_IRWXO | stat.S_IRWXG):
        whose = "every user of this machine has" if shared else "others have"
        return f"{whose} access to {path} (mode {mode:04o}): chmod 600 {path}"
    return ""


def write_own(path: Path, text: str) -> None:
    """Writes a new file of mode 0600, which must not exist yet. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def replace_own(path: Path, text: str) -> None:
    """Writes a file of mode 0600 in place of what is there: a reader sees the one or the other. Raises OSError."""
    draft = _draft(path)
    try:
        write_own(draft, text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_own_first(path: Path, text: str) -> bool:
    """Writes a file of mode 0600 whole or not at all; False where there is one already. Raises OSError."""
    if os.path.lexists(path):
        return False
    draft = _draft(path)
    try:
        write_own(draft, text)
        try:
            os.link(draft, path)  # fails where another process was quicker, on a file system of many machines too
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            if os.path.lexists(path):
                return False
            draft.rename(path)
        return True
    finally:
        draft.unlink(missing_ok=True)


def _draft(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
