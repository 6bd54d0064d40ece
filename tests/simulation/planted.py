"""Runs the simulator on a product with a defect, which is put into the product in memory, in a process of its own."""

import ast
import importlib
import inspect
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

CPU_SECONDS = 90
"""For one process; a defect may make the product spin."""

SECONDS = 180
"""For one process; it may make it wait, too."""

MEMORY = 3 << 30
"""Bytes for one process; it may make it collect, too."""

RUNS = "the simulator runs"
"""The rule that a process breaks which gives no answer."""


class Outdated(Exception):
    """What a defect changes is not in the product any more, or not once."""


@dataclass(frozen=True, slots=True)
class Catch:
    """How a defect was seen: by which schedule, which rule was broken, and how."""

    schedule: str
    rule: str
    what: str


def product_modules() -> list[ModuleType]:
    """The modules of the product that have been imported."""
    return [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == "elastic_run"]


def replace_code(file: str, tree: ast.Module, line: int) -> None:
    """Makes the function around `line` of `file` (such as `master/master.py`), or the value that the module assigns
    there, what it is in `tree`. Raises Outdated where there is neither.
    """
    module = importlib.import_module("elastic_run." + file.removesuffix(".py").replace("/", "."))
    names, node = _around(tree, line)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        code = compile(tree, str(module.__file__), "exec")
        for name in names:
            inside = [each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name]
            code = max((each for each in inside if each.co_firstlineno <= line), key=lambda each: each.co_firstlineno)
        _function(module, names).__code__ = code
    elif isinstance(node, ast.Assign | ast.AnnAssign) and not names[:-1]:
        values: dict[str, Any] = dict(vars(module))
        exec(compile(ast.Module([node], []), str(module.__file__), "exec"), values)
        rebind_name(getattr(module, names[0]), values[names[0]], names[0])
    else:
        raise Outdated(f"{file}, line {line}, is in no function, and no value")


def rebind_name(old: object, new: object, name: str) -> None:
    """Whoever of the product has imported `old` by this name has `new`."""
    for module in product_modules():
        if vars(module).get(name) is old:
            setattr(module, name, new)


def _around(tree: ast.Module, line: int) -> tuple[list[str], ast.AST]:
    """The outermost function around a line, or the statement there, and its qualified name."""
    names: list[str] = []
    body: list[ast.stmt] = tree.body
    while True:
        node = next((each for each in body if each.lineno <= line <= (each.end_lineno or 0)), None)
        if node is None:
            return names, tree
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", node)
        names.append(getattr(target, "name", getattr(target, "id", "")))
        if not isinstance(node, ast.ClassDef):
            return names, node
        body = node.body


def _function(module: ModuleType, names: list[str]) -> FunctionType:
    found: Any = module
    for name in names:
        found = inspect.getattr_static(found, name)
    for wrapper in ("fget", "func", "__func__"):
        found = getattr(found, wrapper, None) or found
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise Outdated(f"{module.__name__}.{'.'.join(names)} cannot be changed: it is {found!r}")
    return found


def catch_defect(
    plant: Callable[[], object],
    schedules: Iterable[str | int],
    *,
    shrunk: bool = False,
    cpu_seconds: int = CPU_SECONDS,
    seconds: int = SECONDS,
) -> Catch | None:
    """The first of `schedules` (see `kinds.py`) that sees the defect, or with `shrunk` what is left of it when all is
    taken away that need not be there; None where none does. `plant` puts it there. Forks. Raises Outdated.
    """
    return catch_by(plant, lambda: _first_catch(schedules, shrunk), cpu_seconds=cpu_seconds, seconds=seconds)


def catch_by(
    plant: Callable[[], object],
    find: Callable[[], tuple[str, str, str] | None],
    *,
    cpu_seconds: int = CPU_SECONDS,
    seconds: int = SECONDS,
) -> Catch | None:
    """The same, where `find` looks for it: by what it was seen, which rule was broken, and how."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            try:
                plant()
            except Exception as error:
                raise Outdated(f"it cannot be planted: {error}") from error
            found: object = find()
        except Outdated as error:
            found = str(error)
        except BaseException as error:  # noqa: BLE001  the last thing that this process does is to tell it
            found = "", RUNS, repr(error)
        with os.fdopen(writable, "w") as answer:
            json.dump(found, answer)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    if not told:
        return Catch("", RUNS, f"no answer within {cpu_seconds} s of processor time and {seconds} s")
    answered = json.loads(told)
    if isinstance(answered, str):
        raise Outdated(answered)
    return Catch(*answered) if answered else None


def _first_catch(schedules: Iterable[str | int], shrunk: bool) -> tuple[str, str, str] | None:
    from .explore import rule_broken, shrink
    from .kinds import schedule_of

    for each in schedules:
        schedule = schedule_of(each)
        broken = rule_broken(schedule)
        if broken is not None:
            return (shrink(schedule, broken[0]) if shrunk else schedule).text, broken[0], broken[1][-600:]
    return None
