"""Who is named for a job that is slow (pure).

In a synchronous job every rank's step lasts as long as the slowest rank's, so what tells them apart is how much of it
each rank is busy with its own work, and how much it waits for the others. Each is compared with those of its role.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from ...rendezvous.base.frozen import dataclass
from .evidence import Answer, Ends, Snapshot, Worker, end, ends_of
from .findings import MAX_FINDINGS, Finding, Kind
from .frames import decides, is_in, script_frames, waits_in_native_code
from .living import workers_of
from .places import COLLECTIVES, DEVICES, HELD, LOADERS, PROCESSES, READY, STARVED, waits_for_servers

ENOUGH = 8
"""Looks from which it is seen how a rank shares its time."""

PLENTY = 0.4
"""Of the time: a rank that works for less is none that others wait for; one that waits for so much waits for others."""

STEPS = 6
"""How often who waits must have woken up meanwhile: else it waits for one thing, and does not take steps."""

LONGEST = 1 / 3
"""Of the looks: who wakes up at none for so long is not judged. It may wait for one thing among its steps, such as a
checkpoint, or its steps are too long for these looks."""

STEPPING = 0.01
"""Of a processor, at least, who takes steps: who looks now and then whether a peer has come at last uses less."""

SLOWER = 1.6
"""Times as much as the median of the others, a slow rank works: of one that has twice as much to do, the looks show
less on a busy machine."""

Work = Literal["computes", "data", "network"]

_SLOW: dict[Work, Kind] = {"computes": "slow-compute", "data": "slow-data", "network": "slow-network"}


@dataclass(frozen=True, slots=True)
class Works:
    """How a worker shares its time.

    Attributes:
        share: of the looks at which it did not wait for parameter servers, those at which it did not for other ranks.
        most: what it did at most of these.
        where: in which line of the script, at most of these.
        delayed: of the time, for which its main thread had no processor though it was ready.
        switches: how often its main thread has stopped running.
        longest: the share of the looks in the longest stretch in which it did not.
        cpu: processors that it used.
    """

    share: float
    most: Work
    where: str
    delayed: float
    switches: int
    longest: float
    cpu: float


def works(network: str, worker: Worker, ends: Ends) -> Works:
    """How `worker` shares its time between its own work and waiting for others, by long looks."""
    first, last = worker.snapshots[0], worker.snapshots[-1]
    looks = _outside_servers(worker)
    busy = [each for each in looks if not _waits_for_ranks(network, worker.rank, each, ends)]
    kinds = Counter[Work](_work(each) for each in busy)
    spots = Counter(
        f"{own[0].name}:{own[0].line} in {own[0].function}" for each in busy if (own := script_frames(each.frames))
    )
    span = max(last.at - first.at, 1e-3)
    stretches = [len(tuple(same)) - 1 for _, same in groupby(worker.snapshots, lambda each: each.switches)]
    return Works(
        len(busy) / max(len(looks), 1),
        kinds.most_common(1)[0][0] if kinds else "computes",
        spots.most_common(1)[0][0] if spots else "",
        (last.delayed - first.delayed) / span,
        last.switches - first.switches,
        max(stretches) / max(len(worker.snapshots) - 1, 1),
        (last.cpu - first.cpu) / span,
    )


def _waits_for_ranks(network: str, rank: int, look: Snapshot, ends: Ends) -> bool:
    if look.state == "R":
        return False
    if any(ends.get(end(network, each.remote), rank) != rank for each in look.blocked.sockets):
        return True
    if is_in(look.frames[:1], HELD) or decides(look.frames, (*COLLECTIVES, *DEVICES)):
        return True
    return look.blocked.on == "lock" and waits_in_native_code(look.frames)


def _work(look: Snapshot) -> Work:
    loads = decides(look.frames, LOADERS) or is_in(look.frames[:6], PROCESSES)
    if loads or look.state == "D" or look.blocked.on in ("pipe", "file"):
        return "data"
    if look.state != "R" and look.blocked.on in ("socket", "local socket"):
        return "network"
    return "computes"


def _outside_servers(worker: Worker) -> list[Snapshot]:
    """Looks that tell: who waits for parameter servers does neither its own work, nor waits for ranks."""
    return [each for each in worker.snapshots if not waits_for_servers(each.frames)]


def stragglers(answers: Sequence[Answer], round: int) -> tuple[Finding, ...]:
    """Ranks that the others wait for in each step, from long looks at ranks that come on."""
    workers = [
        each
        for each in workers_of(answers, round)
        if len(looks := _outside_servers(each[2])) >= ENOUGH and any(look.frames for look in looks)
    ]
    ends = ends_of([(node.network, worker) for _, node, worker in workers])
    roles = dict[str, list[_Sharing]]()
    for role, node, worker in workers:
        roles.setdefault(role, []).append(_Sharing(node.node, worker.rank, works(node.network, worker, ends)))
    return tuple([each for ranks in roles.values() for each in _slow(ranks, round)][:MAX_FINDINGS])


@dataclass(frozen=True, slots=True)
class _Sharing:
    node: str
    rank: int
    works: Works


def _slow(ranks: Sequence[_Sharing], round: int) -> list[Finding]:
    """Those of one role that the others of it wait for, at most as many as are told."""
    if len(ranks) < 2:
        return []
    shares = sorted(each.works.share for each in ranks)
    waits = [
        each.rank
        for each in ranks
        if each.works.share <= 1 - PLENTY
        and each.works.switches >= STEPS
        and each.works.longest <= LONGEST
        and each.works.cpu >= STEPPING
    ]
    found = list[Finding]()
    for each in ranks:
        mine = each.works
        if mine.share < PLENTY or mine.share <= SLOWER * (usual := _median_without(shares, mine.share)):
            continue
        waiting = tuple(rank for rank in waits if rank != each.rank)
        if not waiting:
            continue
        words = f"{100 * mine.share:.0f} % of the time, the others {100 * usual:.0f} %"
        where = f"{words}; mostly in {mine.where}" if mine.where else words
        kind = _SLOW[mine.most]
        if mine.delayed >= READY and mine.cpu < STARVED:
            kind = "cpu-taken"
        found.append(Finding(kind, each.rank, each.node, "weak", where, waiting, round=round))
        if len(found) == MAX_FINDINGS:
            break
    return found


def _median_without(ordered: Sequence[float], one: float) -> float:
    """The median of all but `one` of at least two numbers that are in order; `one` is among them."""
    place, count = bisect_left(ordered, one), len(ordered) - 1

    def other(index: int) -> float:
        return ordered[index if index < place else index + 1]

    return (other((count - 1) // 2) + other(count // 2)) / 2
