"""Who is named for a job that stands still (pure).

The theory: in a synchronous job everybody waits for the slowest. So the ranks that wait for other ranks (in a
collective operation, or at a connection whose other end is another rank's) are not the cause, and the cause is a rank
that is elsewhere. Where all wait for each other, the cause is one that waits at another place than most. A rank that is
elsewhere and comes on (it computes at changing places, prints, reads, or a process of its own computes) is busy, and no
fault: a long evaluation, a checkpoint, a compilation, a slow first step.

That holds within a role. Where a job has several, ranks of one wait for the others by design (an evaluator for a
checkpoint, a parameter server for requests), so ranks are compared with those of their own role. Only where that finds
nothing are all ranks compared, on weak evidence, and without those that may wait for a rank of their own role.

A wait for an accelerator is both. Where ranks exchange tensors between accelerators (NCCL), those that wait for others
wait for their own accelerator. So who waits for it waits for others, unless these are seen to wait in another way.
"""

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from . import places
from .evidence import Answer, Disk, NodeEvidence, Worker
from .findings import MAX_FINDINGS, Finding, Kind, Strength
from .places import WAITS_FOR_RANKS, Place, What, Work, Works

QUIET = 0.5
"""Of the shortest time that a rank may be quiet: for so long a suspect must have been quiet."""

TWICE = 1.9
"""Times as long as they may, the others must have waited for a rank that computes, before it is named."""

THRICE = 3.9
"""The same, for a rank that waits for its accelerator: an evaluation that prints nothing and has its data there looks
alike from outside, at every look."""

AGAIN = 5.0
"""Seconds between its wake-ups, on average, from which who waits for a server is taken for one that asks again after a
time-out. Where something comes, it comes more often. A shorter time-out looks alike from outside, and is not told."""

SKEW = 2.0
"""Seconds by which a machine's clock may differ from the others'."""

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

SLOWER = 2.0
"""Times as much as the median of the others, a slow rank works."""

NEAR = 0.95
"""Of a limit: who has more is near it."""

NEAR_DISK = 1 << 20
"""Bytes: a disk with less has no room."""

_KINDS: dict[What, Kind] = {
    "stopped": "stopped",
    "starved": "cpu-taken",
    "gil": "gil-held",
    "disk": "blocked-file",
    "computes": "busy-loop",
    "device": "device-wait",
    "server": "silent-server",
    "loader": "loader-stuck",
    "pipe": "blocked-pipe",
    "file": "blocked-file",
    "file lock": "file-lock",
    "lock": "deadlock",
    "sleep": "sleeps",
    "child": "waits-for-child",
}

_SLOW: dict[Work, Kind] = {"computes": "slow-compute", "data": "slow-data", "network": "slow-network"}

_STRENGTH: dict[Kind, Strength] = {
    "stopped": "certain",
    "loader-died": "certain",
    "busy-loop": "weak",
    "device-wait": "weak",
}

_PATIENCE: dict[What, float] = {"computes": TWICE, "device": THRICE}
"""Times as long as it may, one of the others must have waited."""

_RESTS: frozenset[Kind] = frozenset(("deadlock", "sleeps", "silent-server", "blocked-pipe", "waits-for-child"))
"""Kinds of a rank that stands still, as one does by design that has nothing to do."""

DEAD = ("Z", "X")
"""States of a process that has ended."""


@dataclass(frozen=True, slots=True)
class _Rank:
    node: str
    role: str
    worker: Worker
    place: Place


@dataclass(frozen=True, slots=True)
class _Ended:
    node: str
    role: str
    worker: Worker


def suspects(answers: Sequence[Answer], round: int) -> tuple[Finding, ...]:
    """What is found, the strongest first.

    Args:
        answers: of all nodes of the round.
        round: its number.
    """
    found = [*_of_ranks(answers, round), *_of_nodes(answers, round)]
    order = {"certain": 0, "strong": 1, "weak": 2}
    found.sort(key=lambda finding: order[finding.strength])
    return tuple(found[:MAX_FINDINGS])


