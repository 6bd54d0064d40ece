"""The batch sampler in a DataLoader: one loop per epoch, positions that only commits move, and misuse that is told."""

import copy
import gc
import json
import pickle
import subprocess
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402  # only where torch is

import elastic_run  # noqa: E402
from elastic_run.adapters.client import pushes, step_rows  # noqa: E402
from elastic_run.adapters.client.context import RANK_VARIABLES  # noqa: E402
from elastic_run.adapters.servers.own_server import OwnServer  # noqa: E402
from elastic_run.adapters.servers.session import ServersClient  # noqa: E402
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros  # noqa: E402
from elastic_run.adapters.torch.lockstep_batches import permuted  # noqa: E402
from elastic_run.master.data.lockstep import BadSampler, BadSamplerState, SamplerMisused, WorldSizeRefused  # noqa: E402
from elastic_run.master.data.permutation import Permutation, key  # noqa: E402
from elastic_run.torch import ElasticBatchSampler  # noqa: E402

pytestmark = pytest.mark.torch


class Numbers(Dataset[int]):
    """Each record is its own index."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        assert 0 <= index < self._size
        return index


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RANK_VARIABLES, "ELASTIC_RUN_MAX_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def stand(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    """From now on this process is that rank."""
    for name, value in zip(RANK_VARIABLES, (rank, size, rank, size), strict=True):
        monkeypatch.setenv(name, str(value))


def loader(sampler: ElasticBatchSampler, size: int, workers: int = 0) -> "DataLoader[int]":
    with warnings.catch_warnings():  # a machine of one core is told that two workers are many
        warnings.simplefilter("ignore")
        return DataLoader(Numbers(size), batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0)


def committed(sampler: ElasticBatchSampler, batches: Iterator[list[int]], steps: int) -> list[int]:
    """Trains that many steps; the records that are in the model now."""
    records: list[int] = []
    for _ in range(steps):
        for _ in range(sampler.accumulate):
            records += [int(record) for record in next(batches)]
        sampler.commit()
    return records


# -- loops ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_each_loop_over_a_loader_is_one_epoch_in_an_order_of_its_own(workers: int) -> None:
    sampler = ElasticBatchSampler(50, 8, epochs=3)
    data = loader(sampler, 50, workers)
    orders: list[tuple[int, ...]] = []
    for epoch in range(sampler.epoch, 3):
        assert (sampler.epoch, len(data), sampler.remaining) == (epoch, 7, 7)
        seen: list[int] = []
        for batch in data:
            seen += batch.tolist()
            sampler.commit()
        assert sorted(seen) == list(range(50))
        orders.append(tuple(seen))
    assert len(set(orders)) == 3
    assert (sampler.epoch, sampler.step, len(sampler), list(data)) == (3, 21, 0, [])


def test_without_shuffling_the_order_is_the_datasets() -> None:
    sampler = ElasticBatchSampler(10, 4, shuffle=False)
    assert list(sampler) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_all_ranks_together_see_each_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[int] = Counter()
    lengths: set[int] = set()
    for rank in range(3):
        stand(monkeypatch, rank, 3)
        batches = list(ElasticBatchSampler(50, 4))
        lengths.add(len(batches))
        seen.update(record for batch in batches for record in batch)
    assert (seen, lengths) == (Counter(range(50)), {4})


def test_the_rest_of_an_epoch_goes_on_at_another_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ElasticBatchSampler(50, 4, epochs=2)
    seen = Counter(committed(alone, iter(alone), 3))
    state = json.loads(json.dumps(alone.state_dict()))
    for rank in range(3):
        stand(monkeypatch, rank, 3)
        sampler = ElasticBatchSampler(50, 4, epochs=2)
        sampler.load_state_dict(state)
        assert (sampler.epoch, sampler.step) == (0, 3)
        seen.update(committed(sampler, iter(sampler), sampler.remaining))
        assert sampler.epoch == 1
    assert seen == Counter(range(50))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_loader_has_fetched_ahead_moves_nothing(workers: int) -> None:
    sampler = ElasticBatchSampler(40, 4, seed=3)
    data = loader(sampler, 40, workers)
    seen = committed(sampler, iter(data), 2)
    state = sampler.state_dict()
    assert (state["consumed"], state["step"], len(sampler)) == (8, 2, 8)
    other = ElasticBatchSampler(40, 4, seed=3)
    other.load_state_dict(state)
    seen += committed(other, iter(loader(other, 40, workers)), 8)
    assert sorted(seen) == list(range(40))


def test_a_loop_that_is_left_is_begun_again_after_the_last_commit() -> None:
    sampler = ElasticBatchSampler(40, 4)
    data = loader(sampler, 40, 2)
    seen = committed(sampler, iter(data), 3)
    for batch in data:  # fetched and never committed
        assert len(batch) == 4
        break
    seen += committed(sampler, iter(data), 7)
    assert sorted(seen) == list(range(40))


def test_a_job_that_is_over_has_nothing_left_when_it_starts_again() -> None:
    sampler = ElasticBatchSampler(8, 4)
    committed(sampler, iter(sampler), 2)
    again = ElasticBatchSampler(8, 4)
    again.load_state_dict(sampler.state_dict())
    assert (again.epoch, len(again), again.remaining, list(again)) == (1, 0, 0, [])
    assert (again.weight, again.weights, again.accumulate) == (0.0, (), 1)


# -- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_of_several_batches_is_committed_once(workers: int) -> None:
    sampler = ElasticBatchSampler(55, 4, accumulate=3)
    data = loader(sampler, 55, workers)
    assert (len(data), sampler.remaining, sampler.accumulate) == (15, 5, 3)
    seen = committed(sampler, iter(data), 5)
    assert sorted(seen) == list(range(55))


def test_a_fixed_global_batch_says_how_many_batches_a_step_has(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: dict[int, list[set[int]]] = {}
    for size in (1, 2, 3, 5):
        steps[size] = [set() for _ in range(4)]
        for rank in range(size):
            stand(monkeypatch, rank, size)
            sampler = ElasticBatchSampler(100, 4, fixed_global_batch=24)
            batches = iter(sampler)
            for step in range(sampler.remaining):
                steps[size][step].update(committed(sampler, batches, 1))
    assert [len(step) for step in steps[1]] == [24, 24, 24, 28]
    assert all(found == steps[1] for found in steps.values())


def test_weights_make_the_mean_of_the_ranks_the_mean_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    total = 0.0
    for rank in range(2):
        stand(monkeypatch, rank, 2)
        sampler = ElasticBatchSampler(13, 3, accumulate=2, shuffle=False)
        batches = iter(sampler)
        assert sampler.remaining == 1
        assert sum(sampler.weights) == pytest.approx(sampler.weight)
        total += sum(weight * sum(batch) / len(batch) for weight, batch in zip(sampler.weights, batches, strict=True))
    assert total / 2 == pytest.approx(sum(range(13)) / 13)


def test_a_rank_that_no_record_is_left_for_has_weight_0(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ElasticBatchSampler(10, 4)
    committed(alone, iter(alone), 2)
    weights: list[float] = []
    for rank in range(4):
        stand(monkeypatch, rank, 4)
        sampler = ElasticBatchSampler(10, 4)
        sampler.load_state_dict(alone.state_dict())
        assert sampler.repeated == 2
        weights.append(sampler.weight)
        (batch,) = sampler
        assert len(batch) == 1
    assert weights == [2.0, 2.0, 0.0, 0.0]


def test_the_last_steps_leave_room_for_the_largest_world_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_RUN_MAX_WORLD_SIZE", "4")
    assert [len(batch) for batch in ElasticBatchSampler(10, 4)] == [4, 6]


def test_what_is_dropped_or_repeated_is_told() -> None:
    assert ElasticBatchSampler(10, 4, tail="drop").dropped == 2
    assert ElasticBatchSampler(10, 4, tail="pad").repeated == 2


# -- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_committing_twice_is_refused(workers: int) -> None:
    sampler = ElasticBatchSampler(100, 4)
    batches = iter(loader(sampler, 100, workers))
    committed(sampler, batches, 3)
    with pytest.raises(SamplerMisused, match="no batch was drawn since the last commit"):
        sampler.commit()
    assert sampler.step == 3
    committed(sampler, batches, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_committing_between_the_batches_of_a_step_is_refused(workers: int) -> None:
    sampler = ElasticBatchSampler(100, 4, accumulate=3)
    batches = iter(loader(sampler, 100, workers))
    committed(sampler, batches, 1)
    next(batches)
    with pytest.raises(SamplerMisused, match="it has 3, and 1 of them were drawn"):
        sampler.commit()
    next(batches)
    next(batches)
    sampler.commit()
    assert sampler.step == 2


def test_a_loader_that_is_asked_one_batch_ahead_commits_as_any_other() -> None:
    sampler = ElasticBatchSampler(101, 4, epochs=2)
    for _ in range(2):
        held: object = None
        for batch in loader(sampler, 101, 2):  # as one that copies the next batch to a device meanwhile
            if held is not None:
                sampler.commit()
            held = batch
        sampler.commit()
    assert sampler.epoch == 2


def test_a_thread_that_fetches_may_be_any_number_of_batches_ahead() -> None:
    sampler = ElasticBatchSampler(100, 4, accumulate=2)
    batches = iter(sampler)
    with ThreadPoolExecutor(1) as fetcher:
        fetcher.submit(lambda: [next(batches) for _ in range(5)]).result()
    sampler.commit()
    sampler.commit()
    with pytest.raises(SamplerMisused, match="it has 2, and 1 of them were drawn"):
        sampler.commit()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_commit_too_many_is_refused_at_the_end_of_an_epoch(workers: int) -> None:
    sampler = ElasticBatchSampler(8, 4, epochs=2)
    committed(sampler, iter(loader(sampler, 8, workers)), 2)
    with pytest.raises(SamplerMisused, match="every step of epoch 0 has been committed"):
        sampler.commit()


def test_committing_before_anything_was_drawn_is_refused() -> None:
    sampler = ElasticBatchSampler(8, 4)
    with pytest.raises(SamplerMisused, match="before any batch was drawn"):
        sampler.commit()
    iter(sampler)
    with pytest.raises(SamplerMisused, match="no batch was drawn"):
        sampler.commit()


class CountingTable:
    """On a server of this process: how often steps have had each record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = OwnServer(1 << 22)
        self.monkeypatch = monkeypatch
        self.begin()

    def begin(self) -> None:
        """The worker is another."""
        self.client = ServersClient(self.server)
        self.client.open_table(TableSpec("t", 1, SGD(1.0), Zeros()))
        self.monkeypatch.setattr(pushes, "registered", [self.client])
        self.monkeypatch.setattr(step_rows, "owners", {})

    def use(self, ids: list[int]) -> None:
        self.client.await_gradient("t", np.array(ids), lambda: np.full((len(ids), 1), -1.0, np.float32))

    def counts(self, size: int) -> list[float]:
        return self.client.pull("t", np.arange(size))[1][:, 0].tolist()


