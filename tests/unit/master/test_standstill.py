"""What the controller does about a job that stands still: it asks once, says once, and acts only if it is told to."""

import dataclasses

from elastic_run.master import effects, events
from elastic_run.master.controller import Controller, Terms
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.memory import Memory
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.roles import Role
from elastic_run.rendezvous.round import OnHang, Policy

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")
SLEEPS = Finding("sleeps", 1, "b", "strong", "train.py:3", (0,), last_lines=("step 4", "step 5"), round=1)
LOOPS = dataclasses.replace(SLEEPS, kind="busy-loop", strength="weak", last_lines=())


def says(name: str, stalled: int, strained: int = 0) -> events.Registered:
    report = Report("running", 1, stalled=stalled, strained=strained)
    member = Member(name, f"{name}#1", f"{name}.host", f"{name}:1", 1, (5001,), FINGERPRINT, report=report)
    return events.Registered(name, member, "ab".index(name) + 1, 0.0)


def running(on_hang: OnHang = "report", roles: tuple[str, ...] = ()) -> Controller:
    """Round 1 runs on a and b, each of which has one of the `roles`."""
    policy = Policy(2, 2, roles=tuple(Role(each, 1, 1) for each in roles))
    terms = Terms(policy, 3, 0, FINGERPRINT, on_hang=on_hang)
    controller = Controller(Keys("job"), terms, 0.0, memory=Memory(0.0), run="run")
    for name in "ab":
        member = Member(name, f"{name}#1", f"{name}.host", f"{name}:1", 1, (5001,), FINGERPRINT)
        controller.on(events.Registered(name, member, "ab".index(name) + 1, 0.0), 1.0)
    controller.on(events.Found(None, 0, 0.0), 1.0)
    (opened,) = [each for each in controller.on(events.Look(), 1.0) if isinstance(each, effects.Publish)]
    controller.on(events.Published(opened.header, 3, 1.0), 1.0)
    return controller


def standing(on_hang: OnHang, roles: tuple[str, ...] = ()) -> Controller:
    """The same, and a tells that a worker stands still."""
    controller = running(on_hang, roles)
    controller.on(says("a", 1), 60.0)
    return controller


def lines(found: tuple[effects.Effect, ...]) -> list[str]:
    return [each.line for each in found if isinstance(each, effects.Say)]


def test_all_nodes_are_looked_at_where_one_tells_that_a_worker_stands_still_and_again_when_it_tells_again() -> None:
    controller = running()
    (examine,) = controller.on(says("a", 1), 60.0)
    assert isinstance(examine, effects.Examine)
    assert [(each.node, each.incarnation, each.address) for each in examine.nodes] == [
        ("a", "a#1", "a:1"),
        ("b", "b#1", "b:1"),
    ]
    assert controller.on(says("a", 1), 61.0) == ()
    assert [type(each) for each in controller.on(says("a", 2), 120.0)] == [effects.Examine]


def test_a_node_that_has_left_after_its_success_is_not_asked() -> None:
    controller = running()
    report = Report("succeeded", 1, (Exit(1, 1, 0, 1, code=0),))
    member = Member("b", "b#1", "b.host", "b:1", 1, (5001,), FINGERPRINT, report=report)
    controller.on(events.Registered("b", member, 2, 0.0), 50.0)
    controller.on(events.Unregistered("b"), 51.0)
    (examine,) = [each for each in controller.on(says("a", 1), 60.0) if isinstance(each, effects.Examine)]
    assert [each.node for each in examine.nodes] == ["a"]


def test_what_is_found_is_said_once_with_the_suspects_last_lines_and_is_in_the_status() -> None:
    controller = running()
    controller.on(says("a", 1), 60.0)
    found = controller.on(events.Diagnosed(1, (SLEEPS,)), 61.0)
    assert found[0] == effects.Note(SLEEPS)
    assert lines(found) == [f"diagnosis: {SLEEPS}", "  | step 4", "  | step 5"]
    assert lines(controller.on(events.Diagnosed(1, (SLEEPS,)), 121.0)) == []
    (told,) = controller.status(125.0).diagnosis
    assert (told.finding, told.ago, told.domain, told.outlook) == (SLEEPS, 4.0, "script", "may help")


def test_workers_that_make_progress_again_are_no_standstill_any_more() -> None:
    controller = running()
    for name in "ab":
        controller.on(says(name, 1), 60.0)
    controller.on(events.Diagnosed(1, (SLEEPS,)), 61.0)
    assert lines(controller.on(says("a", 0), 70.0)) == []
    assert lines(controller.on(says("b", 0), 70.0)) == ["the workers make progress again"]
    assert controller.status(70.0).diagnosis == ()


def test_a_node_that_comes_near_a_limit_has_all_looked_at_and_that_stays_told_when_workers_come_on() -> None:
    controller = running()
    assert [type(each) for each in controller.on(says("a", 0, 1), 60.0)] == [effects.Examine]
    near = Finding("memory-near", None, "a", "certain", "7.9 of 8.0 GiB", round=1)
    controller.on(says("a", 1, 1), 61.0)
    controller.on(events.Diagnosed(1, (SLEEPS, near)), 62.0)
    controller.on(says("a", 0, 1), 70.0)
    assert [each.finding for each in controller.status(70.0).diagnosis] == [near]


