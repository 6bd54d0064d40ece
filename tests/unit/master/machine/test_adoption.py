"""Whether a new master goes on with what it finds: the part by itself."""

import dataclasses

from elastic_run.master.machine import effects, events
from elastic_run.master.machine.adoption import Adoption
from elastic_run.master.machine.memory import Memory
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NoChange

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")
HEADER = Header(4, "run", "open", "start", NoChange(), FINGERPRINT)
FOUND = events.Found(HEADER, 9, 0.0, (Assignment(4, "a", "a#1", 0, 2, 0, 1, 2, 0, 2),))


def member(name: str, life: int = 1, run: str = "") -> dict[str, Member]:
    return {f"{name}#{life}": Member(name, f"{name}#{life}", "host", "", 1, (), FINGERPRINT, run=run)}


def adoption(found: events.Found = FOUND, memory: Memory | None = None) -> Adoption:
    made = Adoption(memory or Memory(2.0))
    assert made.phase == "loading"
    made.load(found)
    return made


def test_without_a_header_it_leads_at_once() -> None:
    assert adoption(events.Found(None, 0, 0.0)).phase is None


def test_after_a_wait_for_nodes_the_successes_are_read_again_before_anything_is_adopted() -> None:
    part = adoption()
    assert part.await_returns(5.0) == effects.Wait(5.0)
    assert part.await_returns(None) == effects.ReadSuccesses() == part.await_returns(None)
    success = events.Success("a#1", None)
    part.read_again((success,))
    assert part.phase == "returning" and part.await_returns(None) is None
    assert part.phase == "adopting" and part.found.successes == (success,)


def test_a_run_goes_on_where_a_node_of_its_round_is_there_or_one_has_come_back() -> None:
    for members in (member("a"), member("b", run="run")):
        part = adoption()
        assert part.judge(members, {"a", "b"}) is None and part.phase is None


def test_a_run_without_its_nodes_is_ended_unless_one_that_has_no_key_comes_back() -> None:
    part = adoption()
    assert part.judge(member("a", life=2), {"a"}) == effects.Abandon((), queues=False)
    assert part.judge(member("b"), {"b"}) == effects.Abandon((("a", "a#1"),), queues=False)
    over = adoption(dataclasses.replace(FOUND, header=dataclasses.replace(HEADER, state="succeeded")))
    assert over.judge({}, ()) == effects.Abandon((), queues=True)


def test_the_wait_for_the_next_run_counts_from_when_the_last_was_first_found_without_nodes() -> None:
    memory = Memory(2.0)
    assert [adoption(memory=memory).abandon(now) for now in (50.0, 70.0)] == [50.0, 50.0]
    over = adoption(dataclasses.replace(FOUND, header=dataclasses.replace(HEADER, state="failed")), memory)
    assert over.abandon(80.0) == 2.0 and over.phase is None
