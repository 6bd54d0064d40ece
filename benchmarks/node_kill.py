"""From the SIGKILL of a node to the survivors' next full step: the last to have come, or the one that leads."""

import dataclasses
import re
from collections.abc import Sequence

from .arena import Arena
from .case import Case, Outcome
from .journal import PHASES
from .launchers import OURS, RESTARTS, TORCHRUN_AS_IS, TORCHRUN_SLOW, TORCHRUN_TUNED, Launcher
from .nodes import RANGE, Nodes, lost

BOUND = 90.0
MASTER_BOUND = 60.0

ALONE = OURS
WHOLE = Launcher("elastic-run, agent and worker", "elastic-run")

_LEADS = re.compile(r"the job's master now runs here")

COMMON = (
    f"Three nodes on one machine, --nnodes={RANGE} --nproc-per-node=1 --max-restarts={RESTARTS}. With elastic-run the "
    "agent's process alone is killed, and its guardian ends the worker; with torchrun its worker is killed too, "
    "which would go on by itself, and nobody would notice."
)


def leader(logs: Sequence[str]) -> int:
    """Which node leads, by what each has printed; the first where none has said so."""
    return next((number for number, log in enumerate(logs) if _LEADS.search(log)), 0)


def last(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """The one that dies is the last to have come; the first hosts the store."""
    return lost(arena, launcher, lambda nodes: _kill(arena, launcher, nodes, -1), BOUND)


def master(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """The one that dies is the one that the others depend on."""

    def strike(nodes: Nodes) -> int:
        return _kill(arena, launcher, nodes, leader(arena.logs()) if launcher.kind == "elastic-run" else 0)

    return lost(arena, launcher, strike, MASTER_BOUND)


def _kill(arena: Arena, launcher: Launcher, nodes: Nodes, place: int) -> int:
    kill = arena.kill_alone if launcher.kind == "elastic-run" and launcher is not WHOLE else arena.kill_tree
    return kill(nodes.started[place])


CASES = (
    Case(
        name="node_kill",
        title="SIGKILL of a node's agent, to the next full step of the two nodes that survive (script unchanged)",
        about="The node is the last to have come; the first hosts the store (torchrun's TCPStore, elastic-run's etcd).",
        common=COMMON,
        until="next full step",
        bound=BOUND,
        ours=ALONE,
        peers=(WHOLE, TORCHRUN_TUNED, TORCHRUN_SLOW, dataclasses.replace(TORCHRUN_AS_IS, every=3)),
        measure=last,
        phases=PHASES,
    ),
    Case(
        name="master_kill",
        title="SIGKILL of the node that leads, to the next full step of the two nodes that survive",
        about="With elastic-run its agent runs the job's master, and started the etcd, which survives it. With "
        "torchrun it hosts the TCPStore: the job dies.",
        common=COMMON,
        until="next full step",
        bound=MASTER_BOUND,
        ours=ALONE,
        peers=(TORCHRUN_TUNED,),
        measure=master,
        phases=PHASES,
    ),
)
