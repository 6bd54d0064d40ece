"""The controller as a pure machine: events in, effects out, and the same again from its history."""

import dataclasses
from pathlib import Path

import pytest

from elastic_run.master import effects, events
from elastic_run.master.controller import Controller, Terms
from elastic_run.master.history import Begin, History, replay
from elastic_run.master.memory import Memory
from elastic_run.master.targets import Target
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.node_reasons import ProcessGone
from elastic_run.rendezvous.reasons import EndedEarly, JobOver
from elastic_run.rendezvous.roles import Role
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.wire.values import Malformed

FINGERPRINT = Fingerprint("train.py", (), "2:3", "1", "1.0")
TERMS = Terms(Policy(min_nodes=2, max_nodes=2), 3, 0, FINGERPRINT)


def member(name: str, report: Report | None = None, fingerprint: Fingerprint = FINGERPRINT) -> Member:
    return Member(name, f"{name}#1", f"{name}.host", f"{name}:1", 1, (5001,), fingerprint, report=report or Report())


def registered(name: str, order: int, report: Report | None = None) -> events.Registered:
    return events.Registered(name, member(name, report), order, 0.0)


def test_a_node_of_another_secret_is_told_as_one_and_others_as_of_another_version() -> None:
    controller = made()
    sealed, foreign = (events.Registered(name, None, 1, 0.0, sealed=name == "x") for name in "xy")
    done = (*controller.on(sealed, 0.0), *controller.on(foreign, 0.0))
    said = [effect.line for effect in done if isinstance(effect, effects.Say)]
    assert [("another secret" in line, "another version" in line) for line in said] == [(True, False), (False, True)]


def made(terms: Terms = TERMS) -> Controller:
    return Controller(Keys("job"), terms, 0.0, memory=Memory(0.0), run="run")


NOTHING_FOUND = events.Found(None, 0, 0.0)


def publish(found: tuple[effects.Effect, ...]) -> effects.Publish:
    (only,) = [effect for effect in found if isinstance(effect, effects.Publish)]
    return only


def running() -> Controller:
    """Round 1 runs on a and b."""
    controller = made()
    for event in (registered("a", 1), registered("b", 2), NOTHING_FOUND):
        controller.on(event, 1.0)
    opened = publish(controller.on(events.Look(), 1.0))
    controller.on(events.Published(opened.header, 3, 1.0), 1.0)
    return controller


def test_nothing_is_decided_before_what_an_earlier_master_left_is_known() -> None:
    controller = made()
    controller.on(registered("a", 1), 0.0)
    with pytest.raises(AssertionError, match="has not been told"):
        controller.on(events.Look(), 0.0)


def test_a_node_with_an_address_is_watched_from_its_first_registration_and_only_once() -> None:
    controller = made()
    assert controller.on(registered("a", 1), 0.0) == (effects.Watch("a", 1, "a#1", "a:1", None),)
    assert controller.on(registered("a", 1, Report("running", 1)), 1.0) == ()


def test_with_the_maximum_in_the_first_look_opens_a_round() -> None:
    controller = made()
    controller.on(registered("b", 2), 0.0)
    controller.on(registered("a", 1), 0.0)
    controller.on(NOTHING_FOUND, 0.0)
    opened = publish(controller.on(events.Look(), 0.0))
    assert opened.what == "open" and opened.header.number == 1
    assert [assignment.node for assignment in opened.assignments] == ["a", "b"]


def test_the_header_says_where_a_round_is_opened_in_place() -> None:
    controller = made(dataclasses.replace(TERMS, policy=Policy(1, 2)))
    for event in (registered("a", 1), registered("b", 2), NOTHING_FOUND):
        controller.on(event, 0.0)
    first = publish(controller.on(events.Look(), 0.0)).header
    controller.on(events.Published(first, 5, 0.0), 0.0)
    controller.on(registered("a", 1, Report("running", 1, keeps=True)), 1.0)
    controller.on(events.Died("b", "b#1", ProcessGone("b:1"), None), 2.0)
    second = publish(controller.on(events.Look(), 2.5)).header
    assert (first.in_place, second.in_place) == (False, True)


def test_a_round_whose_node_is_lost_while_it_is_published_is_not_wanted_any_more() -> None:
    controller = made()
    for event in (registered("a", 1), registered("b", 2), NOTHING_FOUND, events.Look()):
        controller.on(event, 0.0)
    assert controller.all_here()
    controller.on(events.Died("b", "b#1", ProcessGone("b:1"), None), 0.1)
    assert not controller.all_here()


