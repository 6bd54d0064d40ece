"""Leased shards in a DataLoader: batches in this process and in others, positions that only commits move, misuse."""

import contextlib
import faulthandler
import json
import operator
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402  # only where torch is

from elastic_run.adapters.client import pushes  # noqa: E402
from elastic_run.adapters.client.context import AGENT, RANK_VARIABLES, ROUND  # noqa: E402
from elastic_run.adapters.client.ledger_client import HELD, ShardsMisused, ShardsNotDone, ShardsRefused  # noqa: E402
from elastic_run.adapters.client.shards import Shards  # noqa: E402
from elastic_run.adapters.servers.errors import ServerFull  # noqa: E402
from elastic_run.adapters.torch import leased_batches  # noqa: E402
from elastic_run.master.data.shard import BadShardsState  # noqa: E402
from elastic_run.torch import ElasticIterableDataset, ElasticLoader, Records  # noqa: E402

from ....doubles.applied_marks import Applied, in_parts  # noqa: E402
from ....doubles.ledger_agent import ENOUGH, listening  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # a small machine is told that workers are many
]

LINGERS = pytest.mark.slow
"""Torch waits 5 s for a worker that has raised."""

Sample = tuple[int, int]

STANDS = 120.0
"""Seconds after which a loader's process that still stands prints where, and ends: its loader then says so at once."""

_tells: list[float] = []
os.register_at_fork(
    after_in_child=lambda: [faulthandler.dump_traceback_later(each, exit=True, file=2) for each in _tells]
)


@pytest.fixture(autouse=True)
def loaders_tell_where_they_stand() -> Iterator[None]:
    """Of a process that gives nothing the test itself could only say that it waited."""
    _tells.append(STANDS)
    yield
    _tells.clear()


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*RANK_VARIABLES, ROUND, AGENT):
        monkeypatch.delenv(name, raising=False)
    yield
    while _last:
        _last.pop().close()


_last: list[Shards] = []


def pairs(records: Records) -> Iterator[Sample]:
    """Of each record its epoch and its index."""
    return ((records.epoch, index) for index in records.indices)


def same(samples: list[Any]) -> list[Any]:
    """A batch as it is."""
    return samples


def alone(
    size: Any = 100, shard_size: int = 10, read: Callable[[Records], Iterable[Any]] = pairs, **more: Any
) -> "ElasticIterableDataset[Any]":
    """A world of one without a launcher; it is as if the one before had ended."""
    while _last:
        _last.pop().close()
    _last.append(Shards("data", size, shard_size=shard_size, environment={}, **more))
    return ElasticIterableDataset(_last[0], read)


def loader(dataset: "ElasticIterableDataset[Any]", batch_size: int, workers: int = 0, **more: Any) -> ElasticLoader:
    return dataset.loader(batch_size, num_workers=workers, **{"collate_fn": same, **more})


def trained(data: ElasticLoader, steps: int | None = None) -> list[Any]:
    """The records in the model after so many steps, of which each was committed."""
    records: list[Any] = []
    for batch in islice(data, steps):
        records += batch
        data.commit()
    return records


def each(epochs: int, size: int) -> Counter[Sample]:
    return Counter({(epoch, index): 1 for epoch in range(epochs) for index in range(size)})


# -- gradients that go to tables --------------------------------------------------------------------------------------


@pytest.fixture
def two_servers(monkeypatch: pytest.MonkeyPatch) -> Applied:
    monkeypatch.setattr(pushes, "registered", [made := in_parts()])
    return made


