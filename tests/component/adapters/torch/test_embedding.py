"""Gradients of rows on servers, in whatever order a script computes and names them."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from elastic_run.adapters.servers import session
from elastic_run.adapters.servers.client import ServersConnection
from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, Zeros
from elastic_run.adapters.servers.string_ids import hash_strings
from elastic_run.adapters.torch import embedding
from elastic_run.master.servers.placement import ServersWanted

from ....doubles.many_servers import ManyServers, many_servers
from ....doubles.real_servers import real_servers


@pytest.fixture
def servers() -> Iterator[ManyServers]:
    with many_servers(1) as made:
        yield made


@pytest.fixture
def client(servers: ManyServers, monkeypatch: pytest.MonkeyPatch) -> ServersClient:
    made = servers.client()
    monkeypatch.setattr(session, "session", lambda: made)
    return made


@pytest.fixture
def real_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServersClient]:
    """Of two servers as they are."""
    with real_servers(ServersWanted(2, 2, 1), ["a", "b"], random.Random(0)) as servers:
        made = ServersClient(connection := ServersConnection(servers.source()))
        monkeypatch.setattr(session, "session", lambda: made)
        yield made
        connection.close()


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_and_gradients_travel_in_the_dtype_and_are_summed_before(
    real_client: ServersClient, dtype: torch.dtype
) -> None:
    table = embedding.Embedding("t", 2, SGD(1.0), Zeros(), dtype=dtype)
    out = table(torch.tensor([[3] * 300, list(range(300))]))
    assert (out.dtype, out.shape) == (dtype, (2, 300, 2))
    (-out.float()).sum().backward()
    real_client.push("d", 0, 1, 0, 2)
    rows = table.rows(torch.arange(5))
    assert rows.dtype == dtype
    summed = torch.tensor(301.0).to(dtype)  # once, and not in each of the 301 steps
    assert rows.tolist() == [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [summed.item()] * 2, [1.0, 1.0]]


def test_a_dtype_that_rows_cannot_have_is_refused(real_client: ServersClient) -> None:
    with pytest.raises(TableMisused, match=r"dtype=torch\.float64 must be torch\.float32, torch\.bfloat16"):
        embedding.Embedding("t", 2, SGD(1.0), dtype=torch.float64)
    embedding.Embedding("t", 2, SGD(1.0), dtype=torch.bfloat16)
    with pytest.raises(TableMisused, match="with dtype 'bfloat16' in place of 'float32'"):
        embedding.Embedding("t", 2, SGD(1.0))


def test_ids_are_strings(real_client: ServersClient) -> None:
    table = embedding.Embedding("t", 2, SGD(1.0), Zeros(), seed=5)
    assert "strings" not in repr(table)
    strings = [["ann", "bob"], ["ann", "Zoë"]]
    table.prefetch(strings)
    out = table(strings)
    assert out.shape == (2, 2, 2)
    (-out).sum().backward()
    (-table(np.array(["bob", "eve", "eve"]), torch.tensor([0, 1]))).sum().backward()
    real_client.push("d", 0, 1, 0, 2)
    assert table.rows(["ann", "bob", "Zoë", "eve", "nobody"])[:, 0].tolist() == [2.0, 2.0, 1.0, 2.0, 0.0]
    assert table.rows(torch.as_tensor(hash_strings(["ann"], 5)))[:, 0].tolist() == [2.0]
    assert "two of so many are the same: 1e+06: 3e-08, 1e+08: 3e-04, 1e+09: 3e-02" in repr(table)
    with pytest.raises(TableMisused, match="7 is a int among ids that are strings"):
        table(["ann", 7])
