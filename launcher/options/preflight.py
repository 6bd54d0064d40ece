"""What this machine has and lacks, asked before anything starts: files, programs, its kernel.

Each `check_` raises `UsageError` with what was wrong and what to do; nothing is left behind.
"""

import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from ...rendezvous.host.named_files import planted
from ..errors import UsageError
from .flags import OTHERS

OLDEST_KERNEL = (5, 4)
"""A worker's exit is heard through pidfd_open and waitid(P_PIDFD)."""

AGENT_DESCRIPTORS = 32
"""What an agent may have open without workers and peers: its streams, store, guardian and ports, and some to spare."""

WORKER_DESCRIPTORS = 6
"""For each worker: two pipes, a handle, two log files, and one more handle while it is stopped."""

OLDEST_PYTHON = (3, 11)

ONLY_ONCE = "can be read only once, and every worker and every restart reads the script: write it to a file"
"""Of a script that comes by a pipe."""

LOOK_SECONDS = 20.0
"""For another interpreter that looks for packages."""

_LOOK = "import sys, importlib.util as u; print(*(name for name in sys.argv[1:] if u.find_spec(name) is None))"
"""A program that names those of its arguments that are no packages here."""


def check_platform(system: str, release: str, python: tuple[int, int]) -> str | None:
    """Why elastic-run cannot work here, in one sentence; None where it can (pure).

    Args:
        system: as `platform.system()`.
        release: the kernel's, as `platform.release()`; one that cannot be read is given the benefit of the doubt.
        python: the interpreter's major and minor version.
    """
    if python < OLDEST_PYTHON:
        return "elastic-run needs Python {}.{} or later, and this is {}.{}: use another interpreter".format(
            *OLDEST_PYTHON, *python
        )
    if system != "Linux":
        return f"elastic-run needs Linux, and this is {system or 'unknown'}: run it in a Linux container or VM"
    kernel = re.match(r"(\d+)\.(\d+)", release)
    if kernel and (int(kernel[1]), int(kernel[2])) < OLDEST_KERNEL:
        return "elastic-run needs Linux {}.{} or later (pidfd), and this kernel is {}: use a newer one".format(
            *OLDEST_KERNEL, release
        )
    return None


