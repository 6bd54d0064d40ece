"""The `RecordReader` of tar files in webdataset's form: members that follow each other and are
named alike before their first dot are one record."""

import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ...rendezvous.host.named_files import open_to_read
from .contract import BadRow, Columns, check_kinds_named, describe_difference
from .errors import BadFiles, FileChanged
from .found_files import KnownFile, known
from .kept_indexes import keep_index, read_indexes

KEY = "__key__"
"""The column with what a record's members have in common."""

KINDS: Mapping[str, str] = {
    **dict.fromkeys(("cls", "count", "id", "index"), "int64"),
    **dict.fromkeys(("txt", "text", "transcript"), "str"),
    "json": "json",
}
"""Of columns, by the extension of their members. All others are "bytes"."""

_GIVEN = ("int64", "float64", "str", "bytes", "json")

_FORMAT = "elastic-run tar index 1"


@dataclass(frozen=True, slots=True, eq=False)
class TarIndex:
    """Where the members of one tar file are.

    Attributes:
        keys: of each record.
        columns: extensions, sorted.
        places: (records, columns, 2) int64: the first byte and the size of each member; -1 where there is none.
    """

    keys: Sequence[str]
    columns: Sequence[str]
    places: Any  # Any: an array of numpy


class TarReader:
    """Records of tar files, which are not compressed as a whole.

    Args:
        files: names.
        kinds: "int64", "float64", "str", "bytes" or "json", of columns that are to be read otherwise than KINDS says.

    Raises BadFiles, FileChanged.
    """

    def __init__(self, files: Sequence[str], kinds: Mapping[str, str]) -> None:
        self._known = {file: known(file) for file in files}
        with ThreadPoolExecutor(min(len(files), len(os.sched_getaffinity(0)))) as threads:
            self._indexes = dict(zip(files, threads.map(_index_of, self._known.values()), strict=True))
        first = next((file for file, index in self._indexes.items() if index.keys), "")
        if not first:
            raise BadFiles(f"there is no record in {files[0]}" + (" and the other files" if len(files) > 1 else ""))
        names = self._indexes[first].columns
        for file, index in self._indexes.items():
            if index.keys and index.columns != names:
                raise BadFiles(describe_difference(first, names, file, index.columns))
        check_kinds_named(kinds, names, first)
        for name, kind in kinds.items():
            if kind not in _GIVEN:
                raise BadFiles(f"the kind {kind!r} of column {name!r} is unknown: use one of {', '.join(_GIVEN)}")
        self._kinds = {KEY: "str"} | {name: kinds.get(name) or KINDS.get(name, "bytes") for name in names}

    @property
    def columns(self) -> Mapping[str, str]:
        """The kind of each column: the extensions of the members."""
        return self._kinds

    def size(self, file: str) -> int:
        """How many records a file has."""
        return len(self._indexes[file].keys)

    def place(self, file: str, index: int) -> str:
        """The file, and what the record is called in it."""
        return f"{file}, record {index} ({self._indexes[file].keys[index]!r})"

    def read(self, file: str, indices: Sequence[int]) -> Columns:
        """The records with these numbers, in this order. Raises FileChanged."""
        index = self._indexes[file]
        found: dict[str, list[Any]] = {name: [] for name in self._kinds}
        bad: list[BadRow] = []
        with open_to_read(Path(file)) as opened:
            self._known[file].check_unchanged()
            for position, number in enumerate(indices):
                try:
                    values = [
                        self._member(opened.fileno(), *place)
                        for place in zip(index.columns, index.places[number].tolist(), strict=True)
                    ]
                except ValueError as error:
                    bad.append(BadRow(position, str(error)))
                    continue
                for name, value in zip(found, (index.keys[number], *values), strict=True):
                    found[name].append(value)
            self._known[file].check_unchanged()  # meanwhile
        return Columns({name: self._array(name, values) for name, values in found.items()}, bad)

    def _member(self, descriptor: int, name: str, place: tuple[int, int]) -> Any:
        """The value of one member; None where there is none. Raises ValueError, in words."""
        begin, size = place
        kind = self._kinds[name]
        if begin < 0:
            if kind == "int64":
                raise ValueError(f"there is no member {name!r} (kinds={{{name!r}: 'float64'}} reads it as NaN)")
            return float("nan") if kind == "float64" else None
        content = b""
        while len(content) < size and (more := os.pread(descriptor, size - len(content), begin + len(content))):
            content = content + more if content else more  # at most 2 GiB at once
        if len(content) != size:
            raise FileChanged(f"a tar file ends in the member {name!r}: it was cut off since it was opened")
        if kind == "bytes":
            return content
        try:
            text = content.decode()
            if kind == "str":
                return text
            value = json.loads(text) if kind == "json" else int(text) if kind == "int64" else float(text)
            if kind == "int64" and not -(2**63) <= value < 2**63:
                raise ValueError("it has more than 64 bits")
            return value
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the member {name!r} is no {kind}: {error}") from None

    def _array(self, name: str, values: list[Any]) -> Any:
        kind = self._kinds[name]
        return np.array(values, kind) if kind in ("int64", "float64") else values


