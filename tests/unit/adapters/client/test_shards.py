"""Leased shards as a script sees them: alone, and with other ranks whose agent is a thread in this process."""

import copy
import gc
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elastic_run
from elastic_run.adapters.client import pushes
from elastic_run.adapters.client.context import AGENT, RANK_VARIABLES, ROUND, BadEnvironment
from elastic_run.adapters.client.current_round import is_current_round
from elastic_run.adapters.client.ledger_client import HELD, ShardsMisused, ShardsNotDone
from elastic_run.adapters.client.shards import Shard, Shards, shards
from elastic_run.adapters.client.whose_ledger import NoLedger
from elastic_run.master.data.shard import BadDataset, BadShardsState

from ....doubles.applied_marks import Applied, in_parts
from ....doubles.ledger_agent import alone, environment_of


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANK_VARIABLES, ROUND, AGENT):
        monkeypatch.delenv(name, raising=False)


# -- a world of one ---------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.integers(1, 300), st.integers(1, 50), st.integers(1, 3), st.booleans(), st.sampled_from(["checkpoint", "ack"])
)
def test_each_record_comes_once_in_each_epoch(
    size: int, shard_size: int, epochs: int, shuffle: bool, commit: str
) -> None:
    found: Counter[tuple[int, int]] = Counter()
    with alone(size, shard_size, epochs=epochs, shuffle=shuffle, commit=commit) as data:
        for shard in data:
            assert len(shard) == len(shard.indices)
            found.update((shard.epoch, index) for index in shard.indices)
            shard.done()
    assert found == Counter({(epoch, index): 1 for epoch in range(epochs) for index in range(size)})


def test_the_shards_come_in_the_order_of_the_layout() -> None:
    with alone(1000, 100, name="train", epochs=2, seed=7) as data:
        numbers: list[int] = []
        for shard in data:
            assert (shard.start, shard.stop) == (shard.number * 100, shard.number * 100 + 100)
            assert shard.index == len(numbers) and shard.offset == 0 and shard.file == ""
            numbers.append(shard.number)
            shard.done()
    assert numbers == [*(6, 9, 4, 8, 0, 3, 2, 1, 5, 7), *(6, 9, 1, 0, 5, 8, 7, 4, 2, 3)]


def test_files_are_named_and_counted_within() -> None:
    with alone([("a.csv", 25), (Path("b.csv"), 7)]) as data:
        found: Counter[tuple[str, int]] = Counter()
        for shard in data:
            found.update((shard.file, index) for index in shard.indices)
            shard.done()
    assert found == Counter({("a.csv", index): 1 for index in range(25)} | {("b.csv", index): 1 for index in range(7)})


def test_a_loop_that_is_left_and_begun_again_goes_on() -> None:
    with alone() as data:
        first = next(data)
        first.done()
        shard_indices = [first.index]
        for shard in data:
            shard_indices.append(shard.index)
            shard.done()
            if len(shard_indices) == 4:
                break
        for shard in data:
            shard_indices.append(shard.index)
            shard.done()
        assert next(data, None) is None
    assert shard_indices == [*range(10)]


def test_shards_says_what_it_is() -> None:
    with elastic_run.data.shards("data", 100, shard_size=10) as data:
        shard = next(data)
        assert isinstance(data, elastic_run.data.Shards) and isinstance(shard, elastic_run.data.Shard)
        assert repr(shard) == f"<Shard {shard.key}: records {shard.start} to {shard.stop}, 0 of them done>"
    assert shards is elastic_run.data.shards


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 30), st.integers(1, 3), st.integers(1, 3), st.data(), st.integers(0, 2**20))
def test_what_a_chain_of_checkpoints_contains_has_each_record_once_in_each_epoch(
    size: int, shard_size: int, before: int, after: int, choice: st.DataObject, seed: int
) -> None:
    in_model: Counter[tuple[int, int]] = Counter()
    with alone(size, shard_size, epochs=before, seed=seed) as data:
        for shard in data:
            count = choice.draw(st.integers(0, len(shard)))
            if count == len(shard):
                shard.done()
            else:
                shard.progress(count)
            in_model.update((shard.epoch, index) for index in shard.indices[:count])
            if count < len(shard):
                break
        state = data.state_dict()
    with alone(size, shard_size, epochs=after, seed=seed) as data:
        data.load_state_dict(state)
        for shard in data:
            in_model.update((shard.epoch, index) for index in shard.indices)
            shard.done()
    for epoch in range(after):
        assert all(in_model[epoch, index] == 1 for index in range(size))


def test_a_position_has_what_was_said_and_nothing_else() -> None:
    with alone() as data:
        one, two, three, four = (next(data) for _ in range(4))
        one.done()
        two.progress(4)
        four.progress(10)
        state = data.state_dict(step=3)
        todo = dict(tuple(pair) for pair in state["todo"])
        assert todo.pop(two.index) == 4
        assert todo.pop(three.index) == 0
        assert one.index not in todo and four.index not in todo
        four.done()
        two.progress(10)
        assert data.state_dict()["todo"] == [[index, offset] for index, offset in state["todo"] if index != two.index]
    with alone() as again:
        again.load_state_dict(state)
        assert again.state_dict() == state
        rest = next(again)
        assert (rest.index, rest.offset, len(rest)) == (two.index, 4, 6)
        assert rest.indices == list(two.indices)[4:]
        rest.progress(2)
        assert [two.index, 6] in again.state_dict()["todo"]


