"""How fast shards are leased: by one, four and sixteen clients at once, singly and sixteen at a time."""

from . import dlrover
from .answers import answers
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import BARE, OURS, SCRIPTS, Job, Launcher, bare_environment
from .table import quantile

SHARDS = {1: 3200, 4: 6400, 16: 9600}
"""Of all clients together, by their number: enough that a run in bulk lasts."""

AT_ONCE = 16
BOUND = 120.0

SINGLY = Launcher("elastic-run, singly", "elastic-run")
IN_BULK = Launcher(f"elastic-run, {AT_ONCE} at a time", "elastic-run")


def measured(arena: Arena, launcher: Launcher, clients: int, started: Launcher = OURS) -> Outcome:
    """One run. `started`: as elastic-run is called where it is the one that is measured."""
    at_once = AT_ONCE if launcher is IN_BULK else 1
    kind = "dlrover" if launcher is dlrover.PEER else "elastic-run"
    script = [str(SCRIPTS / "lease_clients.py"), kind, str(arena.folder), str(clients), str(SHARDS[clients] // clients)]
    try:
        if launcher is dlrover.PEER:
            words = [str(dlrover.interpreter()), *script, str(at_once), dlrover.master(arena)]
            base = arena.environment(BARE)
            for rank in range(clients):
                arena.start(words, base | bare_environment(rank, clients, 0), f"rank{rank}.log")
        else:
            arena.launch(started, Job(arena.job_id, "1", clients, free_port(), (*script, str(at_once), "")))
        found = answers(arena, clients, BOUND)
    except DidNotCome as error:
        return Outcome(None, str(error))
    waits = [wait for one in found for wait in one["waits"]]
    seconds = max(one["ended"] for one in found) - min(one["begun"] for one in found)
    return Outcome(seconds, phases=(quantile(waits, 0.5), quantile(waits, 0.99)))


COMMON = (
    "One node. elastic-run: worker, agent, master, and an etcd whose fsync is waited for before each answer; one "
    "exchange marks a shard done and leases the next. DLRover: its client and its local master over gRPC, two calls "
    "for that; it keeps what it deals out in memory and loses it with the master, so this compares durable with not "
    "durable."
)


def _case(clients: int) -> Case:
    return Case(
        name=f"leases_{clients}",
        title=f"{SHARDS[clients]:,} shards, leased and marked done by {clients} client{'s' if clients > 1 else ''}",
        about="",
        common=COMMON,
        until="last shard",
        bound=BOUND,
        ours=SINGLY,
        peers=(IN_BULK, dlrover.PEER),
        measure=lambda arena, launcher, _: measured(arena, launcher, clients),
        phases=("one exchange, median", "one exchange, 99th percentile"),
        first_phase="",
    )


CASES = tuple(map(_case, SHARDS))
