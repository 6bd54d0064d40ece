"""Takes a node's events as they happen, and writes them: the agent's `Observer`.

What is written goes through a thread of its own, since a file system that hangs must not stop the agent, whose lease
would end. A file that has grown beyond what is kept is written anew; so it is bounded.
"""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from ...master.diagnosis.findings import Finding
from ...master.status import Diagnosis, Status
from ...rendezvous.base.errors import RendezvousError
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.host.named_files import open_to_read, open_to_write
from ...rendezvous.host.own_files import file_name
from ...rendezvous.member import Exit
from ...rendezvous.ranks import Assignment
from ...rendezvous.wire.fields import MAX_WORDS
from .records import (
    MAX_TAIL,
    SUFFIX,
    Begun,
    Ended,
    Kept,
    Noticed,
    Over,
    Point,
    Published,
    Record,
    Snapshot,
    Started,
    line,
    without_repeats,
)

LOOK = 1.0
"""Seconds between two looks at the job, on the node that leads it."""

HEAR, HEAR_OF_ONE = 10.0, 0.1
"""Seconds between two, on another node with a dashboard: at least, and for each node of the job."""

SNAPSHOT = 60.0
"""Seconds between two records of the whole job, where nothing else happens."""

GROWTH = 4 << 20
"""Bytes that are added before the file is written anew with what is kept."""

WAITING = 10_000
"""Records that wait for a slow file system; more are dropped, and counted."""

CLOSING = 5.0
"""Seconds for the last of them."""


Asks = Callable[[], Awaitable[Status]]
"""Who leads the job says how it is; raises RendezvousError or OSError."""


class Journal:
    """One node's events of one job, as the `Observer` of its agent hears of them.

    Args:
        begun: who writes.
        folder: where the file is made; None: the events are only kept in memory.
        say: prints one line for a person, from any thread.
        now: the wall clock.
    """

    def __init__(
        self, begun: Begun, folder: Path | None, say: Callable[[str], None], now: Callable[[], float] = time.time
    ) -> None:
        self.kept = Kept()
        self._now = now
        self._seen: set[tuple[int, int]] = set()  # round and pid of the workers whose end is recorded
        self._snapshot_at = 0.0
        self._changed = False  # since the last snapshot
        self._file = None
        if folder is not None:
            self._file = _File(folder, f"{file_name(begun.job)}.{file_name(begun.node)}.{os.getpid()}{SUFFIX}", say)
        self._add(begun)

    def header(self, header: Header, *, mine: bool) -> None:
        self._changed = True
        self._add(
            Published(
                self._now(),
                header.number,
                header.run,
                header.state,
                header.cause,
                header.reason,
                header.nodes,
                header.previous_nodes,
                header.world_size if header.state == "open" else 0,
                header.max_restarts,
                header.in_place,
                without_repeats(header.tally),
                header.split,
                header.incident,
                mine,
            )
        )

    def exits(self, exits: Sequence[Exit]) -> None:
        for exit_ in exits:
            if (exit_.round, exit_.pid) not in self._seen:
                self._seen.add((exit_.round, exit_.pid))
                self._add(Ended(self._now(), exit_))

    def started(self, header: Header, assignment: Assignment, down: float, problem: str) -> None:
        self._changed = True
        node, first, workers = assignment.node, assignment.first_rank, assignment.nproc
        self._add(Started(self._now(), node, header.number, first, workers, round(down, 3), problem[:MAX_WORDS]))

    def noticed(self, signal: str) -> None:
        self._add(Noticed(self._now(), signal))

    def diagnosed(self, finding: Finding) -> None:
        for each in self.kept.news((Diagnosis.of(finding, 0.0),), self._now()):
            self._add(each)

    def looked(self, status: Status) -> None:
        """This node leads the job, which is so."""
        now = self._now()
        self.heard(status)
        if self._changed or now - self._snapshot_at >= SNAPSHOT:
            self._snapshot_at, self._changed = now, False
            self._add(Snapshot(now, status))

    def heard(self, status: Status) -> None:
        """Whoever leads the job says so."""
        now = self._now()
        for each in self.kept.news(status.diagnosis, now):
            self._add(each)
        if self.kept.wants_point(now):
            datasets, split = status.datasets, status.goodput.split
            self._add(Point(now, status.round, status.world_size, split, datasets, status.steps))

    def over(self, code: int, reason: str) -> None:
        """This node's part is over."""
        self._add(Over(self._now(), code, reason[:MAX_WORDS]))

    async def follow(self, status: Callable[[], Status | None], ask: Asks | None = None) -> None:
        """Looks at the job again and again, while this node leads it; ends when it is cancelled.

        Args:
            status: as this node's own master sees it; None where another leads.
            ask: that one then, so that this node's dashboard knows what was before it is looked at; seldom, since it
                costs the master something. None: it is not asked.
        """
        pause, asked = HEAR, -HEAR
        while True:
            if found := status():
                self.looked(found)
            elif ask and time.monotonic() - asked >= pause:
                asked = time.monotonic()
                try:
                    async with asyncio.timeout(HEAR):
                        found = await ask()
                except (RendezvousError, OSError):  # TimeoutError is one
                    found = None
                if found:
                    self.heard(found)
                    pause = max(HEAR, len(found.nodes) * HEAR_OF_ONE)
            await asyncio.sleep(LOOK)

    def close(self) -> None:
        """Waits for what is not written yet, at most CLOSING seconds."""
        if self._file:
            self._file.close()

    def _add(self, record: Record) -> None:
        self.kept.add(record)
        if self._file:
            self._file.add(record, self.kept)