@pytest.mark.parametrize("commit", ["checkpoint", "ack"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_commit_pushes_one_batch_which_is_of_one_shard_and_crosses_no_mark(
    two_servers: Applied, workers: int, commit: str
) -> None:
    found = trained(loader(alone(50, commit=commit, shuffle=False), 3, workers))
    least = {"0": 3, "1": 4, "2": 10, "3": 5, "4": 0}
    assert Counter(found) == Counter((0, 10 * int(shard) + at) for shard in least for at in range(least[shard], 10))
    assert two_servers.marks == {shard: [10, 10] for shard in least}  # each push was found to fit
    assert Counter(two_servers.pushed) == Counter(
        [(3, 6), (6, 7), (7, 10), (4, 7), (7, 10), (5, 8), (8, 10), (0, 3), (3, 6), (6, 9), (9, 10)]
    )


def test_what_servers_refuse_is_committed_again(two_servers: Applied, monkeypatch: pytest.MonkeyPatch) -> None:
    data = loader(alone(50), 4)
    batches = iter(data)
    next(batches)
    with monkeypatch.context() as patched:
        patched.setattr(Applied, "push", lambda *_, **__: (_ for _ in ()).throw(ServerFull("no room")))
        with pytest.raises(ServerFull):
            data.commit()
    data.commit()
    assert two_servers.pushed == [(3, 7)]


def test_what_cannot_be_told_apart_in_tables_is_refused(two_servers: Applied) -> None:
    data = loader(dataset := alone(50), 4)
    batches = iter(data)
    next(batches)
    next(batches)
    with pytest.raises(ShardsMisused, match=r"commit\(\) of 2 batches, and gradients go to tables"):
        data.commit()
    with pytest.raises(ShardsMisused, match="2 batches of the one before are not committed"):
        iter(data)
    data.commit(1)
    data.commit()
    assert two_servers.pushed == [(3, 7), (7, 10)]
    with pytest.raises(ShardsMisused, match="a plain loop gives out samples"):
        iter(dataset)


# -- loops ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", ["checkpoint", "ack"])
@pytest.mark.parametrize(
    ("workers", "more"),
    [(0, {}), (1, {}), (3, {"prefetch_factor": 4}), (2, {"persistent_workers": True, "prefetch_factor": 1})],
)
def test_each_record_comes_once_in_each_epoch(workers: int, more: dict[str, Any], commit: str) -> None:
    data = loader(alone(103, 10, epochs=2, commit=commit), 8, workers, **more)
    sizes: list[int] = []
    found: Counter[Sample] = Counter()
    for batch in data:
        sizes.append(len(batch))
        found.update(batch)
        data.commit()
    assert found == each(2, 103)
    assert sizes == [8] * 25 + [6]


def test_a_loader_has_the_position_of_its_dataset() -> None:
    data = loader(alone(), 8)
    before = trained(data, 3)
    state = data.state_dict(3)
    again = loader(alone(), 5)
    again.load_state_dict(state)
    assert Counter(before + trained(again)) == each(1, 100)


def test_workers_that_are_spawned_get_their_orders_as_well() -> None:
    dataset = alone(40, 10, operator.attrgetter("indices"))
    found = trained(loader(dataset, 8, 2, multiprocessing_context="spawn", collate_fn=None))
    assert sorted(int(record) for record in found) == list(range(40))


def test_without_workers_the_order_is_that_of_the_shards() -> None:
    expected: list[int] = []
    with Shards("data", 100, shard_size=10, environment={}) as source:
        for shard in source:
            expected += shard.indices
            shard.done()
    assert [index for _, index in trained(loader(alone(), 7))] == expected


@pytest.mark.parametrize("workers", [0, 3])
def test_the_order_of_batches_follows_from_the_arguments(workers: int) -> None:
    assert trained(loader(alone(), 7, workers)) == trained(loader(alone(), 7, workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_read_by_name(tmp_path: Path, workers: int) -> None:
    sizes = {"a": 25, "b": 7, "empty": 0, "c": 12}
    for name, size in sizes.items():
        (tmp_path / name).write_text("".join(f"{name}{number}\n" for number in range(size)))

    def read(records: Records) -> Iterator[str]:
        with Path(records.file).open() as file:
            for line in islice(file, records.start + records.offset, records.start + records.offset + len(records)):
                yield line.strip()

    files = [(tmp_path / name, size) for name, size in sizes.items()]
    found = trained(loader(alone(files, 10, read, shuffle=False), 4, workers))
    assert sorted(found) == sorted(f"{name}{number}" for name, size in sizes.items() for number in range(size))


@pytest.mark.parametrize("workers", [0, 3])
def test_a_worker_reads_a_shard_in_one_go(tmp_path: Path, workers: int) -> None:
    def read(records: Records) -> Iterator[Sample]:
        (tmp_path / f"{records.key}-{records.offset}").touch()
        return pairs(records)

    trained(loader(alone(300, 60, read), 10, workers))
    opened = {path.name for path in tmp_path.iterdir()}
    whole = {f"e00000-s00000000{number}-0" for number in range(5)}
    assert whole <= opened
    assert opened == whole or workers, "with several, those without a shard help the others at the end"


def test_workers_that_help_with_a_large_shard_read_no_more_than_their_part(tmp_path: Path) -> None:
    def read(records: Records) -> Iterator[Sample]:
        (tmp_path / f"{records.offset}-{len(records)}").touch()
        return pairs(records)

    trained(loader(alone(1000, 1000, read), 10, 3))
    asked = [int(path.name.partition("-")[2]) for path in tmp_path.iterdir()]
    assert sorted(asked) == [10] * 99 + [1000]


def test_a_plain_loader_without_workers_will_do() -> None:
    dataset = alone(45, 10)
    found: list[Sample] = []
    for batch in DataLoader(dataset, batch_size=8, collate_fn=same):
        found += batch
        dataset.commit()
    assert Counter(found) == each(1, 45)


def test_the_words_for_a_shard_are_those_of_shards() -> None:
    seen: list[Records] = []

    def read(records: Records) -> Iterable[int]:
        seen.append(records)
        return records.indices

    trained(loader(alone([("a.csv", 4), ("b.csv", 3)], 4, read, shuffle=False), 4))
    assert seen == [
        Records(0, 0, "a.csv", 0, 4, "e00000-s000000000", 0, range(4)),
        Records(0, 1, "b.csv", 0, 3, "e00000-s000000001", 0, range(3)),
    ]


# -- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (2, 1)])
def test_another_loader_goes_on_where_the_commits_ended(before: int, after: int) -> None:
    dataset = alone(200, 16, epochs=2)
    batches = iter(data := loader(dataset, 8, before))
    found: Counter[Sample] = Counter()
    for _ in range(13):
        found.update(next(batches))
        data.commit()
    next(batches)  # given out and not committed; more is fetched
    state = json.loads(json.dumps(dataset.state_dict(13)))
    again = alone(200, 16, epochs=2)
    again.load_state_dict(state)
    found.update(trained(loader(again, 5, after)))
    assert found == each(2, 200)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_what_was_committed_and_the_rest_is_each_record_once_in_each_epoch(draw: st.DataObject) -> None:
    # So few that all may be begun and not committed, also where each is a shard of its own: more are refused.
    size, epochs = draw.draw(st.integers(1, HELD // 3)), draw.draw(st.integers(1, 3))
    shard_size, shuffle = draw.draw(st.integers(1, 30)), draw.draw(st.booleans())
    in_model: Counter[Sample] = Counter()
    state: dict[str, object] | None = None
    for last in (False, False, True):
        dataset = alone(size, shard_size, epochs=epochs, shuffle=shuffle)
        if state is not None:
            dataset.load_state_dict(state)
        # As with so many workers: what the orders are is the main process's business.
        workers, ahead = draw.draw(st.integers(1, 5)), draw.draw(st.integers(0, 6))
        orders = Ordered(dataset, draw.draw(st.integers(1, 20)), workers, ahead)
        waiting: list[list[Sample]] = []
        for batch in islice(orders, None if last else draw.draw(st.integers(0, 40))):
            waiting.append(batch)
            if last or draw.draw(st.booleans()):
                count = len(waiting) if last else draw.draw(st.integers(1, len(waiting)))
                dataset.commit(count)
                for _ in range(count):
                    in_model.update(waiting.pop(0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # nothing may have been committed
            state = dataset.state_dict()
    assert in_model == each(epochs, size)


class Ordered:
    """A loader that deals out orders as torch's does, `ahead` of them, to workers that are objects in this process."""

    def __init__(self, dataset: "ElasticIterableDataset[Any]", batch_size: int, workers: int, ahead: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leased_batches, "DataLoader", lambda *_, **__: self)  # in place of torch's
            self._loader = dataset.loader(batch_size)
        self._dataset, self._batch_size, self._workers, self._ahead = dataset, batch_size, workers, ahead
        self._looping = False

    def __iter__(self) -> Iterator[Any]:
        if not self._looping:
            self._looping = True
            return iter(self._loader)
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        from elastic_run.adapters.client.orders import Reader

        queue = self._dataset._queue
        readers = [Reader(pairs, queue.layout) for _ in range(self._workers)]
        orders = enumerate(queue.orders(self._batch_size, self._workers))
        ready: list[Any] = []
        while True:
            ready += islice(orders, self._ahead + 1 - len(ready))
            if not ready:
                return
            number, order = ready.pop(0)
            yield readers[number % self._workers].__getitems__(order)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_is_left_is_begun_again_after_the_last_commit(workers: int) -> None:
    data = loader(alone(100, 16), 8, workers, persistent_workers=workers > 0)
    found = trained(data, 4)
    for batch in islice(data, 3):  # not committed
        assert len(batch) == 8
    found += trained(data)
    assert Counter(found) == each(1, 100)


def test_what_a_loop_that_is_left_had_not_committed_is_not_committed_by_the_next() -> None:
    dataset = alone(100, 16)
    data = loader(dataset, 8)
    assert len(list(islice(data, 3))) == 3
    found = trained(data, 1)
    state = dataset.state_dict()
    again = alone(100, 16)
    again.load_state_dict(state)
    found += trained(loader(again, 8))
    assert Counter(found) == each(1, 100)


def test_several_batches_may_be_one_step() -> None:
    data = loader(alone(100, 16), 8)
    found: list[Sample] = []
    for number, batch in enumerate(data, 1):
        found += batch
        if number % 4 == 0:
            data.commit()
    data.commit()  # of the last step, which has a batch
    assert Counter(found) == each(1, 100)
    assert list(data) == []


def test_a_batch_that_was_drawn_ahead_is_not_committed() -> None:
    dataset = alone(100, 16)
    batches = iter(data := loader(dataset, 8))
    found, held = next(batches), next(batches)
    data.commit(1)
    state = dataset.state_dict()
    again = alone(100, 16)
    again.load_state_dict(state)
    rest = trained(loader(again, 8))
    assert set(held) <= set(rest)
    assert Counter(found + rest) == each(1, 100)


def test_nothing_is_left_of_data_that_is_done() -> None:
    dataset = alone(20, 10)
    trained(loader(dataset, 8))
    state = dataset.state_dict()
    again = alone(20, 10)
    again.load_state_dict(state)
    assert list(loader(again, 8, 2)) == []


def test_a_checkpoint_without_any_commit_is_told() -> None:
    dataset = alone()
    batches = iter(loader(dataset, 8))
    dataset.state_dict()
    next(batches)
    with pytest.warns(RuntimeWarning, match=r"none was committed.*call commit\(\)"):
        dataset.state_dict()


def test_another_datasets_position_is_refused() -> None:
    with pytest.raises(BadShardsState, match="has size=100, and this one size=101"):
        alone(101).load_state_dict(alone().state_dict())


# -- several ranks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", ["checkpoint", "ack"])
def test_ranks_share_each_epoch(commit: str) -> None:
    with ThreadPoolExecutor(3) as crowd, listening() as agent:
        sources = [agent.shards(rank, 3, 500, 7, epochs=2, commit=commit) for rank in range(3)]
        data = [loader(ElasticIterableDataset(source, pairs), 8) for source in sources]
        found = Counter(record for each_ in crowd.map(trained, data, timeout=ENOUGH) for record in each_)
        for source in sources:
            source.close()
    assert found.keys() == each(2, 500).keys()
    if commit == "checkpoint":  # else an idle rank may do what waits in another's queue
        assert found == each(2, 500)


def test_with_ack_what_another_rank_gives_back_is_done_here() -> None:
    with ThreadPoolExecutor(1) as crowd, listening() as agent:
        one, two = (agent.shards(rank, 2, 30, 10, commit="ack") for rank in range(2))

        def read(records: Records) -> Iterator[Sample]:
            if not agent.clock:
                agent.move(10.0)  # so long takes a shard: nobody is slow
            return pairs(records)

        held = next(one)
        one.flush()
        rest = crowd.submit(trained, loader(ElasticIterableDataset(two, read), 4))
        assert agent.waits.wait(ENOUGH)
        one.close()
        assert Counter(rest.result(ENOUGH)) == each(1, 30)
        assert rest.result()[-10:] == [(0, index) for index in held.indices]
        two.close()


def test_with_ack_a_shard_is_done_when_its_last_batch_is_committed() -> None:
    with listening() as agent:
        source = agent.shards(records=30, shard_size=10, commit="ack")
        batches = iter(data := loader(ElasticIterableDataset(source, pairs), 4))
        shard_indices: list[list[int]] = []
        for _ in range(6):
            next(batches)
            data.commit()
            source.flush()
            assert agent.ledger is not None
            shard_indices.append([piece.shard_index for piece in agent.ledger.position.todo])
        assert [0 in todo for todo in shard_indices] == [True, True, False, False, False, False]
        assert [1 in todo for todo in shard_indices] == [True, True, True, True, False, False]
        source.close()


def test_with_ack_the_loop_does_not_end_over_batches_that_are_not_committed() -> None:
    data = loader(alone(20, 10, commit="ack"), 8)
    found: list[Sample] = []
    with pytest.raises(ShardsNotDone, match="3 batches are not committed, and no others are available now"):
        for batch in data:
            found += batch
    data.commit()
    found += trained(data)
    assert Counter(found) == each(1, 20)


def test_ranks_that_declare_other_data_are_told_before_workers_are_started() -> None:
    with ThreadPoolExecutor(1) as crowd, listening() as agent:
        one, two = agent.shards(0, 2, 100), agent.shards(1, 2, 101)
        first = crowd.submit(next, one)
        assert agent.waits.wait(ENOUGH)
        with pytest.raises(ShardsRefused, match="size is 101 and not 100"):
            next(iter(loader(ElasticIterableDataset(two, pairs), 8, 2)))
        two.close()
        next(third := agent.shards(1, 2, 100))
        first.result(ENOUGH)
        one.close()
        third.close()


# -- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=LINGERS)])
@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda records: records.indices[:7], r"too few samples for shard e00000-s00000000\d \(records \d+ to \d+ of "),
        (lambda records: [*records.indices, 0], r"too many samples for shard e00000-s00000000\d \(records \d+ to \d+"),
    ],
)
def test_a_reader_that_gives_other_than_what_was_asked_for_is_told(
    read: Callable[[Records], list[int]], words: str, workers: int
) -> None:
    with pytest.raises(ShardsMisused, match=words):
        trained(loader(alone([("a", 50), ("b", 50)], 10, read), 4, workers))


@pytest.mark.parametrize("context", [pytest.param("fork", marks=LINGERS), "spawn"])
def test_a_plain_loader_with_workers_is_refused(context: str) -> None:
    dataset = alone(10, 10, operator.attrgetter("indices"))
    with pytest.raises(ShardsMisused, match=r"leases in the main process.*use dataset.loader\(batch_size"):
        next(iter(DataLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context=context)))


def test_a_plain_loader_is_refused_with_ack() -> None:
    with pytest.raises(ShardsMisused, match=r"use dataset.loader\(batch_size"):
        next(iter(alone(commit="ack")))


def test_a_commit_needs_batches() -> None:
    data = loader(alone(), 8)
    with pytest.raises(ShardsMisused, match="nothing was given out since the last commit, or since this loop began"):
        data.commit()
    batches = iter(data)
    next(batches)
    for wrong in (0, True, "1"):
        with pytest.raises(TypeError, match="whole number of batches from 1"):
            data.commit(wrong)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ShardsMisused, match=r"commit\(2\) although only 1 batches"):
        data.commit(2)
    data.commit()
    with pytest.raises(ShardsMisused, match="nothing was given out since the last commit"):
        data.commit()
    next(batches)
    data.commit()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_is_over_when_another_is_begun(workers: int) -> None:
    data = loader(alone(), 8, workers, persistent_workers=workers > 0)
    first, second = iter(data), iter(data)
    with pytest.raises(ShardsMisused, match="this loop over the loader has ended"):
        next(first)
    batch = next(second)
    third = iter(data)
    assert next(third) == batch
    with pytest.raises(ShardsMisused, match="only one loop at a time"):
        next(second)
    data.commit()
    assert set(next(third)).isdisjoint(batch)


def test_a_position_comes_before_the_first_batch() -> None:
    dataset = alone()
    state = dataset.state_dict()
    next(iter(dataset))
    with pytest.raises(ShardsMisused, match="after the first use"):
        dataset.load_state_dict(state)


@pytest.mark.parametrize(
    "more",
    [{"drop_last": True}, {"in_order": False}, {"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}],
)
def test_arguments_that_would_lose_records_or_their_order_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ShardsMisused, match=rf"{next(iter(more))}=.*leave it out"):
        alone().loader(8, **more)
    alone().loader(8, drop_last=False, shuffle=False, sampler=None)


@pytest.mark.parametrize("wrong", [0, -1, True, None, 1.5])
def test_a_batch_has_records(wrong: Any) -> None:
    with pytest.raises(TypeError, match="must be a whole number from 1"):
        alone().loader(wrong)


def test_too_many_small_shards_at_once_are_told() -> None:
    with pytest.raises(ShardsNotDone, match=r"256 shards are started and not committed.*use larger shards"):
        next(iter(loader(alone(1000, 1), 300)))


def test_who_iterates_over_the_source_as_well_is_told() -> None:
    dataset = alone(10, 10)
    with contextlib.closing(dataset._queue.source) as source:
        shard = next(source)
        with pytest.raises(ShardsNotDone, match=shard.key):
            next(iter(dataset))
