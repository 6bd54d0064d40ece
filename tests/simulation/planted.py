"""Runs the simulator on a product with a defect: one module's source is changed as it is imported, never on disk.

A product that has been imported cannot be changed any more. So `caught` forks a process that has not imported it,
and everything here imports the simulator late.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]

CPU_SECONDS = 90
"""For one process; a defect may make the product spin."""

MEMORY = 3 << 30
"""Bytes for one process; it may make it collect, too."""


@dataclass(frozen=True, slots=True)
class Catch:
    """How a defect was seen: by which schedule, which rule was broken, and how."""

    schedule: str
    rule: str
    what: str


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec")  # past the cache of compiled files


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, fullname: str, source: str) -> None:
        self._fullname = fullname
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._fullname:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None and spec.origin is not None, f"{fullname} cannot be found"
        loader = _Loader(fullname, spec.origin, self._source)
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


def plant(file: str, source: str) -> None:
    """From now on `file` (such as `master/master.py`) is imported as `source`."""
    fullname = "elastic_run." + file.removesuffix(".py").replace("/", ".")
    if fullname in sys.modules:
        raise RuntimeError(f"{fullname} is imported already: a defect cannot be planted any more")
    sys.meta_path.insert(0, _Finder(fullname, source))


def source_of(file: str) -> str:
    """As it is."""
    return (ROOT / file).read_text()


def caught(
    file: str,
    source: str,
    schedules: Iterable[str | int],
    *,
    shrunk: bool = False,
    cpu_seconds: int = CPU_SECONDS,
) -> Catch | None:
    """The first of `schedules` (see `kinds.py`) that sees the defect, or with `shrunk` what is left of it when all is
    taken away that need not be there; None where none does. Forks; the product must not have been imported here.
    """
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            plant(file, source)
            found = _first(schedules, shrunk)
        except BaseException as error:  # noqa: BLE001  the last thing that this process does is to tell it
            found = "", "the simulator runs", repr(error)
        with os.fdopen(writable, "w") as answer:
            json.dump(found, answer)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    if not told:
        return Catch("", "the simulator runs", f"no answer within {cpu_seconds} s of processor time")
    found = json.loads(told)
    return Catch(*found) if found else None


def _first(schedules: Iterable[str | int], shrunk: bool) -> tuple[str, str, str] | None:
    from .explore import rule_broken, shrink
    from .kinds import schedule_of

    for each in schedules:
        schedule = schedule_of(each)
        broken = rule_broken(schedule)
        if broken is not None:
            return (shrink(schedule, broken[0]) if shrunk else schedule).text, broken[0], broken[1][-600:]
    return None
