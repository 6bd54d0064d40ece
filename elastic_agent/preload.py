"""What is known of a script's imports from one run to the next: a small file for each command, in the user's cache.

It holds for the very same command line, script, environment and interpreter. Before it is believed, the script's own
modules and the folders of installed packages must be as they were. What it says is never more than a guess at what is
worth importing ahead: the warm interpreter finds out for itself what may be. But it says where Python looks for code,
so a file that anybody else could have written is none.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from .seed import Recipe
from .warm.frames import OUTDATED
from .warm.step import step_name

VERSION = 6

QUIET_SECONDS = 2.0
"""So long after a worker's last import, its list is taken for what is needed to come to its first steps."""

SILENT_SECONDS = 10.0
"""The same for a worker that has told nothing at all: it may not have come to its imports."""

PASSING = ("ELASTIC_RUN_", "TORCHELASTIC_", "SLURM_", "SSH_", "XDG_SESSION_", "KUBERNETES_", "JOB_", "PBS_", "LSB_")
PASSING_NAMES = frozenset(
    [
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "TERM",
        "COLUMNS",
        "LINES",
        "HOSTNAME",
        "WINDOWID",
        "DISPLAY",
        "INVOCATION_ID",
        "TMUX",
    ]
)
"""Variables that are others in each session or job, and that no import is known to go by."""

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a script imports.

    Attributes:
        steps: the imports, in order (`warm.step`).
        until: (name, why) of the first import that can never be made ahead; None where there is none.
        complete: a run has lasted so long after its last import that there are probably no more.
        watched: how many seconds a worker has told of its imports, and been quiet in the end.
        files: the script's own modules: (time of change in ns, bytes).
        folders: where packages are installed: time of change in ns.
    """

    steps: tuple[str, ...] = ()
    until: tuple[str, str] | None = None
    complete: bool = False
    watched: float = 0.0
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    folders: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def holds(self) -> bool:
        """The files and folders are as they were."""
        return all(stamp(path) == tuple(known) for path, known in self.files.items()) and all(
            stamp(path)[0] == known for path, known in self.folders.items()
        )


def stamp(path: str) -> tuple[int, int]:
    """When a file or folder was changed, in ns, and its bytes; zeros where it is not there."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def cache_file(recipe: Recipe, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """Where what is learnt of these workers is kept; None where this user has no home."""
    try:
        base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".cache")
    except RuntimeError:  # a number without a name, as in many containers
        return None
    kept = {
        name: value
        for name, value in recipe.environment.items()
        if not name.startswith(PASSING) and name not in PASSING_NAMES
    }
    script = cwd / recipe.target
    try:
        main = next(filter(Path.is_file, _main_files(recipe, cwd)), None)
        content = hashlib.blake2b(main.read_bytes()).hexdigest() if main else ""
    except OSError:
        content = ""
    python = os.path.realpath(recipe.argv[0])
    facts = [VERSION, recipe.argv, recipe.kind, str(script), content, sorted(kept.items()), python, stamp(python)]
    digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()
    return Path(base) / "elastic-run" / "preload" / f"{digest}.json"


def _main_files(recipe: Recipe, cwd: Path) -> Sequence[Path]:
    """Where the main module may be; of one that lies elsewhere on the search path, workers tell."""
    if recipe.kind != "module":
        return cwd / recipe.target, cwd / recipe.target / "__main__.py"
    *packages, name = recipe.target.split(".")
    folder = cwd.joinpath(*packages)
    return folder / name / "__main__.py", folder / f"{name}.py"


def load(file: Path | None) -> Learnt | None:
    """What was saved, where it is there, readable, ours alone, and still holds."""
    if file is None:
        return None
    try:
        found: Any = json.loads(_read(file))  # Any: a file may hold anything
    except (OSError, ValueError, RecursionError):
        return None
    learnt = _decode(found)
    return learnt if learnt is not None and learnt.holds else None


def _read(file: Path) -> bytes:
    """OSError also where somebody else could have written it."""
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _must_be_ours(os.fstat(folder))
        # In the folder that was looked at, whatever is at its path by now.
        opened = os.open(file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(opened, "rb") as content:
        _must_be_ours(os.fstat(opened))
        return content.read()


def _must_be_ours(found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & OTHERS_MAY_WRITE:
        raise PermissionError("the cache can be written by others")


def save(file: Path | None, learnt: Learnt) -> None:
    """Writes it in one piece; OSError where the cache cannot be written, or others can write there."""
    if file is None or (learnt.until is not None and learnt.until[1] == OUTDATED):
        return  # an older list does not hold any more, and a later run is to learn all of it anew
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _must_be_ours(file.parent.stat())
    content = {
        "version": VERSION,
        "steps": learnt.steps,
        "until": learnt.until,
        "complete": learnt.complete,
        "watched": learnt.watched,
        "files": learnt.files,
        "folders": learnt.folders,
    }
    draft = file.with_suffix(f".{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(file)


class Lessons:
    """Which workers tell what they import (pure: times are given, in seconds of one clock).

    It costs a worker some hundredths of a second for each import that is not made ahead, and memory that it would
    share; so none does that has nothing to tell.

    Args:
        over: everything is known already.
        watched: how long a worker of an earlier run has told.
    """

    def __init__(self, *, over: bool, watched: float = 0.0) -> None:
        self.over = over
        self._held = False
        self._began: float | None = None
        self._news = float("-inf")
        self._heard = False  # since the current workers began
        self._watched = watched

    def watched(self, now: float) -> float:
        """How long a worker has told, and been quiet in the end; 0 where none has."""
        if self._began is None or not self._held or not self._is_quiet(now):
            return self._watched
        return max(self._watched, now - self._began)

    def begin(self, now: float) -> bool:
        """Workers are started: whether one of them is to tell. Where it was quiet before, nobody has to again.

        Unless the workers before these have lasted much longer than any that told: what came late is not known.
        """
        lasted = 0.0 if self._began is None else now - self._began
        self._watched = self.watched(now)
        settled = self._watched > 0.0 and self._is_quiet(now) and lasted <= 2 * self._watched
        self._held = not self.over and not settled
        self._began = now
        if self._held:
            self._news, self._heard = now, False
        return self._held

    def told(self, now: float) -> None:
        """A worker has told something."""
        self._news, self._heard = now, True

    def _is_quiet(self, now: float) -> bool:
        return now - self._news >= (QUIET_SECONDS if self._heard else SILENT_SECONDS)


def beyond(made: Sequence[str], refused: tuple[str, str] | None, told: Sequence[str]) -> tuple[str, ...]:
    """The steps of the next warm interpreter (pure).

    Args:
        made: what this one has imported.
        refused: (name, why) of what cannot be imported ahead, with all after it.
        told: what a worker imported beyond that, in order.
    """
    steps: dict[str, str] = {}
    for text in (*made, *told):
        steps.setdefault(step_name(text), text)
    names = list(steps)
    end = names.index(refused[0]) if refused is not None and refused[0] in names else len(names)
    return tuple(steps[name] for name in names[:end])


def _decode(found: Any) -> Learnt | None:  # Any: a file may hold anything
    if not isinstance(found, dict):
        return None
    content = cast(dict[str, Any], found)
    try:
        if content["version"] != VERSION:
            return None
        until = content["until"]
        return Learnt(
            steps=tuple(str(step) for step in content["steps"]),
            until=None if until is None else (str(until[0]), str(until[1])),
            complete=content["complete"] is True,
            watched=float(content["watched"]),
            files={str(path): (int(at), int(size)) for path, (at, size) in content["files"].items()},
            folders={str(path): int(at) for path, at in content["folders"].items()},
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None
