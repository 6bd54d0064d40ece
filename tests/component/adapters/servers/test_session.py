"""What a worker has on its way to the servers."""

import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from elastic_run.adapters.client import pushes
from elastic_run.adapters.client.context import AGENT
from elastic_run.adapters.servers.client import ServersConnection
from elastic_run.adapters.servers.errors import ServerFull, ServerGone, TableMisused
from elastic_run.adapters.servers.job_servers import JobServers
from elastic_run.adapters.servers.requests import PushGradients
from elastic_run.adapters.servers.session import MOST_WAITING, ServersClient, session
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros
from elastic_run.adapters.servers.step_clock import StepClock
from elastic_run.adapters.servers.table_source import connect_agent
from elastic_run.master.servers.slot_table import SlotTable
from elastic_run.rendezvous.wire.values import encode

from ....doubles.ledger_agent import Agent, alone, listening
from ....doubles.many_servers import ManyServers, many_servers


@pytest.fixture
def servers() -> Iterator[ManyServers]:
    with many_servers(1) as made:
        yield made


@pytest.fixture
def client(servers: ManyServers) -> ServersClient:
    made = servers.client()
    made.open_table(TableSpec("t", 1, SGD(1.0), Zeros()))
    return made


def use(client: ServersClient, *ids: int, gradient: float | None = -1.0) -> None:
    distinct, _, _ = client.pull("t", np.array(ids))
    rows = None if gradient is None else np.full((len(distinct), 1), gradient, np.float32)
    client.await_gradient("t", distinct, lambda: rows)


def test_gradients_since_a_push_that_was_refused_go_with_the_next(client: ServersClient, servers: ManyServers) -> None:
    use(client, 1, 2)
    servers.servers[0].full = True
    with pytest.raises(ServerFull):
        client.push("d", 0, 1, 0, 2)
    assert client.in_doubt
    servers.servers[0].full = False
    use(client, 2, 3, gradient=-2.0)
    client.push("d", 0, 1, 0, 4)
    assert not client.in_doubt
    client.push("d", 0, 1, 4, 5)
    assert {id_: value for (_, id_), value in servers.rows.values.items()} == {1: 1.0, 2: 3.0, 3: 2.0}
    assert [(source.begin, source.end) for source in servers.rows.pushes] == [(0, 2), (2, 4), (4, 5)]


def test_a_push_has_the_time_at_which_it_was_made(client: ServersClient, servers: ManyServers) -> None:
    before = time.time_ns() // 1_000_000
    use(client, 1)
    servers.servers[0].full = True
    with pytest.raises(ServerFull):
        client.push("d", 0, 1, 0, 1)
    after = time.time_ns() // 1_000_000
    servers.servers[0].full = False
    client.push("d", 0, 1, 0, 1)  # again
    (sent,) = {request.source for request in servers.servers[0].asked if isinstance(request, PushGradients)}
    assert before <= sent.at <= after


def test_of_a_push_that_is_refused_here_nothing_comes_to_a_server(client: ServersClient, servers: ManyServers) -> None:
    use(client, 1, gradient=float("nan"))
    with pytest.raises(TableMisused, match="finite"):
        client.push("d", 0, 1, 0, 1)
    assert (client.in_doubt, servers.rows.pushes) == (False, [])


def test_what_no_loss_depends_on_is_not_pushed(client: ServersClient, servers: ManyServers) -> None:
    use(client, 1, gradient=None)
    client.push("d", 0, 1, 0, 1)
    assert (servers.rows.values, len(servers.rows.pushes)) == ({}, 1)


class Clock(StepClock):
    """That of a job in which the others are as far as the test says."""

    def __init__(self, bound: int) -> None:
        self.bound, self.clock, self.lowest = bound, 0, 0
        self.did: list[str] = []

    def rest(self) -> None:
        self.did.append("rests")

    def count_push(self) -> None:
        self.clock += 1

    def await_step(self, bound: int) -> None:
        self.did.append(f"waits within {bound}")


@pytest.fixture
def bounded(servers: ManyServers) -> ServersClient:
    """Two tables with bounds, and one without."""
    made = servers.client(Clock)
    for name, bound in (("free", None), ("loose", 3), ("tight", 1)):
        made.open_table(TableSpec(name, 1, SGD(1.0), Zeros(), max_staleness=bound))
    return made


