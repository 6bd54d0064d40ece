"""All tables of one server: what a request changes, and what it is answered (no I/O).

A request is answered whole or refused whole: all that can be wrong is looked for before the first row changes.
"""

from collections.abc import Sequence

import numpy as np

from . import kernels
from .errors import TableMisused
from .marks import Marks, RecordsRefused
from .requests import OpenTable, PullRows, PushGradients, PushSource, ReadMarks, ReadPiece, Reply, Request
from .rows import Rows, TableFull
from .server_events import Array, Arrays
from .specs import TableSpec


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
                case OpenTable(table, _):
                    return self._open(table), ()
                case PullRows(names, _):
                    return Reply(), self._pull(names, arrays)
                case PushGradients(names, source, _):
                    return Reply(count=self._push(names, source, arrays)), ()
                case ReadMarks(dataset, shard_index, _, _):
                    return Reply(marks=(self._marks.read(dataset, shard_index),)), ()
                case ReadPiece(name, first, _):
                    ids, values = self._table(name).read_piece(first)
                    return Reply(count=first + len(ids)), (ids, values)
                case _:
                    raise TableMisused(f"{request.code} is not served yet")
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
