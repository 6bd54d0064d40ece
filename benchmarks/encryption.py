"""What mutual TLS costs: the same runs of elastic-run with it, as by default, and without it (`--insecure`)."""

from . import leases, node_kill, startup, worker_kill
from .arena import Arena
from .case import Case, Outcome
from .journal import PHASES
from .launchers import Launcher

ENCRYPTED = Launcher("elastic-run", "elastic-run")
PLAIN = Launcher("elastic-run, --insecure", "elastic-run", words=("--insecure",))

CLIENTS = 4


def _leases(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    return leases.measured(arena, leases.SINGLY, CLIENTS, launcher)


CASES = (
    Case(
        name="encrypted_startup",
        title=f"encryption: from the launcher's start to the first line of the last of {startup.WORKERS} workers",
        about="Each run makes the user's secret and its certificates, which later jobs of that user find. The launcher "
        "starts an etcd first.",
        until="user's first line",
        bound=startup.BOUND,
        ours=PLAIN,
        peers=(ENCRYPTED,),
        measure=startup.first_line_store,
        warm_up=True,
    ),
    Case(
        name="encrypted_worker_kill",
        title="encryption: SIGKILL of a worker, to the next full step of all ranks",
        about="",
        common=worker_kill.COMMON,
        until="next full step",
        bound=worker_kill.BOUND,
        ours=PLAIN,
        peers=(ENCRYPTED,),
        measure=worker_kill.killed,
        phases=PHASES,
    ),
    Case(
        name="encrypted_node_kill",
        title="encryption: SIGKILL of a node's agent, to the next full step of the two nodes that survive",
        about="",
        common=node_kill.COMMON,
        until="next full step",
        bound=node_kill.BOUND,
        ours=PLAIN,
        peers=(ENCRYPTED,),
        measure=node_kill.last,
        phases=PHASES,
    ),
    Case(
        name="encrypted_leases",
        title=f"encryption: {leases.SHARDS[CLIENTS]:,} shards, leased and marked done by {CLIENTS} clients",
        about="One node; the master asks its etcd before each answer.",
        until="last shard",
        bound=leases.BOUND,
        ours=PLAIN,
        peers=(ENCRYPTED,),
        measure=_leases,
        phases=("one exchange, median", "one exchange, 99th percentile"),
        first_phase="",
    ),
)
