"""Faults of workers: what each way to die is called, and that training goes on from the step that was reached."""

import signal

import pytest

from .job import Job

pytestmark = pytest.mark.torch

WAYS = {
    "raise ValueError('the loss is not a number')": "exited with code 1",
    "sys.exit(3)": "exited with code 3",
    "import ctypes; ctypes.string_at(0)": "died by SIGSEGV (11)",
}
"""What a worker does, and what that is called."""

HANG = (
    "import atexit, ctypes; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "atexit.register(ctypes.PyDLL(None).sleep, 10_000)"
)
"""At its end it sits in C, holding the interpreter's lock, and hears nothing."""


def test_each_way_in_which_a_worker_dies_is_named_and_one_that_hangs_at_its_exit_is_not_done(job: Job) -> None:
    job.train("A", "B", nnodes="1:2", shutdown_timeout=1)
    job.advances()
    victim = job.worker(1)
    victim.kill()
    assert f"rank 1 on node {victim.node} died by SIGKILL (9)" in job.cause(2)
    assert f"rank 1 (local 0, pid {victim.pid}) died by SIGKILL (9)" in job.log(victim.node)
    for round, (statement, words) in enumerate(WAYS.items(), 3):
        job.advances()
        job.worker(round % 2).does(statement)
        assert f"rank {round % 2} on node" in job.cause(round)
        assert words in job.cause(round)
    job.advances()

    hangs, other = job.worker(1), job.worker(0)
    hangs.does("import signal; " + HANG)
    job.may_end()
    job.wait_until(lambda: not other.puppet.alive or None, "rank 0 ends")
    job.wait_for_line(hangs.node, "rank 1 of 2 ends after")
    assert job.running() == ["A", "B"], "the job is not done while one of its workers is not"
    job.send(hangs.node, signal.SIGTERM)
    job.gone(hangs.pid)
    assert f"node {hangs.node} left: it received SIGTERM" in job.cause(round + 1)
    assert job.finish() == {hangs.node: 143, other.node: 0}
    assert "job total: 4 worker failures, 1 departure;" in job.log(other.node), "each costs one restart"


def test_a_worker_that_exits_0_too_early_costs_the_others_a_restart_and_no_wait(job: Job) -> None:
    job.innocent = True
    job.train("A", "B", nnodes=2)
    job.advances()
    job.worker(1).does("sys.exit(0)")
    assert "rank 0" in job.cause(2)
    job.advances()
    assert job.ends() == {"A": 0, "B": 0}
