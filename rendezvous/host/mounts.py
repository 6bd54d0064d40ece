"""Whether a file that is open lies in a mount of a platform's secrets, into which only that platform writes.

Kubernetes, systemd, Docker and Podman mount secrets in ways of their own: owned by root, readable by every user of the
container, and with links inside. Such a file is known by its mount and not by its mode: only root can make the mount,
nobody else can write into it, and it is seen by those processes alone that root has given it to. The mount is the one
of the descriptor that is open, so it cannot be exchanged between the look and the reading.

What a user can mount without being root (FUSE) is never one.
"""

import os
import re
import stat
from pathlib import Path

from ..base.frozen import dataclass

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""File systems of Kubernetes' volumes of secrets, of systemd's credentials and of Docker's secrets: never on a disk."""

SECRETS = "/run/secrets/"
"""Where Docker Compose and Podman mount each secret by itself, from a folder of the machine that is not in memory."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of this process's namespace.

    Attributes:
        number: the kernel's, for as long as it is mounted.
        point: where it is.
        kind: its file system, such as "tmpfs".
        read_only: nobody can write there through this mount.
    """

    number: int
    point: str
    kind: str
    read_only: bool


def parse_mounts(text: str) -> dict[int, Mount]:
    """`/proc/self/mountinfo` by the mounts' ids; what cannot be read is left out (pure)."""
    found: dict[int, Mount] = {}
    for line in text.splitlines():
        head, dash, tail = line.partition(" - ")
        fields, kinds = head.split(" "), tail.split(" ")
        if not dash or len(fields) < 6 or not fields[0].isdecimal():
            continue
        point = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        number = int(fields[0])
        found[number] = Mount(number, point, kinds[0], "ro" in fields[5].split(","))
    return found


def mount_of(descriptor: int) -> Mount | None:
    """Where the file that is open lies; None where the kernel does not say it."""
    try:
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii")
        number = next(int(line.split()[1]) for line in told.splitlines() if line.startswith("mnt_id:"))
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", errors="surrogateescape")
    except (OSError, StopIteration, IndexError, ValueError):
        return None
    return parse_mounts(mounts).get(number)


def mounted_secret(path: Path, descriptor: int) -> bool:
    """`path`, which is open, is a secret that a platform has mounted.

    It is root's or this user's, and lies in one of two mounts: a read-only one in memory, which has the whole of `path`
    in it, links included; or one of this file alone below SECRETS, which nobody else can write to.
    """
    found, mount = os.fstat(descriptor), mount_of(descriptor)
    if mount is None or found.st_uid not in (0, os.geteuid()):
        return False
    name = str(path.parent.resolve() / path.name)
    alone = mount.point == name
    if mount.read_only and mount.kind in IN_MEMORY:
        return alone or _lies_in(path.parent, mount)
    closed = mount.read_only or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return alone and closed and name.startswith(SECRETS) and not mount.kind.startswith("fuse")


def _lies_in(folder: Path, mount: Mount) -> bool:
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return mount_of(descriptor) == mount
    finally:
        os.close(descriptor)
