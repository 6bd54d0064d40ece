"""How long a step of a made-up job takes, by its number of workers: laws that a planner does not know.

Each kind draws its constants anew from a seed. The kinds of `TUNED` were looked at while `master/resources/` was
written; those of `UNSEEN` were written first, and first run when it was done.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

StepSeconds = Callable[[int], float]
"""Seconds of a step, on average, with so many workers."""


@dataclass(frozen=True, slots=True)
class Law:
    """One job's.

    Attributes:
        step: seconds, by workers.
        noise: the relative spread of one step.
        per_job: each step has the same records, however many workers share them; else each worker has as many.
    """

    step: StepSeconds
    noise: float
    per_job: bool = False

    def work(self, workers: int) -> float:
        """Work a second: steps where each has the same records, else steps times workers."""
        return (1 if self.per_job else workers) / self.step(workers)


def _compute(draw: random.Random) -> Law:
    """Amdahl: a part that does not shrink, a part that is shared, and a little for each worker."""
    whole, fixed, each = draw.uniform(0.2, 1.0), draw.uniform(0.005, 0.2), draw.uniform(0.0, 0.01)
    return Law(lambda n: fixed + whole / n + each * (n - 1), draw.uniform(0.02, 0.1), per_job=True)


def _input(draw: random.Random) -> Law:
    """All read from one disk: so many batches a second and no more."""
    own, batches = draw.uniform(0.03, 0.15), draw.uniform(2.0, 14.0)
    return Law(lambda n: max(own, own * n / batches), draw.uniform(0.02, 0.1))


def _communication(draw: random.Random) -> Law:
    """A ring: its bandwidth, and a latency for each worker."""
    own, bandwidth, latency = draw.uniform(0.03, 0.1), draw.uniform(0.01, 0.2), draw.uniform(0.001, 0.02)
    return Law(lambda n: own + bandwidth * (n - 1) / n + latency * (n - 1), draw.uniform(0.02, 0.1))


def _straggling(draw: random.Random) -> Law:
    """Each worker is late now and then, and all wait for the last."""
    own, late, often = draw.uniform(0.03, 0.1), draw.uniform(0.05, 0.4), draw.uniform(0.01, 0.15)
    return Law(lambda n: own + late * (1 - (1 - often) ** n), draw.uniform(0.1, 0.3))


def _congested(draw: random.Random) -> Law:
    """What they send collides: it grows with the square."""
    own, square = draw.uniform(0.03, 0.1), draw.uniform(0.0002, 0.004)
    return Law(lambda n: own + square * (n - 1) ** 2, draw.uniform(0.02, 0.1))


def _two_racks(draw: random.Random) -> Law:
    """As fast as one worker within a rack, and slow from the first worker in another."""
    own, rack, slow = draw.uniform(0.03, 0.1), draw.randint(3, 12), draw.uniform(1.2, 3.0)
    return Law(lambda n: own * (1 if n <= rack else slow), draw.uniform(0.02, 0.1))


def _queueing(draw: random.Random) -> Law:
    """Workers that queue at one server (a closed network of queues, by mean value analysis)."""
    own, serve = draw.uniform(0.03, 0.1), draw.uniform(0.003, 0.03)

    def step(n: int) -> float:
        waiting, answer = 0.0, serve
        for size in range(1, n + 1):
            answer = serve * (1 + waiting)
            waiting = size * answer / (own + answer)
        return own + answer

    return Law(step, draw.uniform(0.02, 0.1))


def _cached(draw: random.Random) -> Law:
    """A shared step whose part of the data comes to fit into memory with enough workers."""
    whole, enough, faster = draw.uniform(0.3, 1.0), draw.randint(2, 10), draw.uniform(1.2, 2.5)
    each = draw.uniform(0.002, 0.02)
    return Law(
        lambda n: whole / n / (faster if n >= enough else 1.0) + each * (n - 1), draw.uniform(0.02, 0.1), per_job=True
    )


Kind = Callable[[random.Random], Law]

TUNED: Mapping[str, Kind] = {
    "compute": _compute,
    "input": _input,
    "communication": _communication,
    "straggling": _straggling,
}

UNSEEN: Mapping[str, Kind] = {
    "congested": _congested,
    "two racks": _two_racks,
    "queueing": _queueing,
    "cached": _cached,
}
