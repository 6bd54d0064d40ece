"""Four workers, one of them four times slower: how long they take together, beside the best that could be."""

from . import dlrover
from .answers import answers
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import BARE, OURS, SCRIPTS, Job, Launcher, bare_environment

WORKERS = 4
SECONDS = 0.005
SLOWER = 4
RECORDS = 2600
SHARD = 10
BOUND = 120.0

SPEED = (WORKERS - 1) / SECONDS + 1 / (SECONDS * SLOWER)
BEST = RECORDS / SPEED

LEASED = Launcher("elastic-run, leased", "elastic-run")
STATIC = Launcher("equal parts", "bare", every=2)
IDEAL = Launcher("the best there could be (computed)", "bare")


def _measured(arena: Arena, launcher: Launcher, _: int) -> Outcome:
    if launcher is IDEAL:
        return Outcome(BEST)
    kind = {LEASED: "elastic-run", STATIC: "static"}.get(launcher, "dlrover")
    script = [str(SCRIPTS / "uneven_worker.py"), kind, str(arena.folder), str(RECORDS), str(SHARD)]
    try:
        if launcher is LEASED:
            arena.launch(OURS, Job(arena.job_id, "1", WORKERS, free_port(), (*script, "")))
        elif launcher is STATIC:
            arena.launch(BARE, Job(arena.job_id, "1", WORKERS, None, (*script, "")))
        else:
            words = [str(dlrover.interpreter()), *script, dlrover.master(arena)]
            base = arena.environment(BARE)
            for rank in range(WORKERS):
                arena.start(words, base | bare_environment(rank, WORKERS, 0), f"rank{rank}.log")
        found = answers(arena, WORKERS, BOUND)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome(max(one["ended"] for one in found) - min(one["begun"] for one in found))


CASES = (
    Case(
        name="slow_worker",
        title=f"{RECORDS:,} records by {WORKERS} workers, of which one is {SLOWER} times slower",
        about=f"A record is a sleep of {SECONDS * 1e3:g} ms, {SECONDS * SLOWER * 1e3:g} ms on the slow worker; shards "
        f"have {SHARD} records. The best there could be: all records divided by the sum of the four speeds. DLRover as "
        "in the table of the leases.",
        until="last record",
        bound=BOUND,
        ours=LEASED,
        peers=(IDEAL, STATIC, dlrover.PEER),
        measure=_measured,
    ),
)
