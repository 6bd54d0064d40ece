"""How many nodes the job wants, and why (pure): what a person with machines, or a node manager, brings it up to.

A target is a wish and no condition: the job trains with any number between its minimum and its maximum. Nodes beyond a
target would only wait as standbys.
"""

from collections import Counter

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import HeaderState
from ...rendezvous.reasons import Finishing, JobOver, KeepsItsSize, MayHave, TargetReason
from ...rendezvous.round import Policy, Round
from ...rendezvous.wire.fields import Name, Number


@dataclass(frozen=True, slots=True)
class Target:
    """So many nodes are wanted.

    Attributes:
        role: for which role; empty in a job without roles.
        count: nodes in all, those that are there included.
    """

    role: Name
    count: Number
    reason: TargetReason


def targets(current: Round, policy: Policy, *, finishing: bool, ended: HeaderState | None = None) -> tuple[Target, ...]:
    """One target, or one for each role in the declared order.

    Args:
        current, policy: as in `round.decide`.
        finishing: as in `round.Survey`.
        ended: how the job has ended; None while it continues.
    """
    spans = [(role.name, role.min_nodes, role.max_nodes) for role in policy.roles]
    if not spans:
        spans = [("", policy.usable_minimum, policy.usable(policy.max_nodes))]
    if ended:
        return tuple(Target(role, 0, JobOver(ended)) for role, _, _ in spans)
    has = Counter(workers.role for workers in current.node_workers) if policy.roles else {"": len(current.nodes)}
    if current.running and finishing:
        return tuple(Target(role, has[role], Finishing(current.number)) for role, _, _ in spans)
    if current.running and policy.scale_up == "never":
        return tuple(Target(role, has[role], KeepsItsSize()) for role, _, _ in spans)
    return tuple(Target(role, most, MayHave(role, least, most)) for role, least, most in spans)