def train_with(table: CountingTable, sampler: ElasticBatchSampler, steps: int = 1000) -> list[int]:
    """How large the steps are that are left, or so many of them."""
    sizes: list[int] = []
    for batch in sampler:
        table.use(batch)
        sampler.commit()
        sizes.append(len(batch))
        if len(sizes) == steps:
            break
    return sizes


def test_rows_that_are_further_than_the_position_are_waited_for_and_crossed_by_no_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = CountingTable(monkeypatch)
    assert train_with(table, ElasticBatchSampler(20, 6), steps=2) == [6, 6]
    table.begin()  # from a checkpoint of before, and with other batches
    assert train_with(table, again := ElasticBatchSampler(20, 5)) == [5, 5, 2, 5, 3]
    assert table.counts(20) == [1.0] * 20 and again.epoch == 1
    words = "the tables have record 12 of epoch 0 already, and the position is record 0 of epoch 0"
    assert words in capsys.readouterr().err


def test_a_position_that_is_further_than_the_rows_goes_back_to_theirs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = CountingTable(monkeypatch)
    train_with(table, sampler := ElasticBatchSampler(20, 5, epochs=2))
    newer = sampler.state_dict() | {"epoch": 1, "consumed": 10}
    table.begin()
    again = ElasticBatchSampler(20, 5, epochs=2)
    again.load_state_dict(newer)
    assert train_with(table, again) == [5, 5, 5, 5]
    assert table.counts(20) == [2.0] * 20 and again.epoch == 2
    assert "the tables have record 0 of epoch 1, and the position was record 10 of epoch 1" in capsys.readouterr().err


