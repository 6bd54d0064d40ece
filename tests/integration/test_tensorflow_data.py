"""Leased shards in `tf.data`, and checkpoints of model and position: each record is in the model once an epoch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elastic_run
from elastic_run.data import Shards
from elastic_run.exceptions import BadCheckpoint, BadShardsState, ShardsMisused

from ..sampling import SEED, SOAK
from .cluster import SCRIPTS, Cluster

pytestmark = pytest.mark.xdist_group("tensorflow-data")

SECONDS = 150.0
"""For a round of fresh interpreters that all import TensorFlow, on a busy machine."""

EPOCHS = 2


def start(job: Cluster, *nodes: str, hold: tuple[int, ...] = (), more: tuple[str, ...] = (), **flags: str) -> None:
    args = (f"--checkpoint={job.directory / 'run'}", f"--epochs={EPOCHS}", *more, "--hold", *map(str, hold))
    env = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "1", "OWN_TMPDIR": str(job.directory)}
    script = SCRIPTS / "tensorflow_leased.py"
    job.start(*nodes, script=script, args=args, env=env, framework="tensorflow", **flags)


def assert_each_record_was_used(job: Cluster) -> None:
    times = np.load(job.directory / "run" / "times.npy")
    assert set(times) == {EPOCHS}, times
    left = sorted(entry.name for entry in (job.directory / "run").iterdir())
    assert len(left) == 2 and left[0].startswith("step-"), left


VICTIMS = [0, 1] * 5 if SOAK else [SEED % 2, 1 - SEED % 2]
"""The ranks of the workers that are killed, one after the other."""


def test_killed_workers_in_a_row_cost_no_record(job: Cluster) -> None:
    held = tuple(range(3, 3 + 4 * len(VICTIMS), 4))  # each between two saves
    start(job, "A", "B", hold=held, nnodes="2", max_restarts=str(len(VICTIMS)))
    for step, victim in zip(held, VICTIMS, strict=True):
        job.workers(2, SECONDS).wait_for(f"step {step}")
        job.kill_worker(victim)
    job.workers(2, SECONDS)
    assert job.finish(SECONDS) == {"A": 0, "B": 0}
    assert_each_record_was_used(job)


def test_nodes_that_come_and_go_cost_no_record(job: Cluster) -> None:
    start(job, "A", "B", hold=(5, 9), more=("--loop",), nnodes="1:3")
    workers = job.workers(2, SECONDS)
    workers.wait_for("step 5")
    first, other = workers.nodes
    start(job, "C", hold=(5, 9), more=("--loop",), nnodes="1:3")
    workers = job.workers(3, SECONDS)
    workers.wait_for("step 9")
    job.kill_machine(first)
    workers = job.workers(2, SECONDS)
    assert workers.nodes == [other, "C"]
    assert job.finish(SECONDS) == {other: 0, "C": 0}
    assert_each_record_was_used(job)


# -- in this process ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tf() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:  # the tests that come after this module start from what was there
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
        yield pytest.importorskip("tensorflow")


@pytest.fixture
def source() -> Any:
    with Shards("numbers", 100, shard_size=10, epochs=EPOCHS, environment={}) as made:
        yield made


def made(tf: Any, source: Shards, batch_size: int = 8) -> Any:
    return elastic_run.tensorflow.shards_dataset(
        source,
        lambda records: ((index, {"half": index / 2}) for index in records.indices),
        batch_size=batch_size,
        output_signature=(tf.TensorSpec((), tf.int64), {"half": tf.TensorSpec((), tf.float64)}),
    )


def test_a_dataset_has_every_record_once_an_epoch_and_its_structure(tf: Any, source: Shards) -> None:
    data = made(tf, source)
    seen: list[int] = []
    for indices, more in data.dataset().prefetch(3):
        np.testing.assert_array_equal(more["half"].numpy(), indices.numpy() / 2)
        seen += indices.numpy().tolist()
        data.commit()
    assert sorted(seen) == sorted([*range(100)] * EPOCHS)
    assert data.most_steps == 25


def test_a_commit_covers_the_oldest_batch_whatever_is_drawn_ahead(tf: Any, source: Shards) -> None:
    data = made(tf, source)
    used: list[int] = []
    for number, (indices, _) in enumerate(data.dataset().prefetch(5)):
        if number == 7:
            break
        used += indices.numpy().tolist()
        data.commit()
    position = data.state_dict()
    source.close()
    with Shards("numbers", 100, shard_size=10, epochs=EPOCHS, environment={}) as other:
        rest = made(tf, other)
        rest.load_state_dict(position)
        for indices, _ in rest.dataset():
            used += indices.numpy().tolist()
            rest.commit()
    assert sorted(used) == sorted([*range(100)] * EPOCHS)


def test_more_commits_than_batches_are_refused(tf: Any, source: Shards) -> None:
    data = made(tf, source)
    with pytest.raises(ShardsMisused, match="commit\\(\\) without a batch"):
        data.commit()


def test_what_cannot_be_committed_is_refused(tf: Any) -> None:
    source = Shards("numbers", 100, shard_size=10, commit="ack", environment={})
    with source, pytest.raises(ShardsMisused, match="commit='ack'"):
        made(tf, source)


def test_a_batch_size_that_is_no_number_is_refused(tf: Any, source: Shards) -> None:
    with pytest.raises(TypeError, match="batch_size=0"):
        made(tf, source, 0)


def test_the_position_is_not_iterated_over(tf: Any, source: Shards) -> None:
    with pytest.raises(TypeError, match="dataset\\(\\)"):
        iter(made(tf, source))


def test_parameter_servers_are_refused(tf: Any, source: Shards) -> None:
    class Strategy:
        class extended:
            _should_use_with_coordinator = True

    with pytest.raises(ShardsMisused, match="ParameterServerStrategy"):
        made(tf, source).distributed(Strategy())


class TestACheckpoint:
    def checkpoint(self, tf: Any, path: Path, **parts: Any) -> Any:
        return elastic_run.tensorflow.Checkpoint(path, every=2, **parts)

    def test_restores_model_and_position_and_keeps_one_folder(self, tf: Any, source: Shards, tmp_path: Path) -> None:
        weight, data = tf.Variable(0.0), made(tf, source)
        checkpoint = self.checkpoint(tf, tmp_path / "run", weight=weight, data=data)
        assert not checkpoint.restore()
        for indices, _ in data.dataset():
            weight.assign_add(float(len(indices)))
            data.commit()
            if checkpoint.commit() and checkpoint.step == 6:
                break
        assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["step-6"]
        source.close()
        with Shards("numbers", 100, shard_size=10, epochs=EPOCHS, environment={}) as other:
            weight, data = tf.Variable(0.0), made(tf, other)
            checkpoint = self.checkpoint(tf, tmp_path / "run", weight=weight, data=data)
            assert checkpoint.restore() and checkpoint.step == 6 and weight.numpy() == 48
            rest = sum(len(indices) for indices, _ in data.dataset())
            assert rest == 200 - 48

    def test_of_another_model_is_refused(self, tf: Any, tmp_path: Path) -> None:
        self.checkpoint(tf, tmp_path, weight=tf.Variable([0.0])).save()
        with pytest.raises(BadCheckpoint, match="not of this model"):
            self.checkpoint(tf, tmp_path, weight=tf.Variable([0.0, 0.0])).restore()

    def test_of_other_parts_is_refused(self, tf: Any, tmp_path: Path) -> None:
        self.checkpoint(tf, tmp_path, weight=tf.Variable(0.0)).save()
        with pytest.raises(BadCheckpoint, match="has the parts weight, and not bias"):
            self.checkpoint(tf, tmp_path, bias=tf.Variable(0.0)).restore()

    def test_of_other_data_is_refused(self, tf: Any, source: Shards, tmp_path: Path) -> None:
        data = made(tf, source)
        for _ in data.dataset().take(1):
            self.checkpoint(tf, tmp_path, data=data).save()
        source.close()
        with Shards("numbers", 50, shard_size=10, environment={}) as other, pytest.raises(BadShardsState):
            self.checkpoint(tf, tmp_path, data=made(tf, other)).restore()

    @pytest.mark.parametrize("file", ["position.json", "model.index"])
    def test_that_is_damaged_is_refused(self, tf: Any, tmp_path: Path, file: str) -> None:
        checkpoint = self.checkpoint(tf, tmp_path, weight=tf.Variable(0.0))
        checkpoint.save()
        (tmp_path / "step-0" / file).write_bytes(b"\0")
        with pytest.raises(BadCheckpoint, match="step-0"):
            checkpoint.restore()

    def test_takes_away_what_a_lost_rank_0_has_left(self, tf: Any, tmp_path: Path) -> None:
        (tmp_path / ".step-5.4711.part").mkdir()
        checkpoint = self.checkpoint(tf, tmp_path, weight=tf.Variable(0.0))
        checkpoint.save()
        checkpoint.save()  # the same step again: of a run that was told to begin anew
        assert [entry.name for entry in tmp_path.iterdir()] == ["step-0"]

    def test_that_cannot_be_written_says_so_and_leaves_the_one_before(self, tf: Any, tmp_path: Path) -> None:
        checkpoint = self.checkpoint(tf, tmp_path / "run", weight=tf.Variable(0.0))
        (tmp_path / "run").write_text("a file")
        with pytest.raises(OSError):
            checkpoint.save()

    def test_of_nothing_is_refused(self, tf: Any, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no parts"):
            self.checkpoint(tf, tmp_path)

    def test_of_a_part_that_tensorflow_cannot_save_is_refused(self, tf: Any, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="cannot be in a Checkpoint"):
            self.checkpoint(tf, tmp_path, function=print)
