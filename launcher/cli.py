"""The command `elastic-run`: bad input ends here with a sentence and exit code 2, before anything starts."""

import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `elastic-run` with `argv` (default: the process's own) and returns its exit code."""
    entered = time.monotonic()
    from .preflight import check_platform

    machine = os.uname()
    problem = check_platform(machine.sysname, machine.release, sys.version_info[:2])
    if problem:
        return _refuse(problem)
    from .options import UsageError, parse

    words = list(sys.argv[1:] if argv is None else argv)
    leads = words[:1] == ["master"]
    try:
        options = parse(words[1:] if leads else words, os.environ, workers=not leads)
    except UsageError as error:
        return _refuse(str(error))
    try:
        if leads:
            from . import lead

            return lead.main(options)
        if options.explain:
            from . import explain

            return explain.main(options)
        from .early import begin

        early = begin(options, os.environ)
        from . import run

        return run.main(options, entered, early)
    except UsageError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:  # before the signal is a preemption notice to leave
        return 130


def run() -> NoReturn:
    """The command itself: `main`, and then the end of this process, without the interpreter's own slow way down.

    That takes several times as long as all that a job's end has to do, and whoever waits for this process waits for it.
    What would be lost with it is written, closed and ended by now; the two streams may still hold a line.
    """
    code = main()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # it is, where it was closed before the start (>&-)
                stream.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the usual way says what could not be written
    os._exit(code)


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"[elastic-run] {sentence}\n")
    return 2
