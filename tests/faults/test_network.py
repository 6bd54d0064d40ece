"""What only a network can show: places that are cut off, one way or both, lost packets, and what comes after.

Nodes A, B, C and the members E1, E2, E3 of etcd each have a network namespace of their own (`network.py`). After every
test the store's whole history is read: no two masters ever wrote at one time.
"""

import contextlib
import json
import os
import random
import socket
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint
from elastic_run.rendezvous.reasons import AllJoined
from elastic_run.rendezvous.store.contract import Event, KeyValue
from elastic_run.rendezvous.wire.values import encode

from ..integration.cluster import DEADLINE, SCRIPTS, failure
from ..sampling import SEEDS
from .network import ANY, Machines, Net, Quorum, Unavailable, published

NODES = ("A", "B", "C")
ETCD = ("E1", "E2", "E3")

FAULTS = 4
"""Random ones in a row."""

LONGEST = 3.0
"""Seconds until the next one."""

WAIT = textwrap.dedent(
    """
    # Ends well once a file is there.
    import sys, time
    from pathlib import Path

    while not Path(sys.argv[1]).exists():
        time.sleep(0.05)
    """
)

RING = textwrap.dedent(
    """
    # Adds up the numbers of its steps, each after an all-reduce of all ranks; rank 0 keeps the sum.
    import datetime, json, os, sys, time
    from pathlib import Path

    import torch
    import torch.distributed as dist

    checkpoint, steps, patience = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=patience))
    rank, world = dist.get_rank(), dist.get_world_size()
    begin = json.loads(checkpoint.read_text()) if rank == 0 and checkpoint.exists() else [0, 0]
    shared = torch.tensor(begin)
    dist.broadcast(shared, 0)
    step, total = shared.tolist()
    while step < steps:
        ranks = torch.tensor([rank + 1])
        dist.all_reduce(ranks)
        assert ranks.item() == world * (world + 1) // 2, "the all-reduce lost somebody"
        step += 1
        total += step
        if rank == 0:
            part = checkpoint.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps([step, total]))
            part.rename(checkpoint)
            print(f"step {step} of {world} ranks", flush=True)
        time.sleep(0.01)
    dist.destroy_process_group()
    """
)


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    """One network for all tests of this file."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Net(*NODES, *ETCD))
        except Unavailable as reason:
            pytest.skip(f"no test of the network can run on this machine: {reason}")
        yield made


@pytest.fixture(scope="module")
def quorum(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """One etcd for all tests of this file; each has a job of its own."""
    with Quorum(net, tmp_path_factory.mktemp("etcd"), ETCD) as made:
        yield made


@pytest.fixture
def job(tmp_path: Path, net: Net, quorum: Quorum, request: pytest.FixtureRequest) -> Iterator[Machines]:
    """One job."""
    net.heal()
    with Machines(tmp_path / "job", net, quorum, failure(request)) as machines:
        yield machines


def survivor(job: Machines, lost: str) -> str:
    """Some other node than `lost`."""
    return next(name for name in job.nodes if name != lost)


def other_than_master(job: Machines) -> str:
    """A node that does not run the master."""
    return survivor(job, job.master())


# -- a node -----------------------------------------------------------------------------------------------------------


def test_a_node_cut_off_keeps_its_workers_until_it_is_healed_and_then_rejoins(job: Machines, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    ddp = ("--steps", "12", "--hold", "4", "8", "--checkpoint", str(checkpoint))
    job.start("A", "B", nnodes="1:2", script=SCRIPTS / "ddp_steps.py", args=ddp)
    first = job.workers(2)
    first.wait_for("step 4")
    lost = other_than_master(job)
    (left_behind,) = (worker.pid for worker in first if worker.node == lost)
    job.net.cut(lost)
    first[0].tell("go")  # now both sit in a collective that neither can end
    job.wait_for_line(survivor(job, lost), rf"round 2: 2 -> 1 node, .*node {lost} was lost: .*its lease expired")
    alone = job.workers(1)
    alone.wait_for("step 8")
    job.wait_for_line(lost, r"the store does not answer \(.*\); running workers continue")
    os.kill(left_behind, 0)  # by design: nobody can tell it that others have its rank
    job.net.heal()
    job.wait_for_line(lost, "no longer a member of the job: its lease expired .*; it registers again")
    job.gone(left_behind)
    for name in "AB":
        job.wait_for_line(name, rf"round 3: .*2 nodes, .*{lost} joined")
    assert job.finish() == {"A": 0, "B": 0}
    for name in "AB":
        assert "ends after 12 steps with weight 12" in job.log(name)
    assert [found.header.nodes for found in job.rounds()] == [2, 1, 2, 2]


def test_a_node_cut_off_until_the_job_has_ended_learns_how_it_ended(job: Machines) -> None:
    job.start("A", "B", nnodes="1:2")
    job.workers(2)
    lost = other_than_master(job)
    job.net.cut(lost)
    job.workers(1).release()
    job.wait_for_line(survivor(job, lost), "succeeded: every worker of round 2 ended with exit code 0")
    job.net.heal()
    assert job.finish() == {"A": 0, "B": 0}
    assert "succeeded: every worker of round 2 ended with exit code 0" in job.log(lost)
    job.rounds()


def test_a_node_cut_off_while_the_job_failed_does_not_begin_it_again(job: Machines) -> None:
    job.start("A", "B", nnodes="1:2", max_restarts=0)
    job.workers(2)
    lost = other_than_master(job)
    job.net.cut(lost)
    job.workers(1).tell("raise ValueError('no such column')")
    job.wait_for_line(survivor(job, lost), "root cause: rank 0 .* exited with code 1")
    job.wait_until(lambda: job.nodes[survivor(job, lost)].ended or None, "the survivor ends")
    job.net.heal()
    job.wait_for_line(lost, "no longer a member of the job")

    def founds() -> bool:
        return "1 of 1:2 nodes have joined" in job.log(lost)

    job.wait_until(lambda: job.nodes[lost].ended or founds() or None, f"{lost} ends, or founds the job anew")
    if founds():
        job.kill_machine(lost)
    # The survivor's last word goes with its lease: the store still has it, or tells only that there was one.
    told = ("ended while this node was not a member", "root cause: rank 0")
    assert any(words in job.log(lost) for words in told)
    assert job.finish() == {survivor(job, lost): 1, lost: 1}


def test_silence_shorter_than_the_lease_changes_nothing(job: Machines) -> None:
    job.start("A", "B", nnodes="1:2", conf={"lease_ttl": 60})
    first = job.workers(2)
    silent = job.master()
    job.net.cut(silent)
    job.wait_for_line(silent, "the store does not answer")
    job.net.heal()
    job.wait_for_line(silent, "the store answers again")
    first.release()
    assert job.finish() == {"A": 0, "B": 0}
    assert [found.header.state for found in job.rounds()] == ["open", "succeeded"]


def test_the_masters_node_is_cut_off_and_another_leads(job: Machines) -> None:
    job.start("A", "B", "C", nnodes="2:3")
    job.workers(3)
    old = job.master()
    job.net.cut(old)
    second = job.workers(2)
    assert old not in second.nodes
    for name in second.nodes:
        job.wait_for_line(name, rf"round 2: 3 -> 2 nodes, .*node {old} was lost")
    job.net.heal()
    third = job.workers(3)
    job.wait_for_line(old, "the job's master no longer runs here")
    assert job.master() != old
    third.release()
    assert job.finish() == {"A": 0, "B": 0, "C": 0}
    masters = [found.master for found in job.rounds()]
    assert masters[0] == old and old not in masters[1:]


@pytest.mark.parametrize("direction", ["it hears nobody", "nobody hears it"])
def test_a_node_is_cut_off_one_way(job: Machines, direction: str) -> None:
    job.start("A", "B", nnodes="1:2")
    job.workers(2)
    lost = job.master()
    if direction == "it hears nobody":
        job.net.cut(ANY, lost)
    else:
        job.net.cut(lost, ANY)
    alone = job.workers(1)
    assert alone.nodes == [survivor(job, lost)]
    job.wait_for_line(lost, "the store does not answer")
    job.net.heal()
    job.wait_for_line(lost, "no longer a member of the job")
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0}
    assert [found.header.nodes for found in job.rounds()] == [2, 1, 2, 2]


# -- peers ------------------------------------------------------------------------------------------------------------


def test_an_agent_that_dies_unheard_is_lost_by_its_lease(job: Machines) -> None:
    job.start("A", "B", nnodes="1:2")
    job.workers(2)
    master = job.master()
    lost = survivor(job, master)
    job.net.cut(lost, master)
    job.kill_agent(lost)
    job.wait_for_line(master, rf"round 2: 2 -> 1 node, .*node {lost} was lost: .*its lease expired")
    job.workers(1).release()
    assert job.finish() == {master: 0}
    job.rounds()


def test_a_process_group_that_breaks_costs_rounds_and_no_member_while_the_store_is_in_reach(
    job: Machines, tmp_path: Path
) -> None:
    script, checkpoint = tmp_path / "ring.py", tmp_path / "sum.json"
    script.write_text(RING)
    job.start("A", "B", nnodes="1:2", script=script, args=[str(checkpoint), "100", "5"], max_restarts=30)
    job.wait_anywhere("step 20 of 2 ranks")
    job.net.cut("A", "B")
    job.net.cut("B", "A")
    for name in "AB":
        job.wait_for_line(
            name,
            r"round 2: 2 -> 2 nodes, .*(lost its connection to|gave up waiting for) another rank",
        )
    job.net.heal()
    assert job.finish() == {"A": 0, "B": 0}
    assert json.loads(checkpoint.read_text()) == [100, 5050]
    for name in "AB":
        assert "was lost" not in job.log(name)
    assert {found.header.nodes for found in job.rounds()} == {2}


def test_a_job_gets_through_a_network_that_loses_packets(job: Machines, tmp_path: Path) -> None:
    script, checkpoint = tmp_path / "ring.py", tmp_path / "sum.json"
    script.write_text(RING)
    job.start("A", "B", nnodes="1:2", script=script, args=[str(checkpoint), "80", "600"])
    job.wait_anywhere("step 20 of 2 ranks")
    job.net.lose("B", 0.2)
    job.wait_anywhere("step 40 of")
    assert job.net.dropped() > 0
    job.net.heal()
    assert job.finish() == {"A": 0, "B": 0}
    assert json.loads(checkpoint.read_text()) == [80, 3240]
    job.rounds()


# -- etcd -------------------------------------------------------------------------------------------------------------


def test_etcds_leader_is_cut_off(job: Machines, quorum: Quorum) -> None:
    job.start("A", "B", nnodes=2)
    job.workers(2)
    leader = quorum.leader()
    job.net.cut(leader)
    job.kill_worker(1)
    second = job.workers(2)
    for name in "AB":
        job.wait_for_line(name, "round 2: 2 -> 2 nodes, .*rank 1 on node [AB] died by SIGKILL")
    assert quorum.leader(besides=leader) != leader
    assert job.net.dropped() > 0
    job.net.heal()
    quorum.wait_for(leader)
    second.release()
    assert job.finish() == {"A": 0, "B": 0}
    job.rounds()


def test_the_master_alone_with_etcds_leader_changes_nothing(job: Machines, quorum: Quorum) -> None:
    job.start("A", "B", "C", nnodes="1:3")
    first = job.workers(3)
    old, leader = job.master(), quorum.leader()
    job.net.split(old, leader)
    second = job.workers(2)
    assert old not in second.nodes
    (stale,) = (worker for worker in first if worker.node == old)
    stale.tell("raise ValueError('of no round that counts')")
    job.wait_for_line(old, "of no round that counts")
    job.wait_for_line(old, "the store does not answer")
    job.net.heal()
    quorum.wait_for(leader)
    job.workers(3).release()
    assert job.finish() == {"A": 0, "B": 0, "C": 0}
    masters = [found.master for found in job.rounds()]
    assert masters[0] == old and old not in masters[1:]
    assert job.rounds()[-1].header.tally.failures == 0


# -- all of it --------------------------------------------------------------------------------------------------------


def strike(net: Net, draw: random.Random) -> str:
    """One random fault more; in words."""
    place, other = draw.sample(net.places, 2)
    match draw.choice(["away", "deaf", "mute", "one way", "loss", "split", "heal"]):
        case "away":
            net.cut(place)
            return f"{place} is cut off"
        case "deaf":
            net.cut(ANY, place)
            return f"{place} hears nobody"
        case "mute":
            net.cut(place, ANY)
            return f"nobody hears {place}"
        case "one way":
            net.cut(place, other)
            return f"{other} does not hear {place}"
        case "loss":
            share = draw.uniform(0.1, 0.3)
            net.lose(place, share)
            return f"{place} loses {share:.0%}"
        case "split":
            side = draw.sample(net.places, 3)
            net.split(*side)
            return f"{', '.join(side)} are apart"
        case _:
            net.heal()
            return "all is healed"


@pytest.mark.parametrize("seed", SEEDS)
def test_after_random_faults_of_the_network_every_node_ends_well(job: Machines, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    script, end = tmp_path / "wait.py", tmp_path / "end"
    script.write_text(WAIT)
    job.start("A", "B", "C", nnodes="1:3", script=script, args=[str(end)])
    for name in NODES:
        job.wait_for_line(name, "round 1: 3 nodes")
    over = draw.randint(1, FAULTS)
    for number in range(FAULTS):
        if number == over:
            print("from now on workers end")
            end.touch()
        seconds = draw.uniform(0, LONGEST)
        print(f"{strike(job.net, draw)}, for {seconds:.1f} s")  # shown where it fails
        time.sleep(seconds)  # how long the fault lasts; nothing is waited for
    job.net.heal()
    end.touch()
    assert job.finish() == {"A": 0, "B": 0, "C": 0}
    job.rounds()


# -- the instruments --------------------------------------------------------------------------------------------------


def test_a_cut_is_one_way_and_heals(net: Net) -> None:
    net.heal()

    def ear(place: str) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((net.address(place), 9999))
        made.settimeout(DEADLINE)
        return made

    with net.inside("A", lambda: ear("A")) as a, net.inside("B", lambda: ear("B")) as b:

        def send(speaker: socket.socket, listener: socket.socket, words: bytes) -> None:
            speaker.sendto(words, listener.getsockname())

        send(a, b, b"first")
        assert b.recv(9) == b"first"
        net.cut("A", "B")
        send(a, b, b"lost")
        send(b, a, b"answer")
        assert a.recv(9) == b"answer"
        assert net.dropped() > 0
        net.heal()
        send(a, b, b"second")
        assert b.recv(9) == b"second"


def test_a_network_leaves_nothing_behind() -> None:
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(Net("A"))
        except Unavailable as reason:
            pytest.skip(f"no test of the network can run on this machine: {reason}")
        assert len(made.remains()) == 3  # the switch, A, and the link to the test
    assert made.remains() == []


def test_the_history_shows_who_wrote_without_leading() -> None:
    keys = Keys("j")
    leader = encode(Leader("A", "a", ""))
    fingerprint = Fingerprint("s", (), "1", "1", "v")

    def put(key: str, value: bytes, created: int, revision: int) -> tuple[Event, ...]:
        return (Event("put", KeyValue(key, value, created, revision, 0)),)

    def header(number: int, prefix: str) -> bytes:
        return encode(Header(number, "r", "open", "start", AllJoined(1), fingerprint, prefix=prefix))

    lead = put(keys.leader, leader, 3, 3)
    right = put(keys.round, header(1, "3.1.x"), 4, 4)
    resigned = (Event("delete", KeyValue(keys.leader, b"", 0, 5, 0)),)
    assert [found.master for found in published([lead, right, resigned], "j")] == ["A"]
    for wrong, words in (
        ([right], "while nobody led"),
        ([lead, right, resigned, put(keys.round, header(2, "3.2.x"), 4, 6)], "while nobody led"),
        ([lead, resigned, put(keys.leader, leader, 6, 6), right], "while leadership 6 held"),
        ([lead, right, put(keys.round, header(1, "3.1.y"), 4, 5)], "after round 1"),
    ):
        with pytest.raises(AssertionError, match=words):
            published(wrong, "j")
