"""How long ago something was written, as a node that only heard of revisions can tell."""

import random

from elastic_run.rendezvous.store.revision_times import CLOSE, MANY, SHARE, RevisionTimes

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


def test_an_age_begins_when_the_store_was_first_known_to_have_come_so_far() -> None:
    times = RevisionTimes()
    times.saw(5, 10.0)
    times.saw(5, 11.0)
    times.saw(9, 20.0)
    times.saw(7, 21.0)  # an endpoint that is behind

    assert [times.reached(revision, 30.0) for revision in (1, 5, 6, 9)] == [10.0, 10.0, 20.0, 20.0]


def test_what_nobody_has_heard_of_has_just_been_written() -> None:
    times = RevisionTimes()
    assert times.reached(1, 30.0) == 30.0
    times.saw(5, 10.0)
    assert times.reached(6, 30.0) == 30.0


def test_an_age_is_never_too_long_and_hardly_too_short_however_many_revisions_there_were() -> None:
    for seed in range(2):
        chance = random.Random(seed)
        times, now, heard = RevisionTimes(), 0.0, [0.0]  # `heard` by revision
        for _ in range(5_000):
            now += chance.choice((0.0001, 0.01, 0.5, 60.0)) * chance.random()
            heard.append(now)
            times.saw(len(heard) - 1, now)
        for revision in range(1, len(heard)):
            told = times.reached(revision, now)
            assert heard[revision] <= told <= heard[revision] + CLOSE + SHARE * (now - heard[revision])


def test_a_year_takes_a_few_hundred_pairs() -> None:
    times, now, revision = RevisionTimes(), 0.0, 0
    while now < YEAR:
        now, revision = now + 300.0, revision + 1
        times.saw(revision, now)
    assert len(times) < 2 * MANY + 600


def test_a_thousand_revisions_a_second_take_few_pairs() -> None:
    times = RevisionTimes()
    for revision in range(1, 20_000):
        times.saw(revision, revision / 1000)
    assert len(times) < 2 * MANY
