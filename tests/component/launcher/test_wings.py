"""A wing is a folder that can be deleted: a job that does not ask for it trains as before."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import elastic_run

WINGS = (
    "adapters/horovod",
    "adapters/jax",
    "adapters/tensorflow",
    "adapters/xgboost",
    "elastic_agent/servers",
    "launcher/cluster",
    "launcher/dashboard",
    "launcher/diagnostics",
    "launcher/doctor",
    "launcher/history",
    "launcher/node_check",
    "launcher/report",
    "launcher/telemetry",
    "launcher/terminal",
    "master/nodes",
    "master/resources",
    "master/servers",
)
"""What is registered in one place, and imported there when it is asked for."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package."""
    folder = tmp_path_factory.mktemp("package")
    own = Path(elastic_run.__file__).parent
    shutil.copytree(own, folder / own.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("wing", WINGS)
def test_a_job_trains_without_it(wing: str, package: Path, tmp_path: Path) -> None:
    folder, aside = package / "elastic_run" / wing, tmp_path / "wing"
    script = tmp_path / "train.py"
    script.write_text("import os\nprint('rank', os.environ['RANK'])\n")
    assert folder.is_dir(), "a wing that has gone leaves this list, too"
    shutil.move(folder, aside)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "elastic_run", "--nproc-per-node=2", str(script)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(package), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        shutil.move(aside, folder)
    assert (ran.returncode, sorted(re.findall(r"\] rank (\d)$", ran.stdout, re.MULTILINE))) == (0, ["0", "1"]), (
        ran.stderr
    )
