"""Why a node is lost, leaves, is refused or cannot work: one class for each reason, as in `reasons.py` (pure).

These are about one node. What the master decides on account of them, for the whole job, is in `reasons.py`.
"""

from dataclasses import dataclass
from typing import Annotated

from .fields import MAX_WORDS, Number, Words, signal_name
from .wire.values import Tagged, Text, Unknown

Address = Annotated[str, Text(300, printable=True)]

_KEY_GONE = "its key is gone from the store, and it"


# -- how a loss was noticed -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessGone(Tagged):
    """The address at which its agent answered refuses connections now."""

    address: Address

    def __str__(self) -> str:
        return f"its agent's process is gone ({self.address} refuses connections)"


@dataclass(frozen=True, slots=True)
class AddressReused(Tagged):
    """Another process answers at its agent's address."""

    address: Address

    def __str__(self) -> str:
        return f"another process uses its address ({self.address})"


@dataclass(frozen=True, slots=True)
class LeaseExpired(Tagged):
    """Its key is gone from the store, and the store was not away."""

    def __str__(self) -> str:
        return "its lease expired"


@dataclass(frozen=True, slots=True)
class NotReturned(Tagged):
    """Its lease expired while the store was away, and it has not registered again. `answers`: its agent lives."""

    answers: bool

    def __str__(self) -> str:
        return f"{_KEY_GONE} {'has not registered again, although it answers' if self.answers else 'does not answer'}"


@dataclass(frozen=True, slots=True)
class StartedAgain(Tagged):
    """Another incarnation of it has registered."""

    def __str__(self) -> str:
        return f"{_KEY_GONE} was started again"


@dataclass(frozen=True, slots=True)
class NotRegistered(Tagged):
    """It has a rank, and was not registered when this master began."""

    def __str__(self) -> str:
        return "it was not registered when this master took over: its lease had expired, or it had been evicted"


@dataclass(frozen=True, slots=True)
class EvictedBefore(Tagged):
    """An earlier master evicted it, and why cannot be read."""

    def __str__(self) -> str:
        return "it was evicted"


@dataclass(frozen=True, slots=True)
class RunEnded(Tagged):
    """The run of the job in which it was has ended while it was not registered."""

    def __str__(self) -> str:
        return "its run of the job ended without it"


LossReason = ProcessGone | AddressReused | LeaseExpired | NotReturned | StartedAgain | NotRegistered | EvictedBefore
"""How it was noticed that a node is lost."""


# -- refused ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OtherCommand(Tagged):
    """It was started with something else than the nodes that have the job's id. `difference`: what."""

    job: Words
    difference: Words

    def __str__(self) -> str:
        return (
            f"job {self.job!r} was started with another command or source than this node: {self.difference}. "
            "Give this one its own --rdzv-id, or start both with the same command and source"
        )


# -- what a node says of itself ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreemptionNotice(Tagged):
    """Its agent received this signal, and leaves in order; 0: it was asked to by other means."""

    signal: Number

    def __str__(self) -> str:
        return f"it received {signal_name(self.signal)}" if self.signal else "it was asked to leave"


@dataclass(frozen=True, slots=True)
class Replaced(Tagged):
    """A standby takes its place, because the others waited for one of its ranks in each step; `why` says for which."""

    why: Words

    def __str__(self) -> str:
        return f"a standby takes its place: {self.why}"


@dataclass(frozen=True, slots=True)
class Unfit(Tagged):
    """It can start no workers, now and later; `why` comes from its operating system or its adapter."""

    why: Words

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True, slots=True)
class StartFailed(Tagged):
    """It could not start this round's workers: a port was taken, or there were too many processes."""

    why: Words

    def __str__(self) -> str:
        return f"could not start its workers: {self.why}"


@dataclass(frozen=True, slots=True)
class ServiceEnded(Tagged):
    """A service that its workers need has ended."""

    why: Words

    def __str__(self) -> str:
        return f"could not continue: {self.why}"


@dataclass(frozen=True, slots=True)
class ProcessGroupBroke(Tagged):
    """The process group of its workers broke, and no node is known to be lost."""

    why: Words

    def __str__(self) -> str:
        return f"has workers whose process group broke, although no node is known to be lost: {self.why}"


@dataclass(frozen=True, slots=True)
class Unexplained(Tagged):
    """It reports a failure, and no exit and no reason."""

    def __str__(self) -> str:
        return "has failed workers, and its report gives no reason"


NodeReason = (
    LossReason
    | RunEnded
    | OtherCommand
    | PreemptionNotice
    | Replaced
    | Unfit
    | StartFailed
    | ServiceEnded
    | ProcessGroupBroke
    | Unexplained
    | Unknown
)
"""Why a node is lost, leaves, is refused or cannot work."""


def cut(words: str) -> str:
    """Words from outside (an operating system's, an adapter's), short enough to be a field of a reason."""
    return words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS - 4]} ..."
