"""Reads from what a failed worker left behind why it failed: pure, from bytes to words.

No decorator and no change to the script: an uncaught exception is on stderr anyway. What a library wrote on purpose
into the error file (torch's `record`) comes first. On stderr the last block that explains an end wins: a Python
traceback with all that it is chained to, the interpreter's own "Fatal Python error", or a C++ `terminate`. Blocks that
Python prints about errors it ignored, or about another thread, count only where nothing else explains the end. So does
the line by which glog ends a process: it may come of the exception that stands before it.
"""

import errno
import json
import re
import signal
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from ...adapters.contract import Hint
from ...master.machine.incident import lost_link
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.member import MAX_TRACEBACK_BYTES, Exit
from ...rendezvous.wire.fields import signal_name

MAX_MESSAGE_CHARACTERS = 500
"""Of one message: it goes on one line of a terminal and into the store."""

MAX_MESSAGE_LINES = 40
"""Lines that may follow an exception's first line and still be its message."""

STOOD_STILL = "killed because the job stood still: "
"""How the message of a worker begins that was killed for --on-hang=restart."""

_HEADER = re.compile(r"^(?P<prefix>.*?)Traceback \(most recent call last\):\s*$")
_GROUP = re.compile(r"^(?P<prefix>.*?)\+ Exception Group Traceback \(most recent call last\):\s*$")
_BOX = re.compile(r"^(?P<prefix>.*?)╭.*Traceback \(most recent call last\).*╮\s*$")
_SYNTAX = re.compile(r'^  File ".*", line \d+\s*$')
_SYNTAX_END = re.compile(r"^(?:[\w.]+\.)?(?:SyntaxError|IndentationError|TabError)(?::|$)")
_FATAL = re.compile(r"^(?P<prefix>(?:\[\w+\]: )?)Fatal Python error: ")
_LOGGED_FATAL = re.compile(r"^(?:\[rank\d+\]:)?F\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] ?(?P<message>.*)$")
_STACK = "*** Check failure stack trace: ***"
_TERMINATE = re.compile(r"^(?P<prefix>.*?)terminate called (?:after throwing|without an active|recursively)")
_WHAT = re.compile(r"^\s*what\(\):\s*(.*)$")
_THROWN = re.compile(r"after throwing an instance of '(.*)'")
_EXCEPTION = re.compile(r"^(?:[^\W\d][\w.<>]*)(?::.*)?$")
_LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_ASIDE = re.compile(
    r"(?:^Exception ignored |^Exception in thread |^Error in |^Unhandled exception in |^--- Logging error)"
)
_NEXT_RECORD = re.compile(
    r"^(?:"
    r"\[?\d{4}-\d\d-\d\d[ T]"  # a timestamp
    r"|\d\d:\d\d:\d\d"
    r"|(?:\[rank\d+\]:)?\[?[WEIF]\d{4} "  # glog, as torch's C++ side writes
    r"|\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b"
    r"|\S+:\d+: \w*Warning: "
    r"|Exception (?:ignored|in thread) "
    r"|Process \S+:$"
    r")"
)
_NOTE = re.compile(
    r"(?:\[rank\d+\]:)?\[?[WI]\d{4} "  # glog
    r"|\S+:\d+: \w*Warning: "
    r"|(?:\[?\d{4}-\d\d-\d\d\S* ?\S* )?\W*(?:DEBUG|INFO|WARNING|WARN)\b"
)
_WARNING = re.compile(r"\S+:\d+: \w*Warning: ")
_FRAME = '  File "'
_FRAME_BYTES = b'\n  File "'
_NOT_THE_SCRIPT = ('  File "<frozen ', '  File "<string>"')
_CUT = "  ..."
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of stderr that explains an end."""

    start: int
    message: str
    text: str
    aside: bool = False
    prefix: str = ""


def read_failure(stderr_tail: bytes, error_file: bytes | None) -> tuple[str, str]:
    """(message, traceback) of a failed worker, both empty where it left nothing that explains its end.

    Args:
        stderr_tail: the last bytes of its stderr.
        error_file: what a library wrote about the error, as JSON; None where there is no such file.

    The message is one line; the traceback has at most MAX_TRACEBACK_BYTES bytes, its middle cut.
    """
    told = _read_error_file(error_file) if error_file else None
    if told:
        message, trace = told
        return _one_line(message), bounded(trace)
    blocks = _blocks(_lines(stderr_tail))
    chosen = [block for block in blocks if not block.aside] or blocks
    if not chosen:
        return "", ""
    return _one_line(chosen[-1].message), bounded(chosen[-1].text)


def last_line(tail: bytes) -> str:
    """The last line that is not empty: for a program that says why it exits but raises nothing."""
    for line in reversed(_lines(tail)):
        if line.strip():
            return _one_line(line.strip())
    return ""


def last_words(stderr_tail: bytes, stdout_tail: bytes) -> tuple[Literal["stderr", "stdout"], str]:
    """Where a program that raised nothing most likely says why it ended, and its last line there.

    That is stderr, unless nothing is there but warnings and notes, and stdout has something.
    """
    lines = _lines(stderr_tail)
    telling = [line for at, line in enumerate(lines) if line.strip() and not _is_note(lines, at)]
    on_stderr, on_stdout = last_line(stderr_tail), last_line(stdout_tail)
    if telling or not on_stdout:
        return "stderr", _one_line(telling[-1].strip()) if telling else on_stderr
    return "stdout", on_stdout


def _is_note(lines: Sequence[str], at: int) -> bool:
    """A warning or less, or the line of source that Python prints below a warning."""
    return bool(_NOTE.match(lines[at])) or (
        lines[at].startswith("  ") and at > 0 and bool(_WARNING.match(lines[at - 1]))
    )


def shortened(trace: str, room: int) -> list[str]:
    """A traceback in at most `room` lines (6 or more): whole frames, the script's outermost among them.

    What the last exception was raised from goes first, then frames from the middle.
    """
    lines = trace.rstrip().splitlines()
    if len(lines) <= room:
        return lines
    begin = max((at for at, line in enumerate(lines) if line.strip() == _HEADER_TEXT), default=-1)
    firsts = [at for at in range(begin + 1, len(lines)) if lines[at].startswith(_FRAME)] if begin >= 0 else []
    if not firsts:
        return [lines[0], _CUT, *lines[-(room - 2) :]]
    end = next((at for at in range(firsts[0], len(lines)) if not lines[at].startswith(" ")), len(lines))
    message = lines[end:]
    if len(message) > room // 2:
        message = [*message[: room // 2 - 1], _CUT]
    frames = [lines[a:b] for a, b in pairwise([*(at for at in firsts if at < end), end])]
    outermost = next((at for at, frame in enumerate(frames) if not frame[0].startswith(_NOT_THE_SCRIPT)), 0)
    head = [*([_CUT] if begin else []), lines[begin]]
    space = room - len(head) - len(message)
    chosen = _frames_that_fit(frames, outermost, space)
    before = -1
    for at in chosen:
        head += [_CUT] if at > before + 1 else []
        head += frames[at]
        before = at
    head += [_CUT] if before < len(frames) - 1 else []
    return [*head, *message]


def _frames_that_fit(frames: Sequence[Sequence[str]], outermost: int, space: int) -> list[int]:
    """The last frames and `outermost`, as many as have room, in order; a gap takes a line as well."""
    chosen: list[int] = []
    for at in (len(frames) - 1, outermost, *range(len(frames) - 2, -1, -1)):
        if at in chosen:
            continue
        wanted = sorted([*chosen, at])
        gaps = sum(b > a + 1 for a, b in pairwise([-1, *wanted, len(frames)]))
        if sum(len(frames[each]) for each in wanted) + gaps > space:
            break
        chosen = wanted
    return chosen


def bounded(text: str, limit: int = MAX_TRACEBACK_BYTES) -> str:
    """`text` in at most `limit` bytes of UTF-8: the middle goes, its beginning and its end explain more."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    # The end holds the raising frame and the message: it gets two thirds.
    room = limit - 40
    head, tail = data[: room // 3], data[-(room - room // 3) :]
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :] if b"\n" in tail[:-1] else tail
    # Whole frames, where there are any: the marks under a line of source say nothing without it.
    if (frame := head.rfind(_FRAME_BYTES)) > head.find(_FRAME_BYTES):
        head = head[: frame + 1]
    if (frame := tail.find(_FRAME_BYTES)) >= 0:
        tail = tail[frame + 1 :]
    cut = len(data) - len(head) - len(tail)
    separator = "" if head.endswith(b"\n") else "\n"
    return f"{head.decode(errors='ignore')}{separator}... {cut} bytes cut ...\n{tail.decode(errors='ignore')}"


