"""The history that a real job's master records beside the trace."""

import subprocess
import sys
from pathlib import Path

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