def test_the_suspect_is_killed_where_that_is_wanted() -> None:
    controller = standing("restart")
    found = controller.on(events.Diagnosed(1, (SLEEPS,)), 61.0)
    (condemn,) = [each for each in found if isinstance(each, effects.Condemn)]
    assert (condemn.node.node, condemn.condemned.rank, condemn.condemned.round) == ("b", 1, 1)
    assert "killed because the job stood still: rank 1 on node b sleeps" in condemn.condemned.why


def test_of_a_rank_that_has_ended_one_is_killed_that_waits_for_it() -> None:
    early = dataclasses.replace(SLEEPS, kind="uneven-steps")
    found = standing("restart").on(events.Diagnosed(1, (early,)), 61.0)
    assert [each.condemned.rank for each in found if isinstance(each, effects.Condemn)] == [0]


def test_the_job_fails_where_that_is_wanted() -> None:
    controller = standing("fail")
    controller.on(events.Diagnosed(1, (SLEEPS,)), 61.0)
    (finish,) = controller.on(events.Look(), 61.0)
    assert isinstance(finish, effects.Publish) and finish.header.state == "failed"
    assert "the job makes no progress (--on-hang=fail): rank 1 on node b sleeps" in str(finish.header.reason)


def test_weak_evidence_is_acted_upon_when_it_is_found_again_after_twice_the_time() -> None:
    controller = standing("restart")

    def condemns(seconds: float, *findings: Finding) -> bool:
        found = tuple(dataclasses.replace(each, seconds=seconds) for each in findings)
        return any(isinstance(each, effects.Condemn) for each in controller.on(events.Diagnosed(1, found), seconds))

    assert not condemns(61.0, LOOPS)
    assert not condemns(63.0, LOOPS), "another node has told a moment later"
    assert condemns(121.0, LOOPS)
    assert not condemns(140.0), "nothing is found any more"
    assert not condemns(0.0, LOOPS)
    assert not condemns(241.0, LOOPS), "it was not known for how long"
    assert condemns(480.0, LOOPS)


def test_a_slow_rank_is_told_and_nothing_is_done_about_it() -> None:
    controller = standing("restart")
    slow = dataclasses.replace(SLEEPS, kind="slow-data", strength="weak", last_lines=())
    for _ in range(2):
        found = controller.on(events.Diagnosed(1, (slow,), compares=True), 61.0)
        assert not any(isinstance(each, effects.Condemn) for each in found)
    assert [each.finding.kind for each in controller.status(62.0).diagnosis] == ["slow-data"]


def test_what_is_found_of_an_earlier_round_counts_for_nothing() -> None:
    assert running().on(events.Diagnosed(7, (SLEEPS,)), 61.0) == ()


def test_what_is_found_across_roles_is_said_and_not_acted_upon() -> None:
    for on_hang in ("restart", "fail"):
        controller = standing(on_hang, roles=("learner", "actor"))
        for _ in range(2):  # SLEEPS: rank 1, the actor; rank 0, a learner, waits for it
            alone = dataclasses.replace(SLEEPS, waiting=())
            for finding in (SLEEPS, alone):
                found = controller.on(events.Diagnosed(1, (finding,)), 61.0)
                assert not any(isinstance(each, effects.Condemn) for each in found)
        assert controller.status(62.0).diagnosis
        assert not any(isinstance(each, effects.Publish) for each in controller.on(events.Look(), 62.0))


def test_workers_that_have_come_on_while_they_were_looked_at_do_not_stand_still() -> None:
    controller = standing("restart")
    controller.on(says("a", 0), 60.5)
    found = controller.on(events.Diagnosed(1, (SLEEPS,)), 61.0)
    assert not any(isinstance(each, effects.Condemn | effects.Note | effects.Say) for each in found)
    assert controller.status(62.0).diagnosis == ()


def test_the_time_for_which_the_job_stood_still_is_no_training() -> None:
    def trained(controller: Controller, now: float) -> float:
        return controller.status(now).goodput.trained

    controller = standing("report")
    for name in "ab":
        controller.on(says(name, 1), 60.0)
    assert trained(controller, 60.0) == 0.0  # from the first report that all workers run
    quiet = dataclasses.replace(SLEEPS, seconds=25.0)
    controller.on(events.Diagnosed(1, (quiet,)), 100.0)
    assert trained(controller, 100.0) == 15.0
    controller.on(events.Diagnosed(1, (dataclasses.replace(quiet, seconds=60.0),)), 135.0)
    assert trained(controller, 140.0) == 15.0
    for name in "ab":
        controller.on(says(name, 0), 150.0)
    assert trained(controller, 160.0) == 25.0
    assert controller.status(160.0).goodput.split.seconds["infrastructure_recovery_from_disruption"] == 75.0


def test_weak_evidence_that_the_job_stands_still_costs_it_no_training_time() -> None:
    controller = standing("report")
    for name in "ab":
        controller.on(says(name, 1), 60.0)
    controller.on(events.Diagnosed(1, (LOOPS,)), 100.0)
    assert controller.status(100.0).goodput.trained == 40.0
    controller.on(events.Diagnosed(1, ()), 110.0)
    assert controller.status(110.0).goodput.trained == 50.0
