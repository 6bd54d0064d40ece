"""Jobs of one node with parameter servers, from their start to their end."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

SECONDS = 240.0
"""For a job, on a busy machine: fresh interpreters, and loops that are compiled for the first time."""

AHEAD = "--preload=torch,elastic_run.torch"
"""For a script that imports torch where it sees that it needs it: once for all workers, and not by each one anew."""


BEGUN = "tables begin again with checkpoint"
"""Of a job that goes back."""


def run(folder: Path, *words: str, nproc: int = 3) -> tuple[int, str]:
    command = [sys.executable, "-m", "elastic_run", f"--nproc-per-node={nproc}", f"--log-dir={folder / 'logs'}", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    return done.returncode, done.stdout + done.stderr


def script(folder: Path, text: str) -> str:
    (path := folder / "train.py").write_text(textwrap.dedent(text))
    return str(path)


def find_children(words: str, parent: int) -> list[int]:
    """The processes whose command line has these words, and that this process has started."""
    found: list[int] = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            line, status = (each / "cmdline").read_bytes(), (each / "status").read_text()
        except OSError:
            continue
        if words.encode() in line and f"PPid:\t{parent}\n" in status:
            found.append(int(each.name))
    return found


def kill_servers(agent: int) -> None:
    """All that this agent has started."""
    for pid in find_children("adapters.servers.server", agent):
        os.kill(pid, signal.SIGKILL)


def kill_whole(job: "subprocess.Popen[str]", folder: Path) -> int:
    """Every process that was started in this folder, at once; how many there were."""
    os.kill(job.pid, signal.SIGSTOP)  # so that it starts no more
    found = list[int]()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "cwd").readlink() == folder:
                found.append(int(each.name))
        except OSError:
            continue
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def newest(folder: Path) -> int:
    """The number of the last whole checkpoint; 0: there is none."""
    return max((int(each.stem.rpartition("-")[2]) for each in (folder / "rows").glob("*.json")), default=0)
