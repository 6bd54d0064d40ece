"""`hvd.elastic` under `elastic-run` and under Horovod's own launcher: a host or a worker is lost."""

import dataclasses
import os
import signal
import sys
import time

from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .journal import full_steps, pids
from .launchers import OURS as PLAIN
from .launchers import Job, Launcher
from .nodes import SETTLED_SECONDS, script, settled

WORKERS = 2
BOUND = 90.0
START_BOUND = 300.0
"""Seconds: its own launcher imports TensorFlow, where that is installed, before it starts the workers."""

HOSTS = ("localhost", "127.0.0.1")
"""Horovod's launcher takes them for two hosts, both this machine."""

COOLDOWN = ("1", "2")
"""The least that it allows: without it, a host whose worker has failed never gets another."""

OURS = dataclasses.replace(PLAIN, words=("--framework=horovod",), script="horovod_steps.py")
HOROVODRUN = Launcher("horovodrun", "bare", script="horovod_steps.py")
HOROVODRUN_COOLDOWN = Launcher(
    f"horovodrun, --blacklist-cooldown-range {' '.join(COOLDOWN)}",
    "bare",
    words=("--blacklist-cooldown-range", *COOLDOWN),
    script="horovod_steps.py",
)

COMMON = (
    f"`hvd.elastic` in PyTorch, with a commit after each step of 0.02 s; it has trained for {SETTLED_SECONDS:g} s. "
    "Horovod is built without optimization, for both alike. horovodrun: --gloo, with a discovery script that names two "
    "hosts, localhost and 127.0.0.1, of one slot each."
)


def horovodrun(arena: Arena, launcher: Launcher) -> None:
    """Starts the script by Horovod's own launcher."""
    discovery = arena.folder / "discover.sh"
    discovery.write_text("".join(["#!/bin/sh\n", *(f"echo {host}:1\n" for host in HOSTS)]))
    discovery.chmod(0o755)
    words = [sys.executable, "-m", "horovod.runner.launch", "--gloo", "-np", str(WORKERS), "--min-np", "1"]
    words += ["--max-np", str(WORKERS), "--host-discovery-script", str(discovery), *launcher.words]
    arena.start([*words, sys.executable, *script(arena, of=launcher)], arena.environment(launcher), "node0.log")


def recovered(arena: Arena, fault: int, world: int) -> Outcome:
    """Waits for the first full step of so many ranks of a generation that was named after the fault."""

    def found() -> int | None:
        return next((step.at for step in full_steps(arena.journal.steps, after=fault) if step.world == world), None)

    try:
        return Outcome((arena.until(found, BOUND) - fault) / 1e9)
    except DidNotCome as error:
        return Outcome(None, str(error))


def lost(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """The host of rank 1 goes; the other one goes on."""
    nodes = []
    try:
        if launcher is OURS:
            job = Job(arena.job_id, f"1:{WORKERS}", 1, free_port(), script(arena, of=launcher))
            nodes.append(arena.launch(launcher, job))
            arena.until_listening(job.port or 0)
            nodes.append(arena.launch(launcher, job, 1))
        else:
            horovodrun(arena, launcher)
        last = arena.until(lambda: settled(arena, WORKERS), START_BOUND)
    except DidNotCome as error:
        return Outcome(None, f"did not start: {error}")
    if nodes:
        return recovered(arena, arena.kill_tree(nodes[1]), 1)
    return recovered(arena, _kill(pids(arena.journal.born, last.generation)[1]), 1)


def killed(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """A worker goes, rank 0 and rank 1 in turn from round to round of the contest; another one takes its place."""
    try:
        if launcher is OURS:
            arena.launch(launcher, Job(arena.job_id, "1", WORKERS, free_port(), script(arena, of=launcher)))
        else:
            horovodrun(arena, launcher)
        last = arena.until(lambda: settled(arena, WORKERS), START_BOUND)
    except DidNotCome as error:
        return Outcome(None, f"did not start: {error}")
    return recovered(arena, _kill(pids(arena.journal.born, last.generation)[number % WORKERS]), WORKERS)


def _kill(pid: int) -> int:
    """SIGKILL; the instant just before."""
    instant = time.monotonic_ns()
    os.kill(pid, signal.SIGKILL)
    return instant


CASES = (
    Case(
        name="horovod_lost",
        title=f"one of {WORKERS} hosts of an hvd.elastic job is lost, to the survivor's next step",
        about="elastic-run: two nodes of one worker; all processes of the second get SIGKILL. horovodrun: the "
        "worker on the second host gets SIGKILL, and the host is not used again.",
        common=COMMON,
        until="survivor's next step",
        bound=BOUND,
        ours=OURS,
        peers=(HOROVODRUN,),
        measure=lost,
    ),
    Case(
        name="horovod_kill",
        title=f"SIGKILL of one of {WORKERS} workers of an hvd.elastic job, to the next step of {WORKERS} workers",
        about="elastic-run: one node of two workers; the survivor waits for the new one. horovodrun: the "
        "survivor trains alone until the host of the lost one may be used again, after the least time that it allows.",
        common=COMMON,
        until=f"next step of {WORKERS}",
        bound=BOUND,
        ours=OURS,
        peers=(HOROVODRUN_COOLDOWN,),
        measure=killed,
    ),
)
