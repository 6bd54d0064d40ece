"""A table as a script declares it, and with numpy: what layers of frameworks have in common is here.

Nothing heavy is loaded before a table is declared: the worker's end of the servers loads numba.
"""

from typing import TYPE_CHECKING, Any, Literal

from . import specs
from .errors import TableMisused

if TYPE_CHECKING:
    from collections.abc import Callable

    from .server_events import Array
    from .session import ServersClient


def servers_client() -> "ServersClient":
    """This process's. Raises TableMisused where the job has no servers, or it comes after the first shard."""
    from .session import session

    return session()


def declare_table(spec: specs.TableSpec) -> specs.TableSpec:
    """Makes it on the servers, or finds the same there. Raises TableMisused, ServerGone."""
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
        max_staleness: steps that any other worker of the job may be behind this one when it pulls rows: see
            `elastic_run.torch.Embedding`.

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
        max_staleness: int | None = None,
    ) -> None:
        spec = specs.TableSpec(name, dim, optimizer, initializer or specs.Normal(), seed, unusable, max_staleness)
        self.spec = declare_table(spec)
        self._pulled = False  # since the last push: the next one is of another step

    def pull(self, ids: Any) -> "Array":
        """The rows of `ids` (int64, any shape): ids.shape + (dim,), float32. Takes what was fetched ahead.

        Raises:
            elastic_run.exceptions.TableMisused: the ids are no int64.
            elastic_run.exceptions.ServerGone: the server does not answer.
        """
        self._pulled = True
        return self._read(ids, lambda flat: servers_client().pull_for_step(self.spec, flat))

    def rows(self, ids: Any) -> "Array":
        """The same as they are now: no gradient follows."""
        return self._read(ids, lambda flat: servers_client().pull(self.spec.name, flat))

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

    def _read(self, ids: Any, pull: "Callable[[Array], tuple[Array, Array, Array]]") -> "Array":
        array = self._checked(ids)
        _, rows, inverse = pull(array.ravel())
        return rows[inverse].reshape(*array.shape, self.spec.columns)

    def _checked(self, ids: Any) -> "Array":
        import numpy as np  # here: a script that only names an optimizer does not need it

        array = np.asarray(ids)
        if array.dtype != np.int64:
            raise TableMisused(f"table {self.spec.name!r}: ids are {array.dtype}, and must be int64")
        return array
