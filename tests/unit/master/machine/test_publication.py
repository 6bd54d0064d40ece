"""From a decision to its header: the part by itself. Whole headers are in `tests/transcripts/controller`."""

import dataclasses

from elastic_run.master.machine import effects
from elastic_run.master.machine.changes import Lost
from elastic_run.master.machine.faults import Charge
from elastic_run.master.machine.publication import Publication
from elastic_run.master.machine.round_state import RoundState
from elastic_run.rendezvous.header import Tally
from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.node_reasons import LeaseExpired
from elastic_run.rendezvous.reasons import NoChange
from elastic_run.rendezvous.round import Finish, Open, OpenInPlace, Policy, Suspend

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")
NODES = tuple(Member(each, f"{each}#1", f"{each}.host", "", 2, (5001, 5002), FINGERPRINT) for each in "ab")
CHARGE = Charge(Tally(), None, 3, 1.0)
LOST = Lost("b", "b#1", None, LeaseExpired())


def prepared(
    part: Publication, decision: Open | Suspend | Finish, current: RoundState | None = None
) -> effects.Publish:
    current = current or RoundState.gathering(0, 0.0)
    return part.prepare(decision, NoChange(), CHARGE, current, FINGERPRINT)


def opened(part: Publication) -> RoundState:
    """Its first round is the current one."""
    header = dataclasses.replace(prepared(part, Open(NODES, "start")).header, prefix="1.1")
    part.adopt(header, 7, 2.0)
    assert part.open_round() == []
    return RoundState.of(header, part.assigned, 2.0, Policy(1, 2))


def test_the_first_header_begins_the_run_where_rank_0_is() -> None:
    part = Publication("run", 60.0)
    wanted = prepared(part, Open(NODES, "start"))
    header = wanted.header
    assert (wanted.what, wanted.begun, header.run, header.number) == ("open", 1.0, "run", 1)
    assert (header.nodes, header.world_size, header.previous_nodes) == (2, 4, 0)
    assert (header.master_addr, header.master_port) == ("a.host", 5002)


def test_a_suspension_and_an_end_keep_what_the_round_was() -> None:
    part = Publication("run", 60.0)
    current = opened(part)
    waiting, over = (prepared(part, each, current).header for each in (Suspend("lost"), Finish("failed")))
    assert (waiting.state, waiting.cause, waiting.deadline_seconds, waiting.prefix) == ("waiting", "lost", 60.0, "1.1")
    assert (over.state, over.cause, over.number, over.previous_nodes) == ("failed", "start", 2, 2)


def test_the_next_round_has_nothing_of_a_suspension() -> None:
    part = Publication("run", 60.0)
    current = opened(part)
    part.adopt(prepared(part, Suspend("lost"), current).header, 8, 3.0)
    header = prepared(part, OpenInPlace(NODES[:1], "start"), current.suspended(2, 3.0)).header
    assert (header.number, header.state, header.in_place, header.nodes) == (3, "open", True, 1)
    assert (header.prefix, header.deadline_seconds, header.previous_nodes) == ("", 0.0, 2)


def test_who_is_untouched_goes_on_where_they_met() -> None:
    part = Publication("run", 60.0)
    current = opened(part)
    header = prepared(part, Open(NODES, "lost", untouched=("b#1",)), current).header
    assert (header.master_addr, header.master_port) == ("a.host", 5002)
    assert {each.node: each.since for each in part.assigned} == {"b": 1, "a": 0}
    header = prepared(part, Open(NODES[1:], "lost", untouched=("b#1",)), current).header
    assert header.master_addr == "b.host"  # who continues there meets nobody


def test_who_goes_while_a_round_is_published_is_told_when_it_is() -> None:
    part = Publication("run", 60.0)
    prepared(part, Open(NODES, "start"))
    part.lose(Lost("c", "c#1", None, LeaseExpired()))
    assert part.all_here({"a#1": "a", "b#1": "b"}) and not part.all_here({"a#1": "a"})
    part.lose(LOST)
    part.keep_node("b#1")
    assert part.open_round() == []
    prepared(part, Open(NODES, "start"))
    part.lose(LOST)
    assert part.open_round() == [LOST]
