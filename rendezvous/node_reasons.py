"""Why a node is lost, leaves, is refused or cannot work: one class for each reason, as in `reasons.py` (pure).

These are about one node. What the master decides on account of them, for the whole job, is in `reasons.py`.
"""

from typing import Annotated

from .base.frozen import dataclass
from .wire.fields import MAX_WORDS, Number, Sentence, Words, signal_name
from .wire.values import Tagged, Text, Unknown

Address = Annotated[str, Text(300, printable=True)]

_KEY_GONE = "its key is gone from the store, and it"


# -- how a loss was noticed -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessGone(Sentence):
    """The address at which its agent answered refuses connections now."""

    address: Address
    words = "its agent's process is gone ({0.address} refuses connections)"


@dataclass(frozen=True, slots=True)
class AddressReused(Sentence):
    """Another process answers at its agent's address."""

    address: Address
    words = "another process uses its address ({0.address})"


@dataclass(frozen=True, slots=True)
class LeaseExpired(Sentence):
    """Its key is gone from the store, and the store was not away."""

    words = "its lease expired"


@dataclass(frozen=True, slots=True)
class NotReturned(Tagged):
    """Its lease expired while the store was away, and it has not registered again. `answers`: its agent lives."""

    answers: bool

    def __str__(self) -> str:
        return f"{_KEY_GONE} {'has not registered again, although it answers' if self.answers else 'does not answer'}"


@dataclass(frozen=True, slots=True)
class StartedAgain(Sentence):
    """Another incarnation of it has registered."""

    words = f"{_KEY_GONE} was started again"


@dataclass(frozen=True, slots=True)
class NotRegistered(Sentence):
    """It has a rank, and was not registered when this master began."""

    words = "it was not registered when this master took over: its lease had expired, or it had been evicted"


@dataclass(frozen=True, slots=True)
class EvictedBefore(Sentence):
    """An earlier master evicted it, and why cannot be read."""

    words = "it was evicted"


@dataclass(frozen=True, slots=True)
class RunEnded(Sentence):
    """The run of the job in which it was has ended while it was not registered."""

    words = "its run of the job ended without it"


LossReason = ProcessGone | AddressReused | LeaseExpired | NotReturned | StartedAgain | NotRegistered | EvictedBefore
"""How it was noticed that a node is lost."""


# -- refused ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OtherCommand(Sentence):
    """It was started with something else than the nodes that have the job's id. `difference`: what."""

    job: Words
    difference: Words
    words = (
        "job {0.job!r} was started with another command or source than this node: {0.difference}. Give this one "
        "its own --rdzv-id, or start both with the same command and source"
    )


# -- what a node says of itself ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreemptionNotice(Tagged):
    """Its agent received this signal, and leaves in order; 0: it was asked to by other means."""

    signal: Number

    def __str__(self) -> str:
        return f"it received {signal_name(self.signal)}" if self.signal else "it was asked to leave"


@dataclass(frozen=True, slots=True)
class Replaced(Sentence):
    """The job has told it to leave, and why: a standby takes its place, or the job is cancelled."""

    why: Words
    words = "{0.why}"


@dataclass(frozen=True, slots=True)
class Unfit(Sentence):
    """It can start no workers, now and later; `why` comes from its operating system or its adapter."""

    why: Words
    words = "{0.why}"


@dataclass(frozen=True, slots=True)
class StartFailed(Sentence):
    """It could not start this round's workers: a port was taken, or there were too many processes."""

    why: Words
    words = "could not start its workers: {0.why}"


@dataclass(frozen=True, slots=True)
class ServiceEnded(Sentence):
    """A service that its workers need has ended."""

    why: Words
    words = "could not continue: {0.why}"


@dataclass(frozen=True, slots=True)
class ServersLost(Sentence):
    """What the job's servers held is lost, or no server can be started: no other round can change that."""

    why: Words
    words = "cannot continue: {0.why}"


@dataclass(frozen=True, slots=True)
class ReturnWanted(Sentence):
    """Rows that the job's servers held are lost, and the whole job goes back to a checkpoint of them, in words."""

    why: Words
    words = "{0.why}"


@dataclass(frozen=True, slots=True)
class ProcessGroupBroke(Sentence):
    """The process group of its workers broke, and no node is known to be lost."""

    why: Words
    words = "has workers whose process group broke, although no node is known to be lost: {0.why}"


@dataclass(frozen=True, slots=True)
class Unexplained(Sentence):
    """It reports a failure, and no exit and no reason."""

    words = "has failed workers, and its report gives no reason"


NodeReason = (
    LossReason
    | RunEnded
    | OtherCommand
    | PreemptionNotice
    | Replaced
    | Unfit
    | StartFailed
    | ServiceEnded
    | ServersLost
    | ReturnWanted
    | ProcessGroupBroke
    | Unexplained
    | Unknown
)
"""Why a node is lost, leaves, is refused or cannot work."""


def cut(words: str) -> str:
    """Words from outside (an operating system's, an adapter's), short enough to be a field of a reason."""
    return words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS - 4]} ..."
