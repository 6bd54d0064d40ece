"""Thousands of schedules: no rule of `invariants.py` is ever broken.

Each run takes ELASTIC_RUN_SCHEDULES of the seeds 0 to 19,999, drawn with the seed of the run (`tests/sampling.py`), and
`make soak` all of them, and then seeds that nobody has tried.
"""

import os
from dataclasses import asdict

import pytest

from ..sampling import SOAK, sample_seeds
from .conftest import COUNTS
from .explore import attempt, explain, tell_all
from .schedule import VERBS, draw
from .world import Outcome

POOL = 20_000
"""Seeds that are drawn from."""

SCHEDULES = POOL if SOAK else int(os.environ.get("ELASTIC_RUN_SCHEDULES", "4000"))

ENOUGH = 8
"""Failures after which a person has enough to look at."""

CHUNK = 500
"""Schedules of one test, among which no kind of fault is missing by chance."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_no_schedule_breaks_a_rule_and_every_kind_of_fault_is_done(start: int, request: pytest.FixtureRequest) -> None:
    seeds = sample_seeds(POOL, SCHEDULES)[start : start + CHUNK]
    alone = "PYTEST_XDIST_WORKER" not in os.environ  # else each process has a core of its own
    tale = tell_all(seeds, None if alone else 1, ENOUGH)
    counts = asdict(tale) | {"faults": dict(tale.faults), "states": dict(tale.states), "failures": []}
    request.node.user_properties.append((COUNTS, counts))
    if tale.failures:
        pytest.fail(explain(tale), pytrace=False)
    assert tale.schedules == len(seeds)
    if len(seeds) == CHUNK:
        assert set(tale.faults) == set(VERBS) - {"service"}, "those jobs have no services; see test_kinds.py"
        assert {"succeeded", "failed", "timeout", "preempted"} <= set(tale.states)


def test_a_job_that_repeats_a_failure_ends_as_repeated() -> None:
    """A chunk may hold no such schedule: about one in 120 ends so."""
    outcome = attempt(draw(311))
    assert isinstance(outcome, Outcome) and not outcome.violations and outcome.state == "repeated"
