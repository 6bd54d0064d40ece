"""A log in files that several processes share: partitions of records with offsets, which it may forget, and brokers
that may be away. It stands in for what librdkafka's own mock of Kafka cannot do."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from elastic_run.adapters.streams.contract import OffsetsGone, SourceAway, StreamRecord

AWAY = "away"


class RecordLog:
    """A `StreamSource` in a folder: of each partition a file of its records and one of its first offset.

    Offsets that are multiples of `gap` have no record, as those of Kafka's control records have none.
    """

    def __init__(self, folder: Path, gap: int = 0) -> None:
        self.name = f"log {folder.name}"
        self.folder = folder
        self.gap = gap
        folder.mkdir(exist_ok=True)

    # -- what tests do with it

    def append(self, partition: str, count: int) -> None:
        """That many offsets more, which begin with a partition's first."""
        begin = self.end_of(partition)
        lines = [f"{json.dumps([number, f'{partition}:{number}'])}\n" for number in range(begin, begin + count)]
        with (self.folder / f"{partition}.log").open("a") as file:
            file.writelines(lines)

    def forget_before(self, partition: str, offset: int) -> None:
        """As retention does."""
        path = self.folder / f"{partition}.low"
        path.with_suffix(".new").write_text(str(offset))
        path.with_suffix(".new").replace(path)

    def set_away(self, away: bool) -> None:
        """Whether nothing of it answers."""
        if away:
            (self.folder / AWAY).touch()
        else:
            (self.folder / AWAY).unlink(missing_ok=True)

    def end_of(self, partition: str) -> int:
        path = self.folder / f"{partition}.log"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    # -- the source

    def partitions(self) -> Mapping[str, tuple[int, int]]:
        self._check_there()
        names = sorted(path.stem for path in self.folder.glob("*.log"))
        return {name: (self._low(name), self.end_of(name)) for name in names}

    def read(self, partition: str, first: int, stop: int) -> tuple[Sequence[StreamRecord], int]:
        self._check_there()
        if (low := self._low(partition)) > first:
            raise OffsetsGone(f"the log begins at {low}", low)
        stop = min(stop, first + 7)  # a source may give less than it is asked for
        lines = (self.folder / f"{partition}.log").read_text().splitlines()[first:stop]
        found = [StreamRecord(*json.loads(line)) for line in lines]
        return [each for each in found if not self.gap or each.offset % self.gap], stop

    def _check_there(self) -> None:
        if (self.folder / AWAY).exists():
            raise SourceAway("the log is away")

    def _low(self, partition: str) -> int:
        path = self.folder / f"{partition}.low"
        return int(path.read_text()) if path.exists() else 0
