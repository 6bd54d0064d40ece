"""Leased shards with other ranks, whose agent is a thread in this process."""

import contextlib
import gc
import io
import pickle
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elastic_run
from elastic_run.adapters.client import ledger_client, pushes
from elastic_run.adapters.client.channel import AgentGone, Back, Call, Channel
from elastic_run.adapters.client.context import AGENT, RANK_VARIABLES, ROUND
from elastic_run.adapters.client.current_round import is_current_round
from elastic_run.adapters.client.ledger_client import MOST, RoundOver, ShardsMisused, ShardsNotDone, ShardsRefused
from elastic_run.adapters.client.shards import Shard, Shards
from elastic_run.master.data.ledger import DONE, Answer, Piece, Request

from ....doubles.ledger_agent import ENOUGH, Agent, alone, environment_of, listening


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANK_VARIABLES, ROUND, AGENT):
        monkeypatch.delenv(name, raising=False)


# -- several ranks ----------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd() -> Iterator[ThreadPoolExecutor]:
    """Threads, which stand for ranks."""
    with ThreadPoolExecutor(8) as found:
        yield found


@pytest.fixture
def agent(crowd: ThreadPoolExecutor) -> Iterator[Agent]:
    """The same; it hangs up before the ranks are waited for."""
    assert crowd
    with listening() as found:
        yield found


def drained(data: Shards) -> list[tuple[int, int]]:
    """Uses all that this rank gets."""
    found: list[tuple[int, int]] = []
    for shard in data:
        found += [(shard.epoch, index) for index in shard.indices]
        shard.done()
    return found


def results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(ENOUGH) for future in futures]


@pytest.mark.parametrize("commit", ["checkpoint", "ack"])
def test_several_ranks_share_each_epoch(agent: Agent, crowd: ThreadPoolExecutor, commit: str) -> None:
    ranks = [agent.shards(rank, 4, 1000, 7, epochs=3, commit=commit) for rank in range(4)]
    found = results([crowd.submit(drained, data) for data in ranks])
    counts = Counter(record for each in found for record in each)
    assert counts.keys() == {(epoch, index) for epoch in range(3) for index in range(1000)}
    if commit == "checkpoint":  # else an idle rank may do what waits in another's queue
        assert counts.total() == 3000
    assert agent.ledger is not None and agent.ledger.finished
    for data in ranks:
        data.close()


def test_more_ranks_than_records_are_fine(agent: Agent, crowd: ThreadPoolExecutor) -> None:
    ranks = [agent.shards(rank, 4, 2, 1) for rank in range(4)]
    found = results([crowd.submit(drained, data) for data in ranks])
    assert sorted(record for each in found for record in each) == [(0, 0), (0, 1)]


def test_what_was_said_is_durable_before_the_loop_ends(agent: Agent) -> None:
    data = agent.shards(commit="ack")
    assert len(drained(data)) == 100
    assert agent.ledger is not None and agent.ledger.finished


def test_the_next_shards_are_there_before_they_are_asked_for(agent: Agent) -> None:
    data = agent.shards(records=1000, shard_size=1)
    for _ in range(200):
        next(data).done()
    data.flush()
    agent.hold.clear()
    for _ in range(20):  # no answer comes, and none is waited for
        next(data).done()
    agent.hold.set()
    data.close()


def test_leases_ahead_grow_with_a_quick_worker_up_to_a_limit(agent: Agent) -> None:
    data = agent.shards(records=5000, shard_size=1)
    drained(data)
    wants = [request.wants for request in agent.heard if request.wants]
    assert wants[0] == 1 and max(wants) <= MOST and max(wants) > MOST // 4
    assert len(wants) < 5000 / 10


