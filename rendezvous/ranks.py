"""Who gets which rank (pure).

Survivors keep their order, newcomers come after them in order of arrival, and nodes with one topology label stand
together. So rank 0 stays on its machine while that machine lives, and a script that writes its checkpoints from
rank 0 finds them again. Where workers continue in a job with roles, no rank moves: those of a lost node are free until
another takes them (`keep_ranks`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from .base.frozen import dataclass, replace
from .member import MAX_WORKERS, Member
from .wire.fields import Name, Number
from .wire.values import Text, Within

PORT_SETS = 2
"""A node holds each port of its workers twice, and their starts take the sets in turn: what is left of one start never
meets the next."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one node does in one round: workers with the global ranks `first_rank .. first_rank + nproc - 1`.

    Attributes:
        node, incarnation: whose it is; another incarnation of the node has no part in it.
        group_rank, group_size: the node's rank among the round's nodes, and one more than the highest; some may be
            free where nodes have gone alone (see `roles.py`).
        first_rank, nproc, world_size: its workers among all workers, likewise.
        role_first_rank, role_world_size: its workers among those of the same role.
        since: workers that the node started for this round, or a later one before `round`, go on in `round`, with the
            ranks that they have; 0: it starts them anew.
        port_set: which of the sets of ports that the node holds is its workers' (`peers.py`).
        agent_address: as in `Member`; for a master that finds the node's own key gone.
    """

    round: Number
    node: Name
    incarnation: Name
    group_rank: Number
    group_size: Number
    first_rank: Number
    nproc: Annotated[int, Within(1, MAX_WORKERS)]
    world_size: Number
    role_first_rank: Number
    role_world_size: Number
    agent_address: Annotated[str, Text(300, printable=True)] = ""
    role: Name = "default"
    since: Number = 0
    port_set: Annotated[int, Within(0, PORT_SETS - 1)] = 0

    @property
    def ranks(self) -> range:
        """Of its workers."""
        return range(self.first_rank, self.first_rank + self.nproc)

    @property
    def fits(self) -> bool:
        """Its numbers agree with each other."""
        return (
            self.group_rank < self.group_size
            and self.first_rank + self.nproc <= self.world_size
            and self.role_first_rank + self.nproc <= self.role_world_size <= self.world_size
        )


@dataclass(frozen=True, slots=True)
class NodeRanks:
    """The numbers of a node and of its first worker, as in `Assignment`."""

    group_rank: int
    first_rank: int
    role_first_rank: int


@dataclass(frozen=True, slots=True)
class NodeWorkers:
    """The workers of a node in a round: their role, how many there are, and their place; None: after those before."""

    role: str
    nproc: int
    place: NodeRanks | None = None


@dataclass(frozen=True, slots=True)
class RoleRanks:
    """Who has a role: `nodes` nodes with `ranks` workers, the first of which has the global rank `first_rank`."""

    role: Name
    nodes: Number
    first_rank: Number
    ranks: Number


def order(survivors: Sequence[Member], newcomers: Sequence[Member]) -> tuple[Member, ...]:
    """The nodes in rank order: survivors as they were, then newcomers, equal topology labels together.

    Args:
        survivors: in their old rank order.
        newcomers: in order of arrival. Those that asked for a rank (`--node-rank`) stand first, by that rank.
    """
    asked = sorted(
        newcomers, key=lambda member: (member.node_rank is None, member.node_rank or 0)
    )  # stable: arrival order decides among equals
    line = (*survivors, *asked)
    labels = list(dict.fromkeys(member.topology for member in line))
    return tuple(sorted(line, key=lambda member: labels.index(member.topology)))


def own_workers(nodes: Sequence[Member]) -> tuple[NodeWorkers, ...]:
    """The workers of nodes in a job without roles: of the role, and as many, as each node says."""
    return tuple(NodeWorkers(member.role, member.nproc) for member in nodes)


def assign(
    round_number: int,
    nodes: Sequence[Member],
    held: Sequence[NodeWorkers] = (),
    before: Mapping[str, Assignment] | None = None,
    untouched: Mapping[str, int] | None = None,
) -> tuple[Assignment, ...]:
    """The assignments of a round whose nodes stand in rank order.

    Args:
        held: the workers of each of them; empty in a job without roles.
        before: by incarnation, the assignments of the round before. Workers that start anew have other ports than
            those before them on their node, of which something may still be there.
        untouched: by incarnation, of those whose workers continue: the round for which these were started.
    """
    held = held or own_workers(nodes)
    since = untouched or {}
    # An agent that has registered again has another incarnation, and the ports that it had.
    last = {each.agent_address: each.port_set for each in (before or {}).values() if each.agent_address}
    last |= {each.incarnation: each.port_set for each in (before or {}).values()}

    def port_set(member: Member) -> int:
        number = last.get(member.incarnation, last.get(member.agent_address))
        if number is None:
            return 0
        return number if member.incarnation in since else (number + 1) % PORT_SETS

    stand = places(held)
    role_sizes: dict[str, int] = {}
    for workers, place in zip(held, stand, strict=True):
        role_sizes[workers.role] = max(role_sizes.get(workers.role, 0), place.role_first_rank + workers.nproc)
    ends = (place.first_rank + workers.nproc for workers, place in zip(held, stand, strict=True))
    world_size = max((*ends, *role_sizes.values()), default=0)
    group_size = max((place.group_rank + 1 for place in stand), default=0)

    return tuple(
        Assignment(
            round=round_number,
            node=member.node,
            incarnation=member.incarnation,
            group_rank=place.group_rank,
            group_size=group_size,
            first_rank=place.first_rank,
            nproc=workers.nproc,
            world_size=world_size,
            role_first_rank=place.role_first_rank,
            role_world_size=role_sizes[workers.role],
            agent_address=member.agent_address,
            role=workers.role,
            since=since.get(member.incarnation, 0),
            port_set=port_set(member),
        )
        for member, workers, place in zip(nodes, held, stand, strict=True)
    )


def places(held: Sequence[NodeWorkers]) -> tuple[NodeRanks, ...]:
    """Where the workers of each node stand, in rank order."""
    group_rank = first_rank = 0
    role_ends: dict[str, int] = {}
    found: list[NodeRanks] = []
    for workers in held:
        place = workers.place or NodeRanks(group_rank, first_rank, role_ends.get(workers.role, 0))
        found.append(place)
        group_rank, first_rank = place.group_rank + 1, place.first_rank + workers.nproc
        role_ends[workers.role] = place.role_first_rank + workers.nproc
    return tuple(found)


def keep_ranks(
    nodes: Sequence[Member], held: Sequence[NodeWorkers], stand: Mapping[str, NodeRanks]
) -> tuple[tuple[Member, NodeWorkers], ...]:
    """The nodes in rank order where no rank moves: others get the lowest numbers that are free.

    Args:
        held: the workers of each of them.
        stand: by incarnation, the place of those that have one.
    """
    nodes_taken: list[range] = []
    taken: list[range] = []
    in_role: dict[str, list[range]] = {}

    def put_at(workers: NodeWorkers, place: NodeRanks) -> NodeWorkers:
        nodes_taken.append(range(place.group_rank, place.group_rank + 1))
        taken.append(range(place.first_rank, place.first_rank + workers.nproc))
        first = place.role_first_rank
        in_role.setdefault(workers.role, []).append(range(first, first + workers.nproc))
        return replace(workers, place=place)

    pairs = list(zip(nodes, held, strict=True))
    placed = [(member, put_at(w, stand[member.incarnation])) for member, w in pairs if member.incarnation in stand]
    for member, workers in pairs:
        if member.incarnation not in stand:
            first, role_first = (_free(some, workers.nproc) for some in (taken, in_role.get(workers.role, ())))
            placed.append((member, put_at(workers, NodeRanks(_free(nodes_taken, 1), first, role_first))))
    return tuple(sorted(placed, key=lambda pair: pair[1].place.group_rank if pair[1].place else 0))


def _free(taken: Iterable[range], count: int) -> int:
    """The first of the lowest `count` numbers in a row that are free."""
    start = 0
    for each in sorted(taken, key=lambda each: each.start):
        if start + count <= each.start:
            break
        start = max(start, each.stop)
    return start


def by_role(held: Sequence[NodeWorkers]) -> tuple[RoleRanks, ...]:
    """The ranks of each role, whose nodes are neighbours unless nodes have come or gone alone."""
    found: dict[str, RoleRanks] = {}
    for workers, place in zip(held, places(held), strict=True):
        known = found.get(workers.role) or RoleRanks(workers.role, 0, place.first_rank, 0)
        found[workers.role] = replace(known, nodes=known.nodes + 1, ranks=known.ranks + workers.nproc)
    return tuple(found.values())
