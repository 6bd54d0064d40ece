"""How a worker has ended, and why: from its exit code, what it and its library printed, and what the kernel counted."""

import contextlib
import signal
import time

from ...rendezvous.member import Exit, out_of_memory
from ..logs.output import Output
from ..logs.routes import StreamName
from ..processes.out_of_memory import OomKills
from .failure import last_line, last_words, read_failure
from .started_worker import StartedWorker


def describe_end(worker: StartedWorker, ending: int, output: Output, oom: OomKills) -> Exit:
    """The end of that worker, with what explains it.

    Args:
        ending: its exit code, or minus its signal.
        output: has what its library and its last lines tell.
        oom: the kills of the kernel while it ran.
    """
    spec = worker.spec
    code, signum = (ending, None) if ending >= 0 else (None, -ending)
    message = trace = ""
    stream: StreamName = "stderr"
    killed = 0
    if code != 0 and not worker.stopped:
        try:
            if signum == signal.SIGKILL and oom.own:
                killed = oom.name()
            stream, message, trace = _explain_end(worker, signum, killed, output, oom)
        except OSError as error:  # its end counts, whether or not it can be explained
            message = f"its exit status cannot be read: {error}"
    log = output.log_file(spec.round, spec.local_rank, stream)
    if log is None and code != 0 and not worker.stopped:
        pipe = worker.out if stream == "stdout" else worker.err
        with contextlib.suppress(OSError):  # a full disk must not hide how the worker ended
            log = output.keep_tail(spec.round, spec.local_rank, stream, pipe.tail, pipe.cut)
    return Exit(
        round=spec.round,
        rank=spec.rank,
        local_rank=spec.local_rank,
        pid=worker.pid,
        code=code,
        signal=signum,
        message=message,
        traceback=trace,
        log=str(log) if log else "",
        seconds=time.monotonic() - worker.born,
        stopped=worker.stopped,
        oom_kills=killed,
    )


def _explain_end(
    worker: StartedWorker, signum: int | None, killed: int, output: Output, oom: OomKills
) -> tuple[StreamName, str, str]:
    """Which of its streams tells most of its end, the message, and the traceback."""
    stream: StreamName = "stderr"
    file = worker.spec.error_file
    told = output.disk.read_error_file(file, worker.spec.rank, output.say) if file else None
    message, trace = read_failure(worker.err.tail, told)
    if worker.condemned:
        return stream, worker.condemned, trace
    rise = oom.rise
    if signum == signal.SIGKILL:
        if killed:
            return stream, out_of_memory(killed), trace
        elsewhere = 0 if rise and oom.own else oom.elsewhere
        return stream, (f"it may have been {out_of_memory(elsewhere)}" if elsewhere else ""), trace
    if not message and signum is None:
        stream, line = last_words(worker.err.tail, worker.out.tail)
        if stream == "stdout":
            message, trace = read_failure(worker.out.tail, None)
        ours = line.removeprefix("[elastic-run] ")
        message = message or (ours if ours != line else (f"last line on {stream}: {line}" if line else ""))
    if not message and signum == signal.SIGABRT and (line := last_line(worker.err.tail)):
        message = f"last line on stderr: {line}"
    if rise > 0:
        # The killer may have chosen a child, and the worker tells only that it lost one.
        message = f"{message}; one of its processes may have been {out_of_memory(rise)}".removeprefix("; ")
    return stream, message, trace
