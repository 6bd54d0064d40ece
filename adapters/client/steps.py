"""Tells the agent how many optimizer steps this worker has committed, at most once a second.

Nobody waits for an answer, so an agent that is busy costs a step nothing. A worker without an agent tells nobody.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping

from .channel import AgentGone, AgentTimeout, Call, Channel
from .context import AGENT, context

EACH = 1.0
"""Seconds between two."""

ID_BYTES = 6
"""Random bytes of a counter's id."""


class Steps:
    """One counter of one process: each part of a script that commits has its own.

    Args:
        environment: None: this process's own.
        now: seconds.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._given = environment
        self._now = now
        self._process = 0  # that has the channel: one that is forked from it has none
        self._channel: Channel | None = None
        self._of: tuple[str, int] = "", 0  # the agent's address, and this worker's rank
        self._id = 0  # that of the channel
        self._asked = False
        self._next = 0.0
        self.count = 0
        self.told = ""  # of the checkpoint in memory, as JSON

    def __getstate__(self) -> Mapping[str, object]:
        """A copy, here or in another process, has a channel of its own."""
        return vars(self) | {"_channel": None, "_process": 0, "_asked": False}

    def committed(self) -> None:
        """One more."""
        self.count += 1
        if self._now() < self._next:
            return
        self._next = self._now() + EACH
        try:
            self._tell()
        except (AgentGone, TimeoutError, OSError, ValueError):  # a launcher that is gone ends this worker by itself
            self._hang_up()

    def _tell(self) -> None:
        environment = os.environ if self._given is None else self._given
        address = environment.get(AGENT, "")
        if not address:
            return
        here = context(environment)  # a worker that keeps its process comes into other rounds
        if self._channel is None or self._process != os.getpid() or self._of != (address, here.rank):
            self._hang_up()
            self._channel = Channel(address, EACH, rank=here.rank)
            self._id = int.from_bytes(os.urandom(ID_BYTES))
            self._process, self._of, self._asked = os.getpid(), (address, here.rank), False
        if self._asked:
            if not self._channel.ready():
                return  # the agent is busy
            with contextlib.suppress(AgentTimeout):
                self._channel.receive(EACH)
        self._channel.send(
            Call("steps", here.round, rank=here.rank, steps=self.count, counter=self._id, told=self.told)
        )
        self._asked = True

    def _hang_up(self) -> None:
        if self._channel is not None and self._process == os.getpid():
            self._channel.close()
        self._channel = None
