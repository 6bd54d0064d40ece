"""A table as a script declares it, and with numpy: what layers of frameworks have in common is here.

Nothing heavy is loaded before a table is declared: the worker's end of the servers loads numba.
"""

from typing import TYPE_CHECKING, Any, Literal

from . import specs
from .errors import TableMisused

if TYPE_CHECKING:
    from .server_events import Array
    from .session import ServersClient


def servers_client() -> "ServersClient":
    """This process's. Raises TableMisused where the job has no servers, or it comes after the first shard."""
    from .session import session

    return session()


def declare_table(spec: specs.TableSpec, max_staleness: int) -> specs.TableSpec:
    """Makes it on the servers, or finds the same there. Raises TableMisused, ServerGone."""
    if max_staleness < 0:
        raise TableMisused(f"table {spec.name!r}: max_staleness={max_staleness!r} must be a number of pushes from 0")
    servers_client().open_table(spec)
    return spec


class RowTable:
    """Rows by id, for scripts that compute with numpy. A row is made on the job's servers when its id is first trained.

        table = servers.Table("user", 16, servers.Adagrad(lr=0.05))
        for shard in data.shards("clicks", 1_000_000, shard_size=4096, commit="ack"):
            rows = table.pull(ids)
            table.push(ids, gradients)
            shard.done()

    Args:
        name: of the table: one for each, in a job.
        dim: numbers in a row.
        optimizer: of the rows, from `elastic_run.servers`.
        initializer: what a row is before its first gradient; None: `Normal()`.
        seed: of the initializer.
        unusable: what is done with gradients that are no finite numbers: "refuse" the push, or "skip" those rows.
        max_staleness: pushes of this worker that rows from `prefetch` may lack; where they lack more, they are pulled
            again.

    Raises:
        elastic_run.exceptions.TableMisused: the job has no servers, or other ranks declare the table otherwise.
        elastic_run.exceptions.ServerGone: the server does not answer.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        optimizer: specs.Optimizer,
        initializer: specs.Initializer | None = None,
        *,
        seed: int = 0,
        unusable: Literal["refuse", "skip"] = "refuse",
        max_staleness: int = 1,
    ) -> None:
        spec = specs.TableSpec(name, dim, optimizer, initializer or specs.Normal(), seed, unusable)
        self.spec = declare_table(spec, max_staleness)
        self._max_staleness = max_staleness
        self._pulled = False  # since the last push: the next one is of another step

    def pull(self, ids: Any) -> "Array":
        """The rows of `ids` (int64, any shape): ids.shape + (dim,), float32. Takes what was fetched ahead.

        Raises:
            elastic_run.exceptions.TableMisused: the ids are no int64.
            elastic_run.exceptions.ServerGone: the server does not answer.
        """
        self._pulled = True
        return self._read(ids, self._max_staleness)

    def rows(self, ids: Any) -> "Array":
        """The same as they are now: no gradient follows."""
        return self._read(ids, -1)

    def push(self, ids: Any, gradients: Any) -> None:
        """Gradients that were computed from these rows: summed for each id, and pushed with the next records.

        They go to the servers when the script says of which records they are: `shard.progress(n)` or `shard.done()`.

        Args:
            ids: int64, any shape.
            gradients: ids.shape + (dim,), float32.

        Raises:
            elastic_run.exceptions.TableMisused: they do not fit together, or nothing says of which records they are.
        """
        import numpy as np

        from .session import sum_parts

        array, found = self._checked(ids), np.asarray(gradients, np.float32)
        wanted = (*array.shape, self.spec.columns)
        if found.shape != wanted:
            raise TableMisused(
                f"table {self.spec.name!r}: gradients are {found.shape}, and for these ids must be {wanted}"
            )
        distinct, summed = sum_parts([(array.ravel(), found.reshape(array.size, self.spec.columns))])
        here = servers_client()
        here.await_gradient(self.spec.name, distinct, lambda: summed)
        if self._pulled:  # a step may use a table several times
            self._pulled = False
            here.check_step(id(self))

    def prefetch(self, ids: Any) -> None:
        """Asks for the rows of the next batch, and does not wait: `pull` of the same `ids` finds them on their way.

        Raises:
            elastic_run.exceptions.TableMisused: the ids are no int64.
        """
        servers_client().prefetch(self.spec.name, self._checked(ids).ravel())

    def _read(self, ids: Any, max_staleness: int) -> "Array":
        array = self._checked(ids)
        _, rows, inverse = servers_client().pull(self.spec.name, array.ravel(), max_staleness)
        return rows[inverse].reshape(*array.shape, self.spec.columns)

    def _checked(self, ids: Any) -> "Array":
        import numpy as np  # here: a script that only names an optimizer does not need it

        array = np.asarray(ids)
        if array.dtype != np.int64:
            raise TableMisused(f"table {self.spec.name!r}: ids are {array.dtype}, and must be int64")
        return array