def check_descriptors(nproc: int, nodes: int) -> None:
    """This process may open as many files as an agent of `nproc` workers needs, also while it stops them.

    The hard limit counts, because the agent raises its soft one. In a job of up to `nodes` nodes any agent may come to
    host the master, which watches every other, and is watched.
    """
    needed = AGENT_DESCRIPTORS + nproc * WORKER_DESCRIPTORS + 2 * (nodes - 1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return
    raise UsageError(
        f"Too many open files are needed: this process may open {hard}, and {nproc} "
        f"worker{'s' if nproc > 1 else ''} here {'take' if nproc > 1 else 'takes'} {needed}: "
        f"run ulimit -n {max(1024, needed)} first (as root, because that is the hard limit)"
    )


def check_module(name: str) -> None:
    dotted = re.sub(r"[/\\]+", ".", name.removesuffix(".py").removeprefix("./")).strip(".")
    if "/" in name or "\\" in name or name.endswith(".py"):
        raise UsageError(f"-m takes a module's name, and {name} is a path: write -m {dotted}, or leave out -m")
    if not all(name.split(".")):
        raise UsageError(
            f"-m takes a module's full name, and {name!r} is not one: write -m {dotted or 'package.module'}"
        )


def check_executable(name: str, environ: Mapping[str, str]) -> None:
    if "/" not in name:
        if shutil.which(name, path=environ.get("PATH")) is None:
            here = f": for the one in this folder write ./{name}" if Path(name).is_file() else ": give its path"
            raise UsageError(f"--no-python: there is no program {name} on PATH{here}")
    elif not Path(name).is_file():
        raise UsageError(f"--no-python: {_no_such_file('program', name)}")
    elif not os.access(name, os.X_OK):
        raise UsageError(f"--no-python: {name} is not executable: run chmod +x on it, or leave out --no-python")


def is_this_interpreter(name: str, environ: Mapping[str, str]) -> bool:
    """Whether the program `name` is the very file that runs here: no other interpreter, and no wrapper around one."""
    found = shutil.which(name, path=environ.get("PATH"))
    try:
        return found is not None and Path(found).samefile("/proc/self/exe")
    except OSError:
        return False


TOOLS = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv tool"}
"""Files that these programs leave in a virtual environment which they make for one tool."""


def workers_python(environ: Mapping[str, str], own: str, prefix: Path) -> tuple[str, str]:
    """(the interpreter that workers run, why it is not the launcher's own; empty where it is).

    The launcher's own, unless it was installed as a tool of its own (pipx, uv tool): then nobody installs what scripts
    need beside it, so it is that of the active environment, or else the first on PATH.

    Args:
        own: the launcher's interpreter.
        prefix: its environment's folder (`sys.prefix`).
    """
    tool = next((tool for file, tool in TOOLS.items() if (prefix / file).is_file()), "")
    if not tool:
        return own, ""
    places = [(variable, environ.get(variable, "")) for variable in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    found = [(variable, shutil.which("python", path=f"{folder}/bin")) for variable, folder in places if folder]
    found += [("PATH", shutil.which(name, path=environ.get("PATH"))) for name in ("python", "python3")]
    for place, python in found:
        if python is not None and not Path(python).parent.resolve().is_relative_to(prefix.resolve()):
            return python, (
                f"workers run {python} ({place}), because {tool} installed elastic-run in its own environment: "
                "set PYTHON_EXEC to use another"
            )
    return own, ""


def check_packages(source: str, names: Sequence[str], python: str, first: Path) -> None:
    """The workers' Python finds what scripts of this framework import; nothing is imported.

    Args:
        source: of the framework, as the user wrote it.
        names: top-level packages.
        python: the workers' interpreter. One that does not answer is given the benefit of the doubt.
        first: the folder where it looks first, as that of the script.
    """
    if not names:
        return
    if python == sys.executable:
        missing = [name for name in names if not (find_spec(name) or PathFinder.find_spec(name, [str(first)]))]
    else:
        import subprocess  # here, because most jobs need it later

        command = [python, "-c", _LOOK, *names]
        try:
            done = subprocess.run(command, cwd=first, capture_output=True, text=True, timeout=LOOK_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError):
            return
        missing = done.stdout.split()
    if missing:
        raise UsageError(
            f"{source}: the workers' Python ({python}) has no package {missing[0]}: install it there, "
            "or name another Python with PYTHON_EXEC"
        )


APART = 'import sys\nif sys.path[:1] == [""]: del sys.path[0]\n'
"""Begins what Python is given by `-c`, which takes modules from the working folder first, where others may write."""


def check_script(name: str) -> None:
    script = Path(name)
    if name == "-":
        raise UsageError(f"a script on standard input (-) {ONLY_ONCE}")
    if script.is_fifo():
        raise UsageError(f"the script {name} is a pipe, which {ONLY_ONCE}")
    if script.is_dir():
        if not (script / "__main__.py").is_file():
            raise UsageError(f"{name} is a folder without a __main__.py: name the script in it")
    elif not script.exists():
        from difflib import get_close_matches  # here, because names are rarely wrong

        hint = ""
        if "/" not in name and not name.endswith(".py") and all(part.isidentifier() for part in name.split(".")):
            hint = f" Use -m {name} to run a module, and --no-python to run a program that is not Python."
            if meant := get_close_matches(name, OTHERS, n=1):
                hint = f" For the command write elastic-run {meant[0]}.{hint}"
        raise UsageError(_no_such_file("script", name) + hint)
    elif not os.access(script, os.R_OK):
        raise UsageError(f"the script {name} is not readable: check its permissions")


def _no_such_file(what: str, name: str) -> str:
    """That there is none, with the files of the same folder whose names are near."""
    folder = Path(name).parent
    if not folder.is_dir():
        return f"there is no {what} {name}: the folder {folder} does not exist."
    try:
        others = sorted(file.name for file in folder.iterdir() if file.is_file())
    except OSError:
        others = []
    from difflib import get_close_matches  # here, because names are rarely wrong

    near = [str(folder / found) for found in get_close_matches(Path(name).name, others, n=3)]
    hint = f": did you mean {' or '.join(near)}?" if near else f" (in {folder.absolute()}): check its name."
    return f"there is no {what} {name}{hint}"


def check_readable(name: str, source: str) -> None:
    if not Path(name).is_file() or not os.access(name, os.R_OK):
        raise UsageError(f"{source}: there is no readable file {name}")


def check_writable_file(path: Path, source: str) -> None:
    if path.is_dir():
        raise UsageError(f"{source} is a folder: name a file")
    check_planted(path, source)
    if path.exists():
        if not os.access(path, os.W_OK):
            raise UsageError(f"{source} is not writable: name another file, or change its permissions")
    else:
        check_room(path.parent, source)


def check_planted(path: Path, source: str) -> None:
    if why := planted(path):
        raise UsageError(f"{source} is not used: {why}: name another place")


def check_room(folder: Path, source: str) -> None:
    """Files can be made in `folder`, or in a new one of that name.

    Tried, not asked: permissions alone do not tell of a read-only file system, or of root in /proc. What is made has
    a name of its own, in the nearest folder that exists, so that agents that start together do not trip each other.
    """
    existing = folder.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        Path(tempfile.mkdtemp(prefix=".elastic-run-", dir=existing)).rmdir()
    except OSError as error:
        raise UsageError(
            f"{source} cannot be written: {existing}: {os.strerror(error.errno or 0)}: name another place, "
            "or change its permissions"
        ) from None
