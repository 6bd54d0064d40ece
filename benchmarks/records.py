"""How fast one process gets the numbers of its records: through leased shards, and from a list that it shuffles."""

import sys

from .answers import answers
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import BARE, OURS, SCRIPTS, Job, Launcher

RECORDS = 2_000_000
SHARD = 1000
BOUND = 120.0

LEASED = Launcher("elastic_run.data.shards()", "elastic-run")
ALONE = Launcher("the same without a launcher", "bare")
LIST = Launcher("a shuffled list", "bare")
TORCH = Launcher("torch's DistributedSampler", "bare")
_KINDS = {LEASED: "shards", ALONE: "shards", LIST: "list", TORCH: "torch"}


def _measured(arena: Arena, launcher: Launcher, _: int) -> Outcome:
    words = (
        str(SCRIPTS / "records_loop.py"),
        _KINDS[launcher],
        str(RECORDS),
        str(SHARD),
        str(arena.folder / "answer0"),
    )
    try:
        if launcher is LEASED:
            arena.launch(OURS, Job(arena.job_id, "1", 1, free_port(), words))
        else:
            arena.start([sys.executable, *words], arena.environment(BARE), "script.log")
        (seconds,) = answers(arena, 1, BOUND)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome(seconds)


CASES = (
    Case(
        name="records",
        title=f"the numbers of {RECORDS:,} records in a new order, one by one, in one process",
        about="A loop that does nothing else. elastic_run.data.shards(): one worker under elastic-run, shards of "
        f"{SHARD:,} records, each marked done; the master keeps the leases in an etcd. Without a launcher the ledger "
        "is in the process. The list and torch's sampler shuffle all of it in memory, which is in their figure. 1 s "
        "here is 0.5 us for each record.",
        until="last record",
        bound=BOUND,
        ours=LEASED,
        peers=(ALONE, LIST, TORCH),
        measure=_measured,
    ),
)
