"""Thousands of schedules: no rule of `invariants.py` is ever broken.

Each run takes ELASTIC_RUN_SCHEDULES of the seeds 0 to 10,999, drawn with the seed of the run (`tests/sampling.py`), and
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

POOL = 11_000
"""Seeds that are drawn from."""

SCHEDULES = POOL if SOAK else int(os.environ.get("ELASTIC_RUN_SCHEDULES", "4000"))

ENOUGH = 8
"""Failures after which a person has enough to look at."""

CHUNK = 500
"""Schedules of one test."""

ENOUGH_FOR_ALL = 2000
"""Schedules among which every fault and every end comes about."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", range(0, SCHEDULES, CHUNK))
def test_no_schedule_breaks_a_rule(start: int, request: pytest.FixtureRequest) -> None:
    seeds = sample_seeds(POOL, SCHEDULES)[start : start + CHUNK]
    alone = "PYTEST_XDIST_WORKER" not in os.environ  # else each process has a core of its own
    tale = tell_all(seeds, None if alone else 1, ENOUGH)
    counts = asdict(tale) | {"faults": dict(tale.faults), "states": dict(tale.states), "failures": []}
    request.node.user_properties.append((COUNTS, counts))
    if tale.failures:
        pytest.fail(explain(tale), pytrace=False)
    assert tale.schedules == len(seeds)


@pytest.mark.slow
def test_every_kind_of_fault_is_done_to_a_job_and_jobs_end_in_every_way() -> None:
    """With seeds from 0 on, always the same: among those that are drawn, what is seldom may be missing.

    A schedule that has no fault that is still missing is left out.
    """
    faults, states = set(VERBS) - {"service"}, {"succeeded", "failed", "timeout", "preempted", "repeated"}
    for seed in range(ENOUGH_FOR_ALL):  # those jobs have no services; see test_kinds.py
        schedule = draw(seed)
        if faults and faults.isdisjoint(fault.verb for fault in schedule.faults):
            continue
        outcome = attempt(schedule)
        assert isinstance(outcome, Outcome) and not outcome.violations
        faults -= set(outcome.faults)
        states -= {outcome.state}
        if not faults | states:
            return
    pytest.fail(f"no schedule of {ENOUGH_FOR_ALL} does {sorted(faults)} to a job, or has one end as {sorted(states)}")
