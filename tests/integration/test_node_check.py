"""Nodes that check themselves, and each other, before they take part."""

import pytest

from .cluster import Cluster

pytestmark = pytest.mark.torch


def test_nodes_that_pass_say_with_which_figures_and_train(job: Cluster) -> None:
    job.start("A", "B", nnodes="2", node_check="")
    workers = job.workers(2)
    job.wait_for_line("A", r"node check: \d+ figures of this machine, its store and its Python are as they should be")
    job.wait_for_line("A", r"node check: [\d.]+ MB/s in a collective with B")
    job.wait_for_line("B", r"node check: [\d.]+ MB/s in a collective with A")
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}


def test_one_bad_node_is_refused_with_its_figure_and_the_others_train(job: Cluster) -> None:
    job.start("A", "B", nnodes="2:3", node_check="", conf={"last_call_timeout": 30})
    job.start("C", env={"GLOO_SOCKET_IFNAME": "none0"})
    job.workers(2).release()
    codes = job.finish()
    assert codes == {"A": 0, "B": 0, "C": 2}, {name: job.log(name) for name in codes}
    assert "the job refused this node: this node failed its check: its collectives with" in job.log("C")
    assert "none0" in job.log("C"), "the reason is the library's own"


def test_a_node_alone_is_checked_without_a_collective(alone: Cluster) -> None:
    alone.start("A", node_check="")
    workers = alone.workers(1)
    alone.wait_for_line("A", r"node check: \d+ figures")
    workers.release()
    assert alone.finish() == {"A": 0}
