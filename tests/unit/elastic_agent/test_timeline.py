"""When a node's workers ran and when they did not."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.elastic_agent.say_once import ExitLines
from elastic_run.elastic_agent.timeline import Timeline, describe_round
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.member import Exit, Fingerprint
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NodeFailed, WorkerFailed

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")


def header(number: int = 1) -> Header:
    return Header(
        number, "run", "open", "lost", NodeFailed("b", "was lost"), FINGERPRINT, nodes=2, previous_nodes=3, world_size=4
    )


def test_the_start_and_the_end_of_a_node_are_no_downtime() -> None:
    line = Timeline(100.0)
    assert line.up(103.0, header()) == 0.0
    line.down(110.0)
    line.down(111.0)
    assert (line.trained, line.stopped) == (7.0, 0.0)


def test_time_between_two_rounds_did_not_train() -> None:
    line = Timeline(0.0)
    line.up(1.0, header(1))
    line.down(5.0)
    assert line.up(5.5, header(2)) == 0.5
    line.down(10.0)
    assert (line.trained, line.stopped) == (8.5, 0.5)


def test_the_first_failed_worker_ends_the_training_of_the_node() -> None:
    line = Timeline(0.0)
    line.up(0.0, header())
    line.down(2.0)
    line.down(3.0)
    line.down(4.0)
    assert (line.trained, line.stopped) == (2.0, 0.0)


def test_a_node_that_never_trained_has_no_downtime() -> None:
    line = Timeline(5.0)
    line.down(9.0)
    assert (line.trained, line.stopped, line.changes) == (0.0, 0.0, [])


def test_each_round_is_a_change_with_its_cause_and_its_sizes() -> None:
    line = Timeline(100.0)
    line.up(103.0, header(7))
    (change,) = line.changes
    assert (change.at, change.round, change.cause, change.code, change.reason) == (
        3.0,
        7,
        "lost",
        "NodeFailed",
        "node b was lost",
    )
    assert (change.previous_nodes, change.nodes, change.world_size, change.down) == (3, 2, 4, 0.0)


def test_a_round_that_follows_without_a_stop_does_not_count_training_as_standstill() -> None:
    line = Timeline(0.0)
    line.up(0.0, header(1))
    assert line.up(10.0, header(2)) == 0.0
    assert line.trained == 10.0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["up", "down"]), st.integers(0, 100)), max_size=10))
def test_no_second_is_lost_or_counted_twice(steps: list[tuple[str, int]]) -> None:
    line, now = Timeline(0.0), 0.0
    for what, seconds in steps:
        now += seconds
        if what == "up":
            line.up(now, header())
        else:
            line.down(now)
    line.down(now + 1)
    first = next((change.at for change in line.changes), now + 1)
    assert line.trained + line.stopped <= now + 1 - first
    assert line.trained >= 0 and line.stopped >= 0


def assignment(nproc: int = 1) -> Assignment:
    return Assignment(1, "a", "A", 1, 2, 2, nproc, 4, 2, 4)


def test_a_change_is_one_line_with_both_sizes_the_cause_and_the_seconds_that_it_cost() -> None:
    line = describe_round(header(7), assignment(), 1.234)
    assert line == "round 7: 3 -> 2 nodes, 4 workers, rank 2 here: node b was lost; downtime 1.23 s"


def test_what_a_node_has_told_of_its_own_worker_is_not_told_again() -> None:
    failed = dataclasses.replace(header(7), reason=WorkerFailed("A", 1, 3, None, "ValueError: no"))
    for here, reason in (("A", "exited with code 3; "), ("B", "exited with code 3: ValueError: no; ")):
        line = describe_round(failed, assignment(), 1.234, here=here)
        assert line == f"round 7: 3 -> 2 nodes, 4 workers, rank 2 here: rank 1 on node A {reason}downtime 1.23 s"


def test_an_error_that_several_workers_have_is_told_once() -> None:
    said: list[str] = []
    say_exit = ExitLines(said.append)
    for round, rank, message in (
        (1, 0, "KeyError: 7"),
        (1, 1, "KeyError: 8"),
        (2, 0, "KeyError: 9"),
        (2, 1, "OSError"),
    ):
        say_exit(Exit(round, rank, rank, 7, code=1, message=message, seconds=2.0))
    say_exit(Exit(4, 0, 0, 7, code=1, message="KeyError: 7", seconds=2.0))
    say_exit(Exit(4, 1, 1, 7, signal=9))
    again = "the same error again"
    assert [line.rpartition(" s: ")[2] for line in said[:5]] == ["KeyError: 7", again, again, "OSError", "KeyError: 7"]
    assert said[5] == "rank 1 (local 1, pid 7) died by SIGKILL (9) after 0.0 s"


def test_the_first_round_cost_nothing_and_replaced_nothing() -> None:
    first = dataclasses.replace(header(), previous_nodes=0, nodes=1)
    assert describe_round(first, assignment(2), 0.0) == "round 1: 1 node, 4 workers, ranks 2-3 here: node b was lost"


def test_a_node_whose_workers_have_ended_with_0_has_no_downtime_while_it_waits_for_others() -> None:
    timeline = Timeline(0.0)
    timeline.up(2.0, header(1))
    timeline.ended(12.0, failed=False, alive=0)
    timeline.down(100.0)
    assert (timeline.trained, timeline.stopped) == (10.0, 0.0)


def test_workers_are_down_from_the_first_failure_on_and_not_while_others_that_ended_well_are_outlived() -> None:
    timeline = Timeline(0.0)
    timeline.up(2.0, header(1))
    timeline.ended(8.0, failed=False, alive=1)
    assert timeline.idle_since(9.0) == 9.0
    timeline.ended(10.0, failed=True, alive=1)
    timeline.ended(12.0, failed=True, alive=0)
    assert (timeline.idle_since(13.0), timeline.trained) == (10.0, 8.0)


def test_workers_that_are_needed_once_more_have_a_downtime_from_then_on() -> None:
    timeline = Timeline(0.0)
    timeline.up(2.0, header(1))
    timeline.ended(12.0, failed=False, alive=0)
    timeline.down(50.0)
    assert timeline.up(53.0, header(2)) == 3.0
    assert timeline.idle_since(60.0) == 60.0
