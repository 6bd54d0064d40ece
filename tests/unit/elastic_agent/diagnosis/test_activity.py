"""When a worker is a suspect, by its own history."""

import json
from dataclasses import replace

from elastic_run.elastic_agent.diagnosis.activity import Activity, Sample
from elastic_run.elastic_agent.diagnosis.looks import last_lines
from elastic_run.elastic_agent.diagnosis.stacks import read


def quiet(activity: Activity, begin: int, end: int, cpu: float = 0.0) -> list[int]:
    """The seconds at which a worker that does nothing from `begin` to `end` becomes a suspect."""
    return [at for at in range(begin, end) if activity.observe(Sample(at, cpu, 0))]


def test_a_worker_that_does_nothing_is_a_suspect_after_the_timeout_and_again_after_nearly_twice_as_long() -> None:
    assert quiet(Activity(60), 0, 300) == [60, 108, 195]


def test_a_worker_that_computes_or_prints_is_none() -> None:
    activity = Activity(60)
    assert not any(activity.observe(Sample(at, 0.5 * at, 0)) for at in range(300))
    activity = Activity(60)
    assert not any(activity.observe(Sample(at, 0.0, at // 50, switches=at // 50)) for at in range(300))
    activity = Activity(60)
    assert not any(activity.observe(Sample(at, 0.0, 0, steps=at // 50)) for at in range(300))


def test_what_another_thread_prints_while_the_main_thread_waits_is_no_progress() -> None:
    activity = Activity(60)
    assert [at for at in range(100) if activity.observe(Sample(at, 0.0, at))] == [60]


def test_threads_that_wake_up_now_and_then_are_no_progress() -> None:
    activity = Activity(60)
    assert [at for at in range(100) if activity.observe(Sample(at, 0.01 * at, 0))] == [60]


def test_a_worker_may_be_quiet_for_twice_as_long_as_it_was_before() -> None:
    activity = Activity(60)
    assert quiet(activity, 0, 100) == [60]
    assert not activity.observe(Sample(100, 50.0, 0))
    assert activity.allowed == 198  # it was quiet for 99 s
    assert quiet(activity, 101, 400, cpu=50.0) == [298]


def test_a_main_thread_that_wakes_up_while_its_worker_is_quiet_is_counted_until_there_is_progress() -> None:
    activity = Activity(60)
    for at in range(10):
        activity.observe(Sample(at, 0.0, 0, switches=at // 3))
    assert (activity.quiet, activity.woken) == (9, 3)
    activity.observe(Sample(10, 0.0, 5, switches=4))
    assert activity.woken == 0


def test_a_worker_that_has_taken_light_steps_is_a_suspect_again_when_it_has_come_to_rest() -> None:
    activity = Activity(60)
    assert [at for at in range(300) if activity.observe(Sample(at, 0.0, 0, switches=min(at, 130)))] == [
        60,
        108,
        190,
        238,
    ]
    assert (activity.quiet, activity.rested) == (299, 169)
    activity.observe(Sample(400, 0.0, 0, switches=130))
    assert activity.rested == 0, "nothing is known of what was between"


def test_a_look_that_is_taken_early_is_taken_before_a_worker_is_a_suspect() -> None:
    activity = Activity(60)
    assert quiet(activity, 0, 60) == []
    assert (activity.is_due(), activity.is_due(1.0)) == (False, True)


def test_for_how_long_a_main_thread_runs_without_a_wait_is_known_of_who_uses_an_accelerator() -> None:
    def spins(*samples: Sample) -> float:
        activity = Activity(60.0)
        for sample in samples:
            activity.observe(sample)
        return activity.spins

    runs = [Sample(float(at), float(at), 0, ready=True, waits=7) for at in range(9)]
    assert spins(*runs) == 8.0
    assert spins(*runs, Sample(9.0, 9.0, 0, ready=True, waits=8)) == 0.0, "it has waited"
    assert spins(*runs, Sample(9.0, 9.0, 0, waits=7)) == 0.0, "it waits, and another thread runs"
    assert spins(*runs, Sample(9.0, 8.1, 0, ready=True, waits=7)) == 0.0, "it does not run all the time"
    assert spins(*runs, Sample(9.0, 9.0, 1, ready=True, waits=7)) == 0.0, "it has printed"
    assert spins(*runs, Sample(9.0, 9.0, 0, ready=True, waits=7, steps=1)) == 0.0, "it has taken a step"
    assert spins(*runs, Sample(30.0, 30.0, 0, ready=True, waits=7)) == 0.0, "nothing is known of what was between"
    assert spins(*(replace(each, waits=None) for each in runs)) == 0.0


def test_children_that_compute_are_progress_and_their_first_look_is_not() -> None:
    activity = Activity(60)
    for at in range(50):
        activity.observe(Sample(at, 0.0, 0))
    assert not activity.observe(Sample(50, 0.0, 0, children=300.0))
    assert activity.quiet == 50
    activity.observe(Sample(51, 0.0, 0, children=301.0))
    assert activity.quiet == 0


def test_the_last_lines_of_output_are_the_newest_that_are_not_empty() -> None:
    assert last_lines(b"\n".join(b"line %d" % number for number in range(20)) + b"\n\n")[-2:] == ("line 18", "line 19")
    assert last_lines(b"") == ()


def test_what_py_spy_says_is_read() -> None:
    main = {
        "os_thread_id": 7,
        "thread_name": "MainThread",
        "owns_gil": False,
        "frames": [{"name": "wait", "filename": "/a/threading.py", "line": 320}],
    }
    other = {
        "os_thread_id": 8,
        "thread_name": "T",
        "owns_gil": True,
        "frames": [{"name": "spin", "filename": "/a/x.py", "line": 1}],
    }
    found = read(json.dumps([other, main]).encode(), 7)
    assert [frame.function for frame in found.frames] == ["wait"]
    assert (found.holds_gil, found.gil_holder) == (False, "spin (/a/x.py:1)")
    assert "cannot be read" in read(b"[]", 7).trouble
    assert "cannot be read" in read(b"no JSON", 7).trouble
