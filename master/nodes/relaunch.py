"""Whether a replica that ended is followed by another, and with how much memory (pure).

What a worker did is not judged here: its agent lives on, and the controller judges it (`master/machine/incident.py`). A
replica ends where its agent does, where its place is taken, or where its machine is lost. Places and machines cost the
job nothing: they are replaced without limit. What may be the job's own fault is counted for its index.
"""

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Number
from .replica import End, Exited, MachineLost, NeverStarted, OutOfMemory, Preempted, Replica

SIGNALLED = frozenset(128 + number for number in (1, 2, 15))
"""Exit codes of an agent that was told to go: it left the job in order (SIGHUP, SIGINT, SIGTERM)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How often and with what a replica is followed by another.

    Attributes:
        counted: ends of one index that may be the job's own fault; after so many it is given up.
        pause: seconds before the first of those is followed by another; doubled each time.
        longest_pause: seconds, at most.
        memory_factor: more memory after an end for want of it.
        memory_cap: bytes, at most; 0: it gets no more than it was given first.
        cannot_start: seconds that a replica may be unable to start (no such image, say) where none of its role has ever
            run; then the job cannot have it. One of a role that has run waits on: what was good for the others is
            good for it.
    """

    counted: int = 3
    pause: float = 10.0
    longest_pause: float = 300.0
    memory_factor: float = 1.5
    memory_cap: int = 0
    cannot_start: float = 600.0


@dataclass(frozen=True, slots=True)
class Again:
    """Another follows, at `not_before`. `counted`: this end counts. `raised`: bytes of memory; 0: as its role has."""

    counted: bool
    not_before: float
    raised: Number = 0


@dataclass(frozen=True, slots=True)
class GivenUp:
    """No other follows: it would end in the same way."""


@dataclass(frozen=True, slots=True)
class Finished:
    """No other follows: the job is over."""


Verdict = Again | GivenUp | Finished


def judge(ended: Replica, end: End, limits: Limits) -> Verdict:
    """What follows `ended`, which ended so."""
    match end:
        case Preempted() | MachineLost():
            return Again(counted=False, not_before=ended.since)
        case Exited(container=name) if name:  # of which nobody knows what its codes mean
            return _counted(ended, limits)
        case Exited(code) if code in SIGNALLED:
            return Again(counted=False, not_before=ended.since)
        case Exited(exit_code=0):
            return Finished()
        case Exited(exit_code=2) | NeverStarted():
            return GivenUp()
        case OutOfMemory(limit):
            had = ended.memory or limit
            more = min(int(had * limits.memory_factor), limits.memory_cap)
            if more > had:
                return Again(counted=False, not_before=ended.since, raised=more)
            return _counted(ended, limits)
        case _:
            return _counted(ended, limits)


def _counted(ended: Replica, limits: Limits) -> Again | GivenUp:
    if ended.counted + 1 >= limits.counted:
        return GivenUp()
    pause = min(limits.pause * 2**ended.counted, limits.longest_pause)
    return Again(counted=True, not_before=ended.since + pause)
