"""Faults of the store: of one member, of all of them, for a while and for ever."""

import asyncio
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastic_run.rendezvous.store.etcd.connections import AttemptFailed, Endpoint
from elastic_run.rendezvous.store.etcd.proto import elastic_run_etcd_pb2 as pb

from ..integration.cluster import DEADLINE, embedded_ports
from ..integration.conftest import Cluster as Etcd
from ..integration.conftest import Member, running
from .conftest import broken, explaining
from .job import Job

pytestmark = pytest.mark.torch

OUTAGE = 20.0
"""Seconds."""

STALL = 8.0
"""Seconds: longer than a lease of 3 can live."""

PATIENCE = 60.0
"""Seconds for what ends at once."""


def test_workers_train_on_while_the_stores_leader_dies_and_while_all_of_it_is_gone(frail: Job, etcd: Etcd) -> None:
    frail.train("A", "B", nnodes="1:2")
    frail.advances()
    worker = frail.worker(1)
    frail.fault("etcd's leader dies")
    leader = asyncio.run(etcd.leader())
    leader.kill()
    frail.advances()
    leader.start()
    frail.fault(f"all of etcd is gone for {OUTAGE:g} s")
    etcd.kill()
    back = time.monotonic() + OUTAGE
    for node in "AB":
        frail.wait_for_line(node, r"the store does not answer \(.*\); running workers continue")
    while time.monotonic() < back:
        frail.advances()
    etcd.start()
    for node in "AB":
        frail.wait_for_line(node, "the store answers again")
    frail.advances()
    assert frail.worker(1).pid == worker.pid
    assert [frail.log(node).count("] round ") for node in "AB"] == [1, 1]
    worker.kill()  # and it is still an elastic job
    frail.cause(2)
    assert frail.ends() == {"A": 0, "B": 0}


@pytest.fixture
def lone(tmp_path: Path, inject: Callable[[str], None], request: pytest.FixtureRequest) -> Iterator[Job]:
    """One job on a store of one member, to be hurt."""
    with (
        running(Etcd(tmp_path / "etcd", 1)) as etcd,
        explaining(Job(tmp_path / "job", broken(request), inject, etcd=etcd)) as made,
    ):
        yield made


def untouched(job: Job, what: str, hurt: Callable[[], None], heal: Callable[[], None]) -> None:
    """The store is away for longer than a lease, and comes back: the same workers train on in the same round."""
    job.train("A", "B", nnodes="1:2")
    job.advances()
    workers = [job.worker(rank) for rank in (0, 1)]
    job.fault(f"{what} for {STALL:g} s")
    hurt()
    back = time.monotonic() + STALL
    for node in "AB":
        job.wait_for_line(node, r"the store does not answer \(.*\); running workers continue")
    while time.monotonic() < back:
        job.advances()
    heal()
    for node in "AB":
        job.wait_for_line(node, "the store answers again")
    job.advances()
    assert [job.worker(rank).pid for rank in (0, 1)] == [worker.pid for worker in workers]
    workers[1].kill()
    assert "died by SIGKILL" in job.cause(2)
    for node in "AB":
        job.wait_for_line(node, r"\] round 2: ")
    assert [job.log(node).count("] round ") for node in "AB"] == [2, 2]
    assert job.ends() == {"A": 0, "B": 0}
    assert not any("was lost" in job.log(node) for node in "AB")


def test_the_only_member_is_stopped_for_longer_than_a_lease_and_no_worker_is_touched(lone: Job) -> None:
    assert lone.etcd is not None
    untouched(lone, "etcd is stopped", lone.etcd.pause, lone.etcd.resume)
    assert any("is registered again; its workers kept running" in lone.log(node) for node in "AB")


def test_the_only_member_is_killed_and_comes_back_after_a_lease_and_no_worker_is_touched(lone: Job) -> None:
    assert lone.etcd is not None
    untouched(lone, "etcd is gone", lone.etcd.kill, lone.etcd.start)


def test_two_of_three_members_are_stopped_for_longer_than_a_lease_and_no_worker_is_touched(
    frail: Job, etcd: Etcd
) -> None:
    leader = asyncio.run(etcd.leader())
    stopped = [leader, next(member for member in etcd.members if member is not leader)]

    def every(do: Callable[[Member], None]) -> Callable[[], None]:
        return lambda: [do(member) for member in stopped] and None

    untouched(frail, "etcd's leader and another member are stopped", every(Member.pause), every(Member.resume))


def test_a_machine_dies_with_its_agent_and_its_member_of_the_store(frail: Job, etcd: Etcd) -> None:
    frail.train("A", "B", nnodes="1:2")
    frail.advances()
    lost = frail.master()
    frail.fault("etcd's leader dies with the machine")
    asyncio.run(etcd.leader()).kill()
    frail.kill_machine(lost)
    assert f"node {lost} was lost" in frail.cause(2)
    frail.advances()
    assert set(frail.ends().values()) == {0}


def test_a_store_that_comes_back_without_its_data_ends_the_job_with_a_sentence(frail: Job, etcd: Etcd) -> None:
    frail.train("A", "B", nnodes="1:2")
    frail.advances()
    frail.fault("etcd's data are lost")
    etcd.kill()
    for member in etcd.members:
        shutil.rmtree(member.directory / member.name)
    etcd.start()
    assert frail.finish() == {"A": 4, "B": 4}
    for node in "AB":
        assert "etcd lost data" in frail.last_lines(node)


def test_where_the_machine_of_the_only_embedded_member_is_lost_the_others_end_with_4(
    tmp_path: Path, inject: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    endpoint = f"127.0.0.1:{embedded_ports(1)[0]}"
    with explaining(Job(tmp_path / "job", broken(request), inject, endpoint=endpoint, embedded=True)) as job:
        # As on two machines, each has its own data: whoever has the lost member's would bring it back.
        job.train("A", nnodes="1:2", store_dir=str(tmp_path / "a"), conf={"last_call_timeout": DEADLINE})
        job.train("B", store_dir=str(tmp_path / "b"))
        job.advances()
        host, _ = job.wait_anywhere("starting etcd")
        job.kill_machine(host)
        (other,) = job.running()
        job.wait_for_line(other, r"the store does not answer \(.*\); running workers continue")
        assert job.finish(2 * DEADLINE) == {other: 4}
        assert "the store has not answered for" in job.last_lines(other)
        again = "Start the store again (its machine may be lost), then start this command again"
        assert again in job.last_lines(other)


async def test_a_stream_that_is_given_up_before_it_could_be_opened_ends() -> None:
    # Accepts in its kernel and never speaks, as a member does that is just being started again.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint(f"127.0.0.1:{silent.getsockname()[1]}", None, lambda: None)
        endpoint.open()
        stream = endpoint.stream("/etcdserverpb.Watch/Watch", pb.WatchResponse, ())
        opening = asyncio.create_task(stream.send(pb.WatchRequest()))
        try:
            await asyncio.wait([opening], timeout=0.1)
            endpoint.drop_streams()  # because another request to that member has got no answer
            await asyncio.wait([opening], timeout=PATIENCE)
            assert isinstance(opening.done() and opening.exception(), AttemptFailed)
        finally:
            opening.cancel()
            await asyncio.wait([opening])
            await endpoint.close()
