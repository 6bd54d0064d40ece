"""Workers on GPUs. What each test shows on a CPU is only that its script runs: see `conftest.py`."""

import os
import re
from pathlib import Path

import pytest

from elastic_run.elastic_agent.diagnosis.stacks import MISSING, py_spy

from .conftest import devices
from .launched import Ran, run

pytestmark = pytest.mark.torch


def gpus() -> int:
    import torch

    return torch.cuda.device_count()


def nproc_of(device: str, wanted: int) -> int:
    """So many workers, or one for each GPU where there are fewer: NCCL takes one rank for each."""
    return min(wanted, gpus()) if device == "cuda" else wanted


@pytest.mark.parametrize("device", devices())
def test_nothing_that_workers_are_forked_from_has_a_device_open(tmp_path: Path, device: str) -> None:
    ran = run(tmp_path, "open_devices.py", device, "{mark}", nproc=2)
    assert ran.code == 0, ran.text
    if device == "cuda" and (why := ran.all("(workers start as fresh interpreters: .*)")):
        pytest.skip(f"NOT RUN: here no worker is forked: {why[0][0]}")
    told = ran.told()
    workers = {each["pid"] for each in told}
    assert len(workers) == 2
    for each in told:
        assert each["before"] == {}, "before any worker has used the device"
        assert {int(pid) for pid in each["after"]} == workers, "only who uses it has it open"
        assert set(each["with_torch"]) - workers, (
            "what workers are forked from has torch in memory, or nothing is shown"
        )


@pytest.mark.parametrize(("device", "word"), [pytest.param("cuda", "gpu", marks=pytest.mark.gpu), ("cpu", "cpu")])
def test_as_many_workers_as_there_are_devices(tmp_path: Path, device: str, word: str) -> None:
    ran = run(tmp_path, "places.py", device, nproc=word)
    assert ran.code == 0, ran.text
    told = ran.told()
    assert len(told) == told[0]["world"]
    assert {each["sum"] for each in told} == {45.0}
    if device == "cuda":
        assert len(told) == gpus()


@pytest.mark.parametrize("device", devices())
def test_each_worker_sees_its_own_device_as_the_first(tmp_path: Path, device: str) -> None:
    """The same device twice, so that one is enough for two workers."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"
    flags = ("--virtual-local-rank",)
    ran = run(tmp_path, "places.py", device, nproc=2, flags=flags, CUDA_VISIBLE_DEVICES=f"{first},{first}")
    assert ran.code == 0, ran.text
    told = ran.told()
    assert sorted(each["rank"] for each in told) == [0, 1]
    for each in told:
        assert (each["local_rank"], each["visible"], each["sum"]) == (0, first, 45.0)
        assert each["devices"] == (1 if device == "cuda" else 0)


@pytest.mark.gpu
def test_a_device_that_is_hidden_is_not_counted(tmp_path: Path) -> None:
    ran = run(tmp_path, "places.py", "cuda", nproc="gpu", CUDA_VISIBLE_DEVICES="")
    assert ran.code == 2, ran.text
    assert "no NVIDIA GPU is visible here" in ran.text


@pytest.mark.parametrize(("device", "backend"), [pytest.param("cuda", "nccl", marks=pytest.mark.gpu), ("cpu", "gloo")])
def test_ddp_goes_on_from_its_checkpoint_after_a_worker_was_killed(tmp_path: Path, device: str, backend: str) -> None:
    nproc = nproc_of(device, 2)
    ran = run(tmp_path, "ddp.py", device, backend, str(tmp_path / "saved"), nproc=nproc)
    assert ran.code == 0, ran.text
    begun = [int(step) for _, step in ran.all(r"pid (\d+) begins after step (\d+)")]
    assert begun[:nproc] == [0] * nproc
    assert len(begun) == 2 * nproc
    assert set(begun[nproc:]) <= {4, 5}
    assert ran.all(r"ends after step 10 on (\w+) with (\w+)") == [(device, backend)] * nproc


def stays(tmp_path: Path, device: str, backend: str) -> None:
    ran = run(tmp_path, "in_place.py", device, backend, str(tmp_path / "killed"), nproc=2)
    assert ran.code == 0, ran.text
    groups = ran.all(r"group (\d+): pid (\d+) rank (\d+) of (\d+) step (\d+)")
    stayed = {pid for _, pid, rank, *_ in groups if rank == "0"}
    replaced = {pid for _, pid, rank, *_ in groups if rank == "1"}
    assert (len(stayed), len(replaced)) == (1, 2), ran.text
    assert {int(step) for group, *_, step in groups if group != groups[0][0]} == {5}
    ends = ran.all(r"ends at (\S+); each step counts (.*); optimizer on (.*)")
    assert len(ends) == 2
    assert len(set(ends)) == 1, "all ranks have the same parameters, to the bit"
    assert ends[0][1:] == ("[1]", f"['{device}']")


@pytest.mark.parametrize("device", devices())
def test_in_place_the_other_worker_keeps_its_process_and_its_model_on_the_device(tmp_path: Path, device: str) -> None:
    """gloo, which two ranks may use on one GPU."""
    stays(tmp_path, device, "gloo")


@pytest.mark.gpu
def test_in_place_with_nccl(tmp_path: Path) -> None:
    if gpus() < 2:
        pytest.skip("NOT RUN: two ranks of NCCL need two GPUs, and one is here")
    stays(tmp_path, "cuda", "cpu:gloo,cuda:nccl")


@pytest.mark.parametrize("device", devices())
def test_a_worker_finds_the_device_memory_free_that_the_killed_one_had(tmp_path: Path, device: str) -> None:
    """The next worker starts when the kernel shows that the last one has gone, and its memory on the device with it."""
    ran = run(tmp_path, "memory.py", device, str(tmp_path / "noted"), nproc=1)
    assert ran.code == 0, ran.text
    taken = ran.all(r"pid (\d+) has taken (\d+) bytes")
    assert len({pid for pid, _ in taken}) == 2, ran.text
    assert len({size for _, size in taken}) == 1
    assert "out of memory" not in ran.text


def stands_still(tmp_path: Path, how: str) -> Ran:
    if py_spy() is None:
        pytest.skip(f"NOT RUN: {MISSING}")
    ran = run(tmp_path, "stands_still.py", how, nproc=2, flags=("--hang-timeout=3", "--on-hang=fail"))
    assert ran.code == 1, ran.text
    return ran


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("how", "place"),
    [
        ("synchronize", "synchronize(), stands_still.py:"),
        ("item", "stands_still.py:"),
        ("event", "Event.synchronize(), stands_still.py:"),
    ],
)
def test_a_rank_that_waits_for_its_device_for_ever_is_named(tmp_path: Path, how: str, place: str) -> None:
    ran = stands_still(tmp_path, how)
    cause = rf"rank 1 on node [^ ]+ waits for its accelerator.*\({re.escape(place)}.* in {how}\)"
    assert ran.all(rf"diagnosis: {cause}.*; rank 0 waits in all_reduce\(\)"), ran.text


@pytest.mark.gpu
def test_a_rank_for_which_another_waits_on_its_device_is_named(tmp_path: Path) -> None:
    """As with NCCL, where who waits for a rank waits for its own device."""
    ran = stands_still(tmp_path, "lock")
    assert ran.all("diagnosis: rank 1 on node [^ ]+ waits for a lock, a queue, a thread or an event"), ran.text
