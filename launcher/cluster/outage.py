"""An API server that is away while a command follows a job on its cluster: both go on, the command when it is back."""

import time
from collections.abc import Callable
from typing import TypeVar

from ...master.nodes.platform import PlatformError, PlatformUnavailable
from .arguments import say

T = TypeVar("T")

AWAY = 900.0
"""Seconds without an answer after which a command ends; a control plane that is replaced is away for minutes."""

STARTING = (401, 403)
"""Of HTTP: refusals of a server that has just started, and does not know its users yet."""


class Outage:
    """Of one command; it is said once, and so is its end."""

    def __init__(self) -> None:
        self.since: float | None = None

    def answer(self, ask: Callable[[], T]) -> T | None:
        """What that returns; None: nobody answers now. Raises PlatformError where that may not change, or lasts."""
        now = time.monotonic()
        try:
            found = ask()
        except PlatformError as error:
            known = self.since is not None
            starting = known and getattr(error, "status", 0) in STARTING
            if not isinstance(error, PlatformUnavailable) and not starting:
                raise
            self.since = now if self.since is None else self.since
            if now - self.since >= AWAY:
                raise PlatformUnavailable(f"{error} (for {AWAY:g} s, in which the job goes on)") from None
            if not known:
                say(
                    f"the API server does not answer ({error}); the job goes on; this command asks again for up to "
                    f"{AWAY:g} s"
                )
            return None
        if self.since is not None:
            say(f"the API server answers again, after {time.monotonic() - self.since:.0f} s")
        self.since = None
        return found
