"""The one thread that writes what workers and launcher print: into files first, then onto the terminal.

POSIX forces the thread: a write to a disk, a pipe or a terminal may block for as long as it likes, and the event loop
must not. The thread asks a terminal or pipe whether it has room before it writes to it, so one that stands still
(Ctrl-S, a pager) holds up neither the files nor the other stream.

What waits for a terminal is bounded. Where a stream has a file, what the terminal cannot take is read from that file
later (`_Part`), and the worker continues. Where it has none, `full` turns true, the workers' pipes are no longer read,
and a worker that writes waits, as it would on that terminal itself.
"""

import contextlib
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...rendezvous.base.visible import visible
from .drawn_rows import SETTLE_SECONDS, DrawnRows, fitted, plain, redrawn
from .lines import PROGRESS_SECONDS, Piece, Splitter, without_moves
from .terminal import Terminal

HIGH_BYTES = 4 << 20
"""Waiting output from which on the workers' pipes are no longer read."""

LOW_BYTES = 1 << 20
"""Waiting output below which they are read again."""

LANE_BYTES = 1 << 20
"""Waiting for one terminal, from which on a stream that has a file is shown from there."""

TURN_BYTES = 1 << 20
"""Taken in before the terminals have their turn again."""

READ_BYTES = 64 << 10
"""Taken from a file at once, and made ready for a terminal at once."""

PROMPT_SECONDS, PIPE_PROMPT_SECONDS = 0.2, 1.0
"""A line without end, such as a prompt, is shown when nothing more of it has come for so long: on a terminal, and on a
pipe, where a line that is torn would hurt more."""

_BEGIN_UPDATE, _END_UPDATE = b"\x1b[?2026h", b"\x1b[?2026l"  # shown at once; other terminals ignore both
_FRAME_SECONDS = 0.05  # between two drawings of what changes, where nothing else is written


