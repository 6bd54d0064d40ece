"""Who gets which rank (pure).

Survivors keep their order, newcomers come after them in order of arrival, and nodes with one topology label stand
together. So rank 0 stays on its machine while that machine lives, and a script that writes its checkpoints from
rank 0 finds them again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from .fields import Name, Number
from .member import MAX_WORKERS, Member
from .wire.values import Text, Within


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one node does in one round: workers with the global ranks `first_rank .. first_rank + nproc - 1`.

    Attributes:
        round: the round's number.
        node, incarnation: whose it is; another incarnation of the node has no part in it.
        group_rank, group_size: the node's place among the round's nodes.
        first_rank, nproc, world_size: its workers' place among all workers.
        role: of its workers.
        role_first_rank, role_world_size: their place among the workers of the same role.
        since: workers that the node started for this round, or a later one before `round`, go on in `round`, with the
            ranks that they have; 0: it starts them anew.
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

    @property
    def fits(self) -> bool:
        """Its numbers agree with each other."""
        return (
            self.group_rank < self.group_size
            and self.first_rank + self.nproc <= self.world_size
            and self.role_first_rank + self.nproc <= self.role_world_size <= self.world_size
        )


@dataclass(frozen=True, slots=True)
class Place:
    """What a node of a round does: which role's workers it has, and how many."""

    role: str
    nproc: int


@dataclass(frozen=True, slots=True)
class Span:
    """The ranks of a place, as in `Assignment`."""

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


def places(nodes: Sequence[Member]) -> tuple[Place, ...]:
    """What nodes do in a job without roles: each has the role that it names."""
    return tuple(Place(member.role, member.nproc) for member in nodes)


def assign(
    round_number: int, nodes: Sequence[Member], held: Sequence[Place] = (), since: Mapping[str, int] | None = None
) -> tuple[Assignment, ...]:
    """The assignments of a round whose nodes stand in rank order.

    Args:
        held: what each of them does; empty in a job without roles.
        since: of incarnations whose workers go on: the round for which these were started.
    """
    held = held or places(nodes)
    since = since or {}
    return tuple(
        Assignment(
            round=round_number,
            node=member.node,
            incarnation=member.incarnation,
            group_rank=group_rank,
            group_size=len(nodes),
            first_rank=span.first_rank,
            nproc=place.nproc,
            world_size=span.world_size,
            role_first_rank=span.role_first_rank,
            role_world_size=span.role_world_size,
            agent_address=member.agent_address,
            role=place.role,
            since=since.get(member.incarnation, 0),
        )
        for group_rank, (member, place, span) in enumerate(zip(nodes, held, spans(held), strict=True))
    )


def spans(held: Sequence[Place]) -> tuple[Span, ...]:
    """The ranks of each place, in rank order."""
    world_size = sum(place.nproc for place in held)
    role_sizes: dict[str, int] = {}
    for place in held:
        role_sizes[place.role] = role_sizes.get(place.role, 0) + place.nproc
    first_rank = 0
    role_first: dict[str, int] = dict.fromkeys(role_sizes, 0)
    found: list[Span] = []
    for place in held:
        found.append(Span(first_rank, world_size, role_first[place.role], role_sizes[place.role]))
        first_rank += place.nproc
        role_first[place.role] += place.nproc
    return tuple(found)


def by_role(held: Sequence[Place]) -> tuple[RoleRanks, ...]:
    """The ranks of each role; roles have neighbouring nodes."""
    found: dict[str, RoleRanks] = {}
    for place, span in zip(held, spans(held), strict=True):
        known = found.get(place.role) or RoleRanks(place.role, 0, span.first_rank, span.role_world_size)
        found[place.role] = replace(known, nodes=known.nodes + 1)
    return tuple(found.values())
