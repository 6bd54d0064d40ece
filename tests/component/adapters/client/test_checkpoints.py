"""`elastic_run.torch.Checkpoint` in one process: what it saves and restores, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import elastic_run  # noqa: E402
from elastic_run.adapters.client.checkpoints import differ  # noqa: E402
from elastic_run.exceptions import BadCheckpoint, BadShardsState, ShardsMisused  # noqa: E402
from elastic_run.torch import Checkpoint, ElasticBatchSampler, ElasticIterableDataset  # noqa: E402


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ELASTIC_RUN_AGENT", "ELASTIC_RUN_ROUND"):
        monkeypatch.delenv(name, raising=False)


_used: list[elastic_run.data.Shards] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _used:
        _used.pop().close()


def shards(size: int = 30, **more: Any) -> elastic_run.data.Shards:
    while _used:
        _used.pop().close()  # as a restart does
    _used.append(elastic_run.data.shards("data", size, shard_size=10, **more))
    return _used[-1]


class Value:
    """A part whose state is whatever it holds."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def state_dict(self) -> Any:
        return {"value": self.value}

    def load_state_dict(self, state_dict: Any) -> None:
        self.value = state_dict["value"]


def test_model_optimizer_and_position_come_back_together(tmp_path: Path) -> None:
    def parts() -> tuple[Any, Any, elastic_run.data.Shards, Checkpoint]:
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        data = shards()
        return (
            model,
            optimizer,
            data,
            Checkpoint(tmp_path / "run.pt", every=2, model=model, optimizer=optimizer, data=data),
        )

    model, optimizer, data, checkpoint = parts()
    assert not checkpoint.restore() and checkpoint.step == 0
    first = next(data)
    seen, saved = [], None
    for start in (0, 4, 8):
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        used = first.indices[start : start + 4]
        first.progress(start + len(used))
        if checkpoint.commit():
            saved = {name: each.clone() for name, each in model.state_dict().items()}
            seen += first.indices[: start + 4]
    assert saved is not None and checkpoint.step == 3

    model, optimizer, data, checkpoint = parts()
    assert checkpoint.restore() and checkpoint.step == 2
    assert all(torch.equal(saved[name], each) for name, each in model.state_dict().items())
    assert len(optimizer.state_dict()["state"]) == 2
    for shard in data:
        seen += shard.indices
        shard.done()
    assert sorted(seen) == list(range(30))
    checkpoint.save()
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_a_loader_and_a_sampler_are_parts_as_well(tmp_path: Path) -> None:
    def parts() -> tuple[Any, ElasticBatchSampler, Checkpoint]:
        dataset = ElasticIterableDataset(shards(), lambda records: list(records.indices))
        loader, sampler = dataset.loader(batch_size=4), ElasticBatchSampler(20, 2)
        return loader, sampler, Checkpoint(tmp_path / "run.pt", every=1, data=loader, sampler=sampler)

    loader, sampler, checkpoint = parts()
    batches, picked = iter(loader), iter(sampler)
    seen = next(batches).tolist()
    loader.commit()
    next(picked)
    sampler.commit()
    assert checkpoint.commit()
    next(batches)

    loader, sampler, checkpoint = parts()
    assert checkpoint.restore() and sampler.step == checkpoint.step == 1
    for batch in loader:
        seen += batch.tolist()
        loader.commit()
    assert sorted(seen) == list(range(30))


def test_what_a_killed_rank_0_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".run.pt.4711.part").write_text("half")
    Checkpoint(tmp_path / "run.pt", every=1, value=Value()).restore()
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    value = Value(1)
    checkpoint = Checkpoint(tmp_path / "run.pt", every=1, value=value)
    checkpoint.commit()
    value.value = lambda: None  # no pickle either
    with pytest.raises(Exception, match="pickle"):
        checkpoint.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
    fresh = Value()
    again = Checkpoint(tmp_path / "run.pt", every=1, value=fresh)
    assert again.restore() and (fresh.value, again.step) == (1, 1)


def test_a_state_that_could_not_be_restored_is_refused_at_the_first_save(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="a part has more in its state than tensors and plain values"):
        Checkpoint(tmp_path / "run.pt", every=1, value=Value(Path("x"))).save()
    assert not list(tmp_path.iterdir())


def test_other_parts_other_files_and_damage_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    Checkpoint(path, every=1, value=Value()).save()
    with pytest.raises(BadCheckpoint, match=r"has the parts value, and not other: give Checkpoint the same parts"):
        Checkpoint(path, every=1, other=Value()).restore()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadCheckpoint, match=r"run\.pt cannot be read"):
        Checkpoint(path, every=1, value=Value()).restore()
    torch.save({"model": {}}, path)
    with pytest.raises(BadCheckpoint, match="is no file that Checkpoint has written"):
        Checkpoint(path, every=1, value=Value()).restore()


def test_the_position_of_another_dataset_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "run.pt", every=1, data=shards()).save()
    with pytest.raises(BadShardsState):
        Checkpoint(tmp_path / "run.pt", every=1, data=shards(40)).restore()
    data = shards()
    checkpoint = Checkpoint(tmp_path / "run.pt", every=1, data=data)
    next(data)
    with pytest.raises(ShardsMisused, match="after the first use"):
        checkpoint.restore()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"every": 0, "value": Value()}, ValueError, "every=0 must be"),
        ({"every": "5", "value": Value()}, TypeError, "every='5' must be"),
        ({"every": 5}, ValueError, "a Checkpoint of no parts"),
        ({"every": 5, "step": 3}, TypeError, "step=int cannot be a part"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Checkpoint(tmp_path / "run.pt", **arguments)


def test_ranks_that_find_different_checkpoints_are_told_by_rank() -> None:
    assert differ([3, 3], "x") == differ([0], "x") == ""
    assert "at x: rank 0 finds one of step 3, and rank 1 none; put it" in differ([3, 0], "x")
    assert "rank 1 finds one of step 5, and rank 0 one of step 3" in differ([3, 5], "x")