class File:
    """A log file, touched only by the writer thread.

    Attributes:
        size: bytes in it, as far as this process wrote them or found them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._descriptor = -1
        self._missing = 0
        self._told = False

    def write(self, data: bytes) -> OSError | None:
        """Append all of `data`; returns the first error of this file's life, and counts what is lost."""
        rest = memoryview(data)
        try:
            if self._descriptor < 0:
                # Not to wait: a worker may have put a named pipe there.
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o644)
                self.size = os.fstat(self._descriptor).st_size
            if self._missing:
                self._note()
            while rest:
                rest = self._append(rest)
        except OSError as error:
            self._missing += len(rest)
            told, self._told = self._told, True
            return None if told else error
        return None

    def _note(self) -> None:
        """Says how many bytes are missing; raises OSError where not even that can be written."""
        rest = memoryview(f"\n[elastic-run] {self._missing} bytes are missing here\n".encode())
        while rest:
            rest = self._append(rest)
        self._missing = 0

    def read(self, start: int, stop: int) -> bytes:
        """What was written there; less where it is not there any more."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, stop - start, start)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def close(self) -> int:
        """Give up the descriptor; a later write opens the file again.

        Returns how many bytes are missing at the end of the file where it does not say so itself.
        """
        if self._descriptor >= 0:
            if self._missing:
                with contextlib.suppress(OSError):
                    self._note()
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1
        return self._missing

    def _append(self, data: memoryview) -> memoryview:
        """Some of `data`; what is left of it."""
        written = os.write(self._descriptor, data)
        self.size += written
        return data[written:]


@dataclass(slots=True, eq=False, kw_only=True)
class Stream:
    """One stream of one worker; what is in it belongs to the writer thread.

    Attributes:
        worker: equal for the two streams of one worker.
        prefix: before each line that is shown.
        file: gets every byte; None: nothing is kept.
        lane: where lines are shown; None: nowhere.
        matching: gets the lines that contain one of `needles`.
        raw: bytes are shown as they come, without prefix.
        screen: what the worker draws, where its stream is a terminal.
        draws: its rows that change are shown; else they are drawn by the bytes themselves.
    """

    worker: object
    prefix: bytes
    lane: "Lane | None"
    file: File | None = None
    matching: File | None = None
    needles: Sequence[bytes] = ()
    raw: bool = False
    screen: DrawnRows | None = None
    draws: bool = False
    shown: Splitter = field(default_factory=Splitter)
    shown_at: float = -math.inf
    _matched: Splitter = field(default_factory=Splitter)

    def matches(self, data: bytes | None, now: float) -> bytes:
        """Of the lines that end with `data` (None: the stream ends) those with one of the words."""
        pieces = self._matched.end() if data is None else self._matched.feed(data, now)
        found = [piece.text for piece in pieces if any(needle in piece.text for needle in self.needles)]
        return b"".join(plain(self.prefix) + line + b"\n" for line in found)


@dataclass(slots=True)
class _Fed:
    """Bytes of a worker, in memory; `counted` by the writer until they are shown. None: the stream ends here."""

    stream: Stream
    data: bytes | None
    counted: bool


@dataclass(slots=True)
class _Part:
    """Bytes of a worker that are in its file, from `start` up to `stop`."""

    stream: Stream
    start: int
    stop: int


@dataclass(slots=True)
class _Said:
    """Whole lines of the launcher itself."""

    data: bytes


class Lane:
    """What waits for one terminal, in order. stdout and stderr share one where they are the same terminal.

    A line that has not ended is shown where somebody may wait for it; whoever writes next ends it first. Below all of
    it there may be rows that change, those that workers draw and the live line: they are wiped before anything else is
    written, and drawn again in the same write.

    Args:
        done: is told of bytes that do not wait any more, of those that were `counted`.

    Attributes:
        alone: nobody else writes onto that terminal.
        held: rows that change are neither drawn nor wiped.
        stale: rows that change may be others than those that stand there.
        taken: bytes that the terminal has taken so far.
    """

    def __init__(self, terminal: Terminal, done: Callable[[int], None]) -> None:
        self.terminal = terminal
        self.alone, self.held, self.stale = True, False, False
        self.taken = 0
        self._done = done
        self._entries: deque[_Fed | _Part | _Said] = deque()
        self._in_memory = 0
        self._parts = 0
        self._open_parts: dict[Stream, _Part] = {}  # which may still grow
        self._ready = memoryview(b"")
        self._owner: Stream | None = None  # of the line that has not ended, as it is shown
        self._unfinished: dict[Stream, float] = {}  # since when
        self._workers: dict[Stream, object] = {}
        self._live: str = ""
        self._drawn: list[str] = []  # the rows that change, as they stand there
        self._drawn_at = float("-inf")

    @property
    def waits(self) -> bool:
        """Something is to be written now."""
        return bool(self._ready or self._entries)

    def open(self, stream: Stream) -> None:
        """`stream` will be shown here."""
        self._workers[stream] = stream.worker

    def close(self, stream: Stream) -> None:
        """`stream` has ended."""
        self._workers.pop(stream, None)

    def feed(self, stream: Stream, data: bytes, written: tuple[int, int] | None) -> None:
        """Bytes of a worker; `written`: from where to where they are in its file; None: they are not, or not all."""
        if written:
            self._done(len(data))
            if self._parts or self._in_memory > LANE_BYTES:
                self._feed_from_file(stream, *written)
                return
        self._open_parts.pop(stream, None)
        self._entries.append(_Fed(stream, data, counted=not written))
        self._in_memory += len(data)

    def _feed_from_file(self, stream: Stream, start: int, stop: int) -> None:
        part = self._open_parts.get(stream)
        if part is not None and part.stop == start:
            part.stop = stop
            return
        part = self._open_parts[stream] = _Part(stream, start, stop)
        self._entries.append(part)
        self._parts += 1

    def end(self, stream: Stream) -> None:
        """The last line of `stream` ends here, with or without a newline."""
        self._open_parts.pop(stream, None)
        self._entries.append(_Fed(stream, None, counted=False))

    def say(self, data: bytes) -> None:
        """Whole lines of the launcher itself: what came before is shown before."""
        self._open_parts.clear()
        self._entries.append(_Said(data))
        self._in_memory += len(data)

    def live(self, text: str) -> None:
        """The live line is to be so from now on; empty: there is none. Only a terminal has one."""
        if self.terminal.interactive:
            self._live, self.stale = text, True

    def draw(self, now: float) -> float | None:
        """Makes the rows that change ready where nothing else waits; seconds until it may, None: it need not."""
        if not self.stale or self.waits or self._owner is not None or self.terminal.closed:
            return None
        if (soon := self._drawn_at + _FRAME_SECONDS - now) > 0:
            return soon
        self._ready = memoryview(self._redrawn(now))
        return None

    def _redrawn(self, now: float) -> bytes:
        """The rows that change, in place of those that stand there."""
        self.stale, rows = False, self._changing()
        # In the background, what is typed there is for another program.
        if self.held or rows == self._drawn or (rows and not self.terminal.in_foreground):
            return b""
        before, self._drawn, self._drawn_at = self._drawn, rows, now
        return redrawn(before, rows)

    def _wiped(self) -> bytes:
        """Before anything else is written."""
        before, self._drawn = self._drawn, []
        self.stale = self.stale or bool(before)
        return b"" if self.held else redrawn(before, ())

    def release(self) -> None:
        """Rows are drawn again, below what another program wrote meanwhile."""
        self.held, self.stale, self._drawn = False, True, []

    def _changing(self) -> list[str]:
        """The rows that change: the workers' own, as many as there is room for, and the live line."""
        size = self.terminal.size
        columns, most = size.columns or 80, max(1, size.lines // 2) if self.alone else 1
        drawn = (stream for stream in self._workers if stream.draws)
        found = [(stream, row) for stream in drawn if stream.screen for row in stream.screen.rows]
        only = len({stream.worker for stream, _ in found}) == 1
        rows: list[str] = []
        for stream, row in found[:most]:
            prefix = stream.prefix.decode(errors="replace")
            whole, taken = fitted(prefix + row, columns)
            rows.append(fitted(row, columns)[0] if taken > columns and only else whole)
        if len(found) > most > 1:
            rows[-1] = f"[elastic-run] {len(found) - most + 1} more rows"
        if self._live:
            rows.append(visible(self._live)[: columns - 1])  # one that wraps stays
        return rows

    def write(self, now: float) -> tuple[bool, OSError | ValueError | None]:
        """Gives the terminal what it takes: whether it took anything, and why it takes nothing any more."""
        if self.terminal.closed:
            return self.drop(), None
        self._make_ready(now)
        if not self._ready:
            return True, None
        try:
            taken = self.terminal.write(self._ready)
        except (OSError, ValueError) as error:
            self.terminal.closed = True
            return self.drop(), error
        self._ready = self._ready[taken:]
        self.taken += taken
        return taken > 0, None

    def give_up(self, now: float) -> int:
        """The terminal gets nothing more; returns how many bytes are dropped."""
        dropped = len(self._ready)
        while self._entries:
            entry = self._entries[0]
            if isinstance(entry, _Part):
                self._entries.popleft()
                dropped += entry.stop - entry.start
            else:
                dropped += len(self._next(now))
        self.terminal.closed = True
        self.drop()
        return dropped

    def drop(self) -> bool:
        """Gives up what waits; True where there was anything."""
        dropped = self.waits
        self._ready = memoryview(b"")
        for entry in self._entries:
            if isinstance(entry, _Fed) and entry.counted and entry.data:
                self._done(len(entry.data))
        self._entries.clear()
        self._open_parts.clear()
        self._unfinished.clear()
        self._in_memory = self._parts = 0
        return dropped

    def prompt(self, now: float) -> float | None:
        """Makes ready what stands there without an end for long enough; seconds until more may, None: never."""
        interactive = self.terminal.interactive
        # With several workers behind a pipe nobody answers, and lines would only be torn.
        if self._entries or not (interactive or len(set(self._workers.values())) <= 1):
            return None
        soonest: float | None = None
        for stream, since in tuple(self._unfinished.items()):
            due = since + (PROMPT_SECONDS if interactive else PIPE_PROMPT_SECONDS)
            if stream.shown.begun and self._owner is not stream:
                due = max(due, stream.shown_at + PROGRESS_SECONDS)
            elif stream.draws and self._owner is stream:
                due = since  # somebody types there
            if due <= now:
                del self._unfinished[stream]
                stream.shown_at = now
                wiped = self._wiped()
                self._ready = memoryview(bytes(self._ready) + wiped + self._formatted(stream, [stream.shown.take()]))
            elif soonest is None or due - now < soonest:
                soonest = due - now
        return soonest

    def _make_ready(self, now: float) -> None:
        size = len(self._ready)
        if size >= READ_BYTES:
            return  # nothing is copied: a line of megabytes is ready at once, and is written in small portions
        parts = [bytes(self._ready)]
        if begun := self._entries and self._drawn:
            parts.append(_BEGIN_UPDATE + self._wiped())
        while size < READ_BYTES and self._entries:
            parts.append(self._next(now))
            size += len(parts[-1])
        if self.stale and len(parts) > 1 and self._owner is None:
            parts.append(self._redrawn(now))
        if begun:
            parts.append(_END_UPDATE)  # rows are never seen to be missing, though it is written in pieces
        self._ready = memoryview(b"".join(parts))

    def _next(self, now: float) -> bytes:
        entry = self._entries[0]
        if isinstance(entry, _Part):
            stop = min(entry.stop, entry.start + READ_BYTES)
            data = entry.stream.file.read(entry.start, stop) if entry.stream.file else b""
            entry.start = entry.start + len(data) if data else entry.stop  # else somebody has removed the file
            if entry.start == entry.stop:
                self._entries.popleft()
                self._parts -= 1
                if self._open_parts.get(entry.stream) is entry:
                    del self._open_parts[entry.stream]
            return self._shown(entry.stream, data, now)
        self._entries.popleft()
        if isinstance(entry, _Said):
            self._in_memory -= len(entry.data)
            break_, self._owner = b"\n" if self._owner else b"", None
            return break_ + entry.data
        if entry.data is None:
            self._unfinished.pop(entry.stream, None)
            return self._formatted(entry.stream, entry.stream.shown.end())
        self._in_memory -= len(entry.data)
        if entry.counted:
            self._done(len(entry.data))
        return self._shown(entry.stream, entry.data, now)

    def _shown(self, stream: Stream, data: bytes, now: float) -> bytes:
        if stream.raw:
            return self._as_it_is(stream, data)
        text = self._formatted(stream, stream.shown.feed(data, now))
        if stream.shown.waits:
            self._unfinished[stream] = now
        else:
            self._unfinished.pop(stream, None)
        return text

    def _as_it_is(self, stream: Stream, data: bytes) -> bytes:
        """The line that another has begun is ended first, unless it is the same worker's."""
        if not data:
            return b""
        foreign = self._owner is not None and not (self._owner.raw and self._owner.worker == stream.worker)
        self._owner = None if data.endswith(b"\n") else stream
        return (b"\n" if foreign else b"") + data

    def _formatted(self, stream: Stream, pieces: Sequence[Piece]) -> bytes:
        parts: list[bytes] = []
        for piece in pieces:
            if self._owner is not stream:
                parts += [b"\n"] if self._owner else []
                parts.append(stream.prefix)
            parts.append(without_moves(piece.text) if self.terminal.interactive else piece.text)
            parts += [b"\n"] if piece.ends else []
            self._owner = None if piece.ends else stream
        return b"".join(parts)


class Writer(threading.Thread):
    """Writes what it is given. Files come before terminals; each place gets its bytes in the order of the calls.

    Args:
        terminals: each is shown on; two with one identity are one.
        on_room: called on the thread when `full` has turned false.
        on_error: called on the thread with a sentence for the user.

    Attributes:
        full: too much waits to be written.
    """

    def __init__(
        self, terminals: Sequence[Terminal], on_room: Callable[[], None], on_error: Callable[[str], None]
    ) -> None:
        super().__init__(name="elastic-run-writer", daemon=True)
        self._on_room = on_room
        self._on_error = on_error
        self._lock = threading.Lock()
        self._jobs: deque[tuple[int, Callable[[], object]]] = deque()
        self._terminals = terminals
        lanes: dict[object, Lane] = {}
        self.lanes: Mapping[str, Lane] = {
            terminal.name: lanes.setdefault(terminal.identity, Lane(terminal, self._written)) for terminal in terminals
        }
        self._lanes = tuple(lanes.values())
        for lane in self._lanes:
            lane.alone = all(other is lane or other.terminal.is_file for other in self._lanes)
        self._bytes = 0
        self.full = False
        self._shut = False
        self._at_end: Callable[[], None] | None = None
        self._idle_callbacks: list[Callable[[], None]] = []
        self._files: set[File] = set()
        self._drawing: set[Stream] = set()  # those of terminals
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    @property
    def taken(self) -> int:
        """Bytes that the terminals have taken so far."""
        return sum(lane.taken for lane in self._lanes)

    def feed(self, stream: Stream, data: bytes) -> None:
        """The next bytes of a worker's stream."""
        screen = stream.screen
        self._put(len(data), lambda: self._pass(stream, screen.feed(data, time.monotonic()) if screen else data, data))

    def end_line(self, stream: Stream) -> None:
        """The worker has ended: what came without a newline is shown."""
        self._put(0, lambda: self._end_line(stream))

    def open(self, stream: Stream) -> None:
        """A worker's stream begins; its file is made."""

        def begin() -> None:
            if stream.screen:
                self._drawing.add(stream)
            if stream.lane:
                stream.lane.open(stream)
            if stream.file:
                self._append(stream.file, b"")

        self._put(0, begin)

    def close(self, stream: Stream) -> None:
        """The stream has ended, or nobody listens to it any more."""

        def end() -> None:
            self._end_line(stream)
            self._drawing.discard(stream)
            if stream.lane:
                stream.lane.close(stream)
            for file in (stream.file, stream.matching):
                if file:  # others of the round may write to the second: that opens it again
                    self._close(file)
                    self._files.discard(file)

        self._put(0, end)

    def say(self, terminal: Terminal, data: bytes) -> None:
        """Whole lines for a terminal."""
        lane = self.lanes[terminal.name]

        def show() -> None:
            lane.say(data)
            self._written(len(data))

        self._put(len(data), show)

    def live(self, terminal: Terminal, text: str) -> None:
        """The line below all others; empty: there is none."""
        lane = self.lanes[terminal.name]
        self._put(0, lambda: lane.live(text))

    def call(self, job: Callable[[], object]) -> None:
        """Run `job` on the thread after everything for files that was put before it."""
        self._put(0, job)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on the thread, when nothing waits to be written."""
        with self._lock:
            self._idle_callbacks.append(callback)
        self._wake()

    def give_up(self, why: str) -> None:
        """Drop what still waits for a terminal, and say how much that is and `why`."""

        def drop() -> None:
            for lane in self._lanes:
                if lane.waits:
                    dropped = lane.give_up(time.monotonic())
                    self._on_error(f"{dropped} bytes for {lane.terminal.name} were dropped: {why}")

        self._put(0, drop)

    def end(self, callback: Callable[[], None]) -> None:
        """Write what can be written without waiting for a terminal, close all files, and call `callback` last."""
        self._at_end = callback
        self._wake()

    def run(self) -> None:
        """The thread."""
        while True:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 65536)
            taken = 0
            while taken < TURN_BYTES and self._jobs:
                size, job = self._jobs.popleft()
                taken += size
                job()
            now = time.monotonic()
            waits = [SETTLE_SECONDS for stream in self._drawing if self._settle(stream, now)]
            for lane in self._lanes:
                drawn = lane.draw(math.inf if self._at_end else now)
                waits += [seconds for seconds in (lane.prompt(now), drawn) if seconds is not None]
            moved = [self._show(lane, now) for lane in self._lanes if lane.waits and lane.terminal.has_room()]
            if any(moved) or self._jobs:
                continue
            self._tell_idle()
            if self._at_end and not self._jobs:
                break
            self._wait(min(waits, default=None))
        for file in self._files:
            self._close(file)
        for terminal in self._terminals:
            terminal.close()
        self._at_end()

    def begin(self) -> None:
        """Start, unless something was written before. Raises RuntimeError where there is no thread for it."""
        with self._lock:
            if self.ident is None:
                self.start()

    def shut(self) -> None:
        """From now on, what it is given is dropped; its own descriptors are closed where it has ended."""
        with self._lock:
            self._shut, self.full = True, False
            if not self.is_alive():
                os.close(self._wake_read)
                os.close(self._wake_write)

    # On the thread.

    def _pass(self, stream: Stream, given: bytes, data: bytes) -> None:
        """`given`: what has become lines of `data`."""
        drawn = stream.screen is not None
        kept, shown = plain(given) if drawn else given, given if stream.draws else data
        written = self._append(stream.file, kept) if stream.file and kept else None
        self._match(stream, kept)
        self._written(len(data) - len(shown) if stream.lane else len(data))
        if stream.lane and shown:
            stream.lane.feed(stream, shown, written if stream.draws or not drawn else None)
        if stream.lane and drawn:
            stream.lane.stale = True

    def _settle(self, stream: Stream, now: float) -> bool:
        """What has become lines of its rows by now; whether more will soon."""
        if stream.screen and (given := stream.screen.settle(now)):
            self._pass(stream, given, b"")
        return bool(stream.screen and stream.screen.settles)

    def _end_line(self, stream: Stream) -> None:
        if stream.screen and (given := stream.screen.end()):
            self._pass(stream, given, b"")
        self._match(stream, None)
        if stream.lane:
            stream.lane.end(stream)

    def _match(self, stream: Stream, data: bytes | None) -> None:
        if stream.matching and (found := stream.matches(data, time.monotonic())):
            self._append(stream.matching, found)

    def _append(self, file: File, data: bytes) -> tuple[int, int] | None:
        """From where to where the data is in the file; None where it is not there, or not all of it."""
        self._files.add(file)
        start = file.size
        if error := file.write(data):
            why = error.strerror or str(error)
            self._on_error(f"cannot write {file.path}: {why}; the workers continue, and lost bytes are counted")
        return (start, file.size) if file.size - start >= len(data) else None

    def _close(self, file: File) -> None:
        if missing := file.close():
            self._on_error(f"{missing} bytes are missing at the end of {file.path}")

    def _show(self, lane: Lane, now: float) -> bool:
        moved, error = lane.write(now)
        if error is not None:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._on_error(f"cannot write to {lane.terminal.name}: {why}; the workers continue")
        return moved

    def _tell_idle(self) -> None:
        with self._lock:
            if self._jobs or any(lane.waits for lane in self._lanes):
                return
            callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            callback()

    def _written(self, size: int) -> None:
        with self._lock:
            self._bytes -= size
            if room := self.full and self._bytes < LOW_BYTES:
                self.full = False
        if room:
            self._on_room()

    def _wait(self, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        for lane in self._lanes:
            if lane.waits and lane.terminal.descriptor >= 0:
                poll.register(lane.terminal.descriptor, select.POLLOUT)
        poll.poll(None if seconds is None else seconds * 1000 + 1)

    # On any thread.

    def _put(self, size: int, job: Callable[[], object]) -> None:
        if self._shut:
            return
        self.begin()
        with self._lock:
            self._jobs.append((size, job))
            self._bytes += size
            if self._bytes > HIGH_BYTES:
                self.full = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")
