"""An embedded store in a network that is cut: who is cut off begins no run of a job that lives elsewhere."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..integration.cluster import DEADLINE, failure
from .network import Founders, Net, Unavailable

NODES = ("A", "B", "C")

Start = Callable[..., Founders]


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    """One network for all tests of this file."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Net(*NODES))
        except Unavailable as reason:
            pytest.skip(f"no test of the network can run on this machine: {reason}")
        yield made


@pytest.fixture
def start(tmp_path: Path, net: Net, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts the job, with so many members of the store."""
    net.heal()
    with contextlib.ExitStack() as stack:

        def job(members: int) -> Founders:
            return stack.enter_context(Founders(tmp_path / "job", net, NODES[:members], failure(request)))

        yield job


def begins_nothing(job: Founders, node: str) -> None:
    """No line of this node tells of a round, nor of a master, nor of a registration."""
    for words in ("] round ", "master now runs here", "registered as"):
        assert words not in job.log(node), f"{node}, which was cut off, began a run"


def test_a_node_that_cannot_reach_the_only_member_begins_no_run_and_says_whom_it_waits_for(start: Start) -> None:
    job = start(1)
    job.boot("A", nnodes="1:2", conf={"last_call_timeout": 0})
    job.workers(1)
    job.net.cut("B")
    job.boot("B", conf={"join_timeout": 4})
    job.wait_for_line(
        "B", r"failed: the store does not answer: .*:2379 cannot be reached \(.*; gave up at the deadline"
    )
    begins_nothing(job, "B")
    assert job.nodes["B"].process.wait(DEADLINE) == 3
    job.boot("B", conf={"join_timeout": DEADLINE})
    job.wait_for_line("B", "cannot be reached .*; waiting up to")
    begins_nothing(job, "B")
    job.net.heal()
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0}


@pytest.mark.parametrize("data", ["with its data", "without its data"])
def test_a_member_of_three_that_starts_cut_off_begins_no_run_and_joins_when_the_network_is_back(
    start: Start, data: str
) -> None:
    job = start(3)
    job.boot(*NODES, nnodes="1:3", conf={"last_call_timeout": DEADLINE, "join_timeout": 2 * DEADLINE})
    job.workers(3)
    job.kill_machine("C")
    job.workers(2)
    job.net.cut("C")
    job.boot("C", fresh=data == "without its data", conf={"last_call_timeout": 0})
    job.wait_for_line("C", "the store waits for its quorum: . more members? .* needed for a majority of 3")
    begins_nothing(job, "C")
    # Without its data it must not take up an identity that the others remember: it could vote twice.
    assert ("starting etcd" in job.log("C")) == (data == "with its data")
    job.net.heal()
    job.workers(3).release()
    assert job.finish() == {"A": 0, "B": 0, "C": 0}


def test_a_node_of_three_that_is_cut_off_with_its_member_begins_no_round(start: Start) -> None:
    job = start(3)
    job.boot(*NODES, nnodes="1:3", conf={"last_call_timeout": DEADLINE, "join_timeout": 2 * DEADLINE})
    first = job.workers(3)
    lost = first[0].node  # of a round without a fault, that of the master
    job.net.cut(lost)
    assert lost not in job.workers(2).nodes
    job.wait_for_line(lost, r"the store does not answer \(.*\); running workers continue")
    assert "round 2" not in job.log(lost)
    job.net.heal()
    job.workers(3).release()
    assert job.finish() == {"A": 0, "B": 0, "C": 0}
