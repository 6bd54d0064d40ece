"""What a header changes of what a node knows: out of order, twice, of another run, or of its own."""

import dataclasses

from elastic_run.elastic_agent.machine.known_round import take
from elastic_run.elastic_agent.machine.node_state import KnownRound
from elastic_run.rendezvous.header import Header, HeaderState
from elastic_run.rendezvous.member import Fingerprint
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.round import Cause

REGISTERED = 10
"""The revision at which the node is registered."""

MINE = Assignment(2, "a", "A", 0, 2, 0, 1, 2, 0, 2)


def header(number: int = 2, state: HeaderState = "open", cause: Cause = "joined", run: str = "own") -> Header:
    return Header(number, run, state, cause, f"because of {cause}", Fingerprint("train.py", (), "2:4", "1", "0"))


KNOWN = KnownRound(header(1), 20, seen_at=5.0, gentle=1, assigned=True, own_run="own")
"""In round 1 of its run."""


def read(
    known: KnownRound,
    found: Header,
    revision: int,
    assignment: Assignment | None = None,
    *,
    registered: int | None = REGISTERED,
    fresh: bool = False,
) -> KnownRound | None:
    return take(known, found, revision, assignment, registered=registered, fresh=fresh, now=7.0)


def test_an_older_header_is_no_news() -> None:
    assert read(KNOWN, header(), 19) is None


def test_a_newer_header_is_known_with_its_assignment_and_the_time() -> None:
    expected = KnownRound(header(), 21, 7.0, 1, MINE, assigned=True, own_run="own")
    assert read(KNOWN, header(), 21, MINE) == expected


def test_the_same_header_may_bring_an_assignment_that_was_missing_and_stays_as_old_as_it_was() -> None:
    found = read(KNOWN, header(1), 20, MINE)
    assert found and found.assignment == MINE and found.seen_at == 5.0


def test_a_fault_after_a_join_makes_the_way_to_the_round_no_longer_gentle() -> None:
    found = read(KNOWN, header(2, cause="lost"), 21)
    assert found and found.gentle == 2


def test_the_first_round_seen_while_registered_is_of_the_nodes_own_run() -> None:
    found = read(KnownRound(), header(), REGISTERED + 1)
    assert found and found.own_run == "own" and not found.assigned


def test_a_header_from_before_the_registration_is_of_nobodys_run_until_it_has_a_rank() -> None:
    before = read(KnownRound(), header(), REGISTERED - 1)
    assert before and before.own_run == ""
    chosen = read(KnownRound(), header(), REGISTERED - 1, MINE)
    assert chosen and chosen.own_run == "own" and chosen.assigned


def test_the_end_of_an_earlier_run_is_not_this_nodes() -> None:
    found = read(KnownRound(), header(9, "succeeded", run="earlier"), REGISTERED - 1)
    assert found and found.stale == "earlier" and not found.over


def test_the_end_of_its_own_run_is_this_nodes_also_where_it_registered_again_since() -> None:
    found = read(KNOWN, header(2, "succeeded"), 21, registered=30)
    assert found and found.over and found.own_run == "own"


def test_the_end_of_nodes_that_were_told_to_leave_is_not_that_of_one_which_has_just_come() -> None:
    end = header(2, "preempted")
    newcomer = read(KnownRound(), end, 21, fresh=True)
    assert newcomer and newcomer.stale == "own" and not newcomer.over
    veteran = read(KNOWN, end, 21)
    assert veteran and veteran.over


def test_a_node_whose_run_has_ended_has_no_part_in_the_next() -> None:
    ended = dataclasses.replace(KNOWN, header=header(2, "failed"), revision=21)
    assert read(ended, header(1, run="next"), 30) is None
    stranger = dataclasses.replace(ended, assigned=False)
    assert read(stranger, header(1, run="next"), 30) is not None


def test_a_node_that_is_not_registered_takes_no_end_for_another_runs() -> None:
    found = read(KNOWN, header(2, "preempted"), 21, registered=None, fresh=True)
    assert found and found.over and found.own_run == "own"