def test_a_proof_of_death_suspends_a_job_below_its_minimum_with_that_proof_as_the_incident() -> None:
    controller = running()
    assert controller.on(events.Died("b", "b#1", ProcessGone("b:1"), None), 2.0) == (effects.FirstEvidence(1),)
    suspended = publish(controller.on(events.Look(), 2.5))
    assert suspended.what == "suspend" and suspended.begun == 2.0
    assert suspended.header.incident and "process is gone" in str(suspended.header.incident.reason)


def test_a_node_that_was_started_with_something_else_is_refused_before_anything_is_decided() -> None:
    controller = running()
    other = dataclasses.replace(FINGERPRINT, script="other.py")
    controller.on(events.Registered("c", member("c", fingerprint=other), 9, 2.0), 2.0)
    (refuse,) = controller.on(events.Look(), 2.0)
    assert isinstance(refuse, effects.Refuse) and refuse.eviction.final and "other.py" in refuse.line
    controller.on(events.Refused("c", "c#1"), 2.1)
    assert controller.on(events.Look(), 2.1) == (effects.Wait(None),)


def test_a_lease_that_ends_when_the_store_was_away_is_no_loss_while_its_agent_answers() -> None:
    controller = running()
    controller.on(events.StoreAway(9.0), 9.0)
    assert controller.on(events.Unregistered("b"), 10.0) == (effects.Listen("b", "b#1", "b:1"),)
    controller.on(events.Answered("b#1"), 10.1)
    said, confirm, wait = controller.on(events.Look(), 10.2)
    assert isinstance(said, effects.Say) and confirm == effects.Confirm() and wait == effects.Wait(20.0)
    assert controller.on(registered("b", 11), 12.0) == (effects.Unlisten("b#1"),)
    assert controller.on(events.Look(), 12.0) == (effects.Wait(None),)


def test_a_finished_job_waits_for_its_nodes_to_leave_and_then_has_its_keys_removed() -> None:
    controller = running()
    for name, order in (("a", 1), ("b", 2)):
        done = Report("succeeded", 1, (Exit(1, 0, 0, 1, code=0),))
        controller.on(registered(name, order, done), 5.0)
    finished = publish(controller.on(events.Look(), 5.0))
    controller.on(events.Published(finished.header, 9, 5.0), 5.0)
    none = Target("", 0, JobOver("succeeded"))
    assert controller.on(events.Look(), 5.0) == (none, effects.Wait(5.0 + TERMS.farewell_seconds))
    controller.on(events.Unregistered("a"), 6.0)
    controller.on(events.Unregistered("b"), 6.0)
    assert controller.on(events.Look(), 6.0) == (effects.CleanUp(True),)


def history(tmp_path: Path, terms: Terms = TERMS) -> Path:
    """Of a controller that opens a round, loses a node and waits for it."""
    begin = Begin("job", terms, 0.0, "run", 5.0)
    controller = begin.controller(0.0)
    file = tmp_path / "history"
    record = History(file, pytest.fail)
    record.add(begin, 0.0)

    def tell(event: events.Event, now: float) -> tuple[effects.Effect, ...]:
        found = controller.on(event, now)
        record.add(event, now, found)
        return found

    tell(registered("a", 1), 0.0)
    tell(registered("b", 2), 0.0)
    tell(NOTHING_FOUND, 0.0)
    opened = publish(tell(events.Look(), 0.0))
    tell(events.Published(opened.header, 3, 0.1), 0.1)
    tell(events.Died("b", "b#1", ProcessGone("b:1"), None), 2.0)
    tell(events.Look(), 2.0)
    record.close()
    return file


def test_a_history_is_decided_again_in_the_same_way(tmp_path: Path) -> None:
    lines = history(tmp_path).read_bytes().splitlines()
    assert len(lines) > 8
    assert list(replay(lines)) == []


def test_a_replay_tells_where_it_decides_otherwise(tmp_path: Path) -> None:
    lines = history(tmp_path).read_bytes().splitlines()
    other = [line.replace(b'"min_nodes":2', b'"min_nodes":1', 1) for line in lines]
    differences = [found for found in replay(other) if '"kind":"Target"' not in found.recorded[0]]
    (difference,) = differences
    assert '"what":"suspend"' in difference.recorded[-1] and '"what":"open"' in difference.now[-1]
    assert b'"kind":"Look"' in lines[difference.line - 1]


def test_a_history_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    lines = history(tmp_path).read_bytes().splitlines()
    with pytest.raises(Malformed, match=r"Registered.*node"):
        list(replay([lines[0], lines[1].replace(b'"node":"a"', b'"node":1', 1)]))


def test_a_history_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    record = History(tmp_path / "none" / "history", said.append)
    record.add(NOTHING_FOUND, 0.0)
    record.close()
    (line,) = said
    assert "cannot be written (No such file or directory)" in line


