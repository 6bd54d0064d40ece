"""What an agent says of its node and does with its workers, for every state of affairs."""

import dataclasses
import signal
from typing import Literal

import pytest

from elastic_run.elastic_agent.plan import (
    FAILED,
    FAREWELL_PATIENCE,
    FINAL_GRACE,
    NOTICE_PATIENCE,
    REFUSED,
    REPEATED,
    STORE_LOST,
    SUCCEEDED,
    TIMEOUT,
    Action,
    Break,
    Invite,
    Leave,
    Ready,
    Reform,
    Register,
    Resume,
    Start,
    Stop,
    View,
    Wait,
    act,
    exit_code,
    gentle,
    replaced,
    report,
)
from elastic_run.rendezvous.fields import MAX_WORDS
from elastic_run.rendezvous.header import Header, HeaderState
from elastic_run.rendezvous.member import MAX_EXITS, Exit, Fingerprint, Report, State
from elastic_run.rendezvous.node_reasons import (
    NodeReason,
    PreemptionNotice,
    ProcessGroupBroke,
    ServiceEnded,
    StartFailed,
    Unfit,
)
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NodeFailed
from elastic_run.rendezvous.round import Cause

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")
TERM = int(signal.SIGTERM)
NOW_KILL = Stop(signal.SIGKILL, 0.0)


def header(number: int = 1, state: HeaderState = "open", cause: Cause = "start") -> Header:
    return Header(number, "run", state, cause, NodeFailed("b", f"is the cause: {cause}"), FINGERPRINT)


def assignment(number: int = 1) -> Assignment:
    return Assignment(number, "a", "A", 0, 2, 0, 1, 2, 0, 2)


def ended(code: int | None = 0, *, rank: int = 0, round: int = 1, by: int | None = None, stopped: bool = False) -> Exit:
    return Exit(round, rank, rank, 100 + rank, code, by, stopped=stopped)


JOINED = View(header=header(), assignment=assignment(), assigned=True, told=Report("waiting", 1))
"""Has a part in round 1, whose workers are not started yet."""

RUNNING = dataclasses.replace(JOINED, round=1, alive=1, total=1, told=Report("running", 1))
DONE = dataclasses.replace(RUNNING, alive=0, exits=(ended(),), told=Report("succeeded", 1))
BROKEN = dataclasses.replace(RUNNING, alive=0, exits=(ended(1),), told=Report("failed", 1, (ended(1),)))


def view(base: View, **changes: object) -> View:
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]  # a view's own fields


def noticed(base: View, age: float = 0.0, **changes: object) -> View:
    return view(base, notice="leave", notice_signal=TERM, notice_age=age, **changes)


def action(of: View) -> Action:
    return act(of)[0]


def said(state: State, round: int, exits: tuple[Exit, ...] = (), problem: NodeReason | None = None) -> Report:
    """What is reported of the run that all headers here are of."""
    return Report(state, round, exits, problem, header(1).run)