def test_a_state_is_the_same_until_something_is_done() -> None:
    with alone() as data:
        state = data.state_dict()
        assert state["frontier"] == 0 and state["todo"] == []
        assert data.state_dict() == state


def test_the_state_at_the_end_leaves_nothing_to_do() -> None:
    with alone() as data:
        for shard in data:
            shard.done()
        state = data.state_dict()
    assert (state["frontier"], state["todo"]) == (10, [])
    with alone() as again:
        again.load_state_dict(state)
        assert list(again) == []
    with alone(epochs=2) as more:
        more.load_state_dict(state)
        assert [next(more).epoch, next(more).epoch] == [1, 1]


def test_another_datasets_state_is_refused() -> None:
    with alone() as data:
        state = data.state_dict()
    with alone(101) as other, pytest.raises(BadShardsState, match="has size=100, and this one size=101"):
        other.load_state_dict(state)


def test_a_state_comes_before_the_first_shard() -> None:
    with alone() as data:
        state = data.state_dict()
        with pytest.raises(ShardsMisused, match="after the first use"):
            data.load_state_dict(state)


# -- what is computed from records goes to tables --------------------------------------------------------------------


@pytest.fixture
def two_servers(monkeypatch: pytest.MonkeyPatch) -> Applied:
    monkeypatch.setattr(pushes, "registered", [made := in_parts()])
    return made


@pytest.mark.parametrize("commit", ["checkpoint", "ack"])
def test_a_shard_comes_in_parts_where_servers_are_at_different_records(two_servers: Applied, commit: str) -> None:
    with alone(50, commit=commit) as data:
        parts: list[tuple[int, int]] = []
        for shard in data:
            parts.append((shard.index, shard.offset))
            assert (
                list(shard.indices)
                == list(data._layout.indices(data._layout.span(shard.index)))[  # pyright: ignore[reportPrivateUsage]
                    shard.offset : shard.offset + len(shard)
                ]
            )
            if len(shard) > 4:
                shard.progress(4)
            shard.done()
        assert two_servers.rests == 1
    assert parts == [(0, 3), (0, 7), (1, 4), (3, 5), (4, 0)]
    assert two_servers.pushed == [(3, 7), (7, 10), (4, 8), (8, 10), (5, 9), (9, 10), (0, 4), (4, 10)]


def test_a_position_among_the_parts_of_a_shard_is_where_the_last_of_them_ended(two_servers: Applied) -> None:
    with alone(50) as data:
        next(data).done()
        state = data.state_dict()
        assert state["todo"][0] == [0, 7]
    with alone(50) as again:
        again.load_state_dict(state)
        assert next(again).offset == 7


def test_a_position_that_is_newer_than_the_rows_leaves_no_record_out(
    two_servers: Applied, capfd: pytest.CaptureFixture[str]
) -> None:
    with alone(50) as data:
        for shard in data:
            shard.done()
        state = data.state_dict()
    two_servers.marks.clear()  # the rows are those of an older checkpoint, or new
    with alone(50) as again:
        again.load_state_dict(state)
        shards = [shard for shard in again if shard.done() is None]
    assert sorted(index for shard in shards for index in shard.indices) == [*range(50)]
    assert "goes on from what the rows of its tables have, and not from the position" in capfd.readouterr().err


def test_no_other_process_leases_what_this_one_pushes(two_servers: Applied) -> None:
    with alone(50) as data, pytest.raises(ShardsMisused, match=r"cannot be shared.*because gradients go to tables"):
        data.part(1)


def test_a_part_is_done_before_the_next(two_servers: Applied) -> None:
    with alone(50, commit="ack") as data:
        part = next(data)
        part.progress(4)
        for _ in range(2):
            with pytest.raises(ShardsMisused, match=r"Call done\(\) of a shard before the next"):
                next(data)
        part.done()
        data.close()
        with pytest.raises(ShardsMisused, match="was closed"):
            next(data)


def test_a_shard_of_one_dataset_is_done_before_one_of_another_begins(two_servers: Applied) -> None:
    with alone(50, name="clicks") as clicks, alone(50, name="views") as views:
        shard = next(clicks)
        with pytest.raises(ShardsMisused, match=r"'clicks' has shards that were started.*a shard of 'views' is wanted"):
            next(views)
        shard.done()  # a part of it
        next(views).done()
        next(clicks).done()


# -- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [{"size": 0}, {"size": []}, {"shard_size": 0}, {"epochs": 0}, {"commit": "never"}, {"name": ""}],
)
def test_what_cannot_be_is_refused_before_anything_starts(given: dict[str, Any]) -> None:
    with pytest.raises(BadDataset):
        alone(**given)


