"""The round as one value: what a suspension changes of it, and what the next round does."""

import math

from elastic_run.master.machine.round_state import RoundState
from elastic_run.rendezvous.header import Header, HeaderState
from elastic_run.rendezvous.member import Fingerprint
from elastic_run.rendezvous.ranks import Assignment, NodeRanks, NodeWorkers
from elastic_run.rendezvous.reasons import NoChange
from elastic_run.rendezvous.roles import Role
from elastic_run.rendezvous.round import Cause, Policy

ASSIGNED = (Assignment(3, "a", "A", 0, 2, 0, 2, 3, 0, 2), Assignment(3, "b", "B", 1, 2, 2, 1, 3, 2, 2, role="eval"))
ROLES = Policy(1, 2, roles=(Role("", 1, 1), Role("eval", 0, 1, on_loss="one", counts=False)))


def header(cause: Cause = "start", state: HeaderState = "open") -> Header:
    return Header(3, "run", state, cause, NoChange(), Fingerprint("train.py", (), "2", "1", "1.0"))


def test_a_suspension_keeps_the_nodes_and_what_they_were_assigned() -> None:
    before = RoundState.of(header(), ASSIGNED, 5.0, Policy(1, 2)).saved(7.0)
    after = before.suspended(4, 9.0)
    assert (before.running, before.current.saved_at) == (True, 7.0)
    assert (after.number, after.running, after.current.opened_at, after.current.saved_at) == (4, False, 9.0, -math.inf)
    assert after.current.nodes == ("A", "B") and after.assigned == ASSIGNED and after.incarnations == {"A", "B"}


def test_a_round_knows_its_ranks_and_in_a_job_with_roles_who_is_optional() -> None:
    plain, roles = (RoundState.of(header(), ASSIGNED, 5.0, policy) for policy in (Policy(1, 2), ROLES))
    assert plain.ranks == {"A": range(2), "B": range(2, 3)} and plain.exits == 3
    assert (plain.optional, plain.current.node_workers) == (frozenset(), ())
    assert roles.optional == {"B"} and roles.continuing == frozenset()
    places = NodeRanks(0, 0, 0), NodeRanks(1, 2, 2)
    assert roles.current.node_workers == (NodeWorkers("default", 2, places[0]), NodeWorkers("eval", 1, places[1]))


def test_when_the_job_has_grown_last_outlives_the_rounds_that_do_not_grow_it() -> None:
    grown = RoundState.of(header("joined"), ASSIGNED, 5.0, Policy(1, 2))
    assert grown.current.grown_at == 5.0
    assert RoundState.of(header("lost"), ASSIGNED, 8.0, Policy(1, 2), grown.current.grown_at).current.grown_at == 5.0
    assert not RoundState.of(header(state="waiting"), ASSIGNED, 8.0, Policy(1, 2)).running
