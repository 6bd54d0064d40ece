"""Parameter servers: tables of embeddings beside the workers of `elastic-run --servers=1`.

    from elastic_run import servers
    from elastic_run import torch as elastic

    user = elastic.Embedding("user", dim=16, optimizer=servers.Adagrad(lr=0.02))

Importing this loads no framework. `Table` has the rows as arrays of numpy.
"""

from pathlib import Path

from .adapters.servers.row_table import RowTable as Table
from .adapters.servers.specs import FTRL, SGD, Adagrad, Adam, Momentum, Normal, Uniform, Zeros

__all__ = ["FTRL", "SGD", "Adagrad", "Adam", "Momentum", "Normal", "Table", "Uniform", "Zeros", "export"]


def export(folder: str | Path) -> None:
    """Writes FOLDER/TABLE/ids.npy (int64) and rows.npy (float32, a row for each id) of each table declared here.

    One worker does it for all. Tables may be trained meanwhile: each row is as it is when it is read. The folder must
    be a new one, and is there when it is whole.

    Raises FileExistsError, OSError, elastic_run.exceptions.ServerGone.
    """
    from .adapters.servers.export import export_tables  # here, because it loads numpy and numba

    export_tables(folder)


def __dir__() -> list[str]:
    return sorted(__all__)
