"""What a script gets of its files: their records by number, and shards of them that ranks lease.

    clicks = elastic_run.data.open("data/*.csv")
    for shard in clicks.shards("train", shard_size=4096, epochs=2):
        columns = shard.read()
        ...
        shard.done()

Numpy, and what a format needs, is loaded by `open_files`.
"""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Literal, cast

from ...master.data.ledger import Tracking
from ...master.data.shard import Span
from ..client.ledger_client import Leaser
from ..client.shards import Shard, Shards
from .contract import BadRow, Columns, RecordReader
from .errors import BadFiles, BadRecords
from .fetched_files import FetchedReader, fetch_files, is_fetched
from .found_files import Paths, check_named_once, find_files
from .plugins import format_of, has_reader, reader_class

JUDGED_FROM = 10_000
"""Records that a process reads before a share of bad rows is judged by what it has read."""


class RecordFiles:
    """Files whose records have numbers; `elastic_run.data.open` makes it.

    Attributes:
        files: pairs of a file and how many records it has, sorted by name: the order of the records.
        columns: the kind of each column.
    """

    def __init__(self, files: Sequence[str], reader: RecordReader, share: float) -> None:
        self.files = tuple((file, reader.size(file)) for file in files)
        self.columns = dict(reader.columns)
        self._reader = reader
        self._share = share
        self._ends = list(accumulate(size for _, size in self.files))
        self._sizes = dict(self.files)
        self._read_count = 0
        self._bad: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        """How many records all files have."""
        return self._ends[-1]

    def __repr__(self) -> str:
        return f"<RecordFiles: {len(self)} records in {len(self.files)} files, of {', '.join(self.columns)}>"

    @property
    def skipped(self) -> int:
        """How many records this process has skipped because they are bad rows; each counts once."""
        return len(self._bad)

    def read(self, indices: Sequence[int], file: str = "") -> Columns:
        """Returns records by their numbers, in this order.

        Args:
            indices: from 0; a list, a range or an array of integers.
            file: the one that they count in, as those of a shard do; empty: they count through all files.

        Raises:
            elastic_run.exceptions.BadRecords: a record does not fit the columns; with `bad=`: too many do not.
            elastic_run.exceptions.FileChanged: a file is not the one any more that was opened.
            IndexError: there is no such record.
        """
        size = self._sizes.get(file, -1) if file else len(self)
        if size < 0:
            raise BadFiles(f"{file!r} is none of the files that were opened")
        if len(indices) and not 0 <= min(indices) <= max(indices) < size:
            wrong = next(index for index in indices if not 0 <= index < size)
            raise IndexError(f"there is no record {wrong}: they are numbered from 0 to {size - 1}")
        if not file and len(self.files) == 1:
            file = self.files[0][0]
        if file:
            return self._read_of(file, indices)
        places: dict[int, list[int]] = {}
        for position, index in enumerate(indices):
            places.setdefault(bisect_right(self._ends, index), []).append(position)
        parts: list[Columns] = []
        for number, positions in places.items():
            name, count = self.files[number]
            first = self._ends[number] - count
            parts.append(self._read_of(name, [int(indices[position]) - first for position in positions]))
        return _merged(parts, list(places.values())) if parts else self._read_of(self.files[0][0], ())

    def shards(
        self,
        name: str,
        *,
        shard_size: int,
        epochs: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        commit: Tracking = "checkpoint",
    ) -> "RecordShards":
        """Returns the shards of these files for this rank; the arguments are those of `elastic_run.data.shards`.

        The names of the files and their numbers of records are a part of what all ranks declare, and of a checkpoint's
        position: a rank or a restart that finds other files is refused.

        Raises:
            elastic_run.exceptions.BadDataset: an argument makes no sense, or the files have no record.
            elastic_run.exceptions.NoLedger: there are several ranks, and no elastic-run around them.
            elastic_run.exceptions.BadEnvironment: the launcher's environment is incomplete.
            TypeError: an argument is of the wrong type.
        """
        return RecordShards(self, name, shard_size=shard_size, epochs=epochs, shuffle=shuffle, seed=seed, commit=commit)

    def _read_of(self, file: str, indices: Sequence[int]) -> Columns:
        """Records of one file, once the bad rows among them are judged."""
        columns = self._reader.read(file, indices)
        columns = columns if isinstance(columns, Columns) else Columns(columns)  # pyright: ignore[reportUnnecessaryIsInstance]  # of a package that is not typed
        self._read_count += len(indices)
        if columns.bad:
            self._bad.update((file, int(indices[each.position])) for each in columns.bad)
            judged = min(len(self), max(self._read_count, JUDGED_FROM))
            if len(self._bad) > self._share * judged:
                raise BadRecords(
                    self._describe_bad(file, int(indices[columns.bad[-1].position]), columns.bad[-1].why, judged)
                )
        return columns

    def _describe_bad(self, file: str, index: int, why: str, judged: int) -> str:
        """What a person is told of a bad row, and of those before it."""
        place = f"{self._reader.place(file, index)}: {why}"
        if not self._share:
            return f"{place}. Repair the file, or skip such records: open(..., bad=0.001) lets one in a thousand by"
        share = len(self._bad) / judged
        return (
            f"{len(self._bad)} records do not fit the columns, {share:.2%} of {judged}, and bad={self._share:g} lets "
            f"{self._share:.2%} by. The last one: {place}"
        )


