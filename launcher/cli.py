"""The command `elastic-run`: bad input ends here with a sentence and exit code 2, before anything starts."""

import os
import platform
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `elastic-run` with `argv` (default: the process's own) and returns its exit code."""
    from .machine import check_platform

    problem = check_platform(platform.system(), platform.release(), sys.version_info[:2])
    if problem:
        return _refuse(problem)
    from .options import UsageError, parse

    try:
        options = parse(sys.argv[1:] if argv is None else argv, os.environ)
    except UsageError as error:
        return _refuse(str(error))
    try:
        from . import run

        return run.main(options)
    except KeyboardInterrupt:  # before the signal is a notice to leave
        return 130


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"elastic-run: {sentence}\n")
    return 2
