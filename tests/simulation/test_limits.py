"""Limits that docs/reliability.md names: what happens there instead of what a user may wish."""

from .schedule import parse
from .world import run

CUT_OFF_FROM_THE_FIRST_MOMENT = """
seed 1
job nodes=2 min=1 max=2 work=4 restarts=0 ttl=3
registered.n2+0 cut n2 * 14
running.2+0.5   worker n1 0 raise
"""


def test_a_node_that_never_heard_of_its_run_begins_the_job_again_once_that_run_has_failed_and_gone() -> None:
    outcome = run(parse(CUT_OFF_FROM_THE_FIRST_MOMENT))
    assert not outcome.violations
    told = "\n".join(outcome.trace)
    assert "n1.1      ends with 1: rank 0 on node n1 exited with code 1" in told
    assert "n2.1      ends with 0: every worker of round 1 ended with exit code 0" in told
