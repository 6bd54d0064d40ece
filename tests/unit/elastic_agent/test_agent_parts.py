"""The small parts of an agent: its tasks, its inbox, the notice, the lines that are said once, its patience."""

import asyncio
import dataclasses
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_run.elastic_agent.inbox import Inbox
from elastic_run.elastic_agent.machine.actions import Operation, Register, Start, Stop
from elastic_run.elastic_agent.machine.agent_machine import MAX_FAILED_STARTS, REPEAT_SECONDS, apply_event
from elastic_run.elastic_agent.machine.node_events import (
    AgentBeat,
    AskedToLeave,
    CheckpointSaved,
    KeyResumed,
    MachineUnfit,
    NodeEvent,
    OperationBegun,
    OperationEnded,
    RefusedForGood,
    RoundRead,
    ServicesAwaited,
    ShardsAsked,
    SignalReceived,
    StartProblem,
    Unkillable,
    WorkersBegin,
    WorkersStarted,
    WorkerStalled,
)
from elastic_run.elastic_agent.machine.node_state import LocalWorkers, NodeSettings, NodeState, Notice
from elastic_run.elastic_agent.machine.plan import is_overtaken
from elastic_run.elastic_agent.machine.store_patience import store_gone
from elastic_run.elastic_agent.say_once import SayOnce
from elastic_run.rendezvous.base.errors import StoreRefused
from elastic_run.rendezvous.base.tasks import Tasks
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.member import Exit, Fingerprint
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.store.contract import Health
from elastic_run.rendezvous.store.waits import Wait


