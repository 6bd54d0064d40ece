"""A worker's own clock, against an agent that answers when the test says so."""

from collections import deque
from typing import cast

import pytest

from elastic_run.adapters.client.channel import Back, Call, Channel
from elastic_run.adapters.servers import step_clock
from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.step_clock import StepClock, start_clock
from elastic_run.master.data.worker_clocks import LowestClock, NodeClocks, WorkerClock
from elastic_run.rendezvous.wire.values import decode, encode


class Agent:
    """At the other end of a channel.

    Attributes:
        said: what the worker has said, and what it wanted of the answer.
        answers: those that are there, or will be when somebody waits for one.
    """

    def __init__(self) -> None:
        self.said: list[tuple[WorkerClock, int]] = []
        self.answers: deque[Back] = deque()
        self.readable = True

    def tell(self, *lowest: int, why: str = "") -> None:
        self.answers += [Back(told=encode(LowestClock(each, why)).decode()) for each in lowest]

    def send(self, call: Call) -> None:
        node = decode(NodeClocks, call.told.encode())
        self.said.append((node.clocks[0], node.wants))

    def ready(self, seconds: float = 0.0) -> bool:
        return self.readable and bool(self.answers)

    def receive(self, timeout: float | None = None) -> Back:
        return self.answers.popleft()


@pytest.fixture
def agent() -> Agent:
    return Agent()


def made(agent: Agent, bound: int) -> StepClock:
    agent.tell(0)
    clock = StepClock(cast(Channel, agent), 3, 7, bound)
    clock.begin_work()
    clock.begin_work()
    assert agent.said == [(WorkerClock(3, 7, 1, 0), 0)]
    return clock


def test_while_the_bound_has_room_no_answer_is_waited_for(agent: Agent) -> None:
    clock = made(agent, bound=2)
    for step in (1, 2):
        clock.count_push()
        clock.await_step(2)
        assert (clock.clock, clock.lowest) == (step, 0)
    assert agent.said[1:] == [(WorkerClock(3, 7, 2, 1), 0), (WorkerClock(3, 7, 3, 2), 0)]
    clock.count_push()
    agent.tell(0, 0, 1)
    clock.await_step(2)  # the answers to all three
    assert not agent.answers and clock.lowest == 1


def test_answers_that_are_there_are_taken_and_others_are_not_waited_for(agent: Agent) -> None:
    clock = made(agent, bound=2)
    clock.count_push()
    agent.tell(1)
    agent.readable = False
    clock.count_push()
    assert clock.lowest == 0
    agent.readable = True
    clock.count_push()
    assert (clock.lowest, clock.clock) == (1, 3)


def test_a_wait_asks_again_and_says_after_a_while_for_whom_it_is(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(step_clock, "QUIET", 0.0)
    clock = made(agent, bound=0)
    clock.count_push()
    agent.tell(0, why="rank 2 has made 0 pushes")
    agent.answers.append(Back(text="the job has no master"))
    agent.tell(1)
    clock.await_step(0)
    assert [wants for _, wants in agent.said] == [0, 1, 1, 1]
    assert "[elastic-run] rank 3 waits: rank 2 has made 0 pushes (0 s so far)" in capsys.readouterr().err


def test_a_newcomer_goes_on_from_the_lowest_clock(agent: Agent) -> None:
    agent.tell(40)
    clock = StepClock(cast(Channel, agent), 3, 7, 1)
    clock.await_step(1)
    clock.count_push()
    assert agent.said[-1] == (WorkerClock(3, 7, 2, 41), 40)


def test_who_has_no_work_says_so_once_and_does_not_wait(agent: Agent) -> None:
    clock = made(agent, bound=1)
    clock.rest()
    clock.rest()
    assert agent.said[1:] == [(WorkerClock(3, 7, 2, 0, works=False), 0)]
    agent.tell(5, 6)
    clock.await_step(1)
    assert (clock.clock, len(agent.said)) == (6, 3)


def test_a_master_that_does_not_know_the_lowest_clock_yet_is_asked_again_before_the_first_step(agent: Agent) -> None:
    clock = StepClock(cast(Channel, agent), 3, 7, 1)
    unknown = LowestClock(0, "a node has not told", known=False)
    agent.answers.append(Back(told=encode(unknown).decode()))
    agent.tell(9)
    clock.await_step(1)
    assert (clock.clock, len(agent.said)) == (9, 2)


def test_without_a_job_there_is_nobody_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTIC_RUN_AGENT", raising=False)
    with pytest.raises(TableMisused, match="start it with elastic-run"):
        start_clock(1)
