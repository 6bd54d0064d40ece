"""One seed, one trace, byte for byte: whatever ran before, and whichever interpreter it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..sampling import sample_seeds
from .explore import digest

pytestmark = pytest.mark.xdist_group("determinism")

SEEDS = sample_seeds(1000, 60)
ROOT = Path(__file__).resolve().parents[2]


def begin(hash_seed: str) -> "subprocess.Popen[str]":
    """Another interpreter, in which sets of strings have another order."""
    command = [sys.executable, "-m", "tests.simulation", "--digest", "--seeds", ",".join(map(str, SEEDS))]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def digests() -> list[str]:
    return [f"{seed} {digest(seed)}" for seed in SEEDS]


@pytest.fixture(scope="module")
def here() -> list[str]:
    """Of this interpreter."""
    return digests()


def test_the_same_seed_gives_the_same_trace_in_interpreters_that_hash_otherwise(here: list[str]) -> None:
    others = [begin("1"), begin("2")]
    printed = [other.communicate(timeout=300)[0].splitlines() for other in others]
    assert [other.returncode for other in others] == [0, 0]
    assert printed[0] == here
    assert printed[1] == here


def test_the_same_seed_gives_the_same_trace_again_in_one_interpreter(here: list[str]) -> None:
    assert digests() == here


def test_another_seed_gives_another_trace(here: list[str]) -> None:
    assert len({line.partition(" ")[2] for line in here}) == len(SEEDS)
