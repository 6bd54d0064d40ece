"""Membership is decided right: each behaviour of `plan`, then its invariants for any members."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.rendezvous import ranks
from elastic_run.rendezvous.member import DEPARTING, Exit, Fingerprint, Member, Report, State
from elastic_run.rendezvous.reasons import JoinedTooLate, NoChange, NodeFailed, Nodes, NodesJoined, PreparingWorkers
from elastic_run.rendezvous.round import (
    IN_PLACE_SETTLE,
    READY_SECONDS,
    Cause,
    Decision,
    Fault,
    Finish,
    Keep,
    Open,
    OpenInPlace,
    Outcome,
    Policy,
    Round,
    Seen,
    Suspend,
    decide,
    survey,
)

from ..deciding import plan

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")
POLICY = Policy(min_nodes=2, max_nodes=4)
OLD = 1000.0
"""A time by which every settling, interval and last call of something at 0 is over, and no timeout of something new."""


def seen(
    name: str,
    order: int = 0,
    *,
    state: State = "running",
    round: int = 1,
    since: float = 0.0,
    gone: bool = False,
    exits: tuple[Exit, ...] = (),
    topology: str = "",
    incarnation: str = "",
) -> Seen:
    """A member; its incarnation is its name in capitals unless given, its order that of the alphabet."""
    member = Member(
        name,
        incarnation or name.upper(),
        f"{name}.host",
        "",
        1,
        (1,),
        FINGERPRINT,
        topology=topology,
        report=Report(state, round, exits),
    )
    return Seen(member, order or ord(name[0]), since, gone)


def running(*names: str, number: int = 1, opened_at: float = 0.0, fault: Fault | None = None) -> Round:
    return Round(number, tuple(name.upper() for name in names), True, opened_at, fault)


def suspended(*names: str, opened_at: float = 0.0) -> Round:
    return Round(2, tuple(name.upper() for name in names), False, opened_at)


def said(text: str) -> NodeFailed:
    return NodeFailed("b", text)


def failure(text: str = "failed", fatal: Outcome | None = None, settled_at: float = 0.0) -> Fault:
    return Fault(said(text), "failure", fatal, settled_at)


def opened(decision: Decision) -> list[str]:
    assert isinstance(decision, Open), decision
    return [member.node for member in decision.nodes]


def ok_exit(round: int = 1) -> Exit:
    return Exit(round, 0, 0, 1, code=0)


FIRST = Round(0, (), False, 0.0)


class TestTheFirstRound:
    def test_opens_at_once_when_the_maximum_is_in(self) -> None:
        members = [seen(name, state="waiting", round=0) for name in "abcd"]
        decision, reason = plan(members, FIRST, POLICY, 0.0)
        assert opened(decision) == ["a", "b", "c", "d"]
        assert isinstance(decision, Open) and decision.cause == "start"
        assert "all 4 nodes have joined" in str(reason)

    def test_waits_for_the_minimum_until_the_join_timeout_and_says_for_how_many(self) -> None:
        decision, reason = plan([seen("a", state="waiting", round=0)], FIRST, POLICY, 5.0)
        assert decision == Keep(600.0)
        assert "1 of 2:4" in str(reason) and "1 more" in str(reason) and "600 s" in str(reason)

    def test_has_a_deadline_of_its_own(self) -> None:
        policy = dataclasses.replace(POLICY, join_timeout=7.0, recovery_timeout=9.0)
        assert plan([], FIRST, policy, 0.0)[0] == Keep(7.0)

    def test_gives_up_at_the_join_timeout(self) -> None:
        decision, reason = plan([seen("a", state="waiting", round=0)], FIRST, POLICY, 600.0)
        assert decision == Finish("timeout")
        assert "1 of 2:4" in str(reason)

    def test_with_nobody_in_waits_until_the_join_timeout(self) -> None:
        assert plan([], FIRST, POLICY, 0.0)[0] == Keep(600.0)

    def test_with_the_minimum_in_waits_for_the_last_call_after_the_last_join(self) -> None:
        members = [seen("a", since=0.0, round=0), seen("b", since=2.0, round=0)]
        decision, reason = plan(members, FIRST, POLICY, 2.5)
        assert decision == Keep(5.0)
        assert "last call" in str(reason)

    def test_opens_when_the_last_call_is_over(self) -> None:
        members = [seen("a", since=0.0, round=0), seen("b", since=2.0, round=0)]
        assert opened(plan(members, FIRST, POLICY, 5.0)[0]) == ["a", "b"]

    def test_opens_late_rather_than_timing_out_when_the_minimum_comes_after_the_join_timeout(self) -> None:
        members = [seen("a", since=0.0, round=0), seen("b", since=650.0, round=0)]
        assert plan(members, FIRST, POLICY, 650.0)[0] == Keep(653.0)

    def test_stands_in_order_of_arrival_not_of_names(self) -> None:
        members = [seen("a", 9), seen("b", 7), seen("c", 8), seen("d", 1)]
        assert opened(plan(members, FIRST, POLICY, 0.0)[0]) == ["d", "b", "c", "a"]

    def test_takes_the_first_to_arrive_where_more_than_the_maximum_came(self) -> None:
        members = [seen(name, order) for name, order in zip("abcde", (5, 1, 2, 3, 4), strict=True)]
        assert opened(plan(members, FIRST, POLICY, 0.0)[0]) == ["b", "c", "d", "e"]

    def test_ignores_a_node_that_was_told_to_leave_meanwhile(self) -> None:
        members = [seen("a", state="leaving", round=0), seen("b", state="waiting", round=0)]
        assert plan(members, FIRST, POLICY, 0.0)[0] == Keep(600.0)

    def test_is_called_off_when_every_node_was_told_to_leave(self) -> None:
        decision, reason = plan([seen("a", state="leaving", round=0)], FIRST, POLICY, 0.0)
        assert decision == Finish("preempted")
        assert "a" in str(reason)

    def test_has_a_multiple_of_the_node_unit(self) -> None:
        policy = Policy(min_nodes=2, max_nodes=5, node_unit=2)
        assert opened(plan([seen(name) for name in "abc"], FIRST, policy, OLD)[0]) == ["a", "b"]

    def test_below_a_minimum_that_is_no_multiple_of_the_unit_waits_for_whole_units(self) -> None:
        policy = Policy(min_nodes=3, max_nodes=8, node_unit=2)
        decision, reason = plan([seen(name) for name in "abc"], FIRST, policy, 0.0)
        assert decision == Keep(600.0)
        assert "1 more" in str(reason)


class TestARunningRound:
    def test_is_kept_while_all_is_well(self) -> None:
        assert plan([seen("a"), seen("b")], running("a", "b"), POLICY, OLD) == (Keep(), NoChange())

    def test_is_kept_while_a_node_has_not_started_its_workers_yet(self) -> None:
        members = [seen("a"), seen("b", state="waiting", round=0)]
        assert plan(members, running("a", "b"), POLICY, OLD)[0] == Keep()

    def test_ends_in_success_when_every_node_succeeded(self) -> None:
        members = [seen(name, state="succeeded") for name in "ab"]
        decision, reason = plan(members, running("a", "b"), POLICY, OLD)
        assert decision == Finish("succeeded")
        assert "round 1" in str(reason)

    def test_ends_in_success_when_a_node_that_had_succeeded_is_gone_already(self) -> None:
        members = [seen("a", state="succeeded", gone=True), seen("b", state="succeeded")]
        assert plan(members, running("a", "b"), POLICY, OLD)[0] == Finish("succeeded")

    def test_ends_in_success_although_everybody_is_gone(self) -> None:
        members = [seen(name, state="succeeded", gone=True) for name in "ab"]
        assert plan(members, running("a", "b"), POLICY, OLD)[0] == Finish("succeeded")

    def test_ends_in_success_though_the_only_node_that_is_left_is_a_standby_that_leaves(self) -> None:
        members = [seen(name, state="succeeded", gone=True) for name in "ab"] + [seen("c", state="leaving", round=0)]
        assert plan(members, running("a", "b"), POLICY, OLD)[0] == Finish("succeeded")

    def test_is_not_over_by_the_success_of_an_earlier_round(self) -> None:
        members = [seen(name, state="succeeded", round=1) for name in "ab"]
        assert plan(members, running("a", "b", number=2), POLICY, OLD)[0] == Keep()

    def test_is_not_over_by_the_success_of_a_standby(self) -> None:
        members = [seen("a"), seen("b", state="succeeded"), seen("c", state="succeeded", round=1)]
        assert plan(members, running("a", "b"), dataclasses.replace(POLICY, max_nodes=2), OLD)[0] == Keep()

    def test_waits_for_the_others_when_one_node_has_succeeded(self) -> None:
        members = [seen("a", state="succeeded"), seen("b")]
        assert plan(members, running("a", "b"), POLICY, OLD)[0] == Keep()

    def test_waits_for_the_others_when_one_node_has_succeeded_and_gone(self) -> None:
        members = [seen("a", state="succeeded", gone=True), seen("b")]
        assert plan(members, running("a", "b"), POLICY, OLD)[0] == Keep()

    def test_is_replaced_at_once_by_the_survivors_of_a_loss(self) -> None:
        decision, reason = plan([seen("b"), seen("c")], running("a", "b", "c"), POLICY, 0.0)
        assert opened(decision) == ["b", "c"]
        assert isinstance(decision, Open) and decision.cause == "lost"
        assert "1 of 3 nodes were lost" in str(reason)

    def test_keeps_its_rank_order_whatever_the_order_of_arrival(self) -> None:
        members = [seen("a", 1), seen("b", 2), seen("c", 3)]
        assert opened(plan(members, running("c", "x", "a", "b"), POLICY, 0.0)[0]) == ["c", "a", "b"]

    def test_says_how_the_node_was_lost_where_the_judge_knows(self) -> None:
        fault = Fault(said("was lost: its process is gone"), "lost", None, 0.0)
        reason = plan([seen("b"), seen("c")], running("a", "b", "c", fault=fault), POLICY, 0.0)[1]
        assert reason == fault.reason

    def test_is_replaced_when_a_node_leaves_in_order(self) -> None:
        members = [seen("a", state="leaving"), seen("b"), seen("c")]
        decision, reason = plan(members, running("a", "b", "c"), POLICY, 0.0)
        assert opened(decision) == ["b", "c"]
        assert isinstance(decision, Open) and decision.cause == "left"
        assert "a left the job" in str(reason)

    def test_is_replaced_although_the_leaver_never_started_its_workers(self) -> None:
        members = [seen("a", state="leaving", round=0), seen("b"), seen("c")]
        assert opened(plan(members, running("a", "b", "c"), POLICY, 0.0)[0]) == ["b", "c"]

    def test_ends_as_preempted_when_every_node_was_told_to_leave(self) -> None:
        members = [seen("a", state="leaving"), seen("b", state="leaving")]
        assert plan(members, running("a", "b"), POLICY, 0.0)[0] == Finish("preempted")

    def test_ends_as_preempted_when_the_last_survivors_were_told_to_leave(self) -> None:
        assert plan([seen("b", state="leaving")], running("a", "b"), POLICY, 0.0)[0] == Finish("preempted")

    def test_goes_on_with_a_standby_when_every_node_of_it_was_told_to_leave(self) -> None:
        members = [seen("a", state="leaving"), seen("b", state="leaving"), seen("c"), seen("d")]
        assert opened(plan(members, running("a", "b"), POLICY, 0.0)[0]) == ["c", "d"]

    def test_goes_on_with_standbys_when_every_node_of_it_is_lost(self) -> None:
        decision, _ = plan([seen("c"), seen("d")], running("a", "b"), POLICY, 0.0)
        assert opened(decision) == ["c", "d"]
        assert isinstance(decision, Open) and decision.cause == "lost"

    def test_is_suspended_when_every_node_is_lost_and_nobody_waits(self) -> None:
        decision, reason = plan([], running("a", "b"), POLICY, 0.0)
        assert decision == Suspend("lost")
        assert "2 more" in str(reason)

    def test_opens_again_after_a_failure_with_everybody(self) -> None:
        members = [seen("a", state="failed"), seen("b")]
        decision, reason = plan(members, running("a", "b", fault=failure()), POLICY, 0.0)
        assert opened(decision) == ["a", "b"]
        assert isinstance(decision, Open) and decision.cause == "failure"
        assert reason == said("failed")

    def test_after_a_failure_admits_whoever_waits(self) -> None:
        members = [seen("a", state="failed"), seen("b"), seen("c", state="waiting", since=0.0)]
        assert opened(plan(members, running("a", "b", fault=failure()), POLICY, 0.0)[0]) == ["a", "b", "c"]

    def test_after_a_failure_starts_finished_workers_again(self) -> None:
        members = [seen("a", state="failed"), seen("b", state="succeeded")]
        assert opened(plan(members, running("a", "b", fault=failure()), POLICY, 0.0)[0]) == ["a", "b"]

    def test_does_not_wait_for_the_evidence_when_the_verdict_does_not_end_the_job(self) -> None:
        fault = failure(settled_at=OLD)
        assert isinstance(plan([seen("a"), seen("b")], running("a", "b", fault=fault), POLICY, 0.0)[0], Open)

    def test_waits_a_moment_for_the_cause_where_only_consequences_are_known(self) -> None:
        fault = dataclasses.replace(failure("lost its connection"), root_by=0.25)
        current = running("a", "b", fault=fault)
        members = [seen("a"), seen("b", state="failed")]
        decision, reason = plan(members, current, POLICY, 0.0)
        assert decision == Keep(0.25) and "failed first" in str(reason)
        assert isinstance(plan(members, current, POLICY, 0.25)[0], Open)
        decision, _ = plan([seen("b", state="failed"), seen("c")], running("a", "b", fault=fault), POLICY, 0.0)
        assert isinstance(decision, Open) and decision.cause == "lost", "a loss explains it"

    def test_gathers_evidence_before_a_verdict_that_ends_the_job(self) -> None:
        fault = failure("no budget", "failed", settled_at=1.0)
        decision, reason = plan([seen("a"), seen("b")], running("a", "b", fault=fault), POLICY, 0.5)
        assert decision == Keep(1.0)
        assert "no budget" in str(reason) and "waiting for other failure reports" in str(reason)

    @pytest.mark.parametrize("outcome", ["failed", "repeated"])
    def test_ends_by_the_verdict_when_the_evidence_is_complete(self, outcome: Outcome) -> None:
        fault = failure("no budget", outcome, settled_at=1.0)
        decision = plan([seen("a"), seen("b")], running("a", "b", fault=fault), POLICY, 1.0)
        assert decision == (Finish(outcome), said("no budget"))

    def test_is_not_ended_by_the_fault_of_a_node_whose_loss_explains_it(self) -> None:
        fault = Fault(said("was lost"), "lost", None, 1.0)
        decision, _ = plan([seen("b", state="failed"), seen("c")], running("a", "b", "c", fault=fault), POLICY, 0.5)
        assert isinstance(decision, Open) and decision.cause == "lost"

    def test_succeeds_although_a_fatal_verdict_is_pending_on_a_stale_fault(self) -> None:
        members = [seen(name, state="succeeded") for name in "ab"]
        fault = failure("late", "failed", settled_at=1.0)
        assert plan(members, running("a", "b", fault=fault), POLICY, 0.5)[0] == Finish("succeeded")

    def test_a_loss_is_named_before_a_departure_of_the_same_moment(self) -> None:
        members = [seen("b", state="leaving"), seen("c"), seen("d")]
        decision, _ = plan(members, running("a", "b", "c", "d"), POLICY, 0.0)
        assert opened(decision) == ["c", "d"]
        assert isinstance(decision, Open) and decision.cause == "lost"

    def test_a_new_incarnation_under_the_old_name_is_a_loss_and_a_join(self) -> None:
        members = [seen("a", 99, incarnation="REBORN", state="waiting", round=0), seen("b")]
        decision, _ = plan(members, running("a", "b"), POLICY, 0.0)
        assert isinstance(decision, Open) and decision.cause == "lost"
        assert [member.incarnation for member in decision.nodes] == ["B", "REBORN"]

    def test_a_node_that_could_not_start_its_workers_is_tried_again_with_all(self) -> None:
        fault = Fault(said("could not start its workers: port taken"), "problem", None, 1.0)
        members = [seen("a", state="failed"), seen("b")]
        decision, _ = plan(members, running("a", "b", fault=fault), POLICY, 0.0)
        assert opened(decision) == ["a", "b"]
        assert isinstance(decision, Open) and decision.cause == "problem"

    def test_shrinks_to_whole_units_and_keeps_the_first_ranks(self) -> None:
        policy = Policy(min_nodes=2, max_nodes=4, node_unit=2)
        members = [seen("b"), seen("c"), seen("d")]
        assert opened(plan(members, running("d", "a", "c", "b"), policy, 0.0)[0]) == ["d", "c"]

    def test_names_at_most_four_nodes_in_a_reason(self) -> None:
        members = [seen(name, state="leaving") for name in "abcdef"] + [seen("x"), seen("y")]
        reason = plan(members, running(*"abcdefxy"), POLICY, 0.0)[1]
        assert "a, b, c, d and 2 more" in str(reason)


class TestASuspendedJob:
    def test_suspends_below_the_minimum_and_says_for_how_many_and_how_long_it_waits(self) -> None:
        decision, reason = plan([seen("a")], running("a", "b"), POLICY, 0.0)
        assert decision == Suspend("lost")
        assert "1 more" in str(reason) and "600 s" in str(reason)

    @pytest.mark.parametrize(
        ("member", "cause"),
        [(seen("b", state="leaving"), "left"), (seen("c", state="waiting", round=0), "lost")],
    )
    def test_names_the_cause(self, member: Seen, cause: Cause) -> None:
        policy = dataclasses.replace(POLICY, min_nodes=3)
        assert plan([seen("a"), member], running("a", "b"), policy, 0.0)[0] == Suspend(cause)

    def test_waits_until_the_recovery_timeout(self) -> None:
        policy = dataclasses.replace(POLICY, recovery_timeout=30.0)
        decision, reason = plan([seen("a")], suspended("a", "b", opened_at=10.0), policy, 11.0)
        assert decision == Keep(40.0)
        assert "30 s" in str(reason)

    def test_gives_up_at_the_recovery_timeout(self) -> None:
        policy = dataclasses.replace(POLICY, recovery_timeout=30.0)
        assert plan([seen("a")], suspended("a", "b", opened_at=10.0), policy, 40.0)[0] == Finish("timeout")

    def test_opens_at_once_when_the_minimum_is_back_without_a_last_call(self) -> None:
        members = [seen("a"), seen("z", since=5.0, state="waiting", round=0)]
        decision, reason = plan(members, suspended("b", "a"), POLICY, 5.0)
        assert opened(decision) == ["a", "z"]
        assert isinstance(decision, Open) and decision.cause == "start"
        assert "again" in str(reason)

    def test_puts_survivors_before_those_who_came_back(self) -> None:
        members = [seen("a", 1, incarnation="REBORN"), seen("b", 2)]
        decision, _ = plan(members, suspended("a", "b"), POLICY, 0.0)
        assert isinstance(decision, Open)
        assert [member.incarnation for member in decision.nodes] == ["B", "REBORN"]

    def test_ends_as_preempted_when_the_survivors_are_told_to_leave(self) -> None:
        assert plan([seen("a", state="leaving")], suspended("a", "b"), POLICY, 0.0)[0] == Finish("preempted")

    def test_waits_on_when_the_survivors_are_lost_too(self) -> None:
        assert plan([], suspended("a", "b"), POLICY, 1.0)[0] == Keep(600.0)

    def test_does_not_count_a_node_that_leaves(self) -> None:
        members = [seen("a"), seen("b", state="leaving")]
        assert plan(members, suspended("a", "b"), POLICY, 1.0)[0] == Keep(600.0)

    def test_does_not_count_a_node_that_succeeded_and_went(self) -> None:
        members = [seen("a"), seen("b", state="succeeded", gone=True)]
        assert plan(members, suspended("a", "b"), POLICY, 1.0)[0] == Keep(600.0)


class TestAJoiningNode:
    MEMBERS = (seen("a"), seen("b"), seen("c", state="waiting", round=0, since=100.0))

    def test_waits_for_others_before_it_restarts_the_script_and_says_so(self) -> None:
        decision, reason = plan(self.MEMBERS, running("a", "b"), POLICY, 101.0)
        assert decision == Keep(110.0)
        assert "restarts the script" in str(reason) and "--scale-up=never" in str(reason)

    def test_enters_when_it_has_settled(self) -> None:
        decision, _ = plan(self.MEMBERS, running("a", "b"), POLICY, 110.0)
        assert opened(decision) == ["a", "b", "c"]
        assert isinstance(decision, Open) and decision.cause == "joined"

    def test_settles_anew_with_every_other_join(self) -> None:
        members = [*self.MEMBERS, seen("d", state="waiting", round=0, since=105.0)]
        assert plan(members, running("a", "b"), POLICY, 111.0)[0] == Keep(115.0)

    def test_waits_until_the_last_joins_round_has_had_its_interval(self) -> None:
        current = dataclasses.replace(running("a", "b"), grown_at=90.0)
        assert plan(self.MEMBERS, current, POLICY, 111.0)[0] == Keep(150.0)

    def test_does_not_wait_for_an_interval_after_a_round_of_another_cause(self) -> None:
        assert opened(plan(self.MEMBERS, running("a", "b", opened_at=109.0), POLICY, 111.0)[0]) == ["a", "b", "c"]

    def test_enters_at_once_with_the_next_loss(self) -> None:
        members = [seen("b"), seen("c", state="waiting", round=0, since=100.0)]
        assert opened(plan(members, running("a", "b"), POLICY, 100.0)[0]) == ["b", "c"]

    def test_waits_as_a_standby_when_the_maximum_is_in(self) -> None:
        policy = dataclasses.replace(POLICY, max_nodes=2)
        decision, reason = plan(self.MEMBERS, running("a", "b"), policy, OLD)
        assert decision == Keep()
        assert "c waits as a standby" in str(reason) and "maximum" in str(reason)

    def test_waits_as_a_standby_where_the_user_wants_no_restarts(self) -> None:
        policy = dataclasses.replace(POLICY, scale_up="never")
        decision, reason = plan(self.MEMBERS, running("a", "b"), policy, OLD)
        assert decision == Keep()
        assert "c waits as a standby" in str(reason)

    def test_waits_for_a_checkpoint_that_is_written_once_it_has_settled_where_the_user_wants_that(self) -> None:
        policy = dataclasses.replace(POLICY, scale_up="commit")
        decision, reason = plan(self.MEMBERS, running("a", "b"), policy, OLD)
        assert decision == Keep()
        assert "c will join after the next checkpoint" in str(reason)
        early = dataclasses.replace(running("a", "b"), saved_at=109.0)
        assert plan(self.MEMBERS, early, policy, OLD)[0] == Keep()
        since = dataclasses.replace(running("a", "b"), saved_at=110.0)
        assert opened(plan(self.MEMBERS, since, policy, 110.0)[0]) == ["a", "b", "c"]

    def test_of_a_standby_takes_the_rank_of_a_lost_node_also_where_the_user_wants_no_restarts(self) -> None:
        policy = dataclasses.replace(POLICY, scale_up="never", max_nodes=2)
        members = [seen("b"), seen("c", state="waiting", round=0, since=100.0)]
        assert opened(plan(members, running("a", "b"), policy, 100.0)[0]) == ["b", "c"]

    def test_waits_for_a_whole_unit(self) -> None:
        policy = dataclasses.replace(POLICY, node_unit=2)
        decision, reason = plan(self.MEMBERS, running("a", "b"), policy, OLD)
        assert decision == Keep()
        assert "--node-unit=2" in str(reason)

    def test_at_the_end_of_the_job_opens_no_round(self) -> None:
        finished = seen("a", state="running", exits=(ok_exit(),))
        members = [finished, seen("b"), seen("c", state="waiting", round=0, since=100.0)]
        decision, reason = plan(members, running("a", "b"), POLICY, OLD)
        assert decision == Keep()
        assert "finishing" in str(reason)

    def test_is_admitted_although_workers_of_an_earlier_round_had_finished(self) -> None:
        restarted = seen("a", round=2, exits=(ok_exit(round=1),))
        members = [restarted, seen("b", round=2), seen("c", state="waiting", round=0, since=100.0)]
        assert isinstance(plan(members, running("a", "b", number=2), POLICY, OLD)[0], Open)

    def test_opens_no_round_at_the_end_of_the_job_when_the_finished_node_is_gone_already(self) -> None:
        finished = seen("a", state="succeeded", gone=True, exits=(ok_exit(),))
        joining = [seen(name, state="waiting", round=0, since=100.0) for name in "cd"]
        assert plan([finished, seen("b"), *joining], running("a", "b"), POLICY, OLD)[0] == Keep()

    def test_that_leaves_again_changes_nothing(self) -> None:
        members = [seen("a"), seen("b"), seen("c", state="leaving", round=0, since=100.0)]
        assert plan(members, running("a", "b"), POLICY, OLD) == (Keep(), NoChange())

    def test_of_more_than_fit_lets_the_first_to_arrive_in(self) -> None:
        policy = dataclasses.replace(POLICY, max_nodes=3)
        members = [seen("a"), seen("b"), seen("c", 999, since=5.0), seen("d", 500, since=5.0)]
        assert opened(plan(members, running("a", "b"), policy, OLD)[0]) == ["a", "b", "d"]

    def test_that_completes_a_unit_settles_although_a_standby_has_waited_for_long(self) -> None:
        policy = dataclasses.replace(POLICY, node_unit=2)
        standby = seen("c", state="waiting", round=0, since=0.0)
        joining_node = seen("d", state="waiting", round=0, since=OLD)
        assert plan([seen("a"), seen("b"), standby, joining_node], running("a", "b"), policy, OLD + 1)[0] == Keep(
            OLD + 10
        )

    def test_is_not_kept_out_for_ever_by_a_trickle_of_others(self) -> None:
        waiting_for_long = seen("c", state="waiting", round=0, since=0.0)
        flapping = seen("d", state="waiting", round=0, since=OLD - 1)
        decision, _ = plan([seen("a"), seen("b"), waiting_for_long, flapping], running("a", "b"), POLICY, OLD)
        assert isinstance(decision, Open)


class TestARoundInPlace:
    """Of `a` and `b`, where `c` is lost."""

    ROUND = running("a", "b", "c")

    def decision(self, *, round: Round = ROUND, **of_a: object) -> Decision:
        a = seen("a")
        report = dataclasses.replace(a.member.report, **of_a)
        members = [dataclasses.replace(a, member=dataclasses.replace(a.member, report=report)), seen("b")]
        return plan(members, round, POLICY, OLD)[0]

    def test_is_opened_where_the_workers_of_a_survivor_keep_their_process(self) -> None:
        assert isinstance(self.decision(keeps=True), OpenInPlace)

    def test_is_opened_where_a_node_lost_a_worker_and_another_of_it_has_the_state(self) -> None:
        assert isinstance(self.decision(state="failed", holding=1), OpenInPlace)

    def test_is_not_opened_where_workers_have_to_start_anew(self) -> None:
        assert type(self.decision()) is Open

    def test_is_opened_after_a_suspension_that_workers_with_the_state_have_outlived(self) -> None:
        assert isinstance(self.decision(round=suspended("a"), state="waiting", holding=2), OpenInPlace)

    def test_is_no_round_without_the_node_whose_workers_would_keep_theirs(self) -> None:
        assert type(self.decision(round=suspended("c"), keeps=True)) is Open
        assert type(self.decision(state="leaving", keeps=True, round=running("a", "b"))) is Suspend


class TestAJoiningNodeWhereWorkersKeepTheirProcess:
    ROUND = running("a", "b")

    def members(self, *, ready: bool, since: float, others_keep: bool = True) -> list[Seen]:
        """Those of the round, and `c`, which has just come."""
        found = [seen("a"), seen("b"), seen("c", state="waiting", round=0, since=since)]
        says = ({"keeps": True}, {"keeps": others_keep}, {"ready": ready})
        return [
            dataclasses.replace(
                each, member=dataclasses.replace(each.member, report=dataclasses.replace(each.member.report, **said))
            )
            for each, said in zip(found, says, strict=True)
        ]

    def test_is_not_admitted_before_its_workers_are_ready(self) -> None:
        decision, reason = plan(self.members(ready=False, since=OLD), self.ROUND, POLICY, OLD + 30)
        assert decision == Keep(OLD + READY_SECONDS)
        assert reason == PreparingWorkers(Nodes(("c",)))

    def test_is_admitted_soon_after_they_are(self) -> None:
        members = self.members(ready=True, since=OLD)
        assert plan(members, self.ROUND, POLICY, OLD)[0] == Keep(OLD + IN_PLACE_SETTLE)
        decision, reason = plan(members, self.ROUND, POLICY, OLD + IN_PLACE_SETTLE)
        assert opened(decision) == ["a", "b", "c"]
        assert reason == NodesJoined(Nodes(("c",)))

    def test_is_admitted_where_they_take_too_long(self) -> None:
        members = self.members(ready=False, since=OLD)
        assert opened(plan(members, self.ROUND, POLICY, OLD + READY_SECONDS)[0]) == ["a", "b", "c"]

    def test_does_not_hold_up_another_that_is_ready(self) -> None:
        late = seen("d", state="waiting", round=0, since=OLD + 5)
        members = [*self.members(ready=True, since=OLD), late]
        assert opened(plan(members, self.ROUND, POLICY, OLD + 10)[0]) == ["a", "b", "c"]

    def test_waits_a_moment_for_others_that_came_with_it(self) -> None:
        policy = dataclasses.replace(POLICY, max_nodes=6)
        soon = seen("d", state="waiting", round=0, since=OLD + 0.5)
        *others, first = self.members(ready=True, since=OLD)
        first = dataclasses.replace(first, ready_at=OLD + 4)
        decision, reason = plan([*others, first, soon], self.ROUND, policy, OLD + 4)
        assert decision == Keep(OLD + 4 + IN_PLACE_SETTLE)
        assert reason == PreparingWorkers(Nodes(("d",)))
        assert opened(plan([*others, first, soon], self.ROUND, policy, OLD + 5)[0]) == ["a", "b", "c"]
        report = dataclasses.replace(soon.member.report, ready=True)
        member = dataclasses.replace(soon.member, report=report)
        second = dataclasses.replace(soon, member=member, ready_at=OLD + 4.6)
        assert opened(plan([*others, first, second], self.ROUND, policy, OLD + 4.6)[0]) == ["a", "b", "c", "d"]

    def test_waits_for_others_that_come_one_after_the_other_no_longer_than_three_times(self) -> None:
        policy = dataclasses.replace(POLICY, max_nodes=6)
        *others, first = self.members(ready=True, since=OLD)
        first = dataclasses.replace(first, ready_at=OLD + 4)
        report = dataclasses.replace(first.member.report)
        member = dataclasses.replace(seen("d").member, report=report)
        second = dataclasses.replace(first, member=member, order=ord("d"), ready_at=OLD + 6.9)
        soon = seen("e", state="waiting", round=0, since=OLD + 0.5)
        decision, _ = plan([*others, first, second, soon], self.ROUND, policy, OLD + 6.9)
        assert decision == Keep(OLD + 4 + 3 * IN_PLACE_SETTLE)

    def test_settles_as_ever_where_one_of_the_round_does_not(self) -> None:
        members = self.members(ready=True, since=OLD, others_keep=False)
        decision, reason = plan(members, self.ROUND, POLICY, OLD + IN_PLACE_SETTLE)
        assert decision == Keep(OLD + POLICY.settle)
        assert "which restarts some workers" in str(reason)

    def test_comes_too_late_where_a_worker_has_trained_to_the_end(self) -> None:
        members = self.members(ready=True, since=0.0)
        report = dataclasses.replace(members[0].member.report, keeps=False, done=True)
        members[0] = dataclasses.replace(members[0], member=dataclasses.replace(members[0].member, report=report))
        decision, reason = plan(members, self.ROUND, POLICY, OLD)
        assert decision == Keep()
        assert reason == JoinedTooLate(Nodes(("c",)), 1)

    def test_enters_at_once_where_too_few_are_left_without_it(self) -> None:
        members = self.members(ready=False, since=OLD)
        assert opened(plan([members[0], members[2]], self.ROUND, POLICY, OLD)[0]) == ["a", "c"]


class TestAChangeWhereWorkersKeepTheirProcess:
    """Nobody who can go on at once waits for a node that has to start workers."""

    ROUND = running("a", "b", "c", opened_at=OLD, fault=failure("failed"))
    WIDE = dataclasses.replace(POLICY, min_nodes=1, max_nodes=3)

    def members(self, **of_b: object) -> list[Seen]:
        found = [seen(name) for name in "abc"]
        whole: dict[str, object] = {"keeps": True, "holding": 1}
        says: list[dict[str, object]] = [whole, {"state": "failed", **of_b}, whole]
        return [
            dataclasses.replace(
                each, member=dataclasses.replace(each.member, report=dataclasses.replace(each.member.report, **said))
            )
            for each, said in zip(found, says, strict=True)
        ]

    def test_goes_on_without_the_node_whose_worker_failed(self) -> None:
        decision, reason = plan(self.members(), self.ROUND, self.WIDE, OLD)
        assert opened(decision) == ["a", "c"]
        assert reason == said("failed")

    def test_waits_for_it_where_a_worker_of_it_lives_and_has_the_state(self) -> None:
        assert opened(plan(self.members(holding=1), self.ROUND, self.WIDE, OLD)[0]) == ["a", "b", "c"]

    def test_leaves_nobody_out_where_the_others_have_no_state_yet(self) -> None:
        members = self.members()
        for index in (0, 2):
            member = members[index].member
            member = dataclasses.replace(member, report=dataclasses.replace(member.report, holding=0))
            members[index] = dataclasses.replace(members[index], member=member)
        assert opened(plan(members, self.ROUND, self.WIDE, OLD)[0]) == ["a", "b", "c"]

    @pytest.mark.parametrize("changes", [{"min_nodes": 3}, {"scale_up": "never"}, {"scale_up": "commit"}])
    def test_waits_for_it_where_too_few_are_left_or_it_could_not_come_back(self, changes: dict[str, object]) -> None:
        policy = dataclasses.replace(self.WIDE, **changes)  # type: ignore[arg-type]
        assert opened(plan(self.members(), self.ROUND, policy, OLD)[0]) == ["a", "b", "c"]

    def test_gives_rank_0_to_a_node_with_the_state_where_all_take_it_from_there(self) -> None:
        policy = dataclasses.replace(self.WIDE, min_nodes=3, state_from_rank_0=True)
        assert opened(plan(self.members(), self.ROUND, policy, OLD)[0]) == ["a", "c", "b"]

    def test_waits_for_it_where_only_its_start_went_wrong(self) -> None:
        problem = Fault(said("could not start its workers"), "problem", None, OLD)
        current = running("a", "b", "c", opened_at=OLD, fault=problem)
        assert opened(plan(self.members(), current, self.WIDE, OLD)[0]) == ["a", "b", "c"]

    def test_takes_it_in_again_as_soon_as_its_workers_are_ready(self) -> None:
        current = running("a", "c", number=2, opened_at=OLD)
        members = self.members(state="waiting", round=2)
        decision, reason = plan(members, current, self.WIDE, OLD + 5)
        assert decision == Keep(OLD + READY_SECONDS)
        assert reason == PreparingWorkers(Nodes(("b",)))
        members = self.members(state="waiting", round=2, ready=True)
        assert opened(plan(members, current, self.WIDE, OLD + 5)[0]) == ["a", "c", "b"]

    def test_does_not_wait_for_a_joining_node_that_is_not_ready(self) -> None:
        members = [*self.members(keeps=True, state="running", holding=1)[:2], seen("d", state="waiting", round=0)]
        assert opened(plan(members, self.ROUND, self.WIDE, OLD)[0]) == ["a", "b"]


@dataclasses.dataclass(frozen=True)
class World:
    """One input of `plan`."""

    members: tuple[Seen, ...]
    current: Round
    policy: Policy
    now: float

    def plan(self) -> tuple[Decision, str]:
        return plan(self.members, self.current, self.policy, self.now)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    unit = draw(st.integers(1, 3))
    units = draw(st.integers(1, 3))
    most = unit * units + draw(st.integers(0, unit - 1))
    seconds = st.integers(0, 30).map(float)
    return Policy(
        min_nodes=draw(st.integers(1, unit * units)),
        max_nodes=most,
        node_unit=unit,
        last_call=draw(seconds),
        join_timeout=draw(seconds),
        recovery_timeout=draw(seconds),
        scale_up=draw(st.sampled_from(["now", "commit", "never"])),
        settle=draw(seconds),
        scale_up_interval=draw(seconds),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any input that a master can see: the fault is what the judge says whenever somebody has failed."""
    policy = draw(policies())
    now = float(draw(st.integers(50, 100)))
    number = draw(st.integers(0, 3))
    phase = draw(st.sampled_from(["running", "suspended"])) if number else "gathering"
    names = "abcdefgh"[: draw(st.integers(0, 8))]
    orders = draw(st.permutations(range(1, 9)))
    members: list[Seen] = []
    for index, name in enumerate(names):
        state = draw(st.sampled_from(get_args(State)))
        round = draw(st.integers(max(0, number - 1), number))
        exits = draw(st.sampled_from([(), (ok_exit(round),), (Exit(round, 0, 0, 1, code=1),)]))
        if state == "failed":
            exits = (*exits, Exit(round, 1, 1, 2, code=1))
        gone = state == "succeeded" and round == number and phase == "running" and draw(st.booleans())
        member = seen(name, orders[index], state=state, round=round, exits=exits, gone=gone)
        topology = draw(st.sampled_from(["", "r1", "r2"]))
        member = dataclasses.replace(member, member=dataclasses.replace(member.member, topology=topology))
        members.append(dataclasses.replace(member, since=float(draw(st.integers(0, 50)))))
    nodes: tuple[str, ...] = ()
    if phase != "gathering":
        # The members in the round stand as a round stands: equal topology labels together; the lost stand anywhere.
        inside = ranks.order([item.member for item in members if item.gone or draw(st.booleans())], [])
        line = [member.incarnation for member in inside]
        for lost in "XYZ"[: draw(st.integers(0 if line else 1, 3))]:
            line.insert(draw(st.integers(0, len(line))), lost)
        nodes = tuple(line)
    failed = any(
        not exit_.ok and exit_.round == number and item.member.incarnation in nodes
        for item in members
        for exit_ in item.member.report.exits
    )
    fault = None
    if phase == "running" and failed:
        endings: list[Outcome | None] = [None, "failed", "repeated"]
        causes: list[Cause] = ["failure", "lost", "left", "problem"]
        fatal = draw(st.sampled_from(endings))
        cause = "failure" if fatal else draw(st.sampled_from(causes))
        root_by = now + draw(st.integers(-1, 1)) if cause == "failure" else -math.inf
        fault = Fault(said("failed"), cause, fatal, now + draw(st.integers(-1, 1)), root_by)
    opened_at = float(draw(st.integers(0, 50)))
    return World(tuple(members), Round(number, nodes, phase == "running", opened_at, fault), policy, now)


