"""DLRover, in a virtual environment of its own, which is made when it is first wanted and removed at the end.

What is measured of it is its launcher, and the part that deals out shards: the master's task manager, asked by the
master's own client over gRPC, on the platform that DLRover calls `local`. It keeps all of that in memory.
"""

import functools
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from .arena import Arena, free_port
from .launchers import BARE, Job, Launcher

VERSION = "0.6.1"
NEEDS = ("grpcio", "protobuf", "kubernetes", "tornado")
"""What it imports and does not ask for."""

PEER = Launcher(f"DLRover {VERSION}, in memory", "bare")
LAUNCHER = Launcher(f"DLRover {VERSION}", "bare", every=2, slow=True)
"""Its own launcher, a descendant of torchrun's."""

PEERS = (PEER, LAUNCHER)

_INSTALL_SECONDS = 300.0


class NotThere(Exception):
    """DLRover does not install or does not run here, and why."""


@functools.cache
def _made() -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory(prefix="elastic-run-dlrover-")  # removed when this process ends
    python = Path(folder.name) / "bin" / "python"
    borrowed = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"  # torch, which is there already
    path = f"import sysconfig; open(sysconfig.get_path('purelib') + '/zz_torch.pth', 'w').write({borrowed!r})"
    for words in (
        [sys.executable, "-m", "venv", folder.name],
        [str(python), "-m", "pip", "install", "--quiet", f"dlrover=={VERSION}", *NEEDS],
        [str(python), "-c", path],
        [str(python), "-c", "import dlrover.python.master.main"],
    ):
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotThere(str(error)) from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise NotThere(next((line for line in lines if line.startswith("ERROR")), lines[-1]))
    return python, folder


def interpreter() -> Path:
    """The Python that can import it. Raises NotThere; the first call takes a minute."""
    return _made()[0]


def problem() -> str:
    """Why it cannot take part, in words; empty where it can."""
    try:
        interpreter()
    except NotThere as why:
        return f"{PEER.name} does not take part: {why}"
    return ""


def launch(arena: Arena, job: Job) -> None:
    """Starts a master, then a job of one node under its launcher. Raises DidNotCome."""
    # Not its --standalone, which does the same and does not know the signature of this torch's process handler.
    where = {"DLROVER_MASTER_ADDR": master(arena), "NODE_ID": "0", "NODE_RANK": "0", "NODE_NUM": "1"}
    python = interpreter()
    base = arena.environment(BARE) | where | {"NODE_TYPE": "worker"}
    base["PATH"] = f"{python.parent}{os.pathsep}{base.get('PATH', os.defpath)}"  # it starts workers as `python`
    words = [str(python.with_name("dlrover-run")), f"--nnodes={job.nodes}", f"--nproc-per-node={job.nproc}"]
    arena.start([*words, f"--max-restarts={job.restarts}", *job.words], base, "node0.log")


def master(arena: Arena) -> str:
    """Starts a master, and waits until it listens; where. Raises DidNotCome."""
    port = free_port()
    words = [str(interpreter()), "-m", "dlrover.python.master.main", "--platform=local", "--job_name=benchmark"]
    arena.start([*words, f"--port={port}", "--node_num=1"], arena.environment(BARE), "dlrover.log")
    arena.until_listening(port)
    return f"127.0.0.1:{port}"
