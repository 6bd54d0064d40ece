"""Several servers as pure machines: lost, copied, moved and swapped under workers that push."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.servers import copies, rows
from elastic_run.adapters.servers.requests import OpenTable, Ping, PushGradients, PushSource, ReadMarks, Reply
from elastic_run.adapters.servers.server_events import (
    AnswerAsker,
    PeerAnswered,
    SayWords,
    ServerAsked,
    ServerEffect,
    TableRead,
    TellPeer,
)
from elastic_run.adapters.servers.specs import TableSpec
from elastic_run.master.servers.slot_table import SLOTS

from .machine_network import (
    COUNTS,
    SMALL_STEPS,
    STEPS,
    Link,
    Network,
    Worker,
    begin_job,
    check_equal,
    pull_counts,
)


def train(network: Network, workers: list[Worker], disturb: float, replicas: int) -> None:
    """Until all shards are done, with something going wrong now and then."""
    draw, disturbances = network.draw, 60
    for _ in range(40_000):
        if all(each.done for each in workers):
            return
        if disturbances and draw.random() < disturb:
            disturbances -= 1
            disturb_job(network, workers, replicas)
        if draw.random() < 0.3:
            draw.choice(workers).go_on()
        elif not network.step():
            for each in workers:
                each.go_on()
            network.plan(replicas)
        elif draw.random() < 0.05:
            network.plan(replicas)
    raise AssertionError("the workers do not come to the end")


def disturb_job(network: Network, workers: list[Worker], replicas: int) -> None:
    draw = network.draw
    match draw.choice(["kill", "start", "swap", "swap", "move", "break", "worker"]):
        case "kill":
            whole = all(b in network.machines and p in network.machines for p, b, _ in network.holders())
            if replicas and len(network.machines) > 2 and whole:
                network.kill_server(draw.choice(sorted(network.machines)))
                if draw.random() < 0.8:
                    network.plan(replicas)
        case "start":
            if len(network.machines) < 4:
                network.start_server()
        case "swap":
            if replicas:
                network.swap(draw.choice([0.05, 0.5, 1.0]))
        case "move":
            network.move(draw.choice([0.02, 0.3]))
        case "break":
            links = [number for number, each in network.links.items() if each.asker in network.machines]
            if links:
                network.break_link(draw.choice(links))
        case _:
            draw.choice(workers).begin_lease()
    for each in workers:  # often a node takes a server and its workers with it
        if draw.random() < 0.2:
            each.begin_lease()


@pytest.mark.parametrize("steps", [STEPS, SMALL_STEPS], ids=["plain", "managed"])
@pytest.mark.parametrize("replicas", [1, 0])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_record_counts_once_whatever_servers_and_workers_are_lost(
    replicas: int, steps: TableSpec, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "PIECE", 5)
        patch.setattr(rows, "WINDOW", 20)
        patch.setattr(rows, "MOST_REMOVED", 3)
        train_under_losses(random.Random(seed), replicas, steps)


def test_what_follows_a_request_that_has_to_wait_is_answered_after_it() -> None:
    network = begin_job(random.Random(1), 2, 1)
    newer, machine = network.table.version + 1, network.machines["s1"]
    assert machine.on(ServerAsked(900, ReadMarks("d", 0, 1, newer))) == []
    assert machine.on(ServerAsked(900, Ping())) == []
    (other,) = machine.on(ServerAsked(901, Ping()))
    assert isinstance(other, AnswerAsker)
    assert other.connection == 901
    effects = machine.on(TableRead(replace(network.table, version=newer, backup=(-1,) * SLOTS)))
    answers = [each for each in effects if isinstance(each, AnswerAsker)]
    assert [(each.connection, each.reply.marks) for each in answers] == [(900, (0,)), (900, ())]


def train_under_losses(draw: random.Random, replicas: int, steps: TableSpec) -> None:
    network = begin_job(draw, draw.choice([2, 3]), replicas, steps)
    shards = [[draw.randrange(-60, 60) for _ in range(draw.randrange(5, 60))] for _ in range(3)]
    workers = [Worker(network, at, records, draw.randrange(1, 9)) for at, records in enumerate(shards)]
    train(network, workers, draw.choice([0.02, 0.1]), replicas)
    for _ in range(100):
        network.settle()
        if not network.plan(replicas):
            break
    counted = {id_: count for id_, count in pull_counts(network, range(-60, 60)).items() if count}
    assert counted == dict(Counter(each for records in shards for each in records))
    check_equal(network)


def push_one(
    network: Network, table: int, *ids: int, begin: int, shard: int = 0, spec: TableSpec = COUNTS, by: float = -1.0
) -> int:
    """To the primary of all slots; the connection on which it will be answered."""
    arrays = [np.array(ids, np.int64), np.full((len(ids), spec.columns), by, np.float32)]
    source = PushSource("d", shard, 1, begin, begin + 1)
    network.count += 1
    network.links[network.count] = Link("w", "s1")
    network.happen("s1", ServerAsked(network.count, PushGradients((spec.name,), source, table), arrays))
    return network.count


@pytest.mark.parametrize("joins", ["", "s4"], ids=["alone", "with a copy that is whole"])
def test_a_backup_without_room_has_its_part_of_a_push_refused_and_all_copies_stay_equal(joins: str) -> None:
    network = Network(random.Random(1))
    names = [network.start_server() for _ in range(4)]
    network.write_table(names, [("s1", "s2" if at % 2 else "s3", joins) for at in range(SLOTS)])
    network.settle()
    assert network.ask_now("s1", OpenTable(STEPS, 1))[0].refused == ""
    ids = [*range(40)]

    def push(shard: int, begin: int, by: float) -> Reply:
        at = push_one(network, 1, *ids, begin=begin, shard=shard, spec=STEPS, by=by)
        network.settle()
        ((reply, _),) = network.links[at].answers
        return reply

    assert push(0, 0, 1.0).refused == ""
    with pytest.MonkeyPatch.context() as patch:
        full, find = network.machines["s3"].tables.find_table("steps"), rows.Rows.find

        def refuse(self: rows.Rows, found: Any) -> Any:
            if self is full:
                raise rows.TableFull("no room at all")
            return find(self, found)

        patch.setattr(rows.Rows, "find", refuse)
        reply = push(0, 1, 3.0)
        assert (reply.refused, reply.text) == ("full", "a server that keeps copies refuses: no room at all")
    assert push(1, 0, -5.0).refused == ""  # of another worker, before it is sent again
    assert push(0, 1, 3.0).refused == ""
    for slots, backup in ((range(1, SLOTS, 2), "s2"), (range(0, SLOTS, 2), "s3")):
        assert network.read_rows("s1", "steps", slots) == network.read_rows(backup, "steps", slots)
    if joins:
        assert network.whole["s1"] == 1
        assert network.read_rows("s1", "steps", range(SLOTS)) == network.read_rows(joins, "steps", range(SLOTS))


def job_with_a_copy_to_come() -> Network:
    """Server s1 has all slots, and is to copy them to s2."""
    network = Network(random.Random(1))
    names = [network.start_server() for _ in range(2)]
    network.write_table(names, [("s1", "", "")] * SLOTS)
    network.settle()
    assert network.ask_now("s1", OpenTable(COUNTS, 1))[0].refused == ""
    network.links[push_one(network, 1, *range(50), begin=0)].answers.clear()
    network.write_table(names, [("s1", "", "s2")] * SLOTS)
    return network


def test_no_push_begins_while_a_joining_server_has_too_many_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PIECE", 5)
    monkeypatch.setattr(copies, "MOST_BEHIND", 0)
    network = job_with_a_copy_to_come()
    for name in ("s1", "s2"):
        network.read_table(name)
    first, second = (network.links[push_one(network, 2, 7, begin=begin)] for begin in (1, 2))
    assert (len(first.answers), len(second.answers)) == (1, 0)
    network.settle()
    assert len(second.answers) == 1
    assert pull_counts(network, [7, 8]) == {7: 3.0, 8: 1.0}
    assert network.read_rows("s2", "counts", range(SLOTS)) == network.read_rows("s1", "counts", range(SLOTS))


def test_why_a_joining_server_takes_no_copy_is_said_once() -> None:
    network = job_with_a_copy_to_come()
    machine = network.machines["s1"]
    said: list[ServerEffect] = []
    for version in (2, 3):
        (begin,) = machine.on(TableRead(replace(network.table, version=version)))
        assert isinstance(begin, TellPeer)
        said += machine.on(PeerAnswered("s2", Reply("full", "no room", version)))
    assert said == [SayWords("a server that is to get a copy refuses it: no room")]
