"""What a script pays for steps that outlive its workers: a copy in memory at each, beside a file in memory at each."""

import dataclasses

from .answers import answers
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import OURS, SCRIPTS, Job, Launcher

SCRIPT = "memory_checkpoints.py"
WORKERS = 2
STEPS = 40
LEASED_STEPS = 500
MEGABYTES = 50
BOUND = 180.0

MEMORY = dataclasses.replace(OURS, name="Checkpoint(memory=1)")
FILE = dataclasses.replace(OURS, name="Checkpoint(every=1) on a tmpfs")
SAVED = dataclasses.replace(OURS, name="torch.save on a tmpfs")
PLAIN = dataclasses.replace(OURS, name="the same loop without")
LEASED = dataclasses.replace(OURS, name="leased shards, memory=1")
LEASED_TENTH = dataclasses.replace(OURS, name="leased shards, memory=10")
LEASED_FILE = dataclasses.replace(OURS, name="leased shards, no copies")
UNLEASED = dataclasses.replace(OURS, name="no data among the parts, memory=1")

_KINDS = {
    MEMORY: "memory",
    FILE: "file",
    SAVED: "save",
    PLAIN: "plain",
    LEASED: "leased-1",
    LEASED_TENTH: "leased-10",
    LEASED_FILE: "leased-0",
    UNLEASED: "memory",
}


def _measured(arena: Arena, launcher: Launcher, megabytes: int, steps: int) -> Outcome:
    words = (str(SCRIPTS / SCRIPT), _KINDS[launcher], str(megabytes), str(steps), arena.word)
    arena.launch(launcher, Job(arena.job_id, "1", WORKERS, free_port(), words))
    try:
        slowest = max(answers(arena, WORKERS, BOUND), key=lambda each: each["seconds"])
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome(slowest["inside"], phases=(slowest["inside"], slowest["seconds"] - slowest["inside"]))


CASES = (
    Case(
        name="memory_commit",
        title=f"{STEPS} steps of DDP whose state of {2 * MEGABYTES} MB is kept at each, {WORKERS} workers of one node",
        about=f"{MEGABYTES} MB of parameters and as much of SGD's momentum, after 10 steps that are not counted: the "
        "seconds that the slower rank spends in keeping them. With `memory=1` rank 0 copies them into memory that the "
        "agent holds, adds them up, and all ranks wait for it. The files lie in /dev/shm: one as `Checkpoint` writes "
        "it today, with fsync, the question to the agent and the rename, and one by `torch.save` alone, for which no "
        "rank waits but the one that writes.",
        until="last step",
        bound=BOUND,
        ours=MEMORY,
        peers=(FILE, SAVED, PLAIN),
        measure=lambda arena, launcher, _: _measured(arena, launcher, MEGABYTES, STEPS),
        phases=("in keeping it", "all else"),
        first_phase="",
    ),
    Case(
        name="memory_leased",
        title=f"{LEASED_STEPS} steps of a tiny model whose shards are leased, {WORKERS} workers of one node",
        about="The seconds that the slower rank spends in `commit()`: with leased shards each copy asks the job's "
        "master for the position of all ranks.",
        until="last step",
        bound=BOUND,
        ours=LEASED,
        peers=(LEASED_TENTH, UNLEASED, LEASED_FILE),
        measure=lambda arena, launcher, _: _measured(arena, launcher, 0, LEASED_STEPS),
        phases=("in commit()", "all else"),
        first_phase="",
    ),
)