def test_a_slow_worker_holds_few(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    data = agent.shards(records=50, shard_size=1)
    for shard in data:
        now[0] += 60.0
        shard.done()
    assert {request.wants for request in agent.heard if request.kind == "exchange"} <= {0, 1}
    assert max(len(request.marks) for request in agent.heard) <= 2


def test_a_large_world_leases_less_ahead(agent: Agent) -> None:
    data = agent.shards(0, 2048, 5000, 1, commit="ack")
    for _ in range(100):
        next(data).done()
    assert max(request.wants for request in agent.heard) <= 2
    data.close()


def test_a_request_that_has_to_wait_is_asked_again_and_told_once_in_a_while(
    agent: Agent, crowd: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_client, "QUIET", 0.0)
    monkeypatch.setattr(ledger_client, "REMINDER", 3600.0)
    agent.patience = 0.01
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        first = crowd.submit(drained, one := agent.shards(0, 2))
        while len(agent.heard) < 3:  # asked three times
            assert agent.waits.wait(ENOUGH)
        results([first, crowd.submit(drained, two := agent.shards(1, 2))])
    begun = "[elastic-run] rank 0 waits: dataset 'data' starts when every rank has opened it; still missing: rank 1\n"
    assert err.getvalue().count(begun) == 1
    opens = [request for request in agent.heard if request.kind == "open" and request.rank == 0]
    assert len(opens) >= 3 and len(set(opens)) == 1
    one.close()
    two.close()


def test_short_waits_are_not_told(agent: Agent, capfd: pytest.CaptureFixture[str]) -> None:
    left = iter(range(5))
    agent.override = lambda _: Answer("later", "so soon") if next(left, None) is not None else None
    assert len(drained(agent.shards())) == 100
    assert capfd.readouterr().err == ""


def test_an_agent_that_cannot_answer_is_asked_again(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([Back(text="the job's master has not answered for 60 s")])
    answer = agent.answer
    monkeypatch.setattr(agent, "answer", lambda request: next(left, None) or answer(request))
    assert len(drained(agent.shards())) == 100


def test_the_end_of_the_round_is_told_and_stays(agent: Agent) -> None:
    data = agent.shards()
    next(data).done()
    data.flush()
    agent.override = lambda _: Answer("stale", "round 1 is over: the job is in round 2")
    shard = next(data)
    shard.done()
    for _ in range(2):
        with pytest.raises(RoundOver, match="the job is in round 2"):
            data.flush()
    with pytest.raises(RoundOver):
        next(data)
    with pytest.raises(RoundOver):
        data.state_dict()
    heard = len(agent.heard)
    data.close()
    assert len(agent.heard) == heard


def test_ranks_that_declare_other_data_are_refused(agent: Agent, crowd: ThreadPoolExecutor) -> None:
    first = crowd.submit(next, agent.shards(0, 2))
    assert agent.waits.wait(ENOUGH)
    with pytest.raises(ShardsRefused, match=r"size is 101 and not 100.* on rank 1"):
        next(two := agent.shards(1, 2, 101))
    two.close()
    next(agent.shards(1, 2))
    first.result(ENOUGH)


def test_ranks_that_restored_other_positions_are_refused(agent: Agent, crowd: ThreadPoolExecutor) -> None:
    with alone() as data:
        next(data).done()
        state = data.state_dict()
    one, two = agent.shards(0, 2), agent.shards(1, 2)
    one.load_state_dict(state)
    first = crowd.submit(next, one)
    assert agent.waits.wait(ENOUGH)
    with pytest.raises(ShardsRefused, match="Load the same checkpoint on every rank"):
        next(two)
    agent.move(0)
    with pytest.raises(
        ShardsRefused, match=r"rank 0 restored a position with 2 shards started.*; rank 1 restored nothing"
    ):
        first.result(ENOUGH)


def test_an_agent_that_hangs_up_is_told(agent: Agent) -> None:
    data = agent.shards()
    next(data).done()
    data.flush()
    for taken in agent.sockets:
        taken.shutdown(socket.SHUT_RDWR)
    with pytest.raises(AgentGone, match="its launcher has exited"):
        drained(data)
    data.close()


def test_an_agent_that_is_not_there_is_told() -> None:
    data = Shards("data", 10, shard_size=1, environment=environment_of(0, 1, 1, "@elastic-run-nobody"))
    with pytest.raises(AgentGone, match="cannot connect to the agent"):
        next(data)
    data.close()


# -- positions of several ranks ---------------------------------------------------------------------------------------


def test_a_cut_has_what_every_rank_had_said_by_then(agent: Agent, crowd: ThreadPoolExecutor) -> None:
    one, two = agent.shards(0, 2), agent.shards(1, 2)
    a, b = results([crowd.submit(next, one), crowd.submit(next, two)])
    a.done()
    b.progress(3)
    first = crowd.submit(one.state_dict, 5)
    assert agent.waits.wait(ENOUGH)
    state = two.state_dict(5)
    assert first.result(ENOUGH) == state
    assert [b.index, 3] in state["todo"]
    assert a.index not in [pair[0] for pair in state["todo"]]
    b.done()
    again = results([crowd.submit(one.state_dict), crowd.submit(two.state_dict)])
    assert again[0] == again[1] != state


def test_a_cut_at_different_steps_is_refused(agent: Agent, crowd: ThreadPoolExecutor) -> None:
    one, two = agent.shards(0, 2), agent.shards(1, 2)
    first = crowd.submit(one.state_dict, 5)
    assert agent.waits.wait(ENOUGH)
    agent.patience = 0.01
    with pytest.raises(ShardsRefused, match="different steps: rank 0 at step 5, rank 1 at step 6"):
        two.state_dict(6)
    agent.move(0)
    with pytest.raises(ShardsRefused, match="different steps"):
        first.result(ENOUGH)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 300), st.integers(1, 40), st.integers(0, 30))
