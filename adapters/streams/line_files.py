"""The source of files whose lines are records: files that grow, and files that arrive in a folder.

Each file is a partition, and the offset of a record is that of its first byte in the file: so nothing is counted, and
no index is made. A line counts once its end is written.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .contract import BadSource, OffsetsGone, StreamRecord

BLOCK = 1 << 16
"""Bytes that are read at once where the end of the last line is looked for."""


class LineFiles:
    """Files whose lines are records, as they grow and as more of them arrive; a `StreamSource`.

    A line ends with a line feed, which is no part of the record. What a file has is never changed or removed, and a
    name is used once: a file that arrives whole is written under another name and renamed. Files whose names begin
    with a dot are passed over.

    Args:
        folder: where they are, or will be.
        pattern: which files of it ("*.jsonl"); "**/*" goes into its folders.

    Raises:
        elastic_run.exceptions.BadSource: the pattern or the folder makes no sense.
    """

    def __init__(self, folder: "str | os.PathLike[str]", pattern: str = "*") -> None:
        if not pattern or pattern.startswith("/"):
            raise BadSource(
                f"pattern={pattern!r} must be a pattern of files within {os.fspath(folder)!r}, such as '*.csv'"
            )
        self._folder = Path(folder)
        self._pattern = pattern
        self.name = f"lines of {self._folder / pattern}"
        self._ends: dict[str, tuple[int, int]] = {}

    def partitions(self) -> Mapping[str, tuple[int, int]]:
        """Each file, by its name within the folder, and the bytes of its whole lines.

        Raises:
            elastic_run.exceptions.BadSource: a file has become shorter.
        """
        found: dict[str, tuple[int, int]] = {}
        for path in self._folder.glob(self._pattern):
            name = path.relative_to(self._folder)
            if any(part.startswith(".") for part in name.parts):
                continue
            try:
                if path.is_file():
                    found[str(name)] = 0, self._end_of(path, str(name))
            except FileNotFoundError:
                pass  # it went meanwhile
        return found

    def read(self, partition: str, first: int, stop: int) -> tuple[Sequence[StreamRecord], int]:
        """The lines that begin there.

        Raises:
            elastic_run.exceptions.OffsetsGone: the file is gone, or shorter than it was.
        """
        try:
            with (self._folder / partition).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < stop:
                    raise OffsetsGone(f"file {partition!r} has {size} bytes, and had {stop}: files may only grow")
                file.seek(max(0, first - 1))
                if first:
                    file.readline()  # to the end of the line that begins before
                records: list[StreamRecord] = []
                while (offset := file.tell()) < stop:
                    records.append(StreamRecord(offset, file.readline().removesuffix(b"\n")))
        except FileNotFoundError:
            raise OffsetsGone(f"file {partition!r} is not in {str(self._folder)!r} any more") from None
        return records, stop

    def _end_of(self, path: Path, name: str) -> int:
        """The byte after the last line feed."""
        size = path.stat().st_size
        known, end = self._ends.get(name, (-1, 0))
        if size < end:
            raise BadSource(
                f"file {name!r} has {size} bytes, and had {end}: files may only grow. Write what is new to a new file"
            )
        if size != known:
            with path.open("rb") as file:
                begin = size
                while begin > end:
                    begin = max(end, begin - BLOCK)
                    file.seek(begin)
                    if (last := file.read(min(BLOCK, size - begin)).rfind(b"\n")) >= 0:
                        end = begin + last + 1
                        break
            self._ends[name] = size, end
        return end
