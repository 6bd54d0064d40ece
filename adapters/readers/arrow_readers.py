"""The `RecordReader` of Parquet, ORC and Arrow files, by pyarrow: what it decodes at once is a group of records.

A group is a row group of Parquet, a stripe of ORC, a record batch of Arrow. Those that were used last are kept decoded,
so that records close to each other, and random ones of few groups, are read at once.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from .contract import BadRow, Columns, check_kinds_named, describe_difference
from .errors import BadFiles
from .found_files import KnownFile, known

pa: Any = import_module("pyarrow")  # Any: it has no types

MEMORY = 256 << 20
"""Bytes of decoded groups that are kept, by default."""

_ARRAYS: Mapping[str, Any] = {"int64": np.int64, "uint64": np.uint64, "float64": np.float64, "bool": np.bool_}
"""Kinds whose values are arrays, beside those of `datetime64`; those of others are lists."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedGroup:
    """Decoded records.

    Attributes:
        values: by column: an array of numpy, or one of pyarrow.
        missing: columns of a kind without a word for "no value", with an array of where there is none.
        bytes: about how many it takes.
    """

    values: Mapping[str, Any]
    missing: Mapping[str, Any]
    bytes: int


class ArrowReader(ABC):
    """What the formats share; each says how its files are opened and its groups decoded.

    Args:
        files: names.
        kinds: "float64" of columns of numbers or truth values, in which null becomes NaN, or "str" of any.
        memory: bytes of decoded groups that are kept; the one in use is, whatever its size.

    Raises BadFiles.
    """

    title: ClassVar[str] = ""
    group: ClassVar[str] = ""

    def __init__(self, files: Sequence[str], kinds: Mapping[str, str], *, memory: int = MEMORY) -> None:
        self._memory = memory
        self._forget_groups()
        self._known: dict[str, KnownFile] = {}
        self._ends: dict[str, Any] = {}
        kinds_of_files: dict[str, dict[str, str]] = {}
        for file in files:
            self._known[file] = known(file)
            with self._explained(file):
                schema, sizes = self._outline(file)
            self._ends[file] = np.cumsum(sizes, dtype=np.int64) if sizes else np.zeros(1, np.int64)
            kinds_of_files[file] = _kinds_of(file, schema, kinds)
        first = next((file for file in files if self.size(file)), files[0])
        self._kinds = kinds_of_files[first]
        for file, own in kinds_of_files.items():
            _check_alike(first, self._kinds, file, own, names_only=not self.size(file))

    def _forget_groups(self) -> None:
        """From now on this object keeps groups, for all threads of this process."""
        self._used = 0
        self._groups: OrderedDict[tuple[str, int], DecodedGroup] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:  # Any: what each attribute is
        """For a loader's processes that are spawned, which decode their own groups."""
        return {name: value for name, value in vars(self).items() if name not in ("_used", "_groups", "_lock")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """What `__getstate__` gave."""
        vars(self).update(state)
        self._forget_groups()

    @property
    def columns(self) -> Mapping[str, str]:
        """The kind of each column."""
        return self._kinds

    def size(self, file: str) -> int:
        """How many records a file has."""
        return int(self._ends[file][-1])

    def place(self, file: str, index: int) -> str:
        """The file, the number of the record, and its group."""
        return f"{file}, record {index} ({self.group} {int(self._ends[file].searchsorted(index, 'right'))})"

    def read(self, file: str, indices: Sequence[int]) -> Columns:
        """The records with these numbers, in this order. Raises FileChanged, BadFiles."""
        self._known[file].check_unchanged()
        wanted, ends = np.asarray(indices, np.int64), self._ends[file]
        groups = ends.searchsorted(wanted, "right")
        found: dict[str, Any] = {
            name: np.empty(len(wanted), _dtype_of(kind)) if _dtype_of(kind) else [None] * len(wanted)
            for name, kind in self._kinds.items()
        }
        bad: dict[int, str] = {}
        for number in np.unique(groups).tolist():
            positions = np.flatnonzero(groups == number)
            rows = wanted[positions] - (int(ends[number - 1]) if number else 0)
            with self._lock:
                group = self._decoded(file, number)
            for name, values in group.values.items():
                if _dtype_of(self._kinds[name]):
                    found[name][positions] = values[rows]
                elif len(rows) == 1:  # a twentieth of what `take` needs
                    found[name][int(positions[0])] = values[int(rows[0])].as_py()
                else:
                    for position, value in zip(
                        positions.tolist(), values.take(pa.array(rows)).to_pylist(), strict=True
                    ):
                        found[name][position] = value
            for name, missing in group.missing.items():
                reads = f"kinds={{{name!r}: 'float64'}}, or --kinds={name}:float64, reads it as NaN"
                why = f"column {name!r} has no value ({reads})"
                bad.update(dict.fromkeys(positions[missing[rows]].tolist(), why))
        if bad:
            kept = [position for position in range(len(wanted)) if position not in bad]
            for name, values in found.items():
                found[name] = values[kept] if _dtype_of(self._kinds[name]) else [values[place] for place in kept]
        return Columns(found, [BadRow(position, bad[position]) for position in sorted(bad)])

    def _decoded(self, file: str, number: int) -> DecodedGroup:
        """A group, of those that are kept or of the file."""
        if group := self._groups.get((file, number)):
            self._groups.move_to_end((file, number))
            return group
        with self._explained(f"{file}, {self.group} {number},"):
            group = _group_of(self.decode_group(file, number), self._kinds)
        self._known[file].check_unchanged()  # meanwhile
        self._used += group.bytes
        while self._groups and self._used > self._memory:
            self._used -= self._groups.popitem(last=False)[1].bytes
        self._groups[file, number] = group
        return group

    @contextmanager
    def _explained(self, what: str) -> Generator[None]:
        """What pyarrow raises becomes an error of ours."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise BadFiles(f"{what} cannot be read as {self.title}: {error}") from error

    @abstractmethod
    def _outline(self, file: str) -> tuple[Any, list[int]]:
        """The schema of a file, and how many records each group has."""

    @abstractmethod
    def decode_group(self, file: str, number: int) -> Any:
        """A group, as a table or batch of pyarrow."""


class ParquetReader(ArrowReader):
    """Records of Parquet files."""

    title, group = "Parquet", "row group"

    def _outline(self, file: str) -> tuple[Any, list[int]]:
        with import_module("pyarrow.parquet").ParquetFile(file) as opened:
            data = opened.metadata
            return opened.schema_arrow, [data.row_group(number).num_rows for number in range(data.num_row_groups)]

    def decode_group(self, file: str, number: int) -> Any:
        with import_module("pyarrow.parquet").ParquetFile(file) as opened:
            return opened.read_row_group(number)


class OrcReader(ArrowReader):
    """Records of ORC files."""

    title, group = "ORC", "stripe"

    def _outline(self, file: str) -> tuple[Any, list[int]]:
        with pa.OSFile(file) as source:
            opened = import_module("pyarrow.orc").ORCFile(source)
            # Only a stripe says how many records it has; one column of it is enough.
            first = opened.schema.names[:1]
            return opened.schema, [
                opened.read_stripe(number, columns=first).num_rows for number in range(opened.nstripes)
            ]

    def decode_group(self, file: str, number: int) -> Any:
        with pa.OSFile(file) as source:
            return import_module("pyarrow.orc").ORCFile(source).read_stripe(number)


class IpcReader(ArrowReader):
    """Records of Arrow files, of which Feather is another name."""

    title, group = "an Arrow file (a stream of Arrow has no index: write it as a file)", "record batch"

    def _outline(self, file: str) -> tuple[Any, list[int]]:
        with pa.OSFile(file) as source:
            schema = pa.ipc.open_file(source).schema
            narrow = pa.ipc.IpcReadOptions(included_fields=[0])  # as for ORC
            opened = pa.ipc.open_file(source, options=narrow)
            return schema, [opened.get_batch(number).num_rows for number in range(opened.num_record_batches)]

    def decode_group(self, file: str, number: int) -> Any:
        with pa.OSFile(file) as source:
            return pa.ipc.open_file(source).get_batch(number)


def _check_alike(
    first: str, columns: Mapping[str, str], file: str, own: Mapping[str, str], *, names_only: bool
) -> None:
    """Raises BadFiles where two files have different columns; what has no record may have no types either."""
    here, there = (
        [name if names_only else f"{name} ({kind})" for name, kind in each.items()] for each in (columns, own)
    )
    if here != there:
        raise BadFiles(describe_difference(first, here, file, there))


def _kinds_of(file: str, schema: Any, given: Mapping[str, str]) -> dict[str, str]:
    """The kind of each column. Raises BadFiles."""
    names: list[str] = schema.names
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise BadFiles(f"{file} names the column {twice[0]!r} twice")
    found = {field.name: _kind_of(field.type) for field in schema}
    check_kinds_named(given, names, file)
    for name, kind in given.items():
        if (
            kind != found[name]
            and kind != "str"
            and (kind != "float64" or found[name] not in ("int64", "uint64", "bool"))
        ):
            raise BadFiles(f"column {name!r} of {file} is of kind {found[name]}, and cannot be read as {kind!r}")
        found[name] = kind
    return found


def _dtype_of(kind: str) -> Any:
    """Numpy's type of the values of that kind; None where they are a list."""
    return _ARRAYS.get(kind) or (kind if kind.startswith("datetime64") else None)


def _kind_of(type_: Any) -> str:
    """What a type of pyarrow is called here."""
    types = pa.types
    checks: Sequence[tuple[Callable[[Any], bool], str]] = (
        (types.is_uint64, "uint64"),
        (types.is_integer, "int64"),
        (types.is_floating, "float64"),
        (types.is_boolean, "bool"),
        (types.is_string, "str"),
        (types.is_large_string, "str"),
        (getattr(types, "is_string_view", types.is_string), "str"),
    )
    if types.is_dictionary(type_):
        return _kind_of(type_.value_type)
    if types.is_timestamp(type_):
        return f"datetime64[{type_.unit}]"
    if types.is_date32(type_):
        return "datetime64[D]"
    return next((kind for check, kind in checks if check(type_)), str(type_))


def _group_of(table: Any, kinds: Mapping[str, str]) -> DecodedGroup:
    """Columns as arrays that any record can be taken from."""
    values: dict[str, Any] = {}
    missing: dict[str, Any] = {}
    size = 0
    for name, kind in kinds.items():
        column = table.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # more than one array holds
            column = pa.concat_arrays(column.chunks)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if kind == "str" and _kind_of(column.type) != "str":
            column = column.cast(pa.string())
        if kind == "float64":
            column = column.cast(pa.float64(), safe=False)
        elif kind in _ARRAYS and column.null_count:
            missing[name] = column.is_null().to_numpy(zero_copy_only=False)
            column = column.fill_null(False if kind == "bool" else 0)
        if dtype := _dtype_of(kind):
            column = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        values[name] = column
        size += column.nbytes
    return DecodedGroup(values, missing, size)
