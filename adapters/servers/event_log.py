"""What has happened to a server, on a disk of its machine: another process reads it, and is what this one was.

A `ServerMachine` is a function of its events. So each event that may change it is written before anybody hears what
came of it, and whoever reads them again in their order has all that was ever acknowledged. They are handed to the
kernel, and not forced to the disk: they outlast the process, and not the machine.

    FOLDER/log-3    events since the log's beginning: messages as they go over a connection, each with a checksum
    FOLDER/base-3   rows and marks as they were at the beginning of log 3 (`part_files.py`); there is none of log 0
    FOLDER/memory   bytes that rows may take: with others, some of what was applied would be refused when it is read

When a log is long, the next begins, and its base is written beside it. Until that is there, both logs are kept. What is
torn at a log's end was told to nobody: it is left out, and cut off.
"""

import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from ...master.servers.slot_table import SlotTable
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Name, Number
from ...rendezvous.wire.values import Count, Malformed
from . import frames
from .frames import Shape
from .requests import Ping, PullRows, ReadPiece, Reply, Request
from .server_events import Arrays, CopyTurn, PeerAnswered, PeerBroken, ServerAsked, ServerEvent, TableRead

SHORTEST = 64 << 20
"""Bytes of a log before the next one begins, and no fewer than its base has: both are read in a minute or less."""

