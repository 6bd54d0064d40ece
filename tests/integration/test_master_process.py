"""`elastic-run master`: a process without workers leads a job of real agents, and is lost, and comes back."""

import re
import signal
import subprocess
import sys

from .cluster import Cluster


def led_by_a_process_of_its_own(job: Cluster) -> None:
    job.masters.add("M")
    job.start("M", nnodes=2)
    job.wait_for_line("M", "the job's master now runs here")
    job.start("A", "B")


def test_it_leads_and_an_agent_takes_over_while_the_workers_go_on(job: Cluster) -> None:
    led_by_a_process_of_its_own(job)
    workers = job.workers(2)
    assert job.master() == "M-master"
    job.kill_agent("M")
    name, _ = job.wait_anywhere("the job's master now runs here and continues with round 1")
    assert name in ("A", "B")
    workers.do(0, "said = 1")  # the same process answers
    assert all(worker.alive for worker in workers)
    job.start("M")
    job.wait_for_line("M", "this process has no workers")
    workers.release()
    assert job.finish() == {"A": 0, "B": 0, "M": 0}
    for node in "AB":
        assert not re.search("round 2: ", job.log(node))


def test_it_decides_on_faults_as_an_agents_master_does(job: Cluster) -> None:
    led_by_a_process_of_its_own(job)
    job.workers(2)
    job.kill_worker(1)
    second = job.workers(2)
    job.wait_for_line("A", r"round 2: 2 -> 2 nodes, .*rank 1 on node . died by SIGKILL \(9\)")
    assert job.master() == "M-master"
    second.release()
    assert job.finish() == {"A": 0, "B": 0, "M": 0}
    assert "every worker of round 2 ended with exit code 0" in job.log("M")


def test_beside_an_agent_that_leads_and_is_lost_it_is_a_candidate(job: Cluster) -> None:
    job.masters.add("M")
    job.start("A", "B", nnodes="1:2")
    job.workers(2)
    first = job.master()
    job.start("M")
    job.wait_for_line("M", "this process has no workers")
    other = "B" if first == "A" else "A"
    job.kill_machine(first)
    job.workers(1).release()
    assert job.finish() == {other: 0, "M": 0}


def test_a_signal_ends_it_and_an_agent_takes_over_at_once(job: Cluster) -> None:
    led_by_a_process_of_its_own(job)
    workers = job.workers(2)
    job.send("M", signal.SIGTERM)
    job.wait_anywhere("the job's master now runs here and continues with round 1")
    workers.release()
    assert job.finish() == {"A": 0, "B": 0, "M": 128 + signal.SIGTERM}


def test_started_with_other_flags_than_a_running_job_it_is_refused(job: Cluster) -> None:
    job.masters.add("M")
    job.start("A", nnodes="1:2", conf={"last_call_timeout": 0})
    workers = job.workers(1)
    job.start("M", nnodes="2:3")
    job.wait_for_line("M", r"was started with another command or source than this process: ")
    workers.release()
    assert job.finish() == {"A": 0, "M": 2}


def test_a_job_without_a_store_that_others_reach_has_none() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", "master", "--standalone", __file__],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2 and "--rdzv-endpoint" in done.stderr
