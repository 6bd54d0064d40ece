"""Schedules as text and drawn from seeds; and what is done with many of them: counted, made small, explained."""

import itertools

import pytest

from .explore import CRASHED, Tale, digest, explain, rule_broken, shrink, tell, tell_all
from .invariants import Checker
from .schedule import VERBS, Fault, Schedule, Shape, Unreadable, draw, parse
from .services import draw_with_services
from .world import World, run

FORBIDDEN = "nobody compacts the store"
"""A rule that only tests have: one kind of fault is guilty of breaking it."""


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, FORBIDDEN is a rule."""
    told = Checker.on_fault

    def on_fault(checker: Checker, fault: Fault) -> None:
        told(checker, fault)
        if fault.verb == "etcd_compact":
            checker._world.violated(FORBIDDEN, fault.text)

    monkeypatch.setattr(Checker, "on_fault", on_fault)


GUILTY = parse("""
seed 5
job nodes=2 min=1 max=4 work=6 settle=2 etcd=1 ttl=8
running.1+0.1234   lose 5 1.0
running.1+0.8765   etcd_compact
running.1+0.9      worker n1 0 raise
running.2+0.25     kill n2
""")


# -- text


def test_what_is_drawn_can_be_written_down_and_read_again() -> None:
    for seed in range(2000):
        schedule = draw(seed)
        assert parse(schedule.text) == schedule


def test_what_is_read_from_a_text_lives_the_same_life() -> None:
    for seed in range(10):
        schedule = draw(seed)
        assert run(parse(schedule.text)) == run(schedule)


def test_comments_and_empty_lines_mean_nothing() -> None:
    assert parse("# a story\n\nseed 7  # lucky\n  job nodes=2 max=2\nstart+1 kill n1\n") == Schedule(
        7, Shape(nodes=2, max=2), (Fault("start", 1.0, "kill", ("n1",)),)
    )


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("start+1 kil n1", "there are worker, kill,"),
        ("start+1", "there are worker, kill,"),
        ("start+1 worker n1", "worker takes: node local how"),
        ("start+1 etcd_elect m1", "etcd_elect takes: nothing"),
        ("job colour=red", "it has nodes, min, max,"),
        ("job nodes=two", "'two' is no whole number"),
        ("job work=-1", "'-1' is no number from 0 on"),
        ("job min=3 max=2", "min=3 is more than max=2"),
        ("job min=3 max=3 unit=2", "unit=2 leaves no size between min=3 and max=3"),
        ("job min=0", "min is at least 1"),
        ("job scale_up=later", "now or never, not 'later'"),
        ("job data=queue", "data is checkpoint or ack, not 'queue'"),
        ("job records=0", "records is at least 1"),
        ("job step=0", "step is at least 0.01 s"),
        ("job inplace=1 data=ack", "inplace and data exclude each other"),
        ("seed", "seed takes one number"),
        ("seed twelve", "'twelve'"),
        ("start+soon kill n1", "'soon'"),
        ("start+-1 kill n1", "'-1' is no number from 0 on"),
        ("start+inf kill n1", "'inf' is no number from 0 on"),
        ("runing.1+1 kill n1", "there are start, registered.NODE, elected.NUMBER,"),
        ("start.1+1 kill n1", "there are start, registered.NODE, elected.NUMBER,"),
        ("running+1 kill n1", "'' is no whole number"),
        ("running.0+1 kill n1", "as in running.1"),
        ("running.01+1 kill n1", "as in running.1"),
        ("registered.n4+1 kill n1", "'n4': there are n1, n2, n3"),
        ("start+1 kill n4", "'n4': there are n1, n2, n3"),
        ("start+1 kill m1", "'m1': there are n1, n2, n3"),
        ("start+1 start m1", "'m1' is no machine"),
        ("start+1 worker n1 1 raise", "nproc is 1"),
        ("start+1 worker n1 0 cough", "there are killed, segv,"),
        ("start+1 freeze n1 long", "'long' is no number from 0 on"),
        ("start+1 freeze n1 -1", "'-1' is no number from 0 on"),
        ("start+1 failed_start n1 1.5", "'1.5' is no whole number"),
        ("start+1 lose 101 1", "101 is more than 100 percent"),
        ("start+1 cut n1 n9 1", "'n9' is nobody: there are n1, n2, n3, m1, m2, m3 and *"),
        ("start+1 cut n1 n1 1", "n1 and n1 are one machine"),
        ("start+1 etcd_kill m4 1", "no member 'm4': there are m1, m2, m3"),
    ],
)
def test_an_unreadable_line_is_named_with_what_it_should_be(line: str, remedy: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse(f"seed 1\njob nodes=3\n{line}\n")
    assert f"line 3: {line!r}" in str(caught.value)
    assert remedy in str(caught.value)


def test_a_machine_on_which_an_agent_is_started_later_may_be_named_before_that_line() -> None:
    parse(
        "registered.n7+1 kill n7\nregistered.n8x+1 kill n8x\nstart+1 start n7\nstart+1 stranger n8\njob nodes=1 min=1\n"
    )


def test_what_a_line_says_is_held_against_a_job_that_is_described_after_it() -> None:
    parse("start+1 worker n5 3 raise\njob nodes=5 nproc=4\n")


def test_every_kind_of_word_that_a_fault_takes_is_looked_at() -> None:
    example = {"node": "n1", "local": "0", "how": "raise", "count": "1", "percent": "5", "seconds": "1", "member": "m1"}
    example |= {"a": "n1", "from": "n1", "b": "n2", "to": "n2", "name": "tracker", "end": "killed"}
    job = "job services=tracker:round:first\n"
    for verb, kinds in VERBS.items():
        words = [example[kind] for kind in kinds.split()]
        parse(job + " ".join(["start+1", verb, *words]))
        for index in range(len(words)):
            wrong = [*words[:index], "?", *words[index + 1 :]]
            with pytest.raises(Unreadable):
                parse(job + " ".join(["start+1", verb, *wrong]))


def test_each_kind_of_fault_has_its_method_and_is_drawn_for_some_seed() -> None:
    assert all(callable(getattr(World, verb)) for verb in VERBS)
    drawn = {fault.verb for seed in range(3000) for fault in draw(seed).faults}
    assert drawn | {fault.verb for seed in range(40) for fault in draw_with_services(seed).faults} == set(VERBS)


def test_a_failure_that_comes_again_after_each_restart_is_drawn_now_and_then() -> None:
    """One fault that is drawn again and again by chance is not enough to see what `same` does."""
    habits = 0
    for seed in range(1000):
        ends = [fault for fault in draw(seed).faults if fault.verb == "worker"]
        moments = {fault.moment for fault in ends if fault.words == ends[0].words}
        habits += {"running.1", "running.2"} <= moments
    assert 30 < habits < 120


def test_some_jobs_lease_their_data_and_some_faults_come_as_a_ledger_is_written() -> None:
    schedules = [draw(seed) for seed in range(1000)]
    modes = [schedule.shape.data for schedule in schedules]
    assert all(100 < modes.count(mode) < 200 for mode in ("checkpoint", "ack"))
    leased = [schedule for schedule in schedules if any(f.moment.startswith("leased.") for f in schedule.faults)]
    assert len(leased) > 50
    assert all(schedule.shape.data for schedule in leased)


def test_some_workers_keep_their_process_and_some_faults_come_as_their_process_group_forms_or_trains() -> None:
    schedules = [draw(seed) for seed in range(1000)]
    staying = [schedule for schedule in schedules if schedule.shape.inplace]
    assert 150 < len(staying) < 250
    assert not any(schedule.shape.data for schedule in staying)
    for moment in ("formed.", "transferring.", "committed."):
        at = [schedule for schedule in schedules if any(f.moment.startswith(moment) for f in schedule.faults)]
        assert len(at) > 20
        assert all(schedule.shape.inplace for schedule in at)


def test_seeds_draw_different_schedules() -> None:
    texts = {draw(seed).text.partition("\n")[2] for seed in range(500)}
    assert len(texts) > 490


# -- many of them


def test_what_many_schedules_came_to_is_the_sum_of_what_each_did() -> None:
    each = [run(draw(seed)) for seed in range(30)]
    tale = tell(range(30))
    assert tale.schedules == 30
    assert tale.faults.total() == sum(sum(outcome.faults.values()) for outcome in each) > 0
    assert tale.rounds == sum(outcome.rounds for outcome in each) > 0
    assert tale.seconds == pytest.approx(sum(outcome.seconds for outcome in each))
    assert tale.states.total() == 30


def test_several_processes_tell_the_same_as_one() -> None:
    alone, together = tell_all(range(100), jobs=1), tell_all(range(100), jobs=2)
    assert (together.schedules, together.faults, together.states) == (alone.schedules, alone.faults, alone.states)


@pytest.mark.usefixtures("forbid")
def test_a_tale_ends_when_there_is_enough_to_look_at() -> None:
    guilty = next(seed for seed in itertools.count() if rule_broken(draw(seed)))
    tale = tell_all(range(10_000), jobs=1, enough=1)
    assert [(failure.schedule, failure.rule) for failure in tale.failures] == [(draw(guilty), FORBIDDEN)]
    assert tale.schedules == guilty + 1


def test_an_error_of_the_simulator_itself_is_a_failure_with_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(world: World, node: str) -> bool:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(World, "kill", broken)
    tale = tell(range(30))
    assert {failure.rule for failure in tale.failures} == {CRASHED}
    assert all("planted" in failure.what and "kill" in failure.schedule.text for failure in tale.failures)


# -- small ones


@pytest.mark.usefixtures("forbid")
def test_shrinking_leaves_the_one_guilty_fault_in_the_plainest_job() -> None:
    assert rule_broken(GUILTY) is not None
    assert shrink(GUILTY, FORBIDDEN) == Schedule(5, Shape(), (Fault("running.1", 1.0, "etcd_compact"),))


def test_nothing_is_shrunk_that_breaks_no_rule() -> None:
    assert shrink(GUILTY, FORBIDDEN) == GUILTY


@pytest.mark.usefixtures("forbid")
def test_shrinking_ends_when_its_time_is_over() -> None:
    ticks = itertools.count(0, 10)  # three looks fit into half a minute
    small = shrink(GUILTY, FORBIDDEN, clock=lambda: float(next(ticks)))
    assert 1 < len(small.faults) < len(GUILTY.faults)


@pytest.mark.usefixtures("forbid")
def test_a_failure_is_explained_with_its_rule_its_seed_a_small_schedule_and_the_way_to_see_it_again() -> None:
    tale = Tale()
    while not tale.failures:
        tale.add(tell([tale.schedules]))
    seed = tale.failures[0].schedule.seed
    words = explain(tale)
    assert f"1 of {seed + 1} schedules broke a rule" in words
    assert f"BROKEN: {FORBIDDEN}" in words
    assert f"python -m tests.simulation --seed {seed}\n" in words
    assert "etcd_compact" in words
    assert f"VIOLATED  {FORBIDDEN}" in words.splitlines()[-1]
    indented = [line.strip() for line in words.splitlines()]
    small = "\n".join(indented[indented.index(f"seed {seed}") :]).partition("\n\n")[0]
    assert rule_broken(parse(small)) is not None


def test_a_fingerprint_is_of_the_whole_life() -> None:
    assert digest(3) == digest(3) != digest(4)
