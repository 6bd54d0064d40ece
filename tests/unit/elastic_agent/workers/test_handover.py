"""How workers that keep their process come from one round into the next."""

from collections.abc import Collection

import pytest

from elastic_run.elastic_agent.machine.node_state import StayingWorkers
from elastic_run.elastic_agent.workers.handover import (
    COMPUTES_SHARE,
    COMPUTES_WITHIN,
    COMPUTING_SECONDS,
    FORMING_SECONDS,
    FREE_SECONDS,
    GroupMembers,
    ProcessorSample,
    choose_kept,
    lost_state,
    lowest_local_rank,
    wait_for_late,
)
from elastic_run.rendezvous.ranks import Assignment


def members(
    staying: Collection[int] = (1, 2),
    *,
    waiting: Collection[int] = (),
    holding: Collection[int] = (),
    forming: Collection[int] = (),
    step: float = 0.0,
) -> GroupMembers:
    return GroupMembers(
        dict.fromkeys(staying, step),
        waiting=frozenset(waiting),
        holding=frozenset(holding),
        forming=frozenset(forming),
    )


def assignment(first_rank: int = 0) -> Assignment:
    return Assignment(3, "a", "", 0, 2, first_rank, 2, 4, first_rank, 4)


class TestWorkersThatAreLate:
    def test_are_waited_for_as_long_as_two_of_their_steps_take(self) -> None:
        late = members(step=3.0, waiting=[1])
        assert wait_for_late(late, 10.0, 10.5, []) == FREE_SECONDS + 6.0 - 0.5
        assert wait_for_late(members(step=3.0, waiting=[1, 2]), 10.0, 10.5, []) is None

    def test_are_waited_for_no_longer_where_another_here_has_the_state(self) -> None:
        assert wait_for_late(members(waiting=[1], holding=[1]), 0.0, FREE_SECONDS, []) is None
        assert wait_for_late(members(waiting=[1], holding=[2]), 0.0, FREE_SECONDS, []) == 0.0

    def test_are_waited_for_while_they_compute_and_not_for_ever(self) -> None:
        late = members()
        assert wait_for_late(late, 0.0, 1.5, []) == 0.0
        assert wait_for_late(late, 0.0, 2.0, [ProcessorSample(1.5, 7.0)]) == COMPUTES_WITHIN - 0.5
        assert wait_for_late(late, 0.0, 60.0, [ProcessorSample(1.5, 7.0)]) == 0.0
        assert wait_for_late(late, 0.0, COMPUTING_SECONDS, [ProcessorSample(COMPUTING_SECONDS - 1, 7.0)]) is None

    def test_are_waited_for_no_longer_where_they_have_not_computed(self) -> None:
        idle, busy = ProcessorSample(3.5, 7.1), ProcessorSample(3.5, 8.0)
        assert wait_for_late(members(), 0.0, 3.5, [ProcessorSample(1.5, 7.0), idle]) is None
        assert wait_for_late(members(), 0.0, 3.5, [ProcessorSample(1.5, 7.0), busy]) == COMPUTES_WITHIN

    def test_get_their_own_time_where_all_of_them_form_a_group(self) -> None:
        assert wait_for_late(members(forming=[1, 2]), 0.0, FREE_SECONDS, []) == FORMING_SECONDS - FREE_SECONDS
        assert wait_for_late(members(forming=[1, 2]), 0.0, FORMING_SECONDS, []) is None
        assert wait_for_late(members(forming=[1]), 0.0, FREE_SECONDS, []) == 0.0

    @pytest.mark.parametrize(("used", "computes"), [(COMPUTES_SHARE * 3, True), (COMPUTES_SHARE, False), (-1.0, True)])
    def test_compute_where_they_use_the_processor_or_a_child_has_ended(self, used: float, *, computes: bool) -> None:
        assert ProcessorSample(5.0, 40.0).computes_until(ProcessorSample(7.0, 40.0 + used)) is computes


class TestTheStateFromRank0:
    def test_is_lacking_where_nobody_who_waits_here_has_it(self) -> None:
        none_waits = members(holding=[1])
        assert lost_state(none_waits, none_waits, assignment(), from_rank_0=True)
        assert not lost_state(none_waits, members(waiting=[1], holding=[1]), assignment(), from_rank_0=True)
        assert not lost_state(none_waits, none_waits, assignment(2), from_rank_0=True)
        assert not lost_state(members(), members(), assignment(), from_rank_0=True), "nobody here had it before"
        assert not lost_state(none_waits, none_waits, assignment(), from_rank_0=False)

    def test_is_the_oldest_workers(self) -> None:
        began = {0: 3, 1: 2, 2: 2}
        assert lowest_local_rank([0, 1, 2], assignment(), began, from_rank_0=True) == 1
        assert lowest_local_rank([0], assignment(), began, from_rank_0=True) == 0
        assert lowest_local_rank([], assignment(), began, from_rank_0=True) == 0
        assert lowest_local_rank([2], assignment(2), began, from_rank_0=True) == 0
        assert lowest_local_rank([2], assignment(), began, from_rank_0=False) == 0


def test_members_are_counted_by_kind() -> None:
    found = GroupMembers(
        {1: 0.0, 2: 4.0},
        holding=frozenset({2}),
        done=frozenset({3}),
        waiting=frozenset({1}),
        forming=frozenset({2}),
        broke="lost",
    )
    assert found.count() == StayingWorkers(2, 1, 1, 1, 1, 4.0, "lost")
    assert found.late == {2}
    assert not found.heirs


def test_who_waits_keeps_its_process_and_a_worker_is_started_for_each_rank_that_is_left() -> None:
    assert choose_kept({0: 10, 2: 12, 3: 13}, {12, 13}, range(4)) == ({12: 2, 13: 3}, [0, 1])
    assert choose_kept({0: 10}, (), range(1)) == ({}, [0])
