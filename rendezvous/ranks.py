"""Who gets which rank (pure).

Survivors keep their order, newcomers come after them in order of arrival, and nodes with one topology label stand
together. So rank 0 stays on its machine while that machine lives, and a script that writes its checkpoints from
rank 0 finds them again.
"""

from collections.abc import Mapping, Sequence
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
        group_rank, group_size: the node's rank among the round's nodes, and how many these are.
        first_rank, nproc, world_size: its workers among all workers.
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
class NodeWorkers:
    """The workers of a node in a round: their role, and how many there are."""

    role: str
    nproc: int


@dataclass(frozen=True, slots=True)
class Span:
    """The ranks of a node's workers, as in `Assignment`."""

    first_rank: int
    world_size: int
    role_first_rank: int
    role_world_size: int


@dataclass(frozen=True, slots=True)
class RoleRanks:
    """Who has a role: `nodes` nodes, with the global ranks `first_rank .. first_rank + ranks - 1`."""

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

    return tuple(
        Assignment(
            round=round_number,
            node=member.node,
            incarnation=member.incarnation,
            group_rank=group_rank,
            group_size=len(nodes),
            first_rank=span.first_rank,
            nproc=workers.nproc,
            world_size=span.world_size,
            role_first_rank=span.role_first_rank,
            role_world_size=span.role_world_size,
            agent_address=member.agent_address,
            role=workers.role,
            since=since.get(member.incarnation, 0),
            port_set=port_set(member),
        )
        for group_rank, (member, workers, span) in enumerate(zip(nodes, held, spans(held), strict=True))
    )


def spans(held: Sequence[NodeWorkers]) -> tuple[Span, ...]:
    """The ranks of each node's workers, in rank order."""
    world_size = sum(workers.nproc for workers in held)
    role_sizes: dict[str, int] = {}
    for workers in held:
        role_sizes[workers.role] = role_sizes.get(workers.role, 0) + workers.nproc
    first_rank = 0
    role_first: dict[str, int] = dict.fromkeys(role_sizes, 0)
    found: list[Span] = []
    for workers in held:
        found.append(Span(first_rank, world_size, role_first[workers.role], role_sizes[workers.role]))
        first_rank += workers.nproc
        role_first[workers.role] += workers.nproc
    return tuple(found)


def by_role(held: Sequence[NodeWorkers]) -> tuple[RoleRanks, ...]:
    """The ranks of each role; roles have neighbouring nodes."""
    found: dict[str, RoleRanks] = {}
    for workers, span in zip(held, spans(held), strict=True):
        known = found.get(workers.role) or RoleRanks(workers.role, 0, span.first_rank, span.role_world_size)
        found[workers.role] = replace(known, nodes=known.nodes + 1)
    return tuple(found.values())
