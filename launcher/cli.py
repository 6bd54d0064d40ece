"""The command `elastic-run`: bad input ends here with a sentence and exit code 2, before anything starts."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

CRAMPED_BYTES = 256 << 20
"""Of addresses (`ulimit -v`): with fewer, no job has begun, and what Python says of it need not be about memory."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `elastic-run` with `argv` (default: the process's own) and returns its exit code."""
    entered = time.monotonic()
    from .options.preflight import check_platform

    machine = os.uname()
    problem = check_platform(machine.sysname, machine.release, sys.version_info[:2])
    if problem:
        return _refuse(problem)
    from .errors import UsageError
    from .options.parse import parse

    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited: nobody would learn how a child has ended
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        sys.stderr.write(_USAGE)
        return 2
    environ: Mapping[str, str] = dict(os.environ)
    from .trust import joined, take

    take(os.environ)
    if words[:1] == ["help"] and not Path("help").exists():
        words = [*words[1:], "--help"]
    if words[0] in _HELP and words[1:2] in (["--help"], ["-h"]):
        sys.stdout.write(_HELP[words[0]])
        return 0
    typed = words[0]
    leads = words[:1] == ["master"]
    store = words[:1] == ["store"] and any(word.startswith("-") for word in words[1:2])
    try:
        if module := ".store_member" if store else _COMMANDS.get(words[0]):
            command = import_module(module, __package__)
            if {"-h", "--help"} & set(words[1:]) and (usage := getattr(command, "USAGE", "")):
                sys.stdout.write(usage)
                return 0
            code: int = command.main(words[1:], environ)
            return code
        if module := _JOBS.get(words[0]):
            words = import_module(module, __package__).job_words(words)
        if words[:1] == ["join"]:
            words, environ = joined(words[1:], environ)
        options = parse(words[1:] if leads else words, environ, workers=not leads, folder=Path.cwd())
    except UsageError as error:
        return _refuse(f"{error}{_shadowed(typed)}")
    except PermissionError as error:  # pathlib's `exists` and its kin raise it for what lies in such a folder
        return _refuse(f"{error.filename}: permission denied: this user may not enter the folder in which it lies")
    try:
        if options.dry_run:
            from .diagnostics import dry_run

            return dry_run.main(options)
        if options.store.kind != "memory":
            os.stat("/proc/self")  # noqa: PTH116  `_surroundings` says that it is missing
        if leads:
            from . import lead

            return lead.main(options, entered)
        if options.explain:
            from .diagnostics import explain

            return explain.main(options)
        from .early import begin, worker_settings

        workers = worker_settings(options, dict(os.environ))
        early = begin(options, workers)
        from . import run

        return run.main(options, workers, entered, early)
    except UsageError as error:
        return _refuse(str(error))


def run() -> NoReturn:
    """The command itself: `main`, and then the end of this process, without the interpreter's own slow way down.

    That takes several times as long as all that a job's end has to do, and whoever waits for this process waits for it.
    What would be lost with it is written, closed and ended by now; the two streams may still hold a line.
    """
    try:
        code = main()
    except SystemExit as ended:
        if ended.code != 0:
            raise
        code = 0
    except KeyboardInterrupt:  # before the signal is a preemption notice to leave
        sys.stderr.write("[elastic-run] interrupted\n")
        os._exit(130)
    except Exception as error:
        if isinstance(error, BrokenPipeError):
            from .console import end_unread

            end_unread()
        if not (why := _surroundings(error)):
            raise
        sys.stderr.write(f"[elastic-run] {why}\n")
        os._exit(2)
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # it is, where it was closed before the start (>&-)
                stream.flush()
    except (OSError, ValueError):
        from .console import end_unread

        end_unread(code)
        sys.exit(code)  # the usual way says what could not be written
    os._exit(code)


def _surroundings(error: Exception) -> str:
    """What is wrong with the place where this command runs, if `error` comes of it; empty otherwise."""
    if isinstance(error, FileNotFoundError):
        try:
            Path.cwd()
        except FileNotFoundError:
            return "the working folder has been removed: change to one that exists, with cd"
        if not Path("/proc/self").exists():
            return "/proc is not mounted, and all but a job of one node needs it: mount -t proc proc /proc"
    what = "" if isinstance(error, MemoryError) else f" ({type(error).__name__}: {error})"
    if what and not _cramped():
        return ""
    return f"there is not enough memory here{what}: raise its limit (ulimit -v, or the container's)"


def _cramped() -> bool:
    """So little memory is allowed that Python may fail otherwise than by a MemoryError: no library can be mapped."""
    try:
        with Path("/proc/self/limits").open() as file:
            allowed = next(line.split()[3] for line in file if line.startswith("Max address space"))
    except (OSError, StopIteration):
        return False
    except MemoryError:
        return True
    return allowed.isdecimal() and int(allowed) < CRAMPED_BYTES


_COMMANDS = {
    "credentials": ".diagnostics.credentials",
    "doctor": ".doctor.command",
    "exporter": ".diagnostics.exporter.command",
    "new": ".model_job",
    "replay": ".diagnostics.replay",
    "report": ".report.command",
    "sql": ".sql",
    "status": ".diagnostics.status",
}
"""The module of each command that starts no job: its `main` takes the words after the command, and the environment."""

_JOBS: dict[str, str] = dict.fromkeys(("train", "evaluate", "predict", "export"), ".model_job")
"""The module of each command that is a job of ours: its `job_words` gives the command line that it stands for."""

_USAGE = """elastic-run [flags] train.py [the script's own arguments]

  elastic-run --standalone --nproc-per-node=2 train.py     one machine, no server
  elastic-run --nnodes=2:8 train.py                        two to eight machines
  elastic-run train model.py --data='data/*.csv'           a model in four functions
  elastic-run doctor                                       check this machine and its store
  elastic-run --help                                       every flag
"""
"""What somebody sees who types the name alone."""


_HELP = {
    "master": """elastic-run master [flags] train.py [the script's own arguments]

Leads a job without workers. Flags and script are those of its nodes: elastic-run --help lists the flags.
""",
    "join": """elastic-run join LINE [flags] train.py [the script's own arguments]

Joins a job. LINE is what its first node prints: elastic-run://HOST:PORT/JOB, for which this machine has the secret
already (by the same home folder, a copy of its file, --join-file or ELASTIC_RUN_SECRET). With #SECRET behind it, give a
file of mode 0600 that holds it, or - for standard input.
Flags and script are those of the other nodes: elastic-run --help lists the flags.
""",
}


def _shadowed(word: str) -> str:
    """What to say where this command has the name of a script that is here; empty elsewhere."""
    is_command = word in {*_COMMANDS, *_JOBS, "join", "master"}
    return f"; to run the script {word} that is here, write ./{word}" if is_command and Path(word).is_file() else ""


def _refuse(sentence: str) -> int:
    from .console import refuse  # here, because nearly every start has no use for it

    return refuse(sentence)
