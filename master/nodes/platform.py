"""What the node manager asks of a platform: whatever can start a node's agent somewhere, and stop it.

To add one, implement `Platform`. All calls are idempotent: the node manager looks at what is there, and asks again for
what it does not see yet.

Errors:
    PlatformError
        PlatformUnavailable: it does not answer now; asked again later, it may.
        PlatformRefused: it says no to what was asked, and would say so again.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from ...rendezvous.base.errors import RendezvousError
from .replica import Launch, Replica


class PlatformError(RendezvousError):
    """The platform did not do what it was asked for; says why."""


class PlatformUnavailable(PlatformError):
    """It does not answer, or asks for patience: for so many seconds, where `patience` is not 0."""

    def __init__(self, message: str, patience: float = 0.0) -> None:
        super().__init__(message)
        self.patience = patience


class PlatformRefused(PlatformError):
    """It answers no: a quota, a missing right, an object that it does not accept."""


Observer = Callable[[Sequence[Replica]], None]
"""Is given all replicas of the job that there are, each time that one of them has changed."""


class Platform(Protocol):
    """Runs replicas of one job."""

    async def follow(self, observe: Observer) -> None:
        """Tells of all replicas at once, and then after each change, until it is cancelled.

        Raises:
            PlatformError: it cannot tell any more; the caller calls again after a pause, and what it knew may be old.
        """
        ...

    async def start(self, launch: Launch) -> None:
        """Starts that replica, unless there is one of its role, index and attempt.

        Raises:
            PlatformError: it was not started, or nobody knows.
        """
        ...

    async def stop(self, name: str) -> None:
        """Tells it to end in order, within its grace period, and forgets it then; nothing where there is none.

        Raises:
            PlatformError: it was not told, or nobody knows.
        """
        ...
