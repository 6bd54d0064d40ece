"""`elastic-run master --platform=kubernetes`: its process starts, replaces and stops the job's nodes itself.

A process of this machine stands in for each pod (`local_nodes.py`).
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from .cluster import command_line
from .conftest import Cluster

SECONDS = 90.0

HELD = """
import os, pathlib, sys, time
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
sys.exit(int(sys.argv[2]))
"""


class Managed:
    """A master with its nodes."""

    def __init__(self, folder: Path, endpoint: str, *flags: str, code: int = 0) -> None:
        self.release = folder / "release"
        self._log = folder / "log"
        script = folder / "held.py"
        script.write_text(HELD)
        times = "--rdzv-conf=last_call_timeout=0,settle=0,scale_up_interval=0"
        words = [
            "master",
            "--platform=kubernetes",
            f"--rdzv-endpoint=http://{endpoint}",
            f"--rdzv-id={folder.name}",
            times,
        ]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.local_nodes",
                    *words,
                    *flags,
                    str(script),
                    str(self.release),
                    str(code),
                ],
                stdout=log,
                stderr=log,
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def nodes(self) -> list[psutil.Process]:
        """The agents: its children that run the launcher."""
        found: list[psutil.Process] = []
        for each in psutil.Process(self.process.pid).children():
            if "\0--node-name=" in command_line(each.pid):
                found.append(each)
        return found

    def wait_for(self, pattern: str, times: int = 1) -> None:
        end = time.monotonic() + SECONDS
        while len(re.findall(pattern, self.text)) < times:
            assert time.monotonic() < end and self.process.poll() is None, f"{pattern!r} x{times} in\n{self.text}"
            time.sleep(0.05)

    def finish(self) -> int:
        self.release.touch()
        return self.process.wait(SECONDS)


@pytest.fixture
def started(tmp_path: Path, etcd: Cluster) -> Iterator[list[Managed]]:
    found: list[Managed] = []
    yield found
    for each in found:
        children = psutil.Process(each.process.pid).children(recursive=True) if each.process.poll() is None else []
        each.process.kill()
        each.process.wait()
        for child in children:
            child.kill()


def test_a_node_that_is_killed_is_replaced_and_the_job_ends_with_its_nodes(
    tmp_path: Path, etcd: Cluster, started: list[Managed]
) -> None:
    job = Managed(tmp_path, etcd.endpoint, "--nnodes=2")
    started.append(job)
    job.wait_for(r"rank \d of 2", 2)
    before = job.nodes()
    assert len(before) == 2
    before[0].send_signal(signal.SIGKILL)
    job.wait_for(r"rank \d of 2", 4)
    after = {each.pid for each in job.nodes()}
    assert len(after) == 2 and before[1].pid in after and before[0].pid not in after
    assert job.finish() == 0, job.text
    assert not any(psutil.pid_exists(pid) for pid in after)


def test_a_script_that_fails_ends_the_job_and_nothing_is_started_again(
    tmp_path: Path, etcd: Cluster, started: list[Managed]
) -> None:
    job = Managed(tmp_path, etcd.endpoint, "--nnodes=1:2", "--max-restarts=0", code=7)
    started.append(job)
    job.wait_for(r"rank \d of 2", 2)
    assert job.finish() == 1, job.text
    assert job.text.count("1 worker here") == 2, "each node was started once"


def test_an_agent_has_no_platform() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", "--platform=kubernetes", __file__],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "elastic-run master" in done.stderr


def test_pods_are_for_a_master_in_a_cluster(etcd: Cluster) -> None:
    words = ["master", "--platform=kubernetes", "--nnodes=2", f"--rdzv-endpoint=http://{etcd.endpoint}", __file__]
    done = subprocess.run([sys.executable, "-m", "elastic_run", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "elastic-job submit" in done.stderr, done.stderr
