"""Faults of nodes: their agents die, stop, are told to go, come back and come late."""

import contextlib
import signal
import subprocess

import pytest

from .job import Job, state

pytestmark = pytest.mark.torch


def test_a_newcomer_in_a_recovery_and_nodes_that_are_killed_until_there_are_too_few(job: Job) -> None:
    job.train("A", "B", nnodes="2:3", conf={"recovery_timeout": 2})
    job.advances()
    job.worker(0).kill()
    job.cause(2)
    job.fault("a node comes while the others recover")
    job.train("C")
    assert job.cause(3).startswith("C joined")
    job.advances()

    lost = job.stays()
    job.kill_agent(lost)
    assert f"node {lost} was lost: its agent's process is gone" in job.cause(4)
    job.advances()
    job.train("D")
    job.cause(5)
    job.advances()

    lost = job.master()
    job.kill_machine(lost)
    assert f"{lost} was lost" in job.cause(6)
    job.advances()

    job.kill_machine(job.stays())
    (survivor,) = job.running()
    job.wait_for_line(survivor, "1 of 2 required nodes remain: waiting for 1 more, for at most 2 s")
    assert job.finish() == {survivor: 3}
    assert "only 1 of 2:3 nodes joined within 2 s" in job.last_lines(survivor)


def test_an_agent_is_told_to_go_and_another_twice(job: Job) -> None:
    job.train("A", "B", "C", nnodes="1:3")
    job.advances()
    leaver = job.stays()
    job.send(leaver, signal.SIGTERM)
    assert f"node {leaver} left: it received SIGTERM" in job.cause(2)
    job.advances()
    hurried = job.master()
    stubborn = job.worker_of(hurried)
    stubborn.does("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    job.advances()
    job.send(hurried, signal.SIGINT)
    job.wait_for_line(hurried, "SIGINT: this node leaves the job; its workers have 30 s to exit")
    for _ in range(100):
        # A person presses again and again; what comes within an instant of the first counts as the first.
        job.send(hurried, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.nodes[hurried].process.wait(0.3)
            break
    job.gone(stubborn.pid)
    assert f"node {hurried} left: it received SIGINT" in job.cause(3)
    job.advances()
    (last,) = {"A", "B", "C"} - {leaver, hurried}
    assert job.ends() == {leaver: 143, hurried: 130, last: 0}


def test_an_agent_that_stands_still_is_evicted_after_its_lease_and_comes_back(job: Job) -> None:
    job.train("A", "B", nnodes="1:2", prefix=("setsid",))
    job.advances()
    stopped, other = job.worker(1), job.worker(0)
    job.ctrl_z(stopped.node)
    job.fg(stopped.node)
    job.advances()
    assert job.worker(1).pid == stopped.pid, "a stop shorter than the lease costs nothing"

    job.ctrl_z(stopped.node)
    job.wait_for_line(other.node, rf"round 2: 2 -> 1 node, .*node {stopped.node} was lost: .*lease")
    assert state(stopped.pid) == "T", "it waits for its fg"
    job.advances()
    job.fg(stopped.node)
    job.wait_for_line(stopped.node, "this node is no longer a member of the job: .*; it registers again")
    job.gone(stopped.pid)
    assert f"{stopped.node} joined" in job.cause(3)
    job.advances()

    stopped = job.worker_of(stopped.node)
    job.send(stopped.node, signal.SIGSTOP)
    job.gone(stopped.pid)  # by its guardian: no worker runs on without its agent
    job.wait_for_line(other.node, rf"round 4: 2 -> 1 node, .*node {stopped.node} was lost: .*lease")
    job.advances()
    job.send(stopped.node, signal.SIGCONT)
    job.wait_for_line(other.node, rf"round 5: 1 -> 2 nodes, .*{stopped.node} joined")
    job.advances()
    assert job.log(stopped.node).count("no longer a member of the job: its lease expired") == 2
    assert job.ends() == {"A": 0, "B": 0}
