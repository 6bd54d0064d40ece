"""How often a state is copied with `memory="auto"`."""

import pytest

from elastic_run.adapters.client.copy_pace import SHARE, CopyPace


def test_the_first_step_of_a_round_is_copied_and_then_each_so_many() -> None:
    assert CopyPace().is_due(31)
    pace = CopyPace(4, 31)
    assert [step for step in range(32, 37) if pace.is_due(step)] == [35, 36]


def run(copy: float, step: float, copies: int) -> list[int]:
    """The intervals that follow each other where each copy and each step take so many seconds."""
    pace, found = CopyPace(), list[int]()
    for _ in range(copies):
        every = pace.choose(copy, pace.every * step if pace.last is not None else 0.0)
        pace = CopyPace(every, (pace.last or 0) + pace.every)
        found.append(every)
    return found


def test_copies_become_rarer_until_they_take_their_share_of_the_time() -> None:
    assert run(copy=0.3, step=1.0, copies=7) == [1, 2, 4, 8, 10, 10, 10]


@pytest.mark.parametrize(("copy", "step"), [(0.001, 1.0), (0.029, 1.0), (2.0, 0.1)])
def test_their_share_is_never_more_than_that(copy: float, step: float) -> None:
    every = run(copy, step, 20)[-1]
    assert copy <= SHARE * every * step
    assert every == 1 or copy > SHARE * (every - 1) * step


def test_a_step_that_becomes_longer_has_copies_more_often() -> None:
    assert CopyPace(10, 50).choose(copy=0.3, steps=100.0) == 1
