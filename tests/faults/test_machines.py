"""What a machine runs out of, and a clock that is put right: disks, descriptors, time; and an id that is used twice."""

import contextlib
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..integration.cluster import DEADLINE
from .clocks import HOUR, JumpingClock
from .disks import fill, fill_with_names
from .job import TRAIN, Job

pytestmark = pytest.mark.torch


def test_the_disk_is_full_under_log_dir_and_later_takes_no_folder(job: Job, small_disk: Path) -> None:
    job.train("A", "B", nnodes="1:2", log_dir=str(small_disk))
    job.advances()
    job.fault("the disk is full")
    fill(small_disk)
    job.worker(0).does("print('x' * 10_000, flush=True)")
    job.wait_anywhere("cannot write .*: No space left on device; the workers continue")
    job.advances()
    job.worker(1).kill()
    job.cause(2)
    job.advances()
    (small_disk / "hog").unlink()
    job.fault("the disk is full, even for folders")
    fill_with_names(small_disk)
    job.worker(1).kill()
    job.wait_for_line("A", "round 3: 2 -> 2 nodes")
    job.advances()
    assert job.ends() == {"A": 0, "B": 0}


def leave_free(job: Job, node: str, count: int) -> None:
    """From now on the agent of `node` may open `count` files more, and no more than that."""
    job.fault(f"the agent of {node} may open {count} files more")
    pid = job.nodes[node].process.pid
    opened = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    limit = free = 0
    while free < count or limit in opened:
        free += limit not in opened
        limit += 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))


def test_an_agent_that_can_open_no_more_files_leaves_with_a_sentence_and_the_others_go_on(job: Job) -> None:
    job.train("A", "B", nnodes="1:2")
    job.advances()
    poor, other = job.worker(1).node, job.worker(0)
    leave_free(job, poor, 0)
    other.kill()
    job.wait_for_line(poor, "Too many open files")
    job.advances()
    assert job.ends() == {poor: 1, other.node: 0}


def test_a_master_that_can_open_no_more_files_leaves_when_a_newcomer_needs_it(job: Job) -> None:
    job.train("A", "B", nnodes="2:3")
    job.advances()
    poor = job.master()
    leave_free(job, poor, 0)
    job.train("C")
    job.wait_for_line(poor, "could not start its workers 2 times in a row: .*Too many open files")
    job.worker(1, after=2)
    job.advances()
    assert job.ends() == {**dict.fromkeys("ABC", 0), poor: 1}
    assert not any(line.startswith("Traceback") for line in job.nodes[poor].lines), "the agent says it in words"


def test_a_stop_leaves_the_workers_their_time_where_no_file_can_be_opened(job: Job) -> None:
    job.train("A", nnodes=1)
    job.advances()
    job.worker(0).does("import signal; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print('saved')))")
    job.advances()
    leave_free(job, "A", 0)
    job.send("A", signal.SIGTERM)
    assert job.finish() == {"A": 143}
    assert "saved" in job.log("A")


def test_a_second_notice_is_heard_where_only_one_more_file_can_be_opened(job: Job) -> None:
    # No lease ends meanwhile: the guardian of a silent agent would kill the worker.
    job.train("A", nnodes=1, shutdown_timeout=600, conf={"lease_ttl": 60})
    job.advances()
    job.worker(0).does("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    job.advances()
    leave_free(job, "A", 1)
    job.send("A", signal.SIGTERM)
    job.wait_for_line("A", "SIGTERM: this node leaves")
    for _ in range(10):
        # What comes within an instant of the first counts as the first.
        job.send("A", signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.nodes["A"].process.wait(0.6)
            break
    job.wait_for_line("A", "SIGTERM again: killing the workers")
    assert job.finish() == {"A": 143}


def test_an_agent_that_starts_with_too_few_descriptors_ends_with_a_sentence() -> None:
    command = ["prlimit", "--nofile=16", sys.executable, "-m", "elastic_run", "--standalone", str(TRAIN)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 2, done.stderr
    assert "Too many open files" in done.stderr and "ulimit -n 1024" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_clock_jumps_by_an_hour(job: Job, tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path)
    # The agents' clocks only: what torch makes of it is not ours.
    args = ["-u", "LD_PRELOAD", sys.executable, "-u", str(TRAIN)]
    job.train("A", "B", nnodes="1:2", no_python="", script=Path(shutil.which("env") or ""), args=args, env=clock.env)
    job.advances()
    worker = job.worker(1)
    for jump, steps in ((HOUR, 200), (-HOUR, 50)):  # the first for longer than a lease
        job.fault(f"the clocks jump by {jump} s")
        clock.jump(jump)
        job.advances(steps)
    assert job.worker(1).pid == worker.pid
    worker.kill()
    job.cause(2)
    job.advances()
    assert job.ends() == {"A": 0, "B": 0}


def test_two_different_jobs_with_one_id_are_started_in_the_same_instant(job: Job) -> None:
    job.fault("two jobs with one id")
    job.train("A", nnodes="1:2", args=["--rate=1"], conf={"last_call_timeout": 0})
    job.train("B", nnodes="1:3")
    refused, _ = job.wait_anywhere(r"the job refused this node: .*1:[23].*1:[23]")
    assert job.nodes[refused].process.wait(DEADLINE) == 2
    job.advances()
    (other,) = {"A", "B"} - {refused}
    assert job.ends() == {refused: 2, other: 0}
