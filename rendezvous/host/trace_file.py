"""A trace: what happened when, one event a line, in the format that Perfetto and chrome://tracing read.

The file is a JSON array without its closing bracket, which the format allows. Each event is one line, and each line one
write to a file that is open for appending: so the agent and its workers write to the same file without a lock, and who
is killed loses nothing that it has written.

Times are the monotonic clock in microseconds, which all processes of a machine share. The event `clock` says what the
wall clock showed, so that the files of several machines can be laid beside each other.

A viewer draws one row for each thread, and the spans of one row have to lie beside or inside each other. A row here is
a role (`agent`, `master`, `rank 3`), so that it goes on in the next process that has the role. A span is written when
it ends; one that was cut short by SIGKILL is not there.
"""

import errno
import fcntl
import json
import math
import os
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType

from .named_files import open_to_write

AGENT = "agent"
"""The row of the one that starts and stops the workers."""

LINE_BYTES = 4096
"""The longest line: what Linux writes in one piece wherever it goes to (PIPE_BUF)."""

TEXT_CHARACTERS = 400
"""Of one name or argument; the rest is cut off."""


Sink = Callable[[str, str, float, float, dict[str, object]], None]
"""Takes an event: its name, its row, its begin and end in seconds of the clock (equal: a moment), its arguments."""

Later = Callable[[Callable[[], None]], None]
"""Has something done, now or on a thread."""


class Trace:
    """Writes events to one file, or nowhere.

    Args:
        file: None: nothing is recorded.
        node: this machine's name in the job.
        say: prints one line for a person: once, where the file cannot be written; nothing is recorded from then on.
        create: the file is made, or gone on with, and says first whose events follow; False: it is there.
        now: the clock, in seconds.
        sink: takes each event as well, also where there is no file; must return at once.
        later: has the file written by a thread, in order, for who must not wait for a disk that hangs.

    Attributes:
        file: None where there is none.
    """

    def __init__(
        self,
        file: str | None = None,
        node: str = "",
        say: Callable[[str], None] = print,
        *,
        create: bool = False,
        now: Callable[[], float] = time.monotonic,
        sink: Sink | None = None,
        later: Later | None = None,
    ) -> None:
        self.file = self._path = file
        self._later: Later = later or _at_once
        self._sink = sink
        self.now = now
        self._node = node
        self._say = say
        self._process = _number(node)
        self._rows: set[str] = set()  # that have a name in the file
        self._descriptor, self._identity = -1, (0, 0)
        if file is None:
            return
        try:
            # Not to wait: neither for the reader of a named pipe, nor for one that is slow.
            self._descriptor = open_to_write(Path(file), append=True, create=create)
            self._identity = self._is()
            if create:
                self._begin()
        except OSError as error:
            self._give_up(error)

    def instant(self, name: str, row: str, /, **args: object) -> None:
        if self._sink:
            now = self.now()
            self._sink(name, row, now, now, args)
        if self.file is not None:
            self._event({"ph": "i", "s": "t", "ts": _microseconds(self.now())}, name, row, args)

    def since(self, begun: float, name: str, row: str, /, *, until: float | None = None, **args: object) -> None:
        """Something has lasted from `begun`, in seconds of the clock, `until` then (None: now)."""
        if self.file is not None or self._sink:
            self.record(begun, self.now() if until is None else until, name, row, args)

    def record(self, begun: float, ended: float, name: str, row: str, args: dict[str, object]) -> None:
        """As `since`, with arguments that may have any name."""
        if self._sink:
            self._sink(name, row, begun, ended, args)
        if self.file is not None:
            start = _microseconds(begun)
            # From the rounded times, so that two spans that meet do not overlap by a nanosecond.
            lasted = round(max(0.0, _microseconds(ended) - start), 3)
            self._event({"ph": "X", "ts": start, "dur": lasted}, name, row, args)

    def span(self, name: str, row: str, /, **args: object) -> AbstractContextManager[None]:
        """Something lasts while the context does; what ended it by being raised is told."""
        return nullcontext() if self.file is None and not self._sink else _Span(self, name, row, args)

    def close(self) -> None:
        self.file = None
        self._later(self._shut)

    def _shut(self) -> None:
        with suppress(OSError):  # closed by somebody else
            if self._descriptor >= 0 and self._is() == self._identity:
                os.close(self._descriptor)
        self._descriptor = -1

    def _begin(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # two agents that make one file write one bracket
        try:
            if os.fstat(self._descriptor).st_size == 0:
                os.write(self._descriptor, b"[\n")
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._name("process_name", self._process, f"node {self._node}")
        self.instant("clock", AGENT, unix=time.time())

    def _event(self, event: dict[str, object], name: str, row: str, args: dict[str, object]) -> None:
        # Perfetto names a thread by its number alone, so no two in the picture may share one. Where it is that of the
        # process, this is the main thread, which comes first.
        thread = self._process if row == AGENT else _number(f"{self._node}/{row}")
        if row not in self._rows:
            self._rows.add(row)
            self._name("thread_name", thread, row)
        # The time comes before the texts: not every reader's quick look for it understands all that a text can hold.
        event |= {"pid": self._process, "tid": thread, "name": _plain(str(name))}
        if args:
            event["args"] = {str(_plain(key)): _plain(value) for key, value in args.items()}
        self._write(event)

    def _name(self, what: str, thread: int, name: str) -> None:
        about = {"name": _plain(name)}
        self._write({"ph": "M", "ts": 0, "pid": self._process, "tid": thread, "name": what, "args": about})

    def _write(self, event: dict[str, object]) -> None:
        line = _line(event)
        if len(line) > LINE_BYTES:
            line = _line({**event, "args": {"left out": f"arguments of {len(line)} bytes"}})
        self._later(lambda: self._append(line))

    def _append(self, line: bytes) -> None:
        if self._descriptor < 0:
            return
        try:
            if self._is() != self._identity:
                # A script may have closed whatever was open: the number could be that of its checkpoint now.
                raise OSError(errno.EBADF, "this process has closed it")
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._give_up(error)

    def _is(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def _give_up(self, error: OSError) -> None:
        closed, self.file = self.file is None, None
        self._shut()
        if not closed:
            self._say(f"the trace {self._path} cannot be written ({error.strerror}): no more events are recorded")


class _Span:
    def __init__(self, trace: Trace, name: str, row: str, args: dict[str, object]) -> None:
        self._trace, self._name, self._row, self._args = trace, name, row, args
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = self._trace.now()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        raised = {} if kind is None else {"raised": f"{kind.__name__}: {error}"}
        self._trace.record(self._begun, self._trace.now(), self._name, self._row, {**self._args, **raised})


def _line(event: dict[str, object]) -> bytes:
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b",\n"


def _plain(value: object) -> str | int | float | None:
    """As JSON has it; anything else in words."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)[:TEXT_CHARACTERS]


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _at_once(write: Callable[[], None]) -> None:
    write()


def _number(text: str) -> int:
    """For a name, the same in every process and on every machine."""
    return zlib.crc32(text.encode("utf-8", "replace")) & 0x7FFFFFFF or 1
