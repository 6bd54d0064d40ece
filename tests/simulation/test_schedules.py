"""Thousands of schedules, drawn from the seeds 0, 1, 2, ...: no rule of `invariants.py` is ever broken.

ELASTIC_RUN_SCHEDULES says how many; more, and other ones, with `make soak`.
"""

import os

import pytest

from .explore import Tale, explain, tell, tell_all
from .schedule import VERBS

SCHEDULES = int(os.environ.get("ELASTIC_RUN_SCHEDULES", "20000"))

OPEN = {
    8137: "what ends a round is answered at once",
    10293: "a store that was away costs no worker",
    10984: "the dead do not come back",
    12579: "the dead do not come back",
    12917: "who was in a run that has ended begins no other",
    13210: "who was in a run that has ended begins no other",
    16665: "who cannot end its workers leaves",
}
"""Schedules that break a rule today, and which: known, not mended, told in docs/reliability.md. Others take their place
among those that are counted."""

ENOUGH = 8
"""Failures after which a person has enough to look at."""

MANY = 400
"""Schedules among which nothing is missing by chance."""


@pytest.mark.slow
def test_no_schedule_breaks_a_rule(tale: Tale) -> None:
    seeds = [seed for seed in range(SCHEDULES + len(OPEN)) if seed not in OPEN][:SCHEDULES]
    tale.add(tell_all(seeds, enough=ENOUGH))
    if tale.failures:
        pytest.fail(explain(tale), pytrace=False)
    assert tale.schedules == SCHEDULES


@pytest.mark.parametrize("seed", OPEN)
@pytest.mark.xfail(strict=True, reason="known, and not mended yet")
def test_a_schedule_that_breaks_a_rule_today_breaks_none(seed: int) -> None:
    assert not tell([seed]).failures


@pytest.mark.slow
@pytest.mark.skipif(SCHEDULES < MANY, reason=f"fewer than {MANY} schedules")
def test_every_kind_of_fault_was_done_to_a_job_and_jobs_ended_in_many_ways(tale: Tale) -> None:
    if not tale.schedules:
        pytest.skip("no schedules were lived through: run the whole file")
    assert set(tale.faults) == set(VERBS)
    seldom = {"repeated"} if tale.schedules >= 5 * MANY else set[str]()
    assert {"succeeded", "failed", "timeout", "preempted"} | seldom <= set(tale.states)