def test_positions_of_several_ranks_can_be_gone_on_from_by_any_number(
    before: int, after: int, size: int, shard_size: int, steps: int
) -> None:
    def trains(data: Shards, most: int) -> tuple[list[tuple[int, int]], dict[str, object]]:
        used: list[tuple[int, int]] = []
        with contextlib.suppress(ShardsNotDone):
            for shard in islice(data, most):
                half = len(shard) // 2 if len(used) % 3 == 0 else len(shard)
                shard.progress(half)
                used += [(shard.epoch, index) for index in shard.indices[:half]]
        return used, data.state_dict(most)

    def rest(data: Shards, state: dict[str, object]) -> list[tuple[int, int]]:
        data.load_state_dict(state)
        return drained(data)

    with listening() as one, ThreadPoolExecutor(8) as crowd:
        ranks = [one.shards(rank, before, size, shard_size, epochs=2) for rank in range(before)]
        had = results([crowd.submit(trains, data, steps) for data in ranks])
        in_model = Counter(record for used, _ in had for record in used)
        again = [one.shards(rank, after, size, shard_size, epochs=2, round=2) for rank in range(after)]
        found = results([crowd.submit(rest, data, had[0][1]) for data in again])
        in_model.update(record for each in found for record in each)
        assert in_model == Counter({(epoch, index): 1 for epoch in range(2) for index in range(size)})


# -- outputs that lie elsewhere ---------------------------------------------------------------------------------------


def test_what_a_lost_worker_had_comes_back_in_the_next_round(agent: Agent) -> None:
    first = agent.shards(commit="ack")
    done = [next(first) for _ in range(4)]
    for shard in done[:3]:
        shard.done()
    first.flush()
    again = agent.shards(commit="ack", round=2)
    shard_indices = [shard.index for shard in again if shard.done() is None]
    assert sorted(shard_indices) == [*range(3, 10)]
    assert shard_indices[0] == done[3].index
    with pytest.raises(RoundOver):
        done[3].done()
        first.flush()


def race(agent: Agent, crowd: ThreadPoolExecutor) -> tuple[Shards, Shard, "Future[list[int]]"]:
    """A slow rank at shard index 0, which has leased index 1 ahead; and a quick one, which has done all others and
    waits."""
    slow, quick = (agent.shards(rank, 2, 30, 10, commit="ack") for rank in range(2))

    def uses_all() -> list[int]:
        found: list[int] = []
        for shard in quick:
            if not found:
                agent.move(10.0)  # so long takes a shard
            found.append(shard.index)
            shard.done()
        return found

    held = next(slow)
    slow.flush()
    found = crowd.submit(uses_all)
    assert agent.waits.wait(ENOUGH)
    return slow, held, found