class TestTheReport:
    def test_before_the_first_round_is_waiting(self) -> None:
        assert report(View()) == Report("waiting", 0)

    def test_of_a_standby_is_waiting_and_names_the_round_it_has_seen(self) -> None:
        assert report(View(header=header(4))) == said("waiting", 4)

    def test_of_a_trouble_that_takes_many_words_can_be_read_by_the_master(self) -> None:
        problem = report(view(RUNNING, unfit="x" * 100_000)).problem
        assert isinstance(problem, Unfit) and len(problem.why) == MAX_WORDS and problem.why.endswith("x ...")

    def test_names_the_run_that_it_is_about(self) -> None:
        assert report(RUNNING).run == header(1).run

    def test_before_the_workers_of_a_new_round_are_started_is_what_it_was(self) -> None:
        told = Report("failed", 1, (ended(1),))
        assert report(view(RUNNING, header=header(2), assignment=assignment(2), told=told)) == told

    def test_of_workers_that_run_is_running(self) -> None:
        assert report(RUNNING) == said("running", 1)

    def test_of_one_worker_that_is_done_and_one_that_runs_is_running_with_the_exit(self) -> None:
        assert report(view(RUNNING, total=2, exits=(ended(),))) == said("running", 1, (ended(),))

    def test_of_workers_that_are_all_done_is_success(self) -> None:
        assert report(DONE) == said("succeeded", 1, (ended(),))

    def test_of_workers_that_are_all_gone_is_no_success_while_the_exit_of_one_is_not_known(self) -> None:
        assert report(view(DONE, total=2)).state == "running"

    def test_of_one_failed_worker_among_others_is_failure_at_once(self) -> None:
        assert report(view(RUNNING, total=2, exits=(ended(1),))) == said("failed", 1, (ended(1),))

    def test_of_a_worker_that_was_killed_is_failure(self) -> None:
        assert report(view(BROKEN, exits=(ended(None, by=9),))).state == "failed"

    def test_of_workers_that_could_not_be_started_is_failure_with_the_problem(self) -> None:
        assert report(view(JOINED, problem="port taken")) == said("failed", 1, (), StartFailed("port taken"))

    def test_in_a_suspended_job_is_waiting_with_what_its_workers_had_died_of(self) -> None:
        assert report(view(BROKEN, header=header(2, "waiting"), assignment=None)) == said("waiting", 2, (ended(1),))

    def test_of_the_next_round_still_holds_the_failures_of_the_one_before(self) -> None:
        late = (ended(1, round=1),)
        told = report(view(RUNNING, header=header(2), assignment=assignment(2), round=2, late=late))
        assert told == said("running", 2, late)

    def test_after_the_end_of_another_run_is_that_of_a_newcomer(self) -> None:
        assert report(View(stale="run", header=header(7, "failed"))) == Report("waiting", 0)

    def test_of_a_node_under_notice_is_leaving_and_says_why(self) -> None:
        told = report(noticed(RUNNING))
        assert (told.state, told.round) == ("leaving", 1) and told.problem == PreemptionNotice(TERM)

    def test_of_a_node_under_notice_before_the_first_round_is_leaving(self) -> None:
        assert report(noticed(View())).state == "leaving"

    def test_of_a_node_that_had_succeeded_before_the_notice_stays_success(self) -> None:
        assert report(noticed(DONE)).state == "succeeded"

    def test_of_a_node_that_failed_before_the_notice_is_leaving_with_the_exit(self) -> None:
        told = report(noticed(BROKEN))
        assert told.state == "leaving" and told.exits == (ended(1),)

    def test_of_a_killed_worker_under_notice_stays_leaving(self) -> None:
        assert report(noticed(BROKEN, exits=(ended(None, by=TERM, stopped=True),))).state == "leaving"

    def test_of_workers_that_end_well_because_they_were_told_to_stop_is_no_success(self) -> None:
        assert report(noticed(DONE, exits=(ended(0, stopped=True),))).state == "leaving"

    def test_of_a_leaver_stays_leaving_when_the_job_is_suspended(self) -> None:
        told = report(noticed(DONE, exits=(ended(0, stopped=True),), header=header(2, "waiting"), assignment=None))
        assert told.state == "leaving"

    def test_of_a_node_under_notice_that_succeeded_in_an_earlier_round_is_leaving(self) -> None:
        assert report(noticed(DONE, header=header(2, "waiting"), assignment=None)).state == "leaving"

    def test_of_a_node_that_has_said_that_it_leaves_stays_that_though_its_workers_succeed_after_all(self) -> None:
        assert report(noticed(DONE)).state == "succeeded"
        assert report(noticed(DONE, told=Report("leaving", 1))).state == "leaving"

    def test_holds_no_more_exits_than_it_may(self) -> None:
        exits = tuple(ended(1, rank=rank) for rank in range(40))
        assert len(report(view(BROKEN, total=40, exits=exits)).exits) == MAX_EXITS

    def test_of_more_exits_than_fit_keeps_the_first_failure(self) -> None:
        exits = (ended(1), *(ended(0, rank=rank) for rank in range(1, 40)))
        assert ended(1) in report(view(BROKEN, total=40, exits=exits)).exits

    def test_of_a_node_whose_service_died_names_it_also_where_a_worker_has_failed_of_that(self) -> None:
        died = "the service tracker (pid 7) died by SIGKILL (9)"
        why = ServiceEnded(died)
        assert report(view(RUNNING, service=died)) == said("failed", 1, problem=why)
        assert report(view(BROKEN, service=died)) == said("failed", 1, (ended(1),), why)

    def test_of_a_node_that_is_done_says_nothing_of_a_service_that_died_since(self) -> None:
        assert report(view(DONE, service="the service tracker (pid 7) died")) == said("succeeded", 1, (ended(),))