def test_a_shard_is_done_once() -> None:
    with alone() as data:
        shard = next(data)
        shard.done()
        with pytest.raises(ShardsMisused, match=f"twice for shard {shard.key}"):
            shard.done()
        with pytest.raises(ShardsMisused, match="after done"):
            shard.progress(1)


def test_progress_goes_forward_and_not_beyond_the_end() -> None:
    with alone() as data:
        shard = next(data)
        shard.progress(3)
        shard.progress(3)
        for count in (2, -1, 11):
            with pytest.raises(ShardsMisused, match=rf"progress\({count}\) of shard .* 3 of which"):
                shard.progress(count)
        for wrong in (True, 1.0, "4"):
            with pytest.raises(TypeError, match="whole number"):
                shard.progress(wrong)
        shard.progress(10)
        shard.done()


@pytest.mark.parametrize("commit", ["checkpoint", "ack"])
def test_a_loop_does_not_end_over_shards_that_are_not_done(commit: str) -> None:
    with alone(commit=commit) as data:
        had: list[Shard] = []
        with pytest.raises(ShardsNotDone, match=r"e00000-s00000000. and 5 more: call done"):
            for shard in data:
                had.append(shard)
        for shard in had:
            shard.done()
        assert list(data) == []


def test_too_many_begun_shards_are_told_early() -> None:
    with alone(10_000, 1) as data:
        had: list[Shard] = []
        with pytest.raises(ShardsNotDone, match="cannot hold more at once"):
            for shard in data:
                had.append(shard)
        assert len(had) == HELD
        had[0].done()
        assert next(data).index == HELD


def test_nothing_is_said_of_what_was_given_back() -> None:
    data = alone()
    one, two = next(data), next(data)
    one.done()
    data.close()
    data.close()
    with pytest.raises(ShardsMisused, match=r"returned by close\(\)"):
        two.done()
    with pytest.raises(ShardsMisused, match="was closed"):
        next(data)
    with pytest.raises(ShardsMisused, match="was closed"):
        data.flush()


def test_a_name_is_used_once_at_a_time() -> None:
    with alone() as data:
        next(data)
        other = alone()
        with pytest.raises(ShardsMisused, match="already used by this process"):
            next(other)
    next(alone())


def test_a_dataset_that_nobody_has_any_more_may_be_begun_again() -> None:
    next(alone())
    gc.collect(1)  # the youngest: all objects of all tests would take a second
    next(alone())


def test_ack_has_no_position_in_checkpoints() -> None:
    with alone() as data:
        state = data.state_dict()
    with alone(commit="ack") as data:
        with pytest.raises(ShardsMisused, match=r"state_dict.* with commit='ack'"):
            data.state_dict()
        with pytest.raises(ShardsMisused, match=r"load_state_dict.* with commit='ack'"):
            data.load_state_dict(state)


@pytest.mark.parametrize("step", [-1, True, "3", 1.0])
def test_a_step_is_a_number(step: Any) -> None:
    with alone() as data, pytest.raises(TypeError, match="whole number"):
        data.state_dict(step)


def test_a_forked_process_may_not_go_on_with_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    with alone() as data:
        shard = next(data)
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            with pytest.raises(ShardsMisused, match=r"shards.part\(number\)"):
                next(data)
            with pytest.raises(ShardsMisused, match=r"shards.part\(number\)"):
                shard.done()
            data.close()
        shard.done()
        next(data)


def test_it_is_not_sent_to_other_processes() -> None:
    with alone() as data, pytest.raises(TypeError, match=r"send a part of it, shards.part\(number\)"):
        pickle.dumps(data)


def test_a_shard_is_not_sent_to_other_processes_and_the_error_says_what_is() -> None:
    with alone() as data:
        shard = next(iter(data))
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="send its file, indices and key, and call done"):
                copied(shard)


def test_without_a_launcher_there_are_no_parts() -> None:
    with alone() as data:
        with pytest.raises(NoLedger, match="start the script with elastic-run"):
            data.part(1)
        for number in (0, True, "1"):
            with pytest.raises(TypeError, match="whole number from 1"):
                data.part(number)


def test_several_ranks_need_elastic_run() -> None:
    with pytest.raises(NoLedger, match=r"2 ranks share the data.*start the script with elastic-run"):
        Shards("data", 10, shard_size=1, environment=environment_of(0, 2))
    Shards("data", 10, shard_size=1, environment=environment_of(0, 1))


def test_half_an_environment_is_refused() -> None:
    with pytest.raises(NoLedger, match="has no ELASTIC_RUN_AGENT"):
        Shards("data", 10, shard_size=1, environment=environment_of(0, 1, 3))
    with pytest.raises(NoLedger, match="not the rank and the round of this process"):
        Shards("data", 10, shard_size=1, environment={AGENT: "@x"})
    with pytest.raises(BadEnvironment):
        Shards("data", 10, shard_size=1, environment={"RANK": "0"})


# -- what the agent is told and asked besides ------------------------------------------------------------------------


def test_without_elastic_run_every_checkpoint_may_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_current_round()
    for name, value in environment_of(0, 2).items():
        monkeypatch.setenv(name, value)
    assert elastic_run.is_current_round is is_current_round
