"""How workers that keep their process come from one round into the next: what is decided about it (pure).

`worker_group.py` and `staying_group.py` do it. Workers are named by their process ids.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.ranks import Assignment
from ..machine.node_state import StayingWorkers

FREE_SECONDS = 1.0
"""So long a worker that keeps its process may take to leave a process group that was broken, and twice the time of its
steps: one that computes notices only at the end of its backward pass."""

FORMING_SECONDS = 10.0
"""The same, where it is about to form one: some of that cannot be broken off."""

COMPUTING_SECONDS = 120.0
"""The same, where it computes, and no other of this node has the job's state."""

COMPUTES_WITHIN, COMPUTES_SHARE = 2.0, 0.2
"""Who computes uses so much of a processor, or waits for one, in so many seconds: more than another machine of the same
host takes a processor away for, which is neither."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """Of this node's living workers those that have said how they are in their process group.

    Attributes:
        staying: they keep their process when another round comes, with the seconds between two of their commits, at
            most; 0: less than matters.
        holding: of those, they have the job's state.
        done: of the others, they have trained to the end, and take no other rank.
        waiting: they have left their process group, and wait for their next rank assignment.
        forming: of those that stay, they have a rank, and their process group does not stand yet.
        broke: what the first of these says that was broken; empty where nobody says so.
    """

    staying: Mapping[int, float]
    holding: frozenset[int] = frozenset()
    done: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    forming: frozenset[int] = frozenset()
    broke: str = ""

    @property
    def late(self) -> frozenset[int]:
        """Those that stay, and have not left their process group."""
        return frozenset(self.staying.keys() - self.waiting)

    @property
    def heirs(self) -> frozenset[int]:
        """Those that wait for a rank, and have the job's state."""
        return self.waiting & self.holding

    def count(self) -> StayingWorkers:
        """How many they are of each kind."""
        return StayingWorkers(
            staying=len(self.staying),
            holding=len(self.holding),
            done=len(self.done),
            waiting=len(self.waiting),
            forming=len(self.forming),
            slowest=max(self.staying.values(), default=0.0),
            broke=self.broke,
        )


@dataclass(frozen=True, slots=True)
class ProcessorSample:
    """How much of the processor the late workers had used by then; both in seconds."""

    at: float
    used: float

    def computes_until(self, later: "ProcessorSample") -> bool:
        """Whether they computed in between."""
        used = later.used - self.used
        # Less than before: a child has ended, so something is under way.
        return used < 0 or used >= COMPUTES_SHARE * (later.at - self.at)


def wait_for_late(members: GroupMembers, begun: float, now: float, samples: Sequence[ProcessorSample]) -> float | None:
    """Seconds to wait for workers that have not left their process group yet; None: not any longer.

    Args:
        members: as they are now.
        begun: when it was broken, seconds.
        now: the same clock.
        samples: the newest two, or fewer. With 0 seconds to wait, another one is due: nobody is waited for who has not
            computed between them.
    """
    late = members.late
    if not late:
        return None
    forming = late <= members.forming
    slowest = max(members.staying[pid] for pid in late)
    rest = begun + (FORMING_SECONDS if forming else FREE_SECONDS + 2 * slowest) - now
    if rest > 0:
        return rest
    # In an evaluation, perhaps: not all who have the job's state are to be ended for that.
    if forming or members.heirs or now >= begun + COMPUTING_SECONDS:
        return None
    if any(not before.computes_until(later) for before, later in itertools.pairwise(samples)):
        return None
    return max(0.0, samples[-1].at + COMPUTES_WITHIN - now) if samples else 0.0


def choose_kept(
    pids: Mapping[int, int], waiting: Collection[int], wanted: Iterable[int]
) -> tuple[dict[int, int], list[int]]:
    """Who keeps its process: pid to local rank; and the local ranks of `wanted` for which a worker is to be started.

    Args:
        pids: the living workers, by local rank.
        waiting: those that have left their process group, and wait for a rank.
        wanted: the local ranks of the next round.
    """
    kept = {pid: local for local, pid in pids.items() if pid in waiting}
    return kept, [local for local in wanted if local not in kept.values()]


def lost_state(before: GroupMembers, members: GroupMembers, assignment: Assignment, *, from_rank_0: bool) -> bool:
    """Whether others would take the job's state from a worker here, and none that waits for a rank has it any more.

    `before`: the members when the process group was broken; who had nothing then has lost nothing.
    """
    return bool(before.holding) and from_rank_0 and assignment.first_rank == 0 and not members.heirs


def lowest_local_rank(
    heirs: Iterable[int], assignment: Assignment, began: Mapping[int, int], *, from_rank_0: bool
) -> int:
    """The local rank that gets this node's lowest rank: where others take the state from that, who has it.

    Args:
        heirs: local ranks of those that wait for a rank, and have the job's state.
        assignment: what the round gives this node.
        began: by local rank, for which round its worker was started: the oldest of several has seen most.
        from_rank_0: others take the job's state from rank 0.
    """
    if assignment.first_rank or not from_rank_0:
        return 0
    return min(heirs, key=lambda local: (began.get(local, 0), local), default=0)
