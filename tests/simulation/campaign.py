"""python -m tests.simulation.campaign: changes the cores mechanically, line by line, and tells what nobody sees.

Conditions negated, comparisons moved by one, a statement or an operand left out, small numbers changed. What survives
is the same program in other words, only words or speed, or a hole in the simulator.
"""

import argparse
import ast
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import explore, kinds  # noqa: F401  with the product: once, and not in each process
from .planted import ROOT, Outdated, catch_defect, replace_code

CORES: Sequence[str] = (
    *(f"rendezvous/{name}.py" for name in ("round", "ranks", "membership", "election", "member", "header")),
    "rendezvous/failure_detector.py",
    *(f"master/{name}.py" for name in ("controller", "master", "incident_log", "incident", "publish")),
    *(f"master/data/{name}.py" for name in ("ledger", "ledger_service")),
    *(f"elastic_agent/{name}.py" for name in ("plan", "agent", "candidate", "event", "master_client", "worker_server")),
    *(f"rendezvous/store/etcd/{name}.py" for name in ("session", "watch")),
)

_WORDS = {
    "say",
    "_say",
    "_say_once",
    "_say_elected",
    "describe",
    "describe_difference",
    "describe_own",
    "_differing",
    "_names",
    "_missing",
    "_some",
}
_ELSEWHERE = {"metadata", "_log_in", "log_in_again", "_on_stop", "listener"}
"""Functions that only speak, and those whose surroundings (passwords, terminals) no simulation has."""

_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True, slots=True)
class Change:
    """One place of a source, and what stands there instead."""

    file: str
    line: int
    what: str
    old: str
    new: str
    source: str

    def plant(self) -> None:
        """Changes the product in this process. Raises Outdated where a class is changed, and no function of it."""
        replace_code(self.file, ast.parse(self.source), self.line)


class _Changes(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self._lines = source.encode().splitlines(keepends=True)
        self.found: list[tuple[ast.AST, str, str]] = []

    def _to(self, node: ast.AST, what: str, new: ast.AST | str) -> None:
        self.found.append((node, what, new if isinstance(new, str) else f"({ast.unparse(new)})"))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name not in _WORDS | _ELSEWHERE:
            for statement in node.body:
                self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value and not isinstance(node.value, ast.Constant):  # a default is a word for "as always"
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        self._to(node, "not raised", "pass")

    def visit_If(self, node: ast.If) -> None:
        self._test(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._test(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._test(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._to(test, "always", "True")
        self.generic_visit(node)

    def _test(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.NamedExpr) or len(getattr(test, "ops", [])) > 1:
            self._to(test, "negated", ast.UnaryOp(ast.Not(), test))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._to(node, "and/or", ast.BoolOp(other, node.values))
        for index in range(len(node.values)):
            rest = [*node.values[:index], *node.values[index + 1 :]]
            self._to(node, "operand left out", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        flipped = _FLIPPED[type(node.ops[0])]()
        self._to(node, "flipped", ast.Compare(node.left, [flipped, *node.ops[1:]], node.comparators))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._to(node, "not left out", node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._to(node, "flipped", str(not node.value))
        elif isinstance(node.value, int | float):
            self._to(node, "constant", repr(node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Constant | ast.Yield):
            return
        function = value.func if isinstance(value, ast.Call) else None
        if (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) in _WORDS:
            return
        self._to(node, "left out", "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Attribute | ast.Subscript | ast.Tuple) for target in node.targets):
            self._to(node, "left out", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._to(node, "left out", "pass")

    def visit_Continue(self, node: ast.Continue | ast.Break) -> None:
        self._to(node, "left out", "pass")

    visit_Break = visit_Continue  # type: ignore[assignment]

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None or isinstance(node.value, ast.Constant):
            self._to(node, "left out", "pass")
        self.generic_visit(node)

    def _items(self, node: ast.List | ast.Tuple) -> None:
        if len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
            for index in range(len(node.elts)):
                rest = [*node.elts[:index], *node.elts[index + 1 :]]
                self._to(node, "item left out", type(node)(rest, node.ctx))
        self.generic_visit(node)

    visit_List = _items

    def text(self, node: Any) -> tuple[int, int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line))
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def changes(file: str) -> Iterator[Change]:
    """Every change of `file` that is tried."""
    source = (ROOT / file).read_text(encoding="utf-8")
    found = _Changes(source)
    found.visit(ast.parse(source))
    raw = source.encode()
    for node, what, new in found.found:
        start, end = found.text(node)
        changed = raw[:start] + new.encode() + raw[end:]
        old = raw[start:end].decode()
        try:
            ast.parse(changed)
        except SyntaxError:
            continue
        yield Change(file, node.lineno, what, old, new, changed.decode())  # type: ignore[attr-defined]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.campaign", description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seeds", default="0:150", help="tried on each change, until one sees it")
    parser.add_argument("--count", type=int, help="a sample of the changes")
    parser.add_argument("--chance", default="0", help="which sample")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition(":")
    todo = [change for file in arguments.files or CORES for change in changes(file)]
    random.Random(arguments.chance).shuffle(todo)
    began, survivors = time.perf_counter(), 0
    tried = todo[: arguments.count]
    for change in tried:
        try:
            catch = catch_defect(change.plant, range(int(first), int(last)))
            seen = f"{catch.schedule.partition(chr(10))[0]}: {catch.rule}" if catch else "SURVIVES"
        except Outdated as error:
            seen = f"NOT PLANTED: {error}"
        survivors += seen == "SURVIVES"
        old, new = (" ".join(text.split())[:150] for text in (change.old, change.new))
        print(f"{change.file}:{change.line} {change.what}: {old}  ->  {new}\n    {seen}", flush=True)
    spent = time.perf_counter() - began
    print(f"{len(tried)} of {len(todo)} changes, {survivors} seen by no schedule of {arguments.seeds}; {spent:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
