"""What a master asks of agents when it looks for the cause of a standstill (pure)."""

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Name, Number, Words


@dataclass(frozen=True, slots=True)
class Look:
    """The request for a node's evidence.

    Attributes:
        round: the asker's.
        long: it is to be seen how workers share their time, and not whether they stand still.
        rank: only this one's worker is looked at; None: all.
        tail: only what they have printed last is wanted.
    """

    round: Number
    long: bool = False
    rank: Number | None = None
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Condemned:
    """A worker that is to be killed, so that the job continues with new ones.

    Attributes:
        why: the job stood still, in the message of its end.
    """

    round: Number
    rank: Number
    why: Words


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node that is to leave in order, because a standby can take its place.

    Attributes:
        round: in which it has workers.
        why: becomes the reason of its departure.
    """

    round: Number
    why: Words


@dataclass(frozen=True, slots=True)
class Done:
    """Whether there was such a worker, or such a node."""

    done: bool


@dataclass(frozen=True, slots=True)
class Suspected:
    """A node of the round that is examined."""

    node: Name
    incarnation: Name
    host: Name
    address: Name
    role: Name = ""
    workers: Number = 0
