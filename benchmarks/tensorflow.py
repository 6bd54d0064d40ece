"""MultiWorkerMirroredStrategy under `elastic-run`, and started again by hand: a worker is lost."""

import dataclasses
import json
import os
import signal
import sys
import time

from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import pids
from .launchers import OURS as PLAIN
from .launchers import Job, Launcher, command
from .nodes import SETTLED_SECONDS, recovered, script, settled

WORKERS = 2
BOUND = 120.0
START_BOUND = 300.0
"""Seconds: each worker imports TensorFlow."""
PHASES = ("launch", "import TensorFlow", "join the group", "build", "restore", "first step")
"""See `journal.PHASES`."""

PAUSE_SECONDS = 1
"""Between a worker's end and its next start in the loop."""

OURS = dataclasses.replace(PLAIN, words=("--framework=tensorflow",), script="tensorflow_steps.py")
LOOP = Launcher("a loop around each worker", "bare", script="tensorflow_steps.py")

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


def loops(arena: Arena) -> None:
    """Starts each worker in a loop of the shell, with a TF_CONFIG that stays the same."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(WORKERS)]
    words = script(arena, of=LOOP)
    for rank in range(WORKERS):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        again = f'until "$0" "$@"; do sleep {PAUSE_SECONDS}; done'
        environment = arena.environment(LOOP) | QUIET | {"TF_CONFIG": json.dumps(config)}
        arena.start(["/bin/sh", "-c", again, sys.executable, "-u", *words], environment, f"node{rank}.log")


def killed(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """Rank 0 and rank 1 are killed in turn from round to round of the contest."""
    try:
        if launcher is OURS:
            job = Job(arena.job_id, "1", WORKERS, free_port(), script(arena, of=launcher))
            arena.start(command(launcher, job, 0, arena.folder), arena.environment(launcher) | QUIET, "node0.log")
        else:
            loops(arena)
        last = arena.until(lambda: settled(arena, WORKERS), START_BOUND)
    except DidNotCome as error:
        return Outcome(None, f"did not start: {error}")
    victim = pids(arena.journal.born, last.generation)[number % WORKERS]
    fault = time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    return recovered(arena, fault, BOUND)


CASES = (
    Case(
        name="tensorflow_kill",
        title=f"SIGKILL of one of {WORKERS} workers of MultiWorkerMirroredStrategy, to the next full step",
        about=f"The script has trained for {SETTLED_SECONDS:g} s, and loads its last checkpoint, at most ten steps "
        "old. TensorFlow brings no launcher. Its guide has the lost worker started again, and the others when they "
        f"have failed: the loop does that, {PAUSE_SECONDS} s after a worker has ended, with the same TF_CONFIG.",
        until="next full step",
        bound=BOUND,
        ours=OURS,
        peers=(LOOP,),
        measure=killed,
        phases=PHASES,
    ),
)
