"""Each example lives through the fault that it brings, and ends with the result that it has without one.

A run draws half of those that train.
"""

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ..sampling import SEED, sample
from .cluster import EXAMPLES

pytestmark = [pytest.mark.torch, pytest.mark.slow]

BY_FRAMEWORK = {
    name: name.removeprefix("digits_")
    for name in ("digits_horovod", "digits_jax", "digits_tensorflow", "digits_xgboost")
}

NEEDS = {"horovod": "horovod", "jax": "jax", "tensorflow": "tf_keras", "xgboost": "xgboost"}


def run(name: str, folder: Path, *args: str, servers: int = 0) -> str:
    """What the example has printed, with the launcher's lines."""
    framework = BY_FRAMEWORK.get(name, "torch")
    words = ["--standalone", "--nproc-per-node=2", f"--framework={framework}", f"--servers={servers}"]
    words += [str(EXAMPLES / f"{name}.py"), *args]
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


ALWAYS = ("digits_ddp", "digits_leased")
"""What most users begin with."""
OTHERS = {each.stem for each in EXAMPLES.glob("digits_*.py")} - set(ALWAYS)


@pytest.mark.parametrize("name", [*ALWAYS, *sample(OTHERS, 2, "examples")])
def test_a_model_learns_though_a_worker_is_killed(tmp_path: Path, name: str) -> None:
    package = NEEDS.get(BY_FRAMEWORK.get(name, ""), "torch")
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed here")
    # Horovod's survivors keep the model.
    saved = [] if name == "digits_horovod" else [f"--checkpoint={tmp_path / 'saved.ubj'}"]
    printed = run(name, tmp_path, *saved, "--fail")
    assert "died by SIGKILL (9)" in printed
    # Begun again, and not from the beginning.
    again = re.findall(r"(?:begins at step|begins at epoch \d+, step|begins with|ranks, from step) (\d+)", printed)
    assert int(again[0]) == 0 and int(again[-1]) > 0, printed
    (accuracy,) = re.findall(r"(?:accuracy on 360 unseen digits|after \d+ steps): ([\d.]+) %", printed)
    assert float(accuracy) > 85


def test_clicks_are_learned_though_a_worker_is_killed(tmp_path: Path) -> None:
    printed = run("clicks", tmp_path, "--fail", servers=2)
    assert "died by SIGKILL (9)" in printed
    (right,) = re.findall(r"right about ([\d.]+)% of 5000 other records", printed)
    assert float(right) > 70  # by chance, 50


@pytest.mark.parametrize("seed", [0, SEED])
def test_made_up_clicks_are_the_same_in_any_part_and_as_difficult_as_they_say(seed: int) -> None:
    example = runpy.run_path(str(EXAMPLES / "click_records.py"))
    records = example["ClickRecords"](seed)
    whole, part = records.make(np.arange(100_000)), example["ClickRecords"](seed).make(np.array([70_001, 12]))
    assert np.array_equal(whole.ids[[70_001, 12]], part.ids) and np.array_equal(whole.clicks[[70_001, 12]], part.clicks)
    assert np.array_equal(whole.numbers[[70_001, 12]], part.numbers)
    assert whole.numbers.shape == (100_000, 13) and whole.ids.shape == (100_000, 26) and sum(example["SIZES"]) > 10**6
    known = np.cumsum(whole.parts, axis=1).T
    found = [example["area_under_curve"](scores, whole.clicks) for scores in known]
    assert np.abs(np.subtract(found, [0.65, 0.76, 0.81])).max() < 0.01, found
    later = records.make(np.arange(10**6, 10**6 + 50_000))
    assert abs(example["area_under_curve"](later.parts.sum(axis=1), later.clicks) - 0.81) < 0.012


def test_the_area_under_the_curve_counts_equal_scores_by_half() -> None:
    area = runpy.run_path(str(EXAMPLES / "click_records.py"))["area_under_curve"]
    draw = np.random.default_rng(SEED)
    scores, clicks = draw.integers(0, 5, 60).astype(float), np.arange(60) % 3 == 0
    pairs = np.sign(scores[clicks][:, None] - scores[~clicks])
    assert area(scores, clicks) == pytest.approx((pairs.mean() + 1) / 2)


def test_every_picture_gets_its_label_though_a_worker_is_killed(tmp_path: Path) -> None:
    printed = run("batch_inference", tmp_path, f"--out={tmp_path / 'labels'}", "--fail")
    assert "died by SIGKILL (9)" in printed
    assert "897 of 897 pictures have a label, 96.4 % are right" in printed
    assert len(list((tmp_path / "labels").glob("*.json"))) == 18
