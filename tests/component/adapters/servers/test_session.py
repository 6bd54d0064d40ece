"""What a worker has on its way to the servers."""

from typing import Any, cast

import numpy as np
import pytest

from elastic_run.adapters.servers.client import ServerConnection
from elastic_run.adapters.servers.errors import ServerFull, TableMisused
from elastic_run.adapters.servers.session import MOST_WAITING, ServersClient
from elastic_run.adapters.servers.specs import SGD, TableSpec, Zeros


class Refusing:
    """Stands for a connection to a server that is full at first."""

    def __init__(self) -> None:
        self.full, self.pushed = True, list[Any]()

    def open_table(self, spec: TableSpec) -> int:
        return 0

    def pull(self, ids: dict[str, Any]) -> list[Any]:
        return [np.zeros((len(each), 1), np.float32) for each in ids.values()]

    def push(self, source: object, gradients: dict[str, Any]) -> int:
        if self.full:
            raise ServerFull("no room")
        self.pushed.append({name: (ids.tolist(), rows[:, 0].tolist()) for name, (ids, rows) in gradients.items()})
        return 1


@pytest.fixture
def server() -> Refusing:
    return Refusing()


@pytest.fixture
def client(server: Refusing) -> ServersClient:
    made = ServersClient(cast(ServerConnection, server))
    made.open_table(TableSpec("t", 1, SGD(1.0), Zeros()))
    return made


def use(client: ServersClient, *ids: int, gradient: float | None = 1.0) -> None:
    distinct, _, _ = client.pull("t", np.array(ids))
    rows = None if gradient is None else np.full((len(distinct), 1), gradient, np.float32)
    client.await_gradient("t", distinct, lambda: rows)


def test_gradients_of_a_push_that_was_refused_go_with_the_next(client: ServersClient, server: Refusing) -> None:
    use(client, 1, 2)
    with pytest.raises(ServerFull):
        client.push("d", 0, 1, 0, 2)
    server.full = False
    use(client, 2, 3, gradient=2.0)
    client.push("d", 0, 1, 0, 4)
    client.push("d", 0, 1, 4, 5)
    assert server.pushed == [{"t": ([1, 2, 3], [1.0, 3.0, 2.0])}, {}]


def test_what_no_loss_depends_on_is_not_pushed(client: ServersClient, server: Refusing) -> None:
    server.full = False
    use(client, 1, gradient=None)
    client.push("d", 0, 1, 0, 1)
    assert server.pushed == [{}]


def test_a_script_that_names_no_records_is_told(client: ServersClient) -> None:
    use(client, 1)
    client.check_step(1)
    client.check_step(2)  # another optimizer of the same step
    with pytest.raises(TableMisused, match=r"call shard.progress\(n\) or shard.done\(\)"):
        client.check_step(1)
    for _ in range(MOST_WAITING - 1):
        use(client, 1)
    with pytest.raises(TableMisused, match="table 't': steps were made with gradients of a table"):
        use(client, 1)