@dataclass(frozen=True, slots=True)
class _Anew:
    """The file is to hold just this."""

    records: tuple[Record, ...]


class _File:
    """Appends records in a thread of its own, until that fails."""

    def __init__(self, folder: Path, name: str, say: Callable[[str], None]) -> None:
        self._path = folder / name
        self._say = say
        self._waiting: queue.Queue[Record | _Anew | None] = queue.Queue(WAITING)
        self._dropped = 0
        self._failed = False
        self._added = 0
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def add(self, record: Record, kept: Kept) -> None:
        """One more; `kept`: what is kept with it."""
        if self._failed:
            return
        self._added += len(line(record))
        anew = self._added >= GROWTH
        try:
            self._waiting.put_nowait(_Anew(tuple(kept)) if anew else record)
            self._added = 0 if anew else self._added
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        try:
            self._waiting.put(None, timeout=CLOSING)
        except queue.Full:
            self._dropped += 1
        self._thread.join(CLOSING)
        if self._thread.is_alive():
            self._say(f"the history {self._path} is not complete: its file system does not answer")
        elif self._dropped:
            self._say(f"the history {self._path} lacks {self._dropped} events: its file system was too slow")

    def _run(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            while (what := self._waiting.get()) is not None:
                if isinstance(what, _Anew):
                    self._rewrite(what.records)
                else:
                    self._append(what)
        except OSError as error:
            self._failed = True
            self._say(f"the history {self._path} cannot be written ({error.strerror}): no more events are kept in it")

    def _append(self, record: Record) -> None:
        text = line(with_tail(record))
        with os.fdopen(open_to_write(self._path, append=True, private=True), "wb") as file:
            file.write(text)

    def _rewrite(self, records: Sequence[Record]) -> None:
        beside = self._path.with_suffix(".new")
        beside.unlink(missing_ok=True)
        with os.fdopen(open_to_write(beside, private=True), "wb") as file:
            file.writelines(line(with_tail(record)) for record in records)
        beside.replace(self._path)


def with_tail(record: Record) -> Record:
    """A failed worker's end with the last of its log; any other record as it is. Reads a file."""
    if isinstance(record, Ended) and not record.exit.ok and not record.exit.stopped and not record.tail:
        return Ended(record.unix, record.exit, _tail(record.exit.log))
    return record


def _tail(log: str) -> str:
    """The last of a file; empty where it cannot be read."""
    try:
        with open_to_read(Path(log)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_TAIL))
            return file.read(MAX_TAIL).decode(errors="replace")
    except OSError:
        return ""
