"""Scripts as people write them, which know nothing of the launcher. The texts are ours; the habits are the field's."""

import pytest

from .cluster import SCRIPTS, Cluster


def run(alone: Cluster, script: str, *args: str) -> list[str]:
    """Runs the script to its end; all that was printed."""
    alone.start("A", script=SCRIPTS / script, args=args, standalone="", nproc_per_node=2)
    assert alone.finish(120) == {"A": 0}, alone.log("A")
    return alone.nodes["A"].lines


@pytest.mark.torch
def test_a_trainer_with_a_snapshot_resumes_after_a_failure(alone: Cluster) -> None:
    lines = run(alone, "snapshot_trainer.py", "4", str(alone.directory / "snapshot.pt"))
    assert "[A rank 0] resumes after epoch 2" in lines
    assert [line for line in lines if "is saved" in line] == [f"[A rank 0] epoch {n} is saved" for n in (1, 2, 3, 4)]
    assert {f"[A rank {rank}] training is complete" for rank in (0, 1)} <= set(lines)


@pytest.mark.torch
def test_data_loaders_have_processes_of_their_own(alone: Cluster) -> None:
    lines = run(alone, "loader_workers.py", "--start-methods", "fork", "spawn")
    total = sum(number * number for number in range(48))
    for rank in (0, 1):
        for method in ("fork", "spawn"):
            assert f"[A rank {rank}] {method}: the sum of all squares is {total}, loaded by 2 processes" in lines


def test_a_script_may_have_pools_of_its_own(alone: Cluster) -> None:
    lines = run(alone, "own_pool.py")
    for rank in (0, 1):
        for method in ("fork", "spawn", "forkserver"):
            assert f"[A rank {rank}] rank {rank} {method}: [0, 2, 4, 6]" in lines


@pytest.mark.torch
def test_fully_sharded_training(alone: Cluster) -> None:
    """Torch itself aborts now and then while such a script exits (under torchrun as well): then it is run again."""
    lines = run(alone, "fsdp.py")
    for rank in (0, 1):
        found = {line for line in lines if line.startswith(f"[A rank {rank}] the loss has fallen: True; ")}
        assert len(found) == 1, lines