class TestANodeThatIsNotRegistered:
    def test_registers(self) -> None:
        assert action(View(registered=False)) == Register()

    def test_kills_its_workers_first(self) -> None:
        assert action(view(RUNNING, registered=False)) == NOW_KILL

    def test_leaves_with_the_verdict_of_a_job_that_is_over(self) -> None:
        assert action(view(RUNNING, registered=False, alive=0, header=header(2, "failed"))) == Leave(FAILED)

    def test_registers_where_the_end_that_it_sees_is_another_runs(self) -> None:
        assert action(View(registered=False, stale="run", header=header(7, "failed"))) == Register()

    def test_leaves_where_it_was_told_to(self) -> None:
        assert action(noticed(View(registered=False))) == Leave(128 + TERM)


class TestANodeWhoseLeaseHasEnded:
    def test_takes_up_its_registration_again_and_leaves_its_workers_alone(self) -> None:
        assert action(view(RUNNING, registered=False, lapsed=True)) == Resume()

    def test_does_so_too_where_it_has_no_workers(self) -> None:
        assert action(View(registered=False, lapsed=True)) == Resume()

    def test_leaves_with_the_verdict_of_a_job_that_is_over(self) -> None:
        over = header(2, "succeeded")
        assert action(view(RUNNING, registered=False, lapsed=True, alive=0, header=over)) == Leave(SUCCEEDED)

    def test_has_not_been_replaced_in_the_round_of_its_workers(self) -> None:
        assert replaced(view(RUNNING, lapsed=True)) == ""

    def test_has_not_been_replaced_in_a_later_round_that_has_a_rank_for_it(self) -> None:
        assert replaced(view(RUNNING, lapsed=True, header=header(2), assignment=assignment(2))) == ""

    def test_has_been_replaced_where_a_round_was_opened_without_it(self) -> None:
        assert "without it" in replaced(view(RUNNING, lapsed=True, header=header(2), assignment=None))

    def test_has_been_replaced_also_where_its_workers_have_ended_since(self) -> None:
        assert "without it" in replaced(view(RUNNING, lapsed=True, alive=0, header=header(2), assignment=None))

    def test_has_been_replaced_also_where_it_has_got_workers_ready_for_another_rank_since(self) -> None:
        ready = view(RUNNING, round=0, staying=1, waiting=1, outside=True)
        assert "without it" in replaced(view(ready, lapsed=True, header=header(2), assignment=None))

    def test_that_never_had_a_rank_has_not_been_replaced(self) -> None:
        assert replaced(View(lapsed=True, header=header())) == ""

    def test_of_a_suspended_job_has_not_been_replaced(self) -> None:
        assert replaced(view(RUNNING, lapsed=True, header=header(2, "waiting"), assignment=None)) == ""

    def test_is_out_where_its_guardian_ended_its_workers(self) -> None:
        killed = (ended(None, by=9),)
        assert "was suspended" in replaced(view(RUNNING, lapsed=True, stood_still=True, alive=0, exits=killed))

    def test_goes_on_where_it_stood_still_and_its_workers_live(self) -> None:
        assert replaced(view(RUNNING, lapsed=True, stood_still=True)) == ""

    def test_goes_on_where_a_worker_was_killed_while_it_looked(self) -> None:
        assert replaced(view(RUNNING, lapsed=True, alive=0, exits=(ended(None, by=9),))) == ""


