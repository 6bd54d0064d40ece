"""What this machine has seen succeed: a command that was begun later is a new start, and no late node of that job.

For a minute after a success its id is refused, so that a node which comes late does not start the job again. The same
command typed again looks like such a node to the store. What tells them apart is this machine: a command that was begun
after a node here had seen the job's end means to run it again.
"""

import contextlib
import time
from pathlib import Path

from ..rendezvous.membership import OUTCOME_TTL
from ..rendezvous.own_files import file_name, own_folder

_FOLDER = "succeeded"

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Names the machine's start, since which the monotonic clock counts."""


def note(run: str) -> None:
    """Writes down that `run` has succeeded; where that cannot be, the id is refused for its minute."""
    from ..rendezvous.store.embedded.folders import EmbeddedFailed, runtime_directory  # not in a job of one node

    with contextlib.suppress(OSError, EmbeddedFailed):
        folder = runtime_directory() / _FOLDER
        own_folder(folder)
        oldest = time.time() - 2 * OUTCOME_TTL
        for path in folder.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink()
        text = f"{_BOOT.read_text().strip()} {time.monotonic()}\n"
        (folder / file_name(run, "run")).write_text(text, encoding="ascii")


def runs_before(begun: float) -> frozenset[str]:
    """The runs that a node of this user has seen succeed on this machine before `begun`, in monotonic seconds."""
    from ..rendezvous.store.embedded.folders import EmbeddedFailed, runtime_directory

    found: set[str] = set()
    with contextlib.suppress(OSError, EmbeddedFailed, ValueError):
        for path in (runtime_directory(make=False) / _FOLDER).iterdir():
            boot, at = path.read_text(encoding="ascii").split()
            if boot == _BOOT.read_text().strip() and float(at) < begun:
                found.add(path.name)
    return frozenset(found)
