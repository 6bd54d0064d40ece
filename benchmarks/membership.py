"""How long training stands still because a node arrives, or leaves in order."""

import signal

from .arena import Arena
from .case import Case, Outcome
from .journal import PHASES
from .launchers import OURS, RESTARTS, TORCHRUN_SLOW, TORCHRUN_TUNED, Launcher
from .nodes import NODES, RANGE, Nodes, stopped

BOUND = 90.0

COMMON = (
    "What counts is the time without a full step, from the last of the old size to the first of the new one. Three "
    f"nodes on one machine, --nnodes={RANGE} --nproc-per-node=1 --max-restarts={RESTARTS}."
)


def arrives(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """A third node is started beside two that train."""
    return stopped(arena, launcher, NODES - 1, Nodes.add, BOUND)


def leaves(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """The last of three that train is told to leave."""
    return stopped(arena, launcher, NODES, lambda nodes: nodes.started[-1].send_signal(signal.SIGTERM), BOUND)


CASES = (
    Case(
        name="arrival",
        title="a third node arrives: how long two nodes that train stand still",
        about="",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN_TUNED, TORCHRUN_SLOW),
        measure=arrives,
        phases=PHASES,
    ),
    Case(
        name="departure",
        title="one of three nodes is told to leave (SIGTERM to its agent): how long the others stand still",
        about="",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN_TUNED, TORCHRUN_SLOW),
        measure=leaves,
        phases=PHASES,
    ),
)
