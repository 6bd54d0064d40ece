"""What this node knows of the job's rounds, and what a header changes about it (pure).

Headers arrive by a watch, by reading, and by reading once more: out of order, twice, and from a run that was over when
this node came. `take` sorts that out.
"""

from dataclasses import replace

from ...rendezvous.header import Header
from ...rendezvous.ranks import Assignment
from . import plan
from .node_state import KnownRound


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
    return replace(
        known,
        header=header,
        revision=revision,
        seen_at=seen_at,
        gentle=gentle,
        assignment=assignment,
        assigned=known.assigned or assignment is not None,
        own_run=own_run,
        stale=stale,
    )
