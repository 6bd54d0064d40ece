"""What the workers run, with which interpreter, and the id that a job has from it."""

import hashlib
import json
import os
import pwd
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...rendezvous.host.named_files import LARGEST_SETTINGS, read_named
from ..errors import UsageError
from ..settings import Command, Kind
from .flags import Scanned
from .preflight import check_executable, check_module, check_script, workers_python

HARDLY_OTHERS = ("nproc-per-node", "nnodes", "standalone", "max-restarts", "rdzv-endpoint", "rdzv-backend", "rdzv-id")
"""Flags whose names hardly any script has for its own."""


def read_command(scanned: Scanned, environ: Mapping[str, str], notes: list[str], *, here: bool) -> Command:
    if not scanned.command:
        raise UsageError("no script is given: write elastic-run [flags] train.py [the script's own arguments]")
    target, *args = scanned.command
    module, no_python, run_path = (scanned.has(name) for name in ("module", "no-python", "run-path"))
    if run_path:
        for name in ("module", "no-python"):
            if scanned.has(name):
                notes.append(f"{scanned.source(name)} has no effect: --run-path takes precedence")
    elif module and no_python:
        raise UsageError("--module and --no-python exclude each other: a module needs Python; leave out one of them")
    kind = "run_path" if run_path else "module" if module else "executable" if no_python else "script"
    if not here:
        return Command(kind, target, tuple(args), "python")
    check_target(kind, target, environ)
    if kind == "script" and (word := _misplaced(args, Path(target))):
        notes.append(f"{word} stands after {target} and is its argument: for elastic-run write it before the script")
    python = environ.get("PYTHON_EXEC", "")
    if not python:
        python, why = workers_python(environ, sys.executable, Path(sys.prefix))
        if why and kind != "executable":
            notes.append(why)
    if kind != "executable" and shutil.which(python, path=environ.get("PATH")) is None:
        if environ.get("PYTHON_EXEC"):
            raise UsageError(f"PYTHON_EXEC={python} is not an executable program: correct it or unset it")
        raise UsageError(
            f"the Python that runs elastic-run ({python or 'its path is unknown'}) is not an executable program, and "
            "workers would run it, too: install it again, or name another with PYTHON_EXEC"
        )
    return Command(kind, target, tuple(args), python)


def _misplaced(args: Sequence[str], script: Path) -> str:
    """The first argument that is a flag of the launcher and is not named in the script's source; empty without one."""
    names = [(word, word[2:].partition("=")[0].replace("_", "-")) for word in args if word.startswith("--")]
    flags = [each for each in names if each[1] in HARDLY_OTHERS]
    if not flags:
        return ""  # as at most starts: the script is not read for it
    try:
        text = read_named(script, LARGEST_SETTINGS).decode(errors="replace").replace("_", "-")
    except OSError:
        text = ""
    return next((word for word, name in flags if name not in text), "")


def check_target(kind: Kind, target: str, environ: Mapping[str, str]) -> None:
    if kind == "module":
        check_module(target)
    elif kind == "executable":
        check_executable(target, environ)
    else:
        check_script(target)


def derived_job_id(command: Command, user: str, allocation: str = "") -> str:
    """A name that is the same wherever the same user runs the same command (pure).

    `allocation` is Slurm's job, so that two submissions of one command to one store stay two jobs.
    """
    name = command.target if command.kind == "module" else Path(command.target).stem
    target = command.target if command.kind == "module" else os.path.normpath(command.target)
    facts = json.dumps([command.kind, target, command.args, user, allocation])
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "job"
    return f"{readable}-{hashlib.blake2b(facts.encode(), digest_size=4).hexdigest()}"


def user_of(environ: Mapping[str, str]) -> str:
    for variable in ("LOGNAME", "USER"):
        if environ.get(variable):
            return environ[variable]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a number without a name
        return str(os.getuid())
