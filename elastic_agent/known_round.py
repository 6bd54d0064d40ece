"""What this node knows of the job's rounds, and what a header changes about it (pure).

Headers arrive by a watch, by reading, and by reading once more: out of order, twice, and from a run that was over when
this node came. `take` sorts that out.
"""

from dataclasses import dataclass

from ..rendezvous.header import Header
from ..rendezvous.ranks import Assignment
from . import plan


@dataclass(frozen=True, slots=True)
class KnownRound:
    """The newest header that this node has seen, and what follows from it and those before.

    Attributes:
        header: None before the first.
        revision: the store's, that wrote it; 0 before the first.
        seen_at: when it was seen, seconds.
        gentle: see `plan.View`.
        assignment: what its round gives this node; None where it has no part in it.
        assigned: some round has had a rank for this incarnation.
        own_run: the run that this node is in; empty where it is not known yet.
        stale: the run whose end was there when this node came: another run's, not this one's.
    """

    header: Header | None = None
    revision: int = 0
    seen_at: float = 0.0
    gentle: int = 0
    assignment: Assignment | None = None
    assigned: bool = False
    own_run: str = ""
    stale: str = ""

    @property
    def over(self) -> bool:
        """The run that this node is in has ended."""
        return self.header is not None and self.header.final and self.header.run != self.stale


def take(
    known: KnownRound,
    header: Header,
    revision: int,
    assignment: Assignment | None,
    *,
    registered: int | None,
    fresh: bool,
    now: float,
) -> KnownRound | None:
    """What is known once `header` has been read; None where that is no news for this node.

    Args:
        known: so far.
        header, revision: what was read, and the revision that wrote it.
        assignment: what its round gives this node.
        registered: the revision at which this node was registered; None where it is not.
        fresh: this node has run no workers in a round, and nobody has told it to go.
        now: the agent's clock, seconds.
    """
    if known.revision > revision:
        return None
    if known.assigned and known.header and known.header.final and header.run != known.own_run:
        return None  # its own run has ended, and its lease outlives that: it has no part in the next run
    seen_at, gentle = known.seen_at, known.gentle
    if known.revision != revision:
        seen_at, gentle = now, plan.gentle(known.header, known.gentle, header)
    own_run, stale = known.own_run, known.stale
    if assignment or (registered is not None and revision > registered and not header.final):
        own_run = header.run  # it lives, so this is no remains of an earlier run
    if registered is not None and header.final:
        # The end is not this node's where it was there first, or is that of nodes told to leave as this one came.
        others = header.run != own_run if revision < registered else header.state == "preempted" and fresh
        if others:
            own_run, stale = "", header.run
    assigned = known.assigned or assignment is not None
    return KnownRound(header, revision, seen_at, gentle, assignment, assigned, own_run, stale)
