"""What works under other launchers: ElasticBatchSampler under torchrun, with accelerate and Lightning."""

import collections
import subprocess
import sys
from pathlib import Path

import pytest

from .cluster import SCRIPTS

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SIZE, EPOCHS = 101, 3
"""As in the scripts."""


def torchrun(script: str, nproc: int, *args: object) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("torchrun")), "--standalone", f"--nproc-per-node={nproc}"]
    words = [*command, str(SCRIPTS / f"sampler_{script}.py"), *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("script", ["torchrun", "accelerate", "lightning"])
def test_each_record_is_used_once_in_each_epoch_though_the_world_has_changed(tmp_path: Path, script: str) -> None:
    for nproc, commits in ((3, 7), (2, 0)):  # stopped in the middle of the first epoch, and gone on with fewer
        done = torchrun(script, nproc, tmp_path, commits)
        assert done.returncode == 0, done.stderr
    used = collections.Counter((tmp_path / "used").read_text().splitlines())
    assert used == {f"{epoch} {record}": 1 for epoch in range(EPOCHS) for record in range(SIZE)}


@pytest.mark.parametrize(
    ("script", "what_to_do"),
    [("accelerate", "do not give the loader to prepare()"), ("lightning", "Trainer(use_distributed_sampler=False)")],
)
def test_a_library_that_would_deal_the_batches_again_is_refused(tmp_path: Path, script: str, what_to_do: str) -> None:
    refused = torchrun(script, 2, tmp_path, 0, "deal them again")
    assert refused.returncode != 0
    assert what_to_do in refused.stderr
