"""Nodes that train together on one machine, until something happens to one of them."""

import subprocess
import time
from collections.abc import Callable

from .arena import Arena, DidNotCome, free_port
from .case import Outcome
from .journal import Step, full_steps, phases, standstill
from .launchers import OURS, SCRIPTS, Job, Launcher

NODES = 3
RANGE = f"2:{NODES}"

SETTLED_SECONDS = 8.0
"""So long the job has trained before anything befalls it: there is a checkpoint, and the launcher has done whatever it
does beside. In real life it is hours."""

START_BOUND = 120.0

Node = subprocess.Popen[bytes]


class DidNotStart(Exception):
    """The job did not come to train evenly; why."""


def script(arena: Arena, *words: str, of: Launcher = OURS) -> tuple[str, ...]:
    """The DDP script (or the one that is given to that launcher), with the files of this run.

    They are named as seen from the run's folder, and other names in each run.
    """
    return (str(SCRIPTS / of.script), arena.journal.path.name, f"checkpoint-{arena.word}", *words)


def settled(arena: Arena, world: int) -> Step | None:
    """A recent full step of a generation of `world` ranks that has trained for long enough."""
    steps = full_steps(arena.journal.steps)
    if not steps or steps[-1].world != world:
        return None
    first = next(step for step in steps if step.generation == steps[-1].generation)
    return steps[-1] if steps[-1].at - first.at >= SETTLED_SECONDS * 1e9 else None


def recovered(arena: Arena, fault: int, bound: float) -> Outcome:
    """Waits for the first full step of a generation that was named after the fault."""
    try:
        first = arena.until(lambda: next(iter(full_steps(arena.journal.steps, after=fault)), None), bound)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome((first.at - fault) / 1e9, phases=phases(arena.journal.born, fault, first))


class Nodes:
    """So many nodes of one worker each that train evenly; the first hosts the store. Raises DidNotStart."""

    def __init__(self, arena: Arena, launcher: Launcher, count: int = NODES) -> None:
        self._arena = arena
        self._launcher = launcher
        self._job = Job(arena.job_id, RANGE, 1, free_port(), script(arena, of=launcher))
        self.started: list[Node] = []
        try:
            self.add()
            arena.until_listening(self._job.port or 0)
            for _ in range(1, count):
                self.add()
            arena.until(lambda: settled(arena, count), START_BOUND)
        except DidNotCome as error:
            raise DidNotStart(f"did not start: {error}") from None

    def add(self) -> None:
        """Starts one more."""
        self.started.append(self._arena.launch(self._launcher, self._job, len(self.started)))


def lost(arena: Arena, launcher: Launcher, strike: Callable[[Nodes], int], bound: float) -> Outcome:
    """Something befalls a node: from the instant that `strike` returns to the survivors' next full step."""
    try:
        nodes = Nodes(arena, launcher)
    except DidNotStart as why:
        return Outcome(None, str(why))
    return recovered(arena, strike(nodes), bound)


def stopped(arena: Arena, launcher: Launcher, before: int, event: Callable[[Nodes], object], bound: float) -> Outcome:
    """How long training stands still because the number of nodes changes in order, from `before` to one other."""
    try:
        nodes = Nodes(arena, launcher, before)
    except DidNotStart as why:
        return Outcome(None, str(why))
    begun = time.monotonic_ns()
    event(nodes)

    def changed() -> Step | None:
        later = full_steps(arena.journal.steps, after=begun)
        return next((step for step in later if step.world != before), None)

    try:
        first = arena.until(changed, bound)
    except DidNotCome as error:
        return Outcome(None, str(error))
    full = full_steps(arena.journal.steps)
    seconds = standstill(full, begun, first)
    told = phases(arena.journal.born, first.at - round(seconds * 1e9), first)
    # With another generation in between, the phases of the last are not all that happened.
    return Outcome(seconds, phases=told if len({step.generation for step in full}) == 2 else None)
