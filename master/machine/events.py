"""What the master tells its controller: one thing each that has happened (`controller.py`)."""

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.member import Member
from ...rendezvous.node_reasons import NodeReason
from ...rendezvous.ranks import Assignment
from ...rendezvous.time_split import SplitUntil
from ...rendezvous.wire.fields import Name, Number, Words
from ..diagnosis.findings import Findings


@dataclass(frozen=True, slots=True)
class Registered:
    """A node's key was written.

    Attributes:
        node: which the key is named after.
        member: what it holds; None where that is no member of this name.
        order: the key's create revision.
        since: when the store was at that revision, as far as this node has heard (the master's clock).
        sealed: it holds what was written with another secret.
    """

    node: Name
    member: Member | None
    order: int
    since: float
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class Unregistered:
    """A node's key was deleted, or its lease ended."""

    node: Name


@dataclass(frozen=True, slots=True)
class WatchedTo:
    """All changes of the nodes' keys before this revision have been told."""

    revision: int


@dataclass(frozen=True, slots=True)
class StoreAway:
    """The store did not answer until this time (the master's clock)."""

    until: float


@dataclass(frozen=True, slots=True)
class Died:
    """The failure detector has proof that a node's agent is dead.

    Attributes:
        how: the proof.
        last: what the node wrote when all its workers had succeeded, where it did: a proof can be faster than the news.
    """

    node: Name
    incarnation: Name
    how: NodeReason
    last: Member | None


@dataclass(frozen=True, slots=True)
class Answered:
    """The agent of a node that is awaited has answered."""

    incarnation: Name


@dataclass(frozen=True, slots=True)
class Evicted:
    """A dead node has been taken out of the store; its key is not that incarnation's from this revision on."""

    incarnation: Name
    revision: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A node that was started with something else has been taken out of the store."""

    node: Name
    incarnation: Name


@dataclass(frozen=True, slots=True)
class Success:
    """The key that a node leaves when all its workers have succeeded; `member` is None where it cannot be read."""

    incarnation: Name
    member: Member | None


@dataclass(frozen=True, slots=True)
class EarlierEviction:
    incarnation: Name
    reason: NodeReason


@dataclass(frozen=True, slots=True)
class Found:
    """What an earlier master has left in the store.

    Attributes:
        header: the current one; None where there is none that can be read.
        revision: the header key's mod revision; 0 where there is no key.
        published: when the store was at that revision (the master's clock).
        assigned: the assignments that the header names, in rank order.
        successes, evictions: of its round; no evictions where the header is final.
        spent, spent_at: what its time went into at a change since the header, if there was one, and when that was.
    """

    header: Header | None
    revision: int
    published: float
    assigned: tuple[Assignment, ...] = ()
    successes: tuple[Success, ...] = ()
    evictions: tuple[EarlierEviction, ...] = ()
    spent: SplitUntil | None = None
    spent_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SuccessesRead:
    successes: tuple[Success, ...]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The attempt to end a run that no node is left of; `done` is False where one of them has come back."""

    done: bool


@dataclass(frozen=True, slots=True)
class Published:
    """The header is in the store.

    Attributes:
        header: with the prefix that it was given.
        revision, published: as in `Found`.
    """

    header: Header
    revision: int
    published: float


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """All nodes of a round were looked at.

    Attributes:
        compares: to see which rank is slow; else because workers of it made no progress.
        age: seconds since they were asked for what was found.
    """

    round: Number
    findings: Findings
    compares: bool = False
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class DataLeft:
    """Workers of the round that have ended with exit code 0 had begun these shards, which nobody else does."""

    what: Words


@dataclass(frozen=True, slots=True)
class Planned:
    """The job's plan (`master/resources/`) says how many nodes it should have, and why."""

    nodes: Number
    why: Words


@dataclass(frozen=True, slots=True)
class Look:
    """Time has passed, or something has happened: decide."""


MembershipEvent = Registered | Unregistered | StoreAway | Died | Answered | Evicted | Refused
"""What the membership changes by (`membership.py`)."""

Event = (
    MembershipEvent | WatchedTo | Found | SuccessesRead | Abandoned | Published | Diagnosed | DataLeft | Planned | Look
)
