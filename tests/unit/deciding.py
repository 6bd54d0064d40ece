"""What is decided about members who are given one by one."""

from collections.abc import Iterable

from elastic_run.rendezvous.reasons import Reason
from elastic_run.rendezvous.round import Decision, Policy, Round, Seen, decide, survey


def plan(members: Iterable[Seen], current: Round, policy: Policy, now: float) -> tuple[Decision, Reason]:
    """What `decide` says of these members."""
    return decide(survey(members, current, policy), current, policy, now)
