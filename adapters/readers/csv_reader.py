"""The `RecordReader` of CSV files: an index says where a record is; only those that are wanted are decoded."""

import contextlib
import csv
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...rendezvous.host.named_files import open_to_read
from .contract import SAMPLE, Columns, check_kinds_named, describe_difference
from .csv_index import LEAD, CsvIndex, Indexed, indexes_of, line_of
from .csv_kinds import KINDS, kind_of
from .csv_masks import find_records_fast, find_records_quickly
from .csv_split import CR, LF, LINE_START, QUOTE, QUOTED
from .csv_values import columns_of, fields_of
from .errors import BadFiles, FileChanged
from .found_files import KnownFile, extension_of, known

_HEAD = 1 << 20
"""Bytes of a file that its header and its kinds are read from."""

MOST_OPEN = 64
"""Files that are kept open."""

_MARK = b"\xef\xbb\xbf"
"""What some programs write before UTF-8."""

_OTHERS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "compressed by gzip", b"PK\x03\x04": "a zip file"}
"""How a file begins that is no CSV in UTF-8."""

_OLD_MAC = "lines end with a carriage return alone, as on old Macs"


class CsvReader:
    """Records of CSV files in UTF-8; see `csv_split` for its rules.

    Args:
        files: names.
        kinds: "int64", "float64" or "str", of columns whose kind is not to be inferred.
        delimiter: one ASCII character; None: a tab for .tsv, else a comma.
        header: whether each file begins with its columns' names; or their names, where none does.

    Raises BadFiles, FileChanged, TypeError.
    """

    def __init__(
        self,
        files: Sequence[str],
        kinds: Mapping[str, str],
        *,
        delimiter: str | None = None,
        header: bool | Sequence[str] = True,
    ) -> None:
        self._delimiter = delimiter or ("\t" if extension_of(files[0]) == "tsv" else ",")
        if len(self._delimiter) != 1 or ord(self._delimiter) > 127 or ord(self._delimiter) in (LF, CR, QUOTE, 0):
            raise BadFiles(f"delimiter={delimiter!r} must be one ASCII character, and no quote or line end")
        if isinstance(header, str) or not isinstance(header, bool | Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"header={header!r} must be True, False, or a list of the columns' names")
        self._header = header
        self._codes = frozenset(kinds)  # who gives a kind means it
        self._known: dict[str, KnownFile] = {}
        self._keep_open()
        wanted: list[Indexed] = []
        names, first, sample = list[str](), "", list[list[str]]()
        for file in files:
            own, begin, rows = self._look_into(file)
            wanted.append(Indexed(self._known[file], begin, ord(self._delimiter)))
            if not own:
                continue
            if not first:
                names, first = own, file
            elif own != names:
                raise BadFiles(describe_difference(first, names, file, own))
            sample = sample or rows
        if not first:
            raise BadFiles(f"there is no record in {files[0]}" + (" and the other files" if len(files) > 1 else ""))
        self._columns = _kinds(first, names, sample, kinds)
        self._indexes: dict[str, CsvIndex] = dict(zip(files, indexes_of(wanted), strict=True))

    def _keep_open(self) -> None:
        """From now on this object keeps files open, for all threads of this process, and closes them at its end."""
        self._opened: dict[str, int] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._opened)

    def __getstate__(self) -> dict[str, Any]:  # Any: what each attribute is
        """For a loader's processes that are spawned: descriptors are of this process alone."""
        return {name: value for name, value in vars(self).items() if name not in ("_opened", "_lock")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """What `__getstate__` gave."""
        vars(self).update(state)
        self._keep_open()

    @property
    def columns(self) -> Mapping[str, str]:
        """The kind of each column."""
        return self._columns

    def size(self, file: str) -> int:
        """How many records a file has."""
        return self._indexes[file].size

    def read(self, file: str, indices: Sequence[int]) -> Columns:
        """The records with these numbers, in this order. Raises FileChanged."""
        self._known[file].check_unchanged()
        pieces = [self._piece(file, indices[0])] if len(indices) == 1 else self._pieces(file, indices)
        self._known[file].check_unchanged()  # meanwhile
        try:
            return columns_of([piece.decode() for piece in pieces], self._columns, self._delimiter, self._codes)
        except UnicodeDecodeError:
            records = [piece.decode(errors="surrogateescape") for piece in pieces]
            return columns_of(records, self._columns, self._delimiter, self._codes, clean=False)

    def place(self, file: str, index: int) -> str:
        """The file and the line of a record."""
        index_of_file = self._indexes[file]
        low = int(index_of_file.numbers.searchsorted(index, "right")) - 1
        first, _, starts = self._run(file, low, low + 1)
        begin = int(index_of_file.begins[low]) + int(starts[index - first])
        return f"{file}, line {line_of(self._known[file].path, begin)}"

    def _piece(self, file: str, number: int) -> bytes:
        """The text of one record: `_pieces` in a third of the time."""
        low = int(self._indexes[file].numbers.searchsorted(number, "right")) - 1
        first, text, starts = self._run(file, low, low + 1)
        return text[starts[number - first] : starts[number - first + 1]]

    def _pieces(self, file: str, indices: Sequence[int]) -> list[bytes]:
        """The text of each record."""
        if not len(indices):
            return []
        wanted = np.asarray(indices, np.int64)
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        # A record lies between its own place in the index and the next one: records close to each other are one run.
        places = self._indexes[file].numbers.searchsorted(ordered, "right") - 1
        cuts = np.flatnonzero(places[1:] - places[:-1] > 1) + 1
        found = [b""] * len(wanted)
        for low, high in pairwise([0, *cuts.tolist(), len(wanted)]):
            first, text, starts = self._run(file, int(places[low]), int(places[high - 1]) + 1)
            numbers = ordered[low:high] - first
            begins, ends = starts[numbers].tolist(), starts[numbers + 1].tolist()
            for position, begin, end in zip(order[low:high].tolist(), begins, ends, strict=True):
                found[position] = text[begin:end]
        return found

    def _run(self, file: str, low: int, high: int) -> tuple[int, bytes, Any]:
        """The records between two places of the index: the first one's number, their text, where each begins in it."""
        index = self._indexes[file]
        whole = high == len(index.numbers)
        begin, end = int(index.begins[low]), self._known[file].size if whole else int(index.begins[high])
        first, behind = int(index.numbers[low]), index.size if whole else int(index.numbers[high])
        data: Any = np.zeros(LEAD + end - begin + LEAD, np.uint8)
        before = 1 if low else 0  # each place but the first follows the end of a line
        self._read_into(file, memoryview(data)[LEAD - before : -LEAD], begin - before)
        text = data[LEAD:-LEAD].tobytes()
        starts = np.empty(len(text) // 2 + 2, np.int64)
        count = find_records_quickly(data, LEAD, len(text), np.uint8(ord(self._delimiter)), starts)
        if count < 0:
            count, mode = find_records_fast(data[LEAD:], len(text), ord(self._delimiter), LINE_START, starts)
            count = -1 if mode == QUOTED else count
        if count != behind - first or (before and data[LEAD - 1] != LF):
            raise FileChanged(
                f"{file} has other records than its index says, from record {first} on: it was written and its time of "
                "change set back, or the index is not its own. Remove the index, and start the job again"
            )
        starts[count] = len(text)
        return first, text, starts

    def _read_into(self, file: str, view: memoryview, begin: int) -> None:
        """Fills `view` with what stands in the file from `begin` on, as far as it goes."""
        with self._lock:  # or another thread closes it
            descriptor = self._opened.get(file)
            if descriptor is None:
                if len(self._opened) >= MOST_OPEN:
                    os.close(self._opened.popitem()[1])
                with open_to_read(Path(file)) as opened:
                    descriptor = self._opened[file] = os.dup(opened.fileno())
            read = 0
            while read < len(view) and (more := os.preadv(descriptor, [view[read:]], begin + read)):
                read += more

    def _look_into(self, file: str) -> tuple[list[str], int, list[list[str]]]:
        """The names of a file's columns, the byte after its header, its first records; empty where it has none."""
        with open_to_read(Path(file)) as opened:
            self._known[file] = known(file, opened.fileno())
            head, size = opened.read(_HEAD), self._known[file].size
        for beginning, what in _OTHERS.items():
            if head.startswith(beginning):
                raise BadFiles(f"{file} is {what}, and not CSV in UTF-8: convert it")
        mark = len(_MARK) if head.startswith(_MARK) else 0
        starts = np.empty(SAMPLE + 2, np.int64)
        data = np.frombuffer(head, np.uint8)[mark:]
        count, _ = find_records_fast(data, len(data), ord(self._delimiter), LINE_START, starts)
        ends = [mark + start for start in starts[:count].tolist()]
        if len(head) == size:
            ends.append(size)
        elif len(ends) == 1 and b"\r" in head and b"\n" not in head:
            raise BadFiles(f"{file}, line 1: {_OLD_MAC}")
        elif len(ends) == 1:
            raise BadFiles(f"{file}, line 1: the first record has more than 1 MiB: is a quoted field never closed?")
        records = [head[begin:end].decode(errors="surrogateescape") for begin, end in pairwise(ends)]
        if not records:
            return [], size, []
        try:
            names = fields_of(records[0], self._delimiter)
        except UnicodeEncodeError:
            raise BadFiles(
                f"{file}, line 1: it is not UTF-8, but perhaps Latin-1: convert it (iconv -f latin1 -t utf-8)"
            ) from None
        except (ValueError, csv.Error) as error:
            why = _OLD_MAC if "\r" in records[0].rstrip("\r\n") else error
            raise BadFiles(f"{file}, line 1: {why}") from None
        if self._header is True:
            return _checked(names, file), ends[1], [*_rows(records[1:], len(names), self._delimiter)]
        if self._header is False:
            names = [f"column_{number}" for number in range(len(names))]
        elif len(self._header) != len(names):
            raise BadFiles(f"{file} has {len(names)} columns, and header= names {len(self._header)}")
        else:
            names = _checked(list(self._header), "header=")
        return names, mark, [*_rows(records, len(names), self._delimiter)]


def _close_all(opened: dict[str, int]) -> None:
    for descriptor in opened.values():
        os.close(descriptor)


def _rows(records: Sequence[str], width: int, delimiter: str) -> Iterator[list[str]]:
    """The fields of each record, but of those that are bad rows anyway."""
    for record in records:
        with contextlib.suppress(ValueError, csv.Error):
            if len(row := fields_of(record, delimiter)) == width:
                yield row


def _checked(names: list[str], where: str) -> list[str]:
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise BadFiles(f"{where} names the column {twice[0]!r} twice")
    return names


def _kinds(
    first: str, names: Sequence[str], sample: Sequence[Sequence[str]], given: Mapping[str, str]
) -> dict[str, str]:
    """The kind of each column."""
    check_kinds_named(given, names, first)
    for name, kind in given.items():
        if kind not in KINDS:
            raise BadFiles(f"the kind {kind!r} of column {name!r} is unknown: use one of {', '.join(KINDS)}")
    return {name: given.get(name) or kind_of([row[number] for row in sample]) for number, name in enumerate(names)}