def _index_of(file: KnownFile) -> TarIndex:
    """The index that is kept, or a new one, which is kept then."""
    head = {"format": _FORMAT, "size": file.size, "mtime": file.mtime, "inode": file.inode}
    for size, body in read_indexes(file.path, head):
        names, _, places = body.partition(b"\n")
        found = json.loads(names)
        shape = (size, len(found["columns"]), 2)
        if len(found["keys"]) == size and len(places) == 8 * shape[0] * shape[1] * shape[2]:
            return TarIndex(found["keys"], found["columns"], np.frombuffer(places, "<i8").reshape(shape))
    index = _made_index(file)
    file.check_unchanged()
    names = json.dumps({"keys": index.keys, "columns": index.columns}).encode()
    keep_index(file.path, head, len(index.keys), names + b"\n" + index.places.astype("<i8").tobytes())
    return index


def _made_index(file: KnownFile) -> TarIndex:
    with open_to_read(file.path) as opened:
        try:
            with tarfile.open(fileobj=opened, mode="r:") as archive:
                members = [*_members(file, archive)]
                _check_end(file, opened.fileno(), archive.offset)  # pyright: ignore
        except tarfile.TarError as error:
            raise BadFiles(f"{file.path} is no whole tar file: {error}") from None
    records = [(key, [*those]) for key, those in groupby(members, key=lambda each: each[0])]
    columns = sorted({name for _, name, _, _ in members})
    places = np.full((len(records), len(columns), 2), -1, np.int64)
    numbers = {name: number for number, name in enumerate(columns)}
    for number, (key, those) in enumerate(records):
        for _, name, begin, size in those:
            if places[number, numbers[name], 0] >= 0:
                raise BadFiles(f"{file.path} has two members {key}.{name}: which one is the record's?")
            places[number, numbers[name]] = begin, size
    return TarIndex([key for key, _ in records], columns, places)


def _check_end(file: KnownFile, descriptor: int, at: int) -> None:
    """Raises BadFiles where something else than zeros follows the last member: `tarfile` takes that for the end."""
    end = os.pread(descriptor, tarfile.BLOCKSIZE, at)
    if len(end) < tarfile.BLOCKSIZE:
        raise BadFiles(f"{file.path} is cut off: the block of zeros that ends a tar file is missing")
    if end.strip(b"\0"):
        raise BadFiles(f"{file.path} is damaged at byte {at}: no member begins there")
    while rest := os.pread(descriptor, 1 << 20, at):
        if rest.strip(b"\0"):
            raise BadFiles(f"{file.path} goes on after its end, at byte {at}: give each tar file by itself")
        at += len(rest)


def _members(file: KnownFile, archive: tarfile.TarFile) -> Iterator[tuple[str, str, int, int]]:
    """Key, extension, first byte and size of each file in the archive whose name has a dot."""
    for member in archive:
        archive.members = []  # type: ignore[attr-defined]  # or it keeps them all
        path = PurePosixPath(member.name)
        stem, dot, extension = path.name.partition(".")
        if not stem or not dot or not (member.isreg() or member.islnk() or member.issym()) or extension == KEY:
            continue
        if not member.isreg():
            raise BadFiles(
                f"{file.path} has a link in place of the member {member.name!r}: make it with --hard-dereference and "
                "--dereference"
            )
        if member.size < 0:
            raise BadFiles(f"{file.path} is damaged: {member.name!r} has {member.size} bytes")
        if member.sparse is not None:
            raise BadFiles(f"{file.path} has a sparse member, {member.name!r}: make it without --sparse")
        if member.offset_data + member.size > file.size:
            raise BadFiles(f"{file.path} is cut off within {member.name!r}")
        yield str(path.parent / stem), extension.lower(), member.offset_data, member.size