def _of_ranks(answers: Sequence[Answer], round: int) -> list[Finding]:
    workers = _workers(answers, round)
    ends = places.ends_of([(node.network, worker) for _, node, worker in workers])
    bar = QUIET * min((worker.allowed for _, _, worker in workers if worker.ended is None), default=0.0)
    living = [
        _Rank(node.node, role, worker, places.place(node.network, worker, ends, bar))
        for role, node, worker in workers
        if worker.ended is None and worker.snapshots
    ]
    seen = all(each.complete for each in answers)
    if not seen or any(each.evidence and each.evidence.blind for each in answers):
        seen = seen and not any(each.place.what == "server" for each in living)
        living = [_waits_for_somebody(each) if each.place.what == "server" else each for each in living]
    ended = [_Ended(node.node, role, worker) for role, node, worker in workers if worker.ended == 0]
    ranks = dict[str, set[int]]()
    for role, _, worker in workers:
        ranks.setdefault(role, set()).add(worker.rank)
    if len({*ranks, *(each.role for each in answers)}) < 2:
        return _judged(living, ended, round, whole=True, seen=seen)
    found = list[Finding]()
    for role, own in ranks.items():
        # Who waits for ranks of another role alone tells nothing of its own.
        mine = [each for each in living if each.role == role and not _waits_for_others(each, own)]
        found += _judged(mine, [each for each in ended if each.role == role], round, whole=False, seen=seen)
    if found:
        return found if seen else _weak(found)
    # Who waits while another of its role does not, may wait for that one, which has come to rest only just now.
    active = {each.role for each in living if each.place.what not in WAITS_FOR_RANKS and not _serves(each)}

    def tells(each: _Rank) -> bool:
        if each.place.what == "device" or (each.place.what == "peer" and not each.place.peers):
            return False  # for whom it waits is not known
        waits = each.place.what in WAITS_FOR_RANKS
        return not waits or each.role not in active or _waits_for_others(each, ranks[each.role])

    rest = list(filter(tells, living))
    roles = {worker.rank: role for role, _, worker in workers}
    across = _judged(rest, ended, round, whole=len(rest) == len(living), seen=seen)
    return _weak([kept for each in across if (kept := _without_its_role(each, roles))])


def _weak(found: Sequence[Finding]) -> list[Finding]:
    """The findings, those that were strong on weak evidence."""
    return [replace(each, strength="weak") if each.strength == "strong" else each for each in found]


def _without_its_role(each: Finding, roles: Mapping[int, str]) -> Finding | None:
    """The finding without ranks of its own role that wait, where there are no others.

    They wait for another role, or the suspect had been found among them. Then it may be at rest.
    """
    if each.rank is None or {roles[rank] for rank in each.waiting} != {roles[each.rank]}:
        return each
    return None if each.kind in _RESTS else replace(each, waiting=(), waiting_where="")


def _serves(each: _Rank) -> bool:
    """It waits for whoever connects."""
    return each.place.what == "idle" and each.place.still


def _waits_for_somebody(each: _Rank) -> _Rank:
    """A connection whose other end may be that of a rank which is not seen."""
    return replace(each, place=replace(each.place, what="peer"))


def _waits_for_others(each: _Rank, own: set[int]) -> bool:
    """At connections of ranks that are none of `own`, or that are not seen."""
    return each.place.peers.isdisjoint(own) and (bool(each.place.peers) or each.place.what == "peer")


def _judged(living: Sequence[_Rank], ended: Sequence[_Ended], round: int, *, whole: bool, seen: bool) -> list[Finding]:
    """What is found among some ranks; `whole`: they are all ranks of the job; `seen`: all of the job are seen."""
    on_devices = [each for each in living if each.place.what == "device"]
    in_collectives = [each for each in living if each.place.what in WAITS_FOR_RANKS]
    waiting = in_collectives or on_devices
    apart = bool(in_collectives)  # who waits for a device does not wait for the others
    others = [
        each for each in living if each.place.what not in WAITS_FOR_RANKS and (apart or each.place.what != "device")
    ]
    spin = not apart and any(each.worker.spins for each in on_devices)
    patience = max((_waited(each) / each.worker.allowed for each in waiting if each.worker.allowed), default=0.0)
    stuck = [
        each
        for each in others
        if each.place.still
        and each.place.what in _KINDS
        and patience >= max(_PATIENCE.get(each.place.what, 0.0), THRICE if spin else 0.0)
        and not (places.wakes_up(each.place.what, each.worker) and _may_come_on(each.worker))
    ]
    if waiting and stuck:
        # Who waits for an accelerator may wait for a rank that is stuck in another way, or for the few that are apart.
        causes = [each for each in stuck if each.place.what != "device"]
        if causes or len(on_devices) <= len(waiting):
            return [_finding(each, waiting, round) for each in _roots(causes or stuck)]
        return []
    if any(each.place.what in ("computes", "moves", "device") for each in others) or spin:
        return []  # who waits in a loop for each result looks like one that waits for ever
    if waiting and any(not each.place.still for each in waiting):
        return []  # they come on
    if waiting and not others:
        if ended:
            return [_early(each, waiting, round) for each in ended]
        return _all_wait(waiting, round, whole=whole, seen=seen) if apart else []
    if waiting or not whole:
        return []
    if stuck and len(stuck) == len(living):
        found = [_finding(each, (), round) for each in _roots(stuck)]
        return found if seen else [each for each in found if each.strength == "certain"]
    return []


