"""What every format gives: the `RecordReader`, which a package of others may implement as well.

A package declares its class as an entry point of the group `elastic_run.readers`, under the extension of its files
("parquet"), or under a scheme ("warehouse", for what is opened as `warehouse://...`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import BadFiles

SAMPLE = 1000
"""Records that the kinds of columns are inferred from."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A record that does not fit the columns.

    Attributes:
        position: its place among the indices that were asked for.
        why: in words, with the column.
    """

    position: int
    why: str


class Columns(dict[str, Any]):  # Any: a numpy array, or a list
    """The values of records, by column: an array of int64, float64 or bool, or a list of what has no such kind.

    Attributes:
        bad: the records that are left out, in the order in which they were asked for. All columns lack them.
    """

    def __init__(self, values: Mapping[str, Any], bad: Sequence[BadRow] = ()) -> None:
        super().__init__(values)
        self.bad: Sequence[BadRow] = tuple(bad)


class RecordReader(Protocol):
    """Reads files of one format. It is made once for all files, after the worker was forked.

    Args:
        files: names, in the order of the data; of a scheme: what was opened.
        kinds: columns whose kind is not to be inferred.
        options: what `open` was given beside its own arguments.
    """

    def __init__(self, files: Sequence[str], kinds: Mapping[str, str], **options: Any) -> None: ...

    @property
    def columns(self) -> Mapping[str, str]:
        """The kind of each column, in order: "int64", "float64", "bool", "str", or the format's own word."""
        ...

    def size(self, file: str) -> int:
        """How many records a file has."""
        ...

    def read(self, file: str, indices: Sequence[int]) -> Columns:
        """The records with these numbers, from 0, in this order. It does not raise for bad rows: they are in `bad`."""
        ...

    def place(self, file: str, index: int) -> str:
        """Where a person finds that record, for an error."""
        ...


def check_kinds_named(kinds: Iterable[str], names: Sequence[str], file: str) -> None:
    """Raises BadFiles where a kind is given for a column that is none of the file's."""
    for name in kinds:
        if name not in names:
            raise BadFiles(f"kinds= names the column {name!r}, and {file} has {', '.join(map(repr, names))}")


def describe_difference(first: str, names: Sequence[str], file: str, own: Sequence[str]) -> str:
    """How the columns of two files differ."""
    for number, (one, other) in enumerate(zip(names, own, strict=False), 1):
        if one != other:
            return f"the files have different columns: column {number} is {one!r} in {first} and {other!r} in {file}"
    return f"the files have different columns: {first} has {len(names)}, and {file} has {len(own)}"
