"""Thousands of schedules, drawn from the seeds 0, 1, 2, ...: no rule of `invariants.py` is ever broken.

ELASTIC_RUN_SCHEDULES says how many; more, and other ones, with `make soak`.
"""

import os

import pytest

from .explore import Tale, explain, tell_all
from .schedule import VERBS

SCHEDULES = int(os.environ.get("ELASTIC_RUN_SCHEDULES", "20000"))

ENOUGH = 8
"""Failures after which a person has enough to look at."""

MANY = 400
"""Schedules among which nothing is missing by chance."""


@pytest.mark.slow
def test_no_schedule_breaks_a_rule(tale: Tale) -> None:
    tale.add(tell_all(range(SCHEDULES), enough=ENOUGH))
    if tale.failures:
        pytest.fail(explain(tale), pytrace=False)
    assert tale.schedules == SCHEDULES


@pytest.mark.slow
@pytest.mark.skipif(SCHEDULES < MANY, reason=f"fewer than {MANY} schedules")
def test_every_kind_of_fault_was_done_to_a_job_and_jobs_ended_in_many_ways(tale: Tale) -> None:
    if not tale.schedules:
        pytest.skip("no schedules were lived through: run the whole file")
    assert set(tale.faults) == set(VERBS) - {"service"}, "those jobs have no services; see test_kinds.py"
    seldom = {"repeated"} if tale.schedules >= 5 * MANY else set[str]()
    assert {"succeeded", "failed", "timeout", "preempted"} | seldom <= set(tale.states)
