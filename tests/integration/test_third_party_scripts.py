"""Scripts as people write them, which know nothing of the launcher. The texts are ours; the habits are the field's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import SCRIPTS, Cluster, failure


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A job of one node with two workers."""
    with Cluster(tmp_path / "job", None, failure(request)) as cluster:
        yield cluster


def run(job: Cluster, script: str, *args: str) -> list[str]:
    """Runs the script to its end; all that was printed."""
    job.start("A", script=SCRIPTS / script, args=args, standalone="", nproc_per_node=2)
    assert job.finish(120) == {"A": 0}, job.log("A")
    return job.nodes["A"].lines


@pytest.mark.torch
def test_a_trainer_with_a_snapshot_resumes_after_a_failure(job: Cluster) -> None:
    lines = run(job, "snapshot_trainer.py", "4", str(job.directory / "snapshot.pt"))
    assert "[A rank 0] resumes after epoch 2" in lines
    assert [line for line in lines if "is saved" in line] == [f"[A rank 0] epoch {n} is saved" for n in (1, 2, 3, 4)]
    assert {f"[A rank {rank}] training is complete" for rank in (0, 1)} <= set(lines)


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loaders_have_processes_of_their_own(job: Cluster, method: str) -> None:
    lines = run(job, "loader_workers.py", f"--start-method={method}")
    total = sum(number * number for number in range(48))
    for rank in (0, 1):
        assert f"[A rank {rank}] the sum of all squares is {total}, loaded by 2 processes" in lines


def test_a_script_may_have_pools_of_its_own(job: Cluster) -> None:
    lines = run(job, "own_pool.py")
    for rank in (0, 1):
        for method in ("fork", "spawn", "forkserver"):
            assert f"[A rank {rank}] rank {rank} {method}: [0, 2, 4, 6]" in lines


@pytest.mark.torch
def test_fully_sharded_training(job: Cluster) -> None:
    """Torch itself aborts now and then while such a script exits (under torchrun as well): then it is run again."""
    lines = run(job, "fsdp.py")
    for rank in (0, 1):
        found = {line for line in lines if line.startswith(f"[A rank {rank}] the loss has fallen: True; ")}
        assert len(found) == 1, lines
