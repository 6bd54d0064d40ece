"""Gradients of rows on servers, in whatever order a script computes and names them."""

from collections.abc import Iterator

import pytest
import torch

from elastic_run.adapters.servers import session
from elastic_run.adapters.servers.client import ServersConnection
from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, Zeros
from elastic_run.adapters.torch import embedding

from ....doubles.many_servers import ManyServers, many_servers


@pytest.fixture
def servers() -> Iterator[ManyServers]:
    with many_servers(1) as made:
        yield made


@pytest.fixture
def client(servers: ManyServers, monkeypatch: pytest.MonkeyPatch) -> ServersClient:
    made = ServersClient(connection := ServersConnection(servers.source()))
    servers.ends.callback(connection.close)
    monkeypatch.setattr(session, "session", lambda: made)
    return made


def values(servers: ManyServers) -> dict[int, float]:
    return {id_: value for (_, id_), value in servers.rows.values.items()}


def test_a_gradient_that_comes_after_a_push_goes_with_the_next(client: ServersClient, servers: ManyServers) -> None:
    table = embedding.Embedding("t", 1, SGD(1.0), Zeros())
    first = table(torch.tensor([1, 2])).sum()
    first.backward()
    second = table(torch.tensor([2, 3])).sum()  # a pipelined script: the next batch is under way already
    client.push("d", 0, 1, 0, 2)
    second.backward()
    assert values(servers) == {1: -1.0, 2: -1.0}
    table(torch.tensor([4]))  # nothing is computed from it
    client.push("d", 0, 1, 2, 4)
    assert values(servers) == {1: -1.0, 2: -2.0, 3: -1.0}
    assert client._pulled == {"t": []}  # pyright: ignore[reportPrivateUsage]


def test_a_second_gradient_of_what_was_pushed_is_refused(client: ServersClient, servers: ManyServers) -> None:
    table = embedding.Embedding("t", 1, SGD(1.0), Zeros())
    loss = table(torch.tensor([1])).sum()
    loss.backward(retain_graph=True)
    client.push("d", 0, 1, 0, 2)
    with pytest.raises(TableMisused, match=r"table 't': backward\(\) comes a second time"):
        loss.backward()


def test_a_push_that_was_refused_for_what_is_no_number_is_dropped(client: ServersClient, servers: ManyServers) -> None:
    table = embedding.Embedding("t", 1, SGD(1.0), Zeros())
    (table(torch.tensor([1])).sum() * float("inf")).backward()
    with pytest.raises(TableMisused, match="its gradients are dropped, and its records are not marked"):
        client.push("d", 0, 1, 0, 2)
    assert not servers.rows.pushes
    table(torch.tensor([2])).sum().backward()
    client.push("d", 0, 1, 0, 2)
    assert values(servers) == {2: -1.0}
