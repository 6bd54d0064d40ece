"""How much of its time a job trained."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as some

from elastic_run.master.machine.training_time import Goodput, TrainingTime
from elastic_run.rendezvous.time_split import CATEGORIES, MARKED, Split
from elastic_run.rendezvous.wire.values import decode, encode

RECOVERY = "infrastructure_recovery_from_disruption"
WASTED = "wasted_progress_from_disruption"


def sums(time: TrainingTime, now: float) -> tuple[float, float]:
    """Seconds trained, and seconds in all."""
    found = time.until(now)
    return found.trained, found.elapsed


def told(time: TrainingTime, now: float) -> dict[str, float]:
    """The categories that are not empty, in seconds."""
    return {name: seconds for name, seconds in time.until(now).split.seconds.items() if seconds}


def training(*nodes: str) -> TrainingTime:
    """A round of them was opened at 10, and all their workers run from 12 on."""
    time = TrainingTime()
    time.opened(nodes, 10.0)
    for node in nodes:
        time.runs(node, 12.0)
    return time


def test_before_the_first_round_there_is_nothing_to_count() -> None:
    assert sums(TrainingTime(), 100.0) == (0.0, 0.0)
    assert Goodput().share is None


def test_a_round_trains_from_when_the_last_of_its_nodes_runs() -> None:
    time = TrainingTime()
    time.opened("ab", 10.0)
    time.runs("a", 11.0)
    assert sums(time, 12.0) == (0.0, 2.0)
    time.runs("b", 13.0)
    time.runs("b", 15.0)
    assert sums(time, 20.0) == (7.0, 10.0)
    assert Goodput(7.0, 10.0).share == 0.7


def test_a_round_trains_until_the_first_evidence_of_its_end() -> None:
    time = training("a", "b")
    time.ended(15.0)
    time.ended(18.0)
    time.runs("a", 18.0)
    assert sums(time, 20.0) == (3.0, 10.0)


def test_the_time_between_two_rounds_is_without_training() -> None:
    time = training("a")
    time.ended(15.0)
    time.opened("b", 17.0)
    time.runs("b", 18.0)
    assert sums(time, 20.0) == (3.0 + 2.0, 10.0)


def test_a_round_that_the_next_one_ends_trained_until_then() -> None:
    time = training("a")
    time.opened("ab", 15.0)
    assert sums(time, 20.0) == (3.0, 10.0)


def test_who_is_not_in_the_round_does_not_begin_it() -> None:
    time = TrainingTime()
    time.opened("a", 10.0)
    time.runs("b", 11.0)
    assert time.until(20.0).trained == 0.0


def test_a_new_master_goes_on_with_what_the_last_one_had_counted() -> None:
    time = TrainingTime(Split(productive=30_000_000, other=10_000_000), 100.0)
    time.opened("a", 100.0)
    time.runs("a", 101.0)
    assert sums(time, 110.0) == (39.0, 50.0)


def test_each_second_is_told_by_its_category() -> None:
    time = training("a")  # opened at 10, runs from 12 on
    time.ended(20.0)
    time.opened("a", 21.0, "failure")
    time.runs("a", 24.0)
    time.opened("ab", 30.0, "joined")
    time.runs("a", 30.0)
    time.runs("b", 35.0)
    time.ended(40.0, "elastic_scale_down")
    time.opened("a", 41.0, "left")
    time.runs("a", 42.0)
    time.ended(50.0, "other")
    assert told(time, 53.0) == {
        "initialization": 2.0,
        "productive": 8.0 + 6.0 + 5.0 + 8.0,
        RECOVERY: 4.0,
        "elastic_scale_up": 5.0,
        "elastic_scale_down": 2.0,
        "other": 3.0,
    }


def test_what_was_trained_after_the_last_checkpoint_is_wasted_by_a_restart() -> None:
    time = training("a")
    time.saved(15.0)
    time.ended(18.0)
    time.opened("a", 19.0, "failure")
    time.runs("a", 20.0)
    found = time.until(24.0)
    assert told(time, 24.0) == {"initialization": 2.0, "productive": 3.0 + 4.0, WASTED: 3.0, RECOVERY: 2.0}
    assert (found.trained, found.share) == (10.0, 7.0 / 14.0)


def test_workers_that_keep_their_state_repeat_nothing() -> None:
    time = training("a")
    time.saved(15.0)
    time.opened("a", 19.0, "lost", in_place=True)
    time.runs("a", 20.0)
    assert WASTED not in told(time, 24.0)


def test_without_word_of_a_checkpoint_nothing_is_known_to_be_wasted() -> None:
    time = training("a")
    time.opened("a", 19.0, "failure")
    assert WASTED not in told(time, 24.0)


def test_a_suspension_is_recovery_and_the_next_master_counts_on() -> None:
    time = training("a")
    time.ended(15.0)
    after = TrainingTime(time.until(16.0).split, 100.0)
    assert told(after, 110.0) == {"initialization": 2.0, "productive": 3.0, RECOVERY: 1.0 + 10.0}


def test_what_a_script_says_is_taken_from_what_was_taken_for_training() -> None:
    split = Split(productive=10, initialization=3).marking({"data_loading": 4, "checkpoint_save": 100})
    assert split == Split(productive=0, initialization=3, data_loading=4, checkpoint_save=6)


WORDS = some.sampled_from(["open", "runs", "saved", "failed", "left", "over", "takeover", "look"])
CAUSES = some.sampled_from(["start", "failure", "lost", "left", "joined", "problem"])
TIMES = some.floats(0, 1e6, allow_nan=False)


@example([("open", 0.0, "start", False), ("takeover", 0.0, "start", False), ("open", 1.0, "start", False)], {})
@given(
    some.lists(some.tuples(WORDS, TIMES, CAUSES, some.booleans())),
    some.dictionaries(some.sampled_from(MARKED), some.integers(0, 10**9)),
)
def test_whatever_happens_the_categories_sum_to_the_time_exactly(happens: list[Any], marks: dict[Any, int]) -> None:
    time, now, began = TrainingTime(), 0.0, None
    for word, seconds, cause, in_place in happens:
        now += seconds
        match word:
            case "open":
                began = round(now * 1e6) if began is None else began
                time.opened("ab", now, cause, in_place=in_place)
            case "runs":
                time.runs("a", now)
                time.runs("b", now - seconds / 2)  # a clock that goes back
            case "saved":
                time.saved(now)
            case "failed":
                time.ended(now)
            case "left":
                time.ended(now, "elastic_scale_down")
            case "over":
                time.ended(now, "other")
            case "takeover":
                counted = time.until(now)
                time = TrainingTime(counted.split, now)
                began = began if counted.split.total else None  # a master opens the round that it takes over
            case _:
                time.until(now)
        found = time.until(now)
        expected = 0 if began is None else round(now * 1e6) - began
        assert found.split.total == expected == found.split.marking(marks).total
        assert all(value >= 0 for _, value in found.split) and tuple(name for name, _ in found.split) == CATEGORIES
        assert decode(Split, encode(found.split)) == found.split


def test_time_in_which_the_job_stood_still_is_counted_from_where_it_began() -> None:
    time = training("a")
    time.goes_on(13.0)
    time.stands_still(20.0, 5.0)
    assert told(time, 22.0) == {"initialization": 2.0, "productive": 3.0, RECOVERY: 7.0}
    time.goes_on(22.0)
    assert told(time, 25.0) == {"initialization": 2.0, "productive": 6.0, RECOVERY: 7.0}


def test_a_job_that_stands_still_does_so_in_its_round_and_until_it_ends() -> None:
    time = training("a")
    time.stands_still(20.0, 100.0)
    assert told(time, 20.0) == {"initialization": 2.0, RECOVERY: 8.0}
    time.ended(21.0)
    time.goes_on(22.0)
    time.stands_still(23.0, 1.0)
    assert told(time, 24.0) == {"initialization": 2.0, RECOVERY: 12.0}
    time.opened("a", 24.0, "failure")
    time.goes_on(25.0)
    assert told(time, 26.0) == {"initialization": 2.0, RECOVERY: 14.0}
