"""The number of workers does not change the training: with a fixed global batch, every step has the same records.

The script is `examples/convergence.py`, whose ranks write down which records they trained on.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .cluster import EXAMPLES, Cluster

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.torch

EPOCHS = 6
STEPS_PER_EPOCH = 29
"""1,437 records in steps of 48, and what is left joins the last."""


@dataclass(frozen=True, slots=True)
class Logged:
    """One step as the ranks of one round wrote it down.

    Attributes:
        records: those of all ranks that wrote, sorted.
        ranks: how many have written; where the round was ended within the step, not all.
        world: how many there were.
    """

    records: tuple[int, ...]
    ranks: int
    world: int


def train(job: Cluster, run: str, *nodes: str, nnodes: str, step_seconds: float = 0.0) -> Path:
    """Starts the training with files of its own, and does not wait; the folder of its files."""
    folder = job.directory / run
    folder.mkdir()
    job.start(
        *nodes,
        script=EXAMPLES / "convergence.py",
        args=["train", f"--checkpoint={folder / 'digits.pt'}", f"--log={folder}", f"--epochs={EPOCHS}",
              "--fixed-global-batch=48", "--batch-size=16", "--save-every=40", f"--step-seconds={step_seconds}"],
        env={"OMP_NUM_THREADS": "1"},
        nnodes=nnodes,
        rdzv_id=f"{job.job}-{run}",
    )  # fmt: skip
    return folder


def logged(folder: Path) -> dict[int, dict[int, Logged]]:
    """What was trained on, by round and step."""
    ranks: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    worlds: dict[int, int] = {}
    for path in folder.glob("round-*.jsonl"):
        round_ = int(path.name.split("-")[1])
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # else its writer was killed
                entry: dict[str, Any] = json.loads(line)  # Any: JSON
                ranks[round_, entry["step"]].append(entry["records"])
                worlds[round_] = entry["world"]
    found: dict[int, dict[int, Logged]] = defaultdict(dict)
    for (round_, step), shares in ranks.items():
        records = tuple(sorted(record for share in shares for record in share))
        found[round_][step] = Logged(records, len(shares), worlds[round_])
    return dict(found)


def sequence(rounds: Mapping[int, Mapping[int, Logged]]) -> list[tuple[int, ...]]:
    """The records of each step of the whole training; a step that was done again must have had the same."""
    steps: dict[int, tuple[int, ...]] = {}
    for round_, entries in rounds.items():
        for step, entry in entries.items():
            if entry.ranks == entry.world:
                assert steps.setdefault(step, entry.records) == entry.records, f"step {step} in round {round_}"
    assert sorted(steps) == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    for round_, entries in rounds.items():
        for step, entry in entries.items():
            assert set(entry.records) <= set(steps[step]), f"step {step} in round {round_}, which it was the last of"
    return [steps[step] for step in sorted(steps)]


def losses(folder: Path) -> list[float]:
    """The curve in the last checkpoint: the loss on the test records, at the same places in every run."""
    import torch  # not on machines without it, where the marker leaves this out

    curve: list[tuple[int, float, float, int]] = torch.load(folder / "digits.pt", weights_only=True)[0]["curve"]
    return [loss for _, loss, _, _ in curve]


def test_the_sequence_of_global_batches_is_the_same_with_one_worker_and_with_a_number_that_changes(
    job: Cluster,
) -> None:
    one = train(job, "one", "A", nnodes="1:1")
    assert job.finish() == {"A": 0}

    # Two workers; one of them is killed; a machine is killed; another comes. A step takes at least 60 ms, so that
    # each of this happens before the next checkpoint, of which there is one in two seconds.
    changing = train(job, "changing", "A", "B", nnodes="1:2", step_seconds=0.06)
    job.wait_anywhere(r"epoch 1/\d+ of seed 0: 2 ranks")
    job.kill_worker(1)
    job.wait_anywhere(r"round 2: ")
    job.wait_anywhere(r"epoch 2/\d+ of seed 0: 2 ranks")
    job.kill_machine("B")
    job.wait_for_line("A", r"round 3: 2 -> 1 node")
    job.wait_for_line("A", r"epoch 3/\d+ of seed 0: 1 ranks")
    job.start("C", env={"OMP_NUM_THREADS": "1"})
    assert job.finish() == {"A": 0, "C": 0}

    rounds = logged(changing)
    worlds = {number: {entry.world for entry in steps.values()} for number, steps in rounds.items()}
    assert worlds == {1: {2}, 2: {2}, 3: {1}, 4: {2}}
    done_again = sum(len(steps) for steps in rounds.values()) - EPOCHS * STEPS_PER_EPOCH
    assert done_again > 0, "no step was done again: the faults came right after a checkpoint"

    expected = sequence(logged(one))
    assert {len(batch) for batch in expected} == {48, 48 + 45}
    for epoch in range(EPOCHS):
        batches = expected[epoch * STEPS_PER_EPOCH : (epoch + 1) * STEPS_PER_EPOCH]
        assert sorted(record for batch in batches for record in batch) == list(range(1437))
    assert sequence(rounds) == expected

    # The sums of the gradients are rounded in another order, and that is all.
    assert losses(changing) == pytest.approx(losses(one), abs=1e-3)