class TestARefusedNode:
    def test_leaves_with_the_sentence(self) -> None:
        assert act(View(registered=False, refusal="another job")) == (Leave(REFUSED), "another job")

    def test_kills_its_workers_first(self) -> None:
        assert action(view(RUNNING, refusal="another job")) == NOW_KILL


class TestANodeWhoseRunHasEndedWithoutIt:
    def test_fails_with_the_sentence_and_founds_nothing(self) -> None:
        assert act(View(registered=False, orphaned="it has ended")) == (Leave(FAILED), "it has ended")

    def test_kills_its_workers_first(self) -> None:
        assert action(view(RUNNING, registered=False, orphaned="it has ended")) == NOW_KILL


class TestARound:
    def test_is_awaited(self) -> None:
        assert action(View()) == Wait()

    def test_of_another_run_is_not_taken_for_one_of_this(self) -> None:
        assert action(View(stale="run", header=header(7, "succeeded"))) == Wait()

    def test_with_a_part_for_this_node_is_started(self) -> None:
        assert action(JOINED) == Start(header(), assignment())

    def test_that_runs_is_left_alone(self) -> None:
        assert act(RUNNING) == (Wait(), "")

    @pytest.mark.parametrize("base", [DONE, BROKEN])
    def test_whose_local_workers_have_ended_is_left_to_the_master(self, base: View) -> None:
        assert action(base) == Wait()

    def test_that_could_not_be_started_is_left_to_the_master(self) -> None:
        assert action(view(JOINED, problem="port taken")) == Wait()

    def test_without_a_part_for_this_node_is_sat_out_as_a_standby(self) -> None:
        chosen, why = act(View(header=header(4)))
        assert chosen == Wait() and "waiting to join" in why

    def test_without_a_part_for_this_node_ends_its_workers(self) -> None:
        assert action(view(RUNNING, header=header(2), assignment=None)) == NOW_KILL

    @pytest.mark.parametrize("cause", ["failure", "lost", "left", "problem", "start"])
    def test_after_the_current_one_ends_the_workers_at_once(self, cause: Cause) -> None:
        assert action(view(RUNNING, header=header(2, cause=cause), assignment=assignment(2))) == NOW_KILL

    def test_for_a_joining_node_leaves_the_workers_time_to_save(self) -> None:
        after = view(RUNNING, header=header(2, cause="joined"), assignment=assignment(2), shutdown_timeout=7.0)
        assert action(after) == Stop(signal.SIGTERM, 7.0)

    @pytest.mark.parametrize("base", [DONE, BROKEN])
    def test_after_one_whose_workers_have_ended_is_started_at_once(self, base: View) -> None:
        after = view(base, header=header(2, cause="failure"), assignment=assignment(2))
        assert action(after) == Start(header(2, cause="failure"), assignment(2))

    def test_that_is_suspended_ends_the_workers(self) -> None:
        assert action(view(RUNNING, header=header(2, "waiting", "lost"), assignment=None)) == NOW_KILL

    def test_that_is_suspended_is_waited_out_with_its_reason(self) -> None:
        assert act(View(header=header(2, "waiting", "lost"))) == (Wait(), "node b is the cause: lost")


class TestTheEnd:
    @pytest.mark.parametrize(
        ("state", "code"),
        [
            ("succeeded", SUCCEEDED),
            ("failed", FAILED),
            ("repeated", REPEATED),
            ("timeout", TIMEOUT),
            ("preempted", 128 + TERM),
        ],
    )
    def test_has_the_exit_code_of_its_kind(self, state: HeaderState, code: int) -> None:
        assert action(view(RUNNING, alive=0, header=header(2, state))) == Leave(code)

    def test_leaves_workers_of_a_job_that_failed_elsewhere_a_moment(self) -> None:
        assert action(view(RUNNING, header=header(2, "failed"))) == Stop(signal.SIGTERM, FINAL_GRACE)

    def test_as_preempted_has_the_code_of_the_signal_that_this_node_got(self) -> None:
        assert exit_code(header(2, "preempted"), int(signal.SIGINT)) == 130

    def test_codes_are_told_apart(self) -> None:
        assert len({SUCCEEDED, FAILED, REFUSED, TIMEOUT, STORE_LOST, REPEATED}) == 6

    def test_in_success_is_success_also_for_a_node_under_notice(self) -> None:
        assert action(noticed(DONE, header=header(2, "succeeded"))) == Leave(SUCCEEDED)

    def test_in_failure_is_a_departure_for_a_node_under_notice(self) -> None:
        assert action(noticed(BROKEN, age=2, header=header(2, "failed"))) == Leave(128 + TERM)


