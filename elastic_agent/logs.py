"""Where the workers' output goes: whole into files, by lines and with a prefix onto the terminal.

One thread does all the writing. POSIX forces it: a write to a disk, a pipe or a terminal may block for as long as
it likes, and the event loop must not. The thread asks a terminal or pipe whether it has room before it writes to it,
so a terminal that was stopped (Ctrl-S, a pager) holds up neither the files nor the other stream. What waits to be
written is bounded: when it is too much, `Output.full` turns true, the workers' pipes are no longer read, and a worker
that writes waits, as it would on that terminal itself. A full disk or a closed terminal never reaches the workers:
it is said once, and what could not be written is counted in the file where it is missing.
"""

import asyncio
import contextlib
import os
import re
import select
import shutil
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

StreamName = Literal["stdout", "stderr"]
_STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")

Std = int | Mapping[int, int]
"""Which streams: 0 none, 1 stdout, 2 stderr, 3 both; for every worker, or by local rank (others: none)."""

HIGH_BYTES = 4 << 20
"""Waiting output from which on the workers' pipes are no longer read."""

LOW_BYTES = 1 << 20
"""Waiting output below which they are read again."""

LINE_BYTES = 64 << 10
"""A longer line is shown in pieces on the terminal; files get it unchanged."""

PROGRESS_SECONDS = 5.0
"""At most this often a line that overwrites itself (a progress bar) is shown; its last state always is."""

PORTION_BYTES = 4096
"""A pipe that says it has room takes this much without blocking (POSIX: PIPE_BUF)."""

_COLOURS = (36, 33, 35, 32, 34, 31)
_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-HJKSTfhlnsu]")
"""Escape sequences that move the cursor or erase: on a terminal shared by ranks they would spoil others' lines."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Bytes for one place."""

    place: "_File | _Terminal"
    data: bytes


class _File:
    """A log file, touched only by the writer thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = -1
        self.missing = 0
        self.told = False

    def write(self, data: bytes) -> OSError | None:
        """Append all of `data`; returns the first error of this file's life, and counts what is lost."""
        try:
            if self.descriptor < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self.descriptor = os.open(self.path, flags, 0o644)
            if self.missing:
                _write_all(self.descriptor, f"\n[elastic-run] {self.missing} bytes are missing here\n".encode())
                self.missing = 0
            _write_all(self.descriptor, data)
        except _Partly as partly:
            self.missing += partly.left
            return self._once(partly.error)
        except OSError as error:
            self.missing += len(data)
            return self._once(error)
        return None

    def close(self) -> None:
        if self.descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
            self.descriptor = -1

    def _once(self, error: OSError) -> OSError | None:
        told, self.told = self.told, True
        return None if told else error


