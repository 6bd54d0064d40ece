"""Whatever happens to a node, in whatever order: what must be true of its state, its report and its next action."""

import signal
from dataclasses import replace
from typing import get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastic_run.elastic_agent.machine import node_events, plan
from elastic_run.elastic_agent.machine.actions import (
    Adopt,
    Invite,
    Leave,
    Ready,
    Reform,
    Register,
    Resume,
    Start,
    Stop,
    Wait,
)
from elastic_run.elastic_agent.machine.agent_machine import apply_event
from elastic_run.elastic_agent.machine.node_events import NodeEvent
from elastic_run.elastic_agent.machine.node_state import NodeState, StayingWorkers
from elastic_run.rendezvous.header import Header, HeaderState
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.membership import Registration
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import NodeFailed

from ....sampling import examples

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")
MEMBER = Member("a", "A", "host", "host:1", 1, (), FINGERPRINT)
KEYS = [Registration("key", MEMBER, revision, 7, revision) for revision in (10, 30)]
STATES: tuple[HeaderState, ...] = get_args(HeaderState)


def header(number: int, state: HeaderState, run: str) -> Header:
    return Header(number, run, state, "failed", NodeFailed("b", "(failed)"), FINGERPRINT)


def read(number: int, state: HeaderState, run: str, *, mine: bool) -> node_events.RoundRead:
    assigned = Assignment(number, "a", "A", 0, 2, 0, 1, 2, 0, 2) if mine and state == "open" else None
    return node_events.RoundRead(header(number, state, run), 10 * number, assigned)


numbers = st.integers(1, 4)
rounds_read = st.builds(read, numbers, st.sampled_from(STATES), st.sampled_from(["R", "Q"]), mine=st.booleans())
exits = st.tuples(st.builds(Exit, numbers, st.just(0), st.just(0), st.just(100), st.sampled_from([0, 1])))
groups = st.builds(
    StayingWorkers,
    staying=st.integers(0, 2),
    holding=st.integers(0, 1),
    waiting=st.integers(0, 2),
    forming=st.integers(0, 1),
    broke=st.sampled_from(["", "rank 1 is gone"]),
)
seen = st.builds(
    node_events.WorkersSeen,
    st.integers(0, 2),
    st.one_of(st.just(()), exits),
    st.sampled_from(["", "it ended"]),
    st.booleans(),
    groups,
)
told = st.one_of(
    st.builds(node_events.SignalReceived, st.sampled_from([2, 15])),
    st.builds(node_events.AskedToLeave, st.just("it is replaced")),
    st.builds(node_events.KeyWritten, st.sampled_from(KEYS), st.just(Report())),
    st.builds(node_events.KeyResumed, st.sampled_from(KEYS)),
    st.builds(node_events.RefusedForGood, st.just("it has another secret")),
    st.builds(node_events.Orphaned, st.just("its run has gone")),
    st.builds(node_events.MachineUnfit, st.just("it has no memory")),
    st.builds(node_events.Unkillable, st.just(100)),
    st.builds(node_events.WorkersBegin, st.integers(0, 4), st.just("default"), st.just(2), st.booleans()),
    st.builds(node_events.WorkersStarted, st.booleans()),
    st.builds(node_events.StartProblem, st.just("no such file"), st.booleans()),
    st.builds(node_events.WorkersUnready, st.booleans()),
    st.builds(node_events.StoreSeen, st.sampled_from(["", "it is silent"]), st.booleans()),
    st.builds(node_events.Registering, st.sampled_from(["", "Q"])),
    st.sampled_from(
        [
            node_events.KeyLapsed(),
            node_events.KeyLost(),
            node_events.OthersKeep(),
            node_events.AllStay(),
            node_events.UnreadyOver(),
            node_events.CheckpointSaved(),
            node_events.ShardsAsked(),
            node_events.AgentBeat(),
            node_events.OperationEnded(),
        ]
    ),
    rounds_read,
    seen,
)
lives = st.lists(st.tuples(st.sampled_from([0.1, 1.0, 10.0, 400.0]), told), max_size=12)
"""How many seconds after the one before each event happens."""


def live(life: list[tuple[float, NodeEvent]]) -> tuple[NodeState, float]:
    state, now = NodeState(), 100.0
    for later, event in life:
        now += later
        state = apply_event(state, event, now)
    return state, now