class TestALostStore:
    def test_does_not_touch_workers_that_run(self) -> None:
        assert action(view(RUNNING, store_gone="no answer for 60 s")) == Wait()

    def test_ends_a_node_that_has_none(self) -> None:
        assert act(view(JOINED, store_gone="no answer for 60 s")) == (Leave(STORE_LOST), "no answer for 60 s")

    def test_ends_a_node_that_could_not_even_register(self) -> None:
        assert action(View(registered=False, store_gone="no answer")) == Leave(STORE_LOST)

    def test_does_not_hold_a_node_up_that_is_told_to_leave(self) -> None:
        assert isinstance(action(noticed(RUNNING, store_gone="no answer")), Stop)
        assert action(noticed(RUNNING, alive=0, store_gone="no answer")) == Leave(128 + TERM)


class TestANotice:
    def test_is_told_to_the_job_before_the_workers_are(self) -> None:
        assert action(noticed(RUNNING, age=0.25)) == Wait(NOTICE_PATIENCE - 0.25)

    def test_reaches_the_workers_as_soon_as_the_job_knows(self) -> None:
        told = Report("leaving", 1)
        assert action(noticed(RUNNING, told=told, shutdown_timeout=9.0)) == Stop(TERM, 9.0)

    def test_reaches_the_workers_when_the_job_does_not_listen(self) -> None:
        assert isinstance(action(noticed(RUNNING, age=NOTICE_PATIENCE)), Stop)

    def test_reaches_the_workers_as_the_signal_that_came(self) -> None:
        told = Report("leaving", 1)
        assert action(view(noticed(RUNNING, told=told), notice_signal=int(signal.SIGINT))) == Stop(signal.SIGINT, 30.0)

    def test_of_a_node_without_workers_waits_until_it_is_left_out(self) -> None:
        waiting = noticed(BROKEN, age=2.0, told=Report("leaving", 1))
        assert isinstance(action(waiting), Wait)
        assert action(view(waiting, header=header(2), assignment=None)) == Leave(128 + TERM)

    def test_of_a_node_without_workers_is_not_held_up_for_long(self) -> None:
        assert FAREWELL_PATIENCE < 10
        told = Report("leaving", 1)
        assert action(noticed(BROKEN, age=9.0, told=told, left_out_overdue=True)) == Leave(128 + TERM)

    def test_of_a_node_that_has_succeeded_lets_it_go_after_a_moment(self) -> None:
        assert action(noticed(DONE, age=NOTICE_PATIENCE)) == Leave(128 + TERM)

    def test_before_anything_else_happened_ends_the_node(self) -> None:
        assert action(noticed(View(), told=Report("leaving"))) == Leave(128 + TERM)

    def test_stops_a_node_from_starting_workers(self) -> None:
        for age in (0.0, 2.0, 60.0):
            assert not isinstance(action(noticed(JOINED, age=age)), Start)

    @pytest.mark.parametrize("base", [View(), JOINED, RUNNING, DONE, BROKEN])
    def test_always_ends_in_departure(self, base: View) -> None:
        late = noticed(base, age=100.0, alive=0, left_out_overdue=True)
        assert action(late) == Leave(128 + TERM)

    @pytest.mark.parametrize("told", ["running", "leaving"])
    def test_that_is_repeated_kills_the_workers_at_once(self, told: Literal["running", "leaving"]) -> None:
        again = view(RUNNING, notice="kill", notice_signal=TERM, told=Report(told, 1))
        assert action(again) == NOW_KILL
        assert action(view(again, alive=0)) == Leave(128 + TERM)


