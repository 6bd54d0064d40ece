"""Which slow rank's node gives way to a standby (pure).

The others wait for a rank because its machine is slow, or because the rank has more to do: rank 0 evaluates, or a shard
is larger. From outside the two look alike, so that is tried once for each rank of a world: where the rank is slow on
another node, too, the machine is not the cause, and no further standby is spent on it.
"""

from collections.abc import Collection, Mapping, Sequence

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.member import Member
from ...rendezvous.ranks import Assignment
from .findings import Finding

Place = tuple[int, int]
"""A rank, and the world size in which it has its work."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """About one slow rank.

    Attributes:
        finding: says which rank, and of which kind.
        leaves: the node that gives way; None where it stays.
        words: for a person: that it leaves, or why it stays.
    """

    finding: Finding
    leaves: Assignment | None
    words: str


def verdicts(
    findings: Sequence[Finding],
    before: Collection[int | None],
    assigned: Sequence[Assignment],
    standbys: Sequence[Member],
    tried: Mapping[Place, str],
    *,
    roles: bool,
) -> tuple[Verdict, ...]:
    """About each rank that was slow at two comparisons in a row; at most one node leaves at a time.

    Args:
        findings: of this comparison.
        before: the ranks that were slow at the one before.
        assigned: the round's nodes.
        standbys: nodes that could have a part in the round.
        tried: for which ranks a node has given way, and which.
        roles: the job has roles, so that a standby may take only some.
    """
    found = list[Verdict]()
    for finding in findings:
        node = next((each for each in assigned if finding.rank in each.ranks), None)
        if node is None or finding.rank is None or finding.rank not in before:
            continue
        able = [
            each
            for each in standbys
            if each.node not in tried.values() and (not roles or each.node_role in ("", node.role))
        ]
        first = tried.get((finding.rank, node.world_size), node.node)
        if first != node.node:
            words = f"rank {finding.rank} was slow on node {first}, too: the machine is not the cause"
            found.append(Verdict(finding, None, f"{words}, and {node.node} stays"))
        elif not able:
            found.append(Verdict(finding, None, f"node {node.node} stays: no standby could take its place"))
        elif not any(each.leaves for each in found):
            words = f"node {node.node} is told to leave, so that a standby takes its place"
            found.append(Verdict(finding, node, words))
    return tuple(found)