def describe(exit: Exit) -> str:
    """How the worker ended, in a few words."""
    who = f"rank {exit.rank} (local {exit.local_rank}, pid {exit.pid})"
    if exit.signal is not None:
        return f"{who} died by {signal_name(exit.signal)} ({exit.signal})"
    if exit.code is None:
        return f"{who} exited"
    return f"{who} exited with code {exit.code}"


def hint(exit: Exit, python: str = "", hints: Sequence[Hint] = ()) -> str:
    """One line on what to do about this end; empty only where a signal tells nothing useful.

    Args:
        hints: of the framework's adapter.
        python: the interpreter that runs the workers of this node; empty where none does.
    """
    message = exit.message
    if exit.code == 0:
        return (
            "the script ended only on this rank: give every rank the same number of steps, or add a barrier at the end"
        )
    if exit.signal == signal.SIGKILL:
        if message.startswith(STOOD_STILL):
            return "elastic-run sent it (--on-hang=restart): find out why the rank stood still there"
        if exit.oom_kills or "out of memory" in message:
            return "the machine or its memory limit was exhausted: use less memory per worker, or raise the limit"
        return (
            "elastic-run did not send it, and the kernel counted no out-of-memory kill: a user or a scheduler sent it"
        )
    of_framework = [(re.compile(each.pattern), each.advice) for each in hints]
    for wanted, words in (*_HINTS_BY_MESSAGE, *of_framework, *_HINTS_AFTER_THE_FRAMEWORK):
        if wanted.search(message) or (exit.code == 1 and wanted.search(exit.traceback[-2000:])):
            return f"{words} (workers here run {python})" if python and words == _LACKS_MODULE else words
    if words := _HINTS_BY_LINK.get(lost_link(exit)):
        return words
    if exit.signal is not None:
        return _HINTS_BY_SIGNAL.get(exit.signal, "")
    if exit.traceback:
        return "the script's own error: each restart repeats it, unless it depends on data or time"
    return _HINTS_BY_CODE.get(exit.code or 0, "the script exited with this code: see its last lines")