def _waited(each: _Rank) -> float:
    """Seconds for which it has, in the kernel or in a loop."""
    return max(each.worker.quiet, each.worker.spins)


def _may_come_on(worker: Worker) -> bool:
    """Whether something comes for one that wakes up now and then, as far as is known at the second look."""
    return worker.quiet < TWICE * worker.allowed or worker.quiet < AGAIN * worker.woken


def _workers(answers: Sequence[Answer], round: int) -> list[tuple[str, NodeEvidence, Worker]]:
    """All that are of the round, with their roles and nodes."""
    found = ((each.role, each.evidence) for each in answers if each.evidence and each.evidence.round == round)
    return [(role, node, worker) for role, node in found for worker in node.workers]


def _roots(stuck: Sequence[_Rank]) -> Sequence[_Rank]:
    """Those to name: one for each place, where many are stuck alike."""
    seen: set[tuple[object, ...]] = set()
    roots = list[_Rank]()
    for each in stuck:
        key = (each.place.what, each.place.spot) if len(stuck) > 4 and each.place.spot else (each.worker.rank,)
        if key not in seen:
            roots.append(each)
            seen.add(key)
    return roots


def _finding(suspect: _Rank, waiting: Sequence[_Rank], round: int) -> Finding:
    kind = _KINDS[suspect.place.what]
    worker = suspect.worker
    dead = [child for child in worker.children if child.state in DEAD]
    halted = [child for child in worker.children if child.state in ("T", "t")]
    where = suspect.place.where
    if dead and kind in ("loader-stuck", "deadlock", "blocked-pipe", "silent-server", "waits-for-child"):
        kind, where = "loader-died", _also(where, f"process {dead[0].pid} ({dead[0].name}) has ended")
    elif halted and kind in ("loader-stuck", "deadlock", "blocked-pipe", "waits-for-child"):
        kind, where = "stopped", _also(where, f"its process {halted[0].pid} ({halted[0].name})")
    known = any(each.place.peers or (each.place.what != "peer" and not each.worker.spins) for each in waiting)
    sure = known and not places.wakes_up(suspect.place.what, worker)
    strength = _STRENGTH.get(kind, "strong" if sure else "weak")
    return Finding(
        kind,
        worker.rank,
        suspect.node,
        strength,
        where,
        tuple(each.worker.rank for each in waiting),
        _common_place(waiting),
        _since(waiting or [suspect]),
        worker.last_lines,
        round,
    )


def _also(where: str, more: str) -> str:
    return f"{where}; {more}" if where else more


def _since(ranks: Sequence[_Rank]) -> float:
    return max(map(_waited, ranks), default=0.0)


def _common_place(waiting: Sequence[_Rank]) -> str:
    """Where most of them are."""
    counted = Counter(each.place.where for each in waiting if each.place.where)
    return counted.most_common(1)[0][0] if counted else ""


def _early(ended: _Ended, waiting: Sequence[_Rank], round: int) -> Finding:
    return Finding(
        "uneven-steps",
        ended.worker.rank,
        ended.node,
        "strong",
        "",
        tuple(each.worker.rank for each in waiting),
        _common_place(waiting),
        _since(waiting),
        ended.worker.last_lines,
        round,
    )


