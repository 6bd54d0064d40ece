"""Several servers as pure machines: lost, copied, moved and swapped under workers that push."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.servers import copies, rows
from elastic_run.adapters.servers.requests import Ping, ReadMarks
from elastic_run.adapters.servers.server_events import AnswerAsker, ServerAsked, TableRead
from elastic_run.master.servers.slot_table import SLOTS

from .machine_network import Network, Worker, begin_job, check_equal, pull_counts


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


@pytest.mark.parametrize("replicas", [1, 0])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_record_counts_once_whatever_servers_and_workers_are_lost(replicas: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "PIECE", 5)
        patch.setattr(rows, "WINDOW", 20)
        patch.setattr(rows, "MOST_REMOVED", 3)
        train_under_losses(random.Random(seed), replicas)


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


def train_under_losses(draw: random.Random, replicas: int) -> None:
    network = begin_job(draw, draw.choice([2, 3]), replicas)
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
