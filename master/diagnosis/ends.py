"""What ended a worker, where that is one of the causes that a job can do something about (pure).

An incident says who was first, and with which words it ended; this says what kind of cause that was.
"""

import re
import signal
from collections.abc import Mapping

from ...rendezvous.header import Incident
from ...rendezvous.member import Exit
from ...rendezvous.reasons import EndedEarly
from ..machine.incident import lost_own_process
from .findings import Finding, Kind

_CRASHES = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))

_WORDS: Mapping[Kind, re.Pattern[str]] = {
    "disk-full": re.compile(r"no space left on device|\benospc\b|disk quota exceeded", re.IGNORECASE),
    "descriptor-limit": re.compile(r"too many open files|\bemfile\b|\benfile\b", re.IGNORECASE),
    "thread-limit": re.compile(
        r"can't start new thread|can't fork|pthread_create failed|fork.*resource temporarily unavailable"
        r"|BlockingIOError: \[Errno 11\]",
        re.IGNORECASE,
    ),
    "out-of-memory": re.compile(r"^MemoryError|\bout of memory\b|cannot allocate memory|std::bad_alloc", re.IGNORECASE),
    # Which of the two ranks is wrong is not known: the finding names the one that has noticed it.
    "mismatched-sizes": re.compile(
        r"data size doesn't match expected size|collective mismatch|mismatch between collectives|message truncated"
        r"|MPI_ERR_TRUNCATE",
        re.IGNORECASE,
    ),
    "loader-died": re.compile(r"dataloader worker .*(killed|exited|aborted)", re.IGNORECASE),
}


def of_incident(incident: Incident) -> Finding | None:
    """The finding that an incident amounts to; None where it is no more than what its own words say."""
    exit_ = incident.exit
    if incident.cause != "failure" or exit_ is None:
        return None
    kind = _kind(exit_, early=isinstance(incident.reason, EndedEarly))
    if kind is None:
        return None
    # The kernel counts, and does not say whose process it was.
    strength = "weak" if kind == "out-of-memory" and "may have been" in exit_.message else "certain"
    return Finding(kind, exit_.rank, incident.node, strength, exit_.brief, round=incident.round)


def _kind(exit_: Exit, *, early: bool) -> Kind | None:
    if early:
        return "uneven-steps"
    if exit_.oom_kills:
        return "out-of-memory"
    for kind, words in _WORDS.items():
        if words.search(exit_.message):
            return kind
    if lost_own_process(exit_):
        return "loader-died"
    if exit_.signal == signal.SIGABRT:
        return "abort"
    return "crash" if exit_.signal in _CRASHES else None