class _Partly(Exception):
    """Some of the bytes were written before `error`; `left` were not."""

    def __init__(self, error: OSError, left: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.left = left


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError as error:
            raise _Partly(error, len(view)) from error


class _Terminal:
    """One of the launcher's own streams: a terminal, a pipe, a file, or (in tests) an object in memory."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        self.stream = stream
        self.closed = False
        self._own = -1
        try:
            self.descriptor = stream.fileno()
            status = os.fstat(self.descriptor)
            self.identity: object = (status.st_dev, status.st_ino, status.st_rdev)
        except (OSError, ValueError):
            self.descriptor = -1
            self.identity = id(stream)
            return
        if stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode):
            # Opened anew it can be non-blocking for us alone; the flag on the one we got is shared with others.
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._own = self.descriptor = os.open(f"/proc/self/fd/{self.descriptor}", flags)

    def write(self, data: memoryview) -> int:
        """Write some of `data`; returns how many bytes, 0 where there is no room after all."""
        if self.descriptor < 0:
            self.stream.write(data)
            self.stream.flush()
            return len(data)
        try:
            return os.write(self.descriptor, data if self._own >= 0 else data[:PORTION_BYTES])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Give up our own way to it; the launcher's stream stays open."""
        self.closed = True
        if self._own >= 0:
            os.close(self._own)
            self._own = -1


class _Writer(threading.Thread):
    """Empties the queues. Files come before terminals; within a lane the order is that of `put`.

    stdout and stderr that are the same terminal share a lane, so that their lines keep the order in which they came.
    """

    def __init__(self, terminals: Sequence[_Terminal], on_room: Callable[[], None], on_error: Callable[[str], None]):
        super().__init__(name="elastic-run-writer", daemon=True)
        self._terminals = terminals
        self._on_room = on_room
        self._on_error = on_error
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None] | _Chunk] = deque()
        self._lanes: dict[object, deque[_Chunk]] = {terminal.identity: deque() for terminal in terminals}
        self._bytes = 0
        self._was_full = False
        self._at_end: Callable[[], None] | None = None
        self._idle_callbacks: list[Callable[[], None]] = []
        self._files: set[_File] = set()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    @property
    def full(self) -> bool:
        return self._was_full

    def put(self, place: "_File | _Terminal", data: bytes) -> None:
        chunk = _Chunk(place, data)
        with self._lock:
            if isinstance(place, _Terminal):
                self._lanes[place.identity].append(chunk)
            else:
                self._jobs.append(chunk)
            self._bytes += len(data)
            if self._bytes > HIGH_BYTES:
                self._was_full = True
        self._wake()

    def call(self, job: Callable[[], None]) -> None:
        """Run `job` on the thread after every chunk for files that was put before it."""
        with self._lock:
            self._jobs.append(job)
        self._wake()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on the thread, when nothing waits to be written."""
        with self._lock:
            self._idle_callbacks.append(callback)
        self._wake()

    def end(self, callback: Callable[[], None]) -> None:
        """Write what can be written without waiting for a terminal, close all files, and call `callback` last."""
        self._at_end = callback
        self._wake()

    def close_file(self, file: _File) -> None:
        """Close `file` after what was put before; more output opens it again."""

        def job() -> None:
            file.close()
            self._files.discard(file)

        self.call(job)

    def run(self) -> None:
        while True:
            self._drain_wake()
            while job := self._next_job():
                self._do(job)
            lanes = [lane for lane in self._lanes.values() if lane]
            moved = [self._show(lane) for lane in lanes if self._has_room(lane[0])]
            if any(moved):
                continue
            self._tell_idle()
            if self._at_end and not self._jobs:
                break
            self._wait(lanes)
        for file in self._files:
            file.close()
        for terminal in self._terminals:
            terminal.close()
        self._at_end()

    def _next_job(self) -> Callable[[], None] | _Chunk | None:
        with self._lock:
            return self._jobs.popleft() if self._jobs else None

    def _do(self, job: Callable[[], None] | _Chunk) -> None:
        if not isinstance(job, _Chunk):
            job()
            return
        assert isinstance(job.place, _File)
        self._files.add(job.place)
        if error := job.place.write(job.data):
            why = error.strerror or str(error)
            self._on_error(f"cannot write {job.place.path}: {why}; the workers go on, what is lost is counted there")
        self._written(len(job.data))

    def _tell_idle(self) -> None:
        with self._lock:
            if self._bytes or self._jobs:
                return
            callbacks, self._idle_callbacks = self._idle_callbacks, []
        for callback in callbacks:
            callback()

    @staticmethod
    def _has_room(chunk: _Chunk) -> bool:
        place = chunk.place
        assert isinstance(place, _Terminal)
        if place.closed or place.descriptor < 0:
            return True
        poll = select.poll()
        poll.register(place.descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def _show(self, lane: deque[_Chunk]) -> bool:
        chunk = lane[0]
        place = chunk.place
        assert isinstance(place, _Terminal)
        written = len(chunk.data)
        if not place.closed:
            try:
                written = place.write(memoryview(chunk.data))
            except (OSError, ValueError) as error:
                place.closed = True
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                self._on_error(f"cannot write to {place.name} any more: {why}; the workers go on")
        with self._lock:
            if written < len(chunk.data):
                lane[0] = _Chunk(place, chunk.data[written:])
            else:
                lane.popleft()
        self._written(written)
        return written > 0

    def _written(self, size: int) -> None:
        with self._lock:
            self._bytes -= size
            room = self._was_full and self._bytes < LOW_BYTES
            if room:
                self._was_full = False
        if room:
            self._on_room()

    def _wait(self, lanes: Sequence[deque[_Chunk]]) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        for lane in lanes:
            place = lane[0].place
            if isinstance(place, _Terminal) and place.descriptor >= 0:
                poll.register(place.descriptor, select.POLLOUT)
        poll.poll()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 65536)

    def close_pipe(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)


class Lines:
    """One stream of one worker, from bytes as they come to a whole file and shown lines."""

    def __init__(
        self,
        *,
        prefix: bytes,
        put: Callable[["_File | _Terminal", bytes], None],
        close: Callable[[_File], None],
        file: _File | None,
        terminal: _Terminal | None,
        matching: _File | None,
        needles: Sequence[bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = prefix
        self._put = put
        self._close = close
        self._file = file
        self._terminal = terminal
        self._matching = matching
        self._needles = needles
        self._clock = clock
        self._partial = b""
        self._progress: bytes | None = None
        self._shown_progress = float("-inf")

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if not data:
            return
        if self._file:
            self._put(self._file, data)
        if self._terminal or self._matching:
            self._show(self._split(data))

    def end_line(self) -> None:
        """The worker has ended: show what came without a newline."""
        last = self._partial or self._progress
        self._partial, self._progress = b"", None
        if last and last.strip(b"\r"):
            self._show([last.strip(b"\r")])

    def close(self) -> None:
        """The stream has ended, or nobody listens to it any more."""
        self.end_line()
        for file in (self._file, self._matching):
            if file:
                self._close(file)  # others of the round may write to the second: that opens it again

    def _split(self, data: bytes) -> list[bytes]:
        # Kept back with the rest: a trailing \r may be the first half of \r\n.
        *whole, self._partial = (self._partial + data).split(b"\n")
        lines: list[bytes] = []
        for line in whole:
            last = self._overwrites(line.removesuffix(b"\r"), lines)
            # The bar's state before an empty end of line is its last state.
            lines.append(last or self._progress or b"")
            self._progress = None
        if b"\r" in self._partial[:-1]:
            ending = self._partial[-1:] if self._partial.endswith(b"\r") else b""
            self._partial = self._overwrites(self._partial.removesuffix(b"\r"), lines) + ending
        while len(self._partial) > LINE_BYTES:
            lines.append(self._partial[:LINE_BYTES])
            self._partial = self._partial[LINE_BYTES:]
        return lines

    def _overwrites(self, line: bytes, lines: list[bytes]) -> bytes:
        """The last state of a line that overwrote itself; a state between goes to `lines` now and then."""
        *states, last = line.split(b"\r")
        states = [state for state in states if state.strip()]
        if states:
            self._progress = states[-1]
            now = self._clock()
            if now - self._shown_progress >= PROGRESS_SECONDS:
                self._shown_progress = now
                lines.append(states[-1])
                self._progress = None
        return last

    def _show(self, lines: Sequence[bytes]) -> None:
        if self._terminal and lines:
            shown = (self._prefix + _MOVES.sub(b"", line) + b"\n" for line in lines)
            self._put(self._terminal, b"".join(shown))
        if self._matching:
            found = [line for line in lines if any(needle in line for needle in self._needles)]
            if found:
                self._put(self._matching, b"".join(self._prefix + line + b"\n" for line in found))


class Output:
    """All that the launcher and its workers print.

    Args:
        host: this machine, as it appears before each worker's lines.
        log_dir: where whole logs are kept, in torchrun's layout; None (or /dev/null): nowhere, unless `redirects`,
            `tee` or a filter asks for files, which then go to a temporary folder that stays.
        job_id: names the job's folder there.
        color: prefixes are coloured, one colour per rank; for both streams, or for each.
        redirects: streams that go to their file instead of the terminal.
        tee: streams that go to both, even where `redirects` names them.
        line_prefix: what a worker's lines begin with on the terminal, by rank and local rank; None: host and rank.
        local_ranks_filter: only these local ranks are shown on the terminal; empty or None: all.
        duplicate_stdout_filters: lines of stdout that contain one of these are also kept in `filtered_stdout.log`.
        duplicate_stderr_filters: likewise for stderr.
        stream_out: the launcher's own stdout.
        stream_err: the launcher's own stderr.

    Raises OSError where `log_dir` cannot be written.
    """

    def __init__(
        self,
        *,
        host: str,
        log_dir: Path | None,
        job_id: str,
        color: Mapping[StreamName, bool] | bool,
        redirects: Std = 0,
        tee: Std = 0,
        line_prefix: Callable[[int, int], str] | None = None,
        local_ranks_filter: Collection[int] | None = None,
        duplicate_stdout_filters: Sequence[str] | None = None,
        duplicate_stderr_filters: Sequence[str] | None = None,
        stream_out: BinaryIO,
        stream_err: BinaryIO,
    ) -> None:
        self._host = host
        self._color = {name: color if isinstance(color, bool) else color[name] for name in _STREAMS}
        self._redirects = redirects
        self._tee = tee
        self._line_prefix = line_prefix
        self._shown_ranks = frozenset(local_ranks_filter or ())
        self._needles: dict[StreamName, tuple[bytes, ...]] = {
            "stdout": tuple(text.encode() for text in duplicate_stdout_filters or ()),
            "stderr": tuple(text.encode() for text in duplicate_stderr_filters or ()),
        }
        if log_dir == Path(os.devnull):
            log_dir = None
        wants_files = _asks(redirects) or _asks(tee) or any(self._needles.values())
        self._keeps_logs = log_dir is not None or wants_files
        name = re.sub(r"[^\w.=+-]", "_", job_id) or "job"
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
            self._root = Path(tempfile.mkdtemp(prefix=f"{name}_", dir=log_dir))
        else:
            self._root = Path(tempfile.mkdtemp(prefix=f"elastic-run_{name}_"))
        self._terminals: dict[StreamName, _Terminal] = {
            "stdout": _Terminal("standard output", stream_out),
            "stderr": _Terminal("standard error", stream_err),
        }
        for stream in (stream_out, stream_err):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        self._matching: dict[StreamName, _File] = {}  # of the newest round
        self._room: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: _Writer | None = None
        self._closed = False
        self._homeless = False

    @property
    def root(self) -> Path:
        """The folder of this job's logs and error files on this machine."""
        return self._root

    @property
    def full(self) -> bool:
        """Too much waits to be written: read no more from workers until `when_room` calls."""
        return self._writer is not None and self._writer.full

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on the event loop, when `full` has turned false. Call while `full` is true."""
        self._room.append(callback)
        if not self.full:
            self._has_room()

    def attempt_dir(self, round: int) -> Path:
        """The folder of `round`; made where it is missing (OSError)."""
        path = self._root / f"attempt_{round}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def worker_dir(self, round: int, local_rank: int) -> Path:
        """The folder of one worker of `round`; made where it is missing (OSError)."""
        path = self.attempt_dir(round) / str(local_rank)
        path.mkdir(exist_ok=True)
        return path

    def error_file(self, round: int, local_rank: int) -> Path:
        """Where a worker's library may describe its error (torch's TORCHELASTIC_ERROR_FILE)."""
        self._prepare(round, local_rank)
        return self._root / f"attempt_{round}" / str(local_rank) / "error.json"

    def _prepare(self, round: int, local_rank: int) -> None:
        """Makes a worker's folder; a disk that has no room for it must not keep the worker from its work."""
        try:
            self.worker_dir(round, local_rank)
        except OSError as error:
            if not self._homeless:
                self._homeless = True
                self.say(f"cannot make a folder for logs: {error}; the workers go on without")

    def log_file(self, round: int, local_rank: int, stream: StreamName) -> Path | None:
        """Where a worker's stream is kept whole; None where it is not."""
        if not self._keeps_logs:
            return None
        return self._root / f"attempt_{round}" / str(local_rank) / f"{stream}.log"

    def keep_tail(self, round: int, local_rank: int, tail: bytes) -> Path:
        """Writes down the end of a failed worker's stderr where the whole is not kept; it goes when the job succeeds.

        Raises OSError.
        """
        path = self.worker_dir(round, local_rank) / "stderr.log"
        path.write_bytes(tail)
        return path

    def open(self, round: int, rank: int, local_rank: int, stream: StreamName) -> Lines:
        """The way for one worker's stream; its folder is made, and its file by the writer."""
        self._prepare(round, local_rank)
        path = self.log_file(round, local_rank, stream)
        file = None
        if path is not None:
            file = _File(path)
            self._put(file, b"")
        needles = self._needles[stream]
        matching = None
        if needles:
            # The file itself, and not only its name, is shared within a round: it counts what a full disk has lost.
            place = self._root / f"attempt_{round}" / f"filtered_{stream}.log"
            matching = self._matching.get(stream)
            if matching is None or matching.path != place:
                matching = self._matching[stream] = _File(place)
        return Lines(
            prefix=self._prefix(rank, local_rank, stream),
            put=self._put,
            close=self._close_file,
            file=file,
            terminal=self._terminals[stream] if self._is_shown(local_rank, stream) else None,
            matching=matching,
            needles=needles,
        )

    def say(self, line: str) -> None:
        """One of the launcher's own lines (or several), on stderr, in order with the workers' lines there."""
        mark = b"\x1b[1m[elastic-run]\x1b[0m " if self._color["stderr"] else b"[elastic-run] "
        text = line.encode(errors="replace")
        self._put(self._terminals["stderr"], b"".join(mark + part + b"\n" for part in text.split(b"\n")))

    async def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all is written, at most `seconds`; False where it is not (a terminal that stands still)."""
        writer = self._writer
        if writer is None:
            return True
        return await _called(writer.when_idle, seconds)

    async def close(self, *, succeeded: bool, seconds: float = 5.0) -> None:
        """Write what is left (at most `seconds` for a slow terminal), and remove what nobody asked to keep.

        The folder goes where the job `succeeded` and no logs were asked for.
        """
        if self._closed:
            return
        self._closed = True
        await self.flush(seconds)
        writer, self._writer = self._writer, None
        if writer is None:
            for terminal in self._terminals.values():
                terminal.close()
        elif await _called(writer.end, seconds):
            writer.join()
            writer.close_pipe()
        if not self._keeps_logs and (succeeded or not any(path.is_file() for path in self._root.rglob("*"))):
            shutil.rmtree(self._root, ignore_errors=True)

    def _is_shown(self, local_rank: int, stream: StreamName) -> bool:
        bit = 1 if stream == "stdout" else 2
        if self._shown_ranks and local_rank not in self._shown_ranks:
            return False
        return bool(_of(self._tee, local_rank) & bit) or not _of(self._redirects, local_rank) & bit

    def _prefix(self, rank: int, local_rank: int, stream: StreamName) -> bytes:
        text, space = (f"[{self._host} rank {rank}]", " ")
        if self._line_prefix is not None:
            text, space = self._line_prefix(rank, local_rank), ""
        if self._color[stream]:
            text = f"\x1b[2;{_COLOURS[rank % len(_COLOURS)]}m{text}\x1b[0m"
        return f"{text}{space}".encode(errors="replace")

    def _put(self, place: "_File | _Terminal", data: bytes) -> None:
        if self._writer is None:
            if self._closed:
                return
            with contextlib.suppress(RuntimeError):
                self._loop = asyncio.get_running_loop()
            self._writer = _Writer(tuple(self._terminals.values()), self._tell_room, self.say)
            self._writer.start()
        self._writer.put(place, data)

    def _close_file(self, file: _File) -> None:
        if self._writer is not None:
            self._writer.close_file(file)

    def _tell_room(self) -> None:
        # RuntimeError: the loop has been closed; nobody is left to hear it.
        with contextlib.suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._has_room)

    def _has_room(self) -> None:
        waiting, self._room = self._room, []
        for callback in waiting:
            callback()


def _asks(streams: Std) -> bool:
    return any(streams.values()) if isinstance(streams, dict) else bool(streams)


def _of(streams: Std, local_rank: int) -> int:
    return streams if isinstance(streams, int) else streams.get(local_rank, 0)


async def _called(ask: Callable[[Callable[[], None]], None], seconds: float) -> bool:
    """Hand a callback to `ask` and wait until another thread calls it: False where it does not within `seconds`."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()

    def tell() -> None:
        # RuntimeError: called too late, the loop has been closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(called.set)

    ask(tell)
    try:
        async with asyncio.timeout(seconds):
            await called.wait()
    except TimeoutError:
        return False
    return True
