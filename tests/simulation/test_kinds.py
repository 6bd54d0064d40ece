"""Jobs with roles, with masters that have no workers, and with services: in hundreds of schedules, no rule is broken.

ELASTIC_RUN_SCHEDULES says how many schedules plain jobs have; each kind here has a tenth of them, at most 1,000.
"""

import os
from collections import Counter

import pytest

from ..sampling import SOAK, sample_seeds
from .explore import attempt
from .kinds import DRAWS
from .schedule import parse
from .world import Outcome

POOL = 1000
"""Seeds that are drawn from."""

SCHEDULES = POOL if SOAK else min(POOL, max(40, int(os.environ.get("ELASTIC_RUN_SCHEDULES", "4000")) // 10))

ENOUGH = 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in DRAWS if kind != "plain"])
def test_no_schedule_of_this_kind_breaks_a_rule(kind: str) -> None:
    states, broken, done = Counter[str](), list[str](), Counter[str]()
    for seed in sample_seeds(POOL, SCHEDULES):
        schedule = DRAWS[kind](seed)
        assert parse(schedule.text) == schedule
        outcome = attempt(schedule)
        if isinstance(outcome, Outcome) and not outcome.violations:
            states[outcome.state] += 1
            done.update(outcome.faults)
            continue
        what = outcome if isinstance(outcome, str) else f"{outcome.violations[0]}"
        broken.append(f"{what}\n{schedule.text}")
        if len(broken) >= ENOUGH:
            break
    assert not broken, "\n\n".join(broken)
    assert states["succeeded"] > SCHEDULES / 4
    assert done["service"] or kind != "services"
