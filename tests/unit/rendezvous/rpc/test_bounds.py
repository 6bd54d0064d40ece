"""What all peers of a listener may take together, and which connection goes where that is exceeded."""

import resource

import pytest

from elastic_run.rendezvous.rpc.bounds import Bounds, Census, bounds_of_this_process


def census(**bounds: int) -> Census[str]:
    return Census(Bounds(**{"connections": 100, "strangers": 100, **bounds}))


def arrive(counted: Census[str], connection: str) -> list[str]:
    """Those that had to go."""
    gone: list[str] = []
    for each in counted.arrives(connection):
        counted.leaves(each)
        gone.append(each)
    return gone


def test_at_the_bound_the_oldest_stranger_goes_and_the_newcomer_stays() -> None:
    counted = census(strangers=3)
    assert [arrive(counted, name) for name in "123"] == [[], [], []]
    assert arrive(counted, "newcomer") == ["1"]
    assert counted.all() == ("2", "3", "newcomer") and counted.strangers == 3


def test_where_there_are_too_many_connections_a_stranger_goes_before_who_is_known() -> None:
    counted = census(connections=2)
    for name in ("known", "stranger"):
        arrive(counted, name)
    counted.meets("known")
    assert arrive(counted, "newcomer") == ["stranger"]
    assert counted.all() == ("known", "newcomer") and counted.strangers == 1


def test_who_is_known_is_no_stranger_and_does_not_go_for_one() -> None:
    counted = census(strangers=1)
    arrive(counted, "known")
    counted.meets("known")
    assert arrive(counted, "1") == [] and arrive(counted, "2") == ["1"]
    assert counted.all() == ("known", "2")


def test_beyond_so_many_observers_the_oldest_goes_and_all_of_them_stay_strangers() -> None:
    counted = census(observers=2)
    gone: list[str] = []
    for name in "1234":
        arrive(counted, name)
        if name == "4":
            counted.leaves("2")
        for each in counted.observes(name):
            counted.leaves(each)
            gone.append(each)
    assert gone == ["1"] and counted.all() == ("3", "4") and counted.strangers == 2


def test_where_all_are_known_it_is_the_newcomer_that_goes() -> None:
    counted = census(connections=1)
    arrive(counted, "known")
    counted.meets("known")
    assert arrive(counted, "newcomer") == ["newcomer"]
    assert counted.all() == ("known",)


def test_the_message_that_began_first_goes_where_all_that_are_unfinished_take_too_much() -> None:
    counted = census(unfinished=10)
    for name in "12":
        arrive(counted, name)
    assert list(counted.unfinished("1", 4, again=False)) == []
    assert list(counted.unfinished("2", 6, again=False)) == []
    gone = counted.unfinished("1", 5, again=False)
    assert next(gone) == "1"
    counted.leaves("1")
    assert list(gone) == []


def test_a_message_that_ended_takes_nothing_and_the_next_one_begins_later() -> None:
    counted = census(unfinished=10)
    for name in "12":
        arrive(counted, name)
    list(counted.unfinished("1", 4, again=False))
    list(counted.unfinished("2", 4, again=False))
    list(counted.unfinished("1", 5, again=True))
    assert next(iter(counted.unfinished("1", 7, again=False))) == "2"


def test_whoever_holds_most_without_answers_goes() -> None:
    counted = census(held=10)
    for name in "12":
        arrive(counted, name)
    assert list(counted.holds("1", 7)) == []
    assert next(iter(counted.holds("2", 4))) == "1"
    counted.leaves("1")
    assert list(counted.holds("2", 9)) == []


def test_who_has_left_takes_nothing() -> None:
    counted = census()
    arrive(counted, "1")
    list(counted.unfinished("1", 4, again=False))
    list(counted.holds("1", 4))
    for _ in range(2):
        counted.leaves("1")
    assert counted.count == counted.strangers == 0 and counted.all() == ()


@pytest.mark.parametrize("limit", [64, 1024, 65536])
@pytest.mark.parametrize("silent", [False, True])
def test_a_quarter_of_the_descriptors_stays_for_the_process_itself(
    limit: int, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    bounds = bounds_of_this_process(silent=silent)
    assert 0 < bounds.strangers < bounds.connections <= limit * 3 // 4
    assert silent or bounds.strangers <= 512


def test_no_limit_of_descriptors_is_no_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert bounds_of_this_process(silent=True).connections <= 200_000
