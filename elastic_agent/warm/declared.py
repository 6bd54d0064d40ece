"""What may be imported ahead, as the agent has told it: the table of `adapters/imports_ahead.py`, in rows.

A row is a kind and what is said of it: "package", a name, the name under which it is installed, and the least and the
greatest version that were tested. Others name what is imported late, and what is refused.
"""

from __future__ import annotations

import sys

from .stamps import entries_of

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


class LateImport:
    """A module that a package imports by itself, inside of a function.

    Attributes:
        package: whose.
        module: its name.
        wanted_by: identifiers; it is worth importing ahead where the script's source holds one of them.
        reads: the variables that native code reads during the import, which nobody sees.
    """

    def __init__(self, package: str, module: str, wanted_by: str, reads: str = "") -> None:
        self.package = package
        self.module = module
        self.wanted_by = frozenset(wanted_by.split(","))
        self.reads = frozenset(reads.split(",")) - {""}


def _from_file(file: str) -> Callable[[Any], None]:
    """The function `repair` of a file, which is no module: the worker finds nothing of it."""

    def repair(module: Any) -> None:
        with open(file, "rb") as opened:
            code = compile(opened.read(), file, "exec")
        found: dict[str, Any] = {"__name__": "repair", "__file__": file}
        exec(code, found)
        found["repair"](module)

    return repair


class Table:
    """See above.

    Args:
        rows: of the agent.
        extra: modules that the user wants to be imported ahead, whatever the table says.

    Attributes:
        late: what is imported late.
        may_walk: the modules that may go through all environment variables.
        threads: the names of threads that may stay: they end before a fork, or a fork does them no harm.
        may_read: (variable, module): what a module may read although it differs from worker to worker.
        repairs: by module, what an adapter makes anew in each worker.
    """

    def __init__(self, rows: Iterable[Sequence[str]], extra: Sequence[str] = ()) -> None:
        kinds: dict[str, list[list[str]]] = {}
        for kind, *rest in rows:
            kinds.setdefault(kind, []).append(rest)

        def names(kind: str) -> frozenset[str]:
            return frozenset(row[0] for row in kinds.get(kind, ()))

        self.late = [LateImport(*row) for row in kinds.get("late", ())]
        self.may_walk = names("walks")
        self.threads = names("thread")
        self.may_read = frozenset((name, row[0]) for row in kinds.get("reads", ()) for name in row[1].split(","))
        self.repairs = {row[0]: _from_file(row[1]) for row in kinds.get("repair", ())}
        self._extra = frozenset(name.partition(".")[0] for name in extra)
        self._packages = {row[0]: row[1:4] for row in kinds.get("package", ())}
        self._refused = {row[0]: row[1] for row in kinds.get("refused", ())}
        self._nameless = names("nameless")
        self._namespaces = names("namespace")
        self._draws = names("draws")

    def may_draw(self, module: str) -> bool:
        """Whether its import may draw random numbers: nothing that workers must not share comes of them."""
        return module.partition(".")[0] in self._draws

    def is_extra(self, module: str) -> bool:
        """Whether it is imported ahead by the user's word."""
        return module.partition(".")[0] in self._extra

    def problem(self, module: str) -> str:
        """Why it must not be imported ahead, in words; empty where it may."""
        name = module.partition(".")[0]
        if self.is_extra(module):
            return ""
        if reason := self._refused.get(module) or self._refused.get(name):
            return reason
        nameless = any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in self._nameless)
        if nameless or name in sys.stdlib_module_names or module in self._namespaces:
            return ""
        if name not in self._packages:
            return f"{name} has not been tested for import ahead; --preload={name} imports it ahead"
        distribution, least, greatest = self._packages[name]
        if not least:
            return ""
        version = installed_version(distribution)
        if not version:
            return f"the installed version of {name} is unknown"
        found = _numbers(version)
        lowest, highest = _numbers(least), _numbers(greatest)
        if lowest <= found[: len(lowest)] and found[: len(highest)] <= highest:
            return ""
        tested = least if least == greatest else f"{least} to {greatest}"
        return f"{name} {version} was not tested, only {tested}; --preload={name} imports it ahead"


def installed_version(distribution: str) -> str:
    """By the first folder on the search path that says it; empty where none does."""
    for folder in sys.path:
        for entry in entries_of(folder or "."):
            name, _, rest = entry.partition("-")
            if rest.endswith((".dist-info", ".egg-info")) and _normal(name) == _normal(distribution):
                return rest.rpartition(".")[0].partition("-")[0]
    return ""


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _numbers(version: str) -> list[int]:
    """The release of a version: "2.13.0+cpu" is [2, 13, 0]."""
    found: list[int] = []
    for part in version.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return found
