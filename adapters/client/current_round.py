"""Whether this worker's round is still the job's, as the store says now."""

import os
from contextlib import closing

from ...rendezvous.wire.frame import TooLong
from ...rendezvous.wire.values import Malformed
from .channel import AgentGone, Back, Call, Channel
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
    if not os.environ.get(AGENT, ""):
        return not context().round  # a worker of elastic-run whose agent cannot be asked
    return _ask_current().current


def current_run() -> str:
    """The run of the job that this worker's round belongs to; empty where it cannot be ascertained."""
    return _ask_current().run if os.environ.get(AGENT, "") else ""


def _ask_current() -> Back:
    here = context()
    try:
        with closing(Channel(os.environ[AGENT], timeout=ASKING, rank=here.rank)) as channel:
            return channel.ask(Call("current", here.round))
    except (AgentGone, TimeoutError, Malformed, TooLong):
        return Back()
