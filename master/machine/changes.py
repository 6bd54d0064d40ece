"""What else than an effect follows from an event about a node: who is lost, and who was heard (`membership.py`)."""

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.member import Member, Report
from ...rendezvous.node_reasons import NodeReason
from .effects import Effect
from .incident import Evidence


@dataclass(frozen=True, slots=True)
class Lost:
    """A node is in the store no more.

    Attributes:
        left: why, where it left in order; else None.
        how: how its loss was noticed, where it did not.
        succeeded: all its workers had succeeded in the current round.
    """

    node: str
    incarnation: str
    left: NodeReason | None
    how: NodeReason
    succeeded: bool = False

    def evidence(self, number: int) -> Evidence:
        """That round `number` has lost it."""
        if self.left is not None:
            return Evidence(number, left=((self.node, self.left),))
        return Evidence(number, lost=((self.node, self.how),))


@dataclass(frozen=True, slots=True)
class Heard:
    """A registered node has reported; `before`: what it had reported, None where it has just registered."""

    member: Member
    before: Report | None


Change = Effect | Lost | Heard
