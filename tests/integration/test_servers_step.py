"""Ranks in step with tables on servers: workers, servers and machines are lost at each point of a step."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .cluster import Cluster
from .server_jobs import SECONDS, find_children, run

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("scripts") / "servers_step.py"

DEATHS = ("1:9:before:1", "2:4:prepared:0", "3:3:agreed:1", "4:5:decided:0", "5:1:applied:1")

DEAD = "dies (?:before|prepared|agreed|decided|applied)"


def test_ranks_that_keep_their_process_have_the_rows_of_a_run_without_faults_bit_by_bit(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--servers=1", str(SCRIPT), nproc=2)
    assert code == 0, said
    (told,) = re.findall(r"counted \[2\.0\] seen \[2\] mark \S+", said)
    words = ("--servers=2", "--max-restarts=9", "--same-failure-limit=0", str(SCRIPT), "--pause=0.02", "--die", *DEATHS)
    command = [sys.executable, "-m", "elastic_run", "--nproc-per-node=2", f"--log-dir={tmp_path / 'logs'}", *words]
    lines, left = list[str](), ["step 3", "have a second copy", "dies decided"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            lines.append(line)
            if left and left[0] in line:
                del left[0]
                if len(left) != 1:  # once between two steps, and once while the ranks are lost
                    os.kill(find_children("adapters.servers.server", job.pid)[0], signal.SIGKILL)
        code = job.wait(SECONDS)
    said = "".join(lines)
    assert code == 0 and not left, said
    assert len(re.findall(DEAD, said)) == 5, said
    assert told in said and "already, and the position" not in said, said


def test_each_record_counts_once_where_all_ranks_go_back_to_an_older_file(tmp_path: Path) -> None:
    deaths = ("1:9:prepared:0", "2:4:agreed:1", "3:5:applied:0")
    words = ("--max-restarts=9", "--same-failure-limit=0", str(SCRIPT), "--every=7", "--die", *deaths)
    code, said = run(tmp_path, "--servers=2", *words, nproc=2)
    assert code == 0, said
    assert len(re.findall(DEAD, said)) == 3, said
    assert "counted [2.0] seen [2]" in said
    assert re.search(r"the tables have record \d+ of epoch 0 already, and the position is record \d+ of epoch 0", said)


def test_steps_of_fewer_ranks_cross_nothing_that_more_ranks_have_applied(job: Cluster) -> None:
    flags = {"nnodes": "2:3", "servers": "2:3", "scale_up": "never"}
    job.start("A", "B", "C", script=SCRIPT, args=("--pause=0.1", "--every=50", "--size=600"), **flags)
    job.wait_anywhere("step 4")
    lost = job.master()
    job.kill_machine(lost)
    job.wait_anywhere(r"round 2: 3 -> 2 nodes")
    (job.directory / "hurry").touch()
    _, found = job.wait_anywhere(r"counted (.*) mark")
    assert job.finish() == {node: 0 for node in "ABC" if node != lost} and found[1] == "[2.0] seen [2]"
