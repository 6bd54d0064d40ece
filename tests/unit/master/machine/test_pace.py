"""Steps a second: what a worker tells of them, and what the master makes of it."""

import contextlib
import copy
import itertools
from collections.abc import Iterator

import pytest

from elastic_run.adapters.client import steps
from elastic_run.adapters.client.channel import AgentGone, Back, Call
from elastic_run.adapters.client.steps import Steps
from elastic_run.master.machine.pace import COUNTERS, WINDOW, Pace, Stepped


def test_the_pace_is_taken_over_a_window_and_falls_while_nothing_is_told() -> None:
    pace = Pace()
    assert pace.rate(1, 0.0) is None
    for second in range(20):
        pace.told(Stepped(1, 5 * second), float(second))
    assert pace.rate(1, 19.0) == pytest.approx(5.0)
    later = pace.rate(1, 29.0)
    assert later is not None and 0.0 < later < 5.0
    assert pace.rate(1, 19.0 + 2 * WINDOW) == 0.0


def test_another_round_begins_anew_and_a_word_of_an_earlier_one_comes_too_late() -> None:
    pace = Pace()
    pace.told(Stepped(1, 100), 0.0)
    pace.told(Stepped(1, 110), 2.0)
    assert pace.rate(1, 2.0) == pytest.approx(5.0)
    assert pace.rate(2, 2.0) is None
    pace.told(Stepped(2, 0), 2.0)
    assert pace.rate(1, 2.0) is None and pace.rate(2, 2.0) is None
    pace.told(Stepped(2, 4), 4.0)
    pace.told(Stepped(1, 120), 4.0)
    assert pace.rate(2, 4.0) == pytest.approx(2.0)


def test_of_several_counters_of_one_process_the_one_that_counts_fastest_is_the_pace() -> None:
    pace = Pace()
    for second in range(100):
        if second < 10:
            pace.told(Stepped(1, 100 * second, counter=1), float(second))  # an evaluation that commits, once
        pace.told(Stepped(1, 5 * second, counter=2), float(second))
        pace.told(Stepped(1, 3 + second // 10, counter=3), float(second))  # a checkpoint each tenth second
    assert pace.rate(1, 99.0) == pytest.approx(5.0)


def test_a_script_that_makes_counters_again_and_again_costs_the_master_only_so_many() -> None:
    pace = Pace()
    for counter in range(10 * COUNTERS):
        pace.told(Stepped(1, counter, counter=0), float(counter))
        pace.told(Stepped(1, 1000, counter=counter + 1), float(counter))
    last = 10 * COUNTERS - 1.0
    assert pace.rate(1, last) == pytest.approx(1.0), "the one that is told again and again stays"
    assert len(pace.counters) == COUNTERS


class Agent:
    """A double of the connection to an agent."""

    def __init__(self, address: str, timeout: float, rank: int | None = None) -> None:
        channels.append(self)
        self.rank = rank
        self.sent: list[Call] = []
        self.answers = True
        self.gone = False

    def send(self, call: Call) -> None:
        if self.gone:
            raise AgentGone("gone")
        self.sent.append(call)

    def ready(self) -> bool:
        return self.answers

    def receive(self, timeout: float | None = None) -> Back:
        return Back()

    def close(self) -> None:
        pass


channels: list[Agent] = []


@pytest.fixture(autouse=True)
def _agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(steps, "Channel", Agent)
    yield
    channels.clear()


ENVIRONMENT = {
    "ELASTIC_RUN_AGENT": "@agent", "ELASTIC_RUN_ROUND": "2",
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
}  # fmt: skip


def test_many_steps_are_told_once_a_second() -> None:
    clock = [100.0]
    told = Steps(ENVIRONMENT, lambda: clock[0])
    for _ in range(50):
        told.committed()
        clock[0] += 0.125
    (agent,) = channels
    assert [call.steps for call in agent.sent] == [1, 9, 17, 25, 33, 41, 49]
    assert {(call.kind, call.round, call.rank) for call in agent.sent} == {("steps", 2, 3)}


def test_an_agent_that_is_busy_is_told_nothing_more_and_never_waited_for() -> None:
    clock = [100.0]
    told = Steps(ENVIRONMENT, lambda: clock[0])
    told.committed()
    channels[0].answers = False
    for _ in range(3):
        clock[0] += 5.0
        told.committed()
    assert [call.steps for call in channels[0].sent] == [1]
    channels[0].answers = True
    clock[0] += 5.0
    told.committed()
    assert [call.steps for call in channels[0].sent] == [1, 5]


def test_an_agent_that_is_gone_and_no_agent_at_all_cost_the_script_nothing() -> None:
    clock = [100.0]
    told = Steps(ENVIRONMENT, lambda: clock[0])
    told.committed()
    channels[0].gone = True
    with contextlib.nullcontext():
        clock[0] += 5.0
        told.committed()
        clock[0] += 5.0
        told.committed()
    assert len(channels) == 2 and told.count == 3
    Steps({}, lambda: 0.0).committed()
    assert len(channels) == 2


def test_a_worker_that_keeps_its_process_tells_by_its_new_rank_and_round() -> None:
    clock, environment = [100.0], dict(ENVIRONMENT)
    told = Steps(environment, lambda: clock[0])
    told.committed()
    environment |= {"RANK": "0", "ELASTIC_RUN_ROUND": "3"}
    clock[0] += 2.0
    told.committed()
    assert [(agent.rank, agent.sent[0].round) for agent in channels] == [(3, 2), (0, 3)]


def test_each_counter_of_a_process_and_each_copy_tells_by_an_id_of_its_own() -> None:
    clock = itertools.count(100, 5)
    first, second = (Steps(ENVIRONMENT, lambda: next(clock)) for _ in range(2))
    first.committed()
    second.committed()
    copied = copy.copy(first)
    copied.committed()
    first.committed()
    ids = [{call.counter for call in agent.sent} for agent in channels]
    assert len(ids) == 3 and all(len(each) == 1 for each in ids) and len(set[int]().union(*ids)) == 3
