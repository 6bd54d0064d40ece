"""Commands that follow a job while the API server goes away and comes back."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import start_plane
from .jobs import Jobs

pytestmark = pytest.mark.xdist_group("kubernetes")

COUNTING = """
import pathlib, sys, time
number = 0
while not pathlib.Path(sys.argv[1]).exists():
    number += 1
    print("line", number, flush=True)
    time.sleep(0.02)
print("the last line is", number, flush=True)
"""


@contextmanager
def following(jobs: Jobs, *words: str) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """The command, and the file of what it says."""
    said = jobs.folder / f"said-{'-'.join(words)}"
    with said.open("w") as file:
        process = subprocess.Popen(jobs.command(*words), stdout=file, stderr=file, text=True)
    try:
        yield process, said
    finally:
        process.kill()
        process.wait()


def test_what_follows_a_job_outlives_an_api_server_that_is_away(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    with start_plane(tmp_path_factory) as plane:
        jobs = Jobs(plane, tmp_path)
        with jobs.machine():
            jobs.submit("night", "--nnodes=2", script=COUNTING)
            jobs.until("night", 2)
            verbs = {"logs": ("logs", "-f", "night"), "wait": ("wait", "night"), "status": ("status", "-w", "night")}
            with (
                following(jobs, *verbs["logs"]) as logs,
                following(jobs, *verbs["wait"]) as wait,
                following(jobs, *verbs["status"]) as status,
            ):
                jobs.wait(lambda: "line 100\n" in logs[1].read_text(), lambda: logs[1].read_text())
                for _ in range(2):  # the second time it is soon back
                    plane.kill("kube-apiserver")
                    time.sleep(5.0 if _ == 0 else 0.0)
                    plane.start("kube-apiserver")
                    time.sleep(3.0)
                jobs.release()
                codes = [process.wait(100.0) for process, _ in (logs, wait, status)]
            for _, said in (logs, wait, status):
                text = said.read_text()
                assert text.count("the API server does not answer") in (1, 2), text
                assert text.count("the API server answers again") in (1, 2), text
            assert codes == [0, 0, 0], [each[1].read_text() for each in (logs, wait, status)]
            for pod in ("night-worker-0", "night-worker-1"):
                printed = [each for each in logs[1].read_text().splitlines() if f"[{pod} rank " in each]
                last = int(printed[-1].split()[-1])
                expected = [*(f"line {number}" for number in range(1, last + 1)), f"the last line is {last}"]
                found = [each.partition("] ")[2] for each in printed]
                assert [each for each in found if "line " in each] == expected
            assert "job night succeeded" in wait[1].read_text() and "night: succeeded" in status[1].read_text()
