"""Jobs of one node with parameter servers, from their start to their end."""

import subprocess
import sys
import textwrap
from pathlib import Path

SECONDS = 240.0
"""For a job, on a busy machine: fresh interpreters, and loops that are compiled for the first time."""


def run(folder: Path, *words: str, nproc: int = 3) -> tuple[int, str]:
    command = [sys.executable, "-m", "elastic_run", f"--nproc-per-node={nproc}", f"--log-dir={folder / 'logs'}", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, done.stdout + done.stderr


def script(folder: Path, text: str) -> str:
    (path := folder / "train.py").write_text(textwrap.dedent(text))
    return str(path)
