"""What a script pays for keeping its process: a commit in each step, and the way of the state to a newcomer."""

import dataclasses

from .answers import answers, one_answer
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import OURS, SCRIPTS, Job, Launcher

SCRIPT = "in_place_costs.py"
WORKERS = 2
STEPS = 60
MEGABYTES = 100
GIGABYTE_IN_MEGABYTES = 1024
BOUND = 180.0

COMMITTED = dataclasses.replace(OURS, name="with a State and commit()")
UNCOPIED = dataclasses.replace(OURS, name='with State(copies="never")')
PLAIN = dataclasses.replace(OURS, name="the same loop without")
TAKEN = dataclasses.replace(OURS, name="State.sync() of a worker without the state")
SOCKET = Launcher("one TCP connection over loopback", "bare")


def _launched(arena: Arena, launcher: Launcher, *words: str) -> list[dict[str, float]]:
    arena.launch(launcher, Job(arena.job_id, "1", WORKERS, free_port(), (str(SCRIPTS / SCRIPT), *words, arena.word)))
    return answers(arena, WORKERS, BOUND)


def _committed(arena: Arena, launcher: Launcher, _: int) -> Outcome:
    kind = {COMMITTED: "always", UNCOPIED: "never"}.get(launcher, "plain")
    try:
        found = _launched(arena, launcher, kind, str(MEGABYTES), str(STEPS))
    except DidNotCome as error:
        return Outcome(None, str(error))
    slowest = max(found, key=lambda each: each["seconds"])
    return Outcome(slowest["seconds"], phases=(slowest["inside"], slowest["seconds"] - slowest["inside"]))


def _taken(arena: Arena, launcher: Launcher, _: int) -> Outcome:
    words = str(GIGABYTE_IN_MEGABYTES), "0"
    try:
        if launcher is TAKEN:
            return Outcome(max(each["seconds"] for each in _launched(arena, launcher, "state", *words)))
        return Outcome(one_answer(arena, SCRIPT, ("socket", *words), BOUND)["seconds"])
    except DidNotCome as error:
        return Outcome(None, str(error))


CASES = (
    Case(
        name="in_place_commit",
        title=f"{STEPS} steps of DDP with a model of {MEGABYTES} MB, {WORKERS} workers",
        about="SGD with momentum and a batch of 8, after 20 steps that are not counted. By default each commit copies "
        'the parameters and the momentum, 200 MB; `copies="never"` does not. The first phase is what a rank spends in '
        "`commit()`.",
        until="last step",
        bound=BOUND,
        ours=COMMITTED,
        peers=(UNCOPIED, PLAIN),
        measure=_committed,
        phases=("in commit()", "all else"),
        first_phase="",
    ),
    Case(
        name="in_place_state",
        title=f"a state of {GIGABYTE_IN_MEGABYTES} MB comes to a worker that has none",
        about="A model in tensors of 32 MB with plain SGD, from one rank to the other of the same machine, into the "
        "model's own parameters: the whole of `sync()`, until the training can begin. Beside it, the same number of "
        "bytes from memory to memory through one TCP connection, without any meaning.",
        until="last byte",
        bound=BOUND,
        ours=TAKEN,
        peers=(SOCKET,),
        measure=_taken,
        first_phase="",
    ),
)