def applied(world: World, decision: Decision) -> World:
    """The world just after the master has carried `decision` out, before anybody has reacted."""
    number = world.current.number + 1
    members = world.members
    if isinstance(decision, Open):
        members = tuple(item for item in members if not item.gone)
        current = Round(number, tuple(member.incarnation for member in decision.nodes), True, world.now)
    else:
        assert isinstance(decision, Suspend)
        current = Round(number, world.current.nodes, False, world.now)
    return dataclasses.replace(world, members=members, current=current)


def positions(of: Sequence[str], within: Sequence[str]) -> list[int]:
    return [within.index(item) for item in of if item in within]


def a_round_holds_only_registered_nodes_that_stay_each_once(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        staying = {
            item.member.incarnation
            for item in world.members
            if not item.gone and item.member.report.state not in DEPARTING
        }
        incarnations = [member.incarnation for member in decision.nodes]
        assert set(incarnations) <= staying
        assert len(set(incarnations)) == len(incarnations)


def a_rounds_size_is_within_the_policy_and_as_large_as_can_be(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        size, policy = len(decision.nodes), world.policy
        staying = [item for item in world.members if not item.gone and item.member.report.state not in DEPARTING]
        assert policy.min_nodes <= size <= policy.max_nodes
        assert size % policy.node_unit == 0
        assert size + policy.node_unit > min(len(staying), policy.max_nodes)


def survivors_keep_their_rank_order_and_no_survivor_gives_way_to_a_joining_node(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        incarnations = [member.incarnation for member in decision.nodes]
        kept = positions(incarnations, world.current.nodes)
        assert kept == sorted(kept)
        staying = {
            item.member.incarnation
            for item in world.members
            if not item.gone and item.member.report.state not in DEPARTING
        }
        survivors = staying & set(world.current.nodes)
        assert set(incarnations) <= survivors or survivors <= set(incarnations)


def a_decision_that_was_carried_out_is_not_followed_by_another_of_itself(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        again, _ = applied(world, decision).plan()
        assert isinstance(again, Keep)
    if isinstance(decision, Suspend):
        again, _ = applied(world, decision).plan()
        assert isinstance(again, Keep) or (again == Finish("timeout") and world.policy.recovery_timeout == 0)


def nothing_hangs_what_waits_without_a_deadline_is_well_or_a_standby(world: World) -> None:
    decision, reason = world.plan()
    if decision != Keep(None):
        return
    current = world.current
    assert current.running, "a job that gathers or is suspended has a deadline"
    assert current.fault is None
    by_incarnation = {item.member.incarnation: item for item in world.members}
    for incarnation in current.nodes:
        item = by_incarnation[incarnation]
        succeeded = item.member.report.state == "succeeded" and item.member.report.round == current.number
        assert succeeded or not item.gone
        assert item.member.report.state not in DEPARTING
    newcomers = [
        item
        for item in world.members
        if item.member.incarnation not in current.nodes and item.member.report.state not in DEPARTING
    ]
    assert bool(newcomers) == bool(str(reason)), "a standby is told why it waits, and no other node is told anything"


def time_alone_leads_to_a_decision_or_to_a_wait_for_an_event(world: World) -> None:
    for _ in range(3):
        decision, reason = world.plan()
        if not isinstance(decision, Keep) or decision.until is None:
            return
        assert decision.until > world.now
        assert str(reason), "a wait with a deadline is told"
        world = dataclasses.replace(world, now=decision.until)
    raise AssertionError(f"still waiting: {world.plan()}")


def the_order_in_which_members_are_listed_does_not_matter(world: World) -> None:
    backwards = dataclasses.replace(world, members=world.members[::-1])
    by_name = dataclasses.replace(world, members=tuple(sorted(world.members, key=lambda item: item.member.node)))
    assert backwards.plan() == by_name.plan()


def only_differences_of_the_clock_count(world: World) -> None:
    current, shift = world.current, 1000.0
    fault = current.fault
    if fault:
        fault = dataclasses.replace(fault, settled_at=fault.settled_at + shift, root_by=fault.root_by + shift)
    later = World(
        tuple(dataclasses.replace(item, since=item.since + shift) for item in world.members),
        dataclasses.replace(current, opened_at=current.opened_at + shift, fault=fault),
        world.policy,
        world.now + shift,
    )
    decision, reason = world.plan()
    if isinstance(decision, Keep) and decision.until is not None:
        decision = Keep(decision.until + shift)
    assert later.plan() == (decision, reason)


def every_decision_that_changes_something_has_a_reason(world: World) -> None:
    decision, reason = world.plan()
    assert str(reason) or decision == Keep(None)


INVARIANTS = (
    a_round_holds_only_registered_nodes_that_stay_each_once,
    a_rounds_size_is_within_the_policy_and_as_large_as_can_be,
    survivors_keep_their_rank_order_and_no_survivor_gives_way_to_a_joining_node,
    a_decision_that_was_carried_out_is_not_followed_by_another_of_itself,
    nothing_hangs_what_waits_without_a_deadline_is_well_or_a_standby,
    time_alone_leads_to_a_decision_or_to_a_wait_for_an_event,
    the_order_in_which_members_are_listed_does_not_matter,
    only_differences_of_the_clock_count,
    every_decision_that_changes_something_has_a_reason,
)


@settings(deadline=None, max_examples=300)
@given(worlds())
def test_every_invariant_holds_whatever_the_members_report(world: World) -> None:
    for invariant in INVARIANTS:
        invariant(world)  # its name says what does not hold


class TestANodeThatCannotStartWorkers:
    def test_is_left_out_of_the_next_round(self) -> None:
        members = [seen("a"), seen("b", state="unfit"), seen("c")]
        assert opened(plan(members, running("a", "b", "c"), POLICY, 0.0)[0]) == ["a", "c"]

    def test_ends_the_job_as_failed_where_it_is_the_last(self) -> None:
        decision, _ = plan([seen("a", state="unfit")], running("a"), POLICY, 0.0)
        assert decision == Finish("failed")

    def test_ends_the_job_as_failed_also_where_the_others_were_told_to_leave(self) -> None:
        members = [seen("a", state="unfit"), seen("b", state="leaving")]
        assert plan(members, running("a", "b"), POLICY, 0.0)[0] == Finish("failed")


class Counted(tuple[Exit, ...]):
    """Exits that count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Iterator[Exit]:
        Counted.walks += 1
        return super().__iter__()


def test_the_exits_of_a_member_are_gone_through_when_it_is_seen_and_not_at_each_look() -> None:
    Counted.walks = 0
    members = [seen(name, exits=Counted((Exit(1, rank, 0, 1, code=0),))) for rank, name in enumerate(("a", "b"))]
    current, walked = Round(1, ("A", "B"), True, 0.0), Counted.walks
    for _ in range(10):
        found = survey(members, current, POLICY)
        assert found.finishing and not found.done
        assert decide(found, current, POLICY, OLD) == (Keep(), NoChange())
    assert Counted.walks == walked
