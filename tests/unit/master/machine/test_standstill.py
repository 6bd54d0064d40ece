"""What is done about a round that stands still: the part by itself. Its words are in `tests/transcripts/controller`."""

import dataclasses

from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.diagnosis.requests import Suspected
from elastic_run.master.machine import effects
from elastic_run.master.machine.round_state import RoundState
from elastic_run.master.machine.standstill import RoundNodes, Standstill
from elastic_run.rendezvous.member import Report
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.round import OnHang, Round

ASSIGNED = (Assignment(3, "a", "A", 0, 2, 0, 1, 2, 0, 2), Assignment(3, "b", "B", 1, 2, 1, 1, 2, 1, 2))
NODES = RoundNodes(
    RoundState(Round(3, ("A", "B"), True, 0.0), ASSIGNED),
    {"A": Suspected("a", "A", "", ""), "B": Suspected("b", "B", "", "")},
    (),
)
SLEEPS = Finding("sleeps", 1, "b", "strong", waiting=(0,), seconds=61.0)


def standing(on_hang: OnHang = "report") -> Standstill:
    """Of which a node has told that a worker makes no progress."""
    made = Standstill(on_hang, "report", 0.0, roles=False)
    assert made.hear_report("B", Report("running", 3, stalled=1)) == "worse"
    return made


def test_a_report_is_news_where_it_tells_more_and_where_all_make_progress_again() -> None:
    part = standing()
    assert part.hear_report("B", Report("running", 3, stalled=1)) == "same"
    assert part.hear_report("A", Report("running", 3, stalled=1)) == "worse"
    assert part.hear_report("A", Report("running", 3, stalled=0)) == "same"
    assert part.hear_report("B", Report("running", 3, stalled=0)) == "moves"
    assert part.hear_report("B", Report("running", 3, strained=1)) == "worse"


def test_how_long_a_round_stands_still_is_what_its_suspect_has_waited() -> None:
    assert standing().judge_hangs((SLEEPS,), NODES, 70.0)[1] == 61.0
    assert standing().judge_hangs((dataclasses.replace(SLEEPS, strength="weak"),), NODES, 70.0)[1] is None


def test_a_round_whose_workers_have_come_on_meanwhile_does_not_stand_still() -> None:
    part = standing("restart")
    part.hear_report("B", Report("running", 3))
    assert part.judge_hangs((SLEEPS,), NODES, 70.0) == ([], None)


def test_the_next_round_begins_without_what_was_found_in_the_last() -> None:
    part = standing("fail")
    part.judge_hangs((SLEEPS,), NODES, 70.0)
    assert part.ends == SLEEPS and part.list_findings(71.0)
    part.begin_round()
    assert part.ends is None and part.list_findings(71.0) == ()
    assert part.hear_report("B", Report("running", 4, stalled=1)) == "worse"


def test_the_worker_that_is_killed_is_the_suspects() -> None:
    todo, _ = standing("restart").judge_hangs((SLEEPS,), NODES, 70.0)
    (condemn,) = (each for each in todo if isinstance(each, effects.Condemn))
    assert (condemn.node.node, condemn.condemned.rank, condemn.condemned.round) == ("b", 1, 3)
