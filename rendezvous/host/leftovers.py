"""Folders that jobs leave behind: held while somebody uses them, removed when they are old.

A job that fails leaves its logs, a store whose machine was switched off its data. Nobody comes back for most of them.
A folder that is in use is held by a shared lock, which the kernel releases with the process. systemd-tmpfiles respects
the same lock when it cleans the temporary folder by age.
"""

import contextlib
import fcntl
import os
import shutil
import stat
from pathlib import Path

KEEP_SECONDS = 7 * 24 * 3600.0
"""A folder in which nothing was written for this long is removed."""

FRESH_SECONDS = 3600.0
"""One in which something was written since then stays, however many there are."""


def hold(folder: Path) -> int | None:
    """A descriptor that keeps `folder` from being removed until it is closed; None where there are no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def prune(parent: Path, prefix: str, now: float, most: int | None = None) -> None:
    """Removes folders in `parent` whose names begin with `prefix`, that are this user's alone, old, and not held.

    Args:
        now: seconds since the epoch, as files have them.
        most: of more than these, the oldest go as soon as they are no longer fresh.
    """
    try:
        with os.scandir(parent) as entries:
            found = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    except OSError:
        return
    own = dict[Path, float]()
    for folder in found:
        with contextlib.suppress(OSError):  # somebody else was quicker
            if _is_own(folder.lstat()):
                own[folder] = _newest(folder)
    for number, folder in enumerate(sorted(own, key=own.__getitem__, reverse=True)):
        keep = KEEP_SECONDS if most is None or number < most else FRESH_SECONDS
        if now - own[folder] > keep:
            with contextlib.suppress(OSError):  # the same, or the disk is read-only
                _remove(folder, now - keep)


def _is_own(status: os.stat_result) -> bool:
    """It is a folder, no link to one, and nobody else can have put anything into it."""
    private = not stat.S_IMODE(status.st_mode) & 0o077
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and private


def _newest(folder: Path) -> float:
    """When anything in it was written."""
    times = [folder.lstat().st_mtime]
    for where, folders, files in os.walk(folder):
        times += [Path(where, name).lstat().st_mtime for name in (*folders, *files)]
    return max(times)


def _remove(folder: Path, before: float) -> None:
    """Where nothing in it has been written since `before`; it may have been taken up in the meantime."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # or it is in use
        if _newest(folder) >= before:
            return
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