_LACKS_MODULE = "the workers' environment lacks that module: install it there, or start in the folder that contains it"


def advice(error: OSError) -> str:
    """What to do where this machine has not enough of something, as the end of a sentence; empty for other errors."""
    return _ADVICE.get(error.errno or 0, "")


_ADVICE = {
    errno.EAGAIN: "; the limit of processes is reached: raise it (ulimit -u), or end others of this user",
    errno.ENOMEM: "; the machine's memory is exhausted: free some, or use fewer workers",
    errno.EMFILE: "; the limit of open files is reached: raise it (ulimit -n)",
    errno.ENFILE: "; the machine can open no more files: raise fs.file-max",
}

_HINTS_BY_MESSAGE = (
    (re.compile(r"ModuleNotFoundError|No module named"), _LACKS_MODULE),
    (
        re.compile(r"[Aa]ddress already in use|EADDRINUSE"),
        "another process holds that port: use MASTER_PORT, which is free in each round, not a fixed one",
    ),
)

_HINTS_AFTER_THE_FRAMEWORK = (
    (
        re.compile(r"No space left on device"),
        "a disk is full; if it is /dev/shm, give the container more shared memory or use fewer data-loader workers",
    ),
    (re.compile(r"Too many open files"), "the limit of open files is reached: raise it with `ulimit -n`"),
)

_HINTS_BY_LINK = {
    "own": "a server that the script calls closed or refused the connection: is it up, and is its address right?",
    "gave up": "the others were late or stood still: see what they did meanwhile, or raise the collectives' time-out",
    "lost": "it lost its connection to another rank: usually the other rank's failure is the cause",
}