def _all_wait(waiting: Sequence[_Rank], round: int, *, whole: bool, seen: bool) -> list[Finding]:
    """All ranks wait for each other; those of one role may wait for another, unless they are the `whole` job.

    Where not all are `seen`, they may wait for one that is not.
    """
    if not seen or any(not each.place.spot for each in waiting):
        spots = Counter[object]()
    else:
        spots = Counter[object](each.place.spot for each in waiting)
    if len(spots) > 1:
        most, count = spots.most_common(1)[0]
        majority = [each for each in waiting if each.place.spot == most]
        odd = [each for each in waiting if each.place.spot != most]
        tie = list(spots.values()).count(count) > 1
        if tie:  # of two ranks, say: who is further on has left something out
            odd = [max(waiting, key=lambda each: [line for _, line, _ in reversed(each.place.spot)])]
            majority = [each for each in waiting if each is not odd[0]]
        return [
            Finding(
                "mismatched-collective",
                each.worker.rank,
                each.node,
                "weak" if tie else "strong",
                each.place.where,
                tuple(other.worker.rank for other in majority),
                _common_place(majority),
                _since(waiting),
                each.worker.last_lines,
                round,
            )
            for each in odd[:4]
        ]
    lost = [each for each in waiting if places.stuck(each.worker)]
    if lost:
        return [
            Finding(
                "lost-route",
                each.worker.rank,
                each.node,
                "strong",
                f"to {places.stuck(each.worker)[0].remote}",
                tuple(other.worker.rank for other in waiting if other is not each),
                _common_place(waiting),
                _since(waiting),
                each.worker.last_lines,
                round,
            )
            for each in lost[:4]
        ]
    if len(waiting) < 2 or not (whole and seen):
        return []
    first = waiting[0]
    return [
        Finding(
            "all-wait",
            first.worker.rank,
            first.node,
            "weak",
            first.place.where,
            tuple(each.worker.rank for each in waiting[1:]),
            "",
            _since(waiting),
            first.worker.last_lines,
            round,
        )
    ]


def stragglers(answers: Sequence[Answer], round: int) -> tuple[Finding, ...]:
    """Ranks that the others wait for in each step, from long looks at ranks that come on.

    In a synchronous job every rank's step lasts as long as the slowest rank's, so what tells them apart is how much of
    it each rank is busy with its own work, and how much it waits for the others. Each is compared with
    those of its role.
    """
    workers = [each for each in _workers(answers, round) if len(each[2].snapshots) >= ENOUGH]
    ends = places.ends_of([(node.network, worker) for _, node, worker in workers])
    roles = dict[str, list[_Sharing]]()
    for role, node, worker in workers:
        sharing = _Sharing(node.node, worker.rank, places.works(node.network, worker, ends))
        roles.setdefault(role, []).append(sharing)
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
        if mine.delayed >= places.READY and mine.cpu < places.STARVED:
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


def _of_nodes(answers: Sequence[Answer], round: int) -> list[Finding]:
    found = list[Finding]()
    skews = [answer.skew for answer in answers if answer.evidence]
    # The master's own clock may be the wrong one. Of two clocks nobody can tell.
    usual, whose = (statistics.median(skews), "most others'") if len(skews) > 2 else (0.0, "the master's")
    for answer in answers:
        if answer.trouble:
            found.append(Finding("silent-node", None, answer.node, "weak", answer.trouble, round=round))
        if answer.evidence and abs(skew := answer.skew - usual) > SKEW:
            ahead = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} {whose}"
            found.append(Finding("clock-skew", None, answer.node, "certain", ahead, round=round))
        if evidence := answer.evidence:
            found += _limits(evidence, round)
    return found


def _limits(evidence: NodeEvidence, round: int) -> list[Finding]:
    found = list[Finding]()
    node = evidence.node
    if evidence.memory_limit and evidence.memory > NEAR * evidence.memory_limit:
        largest = max(evidence.workers, key=lambda worker: worker.resident, default=None)
        used = f"{_gib(evidence.memory)} of {_gib(evidence.memory_limit)} GiB"
        rank = largest.rank if largest and largest.resident > evidence.memory / 4 else None
        found.append(Finding("memory-near", rank, node, "certain", used, round=round))
    for worker in evidence.workers:
        if worker.descriptor_limit and worker.descriptors > NEAR * worker.descriptor_limit:
            used = f"{worker.descriptors} of {worker.descriptor_limit}"
            found.append(Finding("descriptors-near", worker.rank, node, "certain", used, round=round))
    if evidence.process_limit and evidence.processes > NEAR * evidence.process_limit:
        used = f"{evidence.processes} of {evidence.process_limit}"
        found.append(Finding("processes-near", None, node, "certain", used, round=round))
    found += [
        Finding("disk-full", None, node, "certain", f"{disk.path} has {disk.free} bytes left", round=round)
        for disk in evidence.disks
        if _is_full(disk)
    ]
    return found


def _is_full(disk: Disk) -> bool:
    return disk.size > 0 and disk.free < min(NEAR_DISK, disk.size // 100)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"
