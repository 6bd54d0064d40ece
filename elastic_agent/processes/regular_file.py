"""Reads files at paths where a worker may have put something else: a named pipe, a device, a folder.

To open a named pipe may last for ever, and a device has no end. Neither may hold up the agent.
"""

import os
import stat
from pathlib import Path


def read_regular(path: Path, limit: int) -> bytes | None:
    """The first `limit` bytes of the file; None where there is no regular file that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)
