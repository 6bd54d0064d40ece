"""What a platform runs for the job: replicas, each of which is one try at running a node (pure).

A role has replicas with the indexes 0, 1, ...; one that ended is followed by another of the same index. On Kubernetes a
replica is a pod. Why it does not run yet, and how it ended, are codes with values, as in `rendezvous/reasons.py`.
"""

from typing import Literal

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Name, Number, Sentence, Words, signal_name
from ...rendezvous.wire.values import Tagged, Unknown

# -- why it does not run yet ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted(Sentence):
    """The platform has not looked for a place for it yet."""

    words = "the platform has not scheduled it yet"


@dataclass(frozen=True, slots=True)
class Starting(Sentence):
    """It has a place, and is about to run: its image is pulled, its volumes are mounted."""

    words = "it is about to start"


@dataclass(frozen=True, slots=True)
class Unschedulable(Sentence):
    """The platform has no place for it now. `message`: in the scheduler's words."""

    message: Words
    words = "there is no place for it: {0.message}"


@dataclass(frozen=True, slots=True)
class Promised(Sentence):
    """The platform makes a place for it: others, of a lower priority, are told to leave."""

    words = "it waits for others of a lower priority to leave its place"


@dataclass(frozen=True, slots=True)
class CannotStart(Sentence):
    """It has a place, and cannot run as it is described: no such image, a missing volume. In the platform's words.

    `never`: nothing that anybody does helps but another description.
    """

    message: Words
    never: bool = False
    words = "it cannot be started: {0.message}"


@dataclass(frozen=True, slots=True)
class Refused(Sentence):
    """The platform does not take it: a quota, a missing right, an object that makes no sense. In its words."""

    message: Words
    words = "the platform refuses it: {0.message}"


PendingReason = Submitted | Starting | Promised | Unschedulable | CannotStart | Unknown


# -- how it ended -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exited(Tagged):
    """Its agent ended by itself, or by a signal (128 + its number). `message`: its last words, where they are known.

    `container`: the one that ended in place of the agent, which did not begin.
    """

    exit_code: Number
    message: Words = ""
    container: Words = ""

    def __str__(self) -> str:
        if 128 < self.exit_code < 128 + 65:
            who = f"its container {self.container}" if self.container else "it"
            return f"{who} was ended by {signal_name(self.exit_code - 128)}"
        who = f"container {self.container}" if self.container else "agent"
        return f"its {who} ended with exit code {self.exit_code}{f': {self.message}' if self.message else ''}"


@dataclass(frozen=True, slots=True)
class OutOfMemory(Tagged):
    """The platform killed it because it had more than its `limit` of memory, in bytes (0: not known)."""

    limit: Number

    def __str__(self) -> str:
        return f"it needed more memory than its limit{f' of {self.limit >> 20} MiB' if self.limit else ''}"


@dataclass(frozen=True, slots=True)
class Preempted(Sentence):
    """The platform gave its place to something of a higher priority, or took the machine away. In its words."""

    message: Words
    words = "its place was taken: {0.message}"


@dataclass(frozen=True, slots=True)
class MachineLost(Sentence):
    """The machine on which it ran does not answer, or is gone. In the platform's words."""

    message: Words
    words = "its machine is lost: {0.message}"


@dataclass(frozen=True, slots=True)
class NeverStarted(Sentence):
    """Its program could not be run: there is none of that name in the image. In the platform's words."""

    message: Words
    words = "its program could not be started: {0.message}"


End = Exited | OutOfMemory | Preempted | MachineLost | NeverStarted | Unknown


# -- the replica ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replica:
    """One try at running a node.

    Attributes:
        name: of the pod, or whatever it is.
        role: its role; empty in a job without roles.
        index: which one of its role.
        attempt: how many of that index there were before.
        counted: of those, how many ended so that it counts (`relaunch.py`), itself excluded.
        state: pending until its agent runs.
        since: when it came into that state (the caller's clock).
        stopping: it was told to end, and has not ended yet.
        memory: its limit in bytes; 0: it has none, or none that is known.
        raised: the same, where it was started with more than its role has; else 0.
        pending: why it is pending; None where it is not.
        end: how it ended; None where it has not.
    """

    name: Name
    role: Name
    index: Number
    attempt: Number
    counted: Number
    state: Literal["pending", "running", "ended"]
    since: float
    stopping: bool = False
    memory: Number = 0
    raised: Number = 0
    pending: PendingReason | None = None
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A replica to be started. `raised`: its limit of memory in bytes; 0: as its role has."""

    role: Name
    index: Number
    attempt: Number
    counted: Number = 0
    raised: Number = 0
