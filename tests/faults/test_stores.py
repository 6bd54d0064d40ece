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

OUTAGE = 12.0
"""Seconds: longer than a new master waits for nodes that it knows."""

STALL = 8.0
"""Seconds: longer than a lease of 3 can live."""

PATIENCE = 60.0
"""Seconds for what ends at once."""


@pytest.fixture
def lone(tmp_path: Path, inject: Callable[[str], None], request: pytest.FixtureRequest) -> Iterator[Job]:
    """One job on a store of one member, to be hurt."""
    with (
        running(Etcd(tmp_path / "etcd", 1)) as etcd,
        explaining(Job(tmp_path / "job", broken(request), inject, etcd=etcd)) as made,
    ):
        yield made


def trains_without_the_store(
    job: Job, what: str, hurt: Callable[[], None], heal: Callable[[], None], seconds: float = STALL
) -> None:
    """The store is away, by default for longer than a lease, and comes back: the same workers train on all the time."""
    workers = [worker.pid for worker in job.living()]
    rounds = [job.log(node).count("] round ") for node in "AB"]
    silence, answers = "the store does not answer (", "the store answers again"
    before = {(node, words): job.log(node).count(words) for node in "AB" for words in (silence, answers)}

    def wait_for_both_to_print(words: str) -> None:
        for node in "AB":
            job.wait_until(
                lambda node=node: job.log(node).count(words) > before[node, words] or None, f"{node}: {words}"
            )

    job.fault(f"{what} for {seconds:g} s")
    hurt()
    back = time.monotonic() + seconds
    wait_for_both_to_print(silence)
    while time.monotonic() < back:
        job.advances()
    heal()
    wait_for_both_to_print(answers)
    job.advances()
    assert [worker.pid for worker in job.living()] == workers
    assert [job.log(node).count("] round ") for node in "AB"] == rounds


def restarts_a_killed_worker(job: Job, round: int) -> None:
    """It is still an elastic job."""
    job.worker(1).kill()
    assert "died by SIGKILL" in job.cause(round)
    for node in "AB":
        job.wait_for_line(node, rf"\] round {round}: ")
    job.advances()
    assert not any("was lost" in job.log(node) for node in "AB")


def test_the_only_member_is_stopped_and_later_killed_for_longer_than_a_lease_and_no_worker_is_touched(
    lone: Job,
) -> None:
    assert lone.etcd is not None
    lone.train("A", "B", nnodes="1:2")
    lone.advances()
    trains_without_the_store(lone, "etcd is stopped", lone.etcd.pause, lone.etcd.resume)
    assert any("is registered again; its workers kept running" in lone.log(node) for node in "AB")
    restarts_a_killed_worker(lone, 2)
    trains_without_the_store(lone, "etcd is gone", lone.etcd.kill, lone.etcd.start)
    restarts_a_killed_worker(lone, 3)
    assert lone.ends() == {"A": 0, "B": 0}


def test_workers_train_on_while_one_two_and_three_of_three_members_are_gone_and_a_machine_dies_with_one(
    frail: Job, etcd: Etcd
) -> None:
    frail.train("A", "B", nnodes="1:2")
    frail.advances()
    frail.fault("etcd's leader dies")
    leader = asyncio.run(etcd.leader())
    leader.kill()
    frail.advances()
    leader.start()
    leader = asyncio.run(etcd.leader())
    stopped = [leader, next(member for member in etcd.members if member is not leader)]

    def every(do: Callable[[Member], None]) -> Callable[[], None]:
        return lambda: [do(member) for member in stopped] and None

    what = "etcd's leader and another member are stopped"
    trains_without_the_store(frail, what, every(Member.pause), every(Member.resume))
    restarts_a_killed_worker(frail, 2)
    trains_without_the_store(frail, "all of etcd is gone", etcd.kill, etcd.start, OUTAGE)
    restarts_a_killed_worker(frail, 3)
    lost = frail.master()
    frail.fault("etcd's leader dies with the machine")
    asyncio.run(etcd.leader()).kill()
    frail.kill_machine(lost)
    assert f"node {lost} was lost" in frail.cause(4)
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
