"""`--dry-run`: what it prints is what then happens, and it starts nothing."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

SCRIPT = "import json, os; print('ENV', json.dumps(dict(os.environ)))\n"


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "elastic_run", *words], cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_the_environment_that_it_prints_is_the_workers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("--standalone", "--nproc-per-node=2", "--start-method=spawn", "train.py")
    told = run(tmp_path, "--dry-run", *words).stdout
    variables = dict(line.strip().split("=", 1) for line in told.splitlines() if line.startswith("  "))
    had = run(tmp_path, *words).stdout
    (rank_0,) = (line for line in had.splitlines() if '"RANK": "0"' in line)
    assert {"RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"} <= set(variables)
    for name, value in variables.items():
        assert f'"{name}": "{value}"' in rank_0


def test_it_says_where_the_nodes_meet_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", "--dry-run", "--nnodes=2:4", "--rdzv-endpoint=127.0.0.1:1", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    assert "this node starts one on the ports 1 and 10001" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("on the other machines: "))
    assert shlex.split(line)[-1] == "train.py" and "--nnodes=2:4" in line and "--dry-run" not in line
    assert list(temporary.iterdir()) == []


def test_a_job_that_would_be_refused_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "--dry-run", "missing.py")
    assert done.returncode == 2 and "there is no script missing.py" in done.stderr
