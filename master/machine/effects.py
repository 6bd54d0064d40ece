"""What the controller has its master do (`controller.py`). A `SplitUntil` is to be kept, `Targets` to be written."""

from typing import Literal

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Eviction, Header
from ...rendezvous.node_reasons import NodeReason
from ...rendezvous.peers import Peers
from ...rendezvous.ranks import Assignment
from ...rendezvous.time_split import SplitUntil
from ...rendezvous.wire.fields import Name
from ..diagnosis.findings import Finding
from ..diagnosis.requests import Condemned, Replacement, Suspected
from .targets import Targets


@dataclass(frozen=True, slots=True)
class Say:
    line: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait for the proof that this node's agent is dead, or take it for given, and then evict the node.

    Attributes:
        order: its key's create revision.
        address: where its agent can be watched.
        proof: the proof, where it is known already.
    """

    node: Name
    order: int
    incarnation: Name
    address: str
    proof: NodeReason | None


@dataclass(frozen=True, slots=True)
class Unwatch:
    """Nobody needs to know any more how this node fares."""

    incarnation: Name


@dataclass(frozen=True, slots=True)
class Listen:
    """Tell whether the agent of a node that is awaited answers."""

    node: Name
    incarnation: Name
    address: str


@dataclass(frozen=True, slots=True)
class Unlisten:
    """This node is not awaited any more."""

    incarnation: Name


@dataclass(frozen=True, slots=True)
class FirstEvidence:
    """Note in the trace that the first evidence of this round's end has come."""

    round: int


@dataclass(frozen=True, slots=True)
class Examine:
    """Have all these nodes of a round looked at closely, and tell what is found."""

    round: int
    nodes: tuple[Suspected, ...]


@dataclass(frozen=True, slots=True)
class Condemn:
    """Have a worker killed that makes the job stand still, and note in the trace why."""

    node: Suspected
    condemned: Condemned


@dataclass(frozen=True, slots=True)
class Replace:
    """Have a node leave whose place a standby can take, and note in the trace why."""

    node: Suspected
    replacement: Replacement


@dataclass(frozen=True, slots=True)
class Note:
    finding: Finding


@dataclass(frozen=True, slots=True)
class Refuse:
    """Take this node out of the store, and then say `line`."""

    node: Name
    order: int
    incarnation: Name
    eviction: Eviction
    line: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Make sure that this leadership is not over."""


@dataclass(frozen=True, slots=True)
class ReadSuccesses:
    """Read the successes again."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """End a run that no node is left of, unless one of `missing` (node, incarnation) has come back.

    Attributes:
        queues: remove its data queues, too.
    """

    missing: tuple[tuple[Name, Name], ...]
    queues: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """Make this header the current one; where a round is opened, only if its nodes are all there at the last moment.

    Attributes:
        header: where a round is opened, without the prefix of its assignments.
        assignments: of the round that is opened.
        begun: since when there was a reason for it (the master's clock).
        peers: where the workers of that round are; empty where their framework does not ask.
    """

    what: Literal["open", "suspend", "finish"]
    header: Header
    assignments: tuple[Assignment, ...]
    begun: float
    peers: tuple[Peers, ...] = ()


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Remove the job's keys: the job is over, and every node has gone."""

    succeeded: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be done until this time (the master's clock), or until an event where it is None."""

    until: float | None


AtOnce = Say | Watch | Unwatch | Listen | Unlisten | FirstEvidence | Examine | Condemn | Replace | Note
"""What takes no time."""

TakesTime = Refuse | Confirm | ReadSuccesses | Abandon | Publish | SplitUntil | Targets | CleanUp | Wait
"""What the store, or an event, is waited for: only `Look` has these, and is to be told again after them."""

Effect = AtOnce | TakesTime