def test_a_worker_that_ended_with_0_is_the_cause_also_where_its_node_tells_of_its_victims_first() -> None:
    controller = running()
    lost = Exit(1, 1, 1, 12, code=1, message="ConnectionError: connection closed by peer")
    controller.on(registered("a", 1, Report("failed", 1, (lost, Exit(1, 0, 0, 11, code=0)))), 5.0)
    controller.on(events.Look(), 5.0)
    opened = publish(controller.on(events.Look(), 7.0))
    assert opened.header.incident is not None
    assert isinstance(opened.header.incident.reason, EndedEarly)


def with_evaluator(least: int, restarts: int = 1) -> Controller:
    """Round 1: a is the worker, b the evaluator."""
    roles = Role("worker", 1, 1), Role("evaluator", least, 1, on_loss="one", counts=False)
    controller = made(dataclasses.replace(TERMS, policy=Policy(1 + least, 2, roles=roles), max_restarts=restarts))
    for event in (registered("a", 1), registered("b", 2), NOTHING_FOUND):
        controller.on(event, 1.0)
    return turn(controller, 1.0)


def turn(controller: Controller, now: float) -> Controller:
    """What it wants to publish is published, and a, which is in it, runs."""
    header = publish(controller.on(events.Look(), now)).header
    controller.on(events.Published(header, 10 + header.number, now), now)
    controller.on(registered("a", 1, Report("running", header.number)), now)
    return controller


def fails(controller: Controller, name: str, now: float) -> tuple[effects.Effect, ...]:
    assert controller.header is not None
    number, order, rank = controller.header.number, 1 + (name == "b"), int(name == "b")
    exits = (Exit(number, rank, 0, 1, code=1, message="ValueError: no checkpoint", seconds=5.0),)
    told = controller.on(registered(name, order, Report("failed", number, exits)), now)
    return (*told, *controller.on(events.Look(), now), *controller.on(events.Look(), now + 5.0))


def ended(done: tuple[effects.Effect, ...]) -> bool:
    return any(isinstance(effect, effects.Publish) and effect.what == "finish" for effect in done)


def test_the_job_goes_on_without_an_optional_role_whose_restarts_are_used_up() -> None:
    controller = with_evaluator(least=0)
    fails(controller, "b", 2.0)
    header = turn(controller, 7.0).header
    assert header is not None and (header.number, header.restart_count) == (2, 0)
    assert [each.node for each in controller.status(7.0).nodes if each.state == "running"] == ["a"]
    done = fails(controller, "b", 8.0)
    assert not any(isinstance(effect, effects.Publish) for effect in done)
    (line,) = [effect.line for effect in done if isinstance(effect, effects.Say)]
    assert line.startswith("continues without the evaluator of b: rank 1 on node b exited with code 1")
    assert line.endswith("optional roles have used up --max-restarts=1")
    assert controller.status(20.0).tally.optional == 1
    succeeded = Report("succeeded", 2, (Exit(2, 0, 0, 1, code=0),))
    controller.on(registered("a", 1, succeeded), 21.0)
    assert publish(controller.on(events.Look(), 21.0)).header.state == "succeeded"


def test_after_an_optional_role_the_others_have_all_their_restarts() -> None:
    controller = with_evaluator(least=0)
    fails(controller, "b", 2.0)
    turn(controller, 7.0)
    fails(controller, "b", 8.0)
    fails(controller, "a", 20.0)
    header = turn(controller, 26.0).header
    assert header is not None and (header.number, header.restart_count) == (3, 1)
    assert header.incident is not None and header.incident.node == "a"
    assert ended(fails(controller, "a", 30.0))


def test_a_new_master_also_goes_on_without_it() -> None:
    first = with_evaluator(least=0)
    fails(first, "b", 2.0)
    header = turn(first, 7.0).header
    assert header is not None
    exits = (Exit(2, 1, 0, 1, code=1, message="ValueError: no checkpoint", seconds=5.0),)
    second = made(first._terms)
    for name, order, report in (("a", 1, Report("running", 2)), ("b", 2, Report("failed", 2, exits))):
        second.on(registered(name, order, report), 50.0)
    found = events.Found(header, 12, 8.0, assigned=first._assigned)
    done = (*second.on(found, 50.0), *second.on(events.Look(), 50.0), *second.on(events.Look(), 60.0))
    assert not any(isinstance(effect, effects.Publish) for effect in done)


def test_a_role_with_a_minimum_is_needed_though_it_does_not_count() -> None:
    controller = with_evaluator(least=1)
    fails(controller, "b", 2.0)
    turn(controller, 7.0)
    assert ended(fails(controller, "b", 8.0))
