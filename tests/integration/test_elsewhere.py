"""What works under other launchers: ElasticBatchSampler, and a script that trains in place."""

import collections
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elastic_run.elastic_agent.processes.guardian import children

from ..sampling import sample
from .cluster import EXAMPLES, SCRIPTS, command_line

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TORCHRUN = (str(Path(sys.executable).with_name("torchrun")), "--standalone")

SIZE, EPOCHS = 101, 3
"""As in the scripts."""


def torchrun(script: str, nproc: int, *args: object) -> "subprocess.CompletedProcess[str]":
    words = [*TORCHRUN, f"--nproc-per-node={nproc}", str(SCRIPTS / f"sampler_{script}.py"), *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


LIBRARIES = {
    "accelerate": "do not give the loader to prepare()",
    "lightning": "Trainer(use_distributed_sampler=False)",
}
"""What each is told that would deal the batches again. A run draws one of them."""

DRAWN = sample(LIBRARIES, 1, "elsewhere")


@pytest.mark.parametrize("script", ["torchrun", *DRAWN])
def test_each_record_is_used_once_in_each_epoch_though_the_world_has_changed(tmp_path: Path, script: str) -> None:
    for nproc, commits in ((3, 7), (2, 0)):  # stopped in the middle of the first epoch, and gone on with fewer
        done = torchrun(script, nproc, tmp_path, commits)
        assert done.returncode == 0, done.stderr
    used = collections.Counter((tmp_path / "used").read_text().splitlines())
    assert used == {f"{epoch} {record}": 1 for epoch in range(EPOCHS) for record in range(SIZE)}


@pytest.mark.parametrize("script", DRAWN)
def test_a_library_that_would_deal_the_batches_again_is_refused(tmp_path: Path, script: str) -> None:
    refused = torchrun(script, 2, tmp_path, 0, "deal them again")
    assert refused.returncode != 0
    assert LIBRARIES[script] in refused.stderr


IN_PLACE = EXAMPLES / "digits_in_place.py"
ACCURACY = "accuracy on 360 unseen digits"


def test_a_script_that_trains_in_place_runs_without_a_launcher(tmp_path: Path) -> None:
    words = [sys.executable, str(IN_PLACE), "--epochs=2", "--checkpoint", str(tmp_path / "digits.pt")]
    alone = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert alone.returncode == 0, alone.stderr
    assert ACCURACY in alone.stdout


def test_under_torchrun_it_restarts_from_its_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "digits.pt"
    # An epoch has 23 steps: it is to be killed within the 15 after the first checkpoint.
    words = ["--epochs=3", "--save-every=30", "--step-seconds=0.2", "--checkpoint", str(checkpoint)]
    job = subprocess.Popen(
        [*TORCHRUN, "--nproc-per-node=2", "--max-restarts=1", str(IN_PLACE), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 200
    while not checkpoint.exists() and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in children(job.pid) or ():
        if str(IN_PLACE) in command_line(pid):
            os.kill(pid, signal.SIGKILL)
            break
    out, err = job.communicate(timeout=300)
    assert job.returncode == 0, err
    assert out.count("a process group of 2 ranks") == 2, out
    assert [line.partition(",")[0] for line in out.splitlines() if line.startswith("epoch")] == [
        f"epoch {number}/3" for number in (1, 2, 3)
    ], "the first epoch, which the checkpoint has, is not trained again"
    assert ACCURACY in out
