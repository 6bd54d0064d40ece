"""One server's part of a checkpoint, as a file: messages as they go over a connection (`frames.py`), and a checksum.

The first has the marks, each other a piece of a table's rows, with their states; an empty one is the last.
"""

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.host.lasting_files import write_whole
from ...rendezvous.wire.fields import Number
from ...rendezvous.wire.values import Count, Malformed, Text
from . import frames, kernels
from .copies import piece_size
from .frames import Shape
from .marks import Marks
from .requests import MOST_TABLES, Names, Slots
from .server_events import Array, Arrays
from .slot_sets import NO_SLOTS, SlotSet, read_slots, write_slots
from .specs import TableSpec
from .tables import Tables


class PartDamaged(Exception):
    """The file is not what was written; the message names it."""


@dataclass(frozen=True, slots=True)
class PartMarks:
    """The head of the first message; its arrays are those of `Marks.take_slots`.

    Attributes:
        version: the checkpoint's number.
        slots: all those of the part.
        tables: in their order.
        datasets: of the marks.
    """

    version: Number
    slots: Slots
    tables: Annotated[tuple[TableSpec, ...], Count(MOST_TABLES)]
    datasets: Names
    arrays: Annotated[tuple[Shape, ...], Count(5)]


@dataclass(frozen=True, slots=True)
class PartRows:
    """The head of any other; its arrays are those of `Rows.copy_piece`. Without a table: the end."""

    table: Annotated[str, Text(200)] = ""
    arrays: Annotated[tuple[Shape, ...], Count(8)] = ()


def write_part(path: Path, version: int, slots: SlotSet, tables: Tables, marks: Marks) -> None:
    """Writes the rows and marks of these slots. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(path) as file:
        checksum = 0
        for head, arrays in _list_messages(version, slots, tables, marks):
            for each in frames.pack(head, arrays):
                checksum = zlib.crc32(each, checksum)
                file.write(each)
        file.write(frames.PREFIX.pack(checksum))


def _list_messages(
    version: int, slots: SlotSet, tables: Tables, marks: Marks
) -> Iterator[tuple[PartMarks | PartRows, Arrays]]:
    datasets, arrays = marks.take_slots(slots)
    yield PartMarks(version, write_slots(slots), tables.specs, datasets, frames.shapes_of(arrays)), arrays
    for spec in tables.specs:
        rows, place = tables.find_table(spec.name), 0
        while place < rows.end:
            arrays, place = rows.copy_piece(place, slots, piece_size(rows))
            yield PartRows(spec.name, frames.shapes_of(arrays)), arrays
    yield PartRows(), ()


class PartReader:
    """Takes what a server is to have of a checkpoint.

    Args:
        version: its number.
        slots: which are wanted.
        tables, marks: where it goes.
        keeps_leases: those of the marks are of this run.

    Attributes:
        found: the slots of which there was all.
    """

    def __init__(
        self, version: int, slots: SlotSet, tables: Tables, marks: Marks, *, keeps_leases: bool = False
    ) -> None:
        self._version = version
        self._keeps_leases = keeps_leases
        self._slots = slots
        self._tables = tables
        self._marks = marks
        self.found = NO_SLOTS

    def read_part(self, path: Path) -> None:
        """Raises OSError, TableFull, PartDamaged."""
        try:
            with path.open("rb") as file:
                source = _Source(file)
                head, arrays = source.read_message(PartMarks)
                slots = self._begin(head, arrays)
                while (message := source.read_message(PartRows))[0].table:
                    piece, arrays = message
                    rows, chosen = self._tables.find_table(piece.table), _choose(arrays, slots)
                    if not self._keeps_leases:  # else the rows were all in this server, however they have come there
                        self._tables.check_count(rows, len(chosen[0]))
                    rows.put_piece(chosen)
                source.check_end()
                self.found = self.found | slots
        except (EOFError, LookupError, ValueError, Malformed) as error:
            raise PartDamaged(f"{path} is damaged: {error}") from None

    def _begin(self, head: PartMarks, arrays: list[Array]) -> SlotSet:
        """Those of the wanted slots that the part has."""
        if head.version != self._version:
            raise Malformed(f"it is of checkpoint {head.version}")
        slots = self._slots & read_slots(head.slots)
        if slots.any():  # leases are counted anew in another run's ledger
            self._marks.put_slots(slots, head.datasets, arrays, leased=self._keeps_leases)
        for spec in head.tables:
            self._tables.take_table(replace(spec, max_staleness=None))  # that is between the workers of a run
        return slots


def _choose(arrays: list[Array], slots: SlotSet) -> list[Array]:
    """Those rows whose ids are of these slots."""
    chosen = np.empty(len(arrays[0]), np.int64)
    count = int(kernels.choose_ids(arrays[0], slots, chosen))
    return arrays if count == len(chosen) else [each[chosen[:count]] for each in arrays]


class _Source:
    """A file of messages, and the checksum of what was read."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._checksum = 0

    def read_message(self, kind: Any) -> tuple[Any, list[Array]]:
        """Any: of this kind. Raises EOFError, Malformed."""
        head, arrays, self._checksum = frames.read_message(self._file, kind, self._checksum)
        return head, arrays

    def check_end(self) -> None:
        """Raises Malformed."""
        if self._file.read() != frames.PREFIX.pack(self._checksum):
            raise Malformed("its checksum is another one")