def test_a_table_of_a_loop_that_runs_and_a_second_sampler_of_the_same_records_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = ElasticBatchSampler(100, 10)
    next(batches := iter(sampler))
    table = CountingTable(monkeypatch)
    with pytest.raises(SamplerMisused, match="declare all tables before it"):
        sampler.commit()
    del batches
    train_with(table, sampler, steps=1)
    with pytest.raises(SamplerMisused, match="a second ElasticBatchSampler with the same size and seed"):
        train_with(table, ElasticBatchSampler(100, 10), steps=1)
    assert train_with(table, ElasticBatchSampler(100, 10, seed=2), steps=1) == [10]


def test_an_epoch_without_any_commit_is_told_and_begun_again() -> None:
    sampler = ElasticBatchSampler(8, 4)
    first = list(sampler)
    with pytest.warns(RuntimeWarning, match=r"no step was committed.*call the sampler's commit\(\)"):
        assert list(sampler) == first


def test_after_a_restore_the_old_loop_is_over() -> None:
    sampler = ElasticBatchSampler(20, 4)
    batches = iter(sampler)
    committed(sampler, batches, 2)
    next(batches)
    sampler.load_state_dict(sampler.state_dict())
    with pytest.raises(SamplerMisused, match="this loop over the loader has ended"):
        next(batches)
    with pytest.raises(SamplerMisused, match="before any batch was drawn"):
        sampler.commit()
    assert len(committed(sampler, iter(sampler), 3)) == 12