def test_a_slow_workers_shard_is_done_a_second_time_and_the_first_to_say_so_has_done_it(
    agent: Agent, crowd: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, held, found = race(agent, crowd)
    agent.move(1000.0)
    assert found.result(ENOUGH) == [2, 1, 0]
    held.done()  # too late, and no fault
    monkeypatch.setattr(ledger_client, "AHEAD", 0.0)  # as if a while had passed
    assert list(slow) == []
    assert agent.ledger is not None and agent.ledger.finished


def test_what_others_have_done_is_skipped_if_it_was_not_begun(agent: Agent, crowd: ThreadPoolExecutor) -> None:
    slow, held, found = race(agent, crowd)
    held.done()
    slow.flush()
    assert list(slow) == []
    assert found.result(ENOUGH) == [2, 1]


def test_progress_is_kept_to_itself_where_outputs_are_of_whole_shards(agent: Agent) -> None:
    data = agent.shards(commit="ack")
    shard = next(data)
    shard.progress(5)
    shard.progress(10)
    data.flush()
    assert not any(request.marks for request in agent.heard)
    shard.done()
    data.flush()
    assert [mark.shard_index for request in agent.heard for mark in request.marks] == [shard.index]


def test_shards_may_be_done_by_another_thread(agent: Agent, crowd: ThreadPoolExecutor) -> None:
    data = agent.shards(records=2000, shard_size=1, commit="ack")
    written_: list[Future[None]] = []
    while True:
        try:
            for shard in data:
                written_.append(crowd.submit(shard.done))
            break
        except ShardsNotDone:
            results(written_)
            written_.clear()
    assert agent.ledger is not None and agent.ledger.finished


# -- giving back ------------------------------------------------------------------------------------------------------


def left(data: Shards) -> None:
    """A script that leaves its loop early."""
    for shard in data:
        if shard.index == 3:
            break
        shard.done()


class Pushed:
    """Stands for tables: what they are told, whether they can be reached, and gradients be pushed."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.reached = True
        self.unusable = False
        self.rests = Event()

    def rest(self) -> None:
        self.rests.set()

    def cuts(self, dataset: str, shard_index: int, lease: int, offset: int) -> list[int]:
        self.told.append(("cuts", shard_index, lease))
        return [offset]

    @property
    def in_doubt(self) -> bool:
        return not self.reached

    def push(self, dataset: str, shard_index: int, lease: int, begin: int, end: int, *, last: bool) -> None:
        if not self.reached:
            raise ConnectionError("no server answers")
        if self.unusable:
            raise ValueError("a gradient is not a finite number")
        self.told.append(("push", shard_index, lease))


def test_what_is_leased_after_a_lost_worker_has_a_higher_lease_wherever_it_goes(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushes, "registered", [told := Pushed()])
    stays, lost = agent.shards(0, 2, commit="ack"), agent.shards(1, 2, commit="ack")
    next(stays).done()
    begun = next(lost)
    begun.progress(3)
    assert agent.ledger is not None
    agent.ledger.turn(2, {0: 1})  # rank 0 continues in its process, which was started in round 1
    answer = agent.ledger.answer

    def answer_continuing(request: Request, now: float) -> Answer | None:
        return answer(request, now, 1)

    monkeypatch.setattr(agent.ledger, "answer", answer_continuing)
    for shard in stays:
        shard.done()
    assert [(kind, lease) for kind, shard_index, lease in told.told if shard_index == begun.index] == [
        ("cuts", 1),
        ("push", 1),
        ("cuts", 2),
        ("push", 2),
    ]


@pytest.mark.parametrize("what", ["a shard", "the others' positions"])
def test_nobody_waits_for_a_worker_that_waits_for_others(
    agent: Agent, crowd: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(pushes, "registered", [told := Pushed()])
    commit = "ack" if what == "a shard" else "checkpoint"
    made = [agent.shards(rank, 2, records=10, commit=commit) for rank in (0, 1)]
    first, second = [crowd.submit(next, each, None) for each in made] if commit == "checkpoint" else (None, None)
    shard = next(made[0]) if first is None else first.result(ENOUGH)
    told.rests.clear()
    waits = crowd.submit(drained, made[1]) if second is None else crowd.submit(made[0].state_dict)
    assert told.rests.wait(ENOUGH) and not waits.done()
    if second is None:
        assert shard is not None
        shard.done()
        made[0].flush()
    else:
        second.result(ENOUGH)
        made[1].state_dict()
    waits.result(ENOUGH)


def test_a_shard_of_which_nothing_was_pushed_is_given_back(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes, "registered", [told := Pushed()])
    refuses, other = agent.shards(0, 2, records=10, commit="ack"), agent.shards(1, 2, records=10, commit="ack")
    shard = next(refuses)
    told.unusable = True
    with pytest.raises(ValueError, match="finite"):
        shard.done()
    refuses.close()
    told.unusable = False
    assert [each.index for each in other if each.done() is None] == [shard.index]


def test_a_shard_whose_push_has_failed_is_not_given_back_before_its_round_is_over(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushes, "registered", [told := Pushed()])
    data = agent.shards(commit="ack")
    shard = next(data)
    told.reached = False
    with pytest.raises(ConnectionError):
        shard.done()
    data.close()
    assert agent.ledger is not None
    assert [owner.leases for owner in agent.ledger.state.owners] == [(Piece(shard.index),)]
    told.reached = True
    again = agent.shards(commit="ack", round=2)
    first, *_ = [other.index for other in again if other.done() is None]
    assert first == shard.index


@pytest.mark.parametrize("how", ["close", "with", "with an error", "garbage"])
def test_what_is_held_is_given_back(agent: Agent, how: str) -> None:
    data = agent.shards(commit="ack")
    if how == "close":
        left(data)
        data.close()
    elif how == "garbage":
        left(data)
        del data
        gc.collect()
    else:
        with contextlib.suppress(KeyError), data:
            left(data)
            if how == "with an error":
                raise KeyError
    assert agent.ledger is not None
    assert agent.ledger.position.todo[:1] == (Piece(3),)
    assert not any(owner.leases for owner in agent.ledger.state.owners)
    again = agent.shards(commit="ack")
    assert [shard.index for shard in again if shard.done() is None] == [*range(3, 10)]


def test_what_is_held_is_given_back_at_exit(agent: Agent) -> None:
    script = (
        "import elastic_run\n"
        "for shard in (data := elastic_run.data.shards('data', 100, shard_size=10, commit='ack')):\n"
        "    if shard.index == 3: break\n"
        "    shard.done()\n"
    )
    root = str(Path(next(iter(elastic_run.__path__))).parent)
    environment = environment_of(0, 1, 1, f"@{agent.name}") | {"PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=ENOUGH)
    assert agent.ledger is not None
    assert agent.ledger.position.todo[:1] == (Piece(3),)
    assert not any(owner.leases for owner in agent.ledger.state.owners)


def test_an_agent_that_is_silent_does_not_hold_up_the_end(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_client, "CLOSING", 0.01)
    data = agent.shards()
    next(data)
    agent.hold.clear()
    with pytest.raises(TimeoutError):
        data.close()
    agent.hold.set()


# -- loader processes -------------------------------------------------------------------------------------------------


def test_a_part_leases_in_another_process_and_this_one_says_what_is_done(agent: Agent) -> None:
    data = agent.shards(records=30, shard_size=10)
    part = data.part(1)
    script = (
        "import pickle, sys\n"
        "part = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "for shard in part: print(shard.index, len(shard.indices))\n"
    )
    root = str(Path(next(iter(elastic_run.__path__))).parent)
    told = subprocess.run(
        [sys.executable, "-c", script, pickle.dumps(part).hex()],
        env={"PYTHONPATH": root},
        check=True,
        timeout=ENOUGH,
        capture_output=True,
        text=True,
    )
    assert told.stdout.split() == ["0", "10", "1", "10", "2", "10"]
    data.mark(0)
    data.mark(1, 4)
    data.mark(2, 10)
    state = data.state_dict()
    assert (state["frontier"], state["todo"]) == (3, [[1, 4]])
    with pytest.raises(ShardsMisused, match="11 records of shard 1"):
        data.mark(1, 11)
    with pytest.raises(TypeError, match="offset=-2"):
        data.mark(1, -2)
    data.close()


def test_what_is_marked_where_outputs_lie_elsewhere_is_with_the_master_at_once(agent: Agent) -> None:
    data = agent.shards(commit="ack")
    shard = next(iter(data.part(1)))
    data.mark(shard.index)
    assert [mark.shard_index for mark in agent.heard[-1].marks] == [shard.index]


@pytest.mark.parametrize("commit", ["checkpoint", "ack"])
def test_parts_share_the_data_with_their_process(agent: Agent, crowd: ThreadPoolExecutor, commit: str) -> None:
    data = agent.shards(records=300, shard_size=10, commit=commit)
    shard_indices: list[int] = []
    process = Lock()  # the one that marks for its parts

    def take_all(number: int) -> None:
        for shard in data.part(number):
            with pytest.raises(ShardsMisused, match=r"Shards.mark\(shard.index\)"):
                shard.done()
            with process:
                shard_indices.append(shard.index)
                data.mark(shard.index, DONE)

    results([crowd.submit(take_all, number) for number in (1, 2)])
    data.flush()
    assert sorted(shard_indices) == [*range(30)]
    assert agent.ledger is not None and agent.ledger.finished


def test_a_part_that_ends_gives_back_what_it_has_not_given_out(agent: Agent) -> None:
    data = agent.shards(commit="ack")
    part = iter(data.part(1))
    one = next(part)
    next(part)
    part.close()
    data.mark(one.index)
    data.flush()
    assert agent.ledger is not None
    assert [len(owner.leases) for owner in agent.ledger.state.owners] == [0, 1]


# -- what the agent is told and asked besides ------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_writes_checkpoints_tells_of_them_when_training_has_gone_on(
    agent: Agent, crowd: ThreadPoolExecutor, rank: int
) -> None:
    environment = environment_of(rank, 2, 1, f"@{agent.name}") | {"ELASTIC_RUN_SCALE_UP": "commit"}
    data = Shards("data", 100, shard_size=10, environment=environment)
    other = agent.shards(1 - rank, 2)
    results([crowd.submit(each.state_dict) for each in (data, other)])
    shard = next(data)
    assert Call("saved", 1) not in agent.calls
    shard.progress(1)
    shard.done()
    assert agent.calls.count(Call("saved", 1)) == (rank == 0)


def test_an_answer_can_be_waited_for_again(agent: Agent) -> None:
    channel = Channel(f"@{agent.name}")
    agent.hold.clear()
    channel.send(Call("current", 1))
    assert not channel.ready()
    with pytest.raises(TimeoutError, match=r"has not answered for 0\.01 s"):
        channel.receive(0.01)
    agent.hold.set()
    assert channel.receive() == Back(current=True)
    channel.close()


def test_an_answer_that_is_there_can_be_seen(agent: Agent) -> None:
    channel = Channel(f"@{agent.name}")
    channel.send(Call("current", 1))
    until = time.monotonic() + ENOUGH
    while not channel.ready():
        assert time.monotonic() < until
    assert channel.receive(0.0001) == Back(current=True)
    assert not channel.ready()
    channel.close()


def test_the_agent_is_asked_whether_the_round_is_the_current_one(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(1, 2, 7, f"@{agent.name}").items():
        monkeypatch.setenv(name, value)
    assert is_current_round()
    agent.current = False
    assert not is_current_round()
    assert agent.calls == [Call("current", 7)] * 2


def test_where_nobody_can_be_asked_it_is_not_current(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(0, 1, 7, "@elastic-run-nobody").items():
        monkeypatch.setenv(name, value)
    assert not is_current_round()
    monkeypatch.setenv(AGENT, f"@{agent.name}")
    monkeypatch.setattr("elastic_run.adapters.client.current_round.ASKING", 0.01)
    agent.hold.clear()
    assert not is_current_round()
    agent.hold.set()
    monkeypatch.delenv(AGENT)
    assert not is_current_round()
