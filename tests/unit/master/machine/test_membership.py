"""Who is registered, lost or awaited: the part by itself. Its words are in `tests/transcripts/controller`."""

from elastic_run.master.machine import effects, events
from elastic_run.master.machine.changes import Heard, Lost
from elastic_run.master.machine.membership import RETURN_SECONDS, SILENT_SECONDS, Membership
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member, Report
from elastic_run.rendezvous.node_reasons import LeaseExpired, NotRegistered, NotReturned, ProcessGone, StartedAgain
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NoChange

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")
DIED = events.Died("a", "a#1", ProcessGone("a:1"), None)


def registered(name: str, report: Report | None = None, life: int = 1) -> events.Registered:
    agent = f"{name}:1"
    member = Member(
        name, f"{name}#{life}", "host", agent, 1, (5001,), FINGERPRINT, report=report or Report("running", 1)
    )
    return events.Registered(name, member, life, 0.0)


def membership(*names: str) -> Membership:
    """These are registered."""
    made = Membership(Keys("job"), {}, 5.0)
    for name in names:
        made.on(registered(name), 1, 0.0)
    return made


def test_a_report_is_told_with_the_one_before_it() -> None:
    part, first = membership(), registered("a")
    watch, heard = part.on(first, 1, 0.0)
    assert isinstance(watch, effects.Watch) and heard == Heard(first.member, None)
    assert part.on(first, 1, 0.0) == [Heard(first.member, first.member.report)]


def test_the_next_life_of_a_node_is_the_loss_of_the_one_before() -> None:
    _, unwatch, lost, heard = membership("a").on(registered("a", life=2), 1, 0.0)
    assert unwatch == effects.Unwatch("a#1") and lost == Lost("a", "a#1", None, LeaseExpired())
    assert isinstance(heard, Heard) and heard.before is None


def test_who_is_dead_is_lost_at_once_and_is_not_heard_again_until_its_removal_is_told() -> None:
    part = membership("a", "b")
    assert part.on(DIED, 1, 1.0) == [Lost("a", "a#1", None, DIED.how)]
    assert part.on(registered("a"), 1, 1.0) == [] and set(part.present) == {"b#1"}
    part.on(events.Evicted("a#1", 7), 1, 2.0)
    assert part.forget_removed(7, ()) == part.forget_removed(8, {"a#1"}) == []
    assert part.forget_removed(8, ()) == [effects.Unwatch("a#1")]


def test_who_left_after_its_success_is_kept_until_the_next_round() -> None:
    part = membership()
    part.on(registered("a", Report("succeeded", 1)), 1, 0.0)
    (_, lost) = part.on(events.Unregistered("a"), 1, 1.0)
    assert isinstance(lost, Lost) and lost.succeeded
    assert part.has_left("a#1") and len(part.seen) == 1 and not part.present
    part.begin_round()
    assert not part.seen


def test_a_lease_that_ended_while_the_store_was_away_is_awaited_for_a_time() -> None:
    part = membership("a")
    part.on(events.StoreAway(10.0), 1, 10.0)
    assert part.on(events.Unregistered("a"), 1, 11.0) == [effects.Listen("a", "a#1", "a:1")]
    assert part.ask_confirmation() and not part.ask_confirmation()
    assert part.await_returns(1, 11.0) == ([], 11.0 + SILENT_SECONDS)
    part.on(events.Answered("a#1"), 1, 12.0)
    assert part.await_returns(1, 14.5) == ([], 11.0 + RETURN_SECONDS)
    changes, until = part.await_returns(1, 21.0)
    assert changes[-1] == Lost("a", "a#1", None, NotReturned(answers=True)) and until is None and not part.returning


def test_a_node_that_is_awaited_and_registers_as_another_is_lost() -> None:
    part = membership("a")
    part.on(events.StoreAway(10.0), 1, 10.0)
    part.on(events.Unregistered("a"), 1, 11.0)
    changes = part.on(registered("a", life=2), 1, 12.0)
    assert Lost("a", "a#1", None, StartedAgain()) in changes and not part.returning


def test_a_new_master_awaits_who_is_missing_only_where_its_own_lease_is_young() -> None:
    assigned = tuple(Assignment(1, each, f"{each}#1", n, 2, n, 1, 2, 0, 2) for n, each in enumerate("ab"))
    found = events.Found(Header(1, "run", "open", "start", NoChange(), FINGERPRINT), 5, 0.0, assigned)
    young, old = membership("a"), membership("a")
    assert young.await_missing(found, 99.0, 100.0) == [effects.Listen("b", "b#1", "")]
    assert old.await_missing(found, 90.0, 100.0) == []
    assert found.header and old.adopt(found.header, found, 100.0) == [Lost("b", "b#1", None, NotRegistered())]
