"""From the moment in which a node falls silent (every process of it is stopped) to the survivors' next full step."""

import dataclasses

from .arena import Arena
from .case import Case, Outcome
from .journal import PHASES
from .launchers import OURS, RESTARTS, TORCHRUN, TORCHRUN_TUNED, Launcher
from .nodes import RANGE, lost

BOUND = 60.0


def measure(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """Nothing is closed and nothing refused: only time can tell."""
    return lost(arena, launcher, lambda nodes: arena.stop_tree(nodes.started[-1]), BOUND)


CASES = (
    Case(
        name="silent_node",
        title="a node falls silent (SIGSTOP of its agent and all below it), to the survivors' next full step",
        about=f"Three nodes on one machine, --nnodes={RANGE} --nproc-per-node=1 --max-restarts={RESTARTS}; the node is "
        "the last to have come. No connection closes and none is refused, as where a machine loses its network. With "
        "elastic-run its lease ends (--rdzv-conf=lease_ttl, 5 s unless set). torchrun's agents look at their own "
        "workers only, and these wait for the silent one within gloo, for its time-out of 30 minutes.",
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=tuple(dataclasses.replace(one, every=3, slow=True) for one in (TORCHRUN_TUNED, TORCHRUN)),
        measure=measure,
        phases=PHASES,
    ),
)
