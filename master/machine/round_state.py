"""The round that the job has, as one value (pure)."""

import math
from collections.abc import Mapping, Sequence

from ...rendezvous.base.frozen import dataclass, field, replace
from ...rendezvous.header import Header
from ...rendezvous.member import MAX_EXITS
from ...rendezvous.ranks import Assignment, NodeRanks, NodeWorkers
from ...rendezvous.round import Policy, Round


@dataclass(frozen=True, slots=True)
class RoundState:
    """Another is made when the next round is opened; a suspension only numbers it anew.

    Attributes:
        current: as `round.decide` has it.
        assigned: its nodes, in rank order; of a suspended job, those that it had.
        incarnations: of these.
        ranks: of each of them.
        optional: of these, who has an optional role.
        continuing: of these, whose workers were started for an earlier round; how one has ended they say of this one.
        exits: that they can report.
    """

    current: Round
    assigned: Sequence[Assignment] = ()
    incarnations: frozenset[str] = frozenset()
    ranks: Mapping[str, range] = field(default_factory=dict[str, range])
    optional: frozenset[str] = frozenset()
    continuing: frozenset[str] = frozenset()
    exits: int = 0

    @classmethod
    def gathering(cls, number: int, since: float) -> "RoundState":
        """Before the first round of a run; rounds of an earlier run have had numbers up to this."""
        return cls(Round(number, (), False, since))

    @classmethod
    def of(
        cls, header: Header, assigned: Sequence[Assignment], at: float, policy: Policy, grown_at: float = -math.inf
    ) -> "RoundState":
        """What this header says, which was published `at`; `grown_at`: when a node had last joined before it."""
        ranks = {each.incarnation: each.ranks for each in assigned}
        optional = {role.name for role in policy.roles if role.optional}
        return cls(
            Round(
                header.number,
                tuple(ranks),
                header.state == "open",
                at,
                grown_at=at if header.cause == "joined" else grown_at,
                node_workers=tuple(
                    NodeWorkers(
                        each.role, each.nproc, NodeRanks(each.group_rank, each.first_rank, each.role_first_rank)
                    )
                    for each in assigned
                    if policy.roles
                ),
            ),
            assigned,
            frozenset(ranks),
            ranks,
            frozenset(each.incarnation for each in assigned if each.role in optional),
            frozenset(each.incarnation for each in assigned if each.since),
            sum(min(each.nproc, MAX_EXITS) for each in assigned),
        )

    @property
    def number(self) -> int:
        return self.current.number

    @property
    def running(self) -> bool:
        return self.current.running

    def suspended(self, number: int, now: float) -> "RoundState":
        """The job waits for more nodes since `now`."""
        current = replace(self.current, number=number, running=False, opened_at=now, saved_at=-math.inf)
        return replace(self, current=current)

    def saved(self, now: float) -> "RoundState":
        """Its workers have told of another checkpoint."""
        return replace(self, current=replace(self.current, saved_at=now))
