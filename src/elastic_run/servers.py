"""Parameter servers: tables of embeddings beside the workers of `elastic-run --servers=1`.

    from elastic_run import servers
    from elastic_run import torch as elastic

    user = elastic.Embedding("user", dim=16, optimizer=servers.Adagrad(lr=0.02))

Importing this loads no framework. `Table` has the rows as arrays of numpy.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from .adapters.servers.row_table import RowTable as Table
from .adapters.servers.specs import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    LeastFrequent,
    LeastRecent,
    Momentum,
    Normal,
    OlderThan,
    Uniform,
    Zeros,
)

if TYPE_CHECKING:
    from .adapters.servers.server_events import Array
    from .adapters.servers.string_ids import Strings

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "LeastFrequent",
    "LeastRecent",
    "Momentum",
    "Normal",
    "OlderThan",
    "Table",
    "Uniform",
    "Zeros",
    "export",
    "string_ids",
]


def string_ids(strings: "Strings | Array", seed: int = 0) -> "Array":
    """The ids (int64) that strings have in a table of that seed, in the shape of `strings`.

    Each is a hash of 64 bits; how likely two of many are the same, `print` of an `Embedding` says.

    Raises elastic_run.exceptions.TableMisused.
    """
    from .adapters.servers.string_ids import hash_strings  # here, because it loads numpy and numba

    return hash_strings(strings, seed)


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
