"""Who is named for a job that stands still (pure).

The theory: in a synchronous job everybody waits for the slowest. So the ranks that wait for other ranks (in a
collective operation, or at a connection whose other end is another rank's) are not the cause, and the cause is a rank
that is elsewhere. Where all wait for each other, the cause is one that waits at another place than most. A rank that
is elsewhere and comes on (it computes at changing places, prints, reads, or a process of its own computes) is busy, and
no fault: a long evaluation, a checkpoint, a compilation, a slow first step. Who waits, for a file or a lock, may wait
for a rank that is busy: as long as one is, nobody is named but by what the kernel proves.

Nobody is named without proof. A wait that nothing can end from outside is proof, by a Python stack that says what for.
A wait that another machine, a time-out, another thread or a process may end is none until it has lasted for PATIENT
times as long as it may, and so has that of the others, since their main threads have run last (`patience.py`).
Without Python stacks only the kernel's word counts: stopped, ended, a process that has died, state D. Where all ranks
are stopped, somebody pauses the job. Where nobody is named it is said where the ranks are.

That holds within a role. Where a job has several, ranks of one wait for the others by design (an evaluator for a
checkpoint, a parameter server for requests), so ranks are compared with those of their own role. Only where that finds
nothing are all ranks compared, on weak evidence, and without those that may wait for a rank of their own role.

A wait for an accelerator is both. Where ranks exchange tensors between accelerators (NCCL), those that wait for others
wait for their own accelerator. So who waits for it waits for others, unless these are seen to wait in another way.

Who waits for parameter servers is no fault, and nobody is named but by the kernel's proof as long as one does; what is
the matter with such a server is told by its agent (`awaited_servers.py`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ...rendezvous.base.frozen import replace
from ...rendezvous.base.plural import ranks
from . import calls, limits
from .awaited_servers import of_servers
from .evidence import DEAD, HALTED, Answer, Frame, NodeEvidence, Worker
from .findings import MAX_FINDINGS, WORDS, Finding, Kind, Strength
from .living import EndedRank, Rank, common_place, living_ranks, workers_of
from .patience import (
    BY_THE_KERNEL,
    PATIENT,
    THRICE,
    as_stuck,
    has_stack,
    lost_child,
    may_come_on,
    own_patience,
    patience_with,
    seconds_waited,
)
from .places import WAITS_FOR_RANKS, What

_KINDS: dict[What, Kind] = {
    "stopped": "stopped",
    "starved": "cpu-taken",
    "gil": "gil-held",
    "memory": "memory-near",
    "disk": "blocked-file",
    "computes": "busy-loop",
    "computes long": "long-compute",
    "device": "device-wait",
    "server": "silent-server",
    "loader": "loader-stuck",
    "pipe": "blocked-pipe",
    "file": "blocked-file",
    "file lock": "file-lock",
    "lock": "deadlock",
    "either": "deadlock",
    "sleep": "sleeps",
    "signal": "sleeps",
    "child": "waits-for-child",
    "unknown": "sleeps",
}

_STRENGTH: dict[Kind, Strength] = {
    "stopped": "certain",
    "loader-died": "certain",
    "memory-near": "certain",
    "device-wait": "weak",
}

_MAY_WAIT_FOR_RANKS: frozenset[What] = frozenset(("either", "file lock", "sleep", "signal", "file", "unknown"))
"""What a rank does that may wait for another one in a way that is not seen."""

_UNPROVEN: Mapping[What, str] = {
    "either": "waits for another rank or for a lock, in native code",
    "signal": "waits for a signal",
    "unknown": "waits",
}
"""What it does, where it is not named for that: the words of its kind say more."""

PAUSED = "all are stopped, as by somebody who pauses the job: "

_RESTS: frozenset[Kind] = frozenset(("deadlock", "sleeps", "silent-server", "blocked-pipe", "waits-for-child"))
"""Kinds of a rank that stands still, as one does by design that has nothing to do."""


def suspects(answers: Sequence[Answer], round: int) -> tuple[Finding, ...]:
    """What is found, the strongest first.

    Args:
        answers: of all nodes of the round.
    """
    workers = workers_of(answers, round)
    living = living_ranks(workers)
    found = [*_of_ranks(answers, workers, living, round), *of_servers(answers, living, round)]
    found += limits.of_nodes(answers, round)
    order = {"certain": 0, "strong": 1, "weak": 2}
    found.sort(key=lambda finding: order[finding.strength])
    return tuple(found[:MAX_FINDINGS])


def _of_ranks(
    answers: Sequence[Answer], workers: Sequence[tuple[str, NodeEvidence, Worker]], living: Sequence[Rank], round: int
) -> list[Finding]:
    seen = all(each.complete for each in answers)
    if seen and len(living) > 1 and all(each.place.what == "stopped" for each in living):
        return [_standstill(living, round, PAUSED)]
    if not seen or any(each.evidence and each.evidence.blind for each in answers):
        seen = seen and not any(each.place.what == "server" for each in living)
        somebody = [replace(each, place=replace(each.place, what="peer")) for each in living]  # who may not be seen
        living = [some if each.place.what == "server" else each for each, some in zip(living, somebody, strict=True)]
    ended = [EndedRank(node.node, role, worker) for role, node, worker in workers if worker.ended == 0]
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

    def tells(each: Rank) -> bool:
        if each.place.what == "device" or (each.place.what == "peer" and not each.place.peers):
            return False  # for whom it waits is not known
        waits = each.place.what in WAITS_FOR_RANKS
        return not waits or each.role not in active or _waits_for_others(each, ranks[each.role])

    rest = list(filter(tells, living))
    roles = {worker.rank: role for role, _, worker in workers}
    across = _judged(rest, ended, round, whole=len(rest) == len(living), seen=seen, across=True)
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


def _serves(each: Rank) -> bool:
    """It waits for whoever connects."""
    return each.place.what == "idle" and each.place.still


def _waits_for_others(each: Rank, own: set[int]) -> bool:
    """At connections of ranks that are none of `own`, or that are not seen."""
    return each.place.peers.isdisjoint(own) and (bool(each.place.peers) or each.place.what == "peer")


def _judged(
    living: Sequence[Rank], ended: Sequence[EndedRank], round: int, *, whole: bool, seen: bool, across: bool = False
) -> list[Finding]:
    """What is found among some ranks.

    Args:
        living, ended: of them.
        whole: they are all ranks of the job.
        seen: all of the job are seen.
        across: they are of several roles.
    """
    on_devices = [each for each in living if each.place.what == "device"]
    in_collectives = [each for each in living if each.place.what in WAITS_FOR_RANKS]
    waiting = in_collectives or on_devices
    apart = bool(in_collectives)  # who waits for a device does not wait for the others
    others = [
        each for each in living if each.place.what not in WAITS_FOR_RANKS and (apart or each.place.what != "device")
    ]
    awaited = frozenset[int]().union(*(each.place.peers for each in waiting))
    hidden = [each for each in others if each.place.what == "either" and each.worker.rank not in awaited]
    elsewhere = any(each.place.what not in ("either", "device") and not _serves(each) for each in others)
    if hidden and (elsewhere or len(hidden) > max(1, len(in_collectives))):
        # Who waits in native code waits for a rank that is elsewhere; many of them, for each other.
        waiting, others = [*waiting, *hidden], [each for each in others if each not in hidden]
    spin = not apart and any(each.worker.spins for each in on_devices)
    patience = max(
        (seconds_waited(each) / each.worker.allowed for each in waiting or living if each.worker.allowed), default=0.0
    )
    least = min((each.worker.allowed for each in waiting or living if each.worker.allowed), default=0.0)
    others = [as_stuck(each, patience) for each in others]
    still = [each for each in others if each.place.still and (each.place.what in _KINDS or (whole and _serves(each)))]
    stuck = [
        each
        for each in still
        if min(patience, own_patience(each, least)) >= max(patience_with(each), THRICE if spin else 0.0)
        and not (each.place.wakes and may_come_on(each.worker))
    ]
    proven = [each for each in stuck if each.place.what in BY_THE_KERNEL or lost_child(each)]
    if ring := _in_a_circle(in_collectives, round):
        return [*(_finding(each, waiting, round) for each in _roots(proven)), *ring]
    anyone = not across or any(not each.place.peers for each in waiting)
    if waiting and any(_comes_on(each) and (anyone or each.worker.rank in awaited) for each in others):
        return [_finding(each, waiting, round) for each in _roots(proven)]
    if waiting and any(own_patience(each, least) < min(patience, PATIENT) for each in still if each not in stuck):
        # Until a moment ago one has come on, and the others may have waited for that.
        stuck = [each for each in stuck if each.place.sure or each in proven]
    if apart and stuck == others and len(others) > max(1, len(waiting)) and _ask_alike(others):
        # Most ask again and again whether something has come, and the few are not there.
        # Who has left that place a moment ago may be on its way.
        return _odd(waiting, others, "strong", round) if all(each.place.still for each in waiting) else []
    if waiting and stuck:
        # Who waits for an accelerator may wait for a rank that is stuck in another way, or for the few that are apart.
        causes = [each for each in stuck if each.place.what != "device"]
        if causes or len(on_devices) <= len(waiting):
            return _causes(_roots(causes or stuck), waiting, round)
        return []
    # Some come on; and who waits in a loop for each result looks like one that waits for ever.
    if any(map(_comes_on, others)) or spin or any(each.place.what == "device" for each in others):
        return []
    if waiting and not all(each.place.still for each in waiting):
        return []
    if waiting and not others:
        if ended:
            strength: Strength = "strong" if apart else "weak"  # who waits in native code may wait for something else
            if len(ended) > len(waiting):  # most have come to their end: who waits for all of them has more to do
                more = calls.wait_for(_calls(waiting), {each.worker.rank: None for each in ended})
                return _odd(waiting, waiting, strength if more else "weak", round)
            return [_name(each, "uneven-steps", strength, "", waiting, round) for each in ended]
        return _all_wait(waiting, round, whole=whole, seen=seen) if apart or hidden else []
    if any(each.place.wakes and may_come_on(each.worker) for each in others):
        return []
    if waiting and whole and seen and all(each.place.still for each in others):
        return [_standstill(living, round)]
    if waiting or not whole:
        return []
    if stuck and len(stuck) == len(living):
        roots = _roots(stuck)
        chained = [each for each in stuck if each not in roots and each.place.what in _MAY_WAIT_FOR_RANKS]
        # What all ranks of a job wait for may come, by design.
        # Who looks again and again may wait for one that has ended.
        if 0 < len(ended) < len(living) and whole and seen and _ask_alike(living):
            return [_name(each, "uneven-steps", "strong", "", living, round) for each in ended]
        last = [each for each in roots if ended and each.place.what not in _MAY_WAIT_FOR_RANKS]
        faults = [each for each in roots if each.place.sure and each.place.what == "lock"]  # also where nobody waits
        found = [_finding(each, chained, round, design=not (chained or each in (*last, *faults))) for each in roots]
        return found if seen else [each for each in found if each.strength == "certain"]
    if seen and still and len(still) == len(living):
        return [_standstill(living, round)]
    return []


def _is_alike(each: Rank, waiting: Sequence[Rank]) -> bool:
    """The others wait in the same place of the script, so by design: for work that comes from outside, say."""
    alike = all(one.place.spot == each.place.spot and one.place.what != "either" for one in waiting)
    return alike and bool(each.place.spot) and not each.place.sure


def _ask_alike(those: Sequence[Rank]) -> bool:
    """All ask in the same functions of the script for what may come from another rank."""
    alike = len(set(map(_functions, those))) == 1
    asks = (each.place.what in _MAY_WAIT_FOR_RANKS - {"either"} and not each.place.stays for each in those)
    return alike and all(asks) and not any(each.place.sure or not each.place.spot for each in those)


def _functions(each: Rank) -> tuple[tuple[str, str], ...]:
    """Those of the script in which it is."""
    return tuple((file, function) for file, line, function in each.place.spot if line)


def _comes_on(each: Rank) -> bool:
    return not each.place.still and each.place.what not in ("device", "idle")


def _roots(stuck: Sequence[Rank]) -> Sequence[Rank]:
    """Those to name: none that may wait for another of them; one for each place, where many are stuck alike."""
    stuck = [each for each in stuck if each.place.what not in _MAY_WAIT_FOR_RANKS or each.place.sure] or stuck
    seen: set[tuple[object, ...]] = set()
    roots = list[Rank]()
    for each in stuck:
        key = (each.place.what, each.place.spot) if len(stuck) > 4 and each.place.spot else (each.worker.rank,)
        if key not in seen:
            roots.append(each)
            seen.add(key)
    return roots


def _causes(roots: Sequence[Rank], waiting: Sequence[Rank], round: int) -> list[Finding]:
    """Of several that are in different places, or may wait for another one, one may be right."""
    differ = len(set(map(_functions, roots))) > 1
    found = list[Finding]()
    for each in roots:
        unsure = len(roots) > 1 and not each.place.sure and (differ or each.place.what in _MAY_WAIT_FOR_RANKS)
        found.append(_finding(each, waiting, round, design=unsure or _is_alike(each, waiting)))
    return found


def _knows_holder(worker: Worker) -> bool:
    """Whether the kernel tells who holds the lock on a file for which it waits."""
    return any(each.blocked.holders for look in worker.snapshots for each in (look, *look.threads))


def _finding(suspect: Rank, waiting: Sequence[Rank], round: int, *, design: bool = False) -> Finding:
    kind = _KINDS.get(suspect.place.what, "silent-server")  # it waits for whoever connects
    worker = suspect.worker
    dead = [child for child in worker.children if child.state in DEAD]
    halted = [child for child in worker.children if child.state in HALTED]
    where = suspect.place.where
    if dead and lost_child(suspect):
        kind, where = "loader-died", _also(where, f"process {dead[0].pid} ({dead[0].name}) has ended")
    elif halted and lost_child(suspect):
        kind, where = "stopped", _also(where, f"its process {halted[0].pid} ({halted[0].name})")
    known = not waiting or any(
        each.place.peers or (each.place.what != "peer" and not each.worker.spins) for each in waiting
    )
    known = known and (kind != "file-lock" or _knows_holder(worker))  # else it may be one of those that wait
    strength = _STRENGTH.get(kind, "strong" if known and not design else "weak")
    return _name(suspect, kind, strength, where, waiting, round)


def _name(
    suspect: EndedRank, kind: Kind, strength: Strength, where: str, waiting: Sequence[Rank], round: int
) -> Finding:
    worker, alone = suspect.worker, [suspect] if isinstance(suspect, Rank) else []
    numbers = tuple(each.worker.rank for each in waiting)
    since = _since(waiting or alone)
    places_of = common_place(waiting)
    return Finding(
        kind, worker.rank, suspect.node, strength, where, numbers, places_of, since, worker.last_lines, round
    )


def _odd(odd: Sequence[Rank], most: Sequence[Rank], strength: Strength, round: int) -> list[Finding]:
    """They are elsewhere than most."""
    others = [each for each in most if each not in odd]
    return [_name(each, "mismatched-collective", strength, each.place.where, others, round) for each in odd[:4]]


def _standstill(living: Sequence[Rank], round: int, why: str = "") -> Finding:
    """Where the ranks are, of which none is proven to be the cause; `why`: what is known of all."""
    groups: dict[tuple[str, str], list[int]] = {}
    for each in living:
        missing = f" ({each.worker.stacks})" if each.worker.stacks else ""
        bare = "" if has_stack(each.worker) else f" or a lock: there is no Python stack{missing}"
        kind = _KINDS.get(each.place.what)
        does = WORDS[kind] if kind else "waits"
        if each.place.what in WAITS_FOR_RANKS or (bare and each.place.what == "either"):
            does = f"waits for another rank{bare}"
        elif each.place.what == "either" and each.place.own_lock:
            does = "waits for a lock of its own process"
        else:
            does = _UNPROVEN.get(each.place.what, does)
        groups.setdefault((does, each.place.where), []).append(each.worker.rank)
    shown = [f"{ranks(those)}: {_also(does, where)}" for (does, where), those in [*groups.items()][:4]]
    return Finding("standstill", None, "", "weak", why + "; ".join(shown), seconds=_since(living), round=round)


def _also(where: str, more: str) -> str:
    return f"{where}; {more}" if where else more


def _since(ranks: Sequence[Rank]) -> float:
    return max(map(seconds_waited, ranks), default=0.0)


def _all_wait(waiting: Sequence[Rank], round: int, *, whole: bool, seen: bool) -> list[Finding]:
    """All ranks wait for each other; those of one role may wait for another, unless they are the `whole` job.

    Where not all are `seen`, they may wait for one that is not.
    """
    if whole and seen and (found := _of_other_roots(waiting, round)):
        return found
    meeting = [each for each in waiting if not each.place.locked_by]  # who waits for a lock may be on its way
    known = seen and all(each.place.spot for each in meeting)
    spots = Counter[object](_point(each) for each in meeting if known)
    if len(waiting) > 2 and (one := calls.awaited_by_all(_calls(waiting))) is not None:
        return _odd([each for each in waiting if each.worker.rank == one], waiting, "strong", round)
    if len(spots) > 1:
        most, count = spots.most_common(1)[0]
        majority = [each for each in meeting if _point(each) == most]
        odd = [each for each in meeting if _point(each) != most]
        tie = list(spots.values()).count(count) > 1
        if tie:  # of two ranks, say: who is further on has left something out
            odd = [max(meeting, key=lambda each: [line for _, line, _ in reversed(each.place.spot)])]
            majority = [each for each in meeting if each is not odd[0]]
        # An operation with a root ends for each rank at another time: who waits in it, or has left it, may be right.
        unsure = tie or not calls.wait_for(_calls(majority), _calls(odd))
        # Nor is it known what a call of native code waits for, and whose other threads wait for what.
        unsure = unsure or len({each.place.main for each in meeting}) > 1
        # What is received from anybody may come from another thread.
        unsure = unsure or (any(map(_receives_from_any, meeting)) and not all(each.place.alone for each in meeting))
        hidden = any(each.place.what == "either" for each in meeting)
        # A rank may wait for a function that another one runs, and that one for a third.
        unsure = unsure or (
            any(each.place.what == "peer" for each in odd) and any(each.place.serves for each in meeting)
        )
        # Behind a connection may be a server in another rank's process, which answers by itself.
        hidden = hidden or any(each.place.what == "peer" for each in odd)
        unsure = unsure or (hidden and _since(meeting) < PATIENT * min(each.worker.allowed for each in meeting))
        strength: Strength = "weak" if unsure else "strong"
        return _odd(odd, majority, strength, round)
    for each in waiting:  # whose data does not arrive
        if lost := [one for one in each.worker.connections if one.unsent and one.retries >= 2]:
            peers = [other for other in waiting if other is not each]
            return [_name(each, "lost-route", "strong", f"to {lost[0].remote}", peers, round)]
    return [_standstill(waiting, round)] if len(waiting) > 1 and whole and seen else []


def _point(each: Rank) -> object:
    """What is equal for ranks that meet: the place in the script, and the root of the operation, where it has one."""
    return each.place.spot, calls.root(each.place.call)


def _receives_from_any(each: Rank) -> bool:
    return calls.from_any(each.place.call)


def _in_a_circle(waiting: Sequence[Rank], round: int) -> list[Finding]:
    """Ranks each of which waits for the next one alone, whatever the others do."""
    ranked = {each.worker.rank: each for each in waiting if each.place.still and each.place.alone}
    if calls.odd(_calls([*ranked.values()])):
        return []  # of most that wait for one root, and one that waits for another, that one is wrong
    holders = {rank: min(each.place.locked_by) for rank, each in ranked.items() if each.place.locked_by}
    known = _calls([each for each in ranked.values() if each.place.what == "collective" or each.place.locked_by])
    if not (ring := calls.circle(known, holders)):
        return []
    first, *others = (ranked[rank] for rank in ring)
    kind: Kind = "file-lock" if first.place.locked_by else "mismatched-messages"
    return [_name(first, kind, "strong", first.place.where, others, round)]


def _of_other_roots(waiting: Sequence[Rank], round: int) -> list[Finding]:
    """Those that are in one operation with the others, and give it another root than most."""
    odd = calls.odd(_calls(waiting)) if len({each.place.spot for each in waiting}) == 1 else ()
    return _odd([each for each in waiting if each.worker.rank in odd], waiting, "strong", round)


def _calls(those: Sequence[Rank]) -> Mapping[int, Frame | None]:
    return {each.worker.rank: each.place.call for each in those}
