"""How much of its time a job trained."""

from elastic_run.master.training_time import Goodput, TrainingTime


def training(*nodes: str) -> TrainingTime:
    """A round of them was opened at 10, and all their workers run from 12 on."""
    time = TrainingTime()
    time.opened(nodes, 10.0)
    for node in nodes:
        time.runs(node, 12.0)
    return time


def test_before_the_first_round_there_is_nothing_to_count() -> None:
    assert TrainingTime().until(100.0) == Goodput(0.0, 0.0)
    assert Goodput().share is None


def test_a_round_trains_from_when_the_last_of_its_nodes_runs() -> None:
    time = TrainingTime()
    time.opened("ab", 10.0)
    time.runs("a", 11.0)
    assert time.until(12.0) == Goodput(0.0, 2.0)
    time.runs("b", 13.0)
    time.runs("b", 15.0)
    assert time.until(20.0) == Goodput(7.0, 10.0)
    assert Goodput(7.0, 10.0).share == 0.7


def test_a_round_trains_until_the_first_evidence_of_its_end() -> None:
    time = training("a", "b")
    time.ended(15.0)
    time.ended(18.0)
    time.runs("a", 18.0)
    assert time.until(20.0) == Goodput(3.0, 10.0)


def test_the_time_between_two_rounds_is_without_training() -> None:
    time = training("a")
    time.ended(15.0)
    time.opened("b", 17.0)
    time.runs("b", 18.0)
    assert time.until(20.0) == Goodput(3.0 + 2.0, 10.0)


def test_a_round_that_the_next_one_ends_trained_until_then() -> None:
    time = training("a")
    time.opened("ab", 15.0)
    assert time.until(20.0) == Goodput(3.0, 10.0)


def test_who_is_not_in_the_round_does_not_begin_it() -> None:
    time = TrainingTime()
    time.opened("a", 10.0)
    time.runs("b", 11.0)
    assert time.until(20.0).trained == 0.0


def test_a_new_master_goes_on_with_what_the_last_one_had_counted() -> None:
    time = TrainingTime(Goodput(30.0, 40.0), 100.0)
    time.opened("a", 100.0)
    time.runs("a", 101.0)
    assert time.until(110.0) == Goodput(39.0, 50.0)