_HINTS_BY_SIGNAL: dict[int, str] = {
    signal.SIGSEGV: "native code crashed: run with PYTHONFAULTHANDLER=1 to see where in the script",
    signal.SIGBUS: "file-backed memory could not be allocated: often /dev/shm is too small for the data-loader workers",
    signal.SIGABRT: "native code aborted: the last lines of the worker's stderr usually give the reason",
    signal.SIGFPE: "native code divided by zero: run with PYTHONFAULTHANDLER=1 to see where in the script",
    signal.SIGILL: "this processor lacks an instruction that the program uses: install a build for this machine",
    signal.SIGTERM: "someone sent SIGTERM to the worker itself: a user, a scheduler, or a limit on its run time",
    signal.SIGINT: "someone sent SIGINT to the worker itself",
    signal.SIGXCPU: "the limit of processor time is reached (`ulimit -t`)",
}

_HINTS_BY_CODE: dict[int, str] = {
    2: "exit code 2 is usually a wrong argument: see the last lines of the worker's stderr",
    126: "the program could not be executed: is it executable, and built for this machine?",
    127: "the program was not found: check its path and PATH on this machine",
}


def _one_line(message: str) -> str:
    flat = " ".join(message.split())
    if len(flat) <= MAX_MESSAGE_CHARACTERS:
        return flat
    return flat[: MAX_MESSAGE_CHARACTERS - 4].rstrip() + " ..."


def _read_error_file(data: bytes) -> tuple[str, str] | None:
    try:
        found: Any = json.loads(data)  # Any: the file may hold whatever a library wrote
    except (ValueError, RecursionError):
        return None
    match found:
        case {"message": {"message": str(message), "extraInfo": {"py_callstack": str(trace)}}}:
            pass
        case {"message": {"message": str(message)}} | {"message": str(message)}:
            trace = ""
        case _:
            return None
    return (message, trace) if message.strip() else None


def _lines(data: bytes) -> list[str]:
    return _ESCAPES.sub("", data.decode(errors="replace")).replace("\r\n", "\n").split("\n")


def _blocks(lines: Sequence[str]) -> list[_Block]:
    found: list[_Block] = []
    at = 0
    while at < len(lines):
        for kind, read in _READERS:
            match = kind.match(lines[at])
            if match and (block := read(lines, at, match)):
                at = block[0]
                found.append(block[1])
                break
        else:
            at += 1
    return _linked(found, lines)


def _linked(found: Sequence[_Block], lines: Sequence[str]) -> list[_Block]:
    """Join each block to the one that it was raised from."""
    joined: list[_Block] = []
    for block in found:
        before = block.start - 1
        while before >= 0 and not lines[before].removeprefix(block.prefix.rstrip()).strip():
            before -= 1
        if joined and before >= 0 and lines[before].strip().endswith(_LINKS):
            first = joined.pop()
            sentence = next(link for link in _LINKS if lines[before].strip().endswith(link))
            text = f"{first.text}\n\n{sentence}\n\n{block.text}"
            block = _Block(first.start, block.message, text, first.aside, block.prefix)
        joined.append(block)
    return joined


def _unprefixed(line: str, prefix: str) -> str | None:
    if line.startswith(prefix):
        return line[len(prefix) :]
    return "" if line.strip() == prefix.strip() else None


def _read_traceback(lines: Sequence[str], at: int, match: re.Match[str]) -> tuple[int, _Block] | None:
    prefix = match["prefix"]
    if prefix and not (at + 1 < len(lines) and (_unprefixed(lines[at + 1], prefix) or "").startswith("  ")):
        # A logger's prefix stands before the first line only.
        prefix = ""
    block = [_HEADER_TEXT]
    i = at + 1
    while i < len(lines):
        line = _unprefixed(lines[i], prefix)
        if line is None or not line.startswith(" "):
            break
        block.append(line)
        i += 1
    if i >= len(lines):
        return None  # cut off: no exception line
    line = _unprefixed(lines[i], prefix)
    if line is None or not _EXCEPTION.match(line):
        return None
    first = i
    block.append(line)
    i = _end_of_message(lines, i + 1, prefix, block)
    message = _message(block[first - at :])
    return i, _Block(at, message, "\n".join(block).rstrip(), _is_aside(lines, at), prefix)


_HEADER_TEXT = "Traceback (most recent call last):"


