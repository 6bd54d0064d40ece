"""A worker's end among several servers that are lost, moved, silent, behind and full."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from elastic_run.adapters.servers import client
from elastic_run.adapters.servers.errors import PushRefused, ServerFull, ServerGone, TableMisused
from elastic_run.adapters.servers.requests import PullRows, PushGradients, Request
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.identity.servers import ServersIssuer

from ....doubles.many_servers import DoubleServer, DoubleSource, ManyServers, deal_slots, many_servers
from ....sampling import sample_seeds
from .counting_worker import CountingWorker, dying_worker, train_shards

__all__ = ["dying_worker"]

TABLE = TableSpec("t", 1, SGD(1.0), Zeros())


@pytest.fixture
def servers() -> Iterator[ManyServers]:
    with many_servers(3) as made:
        yield made


def first_push(request: Request, when: str, *, wanted: str, done: list[int]) -> bool:
    if isinstance(request, PushGradients) and when == wanted and not done:
        done.append(1)
        return True
    return False


def test_each_row_comes_from_its_server_and_each_push_goes_to_all(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    ids = [7, -1, 7, 2**63 - 1, 3, *range(100, 160)]
    assert worker.use(*ids) == [0.0] * len(ids)
    worker.push(0, 5)
    assert worker.rows(3, 7, -1, 8, 2**63 - 1) == [1.0, 2.0, 1.0, 0.0, 1.0]
    worker.push(5, 6)  # of which no gradients are known
    assert [source.end for source in servers.rows.pushes] == [5] * 3 + [6] * 3
    assert worker.client.cuts("d", 0, 1, 0) == [6]
    assert worker.client.cuts("d", 1, 1, 4) == [4]
    assert worker.connection.repeated == 0


def test_each_gradient_goes_to_its_row_wherever_its_slot_has_moved(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    expected = np.zeros(100)
    for step, ids in enumerate((np.arange(80), np.arange(99, 19, -1))):
        distinct, _, _ = worker.client.pull("t", ids)
        gradients = (distinct + step).astype(np.float32)[:, None]
        expected[distinct] -= distinct + step
        worker.client.await_gradient("t", distinct, lambda gradients=gradients: gradients)
    servers.move(2, 0, 0)
    worker.push(0, 2)
    assert worker.rows(*range(100)) == expected.tolist()


def test_marks_of_all_servers_cut_a_shard(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    for server, mark in zip(servers.servers, (8, 3, 5), strict=True):
        slots = {slot for slot in range(1024) if servers.known.primary[slot] == server.place.number}
        for slot in slots:
            servers.rows.marks[slot, "d", 0] = 1, mark
    assert worker.client.cuts("d", 0, 2, 0) == [3, 5, 8]
    assert worker.client.cuts("d", 0, 2, 4) == [4, 5, 8]
    worker.use(1, 2, 3, 4, 5, 6)
    with pytest.raises(PushRefused, match="lease 2"):
        worker.push(3, 5, lease=1)
    with pytest.raises(PushRefused, match="records 3 to 6"):
        worker.push(3, 6, lease=2)


def test_after_a_move_the_same_is_asked_of_the_others(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    worker.use(*range(50))
    servers.move(0, 0, 1)
    worker.push(0, 1)
    assert worker.connection.repeated == 1
    servers.move(2)
    assert worker.rows(*range(50)) == [1.0] * 50
    worker.use(*range(50))
    servers.move(1, 2)
    worker.push(1, 2)
    assert worker.rows(*range(50)) == [2.0] * 50
    assert worker.connection.repeated == 3


def test_a_server_that_is_behind_is_asked_again_until_it_is_not(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    worker.use(*range(50))
    old, new = servers.known, servers.table(deal_slots(2, 1, 0))
    servers.tell_servers(new)
    servers.servers[1].table = old
    servers.tell_agent(new)
    threading.Timer(0.3, servers.tell_servers, (new,)).start()
    worker.push(0, 1)
    assert worker.rows(*range(50)) == [1.0] * 50


def test_an_agent_that_is_behind_is_waited_for(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    worker.use(*range(50))
    new = servers.table(deal_slots(2, 1, 0))
    servers.tell_servers(new)
    threading.Timer(0.3, servers.tell_agent, (new,)).start()
    worker.push(0, 1)
    assert worker.rows(*range(50)) == [1.0] * 50
    assert worker.connection.repeated == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_is_lost_in_a_push_is_not_felt(servers: ManyServers, when: str) -> None:
    worker = CountingWorker(servers)
    worker.use(*range(50))
    lost = servers.servers[1]
    done: list[int] = []
    lost.dies = lambda request, at: first_push(request, at, wanted=when, done=done)
    threading.Timer(0.3, servers.move, (0, 2)).start()
    worker.push(0, 1)
    assert lost.gone
    assert worker.rows(*range(50)) == [1.0] * 50
    assert worker.connection.repeated == 1


def test_a_server_that_is_silent_is_given_up_when_a_newer_table_is_there(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    worker.use(*range(50))
    servers.waits.clear()
    servers.servers[2].open.clear()
    threading.Timer(0.1, servers.move, (0, 1)).start()
    begun = time.monotonic()
    worker.push(0, 1)
    assert time.monotonic() - begun > 0.2
    assert servers.waits[0][0] == (2,) and servers.waits[0][1] >= client.SILENCE
    assert worker.rows(*range(50)) == [1.0] * 50


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_is_lost_is_made_again(servers: ManyServers, when: str) -> None:
    worker = CountingWorker(servers)
    worker.use(*range(50))
    server, done = servers.servers[1], list[int]()

    def hang_up(request: Request, at: str) -> bool:
        if first_push(request, at, wanted=when, done=done):
            server.hang_up()
        return False

    server.dies = hang_up
    worker.push(0, 1)
    assert done
    assert worker.rows(*range(50)) == [1.0] * 50
    assert worker.connection.repeated == 0


def test_who_does_not_answer_is_named_when_time_is_up(servers: ManyServers) -> None:
    worker = CountingWorker(servers, 0.5)
    servers.servers[1].open.clear()
    with pytest.raises(
        ServerGone,
        match=r"server 1 on node here has not answered \(it is silent\); and in 0.5 s nothing newer than version 1",
    ):
        worker.rows(*range(50))
    servers.servers[0].leave()
    servers.servers[2].table = servers.table(deal_slots(2))
    with pytest.raises(
        ServerGone, match=r"server 0 .*\(.*refused\), .*server 2 .*\(it has version 2 of the slot table\)"
    ):
        worker.rows(*range(50))


def test_a_server_that_begins_with_a_checkpoint_is_waited_for_longer(
    servers: ManyServers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "RESTORE_SECONDS", 1.0)
    monkeypatch.setattr(client, "QUIET", 0.1)
    servers.tell_servers(table := replace(servers.table(deal_slots(0, 1, 2)), restore=7))
    servers.tell_agent(table)
    beginning = servers.servers[1]
    beginning.open.clear()
    threading.Timer(0.5, beginning.open.set).start()
    worker = CountingWorker(servers, 0.2)
    assert "waits for server 1 on node here: it reads checkpoint 7" in capsys.readouterr().err
    beginning.open.clear()  # who has answered once is waited for as ever
    with pytest.raises(ServerGone, match=r"it is silent.* in 0.2 s"):
        worker.rows(*range(50))
    beginning.open.set()
    other = servers.servers[2]
    other.open.clear()
    with pytest.raises(ServerGone, match=r"server 2 on node here has not answered \(it reads checkpoint 7\).* in 1 s"):
        CountingWorker(servers, 0.2)


def test_a_push_that_one_server_had_no_room_for_goes_again_before_the_next(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    worker.use(*range(50))
    servers.servers[1].full = True
    for _ in range(2):
        with pytest.raises(ServerFull, match="no room"):
            worker.push(0, 4)
    worker.use(*range(50))
    with pytest.raises(ServerFull, match="no room"):
        worker.push(0, 4)
    servers.servers[1].full = False
    worker.push(0, 6)
    assert worker.rows(*range(50)) == [2.0] * 50
    assert [(source.begin, source.end) for source in servers.rows.pushes[-3:]] == [(4, 6)] * 3


def test_a_push_that_was_refused_as_another_workers_is_given_up(servers: ManyServers) -> None:
    worker, other = CountingWorker(servers), CountingWorker(servers)
    worker.use(1, 2)
    assert other.client.cuts("d", 0, 2, 0) == [0]
    with pytest.raises(PushRefused):
        worker.push(0, 2)
    worker.use(3)
    worker.push(0, 2, shard=1)
    assert worker.rows(1, 2, 3) == [0.0, 0.0, 1.0]


def test_gradients_that_are_no_numbers_are_sent_to_no_server(servers: ManyServers) -> None:
    worker = CountingWorker(servers)
    distinct, _, _ = worker.client.pull("t", np.arange(50))
    bad = np.ones((50, 1), np.float32)
    bad[17] = np.nan
    worker.client.await_gradient("t", distinct, lambda: bad)
    with pytest.raises(TableMisused, match="table 't': a gradient is not a finite number"):
        worker.push(0, 1)
    assert servers.rows.pushes == []


def test_servers_of_other_machines_are_reached_with_what_the_agent_gives() -> None:
    server_tls, worker_tls = ServersIssuer(Identity(new_secret()), "job").certificates(time.time())
    with many_servers(1) as servers:
        far: list[DoubleServer] = [servers.add(server_tls), servers.add(server_tls)]
        servers.worker_tls = worker_tls
        servers.move(0, 1, 2)
        worker = CountingWorker(servers)
        many = range(100_000, 150_000)
        worker.use(*many)
        worker.push(0, 1)
        servers.move(1, 2)
        assert set(worker.rows(*many)) == {1.0}
        assert all(any(isinstance(each, PullRows) for each in server.asked) for server in far)


def test_renewed_certificates_are_taken_where_the_table_is_the_same() -> None:
    server_tls, worker_tls = ServersIssuer(Identity(new_secret()), "job").certificates(time.time())
    _, of_another_job = ServersIssuer(Identity(new_secret()), "job").certificates(time.time())
    with many_servers(1) as servers:
        servers.worker_tls = of_another_job
        far = servers.add(server_tls)
        worker = CountingWorker(servers)
        servers.move(1)
        ask = DoubleSource.ask_agent

        def renew(source: DoubleSource, version: int, awaits: Sequence[int], seconds: float) -> None:
            """An agent answers after a second, also with no newer table."""
            if version == servers.known.version:
                servers.worker_tls = worker_tls
                version = 0
            ask(source, version, awaits, seconds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DoubleSource, "ask_agent", renew)
            assert worker.rows(1, 2) == [0.0, 0.0]
        assert any(isinstance(each, PullRows) for each in far.asked)


def test_what_is_not_read_yet_does_not_block_what_is_sent(servers: ManyServers) -> None:
    """Two megabytes of answers wait in the sockets while as much is sent: more than they hold."""
    worker = CountingWorker(servers)
    many = np.arange(300_000)
    worker.client.prefetch("t", many)
    worker.client.await_gradient("t", many, lambda: np.full((len(many), 1), -1.0, np.float32))
    worker.push(0, 1)
    _, rows, inverse = worker.client.pull("t", many, 1)
    assert set(rows[inverse][:, 0].tolist()) == {0.0}


def test_rows_that_were_fetched_ahead_are_used_once_and_while_they_are_not_too_old(servers: ManyServers) -> None:
    worker, ids = CountingWorker(servers), np.arange(50)

    def pull(max_staleness: int) -> set[float]:
        _, rows, _ = worker.client.pull("t", ids, max_staleness)
        return set(rows[:, 0].tolist())

    worker.use(*range(50))
    worker.client.prefetch("t", ids)
    worker.client.prefetch("t", ids)
    worker.push(0, 1)
    assert (pull(0), pull(1), pull(1)) == ({1.0}, {0.0}, {0.0})
    assert pull(1) == {1.0}
    worker.client.prefetch("t", ids)
    assert pull(-1) == {1.0}
    servers.rows.values["t", 0] = 7.0  # another worker's push
    assert (pull(-1), pull(0)) == ({1.0, 7.0}, {1.0})
    servers.rows.values["t", 0] = 1.0
    worker.client.prefetch("t", ids)
    for step in (1, 2):
        worker.use(*reversed(range(50)))  # another batch
        worker.push(step, step + 1)
    assert (pull(1), pull(2)) == ({3.0}, {1.0})


@pytest.mark.parametrize("when", ["in time", "late"])
def test_rows_that_were_asked_for_before_a_move_come_from_the_servers_after_it(servers: ManyServers, when: str) -> None:
    worker, ids = CountingWorker(servers), np.arange(50)
    worker.use(*range(50))
    worker.push(0, 1)
    for each in servers.servers:
        each.open.clear()
    worker.client.prefetch("t", ids)
    if when == "late":
        servers.servers[0].leave()
    servers.move(2, 1)
    for each in servers.servers:
        each.open.set()
    worker.use(*range(50))
    worker.push(1, 2)
    _, rows, _ = worker.client.pull("t", ids, 1)
    assert set(rows[:, 0].tolist()) <= {1.0, 2.0}


def disturb(servers: ManyServers, draw: random.Random, over: threading.Event) -> None:
    """Servers go, come and move, and the agent and they hear of it in any order."""
    while not over.wait(draw.uniform(0.005, 0.05)):
        there = [each.place.number for each in servers.servers if not each.gone]
        match draw.randrange(5):
            case 0:
                servers.servers[draw.choice(there)].hang_up()
            case 1 if len(there) > 2:
                servers.servers[lost := draw.choice(there)].leave()
                over.wait(draw.uniform(0.0, 0.1))
                servers.move(*(number for number in there if number != lost))
            case 2:
                servers.add()
            case _:
                new = servers.table(deal_slots(*draw.sample(there, 2)))
                for tell in draw.sample([servers.tell_servers, servers.tell_agent], 2):
                    tell(new)
                    over.wait(draw.uniform(0.0, 0.02))


@pytest.mark.parametrize("seed", sample_seeds(100, 4))
def test_each_record_counts_once_whatever_happens_to_servers_and_workers(
    servers: ManyServers, dying_worker: list[int], seed: int
) -> None:
    """Workers train shards and die within pushes; who leases the rest begins at the marks."""
    draw, over = random.Random(seed), threading.Event()
    records = [[draw.randrange(60) for _ in range(24)] for _ in range(6)]
    disturbing = threading.Thread(target=disturb, args=(servers, random.Random(seed), over))
    disturbing.start()
    try:
        train_shards(servers, records, draw, dying_worker)
    finally:
        over.set()
        disturbing.join()
    counted = Counter(id_ for ids in records for id_ in ids)
    assert {id_: value for (_, id_), value in servers.rows.values.items() if value} == counted
