"""The memory that a launcher has for itself while its workers run."""

import subprocess
import time
from collections.abc import Collection, Iterable, Sequence

import psutil

from .answers import PLAIN, answers, plain_work
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import OURS, TORCHRUN, Job, Launcher

WORKERS = 2
BOUND = 60.0
SETTLE_SECONDS = 2.0
REST_SECONDS = 600

PARTS = ("the agent", "its guardian", "the zygote", "the store's supervisor", "etcd")
_MARKS = {"guardian.py": 1, PLAIN: 2, "supervisor.py": 3, "etcd": 4}
"""What a command line holds, and whose it is. A zygote, of which workers are forked, has theirs."""


def part(agent: int, pid: int, words: Sequence[str]) -> int | None:
    """Which of PARTS a process is; None for none of them."""
    if pid == agent:
        return 0
    line = " ".join(words)
    return next((place for mark, place in _MARKS.items() if mark in line), None)


def sums(agent: int, workers: Collection[int], found: Iterable[tuple[int, Sequence[str], int]]) -> tuple[float, ...]:
    """MiB of each of PARTS, from the pid, command line and bytes of each process."""
    total = [0] * len(PARTS)
    for pid, words, size in found:
        place = None if pid in workers else part(agent, pid, words)
        if place is not None:
            total[place] += size
    return tuple(size / 2**20 for size in total)


def measure(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """Two workers that sleep."""
    words = plain_work(arena, 0, 0, REST_SECONDS)
    agent = arena.launch(launcher, Job(arena.job_id, "1", WORKERS, free_port(), words))
    try:
        workers = {int(one["pid"]) for one in answers(arena, WORKERS, BOUND)}
    except DidNotCome as error:
        return Outcome(None, str(error))
    time.sleep(SETTLE_SECONDS)
    parts = sums(agent.pid, workers, _looked(agent))
    return Outcome(parts[0], phases=parts)


def _looked(agent: subprocess.Popen[bytes]) -> list[tuple[int, list[str], int]]:
    """Everything below this process: what has detached itself from the launcher has come here."""
    below = psutil.Process().children(recursive=True)
    return [(one.pid, one.cmdline(), one.memory_full_info().uss) for one in below]


CASES = (
    Case(
        name="memory",
        title=f"memory of the launcher's agent while {WORKERS} workers run",
        about="USS: what nobody else has, so what would be free without it. The store is at an address: elastic-run's "
        "is an etcd with a process that keeps it, torchrun's TCPStore is within the agent. The workers are not "
        "counted.",
        until="agent",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN,),
        measure=measure,
        phases=PARTS,
        first_phase="",
        unit="MiB",
        parts="median MiB of",
    ),
)
