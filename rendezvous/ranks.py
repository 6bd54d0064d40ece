"""Who gets which rank (pure).

Survivors keep their order, newcomers come after them in order of arrival, and nodes with one topology label stand
together. So rank 0 stays on its machine while that machine lives, and a script that writes its checkpoints from
rank 0 finds them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from .member import MAX_WORKERS, Member, Name, Number
from .wire.values import Text, Within


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one node does in one round: workers with the global ranks `first_rank .. first_rank + nproc - 1`.

    Attributes:
        round: the round's number.
        node, incarnation: whose it is; another incarnation of the node has no part in it.
        group_rank, group_size: the node's place among the round's nodes.
        first_rank, nproc, world_size: its workers' place among all workers.
        role_first_rank, role_world_size: their place among the workers of the same role.
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

    @property
    def fits(self) -> bool:
        """Its numbers agree with each other."""
        return (
            self.group_rank < self.group_size
            and self.first_rank + self.nproc <= self.world_size
            and self.role_first_rank + self.nproc <= self.role_world_size <= self.world_size
        )


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


def assign(round_number: int, nodes: Sequence[Member]) -> tuple[Assignment, ...]:
    """The assignments of a round whose nodes stand in rank order."""
    world_size = sum(member.nproc for member in nodes)
    role_sizes: dict[str, int] = {}
    for member in nodes:
        role_sizes[member.role] = role_sizes.get(member.role, 0) + member.nproc
    first_rank = 0
    role_first: dict[str, int] = dict.fromkeys(role_sizes, 0)
    assignments: list[Assignment] = []
    for group_rank, member in enumerate(nodes):
        assignments.append(
            Assignment(
                round=round_number,
                node=member.node,
                incarnation=member.incarnation,
                group_rank=group_rank,
                group_size=len(nodes),
                first_rank=first_rank,
                nproc=member.nproc,
                world_size=world_size,
                role_first_rank=role_first[member.role],
                role_world_size=role_sizes[member.role],
                agent_address=member.agent_address,
            )
        )
        first_rank += member.nproc
        role_first[member.role] += member.nproc
    return tuple(assignments)
