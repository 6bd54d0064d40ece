"""What one worker process has to do with the job's servers: its connection, its tables, and gradients on their way."""

import os
import threading
from collections.abc import Callable

import numpy as np

from ..client import pushes
from . import kernels
from .client import ServerConnection, merge
from .errors import ServerGone, TableMisused
from .requests import PushSource
from .server_events import Array
from .service import VARIABLE
from .specs import TableSpec

MOST_WAITING = 256
"""Pulls of a table whose gradients have not been pushed."""

UNPUSHED = (
    "steps were made with gradients of a table, and nothing has said of which records they are: call "
    "shard.progress(n) or shard.done() after each step of the optimizer"
)

Gradient = Callable[[], "Array | None"]
"""Gives the gradient of the rows that were pulled, (n, columns) float32; None: there is none."""


class ServersClient:
    """Of this process.

    Args:
        connection: to the server.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._pulled: dict[str, list[tuple[Array, Gradient]]] = {}
        self._lock = threading.Lock()
        self._stepped: set[int] = set()  # optimizers
        self._pushed = False

    def open_table(self, spec: TableSpec) -> None:
        """Declares it. Raises TableMisused, ServerGone."""
        spec.check()
        with self._lock:
            self._connection.open_table(spec)
        self._pulled.setdefault(spec.name, [])

    def pull(self, table: str, ids: Array) -> tuple[Array, Array, Array]:
        """The distinct ids among `ids` (int64), the row of each, and which of them each of `ids` is."""
        distinct, inverse = merge(ids)
        with self._lock:
            return distinct, self._connection.pull({table: distinct})[0], inverse

    def await_gradient(self, table: str, distinct: Array, gradient: Gradient) -> None:
        """The gradient of these ids is pushed with the records that the script names next."""
        with self._lock:
            waiting = self._pulled.setdefault(table, [])
            if len(waiting) >= MOST_WAITING:
                raise TableMisused(f"table {table!r}: {UNPUSHED}")
            waiting.append((distinct, gradient))

    def check_step(self, optimizer: int) -> None:
        """Before a step of that optimizer. Raises TableMisused at its second, where nothing was ever pushed."""
        if self._pushed or not any(self._pulled.values()):
            return
        if optimizer in self._stepped:
            raise TableMisused(UNPUSHED)
        self._stepped.add(optimizer)

    def cuts(self, dataset: str, shard_index: int, lease: int, offset: int) -> list[int]:
        """See `Pushes`."""
        with self._lock:
            return [max(offset, self._connection.read_mark(dataset, shard_index))]

    def push(self, dataset: str, shard_index: int, lease: int, begin: int, end: int) -> None:
        """See `Pushes`: all gradients that there are, as those of these records. They stay where it is refused."""
        found: dict[str, tuple[Array, Array]] = {}
        source = PushSource(dataset, shard_index, lease, begin, end)
        with self._lock:
            for table, waiting in self._pulled.items():
                parts = [(ids, array) for ids, gradient in waiting if (array := gradient()) is not None]
                if parts:
                    found[table] = parts[0] if len(parts) == 1 else sum_parts(parts)
            self._connection.push(source, found)
            for waiting in self._pulled.values():
                waiting.clear()
        self._pushed = True


def sum_parts(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Each id of these parts once, and the sum of its gradients."""
    distinct, inverse = merge(np.concatenate([ids for ids, _ in parts]))
    gradients = np.concatenate([each for _, each in parts])
    summed = np.zeros((len(distinct), gradients.shape[1]), np.float32)
    kernels.sum_rows(gradients, inverse, summed)
    return distinct, summed


_sessions: dict[int, ServersClient] = {}


def session() -> ServersClient:
    """This process's. Raises TableMisused where the job has no servers."""
    if (found := _sessions.get(os.getpid())) is None:
        address = os.environ.get(VARIABLE)
        if address == "":
            raise ServerGone("the job's server was not ready in time: its loops are compiled at the first start")
        if address is None:
            raise TableMisused("this job has no servers for its tables: start it with elastic-run --servers=1")
        found = _sessions[os.getpid()] = ServersClient(ServerConnection(address))
        pushes.registered[:] = [found]
    return found
