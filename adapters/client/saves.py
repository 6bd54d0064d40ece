"""Tells the agent that a checkpoint is written, where the job admits joining nodes after one (--scale-up=commit).

Nobody tells us when a script has finished writing. But whoever takes a position for a checkpoint, and then commits
another step, has: so the first commit after `state_dict()` is told, and the round that follows repeats a step or two.
"""

import os
from collections.abc import Mapping
from contextlib import closing

from .channel import AgentGone, Call, Channel
from .context import AGENT, SCALE_UP, context


class Saves:
    """What one worker knows of its checkpoints.

    Args:
        environment: None: this process's own.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self._agent = given.get(AGENT, "") if given.get(SCALE_UP) == "commit" else ""
        # Not `given`: a worker that keeps its process comes into other rounds, and `os.environ` cannot be pickled.
        self._environment = environment
        self._taken = False

    def taken(self) -> None:
        """A position was taken for a checkpoint."""
        self._taken = True

    def committed(self) -> None:
        """Training has gone on; what was taken before is written."""
        if not self._taken:
            return
        self._taken = False
        if not self._agent:
            return
        try:
            here = context(self._environment)
            with closing(Channel(self._agent, rank=here.rank)) as channel:
                channel.ask(Call("saved", here.round))
        except (AgentGone, TimeoutError):
            pass  # the launcher is gone or busy; a checkpoint that nobody was told of costs a joining node some time
