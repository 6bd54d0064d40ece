"""All tables of one server: what a request changes, and what it is answered (no I/O).

A request is answered whole or refused whole: all that can be wrong is looked for before the first row changes.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Number
from ...rendezvous.wire.values import Tagged
from . import kernels
from .errors import TableMisused
from .marks import Marks, PushSource, RecordsRefused
from .rows import Array, Rows, TableFull
from .specs import Name, TableSpec

Arrays = Sequence[Array]


@dataclass(frozen=True, slots=True)
class OpenTable(Tagged):
    """Declares a table; the first to do so makes it."""

    table: TableSpec


@dataclass(frozen=True, slots=True)
class PullRows(Tagged):
    """Wants the values of these tables' rows; with it comes an array of ids for each. Changes nothing."""

    tables: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class PushGradients(Tagged):
    """Applies gradients; with it come an array of ids, each once, and one of gradients, for each table in turn."""

    tables: tuple[Name, ...]
    source: PushSource


@dataclass(frozen=True, slots=True)
class ReadMark(Tagged):
    """Wants to know how far a shard is applied."""

    dataset: Name
    shard_index: Number


@dataclass(frozen=True, slots=True)
class ReadPiece(Tagged):
    """Wants a piece of all that a table has: its ids and rows from the `first` row on."""

    table: Name
    first: Number


Request = OpenTable | PullRows | PushGradients | ReadMark | ReadPiece


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answers; arrays may come with it.

    Attributes:
        refused: why nothing of the request was done: "misused" by the script, "full", "records" (see `marks.py`).
        text: in words.
        count: rows that were changed; rows of the table.
        mark: see `Marks.read`.
    """

    refused: Literal["", "misused", "full", "records"] = ""
    text: str = ""
    count: Number = 0
    mark: Number = 0


class Tables:
    """The tables of one server.

    Args:
        memory: bytes that all their rows may take together.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._tables: dict[str, Rows] = {}
        self._marks = Marks()

    def answer(self, request: Request, arrays: Arrays) -> tuple[Reply, Arrays]:
        """The answer to one request."""
        try:
            match request:
                case OpenTable(table):
                    return self._open(table), ()
                case PullRows(names):
                    return Reply(), self._pull(names, arrays)
                case PushGradients(names, source):
                    return Reply(count=self._push(names, source, arrays)), ()
                case ReadMark(dataset, shard_index):
                    return Reply(mark=self._marks.read(dataset, shard_index)), ()
                case ReadPiece(name, first):
                    rows = self._table(name)
                    return Reply(count=rows.count), rows.read_piece(first)
        except TableMisused as error:
            return Reply("misused", str(error)), ()
        except TableFull as error:
            return Reply("full", str(error)), ()
        except RecordsRefused as error:
            return Reply("records", str(error)), ()

    def _open(self, spec: TableSpec) -> Reply:
        spec.check()
        if (found := self._tables.get(spec.name)) is None:
            try:
                self._tables[spec.name] = found = Rows(spec, self._memory)
            except OSError as error:
                raise TableFull(f"table {spec.name!r}: no room to reserve for its rows ({error.strerror})") from None
        elif difference := spec.describe_difference(found.spec):
            raise TableMisused(
                f"table {spec.name!r} is there already, with {difference}: declare it the same on every rank"
            )
        return Reply(count=found.count)

    def _table(self, name: str) -> Rows:
        if (found := self._tables.get(name)) is None:
            raise TableMisused(f"there is no table {name!r} here: declare it first")
        return found

    def _pull(self, names: Sequence[str], arrays: Arrays) -> list[Array]:
        tables = [self._table(name) for name in names]
        if len(arrays) != len(tables):
            raise TableMisused(f"a pull of {len(tables)} tables came with {len(arrays)} arrays")
        for ids in arrays:
            _check_ids(ids)
        return [rows.read(rows.find(ids), ids) for rows, ids in zip(tables, arrays, strict=True)]

    def _push(self, names: Sequence[str], source: PushSource, arrays: Arrays) -> int:
        new = self._marks.judge(source)
        if len(arrays) != 2 * len(names):
            raise TableMisused(f"a push of {len(names)} tables came with {len(arrays)} arrays")
        todo: list[tuple[Rows, Array, Array, Array]] = []
        for name, ids, gradients in zip(names, arrays[::2], arrays[1::2], strict=True):
            rows = self._table(name)
            _check_ids(ids)
            if gradients.dtype != np.float32 or gradients.shape != (len(ids), rows.spec.columns):
                raise TableMisused(
                    f"table {name!r}: {len(ids)} ids have gradients of {gradients.dtype} {gradients.shape}, and not of "
                    f"float32 {(len(ids), rows.spec.columns)}"
                )
            if rows.spec.unusable == "refuse" and kernels.has_unusable(gradients):
                raise TableMisused(
                    f"table {name!r}: a gradient is not a finite number; nothing of this push was applied. Declare the "
                    "table with unusable='skip' to leave such rows out"
                )
            todo.append((rows, ids, gradients, rows.find(ids)))
        if not new:
            return 0
        self._check_room(todo)
        for rows, ids, gradients, places in todo:
            rows.apply(rows.make(ids, places), gradients)
        self._marks.advance(source)
        return sum(len(ids) for _, ids, _, _ in todo)

    def _check_room(self, todo: Sequence[tuple[Rows, Array, Array, Array]]) -> None:
        """Raises TableFull where the rows that are to be made do not fit."""
        taken = sum(rows.count * rows.row_bytes for rows in self._tables.values())
        more = sum(int((places < 0).sum()) * rows.row_bytes for rows, _, _, places in todo)
        if taken + more > self._memory:
            raise TableFull(
                f"the tables take {taken >> 20} MiB, {more >> 10} KiB more are wanted, and this server has "
                f"{self._memory >> 20} MiB for them: give servers more memory, or have more of them"
            )


def _check_ids(ids: Array) -> None:
    if ids.dtype != np.int64 or ids.ndim != 1:
        raise TableMisused(f"ids are {ids.dtype} of {ids.ndim} dimensions, and not int64 of one")