def _end_of_message(lines: Sequence[str], i: int, prefix: str, block: list[str]) -> int:
    """Append the further lines of a message to `block`; returns the index of the first line after it."""
    last = min(len(lines), i + MAX_MESSAGE_LINES)
    while i < last:
        line = _unprefixed(lines[i], prefix)
        if line is None or line.strip() in _LINKS or _NEXT_RECORD.match(lines[i]):
            break
        if any(kind.match(lines[i]) for kind, _ in _READERS):
            break
        block.append(line)
        i += 1
    return i


def _message(lines: Sequence[str]) -> str:
    first = lines[0].strip()
    if first.endswith(":"):
        more = next((line.strip() for line in lines[1:] if line.strip()), "")
        return f"{first} {more}".strip()
    return first


def _is_aside(lines: Sequence[str], at: int) -> bool:
    return at > 0 and bool(_ASIDE.match(lines[at - 1].strip()))


def _read_group(lines: Sequence[str], at: int, match: re.Match[str]) -> tuple[int, _Block] | None:
    prefix = match["prefix"].rstrip(" ") if match["prefix"].strip() else ""
    block: list[str] = []
    message = ""
    i = at
    while i < len(lines):
        line = _unprefixed(lines[i], prefix)
        if line is None or not line.lstrip().startswith(("|", "+")):
            break
        block.append(line)
        inside = re.match(r"^\s*\| (\S.*)$", line)
        if not message and inside and _EXCEPTION.match(inside[1]):
            message = inside[1]
        i += 1
    if not message:
        return None
    return i, _Block(at, message, "\n".join(block), _is_aside(lines, at))


def _read_box(lines: Sequence[str], at: int, match: re.Match[str]) -> tuple[int, _Block] | None:
    block: list[str] = []
    i = at
    while i < len(lines) and "╰" not in lines[i]:
        block.append(lines[i])
        i += 1
    if i + 1 >= len(lines) or not _EXCEPTION.match(lines[i + 1]):
        return None
    block += [lines[i], lines[i + 1]]
    first = len(block) - 1
    i = _end_of_message(lines, i + 2, "", block)
    return i, _Block(at, _message(block[first:]), "\n".join(block).rstrip())


def _read_syntax(lines: Sequence[str], at: int, match: re.Match[str]) -> tuple[int, _Block] | None:
    i = at + 1
    while i < len(lines) and lines[i].startswith("    "):
        i += 1
    if i >= len(lines) or not _SYNTAX_END.match(lines[i]):
        return None
    return i + 1, _Block(at, lines[i], "\n".join(lines[at : i + 1]))


def _read_fatal(lines: Sequence[str], at: int, match: re.Match[str]) -> tuple[int, _Block]:
    # Everything after it is about this end: the stacks of all threads, and the extension modules.
    block = [line.removeprefix(match["prefix"]) for line in lines[at:]]
    text = "\n".join(line for line in block if not line.startswith("Extension modules: "))
    return len(lines), _Block(at, block[0], text.rstrip())


def _read_logged_fatal(lines: Sequence[str], at: int, match: re.Match[str]) -> tuple[int, _Block]:
    block = [lines[at]]
    for line in lines[at + 1 : at + MAX_MESSAGE_LINES]:
        if line.startswith(_STACK) or _NEXT_RECORD.match(line) or any(kind.match(line) for kind, _ in _READERS):
            break
        block.append(line)
    return at + len(block), _Block(at, match["message"], "\n".join(block).rstrip(), aside=True)


def _read_terminate(lines: Sequence[str], at: int, match: re.Match[str]) -> tuple[int, _Block]:
    block = [line.removeprefix(match["prefix"]) for line in lines[at : at + MAX_MESSAGE_LINES]]
    end = at + len(block)
    for number, line in enumerate(block[1:], start=1):
        if any(kind.match(line) for kind, _ in _READERS):
            block, end = block[:number], at + number
            break
    thrown = _THROWN.search(block[0])
    what = next((found[1] for line in block if (found := _WHAT.match(line))), "")
    message = f"{thrown[1]}: {what}" if thrown and what else block[0]
    return end, _Block(at, message, "\n".join(block).rstrip())


_READERS = (
    (_GROUP, _read_group),
    (_HEADER, _read_traceback),
    (_BOX, _read_box),
    (_SYNTAX, _read_syntax),
    (_FATAL, _read_fatal),
    (_TERMINATE, _read_terminate),
    (_LOGGED_FATAL, _read_logged_fatal),
)
