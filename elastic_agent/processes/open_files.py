"""How many files this process may open: as many as it is allowed, while its workers have the limit that was set."""

import contextlib
import resource
from collections.abc import Generator


@contextlib.contextmanager
def all_allowed() -> Generator[int]:
    """Within it the soft limit is the hard one; yields the soft limit that there was.

    A job of a thousand nodes, or a node of a hundred workers, needs more than the usual 1024, and a limit that is
    reached in the middle of a job ends it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # the kernel's own limit has been lowered meanwhile
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield soft
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