@settings(max_examples=examples(1000, 60), deadline=None)
@given(lives)
def test_a_report_that_is_written_is_what_the_node_says_until_there_is_news(
    life: list[tuple[float, NodeEvent]],
) -> None:
    state, now = live(life)
    said = plan.report(state, now)
    written = apply_event(state, node_events.ReportWritten(state.key.registration or KEYS[0], said), now)
    assert plan.report(written, now) == said


@settings(max_examples=examples(1000, 60), deadline=None)
@given(lives)
def test_a_node_that_is_told_to_go_does_nothing_but_go(life: list[tuple[float, NodeEvent]]) -> None:
    state, now = live(life)
    action, why = plan.act(state, now)
    if state.notice.kind == "kill":
        kill = Stop(signal.SIGKILL, 0.0)
        assert action == (kill if state.workers.alive else Leave(128 + state.notice.signal))
        assert why
    elif state.departs and not state.known.over:
        assert isinstance(action, Wait | Stop | Invite | Leave)
    if isinstance(action, Leave):
        assert not state.workers.alive, "workers have ended before their node leaves"
        assert why, "whoever leaves says why"


@settings(max_examples=examples(1000, 60), deadline=None)
@given(lives)
def test_workers_run_only_for_a_member_in_the_round_that_it_knows(life: list[tuple[float, NodeEvent]]) -> None:
    state, now = live(life)
    action, _ = plan.act(state, now)
    if isinstance(action, Start | Reform | Adopt):
        assert state.key.registered and action.header == state.header and action.header.state == "open"
        assert action.assignment == state.known.assignment
        assert state.workers.round != action.header.number, "what runs is not started again"
    if isinstance(action, Start):
        assert not state.workers.alive, "the workers of another round have ended before"
    if isinstance(action, Ready):
        assert state.key.registered and state.known.assignment is None
    if isinstance(action, Register):
        assert not state.key.registered and not state.workers.alive
    if isinstance(action, Resume):
        assert state.key.lapsed


@settings(max_examples=examples(1000, 60), deadline=None)
@example([(0.1, read(1, "succeeded", "Q", mine=False))], node_events.Registering("Q"))
@given(lives, told)
def test_what_is_heard_twice_changes_what_it_did(life: list[tuple[float, NodeEvent]], event: NodeEvent) -> None:
    """But for what is counted, and a second signal."""
    counted = node_events.CheckpointSaved | node_events.SignalReceived | node_events.StartProblem
    if isinstance(event, counted | node_events.WorkersUnready | node_events.WorkersBegin):
        return
    state, now = live(life)
    once = apply_event(state, event, now)
    assert apply_event(once, event, now) == once


@settings(max_examples=examples(1000, 60), deadline=None)
@given(lives, rounds_read, rounds_read)
def test_headers_in_any_order_leave_the_newest(
    life: list[tuple[float, NodeEvent]], one: node_events.RoundRead, other: node_events.RoundRead
) -> None:
    """Those of one run, of which the last may be its end, read by a node that is in it."""
    one = replace(one, header=replace(one.header, run="R"))
    other = replace(other, header=replace(other.header, run="R"))
    state, now = live([*life, (0.1, node_events.KeyWritten(KEYS[0], Report())), (0.1, read(1, "open", "R", mine=True))])
    if one.revision == other.revision or min(one, other, key=lambda each: each.revision).header.final:
        return
    forth = apply_event(apply_event(state, one, now), other, now)
    back = apply_event(apply_event(state, other, now), one, now)
    assert forth.known.header == back.known.header
    assert forth.known.assignment == back.known.assignment
    assert plan.act(forth, now)[0] == plan.act(back, now)[0]


def test_the_end_of_an_earlier_run_is_not_this_nodes_when_it_registers_again_after_that_is_gone() -> None:
    state = NodeState()
    for event in (
        node_events.KeyWritten(KEYS[0], Report()),
        node_events.RoundRead(header(1, "preempted", "Q"), 5, None),
        node_events.KeyLapsed(),
        node_events.KeyLost(),
        node_events.Registering(""),
        node_events.KeyWritten(KEYS[1], Report()),
    ):
        state = apply_event(state, event, 1.0)
    assert not state.known.over and not isinstance(plan.act(state, 1.0)[0], Leave)