READS = (Ping, PullRows, ReadPiece)
"""What changes nothing, and is not written."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """The head of one event; with none of `table`, `request`, `reply` and `peer` a `CopyTurn`.

    Attributes:
        connection, request: of a `ServerAsked`, whose arrays follow.
        peer, reply: of a `PeerAnswered`; of a `PeerBroken` without a reply.
    """

    table: SlotTable | None = None
    connection: Number = 0
    request: Request | None = None
    peer: Name = ""
    reply: Reply | None = None
    arrays: Annotated[tuple[Shape, ...], Count(4096)] = ()


class LogDamaged(Exception):
    """The files are not what was written; the message names one."""


class EventLog:
    """Of one server, whose incarnation no other has.

    Args:
        folder: of this server alone.
        shortest: see `SHORTEST`.

    Attributes:
        is_new: nothing had been written when it was opened.
        base: the number of the newest base; 0: there is none.
    """

    def __init__(self, folder: Path, shortest: int = SHORTEST) -> None:
        self._folder = folder
        self._shortest = shortest
        folder.mkdir(parents=True, exist_ok=True)
        self.base = max(self._list_numbers("base"), default=0)
        self._remove_old()  # a base may have been finished by a copy of the process, after the end of that
        logs = self._list_numbers("log")
        self.is_new = not logs
        self._number = max(logs, default=0)
        self._file = -1
        self._base_size = self.base_path.stat().st_size if self.base else 0
        self._size = sum((folder / f"log-{each}").stat().st_size for each in logs if each >= self.base)
        self._writing = False  # a base is
        self._stands_alone = True  # what log 0 begins with is in no other folder

    @property
    def base_path(self) -> Path:
        """Of the newest base."""
        return self._folder / f"base-{self.base}"

    def keep_memory(self, memory: int) -> int:
        """Bytes that rows may take: those that the first process had, whatever another one would have by now.

        Raises OSError, LogDamaged.
        """
        path = self._folder / "memory"
        if self.is_new:
            path.write_text(f"{memory}\n", encoding="ascii")
            return memory
        try:
            return int(path.read_text(encoding="ascii"))
        except ValueError as error:
            raise LogDamaged(f"{path} is damaged: {error}") from None

    def need_base(self) -> None:
        """What log 0 begins with is a checkpoint, which will be removed: a base is to be written at once."""
        self._stands_alone = False

    def read_events(self) -> Iterator[ServerEvent]:
        """All since the newest base. Raises OSError, LogDamaged."""
        for number in range(self.base, self._number + 1):
            path = self._folder / f"log-{number}"
            whole = 0
            with path.open("rb") as file:
                for event, end in _read_whole(file):
                    whole = end
                    yield event
                size = os.fstat(file.fileno()).st_size
            if whole < size:
                if number < self._number:
                    raise LogDamaged(f"{path} is damaged after {whole} bytes, and a later log follows it")
                os.truncate(path, whole)

    def append_event(self, event: ServerEvent) -> None:
        """Before anybody hears what came of it. Raises OSError."""
        if isinstance(event, ServerAsked) and isinstance(event.request, READS):
            return
        if self._file < 0:
            self._open()
        parts = _pack(event)
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        parts.append(frames.PREFIX.pack(checksum))
        self._size += _write_all(self._file, parts)

    @property
    def is_long(self) -> bool:
        """The next may begin."""
        if self._writing:
            return False
        return not self._stands_alone or self._size >= max(self._shortest, self._base_size)

    def begin_next(self) -> tuple[int, Path]:
        """Events go to the next log from now on; the number and path of its base, which is to be written."""
        if self._file >= 0:
            os.close(self._file)
        self._number += 1
        self._file, self._size, self._writing = -1, 0, True
        self._stands_alone = True  # or, where it cannot be written, each event would begin another
        return self._number, self._folder / f"base-{self._number}"

    def end_base(self, number: int) -> None:
        """It is written: what came before goes."""
        self.base, self._writing = number, False
        self._base_size = self.base_path.stat().st_size
        self._remove_old()

    def miss_base(self) -> None:
        """It could not be written: the logs before are kept, and the next attempt comes when this one is long."""
        self._writing = False

    def _open(self) -> None:
        path = self._folder / f"log-{self._number}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _remove_old(self) -> None:
        for kind in ("base", "log"):
            for old in self._list_numbers(kind):
                if old < self.base:
                    (self._folder / f"{kind}-{old}").unlink(missing_ok=True)

    def _list_numbers(self, kind: str) -> list[int]:
        names = (each.name.partition("-") for each in self._folder.iterdir())
        return [int(number) for name, _, number in names if name == kind and number.isdecimal()]


def _pack(event: ServerEvent) -> list[bytes | memoryview]:
    arrays: Arrays = ()
    match event:
        case TableRead(table):
            head = LoggedEvent(table=table)
        case ServerAsked(connection, request, arrays):
            head = LoggedEvent(connection=connection, request=request, arrays=frames.shapes_of(arrays))
        case PeerAnswered(peer, reply):
            head = LoggedEvent(peer=peer, reply=reply)
        case PeerBroken(peer):
            head = LoggedEvent(peer=peer)
        case CopyTurn():
            head = LoggedEvent()
    return frames.pack(head, arrays)


def _unpack(head: LoggedEvent, arrays: Arrays) -> ServerEvent:
    if head.table is not None:
        return TableRead(head.table)
    if head.request is not None:
        return ServerAsked(head.connection, head.request, arrays)
    if head.reply is not None:
        return PeerAnswered(head.peer, head.reply)
    return PeerBroken(head.peer) if head.peer else CopyTurn()


def _write_all(file: int, parts: list[bytes | memoryview]) -> int:
    """How many bytes. Raises OSError: what was written of it is torn."""
    size = 0
    for part in parts:
        left = memoryview(part)
        size += len(left)
        while left:
            left = left[os.write(file, left) :]
    return size


def _read_whole(file: io.BufferedReader) -> Iterator[tuple[ServerEvent, int]]:
    """Each event that is whole, and where in the file it ends; up to the first that is not."""
    while True:
        try:
            head, arrays, checksum = frames.read_message(file, LoggedEvent, 0)
        except (EOFError, Malformed, ValueError):
            return
        if file.read(frames.PREFIX.size) != frames.PREFIX.pack(checksum):
            return
        yield _unpack(head, arrays), file.tell()