def test_arguments_and_states_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSampler, match="size=-5"):
        ElasticBatchSampler(-5, 4)
    with pytest.raises(TypeError, match="size="):
        ElasticBatchSampler(Numbers(5), 4)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(BadSamplerState, match="another dataset"):
        ElasticBatchSampler(5, 4).load_state_dict(ElasticBatchSampler(6, 4).state_dict())
    stand(monkeypatch, 0, 6)
    with pytest.raises(WorldSizeRefused, match="5 records and the world 6 ranks"):
        ElasticBatchSampler(5, 4)


def test_only_asking_for_the_adapter_loads_torch() -> None:
    source = str(Path(next(iter(elastic_run.__path__))).parent)
    code = (
        f"import sys; sys.path.insert(0, {source!r}); import elastic_run; elastic_run.context(); "
        "assert 'torch' not in sys.modules; import elastic_run.torch; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@given(
    n=st.one_of(st.integers(1, 300), st.integers(300, 2**62)),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_arrays_of_indices_are_permuted_as_single_ones_are(n: int, seed: int, data: st.DataObject) -> None:
    permutation = Permutation(n, key(seed, 0))
    indices = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=40))
    found = [int(record) for record in permuted(permutation, torch.tensor(indices))]
    assert found == [permutation[index] for index in indices]


def test_commits_that_fall_behind_the_batches_are_noticed() -> None:
    sampler = ElasticBatchSampler(100, 2)
    loader = DataLoader(Numbers(100), batch_sampler=sampler)
    with pytest.warns(RuntimeWarning, match="2 batches were drawn since the last commit"):
        for number, _ in enumerate(loader):
            if number % 2:
                sampler.commit()


def test_a_loop_that_draws_one_batch_ahead_is_not_complained_of() -> None:
    sampler = ElasticBatchSampler(100, 2)
    batches = iter(DataLoader(Numbers(100), batch_sampler=sampler))
    following = next(batches, None)
    while following is not None:
        following = next(batches, None)
        sampler.commit()
    assert sampler.epoch == 1


def test_it_can_be_sent_to_another_process_and_copied_as_torchs_samplers_can() -> None:
    sampler = ElasticBatchSampler(10, 2)
    batches = list(ElasticBatchSampler(10, 2))
    for twin in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):
        assert list(twin) == batches
        assert twin.state_dict() == sampler.state_dict()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loaders_iterator_ends_with_its_loop_and_not_in_loader_processes_that_are_forked_later(workers: int) -> None:
    sampler = ElasticBatchSampler(8, 2)
    loader = DataLoader(Numbers(8), batch_sampler=sampler, num_workers=workers)
    gc.collect()
    gc.disable()
    try:
        batches = iter(loader)
        next(batches)
        known = weakref.ref(batches)
        del batches
        assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("state", [None, [], "x", 5])
def test_a_state_that_is_none_is_refused_in_words(state: object) -> None:
    with pytest.raises(BadSamplerState, match=r"not a result of `state_dict\(\)`"):
        ElasticBatchSampler(10, 2).load_state_dict(state)  # type: ignore[arg-type]  # that is the point


def test_a_loader_that_takes_batches_for_records_is_refused() -> None:
    sampler = ElasticBatchSampler(8, 2)
    with pytest.raises(TypeError, match=r"write DataLoader\(dataset, batch_sampler=sampler\)"):
        next(iter(DataLoader(TensorDataset(torch.arange(8)), sampler=sampler, batch_size=2)))


def test_a_loader_that_makes_no_batches_of_its_own_takes_them_as_they_are() -> None:
    class Rows(Dataset[list[int]]):
        def __getitem__(self, index: list[int]) -> list[int]:  # type: ignore[override]  # as torch's page on this shows
            return index

    sampler = ElasticBatchSampler(8, 2, shuffle=False)
    loader = DataLoader(Rows(), sampler=sampler, batch_size=None)  # type: ignore[arg-type]  # torch takes any
    assert [list(batch) for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
