"""Jobs whose workers wait for slower ones: no step begins further ahead than the bound, by the clocks of all."""

import json
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from .cluster import Cluster
from .server_jobs import run, script

SCRIPT = Path(__file__).with_name("scripts") / "servers_clocks.py"

PAUSES = {"A": 0.005, "B": 0.02, "C": 0.06, "D": 0.01, "0": 0.002, "1": 0.03}
"""Seconds of a step, by node, or by rank where there is one node."""


def read_staleness(folder: Path, gone: Mapping[int, int]) -> list[int]:
    """Of each step that was begun, how far behind the slowest worker was that was present then.

    Args:
        gone: by pid, when a process was about to be killed (`time.monotonic_ns`).
    """
    lines: list[tuple[int, str, int, int]] = []
    for each in folder.glob("clock-*.jsonl"):
        pid = int(each.stem.rpartition("-")[2])
        lines += [(at, what, clock, pid) for at, what, clock, _ in map(json.loads, each.read_text().splitlines())]
    clocks: dict[int, int] = {}
    found: list[int] = []
    for at, what, clock, pid in sorted(lines):
        for other in [other for other in clocks if gone.get(other, at) < at]:
            del clocks[other]
        match what:
            case "rests":
                clocks.pop(pid, None)
            case "begins":
                found.append(clock - min(clocks.values(), default=clock))
            case _:
                clocks[pid] = clock
    return found


@pytest.mark.parametrize("bound", [0, 2])
def test_the_faster_of_two_workers_waits_for_the_slower_within_the_bound(tmp_path: Path, bound: int) -> None:
    words = (str(SCRIPT), f"--bound={bound}", f"--pauses={json.dumps(PAUSES)}", "--records=3000")
    code, said = run(tmp_path, "--servers=1", *words, nproc=2)
    assert code == 0, said
    assert said.count("counted [2.0] 6000") == 2
    staleness = read_staleness(tmp_path, {})
    assert len(staleness) == 240 and max(staleness) == bound


def test_without_a_bound_nobody_waits(tmp_path: Path) -> None:
    words = (str(SCRIPT), f"--pauses={json.dumps(PAUSES)}", "--records=3000")
    code, said = run(tmp_path, "--servers=1", *words, nproc=2)
    assert code == 0, said
    assert not list(tmp_path.glob("clock-*.jsonl"))
    most = {rank: max(map(int, re.findall(f"rank {rank} .* pushed (.*)", said))) for rank in (0, 1)}
    assert most[0] > 2 * most[1]


def test_ranks_that_declare_another_bound_are_refused(tmp_path: Path) -> None:
    text = """
        import os, time
        from elastic_run import servers
        from elastic_run import torch as elastic
        time.sleep(3 * int(os.environ["RANK"]))
        elastic.Embedding("t", 2, servers.SGD(1.0), max_staleness=[1, None][int(os.environ["RANK"])])
        """
    code, said = run(tmp_path, "--servers=1", "--max-restarts=0", script(tmp_path, text), nproc=2)
    assert code == 1
    assert "table 't' is there already, with max_staleness 1 in place of None" in said


def test_workers_stay_within_the_bound_whatever_is_lost_or_joins(job: Cluster) -> None:
    gone: dict[int, int] = {}

    def wait_for_pushes(node: str, count: int) -> int:
        """When that process has pushed so often; its pid."""
        return int(job.wait_for_line(node, rf"rank \d+ pid (\d+) pushed {count}$")[1])

    job.start(
        *"ABC",
        script=SCRIPT,
        args=("--bound=2", f"--pauses={json.dumps(PAUSES)}", "--records=12000"),
        roles="worker:2:3",
        role_options="worker:on-loss=one",
        servers="2:3",
    )
    pids = {node: wait_for_pushes(node, 30) for node in "ABC"}
    gone[pids["C"]] = time.monotonic_ns()  # the slowest
    os.kill(pids["C"], signal.SIGKILL)
    job.wait_until(lambda: job.log("C").count(" pushed 30") == 2, "another worker of the same node has pushed")
    pids["C"] = int(re.findall(r"pid (\d+) pushed 30", job.log("C"))[1])
    lost = job.master()
    gone[pids[lost]] = time.monotonic_ns()
    job.kill_machine(lost)
    job.start("D")
    wait_for_pushes("D", 30)
    codes = job.finish()
    assert codes == {node: 0 for node in "ABCD" if node != lost}
    assert any("counted [2.0] 24000" in job.log(node) for node in codes)
    staleness = read_staleness(job.directory, gone)
    assert len(staleness) >= 750 and max(staleness) == 2