class RecordShard(Shard):
    """A `Shard` whose records can be read; `RecordFiles.shards` gives them."""

    __slots__ = ("_columns", "_files", "_kept")

    def __init__(self, leaser: Leaser, span: Span, offset: int, end: int, files: RecordFiles) -> None:
        super().__init__(leaser, span, offset, end)
        self._files = files
        self._columns: Columns | None = None
        self._kept: list[int] = []

    def read(self, begin: int = 0, end: int | None = None) -> Columns:
        """Returns the records `indices[begin:end]`, in that order.

        The first call decodes all of the shard, and the shard keeps that: batches of it are slices. What is skipped
        as a bad row is a record of the shard nevertheless: `progress` counts in `indices`.

        Args:
            begin, end: as of a slice; all of the shard if they are left out.

        Raises:
            elastic_run.exceptions.BadRecords: a record does not fit the columns; with `bad=`: too many do not.
            elastic_run.exceptions.FileChanged: a file is not the one any more that was opened.
        """
        if self._columns is None:
            self._columns = self._files.read(self.indices, self.file)
            left_out = {each.position for each in self._columns.bad}
            self._kept = [position for position in range(len(self)) if position not in left_out]
        begin, end, _ = slice(begin, end).indices(len(self))
        if (begin, end) == (0, len(self)):
            return self._columns
        low, high = (bisect_right(self._kept, edge - 1) for edge in (begin, max(begin, end)))
        bad = (each for each in self._columns.bad if begin <= each.position < end)
        return Columns(
            {name: values[low:high] for name, values in self._columns.items()},
            [BadRow(each.position - begin, each.why) for each in bad],
        )


class RecordShards(Shards):
    """The shards of files that this rank gets, through all epochs; `RecordFiles.shards` makes it. See `Shards`.

    Args:
        files: what was opened.
        name, shard_size, epochs, shuffle, seed, commit, environment: see `Shards`.
    """

    def __init__(self, files: RecordFiles, name: str, **options: Any) -> None:  # Any: of `Shards`
        super().__init__(name, files.files, **options)
        self._files = files

    def __next__(self) -> RecordShard:
        """The next shard; see `Shards`."""
        return cast(RecordShard, super().__next__())

    def _shard_of(self, span: Span, offset: int, end: int) -> Shard:
        return RecordShard(self._leaser, span, offset, end, self._files)


def _merged(parts: Sequence[Columns], places: Sequence[Sequence[int]]) -> Columns:
    """The records of several files in the order in which they were asked for, of which `places` are the positions."""
    import numpy as np  # here, because a script imports this module before it is forked, and may not need it

    kept: list[int] = []
    bad: list[BadRow] = []
    for part, positions in zip(parts, places, strict=True):
        left_out = {each.position: each.why for each in part.bad}
        kept += [position for number, position in enumerate(positions) if number not in left_out]
        bad += [BadRow(positions[number], why) for number, why in left_out.items()]
    order = sorted(range(len(kept)), key=kept.__getitem__)
    found: dict[str, Any] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if isinstance(values[0], list):
            together = list(chain.from_iterable(values))
            found[name] = [together[place] for place in order]
        else:
            found[name] = np.concatenate(values)[order]
    return Columns(found, sorted(bad, key=lambda each: each.position))


def open_files(
    paths: Paths,
    *,
    bad: Literal["fail"] | float = "fail",
    kinds: Mapping[str, str] | None = None,
    format: str = "",
    cache: str | os.PathLike[str] = "",
    **options: Any,  # Any: of the format
) -> RecordFiles:
    """Opens files of records, so that any record can be read by its number. Call it in the worker.

    Args:
        paths: a file, a folder, a pattern ("data/*.csv"), or several of them; or what a package's reader opens,
            "scheme://..."; or addresses of an object store or server, "s3://...", whose files are copied to this node
            once. Files are sorted by name.
        bad: what becomes of records that do not fit the columns. "fail": an error names the first one. A share, say
            0.001: they are left out and counted, up to that share of the records that a process has read.
        kinds: of columns where what is inferred does not fit: "int64", "float64" or "str".
        format: the extension that counts, where the files have another one or none.
        cache: the folder for copies of files at addresses; empty: `elastic-run/files` in the user's cache.
        options: of CSV: delimiter, header (False, or the names of columns, where there is none); of others: their own.

    Raises:
        elastic_run.exceptions.BadFiles: there are no such files, they do not fit together, or no reader knows them.
        elastic_run.exceptions.FileChanged: a file was written meanwhile.
        TypeError: an argument is of the wrong type, or the format does not know it.
    """
    if bad != "fail" and (isinstance(bad, bool) or not isinstance(bad, int | float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'bad={bad!r} must be "fail", or a share of the records')
    if bad != "fail" and not 0 <= bad < 1:
        raise BadFiles(f'bad={bad} must be "fail", or a share of the records: at least 0, and less than 1')
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    addresses = [each for each in given if isinstance(each, str) and "://" in each]
    copies: dict[str, str] = {}
    if not addresses:
        files = find_files(given)
    elif len(addresses) < len(given):
        other = next(each for each in given if each not in addresses)
        raise BadFiles(f"{addresses[0]} and {other} cannot be opened together: give addresses alone, or files alone")
    elif is_fetched(addresses[0]) and not has_reader(addresses[0].partition("://")[0]):
        copies = fetch_files(addresses, Path(cache) if cache else None)
        files = list(copies)
    else:
        files = sorted(addresses)
        check_named_once(files)
    format = format_of([copies.get(file, file) for file in files], format)
    if format in ("csv", "tsv"):  # the files' names may say another one
        options["delimiter"] = options.get("delimiter") or ("\t" if format == "tsv" else ",")
    make = reader_class(format, files[0])
    reader: RecordReader
    if copies:
        reader = FetchedReader(files, kinds or {}, copies=copies, reader=make, **options)
    else:
        reader = make(files, kinds or {}, **options)
    return RecordFiles(files, reader, 0.0 if bad == "fail" else float(bad))
