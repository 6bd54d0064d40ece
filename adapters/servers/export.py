"""Writes whole tables as files that other programs read, from any one worker."""

import shutil
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import numpy as np

from .client import Answer
from .requests import ReadPiece
from .routing import Routes
from .server_events import Array
from .session import ServersClient, session


class TablePieces:
    """All rows of one table, in pieces, each from all servers at once.

    Attributes:
        begun: how often it was begun: again where slots have moved, which other servers may have in another order.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._holders: object = None
        self._places: list[int] = []
        self.begun = 0

    def split_by_server(self, routes: Routes) -> list[tuple[ReadPiece, tuple[()]]]:
        """For `ServersConnection`."""
        holders = [each.incarnation for each in routes.servers], routes.table.primary
        if holders != self._holders:
            self._holders, self._places = holders, [0] * len(routes.servers)
            self.begun += 1
        return [(ReadPiece(self._table, place, routes.table.version), ()) for place in self._places]

    def take_answers(self, answers: list[Answer]) -> bool:
        """Whether there is more."""
        before, self._places = self._places, [reply.count for reply, _ in answers]
        return before != self._places


class ArrayFile:
    """A `.npy` file that grows by rows.

    Args:
        path: of the new file.
        dtype, columns: of its array; without columns it has one dimension.
    """

    def __init__(self, path: Path, dtype: str, columns: tuple[int, ...] = ()) -> None:
        self._dtype, self._columns = dtype, columns
        self._file = path.open("wb")
        self._rows = 0
        self._write_head()

    def __enter__(self) -> "ArrayFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._write_head()
        self._file.close()

    def clear_rows(self) -> None:
        """Begins again."""
        self._rows = 0
        self._write_head()
        self._file.truncate()

    def append_rows(self, array: Array) -> None:
        """Of the file's type and columns."""
        self._rows += len(array)
        self._file.write(np.ascontiguousarray(array).data if array.size else b"")

    def _write_head(self) -> None:
        """It has the same length for any number of rows: numpy leaves room for it."""
        self._file.seek(0)
        shape = (self._rows, *self._columns)
        np.lib.format.write_array_header_1_0(self._file, {"descr": self._dtype, "fortran_order": False, "shape": shape})


def export_tables(folder: str | Path, client: ServersClient | None = None) -> None:
    """Writes FOLDER/TABLE/ids.npy (int64) and rows.npy (float32, a row for each id) of each table declared here.

    Tables may be trained meanwhile: each row is as it is when it is read. The folder is there when it is whole.

    Args:
        folder: a new one.
        client: this process's, where none is given.

    Raises FileExistsError, OSError, ServerGone.
    """
    whole, client = Path(folder), client or session()
    if whole.exists():
        raise FileExistsError(f"{whole} is there already: export into a new folder")
    writing = whole.with_name(whole.name + ".writing")
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir(parents=True)
    for spec in client.specs:
        (of_table := writing / quote(spec.name, safe="")).mkdir()
        with (
            ArrayFile(of_table / "ids.npy", "<i8") as ids,
            ArrayFile(of_table / "rows.npy", "<f4", (spec.columns,)) as rows,
        ):
            pieces, begun, more = TablePieces(spec.name), 0, True
            while more:
                answers = client.ask_servers(pieces.split_by_server)
                if pieces.begun != begun:
                    begun = pieces.begun
                    ids.clear_rows()
                    rows.clear_rows()
                for _, (some_ids, some_rows) in answers:
                    ids.append_rows(some_ids)
                    rows.append_rows(some_rows)
                more = pieces.take_answers(answers)
    writing.rename(whole)
