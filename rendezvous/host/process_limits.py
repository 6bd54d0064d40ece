"""The limits of this process that differ from those of its workers, who have what the user has set.

It may open as many files as it is allowed, and writes no core file where it holds a secret.
"""

import contextlib
import resource
from collections.abc import Generator


@contextlib.contextmanager
def all_allowed() -> Generator[tuple[int, int]]:
    """Within it the soft limit of open files is the hard one; yields the limits that there were, for `shimmed`.

    A job of a thousand nodes, or a node of a hundred workers, needs more than the usual 1024, and a limit that is
    reached in the middle of a job ends it.
    """
    (soft, hard), (core, _) = resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE)
    _set(resource.RLIMIT_NOFILE, hard)
    try:
        yield soft, core
    finally:
        _set(resource.RLIMIT_NOFILE, soft)
        _set(resource.RLIMIT_CORE, core)


def write_no_core() -> None:
    """A limit of one byte: the kernel then writes no file, and, unlike with 0, starts no collector of cores either."""
    _set(resource.RLIMIT_CORE, 1)


def _set(which: int, soft: int) -> None:
    hard = resource.getrlimit(which)[1]
    with contextlib.suppress(OSError, ValueError):  # the kernel's own limit has been lowered meanwhile
        resource.setrlimit(which, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
