"""What a change of the nodes costs a script that keeps its process."""

import os
import signal
import time

from .arena import Arena
from .case import Case, Outcome
from .journal import full_steps, pids
from .launchers import IN_PLACE, OURS, RESTARTS, TORCHRUN, TORCHRUN_TUNED, Launcher
from .membership import arrives
from .nodes import NODES, RANGE, Nodes, lost
from .worker_kill import WORKERS, killed

BOUND = 90.0

COMMON = (
    "*In place* is the same script with a `State` and a commit in each step (`benchmarks/scripts/in_place_steps.py`): "
    f"its workers stay, and it reads no checkpoint. The others have the script as it is. --max-restarts={RESTARTS}."
)


def node_lost(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """The last of three nodes is gone, with its worker."""

    def strike(nodes: Nodes) -> int:
        # torchrun's worker would go on by itself, and nobody would notice.
        kill = arena.kill_tree if launcher.kind == "torchrun" else arena.kill_alone
        return kill(nodes.started[-1])

    return lost(arena, launcher, strike, BOUND)


def worker_lost(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """The worker of one of three nodes is killed: rank 2's."""

    def strike(_: Nodes) -> int:
        victim = pids(arena.journal.born, full_steps(arena.journal.steps)[-1].generation)[NODES - 1]
        instant = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        return instant

    return lost(arena, launcher, strike, BOUND)


CASES = (
    Case(
        name="in_place_worker_kill",
        title=f"in place: SIGKILL of one of {WORKERS} workers of the only node, to the next full step of both",
        about="One node. The time has the new worker's start in it, for which the other one waits.",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=IN_PLACE,
        peers=(OURS, TORCHRUN),
        measure=killed,
        first_phase="",
    ),
    Case(
        name="in_place_peer_kill",
        title="in place: SIGKILL of the worker of one of three nodes, to the others' next full step",
        about=f"Three nodes on one machine, --nnodes={RANGE}. In place, the node comes back later, when its "
        "new worker is ready; with the others all workers start anew.",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=IN_PLACE,
        peers=(OURS, TORCHRUN_TUNED),
        measure=worker_lost,
        first_phase="",
    ),
    Case(
        name="in_place_node_kill",
        title="in place: SIGKILL of a node's agent, to the next full step of the two nodes that survive",
        about=f"Three nodes on one machine, --nnodes={RANGE}; the last to have come dies.",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=IN_PLACE,
        peers=(OURS, TORCHRUN_TUNED),
        measure=node_lost,
        first_phase="",
    ),
    Case(
        name="in_place_arrival",
        title="in place: a third node arrives: how long two nodes that train stand still",
        about=f"On one machine, --nnodes={RANGE}.",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=IN_PLACE,
        peers=(OURS, TORCHRUN_TUNED),
        measure=arrives,
        first_phase="",
    ),
)