def test_each_table_waits_by_its_own_bound_and_one_without_does_not(bounded: ServersClient) -> None:
    clock = bounded.clock
    assert isinstance(clock, Clock) and clock.bound == 3, "no step waits for the answer to what a tighter one wants"
    for table in ("free", "loose", "tight"):
        bounded.await_step(table)
    assert bounded.cuts("d", 0, 1, 0) == [0]
    bounded.push("d", 0, 1, 0, 1)
    bounded.rest()
    assert (clock.did, clock.clock) == (["waits within 3", "waits within 1", "rests"], 1)


def test_a_job_whose_tables_have_no_bound_has_no_clock(client: ServersClient) -> None:
    client.await_step("t")
    client.push("d", 0, 1, 0, 1)
    client.rest()
    assert client.clock is None


def test_rows_that_were_fetched_ahead_are_used_while_all_workers_are_within_the_bound(
    bounded: ServersClient, servers: ManyServers
) -> None:
    clock, ids = bounded.clock, np.array([1])
    assert clock is not None

    def is_used() -> bool:
        servers.rows.values["tight", 1] = 0.0
        bounded.prefetch("tight", ids)
        bounded.push("d", 0, 1, clock.clock, clock.clock + 1)
        servers.rows.values["tight", 1] = 5.0
        return bounded.pull("tight", ids, 1)[1].tolist() == [[0.0]]

    assert is_used()  # at clock 1 it lacks what came after clock 0 of each
    assert not is_used()  # at clock 2 it may lack what came after clock 1, and another worker was not there yet
    clock.lowest = 2
    assert is_used()


def test_a_script_that_names_no_records_is_told(client: ServersClient) -> None:
    use(client, 1)
    client.check_step(1)
    client.check_step(2)  # another optimizer of the same step
    with pytest.raises(TableMisused, match=r"call shard.progress\(n\), shard.done\(\) or loader.commit\(\)"):
        client.check_step(1)
    for _ in range(MOST_WAITING - 1):
        use(client, 1)
    with pytest.raises(TableMisused, match="table 't': steps were made with gradients of a table"):
        use(client, 1)


# -- what the agent says of the servers -------------------------------------------------------------------------------


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with listening() as made:
        monkeypatch.setenv(AGENT, f"@{made.name}")
        yield made


def told(table: SlotTable) -> str:
    return encode(JobServers(table, "here")).decode()


def test_the_first_table_that_serves_is_waited_for(agent: Agent, servers: ManyServers) -> None:
    tables = iter([SlotTable(), SlotTable(1), servers.known])
    versions: list[int] = []

    def tell(version: int) -> str:
        versions.append(version)
        return told(next(tables))

    agent.servers = tell
    source = connect_agent()
    connection = ServersConnection(source)
    ServersClient(connection).open_table(TableSpec("t", 1, SGD(1.0), Zeros()))
    assert versions == [0, 0, 0]
    connection.close()


@pytest.mark.parametrize(
    ("say", "error", "words"),
    [
        ("", TableMisused, "no servers for its tables: start it with elastic-run --servers=1"),
        (told(SlotTable(4, lost="the rows of server 1 on node b are lost")), ServerGone, "server 1 on node b are lost"),
    ],
)
def test_why_there_is_no_table_is_said(agent: Agent, say: str, error: type[Exception], words: str) -> None:
    agent.servers = lambda version: say
    with closing(ServersConnection(connect_agent())) as connection, pytest.raises(error, match=words):
        ServersClient(connection).open_table(TableSpec("t", 1, SGD(1.0), Zeros()))


def test_a_table_is_declared_before_the_first_shard(agent: Agent, servers: ManyServers) -> None:
    agent.servers = lambda version: told(servers.known)
    with alone(50, name="early") as data:
        next(data).done()
        with pytest.raises(TableMisused, match=r"after dataset '.*' was used.*before the first shard"):
            session()
    assert not pushes.registered


def test_a_process_without_an_agent_has_no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AGENT, raising=False)
    with pytest.raises(TableMisused, match="this job has no servers"):
        connect_agent()
