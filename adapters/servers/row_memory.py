"""What the rows of all tables of a server may take in memory, where others may be on disk (`buffer_pool.py`)."""

from typing import Protocol

from . import record_loops
from .record_file import DiskLimit, DiskSpace, RecordFile

LOW = 8
"""Of so many parts of the memory one is made free when less than half of that is; of the disk, no new row gets one."""

HEADS = 0.75
"""Share of the memory that what stays there of each row may take: ids, and where the rest is."""


class TableFull(MemoryError):
    """The rows that are wanted do not fit into what a table may take."""


class Pool(Protocol):
    """As a `BufferPool`."""

    used: int
    file: RecordFile
    frame_bytes: int
    chunk: int

    @property
    def spare_bytes(self) -> int:
        """See there, as of the others."""
        ...

    def spill(self, count: int, *, once: bool = False) -> int: ...
    def trim(self) -> None: ...


class Pooled(Protocol):
    """A table, as far as its memory goes: see `Rows`."""

    @property
    def memory_bytes(self) -> int:
        """That its rows take in memory."""
        ...

    @property
    def head_bytes(self) -> int:
        """Of that, of each row also where it is on disk."""
        ...

    @property
    def count(self) -> int:
        """Rows."""
        ...

    @property
    def pool(self) -> Pool | None:
        """None: all of them are there."""
        ...


class RowMemory:
    """Of one server.

    Args:
        limit: bytes of memory.
        disk: what the rest may take.

    Attributes:
        limit: as given.
        space: of the files.
    """

    def __init__(self, limit: int, disk: DiskLimit) -> None:
        self.limit = limit
        self.space = DiskSpace(disk)
        self._tables: list[Pooled] = []

    def add_table(self, table: Pooled) -> None:
        """Its rows count from now on."""
        self._tables.append(table)

    @property
    def _pools(self) -> list[Pool]:
        return [each.pool for each in self._tables if each.pool is not None]

    @property
    def taken(self) -> int:
        """Bytes of memory."""
        return sum(each.memory_bytes for each in self._tables)

    @property
    def is_short(self) -> bool:
        """Some rows should go to disk before others need their room, and can."""
        if self.space.failure:
            return False
        # Ids of a backup's rows, which it may not refuse, may take all.
        has_some = any(pool.used for pool in self._pools)
        return (has_some and self.taken > self.limit - self.limit // (2 * LOW)) or self._holds_too_much

    @property
    def _holds_too_much(self) -> bool:
        """Frames without rows keep memory that others need: what rows take besides has grown."""
        spare = sum(pool.spare_bytes for pool in self._pools)
        return spare > self.limit // (4 * LOW) and self.taken + spare > self.limit + self.limit // (2 * LOW)

    def check_heads(self, more: int) -> None:
        """Raises TableFull where new rows, of which so many bytes stay in memory, leave too little for the others."""
        heads = sum(each.count * each.head_bytes for each in self._tables)
        if more and heads + more > HEADS * self.limit:
            raise TableFull(
                f"the ids of {sum(each.count for each in self._tables)} rows take {heads >> 10} KiB in memory, where "
                f"they may take {HEADS:.0%} of {self.limit >> 10} KiB, and are there also of rows on disk: give "
                "servers more memory (--ps-memory), or have more of them"
            )
        records = sum(each.count * each.pool.file.size for each in self._tables if each.pool is not None)
        if (
            more
            and records > self.space.limit - self.space.limit // LOW
            and self.taken + more > self.limit - self.limit // LOW
        ):  # each row may need a record, whether it is in memory or not, and one that has changed a second one
            raise TableFull(self.space.explain_limit())

    def check_room(self, more: int) -> None:
        """Makes room for so many bytes of memory. Raises TableFull where there is none.

        Where a checkpoint is why nothing can be written, it takes more for a moment: the checkpoint is to be given up.
        """
        self.make_room(more)
        if not more or (taken := self.taken) + more <= self.limit:
            return
        if self.space.failure and self.space.holds:
            self.space.starves = True
            return
        why = self.space.failure or "more rows at a time than there is memory for: give servers more (--ps-memory)"
        raise TableFull(
            f"the tables take {taken >> 10} of {self.limit >> 10} KiB of memory, and {more >> 10} KiB more are wanted: "
            f"{why}"
        )

    def make_room(self, more: int) -> None:
        """Writes rows to disk until so many bytes more fit, if they can."""
        over = self.taken + more - self.limit
        for _ in range(record_loops.MOST_HITS + 2):  # as often as the hand has to go round
            for pool in self._pools:
                if over <= 0:
                    return
                freed = pool.spill(-(-over // pool.frame_bytes))
                over -= freed * pool.frame_bytes
                if not freed and self.space.failure:
                    return

    def make_some_room(self) -> bool:
        """As `make_room`, for a while, before anybody asks. Whether there is more to do."""
        wanted, pools = self.taken - self.limit + self.limit // LOW, self._pools
        for pool in pools:
            if wanted > 0:
                wanted -= pool.frame_bytes * pool.spill(min(pool.chunk, -(-wanted // pool.frame_bytes)), once=True)
        if self._holds_too_much:
            max(pools, key=lambda pool: pool.spare_bytes).trim()
        if self.space.failure:
            return False
        return (wanted > 0 and any(pool.used for pool in pools)) or self._holds_too_much

    def hold_records(self) -> None:
        """A copy of this process reads what is on disk now."""
        self.space.holds = True

    def let_records_go(self) -> None:
        """It has ended."""
        self.space.holds = self.space.starves = False
        for pool in self._pools:
            pool.file.let_go()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Of all files."""
        return tuple(pool.file.descriptor for pool in self._pools)
