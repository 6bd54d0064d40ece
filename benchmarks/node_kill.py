"""From the SIGKILL of a node (its agent and all below it) to the survivors' next full step."""

import dataclasses

from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import PHASES
from .launchers import NOSHARE, OURS, RESTARTS, SCRIPTS, TORCHRUN, TORCHRUN_AS_IS, TORCHRUN_TUNED, TUNED, Job, Launcher
from .worker_kill import START_BOUND, recovered, settled

NODES = 3
BOUND = 90.0


def measure(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """Three nodes of one worker each; the one that dies is the last to have come, the first hosts the store."""
    script = (str(SCRIPTS / "ddp_steps.py"), str(arena.journal.path), str(arena.folder / "checkpoint"))
    port = free_port()
    job = Job(arena.name, f"2:{NODES}", 1, port, script)
    arena.launch(launcher, job, 0)
    try:
        arena.until_listening(port)
        nodes = [arena.launch(launcher, job, node) for node in range(1, NODES)]
        arena.until(lambda: settled(arena, NODES), START_BOUND)
    except DidNotCome as error:
        return Outcome(None, f"did not start: {error}")
    fault = arena.kill_tree(nodes[-1])
    return recovered(arena, fault, BOUND)


CASES = (
    Case(
        name="node_kill",
        title="SIGKILL of a node (agent and worker), to the next full step of the two that survive (script unchanged)",
        about=f"Three nodes on one machine, --nnodes=2:3 --nproc-per-node=1 --max-restarts={RESTARTS}. The node "
        "killed is the last to have come; the first hosts the store (torchrun's TCPStore, elastic-run's etcd). "
        f"noshare: {NOSHARE}=1; tuned: --rdzv-conf={TUNED}.",
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN_TUNED, TORCHRUN, dataclasses.replace(TORCHRUN_AS_IS, every=3)),
        measure=measure,
        phases=PHASES,
    ),
)