STAYING = view(RUNNING, alive=2, total=2, staying=2)
"""Both workers keep their process, and train."""

NEXT = {"header": header(2, cause="lost"), "assignment": assignment(2)}
PLANNED = {"header": header(2, cause="joined"), "assignment": assignment(2)}


class TestWorkersThatKeepTheirProcess:
    def test_get_their_next_ranks_when_a_node_was_lost(self) -> None:
        assert action(view(STAYING, **NEXT)) == Reform(header(2, cause="lost"), assignment(2))

    def test_are_kept_beside_one_that_does_not(self) -> None:
        assert isinstance(action(view(STAYING, staying=1, **NEXT)), Reform)

    def test_are_all_stopped_where_none_does(self) -> None:
        assert action(view(STAYING, staying=0, **NEXT)) == NOW_KILL

    def test_are_asked_to_leave_their_process_group_for_a_joining_node(self) -> None:
        assert action(view(STAYING, header_age=10.0, **PLANNED)) == Invite(2, 290.0)
        assert action(view(STAYING, header_age=40.0, slowest=100.0, **PLANNED)) == Invite(2, 360.0)

    def test_are_asked_for_a_shorter_time_where_a_node_is_to_leave(self) -> None:
        leaves = {"header": header(2, cause="left"), "assignment": assignment(2)}
        assert action(view(STAYING, header_age=10.0, **leaves)) == Invite(2, 20.0)
        assert action(view(STAYING, header_age=40.0, slowest=20.0, **leaves)) == Invite(2, 40.0)

    def test_are_asked_for_the_second_of_two_joins_as_for_the_first(self) -> None:
        second = {"header": header(3, cause="joined"), "assignment": assignment(3)}
        assert action(view(STAYING, gentle=1, **second)) == Invite(3, 300.0)

    def test_get_their_ranks_for_a_joining_node_when_all_have_left_their_process_group(self) -> None:
        assert isinstance(action(view(STAYING, waiting=1, **PLANNED)), Invite)
        assert isinstance(action(view(STAYING, waiting=2, **PLANNED)), Reform)

    @pytest.mark.parametrize(
        "changes",
        [
            {"header_age": 300.0},
            {"forming": 1},
            {"alive": 1, "staying": 1, "exits": (ended(1),)},
            {"staying": 1},
            {"header": header(3, cause="joined"), "assignment": assignment(3), "gentle": 2},
        ],
        ids=["overdue", "no process group yet", "one is dead", "one does not stay", "a loss between"],
    )
    def test_are_not_asked_for_a_joining_node_where_their_process_group_is_not_whole(
        self, changes: dict[str, object]
    ) -> None:
        assert isinstance(action(view(STAYING, **{**PLANNED, **changes})), Reform)

    def test_keep_what_they_have_while_the_job_waits_for_nodes(self) -> None:
        suspended = view(STAYING, header=header(2, "waiting", "lost"), assignment=None)
        assert action(suspended) == Break(2)
        assert action(view(suspended, waiting=2)) == Wait()
        assert action(view(suspended, staying=0)) == NOW_KILL

    def test_are_stopped_where_their_node_is_a_standby_or_no_member(self) -> None:
        assert action(view(STAYING, header=header(2), assignment=None)) == NOW_KILL
        assert action(view(STAYING, registered=False)) == NOW_KILL

    def test_of_a_leaving_node_leave_their_process_group_with_the_others(self) -> None:
        left = {"header": dataclasses.replace(header(2, cause="left"), nodes=1), "assignment": None}
        two = dataclasses.replace(header(1), nodes=2)
        leaving = view(noticed(STAYING, age=4.0), told=Report("leaving", 1), header=two)
        assert action(leaving) == Wait(26.0)
        assert action(view(leaving, **left)) == Invite(2, 26.0)
        assert action(view(leaving, **left, waiting=2)) == Stop(TERM, 30.0)
        assert action(view(leaving, **left, notice_age=30.0)) == Stop(TERM, 30.0)
        assert action(view(leaving, header=header(1))) == Stop(TERM, 30.0)

    def test_say_that_they_do(self) -> None:
        assert report(view(STAYING, keeps=True)) == dataclasses.replace(said("running", 1), keeps=True)
        over = view(STAYING, keeps=True, staying=1, done=1)
        assert report(over) == dataclasses.replace(said("running", 1), done=True), "they take no other rank"

    def test_whose_process_group_broke_for_no_reason_that_is_known_want_a_new_round(self) -> None:
        told = report(view(STAYING, keeps=True, waiting=2, stranded="reset"))
        assert (told.state, told.round, told.keeps) == ("failed", 1, True)
        assert told.problem == ProcessGroupBroke("reset")


