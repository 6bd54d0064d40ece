"""Who gets the state from whom."""

import pytest

from elastic_run.adapters.client.commits import NOTHING, Claim, astray, lost, newest, transfers


def claims(steps: list[int]) -> list[Claim]:
    """Of ranks that were in the same process group last; who has nothing was in none."""
    return [Claim(step, 0 if step == NOTHING else 3) for step in steps]


def test_at_the_beginning_all_get_that_of_rank_0() -> None:
    assert transfers(claims([NOTHING, NOTHING, NOTHING])) == (0, ((0, 1), (0, 2)))


def test_a_newcomer_gets_it_from_a_survivor() -> None:
    assert transfers(claims([NOTHING, 7])) == (7, ((1, 0),))


def test_the_highest_step_wins_where_a_peer_was_lost_inside_a_collective() -> None:
    assert transfers(claims([7, 8, 7])) == (8, ((1, 0), (1, 2)))


def test_nobody_sends_where_all_have_it() -> None:
    assert transfers(claims([5, 5, 5])) == (5, ())


def test_those_who_have_it_share_the_work() -> None:
    assert transfers(claims([9, NOTHING, 9, NOTHING, NOTHING])) == (9, ((0, 1), (2, 3), (0, 4)))


def test_who_has_got_it_passes_it_on() -> None:
    assert transfers(claims([NOTHING] * 8))[1] == ((0, 1), (0, 2), (1, 3), (0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize("steps", [[0], [3, NOTHING], [NOTHING, 0, 1, 1, NOTHING], [2, 2, 1, NOTHING, 0]])
def test_each_rank_has_the_state_afterwards_and_nobody_gets_it_twice(steps: list[int]) -> None:
    step, pairs = transfers(claims(steps))
    has = {rank for rank, claim in enumerate(steps) if claim == step}
    targets = [target for _, target in pairs]
    assert len(set(targets)) == len(targets)
    assert has.isdisjoint(targets)
    assert has | set(targets) == set(range(len(steps)))
    for source, target in pairs:
        assert source in has
        has.add(target)


def test_of_equal_steps_the_newer_process_groups_are_the_jobs() -> None:
    """Who was left out has done the same number of steps, with other ranks."""
    assert transfers([Claim(5, 2), Claim(5, 4), Claim(5, 4)]) == (5, ((1, 0),))
    assert transfers([Claim(6, 2), Claim(5, 4)]) == (6, ((0, 1),)), "no committed step is lost"


def test_what_nobody_has_whole_any_more_is_lost() -> None:
    assert lost([Claim(NOTHING, 2), Claim(NOTHING)])
    assert not lost([Claim(NOTHING), Claim(NOTHING)])
    assert not lost([Claim(NOTHING, 2), Claim(0, 1)])


def test_who_began_again_later_has_the_jobs_state_however_few_its_steps() -> None:
    left_out, again = Claim(1000, 1, 1), Claim(500, 3, 3)
    assert transfers([again, left_out, again]) == (500, ((0, 1),))
    assert newest([Claim(NOTHING, 5, 4), left_out]) == left_out, "who has nothing whole does not count"


def test_ranks_with_the_same_step_and_another_state_get_that_of_the_lowest() -> None:
    told = [Claim(7, 2, 1, 5), Claim(7, 2, 1, 5), Claim(7, 2, 1, 6), Claim(6, 2, 1, 9)]
    assert transfers(told) == (7, ((0, 2), (1, 3)))
    assert astray(told) == [2]