def live(scene: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scene

    asyncio.run(bounded())


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class TestTasks:
    def test_an_error_by_which_one_ended_is_raised_at_the_next_look(self) -> None:
        async def fails() -> None:
            raise RuntimeError("no")

        async def scene() -> None:
            ended = asyncio.Event()
            tasks = Tasks(ended.set)
            tasks.begin(fails(), "one")
            tasks.check()
            await ended.wait()
            with pytest.raises(RuntimeError, match="no"):
                tasks.check()
            await tasks.close()

        live(scene())

    def test_one_that_is_ended_says_nothing_and_those_that_are_left_end_with_the_agent(self) -> None:
        async def scene() -> None:
            tasks = Tasks(lambda: None)
            one, other = tasks.begin(for_ever(), "one"), tasks.begin(for_ever(), "other")
            tasks.end(one, None)
            await asyncio.wait({one})
            tasks.check()
            assert one.cancelled() and not other.done()
            await tasks.close()
            assert other.cancelled()

        live(scene())


def inbox() -> Inbox:
    return Inbox(NodeSettings(), lambda: 0.0)


class TestInbox:
    def test_gives_up_the_work_only_where_that_is_pointless_now(self) -> None:
        async def scene() -> None:
            made, pointless, begun = inbox(), False, asyncio.Event()

            async def work() -> None:
                begun.set()
                await for_ever()

            guarded = asyncio.create_task(made.unless(work(), lambda: pointless))
            await begun.wait()
            made.wake()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not guarded.done()
            pointless = True
            made.wake()
            assert not await guarded

        live(scene())

    def test_raises_what_the_work_raises(self) -> None:
        async def fails() -> None:
            raise RuntimeError("no")

        async def scene() -> None:
            with pytest.raises(RuntimeError, match="no"):
                await inbox().unless(fails(), lambda: False)

        live(scene())

    def test_wakes_for_what_is_posted_and_changes_something(self) -> None:
        async def scene() -> None:
            made = inbox()
            made.note(CheckpointSaved())
            assert made.count == 0
            made.post(CheckpointSaved())
            assert (made.count, made.state.workers.saved) == (1, 2)
            made.post(AskedToLeave("it is replaced"))
            made.post(AskedToLeave("it is replaced"))
            assert made.count == 2
            await asyncio.wait_for(made.news(1), 30)  # it was told before

        live(scene())


def after(*events: tuple[float, NodeEvent], state: NodeState | None = None) -> NodeState:
    """What a node knows after these, each at its second."""
    for at, event in events:
        state = apply_event(state or NodeState(), event, at)
    assert state is not None
    return state


TERM = SignalReceived(15)


def test_a_second_signal_kills_but_not_one_that_repeats_the_first() -> None:
    assert after((9.0, TERM)).notice == Notice("leave", 15, 9.0)
    assert after((9.0, TERM), (9.0 + REPEAT_SECONDS / 2, SignalReceived(2))).notice == Notice("leave", 15, 9.0)
    killed = after((9.0, TERM), (9.0 + REPEAT_SECONDS, TERM))
    assert killed.notice.kind == "kill" and after((99.0, TERM), state=killed).notice.kind == "kill"


def test_a_signal_after_the_jobs_word_to_leave_is_the_first() -> None:
    asked = after((1.0, AskedToLeave("rank 1 is slow")))
    assert asked.notice == Notice("leave", 0, 1.0, "rank 1 is slow")
    assert after((9.0, TERM), state=asked).notice == Notice("leave", 15, 9.0, "rank 1 is slow")


def test_a_node_that_leaves_or_is_refused_is_not_asked_to_leave() -> None:
    for before in (TERM, MachineUnfit("no ports"), RefusedForGood("another job")):
        state = after((1.0, before))
        assert after((2.0, AskedToLeave("rank 1 is slow")), state=state) is state


def test_starts_that_fail_in_a_row_make_a_machine_unfit_and_one_that_does_not_forgives_them() -> None:
    fails = (1.0, StartProblem("no such file", fault=True))
    last = after(*[fails] * (MAX_FAILED_STARTS - 1))
    assert last.workers.problem == "no such file" and not last.machine.unfit
    assert "2 times in a row: no such file" in after(fails, state=last).machine.unfit
    assert not after((2.0, WorkersStarted()), fails, state=last).machine.unfit
    assert not after(*[(1.0, StartProblem("port taken"))] * 9).machine.unfit


def test_workers_that_continue_count_on_and_others_begin_anew() -> None:
    begin = WorkersBegin(3, "default", 2)
    state = after((1.0, begin), (1.0, ShardsAsked()), (1.0, CheckpointSaved()), (1.0, WorkerStalled()))
    assert state.workers.leases and state.workers.saved == 1 and state.machine.stalled == 1
    adopted = after((2.0, dataclasses.replace(begin, round=4, adopted=True)), state=state)
    assert adopted.workers.leases and adopted.workers.current(3) == 4 and adopted.machine.stalled == 0
    anew = after((2.0, dataclasses.replace(begin, round=4)), state=state)
    assert not anew.workers.leases and anew.workers.current(3) == 3


def test_an_agent_that_did_nothing_for_longer_than_a_lease_has_stood_still_until_it_is_registered() -> None:
    assert not after((1.0, AgentBeat()), (5.0, AgentBeat())).machine.stood_still
    late = after((1.0, AgentBeat()), (7.0, AgentBeat()), (8.0, AgentBeat()))
    assert late.machine.stood_still
    registration: Any = SimpleNamespace(member=None)
    assert not after((9.0, KeyResumed(registration)), state=late).machine.stood_still


def test_a_process_that_cannot_be_killed_makes_a_machine_unfit_that_does_not_leave_already() -> None:
    assert "process 7 of its workers" in after((1.0, Unkillable(7))).machine.unfit
    assert not after((1.0, TERM), (2.0, Unkillable(7))).machine.unfit


def test_a_line_is_said_when_it_is_another_one_than_before_on_its_topic() -> None:
    said: list[str] = []
    say_once = SayOnce(said.append)
    for topic, line in (("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", ""), ("a", "2")):
        say_once(topic, line)
    assert said == ["1", "1", "2", "2"]


class TestPatience:
    NOW = 100.0
    AWAY = Health(reachable=False, since=20.0, detail="connection refused")
    HERE = Health(reachable=True, since=0.0, detail="")
    WELL = (Exit(1, 0, 0, 100, 0),)

    def gone(self, health: Health, wait: Wait | None = None, **changes: Any) -> str:  # Any: the function's own
        given: dict[str, Any] = {"idle_since": 30.0, "patience": 60.0, "now": self.NOW}
        exits = changes.pop("exits", self.WELL)
        workers = LocalWorkers(alive=changes.pop("alive", 0), total=1, exits=exits)
        return store_gone(health, wait, workers, **(given | changes))

    def test_with_a_store_that_does_not_answer_ends_so_long_after_the_workers_have(self) -> None:
        assert "has not answered for 80 s" in self.gone(self.AWAY)
        assert self.gone(self.AWAY, idle_since=50.0) == ""

    def test_does_not_depend_on_when_workers_that_still_run_were_idle(self) -> None:
        assert self.gone(self.AWAY, alive=1, exits=(), idle_since=self.NOW)

    def test_with_a_store_that_refuses_is_the_same(self) -> None:
        refused = Wait("this node's report", [20.0], StoreRefused("no space left"), 0.0)
        assert "no space left" in self.gone(self.HERE, refused)
        assert self.gone(self.HERE, refused, patience=90.0) == ""
        assert self.gone(self.HERE) == ""

    def test_ends_with_a_word_on_how_the_workers_did(self) -> None:
        assert "have all ended with exit code 0" in self.gone(self.AWAY)
        assert "are not running" in self.gone(self.AWAY, exits=(Exit(1, 0, 0, 100, 1),))


STOP = Stop(15, 30.0)


def under_way(action: Operation, *events: NodeEvent, before: tuple[NodeEvent, ...] = ()) -> bool:
    """Whether these cut short what began after those before."""
    told = [(float(second), event) for second, event in enumerate((*before, OperationBegun(action), *events))]
    return is_overtaken(after(*told))


def header(number: int) -> Header:
    return Header(number, "own", "open", "joined", "", Fingerprint("train.py", (), "2:4", "1", "0"))


def read(number: int) -> RoundRead:
    return RoundRead(header(number), number, None)


class TestWhatIsUnderWay:
    def test_is_cut_short_by_a_notice_and_by_nothing_else(self) -> None:
        assert not under_way(Register(), read(1), CheckpointSaved())
        assert under_way(Register(), TERM)
        assert under_way(Register(), AskedToLeave("it is replaced"))
        assert not under_way(Register(), TERM, OperationEnded())

    def test_is_cut_short_as_a_stop_by_another_header(self) -> None:
        assert not under_way(STOP)
        assert under_way(STOP, read(2), before=(read(1),))

    def test_is_cut_short_as_a_stop_for_a_notice_only_by_a_second(self) -> None:
        assert not under_way(STOP, read(2), before=(TERM,))
        assert under_way(STOP, TERM, before=(TERM,))
        assert not under_way(Stop(9, 0.0), read(2), before=(TERM, TERM))

    def test_is_cut_short_by_another_header_while_it_waits_for_services(self) -> None:
        start = Start(header(1), Assignment(1, "a", "x", 0, 1, 0, 1, 1, 0, 1))
        assert not under_way(start, read(2), before=(read(1),))
        assert not under_way(start, ServicesAwaited(), before=(read(1),))
        assert under_way(start, read(2), ServicesAwaited(), before=(read(1),))
        assert under_way(start, ServicesAwaited(), read(2), before=(read(1),))
        served = (ServicesAwaited(), ServicesAwaited(over=True))
        assert not under_way(start, *served, read(2), before=(read(1),))