OUTSIDE = View(header=header(4), outside=True, told=said("waiting", 4))
"""In no round, and the workers of those that are keep their process."""


class TestANodeInNoRound:
    def test_gets_its_workers_ready_where_those_of_the_round_stay(self) -> None:
        assert action(OUTSIDE) == Ready(header(4))

    @pytest.mark.parametrize("changes", [{"outside": False}, {"unready": True}, {"alive": 1, "total": 1}])
    def test_waits_otherwise(self, changes: dict[str, object]) -> None:
        assert action(view(OUTSIDE, **changes)) == Wait()

    def test_gets_them_ready_beside_those_that_stay_where_it_was_left_out_for_a_failure(self) -> None:
        left_out = view(OUTSIDE, round=3, total=2, alive=1, staying=1, header=header(4, cause="failure"))
        assert action(left_out) == Ready(header(4, cause="failure"))
        assert action(view(left_out, alive=0, staying=0)) == Ready(header(4, cause="failure"))
        assert action(view(left_out, staying=0)) == NOW_KILL, "those that do not stay have no part in the job"

    def test_gets_one_ready_again_that_ended_beside_another_that_waits(self) -> None:
        half = view(OUTSIDE, total=2, alive=1, staying=1, waiting=1)
        assert action(half) == Ready(header(4))
        assert action(view(half, unready=True)) == Wait()

    def test_says_that_it_is_ready_when_all_of_them_wait_for_their_ranks(self) -> None:
        warm = view(OUTSIDE, total=2, alive=2, staying=2, waiting=1)
        assert report(warm) == said("waiting", 4)
        assert report(view(warm, waiting=2)) == dataclasses.replace(said("waiting", 4), ready=True)
        assert report(view(OUTSIDE, total=0)) == said("waiting", 4)

    def test_gives_them_their_ranks_when_it_is_admitted(self) -> None:
        ready = view(OUTSIDE, total=2, alive=2, staying=2, waiting=2)
        taken = view(ready, header=header(5, cause="joined"), assignment=assignment(5))
        assert action(taken) == Reform(header(5, cause="joined"), assignment(5))

    def test_starts_workers_that_have_not_come_so_far_afresh(self) -> None:
        taken = view(OUTSIDE, total=1, alive=1, header=header(5, cause="lost"), assignment=assignment(5))
        assert action(taken) == NOW_KILL

    def test_keeps_its_workers_while_the_job_waits_for_nodes(self) -> None:
        ready = view(OUTSIDE, total=1, alive=1, staying=1, waiting=1, header=header(5, "waiting"))
        assert action(ready) == Wait()


def test_the_rounds_from_which_only_joins_and_departures_led_here() -> None:
    seen = [
        header(4, cause="lost"),
        header(5, cause="joined"),
        header(5, cause="joined"),
        header(6, cause="left"),
        header(7, cause="lost"),
        header(9, cause="joined"),  # that of 8 was missed
        header(10, "waiting", "left"),
        header(11, cause="joined"),
    ]
    known, earliest, found = None, 0, list[int]()
    for each in seen:
        earliest = gentle(known, earliest, each)
        known = each
        found.append(earliest)
    assert found == [4, 4, 4, 4, 7, 8, 10, 10]
