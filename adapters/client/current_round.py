"""Whether this worker's round is still the job's, as the store says now."""

import os
from contextlib import closing

from ...rendezvous.wire.frame import TooLong
from ...rendezvous.wire.values import Malformed
from .channel import AgentGone, Call, Channel
from .context import AGENT, context

ASKING = 30.0
"""Seconds that `is_current_round` waits for its agent."""


def is_current_round() -> bool:
    """Whether this worker's round is still the job's current one; ask before a checkpoint replaces the last one.

    A worker that was cut off from the others may not know that the job continues without it. Its agent asks the store.

    Returns:
        True where it is. Also without a launcher, and under launchers other than elastic-run, which have no rounds:
        there it guards nothing. False where it cannot be ascertained; then do not write.

    Raises:
        elastic_run.exceptions.BadEnvironment: the launcher's environment is incomplete.
    """
    agent = os.environ.get(AGENT, "")
    here = context()
    if not agent:
        return not here.round  # a worker of elastic-run whose agent cannot be asked
    try:
        with closing(Channel(agent, timeout=ASKING, rank=here.rank)) as channel:
            return channel.ask(Call("current", here.round)).current
    except (AgentGone, TimeoutError, Malformed, TooLong):
        return False
