"""The history that a real job's master records beside the trace: its decisions are made again from it."""

import subprocess
import sys
from pathlib import Path

from elastic_run.master.history import replay

SCRIPT = """
import os, sys, time
marker = sys.argv[1]
if os.environ["RANK"] == "1" and not os.path.exists(marker):
    open(marker, "w").close()
    os.kill(os.getpid(), 9)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(600)  # the end of the other one ends it
"""


def recorded(folder: Path) -> list[bytes]:
    """The history of a job in which a worker is killed."""
    (folder / "train.py").write_text(SCRIPT)
    command = ("--standalone", "--nproc-per-node=2", f"--trace={folder / 'trace.json'}", "train.py", "killed")
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", *command], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (history,) = folder.glob("trace.json.*.history")
    return history.read_bytes().splitlines()


def test_what_a_real_jobs_master_decided_is_decided_again_from_its_history(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    published = [line for line in lines if b'"kind":"Publish"' in line]
    assert [b'"what":"open"' in line for line in published] == [True, True, False]
    assert b'"code":"WorkerFailed"' in published[1] and b'"signal":9' in published[1], published[1]
    assert list(replay(lines)) == []


def test_another_decision_than_the_recorded_one_is_found(tmp_path: Path) -> None:
    lines = [line.replace(b'"max_restarts":3', b'"max_restarts":0') for line in recorded(tmp_path)]
    found = list(replay(lines))
    assert found and '"what":"open"' in found[0].recorded[-1]
    assert not any('"what":"open"' in effect for effect in found[0].now)
