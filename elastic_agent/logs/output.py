"""Where the workers' output goes: whole into files, by lines and with a prefix onto the terminal.

`writer.py` does the writing, in a thread of its own. A full disk or a closed terminal never reaches the workers: it is
said once, and what could not be written is counted in the file where it is missing.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ...rendezvous.base.threads import Threads, call_from_thread
from ...rendezvous.host import leftovers
from ...rendezvous.host.own_files import dated_folder, file_name
from .drawn_rows import DrawnRows
from .own_lines import OwnLines
from .routes import StreamName, StreamRoutes
from .slow_disk import SlowDisk
from .terminal import Terminal
from .writer import File, Lane, Stream, Writer

READER_SECONDS = 60.0
"""So long the end waits for a terminal or a pipe that takes nothing; while it takes anything, there is no limit."""

LEAVING_READER_SECONDS = 5.0
"""The same on a node that was told to leave: its platform ends it soon, and then nothing could be said any more."""

NOTICE_SECONDS = 5.0
"""So long the end waits before it says what it waits for."""

END_SECONDS = 5.0
"""For the last of what is to be done on a disk."""

KEPT_ATTEMPTS = 10
"""Of a job that keeps no logs: so many of the newest attempts keep their error files and last words."""

_PREFIX = "elastic-run_"
"""Of folders under the temporary folder. Those of jobs that failed stay for a week, the newest MOST_FAILED of them."""

MOST_FAILED = 20

_LOGS_PREFIX = "elastic-run-logs_"
"""Of a temporary folder of logs that were asked for: nobody but the user removes it."""


class Lines:
    """The way for one stream of one worker."""

    def __init__(self, writer: Writer, stream: Stream) -> None:
        self._writer = writer
        self._stream = stream
        writer.open(stream)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        if data:
            self._writer.feed(self._stream, data)

    def end_line(self) -> None:
        """The worker has ended: show what came without a newline."""
        self._writer.end_line(self._stream)

    def close(self) -> None:
        """The stream has ended, or nobody listens to it any more."""
        self._writer.close(self._stream)


class Output:
    """All that the launcher and its workers print.

    Args:
        host: this machine, as it appears before each worker's lines.
        log_dir: where whole logs are kept, in torchrun's layout; None (or /dev/null): nowhere, unless `routes` ask for
            files, which then go to a temporary folder that stays.
        job_id: names the job's folder there.
        routes: which of the workers' streams goes where.
        raw: the bytes of a worker are shown as they come, without prefix; for one worker that is shown.
        keep_attempts: so many of the newest attempts' folders stay; 0: all. Without logs there are KEPT_ATTEMPTS.
        own_lines: how the launcher's own lines are written.
        stream_out: the launcher's own stdout.
        stream_err: the launcher's own stderr.

    Attributes:
        disk: for what the event loop itself asks of the job's folder.
        root: the folder of this job's logs and error files on this machine.
        temporary: logs were asked for, and no folder for them: `root` is a temporary one, which stays.

    Raises OSError where `log_dir` cannot be written.
    """

    def __init__(
        self,
        *,
        host: str,
        log_dir: Path | None,
        job_id: str,
        routes: StreamRoutes = StreamRoutes(),  # noqa: B008  a frozen value
        raw: bool = False,
        keep_attempts: int = 0,
        own_lines: OwnLines = OwnLines(),  # noqa: B008  a frozen value
        stream_out: BinaryIO,
        stream_err: BinaryIO,
    ) -> None:
        self.disk = SlowDisk()
        self._host = host
        self._routes = routes
        self._raw = raw
        if log_dir == Path(os.devnull):
            log_dir = None
        self._keeps_logs = log_dir is not None or routes.wants_files
        self.temporary = self._keeps_logs and log_dir is None
        name = file_name(job_id)
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
            self.root = dated_folder(log_dir, name, time.time())
        else:
            leftovers.prune(Path(tempfile.gettempdir()), _PREFIX, time.time(), MOST_FAILED)
            prefix = _LOGS_PREFIX if self.temporary else _PREFIX
            self.root = Path(tempfile.mkdtemp(prefix=f"{prefix}{name}_"))
        self._hold = leftovers.hold(self.root)
        self._terminals: dict[StreamName, Terminal] = {
            "stdout": Terminal("standard output", stream_out),
            "stderr": Terminal("standard error", stream_err),
        }
        for stream in (stream_out, stream_err):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        self._writer = Writer(tuple(self._terminals.values()), self._tell_room, self.say)
        self._matching: dict[StreamName, File] = {}  # of the newest round
        self._room: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempts: list[int] = []  # that have a folder, in order
        self._keep = keep_attempts if self._keeps_logs else KEPT_ATTEMPTS
        self._own_lines = own_lines
        self._closed = False
        self._homeless = False

    @property
    def full(self) -> bool:
        """Too much waits to be written: read no more from workers until `when_room` calls."""
        return self._writer.full

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on the event loop, when `full` has turned false. Call while `full` is true."""
        self._loop = asyncio.get_running_loop()
        self._room.append(callback)
        if not self.full:
            self._has_room()

    def worker_dir(self, round: int, local_rank: int) -> Path:
        """The folder of one worker of `round`; made where it is missing (OSError)."""
        path = self.root / f"attempt_{round}" / str(local_rank)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def error_file(self, round: int, local_rank: int) -> Path:
        """Where a worker's library may describe its error (TORCHELASTIC_ERROR_FILE); its folder is made soon."""
        self._prepare(round, local_rank)
        return self.root / f"attempt_{round}" / str(local_rank) / "error.json"

    def _prepare(self, round: int, local_rank: int) -> None:
        """Has a worker's folder made by the writer: a disk that stands still must hold up neither agent nor worker."""
        self._prune(round)

        def make() -> None:
            try:
                self.worker_dir(round, local_rank)
            except OSError as error:  # a disk that has no room for it does not keep the worker from its work, either
                if not self._homeless:
                    self._homeless = True
                    self.say(f"cannot create a log folder: {error}; the workers continue without logs")

        self.later(make)

    def later(self, work: Callable[[], object]) -> None:
        """Has the writer do it, in order: nobody else waits for a disk that hangs."""
        self._writer.call(work)

    def log_file(self, round: int, local_rank: int, stream: StreamName) -> Path | None:
        """Where a worker's stream is kept whole; None where it is not."""
        if not self._keeps_logs:
            return None
        return self.root / f"attempt_{round}" / str(local_rank) / f"{stream}.log"

    def keep_tail(self, round: int, local_rank: int, stream: StreamName, tail: bytes, cut: int) -> Path:
        """Writes down the end of a failed worker's stream where the whole is not kept; it goes when the job succeeds.

        `cut`: so many bytes came before `tail`. Raises OSError.
        """
        note = f"[elastic-run] {cut} bytes before this were not kept: --log-dir keeps all\n" if cut else ""

        def write() -> Path:
            path = self.worker_dir(round, local_rank) / f"{stream}.log"
            # Not to wait: a worker may have put a named pipe there.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, note.encode() + tail)
            finally:
                os.close(descriptor)
            return path

        return self.disk.within(write)

    def target(self, round: int, local_rank: int, stream: StreamName) -> str:
        """Where else another process may write what is left of a worker's stream: a file, a descriptor, or nothing."""
        if path := self.log_file(round, local_rank, stream):
            return str(path)
        source = self._terminals[stream].source
        return str(source) if source >= 0 and self._routes.is_shown(local_rank, stream) else ""

    def terminal_size(self, local_rank: int, stream: StreamName) -> os.terminal_size | None:
        """Of the terminal that shows a worker's stream; None: it is to be a pipe, as where torchrun makes it a file."""
        to_file = self._routes.is_filed(local_rank, stream)
        terminal = self._terminals[stream]
        shown = terminal.interactive and self._routes.is_shown(local_rank, stream)
        return terminal.size if shown and not to_file else None

    def open(self, round: int, rank: int, local_rank: int, stream: StreamName) -> Lines:
        """The way for one worker's stream; the writer makes its folder and its file."""
        self._prepare(round, local_rank)
        path = self.log_file(round, local_rank, stream)
        needles = self._routes.needles(stream)
        matching = None
        if needles:
            # The file itself, and not only its name, is shared within a round: it counts what a full disk has lost.
            place = self.root / f"attempt_{round}" / f"filtered_{stream}.log"
            matching = self._matching.get(stream)
            if matching is None or matching.path != place:
                matching = self._matching[stream] = File(place)
        made = Stream(
            worker=(round, local_rank),
            prefix=self._routes.prefix(self._host, rank, local_rank, stream),
            file=File(path) if path is not None else None,
            lane=self._lane(stream) if self._routes.is_shown(local_rank, stream) else None,
            matching=matching,
            needles=needles,
            raw=self._raw,
            screen=DrawnRows() if (drawn := self.terminal_size(local_rank, stream) is not None) else None,
            draws=drawn and not self._raw and not self._terminals[stream].dumb,
        )
        return Lines(self._writer, made)

    def open_service(self, name: str, stream: StreamName) -> Lines:
        """The way for one stream of a service that runs beside the workers: all of it is shown, and none kept."""
        prefix = f"[{self._host} {name}] ".encode(errors="replace")
        return Lines(self._writer, Stream(worker=("service", name), prefix=prefix, lane=self._lane(stream)))

    def _lane(self, stream: StreamName) -> Lane:
        return self._writer.lanes[self._terminals[stream].name]

    def say(self, line: str) -> None:
        """One of the launcher's own lines, on stderr, in order with the workers' lines there.

        Control characters are shown as their escapes; a text of several lines is shown as `visible_lines` does.
        """
        self._writer.say(
            self._terminals["stderr"], self._own_lines.encoded(line, colour="stderr" in self._routes.color)
        )

    @property
    def has_live_line(self) -> bool:
        """Stderr is a terminal on which a line can be changed, and no pipe from stdout ends there (`| tee log`)."""
        out, err = self._terminals["stdout"], self._terminals["stderr"]
        return err.interactive and out.identity == err.identity

    def live(self, line: str) -> None:
        """The line below all others on stderr, where that is a terminal; empty: there is none."""
        if self.has_live_line and not self._closed:
            self._writer.live(self._terminals["stderr"], f"[elastic-run] {line}" if line else "")

    def pause(self) -> None:
        """Another program, such as a shell, has the terminal until `resume`: what is drawn there is left to it."""
        for lane in self._writer.lanes.values():
            lane.held = True

    def resume(self) -> None:
        """What is drawn is drawn once more."""
        for lane in self._writer.lanes.values():
            self._writer.call(lane.release)

    async def flush(self, seconds: float = 5.0) -> bool:
        """Wait until all is written, at most `seconds`; False where it is not (a terminal that stands still)."""
        return not self._writer.is_alive() or await _called(self._writer.when_idle, seconds)

    async def close(
        self, *, succeeded: bool, seconds: float = READER_SECONDS, hurry: asyncio.Event | None = None
    ) -> None:
        """Write what is left, and remove what nobody asked to keep.

        A terminal or a pipe is waited for while it takes anything within `seconds`, and until `hurry` is set; what is
        dropped then is said. The folder goes where the job `succeeded` and no logs were asked for.
        """
        if self._closed:
            return
        self._closed = True
        writer = self._writer
        if writer.is_alive():
            if why := await self._drained(writer, seconds, hurry or asyncio.Event()):
                writer.give_up(f"{why}{f'; they are in {self.root}' if self._keeps_logs else ''}")
            if await _called(writer.end, END_SECONDS):
                writer.join()
        else:
            for terminal in self._terminals.values():
                terminal.close()
        writer.shut()
        if self._hold is not None:
            os.close(self._hold)

        def remove() -> None:
            if succeeded or not any(path.is_file() for path in self.root.rglob("*")):
                shutil.rmtree(self.root, ignore_errors=True)

        if not self._keeps_logs:
            with contextlib.suppress(OSError):
                await Threads(1).run(remove, END_SECONDS)

    async def _drained(self, writer: Writer, seconds: float, hurry: asyncio.Event) -> str:
        """Wait until all is written; why it is not, where it is not."""
        loop = asyncio.get_running_loop()
        idle, news = False, hurry

        def wake() -> None:
            nonlocal idle
            idle = True
            call_from_thread(loop, news.set)

        writer.when_idle(wake)
        begun = moved = loop.time()
        taken, told = writer.taken, False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, 1.0)):
                    await news.wait()
            now = loop.time()
            if idle:
                return ""
            if news.is_set():
                return "a signal arrived before they were read"
            if writer.taken > taken:
                taken, moved = writer.taken, now
            elif now - moved >= seconds:
                return f"no output was read for {seconds:g} s"
            if not told and now - begun >= NOTICE_SECONDS:
                told = True
                self.say(
                    "the workers' output is read slowly: waiting for its reader, until nothing is read for "
                    f"{seconds:g} s or a signal arrives"
                )

    def begin(self) -> None:
        """Start the thread that writes; the first output does so otherwise. Raises RuntimeError where there is none."""
        self._writer.begin()

    def _prune(self, round: int) -> None:
        """The oldest folders go where `round` is one too many. Round 0 is the one before the first."""
        if round == 0 or round in self._attempts:
            return
        self._attempts.append(round)
        while self._keep and len(self._attempts) > self._keep:
            old = self.root / f"attempt_{self._attempts.pop(0)}"
            self.later(lambda old=old: shutil.rmtree(old, ignore_errors=True))

    def _tell_room(self) -> None:
        if self._loop is not None:
            call_from_thread(self._loop, self._has_room)

    def _has_room(self) -> None:
        waiting, self._room = self._room, []
        for callback in waiting:
            callback()


async def _called(ask: Callable[[Callable[[], None]], None], seconds: float) -> bool:
    """Hand a callback to `ask` and wait until another thread calls it: False where it does not within `seconds`."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    ask(lambda: call_from_thread(loop, called.set))
    try:
        async with asyncio.timeout(seconds):
            await called.wait()
    except TimeoutError:
        return False
    return True
