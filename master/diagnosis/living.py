"""The ranks of a round: where each is, and for whom it waits, as far as the others' evidence tells that (pure)."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from ...rendezvous.base.frozen import dataclass, replace
from . import places
from .evidence import Answer, Ends, NodeEvidence, Worker, end, ends_of
from .places import Place

QUIET = 0.5
"""Of the shortest time that a rank may be quiet: for so long a suspect must have been quiet."""


@dataclass(frozen=True, slots=True)
class EndedRank:
    """One that has ended, with its node and role."""

    node: str
    role: str
    worker: Worker


@dataclass(frozen=True, slots=True)
class Rank(EndedRank):
    place: Place


def workers_of(answers: Sequence[Answer], round: int) -> list[tuple[str, NodeEvidence, Worker]]:
    """All that are of the round, with their roles and nodes."""
    found = ((each.role, each.evidence) for each in answers if each.evidence and each.evidence.round == round)
    return [(role, node, worker) for role, node in found for worker in node.workers]


def living_ranks(workers: Sequence[tuple[str, NodeEvidence, Worker]]) -> list[Rank]:
    """Those that live; `workers`: see `workers_of`."""
    those = [(node.network, worker) for _, node, worker in workers]
    ends = ends_of(those)
    bar = QUIET * min((worker.allowed for _, _, worker in workers if worker.allowed), default=0.0)
    found = [
        Rank(node.node, role, worker, places.place(node.network, worker, ends, bar))
        for role, node, worker in workers
        if worker.ended is None and worker.snapshots
    ]
    if _have_whole_groups(those, ends):
        found = [_in_one_group(each) if each.place.alone else each for each in found]
    found = _at_a_store_of_ranks(found, {worker.rank: network for network, worker in those}, ends)
    if any(each.place.serves for each in found):
        found = [_behind_a_call(each) if each.place.main and each.place.what == "either" else each for each in found]
    return _behind_locks(found)


def _have_whole_groups(workers: Sequence[tuple[str, Worker]], ends: Ends) -> bool:
    """Whether all process groups have all ranks: then any two have as many connections as there are such groups.

    Gloo connects each two ranks of a group, and each rank has a listener of its own for each of its groups. At the
    listener of one of them all others have called.
    """
    ranks = {worker.rank for _, worker in workers}
    between, whole = Counter[frozenset[int]](), 0
    for network, worker in workers:
        callers = {_port(each.local): Counter[int]() for each in worker.connections if each.listens}
        for each in worker.connections:
            other = ends.get(end(network, each.remote))
            if other is not None and not each.listens and _port(each.local) in callers:
                callers[_port(each.local)][other] += 1
        for those in callers.values():
            if worker.rank not in those:  # else it is that of a store
                whole += set(those) == ranks - {worker.rank}
                between.update({frozenset((worker.rank, other)): times for other, times in those.items()})
    return len(ranks) > 2 and all(between[frozenset(pair)] == whole > 0 for pair in combinations(ranks, 2))


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _in_one_group(each: Rank) -> Rank:
    """Its call, as one of all ranks, whatever group it was given."""
    call = each.place.call
    given = ", ".join(one for one in call.arguments.split(", ") if one != "group=...") if call else ""
    return replace(each, place=replace(each.place, call=call and replace(call, arguments=given)))


def _at_a_store_of_ranks(living: Sequence[Rank], networks: Mapping[int, str], ends: Ends) -> list[Rank]:
    """Who waits for a store in its own process, for which others wait, too, waits for a rank, as they do."""
    remotes = {
        each.worker.rank: {end(networks[each.worker.rank], one.remote) for one in each.worker.blocked.sockets}
        for each in living
    }

    def waits(each: Rank) -> bool:
        own = {one for one in remotes[each.worker.rank] if ends.get(one) == each.worker.rank}
        return any(own & others for rank, others in remotes.items() if rank != each.worker.rank)

    return [
        replace(each, place=replace(each.place, what="peer")) if each.place.what == "server" and waits(each) else each
        for each in living
    ]


def _behind_a_call(each: Rank) -> Rank:
    """Native code in which it waits may wait for a function that another rank runs."""
    return replace(each, place=replace(each.place, what="peer"))


def _behind_locks(living: Sequence[Rank]) -> list[Rank]:
    """Who waits for the lock on a file waits for the ranks that hold it, where these are known."""
    whose = {
        (each.node, pid): each.worker.rank
        for each in living
        for pid in (each.worker.pid, *(child.pid for child in each.worker.children))
    }
    found = list[Rank]()
    for each in living:
        known = {whose[holder] for pid in each.place.locked_by if (holder := (each.node, pid)) in whose}
        place = replace(each.place, locked_by=frozenset(known - {each.worker.rank}))
        place = replace(place, what="peer", peers=place.locked_by) if place.locked_by else place
        found.append(replace(each, place=place))
    return found


def common_place(waiting: Sequence[Rank]) -> str:
    """Where most of them are, without the arguments of a call where these are not all alike."""
    counted = Counter(each.place.spot or each.place.where for each in waiting if each.place.where)
    if not counted:
        return ""
    most = counted.most_common(1)[0][0]
    there = {each.place.where for each in waiting if most in (each.place.spot, each.place.where)}
    return there.pop() if len(there) == 1 else re.sub(r"\([^)]*\)", "()", min(there))
