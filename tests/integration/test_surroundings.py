"""What a launcher finds around it: closed streams, nohup, no more descriptors. Each ends in words."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "elastic_run", "--standalone"]
DEADLINE = 60.0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import sys\nprint('begins', flush=True)\nsys.stdin.readline()\n")
    return path


def test_a_closed_standard_output_hurts_nobody(script: Path) -> None:
    command = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, str(script)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stderr


def test_under_nohup_a_closed_terminal_is_no_notice(script: Path) -> None:
    job = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *COMMAND, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout and "begins" in job.stdout.readline()
    os.kill(job.pid, signal.SIGHUP)
    _, said = job.communicate("\n", timeout=DEADLINE)
    assert job.returncode == 0, said
    assert "SIGHUP" not in said


def test_a_closed_terminal_is_a_notice_otherwise(script: Path) -> None:
    job = subprocess.Popen(
        [*COMMAND, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert job.stdout and "begins" in job.stdout.readline()
    os.kill(job.pid, signal.SIGHUP)
    job.wait(timeout=DEADLINE)  # its standard input stays open, so it is the notice that ends the script
    _, said = job.communicate()
    assert job.returncode == 128 + signal.SIGHUP, said
    assert "SIGHUP: this node leaves the job" in said


def test_a_machine_that_cannot_start_workers_fails_and_is_not_taken_for_preempted(script: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    done = subprocess.run(
        [
            "sh",
            "-c",
            'ulimit -n 24; exec "$@"',
            "sh",
            *COMMAND,
            "--nproc-per-node=8",
            f"--summary-json={summary}",
            script,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Too many open files" in done.stderr and "no node is left that can start workers" in done.stderr
    assert json.loads(summary.read_text())["outcome"] == "failed"


def test_an_address_that_is_none_is_refused(script: Path) -> None:
    command = [sys.executable, "-m", "elastic_run", "--nnodes=1:2", "--rdzv-endpoint=127.0.0.1:7", str(script)]
    for address, words in (("garbage..host", "is not a host name"), ("nosuch.invalid", "does not resolve")):
        done = subprocess.run(
            [*command[:-1], f"--local-addr={address}", command[-1]],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert words in done.stderr and "Traceback" not in done.stderr
