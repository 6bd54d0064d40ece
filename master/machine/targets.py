"""How many nodes the job wants, and why (pure): what a person with machines, or a node manager, brings it up to.

A target is a wish and no condition: the job trains with any number between its minimum and its maximum. Nodes beyond a
target would only wait as standbys. The leader writes them to a key when they change, and the node manager watches it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import HeaderState
from ...rendezvous.reasons import Finishing, JobOver, KeepsItsSize, MayHave, TargetReason
from ...rendezvous.roles import MAX_ROLES
from ...rendezvous.round import Policy, Round
from ...rendezvous.wire.fields import Name, Number, Sentence, Words
from ...rendezvous.wire.values import Count, Malformed, decode, encode


@dataclass(frozen=True, slots=True)
class PlannedSize(Sentence):
    """The job's plan says so (`--plan`): `why`, which begins with the number."""

    why: Words
    words = "{0.why}"


@dataclass(frozen=True, slots=True)
class Target:
    """So many nodes are wanted.

    Attributes:
        role: for which role; empty in a job without roles.
        count: nodes in all, those that are there included.
    """

    role: Name
    count: Number
    reason: TargetReason | PlannedSize


@dataclass(frozen=True, slots=True)
class Targets:
    """All of a job's, as they lie in the store: one, or one for each role in the declared order."""

    wanted: Annotated[tuple[Target, ...], Count(MAX_ROLES)] = ()


def plan_words(wanted: Sequence[Target]) -> list[str]:
    """What the job's plan says of its number of nodes, in a sentence; none where it has no plan."""
    return [str(each.reason) for each in wanted if isinstance(each.reason, PlannedSize)]


def read_targets(value: bytes, roles: Sequence[str]) -> Targets:
    """What the key holds. Raises Malformed also for fields of a later version: they may restrict what machines cost."""
    found = decode(Targets, value)
    if encode(found) != value or [each.role for each in found.wanted] != list(roles):
        raise Malformed(f"Targets: fields that this version does not know, or other roles than {list(roles)}")
    return found


def targets(
    current: Round,
    policy: Policy,
    *,
    finishing: bool,
    ended: HeaderState | None = None,
    planned: Target | None = None,
) -> tuple[Target, ...]:
    """One target, or one for each role in the declared order.

    Args:
        current, policy: as in `round.decide`.
        finishing: as in `round.Survey`.
        ended: how the job has ended; None while it continues.
        planned: what the job's plan says; None where it has none, or has roles.
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
    if planned and not policy.roles:
        return (planned,)
    return tuple(Target(role, most, MayHave(role, least, most)) for role, least, most in spans)
