"""Jobs with roles in hundreds of schedules: no rule is ever broken.

ELASTIC_RUN_SCHEDULES says how many schedules others have; these are a twentieth.
"""

import os
from collections import Counter

import pytest

from .explore import attempt
from .roles import draw_with_roles
from .schedule import parse
from .world import Outcome

SCHEDULES = max(40, int(os.environ.get("ELASTIC_RUN_SCHEDULES", "20000")) // 20)

ENOUGH = 3


@pytest.mark.slow
def test_no_schedule_with_roles_breaks_a_rule() -> None:
    states, broken = Counter[str](), list[str]()
    for seed in range(SCHEDULES):
        schedule = draw_with_roles(seed)
        assert parse(schedule.text) == schedule
        outcome = attempt(schedule)
        if isinstance(outcome, Outcome) and not outcome.violations:
            states[outcome.state] += 1
            continue
        what = outcome if isinstance(outcome, str) else f"{outcome.violations[0]}"
        broken.append(f"{what}\n{schedule.text}")
        if len(broken) >= ENOUGH:
            break
    assert not broken, "\n\n".join(broken)
    assert states["succeeded"] > SCHEDULES / 4
