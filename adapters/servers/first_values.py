"""What the parameters of a model begin with: one worker's values, for all workers, also those that come later.

They are pushes that count once in the job, as each record does. One worker *claims* to write them, by a push into one
row: only the first such push counts. It pushes them in pieces, and a stamp when all are there; the others wait for
that. Where nothing more comes of a claim, somebody else claims next. First it fences off what was claimed before, by a
lease as of a shard: from then on no piece of an earlier claim comes in, so that its stamp is there, or never will be.
Where it is not, what has come is cleared and written anew. So all values are of one worker, whoever is lost when.
"""

import secrets
import time

import numpy as np

from ..client.channel import say_line
from .errors import PushRefused, TableMisused
from .server_events import Array
from .session import ServersClient
from .specs import SGD, TableSpec, Zeros

SECONDS = 2.0
"""That may pass without another piece of the values before somebody else claims; twice that the next time, and so on.
A worker that was only slow loses its claim, and nothing else."""

QUIET = 3.0
"""Seconds of waiting, after which a person is told what is waited for."""

PAUSE = 0.02
"""Seconds until a worker looks again whether the values are there: servers tell nobody."""

PIECE = 16_384
"""Rows in a push and in a pull, over all servers: 16 MiB."""

CLAIMS = 0
"""The shard whose records are claims, one after the other. Of claim n, the stamp is in shard 2n + 1, and the pieces
are in shard 2n + 2."""

NO_IDS = np.empty(0, np.int64)


def agree_on_first_values(client: ServersClient, spec: TableSpec, mine: Array) -> Array:
    """(rows, columns) float32: the values of one worker of this job, nearly always of the first.

    Args:
        spec: of a table for them, as `spec_of_first_values` has it.
        mine: the same, of this worker.

    Raises TableMisused, ServerGone, ServerFull.
    """
    if not np.isfinite(mine).all():
        raise TableMisused(f"table {spec.name!r}: the model has parameters that are no finite numbers")
    client.open_table(spec)
    claim = max(0, client.cuts(spec.name, CLAIMS, 0, 0)[-1] - 1)
    while not _are_there(client, spec.name, claim):
        if not _push_claim(client, spec, claim):
            claim += not _await_values(client, spec.name, claim)
            continue
        try:
            _write_values(client, spec, claim, mine)
        except PushRefused:  # this worker was slow, and another has claimed
            claim += 1
    return np.concatenate([_pull_rows(client, spec.name, ids) for ids in _split_ids(len(mine))])


def spec_of_first_values(name: str, columns: int, seed: int) -> TableSpec:
    """A row is what was pushed into it: nothing is rounded."""
    return TableSpec(name, columns, SGD(1.0), Zeros(), seed)


def _push_claim(client: ServersClient, spec: TableSpec, claim: int) -> bool:
    """Whether it is this worker's."""
    ids = np.array([-1 - claim], np.int64)
    token = np.array([[-secrets.randbelow(1 << 24) for _ in range(spec.columns)]], np.float32)
    client.push_once(spec.name, CLAIMS, ids, token, claim)
    return np.array_equal(client.pull(spec.name, ids)[1], -token)


def _are_there(client: ServersClient, table: str, claim: int, lease: int = 0) -> bool:
    """On all servers, by that claim or an earlier one; nothing is pushed by these under an earlier lease any more."""
    for each in range(claim + 1):
        if lease:
            client.cuts(table, 2 * each + 2, lease, 0)
        if client.cuts(table, 2 * each + 1, lease, 0) == [1]:
            return True
    return False


def _write_values(client: ServersClient, spec: TableSpec, claim: int, mine: Array) -> None:
    """Raises PushRefused where another worker has claimed since then."""
    if claim and _are_there(client, spec.name, claim - 1, lease=1):
        return
    piece = 0
    for ids in _split_ids(len(mine)):
        pushes = [-mine[ids]]
        if claim and (before := _pull_rows(client, spec.name, ids)).any():
            pushes.insert(0, before)  # makes zeros of these, which no difference of two numbers would
        for gradients in pushes:
            client.push_once(spec.name, 2 * claim + 2, ids, gradients, piece)
            piece += 1
    client.push_once(spec.name, 2 * claim + 1, NO_IDS, np.empty((0, spec.columns), np.float32))


def _await_values(client: ServersClient, table: str, claim: int) -> bool:
    """Whether they are there; False: nothing more comes of that claim."""
    begun = moved = time.monotonic()
    told_at, seen, patience = begun + QUIET, [0], SECONDS * (claim + 1)
    while not _are_there(client, table, claim):
        if (marks := client.cuts(table, 2 * claim + 2, 0, 0)) != seen:
            seen, moved = marks, time.monotonic()
        if time.monotonic() > told_at:
            told_at = begun + 10 * QUIET
            say_line(
                f"this worker waits for the first values of table {table!r}: another one writes them, and has pushed "
                f"{seen[-1]} pieces; when no more come for {patience:g} s, somebody else writes them"
            )
        if time.monotonic() > moved + patience:
            return False
        time.sleep(PAUSE)
    return True


def _split_ids(count: int) -> list[Array]:
    return [np.arange(first, min(first + PIECE, count), dtype=np.int64) for first in range(0, count, PIECE)]


def _pull_rows(client: ServersClient, table: str, ids: Array) -> Array:
    _, rows, inverse = client.pull(table, ids)
    return rows[inverse]
