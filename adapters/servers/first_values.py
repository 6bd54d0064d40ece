"""What the parameters of a model begin with: the first worker's values, for all workers, also those that come later.

They are a push that counts once in the job, as each record does. With several servers, each would take the push that
is the first there. So workers claim first, with a push into one row, whose claim is the only one that counts.
"""

import secrets
import time

import numpy as np

from ..client.channel import say_line
from .errors import TableMisused
from .server_events import Array
from .session import ServersClient
from .specs import SGD, TableSpec, Zeros

SECONDS = 30.0
"""That the first worker's values may take from its claim on. Then it is taken for lost, and others push theirs, too."""

QUIET = 3.0
"""Seconds of them, after which a person is told what is waited for."""

PAUSE = 0.02
"""Seconds until a worker looks again whether the values are there: servers tell nobody."""

CLAIMS, VALUES = 0, 1
"""Shards of a dataset of one record, by which servers know whether each was pushed already."""

CLAIM = np.array([-1], np.int64)
"""The row of the claim."""


def agree_on_first_values(client: ServersClient, spec: TableSpec, mine: Array) -> Array:
    """(rows, columns) float32: the values of the worker that came first in this job.

    Args:
        spec: of a table for them, as `spec_of_first_values` has it.
        mine: the same, of this worker.

    Raises TableMisused, ServerGone, ServerFull.
    """
    if not np.isfinite(mine).all():
        raise TableMisused(f"table {spec.name!r}: the model has parameters that are no finite numbers")
    client.open_table(spec)
    ids = np.arange(len(mine), dtype=np.int64)
    if not _are_there(client, spec.name) and (_claim(client, spec) or not _await_values(client, spec.name)):
        client.push_once(spec.name, VALUES, ids, -mine)
    _, rows, inverse = client.pull(spec.name, ids)
    return rows[inverse]


def spec_of_first_values(name: str, columns: int, seed: int) -> TableSpec:
    """A row is what was pushed into it: nothing is rounded."""
    return TableSpec(name, columns, SGD(1.0), Zeros(), seed)


def _claim(client: ServersClient, spec: TableSpec) -> bool:
    """Whether this worker is the first."""
    claim = np.array([[-secrets.randbelow(1 << 24) for _ in range(spec.columns)]], np.float32)
    client.push_once(spec.name, CLAIMS, CLAIM, claim)
    return np.array_equal(client.pull(spec.name, CLAIM)[1], -claim)


def _are_there(client: ServersClient, table: str) -> bool:
    """On all servers."""
    return client.cuts(table, VALUES, 0, 0) == [1]


def _await_values(client: ServersClient, table: str) -> bool:
    begun = time.monotonic()
    until, told_at = begun + SECONDS, begun + QUIET
    while not _are_there(client, table):
        if time.monotonic() > told_at:
            told_at = until + SECONDS
            words = f"values of table {table!r}: the worker that came first has not pushed them; {SECONDS:g} s at most"
            say_line(f"this worker waits for the first {words}")
        if time.monotonic() > until:
            return False
        time.sleep(PAUSE)
    return True
