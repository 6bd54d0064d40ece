"""One run of `elastic-run --standalone`, from its start to its end."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BOUND = 150.0
"""Seconds; the whole of `make test-gpu` is to end in ten minutes."""

SCRIPTS = Path(__file__).with_name("scripts")
MARK = "ELASTIC_RUN_TEST_GPU"
"""In the environment of everything that a run starts."""

_OWN = ("PET_", "SLURM_", "ELASTIC_RUN_", "TORCHELASTIC_")


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run printed, and how it ended."""

    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def told(self) -> list[dict[str, Any]]:  # Any: JSON
        """The values that the workers printed as JSON."""
        found = (re.search(r"\] (\{.*\})$", line) for line in self.lines)
        return [json.loads(match[1]) for match in found if match]

    def all(self, pattern: str) -> list[tuple[str, ...]]:
        """The groups of every line that contains the pattern."""
        return [match.groups() for line in self.lines if (match := re.search(pattern, line))]


def run(folder: Path, script: str, *words: str, nproc: int | str, flags: tuple[str, ...] = (), **environ: str) -> Ran:
    """Runs a script of this folder; its last words may name files of `folder`.

    Raises TimeoutError, with what was printed, and leaves no process behind.
    """
    home = folder / "home"
    home.mkdir()
    mark = secrets.token_hex(8)
    around: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    command = [sys.executable, "-m", "elastic_run", "--standalone", f"--nproc-per-node={nproc}", *flags]
    process = subprocess.Popen(
        [*command, str(SCRIPTS / script), *(word.format(mark=mark) for word in words)],
        cwd=folder,
        env={**around, "HOME": str(home), "XDG_CACHE_HOME": str(home), MARK: mark, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        printed, _ = process.communicate(timeout=BOUND)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)  # its guardian ends the workers
        printed, _ = process.communicate()
        raise TimeoutError(f"it did not end within {BOUND:g} s:\n{printed}") from None
    return Ran(process.returncode, tuple(printed.splitlines()))
