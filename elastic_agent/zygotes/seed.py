"""A warm interpreter's process from its start until an agent has adopted it (`zygote.py`).

Python's own start-up takes as long as that of the launcher, so the launcher begins with this, and imports the rest of
itself meanwhile. Nothing is imported in it and no worker comes from it before it is adopted; if nobody does, it ends
with the connection that it waits at.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...rendezvous.base.frozen import dataclass, replace
from ..processes.guardian import TAG_VARIABLE
from ..warm.frames import VARIABLE

WARM = Path(__file__).parents[1].joinpath("warm").absolute()
SHIM = Path(__file__).parents[1].joinpath("processes", "shim.py").absolute()

Limits = tuple[int, int]
"""A worker's soft limits: of open files, and of the bytes of a core file."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a warm interpreter is made of.

    Attributes:
        argv: the workers' command line, equal for all.
        environment: what all workers have in common.
        kind, target: of the command, as in the launcher's settings.
        per_worker: the variables that are not the same for all workers and rounds.
        preload: modules that the user wants to be imported ahead beyond that; None: nothing is.
        table: what may be imported ahead, in rows (`warm/declared.py`).
        news: a file that workers write to; empty: they tell nothing.
        limits: the workers' soft limits; None: this process's own.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    kind: str
    target: str
    per_worker: frozenset[str]
    preload: tuple[str, ...] | None = ()
    table: tuple[tuple[str, ...], ...] = ()
    news: str = ""
    limits: Limits | None = None

    def tagged(self, tag: str) -> "Recipe":
        """The same with the tag of one more agent."""
        return replace(self, environment=tagged(self.environment, tag))


class Seed:
    """Starts the process; OSError where the machine cannot.

    Args:
        recipe: what the interpreter will be made of; here only the command line and the environment count.

    Attributes:
        process: ours; the interpreter hands over to forks of itself later.
        connection: to the interpreter.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            environment = dict(recipe.environment)
            python_path = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = f"{WARM}{os.pathsep}{python_path}" if python_path else str(WARM)
            environment[VARIABLE] = f"{theirs.fileno()},{reading},{'' if python_path is None else f'={python_path}'}"
            self.process = subprocess.Popen(
                shimmed(recipe.argv, recipe.limits),
                env=environment,
                stdout=writing,
                stderr=writing,
                pass_fds=(theirs.fileno(), reading),
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(reading)
            os.close(writing)
        self.connection = ours

    def serves(self, recipe: Recipe) -> bool:
        """Whether an interpreter for `recipe` would be started in the same way."""
        return (self.recipe.argv, self.recipe.environment) == (recipe.argv, recipe.environment)

    def close(self) -> None:
        """Nobody adopts it."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def shimmed(argv: Sequence[str], limits: Limits | None) -> list[str]:
    """The command line that becomes `argv` with those soft limits (None: this process's own)."""
    given = "-" if limits is None else f"{limits[0]},{limits[1]}"
    return [sys.executable, "-I", "-S", str(SHIM), str(os.getpid()), given, "--", *argv]


def tagged(environment: Mapping[str, str], tag: str) -> dict[str, str]:
    """The environment with the tag of one more agent."""
    inherited = environment.get(TAG_VARIABLE)
    return {**environment, TAG_VARIABLE: f"{inherited},{tag}" if inherited else tag}
