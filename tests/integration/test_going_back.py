"""A job whose servers are lost all at once goes back to its last checkpoint by itself, and counts each record once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .cluster import Cluster
from .server_jobs import BEGUN, SECONDS, kill_servers, newest

SCRIPT = Path(__file__).with_name("scripts") / "servers_count.py"


def run_and_lose(folder: Path, *words: str, times: int) -> tuple[int, str]:
    """Runs a job whose servers are all killed when a checkpoint is whole, and again when tables begin from it."""
    rows = (f"--ps-checkpoint={folder / 'rows'}", "--ps-checkpoint-every=1", f"--max-restarts={times}")
    launcher = [sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", *rows]
    lines, lost = list[str](), 0
    with subprocess.Popen(
        [*launcher, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        assert job.stdout is not None
        for line in job.stdout:
            lines.append(line)
            pushed = sum("pushed" in each for each in lines) >= 20 and newest(folder)
            if (lost == 0 and pushed) or (0 < lost < times and BEGUN in line):
                lost += 1
                kill_servers(job.pid)
            elif lost == times and BEGUN in line:
                (folder / "hurry").touch()
        return job.wait(SECONDS), "".join(lines)


@pytest.mark.parametrize(
    ("words", "commit", "times"), [("--servers=1", "checkpoint", 1), ("--servers=2 --ps-replicas=1", "ack", 2)]
)
def test_a_job_that_has_lost_all_rows_counts_each_record_once(
    tmp_path: Path, words: str, commit: str, times: int
) -> None:
    code, said = run_and_lose(
        tmp_path, *words.split(), str(SCRIPT), f"--commit={commit}", "--by=numpy", "--pause=0.2", times=times
    )
    assert code == 0, said
    back = re.findall(r"round (\d): .* the whole job goes back to checkpoint \d+ of its tables, which was whole", said)
    assert back == [str(2 + at) for at in range(times)] and said.count(BEGUN) == times
    assert "counted [2.0] 12000" in said


def test_a_job_that_has_lost_all_rows_with_its_master_counts_each_record_once(job: Cluster) -> None:
    flags = {"nnodes": "1:2", "servers": 2, "ps_checkpoint": job.directory / "rows", "ps_checkpoint_every": 1}
    job.start(
        "A", "B", script=SCRIPT, args=("--by=numpy", "--pause=0.2"), **{each: str(word) for each, word in flags.items()}
    )
    job.wait_anywhere("pushed 20")
    job.wait_until(lambda: newest(job.directory) or None, "a checkpoint is whole")
    lost = job.master()
    (stays,) = {"A", "B"} - {lost}
    kill_servers(job.nodes[stays].process.pid)
    job.kill_machine(lost)
    job.wait_for_line(stays, BEGUN)
    (job.directory / "hurry").touch()
    _, found = job.wait_anywhere(r"counted (.*)")
    assert job.finish() == {stays: 0} and found[1] == "[2.0] 12000"
