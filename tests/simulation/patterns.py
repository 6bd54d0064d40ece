"""Finds and changes a piece of the product by its structure, whatever its private names are.

A pattern is Python code. It matches a piece of a module's syntax tree that is the same but for its local variables,
parameters and private names (`_x`, `self._x`): a name in the pattern stands for one such name of the source, and two
names of the pattern for two. Public names, strings, numbers and keywords are matched as they are. Formatting, comments
and annotations of local variables do not matter. `...` matches anything: an expression, any number of arguments, items,
operands or statements.
"""

import ast
import builtins
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .planted import ROOT, Outdated, replace_code

Binding = tuple[int, str]
"""A local variable: which scope of the tree (0: around a pattern), and its name."""

Scope = (
    ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
)
_SCOPES = (*Scope.__args__, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_private(name: str) -> bool:
    """Whether only its own module or class may use it."""
    return name.startswith("_") and not name.endswith("__") and name != "_"


_NAME_FIELDS: Mapping[type, str] = {
    ast.Name: "id",
    ast.arg: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}


def name_field(node: ast.AST) -> str:
    """The field of `node` that holds a name which may be a local variable's; empty where it holds none."""
    return _NAME_FIELDS.get(type(node), "")


def _children(scope: ast.AST) -> list[ast.AST]:
    """What is evaluated inside a scope, not around it."""
    match scope:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*_arguments(scope.args), *scope.body]
        case ast.Lambda():
            return [*_arguments(scope.args), scope.body]
        case ast.ClassDef():
            return list(scope.body)
        case _:
            return list(ast.iter_child_nodes(scope))


def _arguments(arguments: ast.arguments) -> list[ast.AST]:
    return [node for node in ast.iter_child_nodes(arguments) if isinstance(node, ast.arg)]


def _bound(scope: ast.AST) -> tuple[set[str], set[str]]:
    """The names that a scope binds as variables, and those that it takes from elsewhere or imports."""
    names: set[str] = set()
    others: set[str] = set()

    def walk(node: ast.AST, inner: bool) -> None:
        if isinstance(node, ast.Global | ast.Nonlocal):
            others.update(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            others.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.NamedExpr):
            names.add(node.target.id)
        elif not inner and not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            names.add(getattr(node, name_field(node), None) or "")
        if not isinstance(node, _SCOPES):
            for child in ast.iter_child_nodes(node):
                walk(child, inner)
        elif isinstance(node, _COMPREHENSIONS) and not isinstance(scope, _COMPREHENSIONS):
            for child in ast.iter_child_nodes(node):  # `:=` binds in the function around
                walk(child, True)

    for child in _children(scope):
        walk(child, False)
    if isinstance(scope, _COMPREHENSIONS):
        names -= {node.target.id for node in ast.walk(scope) if isinstance(node, ast.NamedExpr)}
    return names - others - {""}, others


def bindings(tree: ast.AST) -> dict[ast.AST, Binding]:
    """Which local variable each name of a tree stands for; names of the module or of a class are left out."""
    found: dict[ast.AST, Binding] = {}

    def note(node: ast.AST, scopes: Sequence[tuple[ast.AST, set[str], set[str]]]) -> None:
        name = getattr(node, name_field(node))
        for index, (scope, names, _) in enumerate(reversed(scopes)):
            if isinstance(scope, ast.ClassDef) and index:
                continue
            if name in names:
                if not isinstance(scope, ast.ClassDef):
                    found[node] = (id(scope), name)
                return

    def walk(node: ast.AST, scopes: Sequence[tuple[ast.AST, set[str], set[str]]]) -> None:
        if name_field(node) and getattr(node, name_field(node)):
            note(node, scopes)
        if not isinstance(node, _SCOPES):
            for child in ast.iter_child_nodes(node):
                walk(child, scopes)
            return
        inside = [*scopes, (node, *_bound(node))]
        within = {id(child) for child in _children(node)}
        if isinstance(node, _COMPREHENSIONS):
            first = node.generators[0]
            walk(first.iter, scopes)
            for child in (*ast.iter_child_nodes(node), first.target, *first.ifs):
                if child is not first:
                    walk(child, inside)
            return
        for child in ast.iter_child_nodes(node):
            if id(child) in within:
                walk(child, inside)
            elif isinstance(child, ast.arguments):
                for part in ast.iter_child_nodes(child):
                    if isinstance(part, ast.arg):
                        note(part, inside)
                        if part.annotation:
                            walk(part.annotation, scopes)
                    else:
                        walk(part, scopes)
            else:
                walk(child, scopes)

    walk(tree, ())
    return found


@dataclass(frozen=True, slots=True)
class Module:
    """A module's tree, and what its names stand for.

    Attributes:
        file: such as `master/master.py`.
        tree: which a change changes.
        locals: which local variable a name stands for.
        public: the names that the module itself has, and Python.
    """

    file: str
    tree: ast.Module
    locals: Mapping[ast.AST, Binding]
    public: frozenset[str]


def read_module(file: str, source: str) -> Module:
    """The module with this source."""
    tree = ast.parse(source)
    names, others = _bound(tree)
    return Module(file, tree, bindings(tree), frozenset((*names, *others, *dir(builtins))))


@functools.cache
def module_of(file: str) -> Module:
    """The product's `file`, as it is."""
    return read_module(file, (ROOT / file).read_text(encoding="utf-8"))


@dataclass(slots=True)
class _Match:
    """What the names and the `...` of a pattern stand for."""

    module: Module
    inner: Mapping[ast.AST, Binding]
    names: dict[tuple[str, int, str], tuple[str, int, str]] = field(default_factory=dict)
    rests: dict[ast.AST, Any] = field(default_factory=dict)

    def _bind(self, kind: str, ours: Binding, theirs: Binding) -> bool:
        key, value = (kind, *ours), (kind, *theirs)
        if key in self.names:
            return self.names[key] == value
        if value in self.names.values():
            return False
        self.names[key] = value
        return True

    def copy(self) -> "_Match":
        return _Match(self.module, self.inner, dict(self.names), dict(self.rests))

    def take(self, other: "_Match") -> bool:
        self.names, self.rests = other.names, other.rests
        return True

    def _same_name(self, pattern: ast.AST, node: ast.AST, ours: str, theirs: str) -> bool:
        local = self.module.locals.get(node)
        if local is not None:
            inner = self.inner.get(pattern, (0, ours))
            elsewhere = inner[0] == 0 and (ours in self.module.public or is_private(ours))
            return not elsewhere and self._bind("name", inner, local)
        if is_private(ours) and is_private(theirs):
            return self._bind("private", (0, ours), (0, theirs))
        return ours == theirs

    def matches(self, pattern: Any, node: Any) -> bool:
        """Whether they are the same, given what is known of the names; notes what it learns of them."""
        if isinstance(pattern, list):
            return isinstance(node, list) and self._match_all(pattern, node)
        if not isinstance(pattern, ast.AST):
            return bool(pattern == node and type(pattern) is type(node))
        if _is_rest(pattern):
            self.rests[_rest(pattern)] = [node]
            return True
        if type(pattern) is not type(node):
            return False
        if name := name_field(pattern):
            ours, theirs = getattr(pattern, name), getattr(node, name)
            if (ours is None) != (theirs is None) or (ours and not self._same_name(pattern, node, ours, theirs)):
                return False
        skipped = {name, "ctx", "kind", "type_comment", "annotation", "returns", "lineno"}
        if isinstance(pattern, ast.Attribute) and is_private(pattern.attr) and is_private(node.attr):
            if not self._bind("private", (0, pattern.attr), (0, node.attr)):
                return False
            skipped.add("attr")
        if isinstance(pattern, ast.Call):
            return self.matches(pattern.func, node.func) and self._match_arguments(pattern, node)
        return all(
            self.matches(getattr(pattern, part), getattr(node, part)) for part in pattern._fields if part not in skipped
        )

    def _match_arguments(self, pattern: ast.Call, node: ast.Call) -> bool:
        if not self._match_all(pattern.args, node.args):
            return False
        theirs = list(node.keywords)
        for keyword in pattern.keywords:
            for each in sorted(theirs, key=lambda each: each.arg != keyword.arg):
                trial = self.copy()
                if trial._same_keyword(pattern.func, keyword, each) and trial.matches(keyword.value, each.value):
                    self.take(trial)
                    theirs.remove(each)
                    break
            else:
                return False
        open_ends = [each for each in pattern.args if _is_rest(each)]
        if open_ends:
            self.rests[_rest(open_ends[-1])] += theirs
        return bool(open_ends) or not theirs

    def _same_keyword(self, function: ast.expr, ours: ast.keyword, theirs: ast.keyword) -> bool:
        name = getattr(function, "attr", getattr(function, "id", ""))
        if ours.arg is None or theirs.arg is None or not is_private(name):
            return ours.arg == theirs.arg
        return self._bind("keyword", (0, ours.arg), (0, theirs.arg))

    def _match_all(self, patterns: Sequence[Any], nodes: Sequence[Any]) -> bool:
        if not patterns:
            return not nodes
        first, rest = patterns[0], patterns[1:]
        if not _is_rest(first):
            return bool(nodes) and self.matches(first, nodes[0]) and self._match_all(rest, nodes[1:])
        for length in range(len(nodes) - len(rest) + 1):
            trial = self.copy()
            trial.rests[_rest(first)] = list(nodes[:length])
            if trial._match_all(rest, nodes[length:]):
                return self.take(trial)
        return False


def _is_rest(node: Any) -> bool:
    node = node.value if isinstance(node, ast.Expr) else node
    return isinstance(node, ast.Constant) and node.value is ...


def _rest(node: Any) -> ast.AST:
    return node.value if isinstance(node, ast.Expr) else node


def _rests(tree: ast.AST) -> list[ast.AST]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value is ...]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


class _Filled(ast.NodeTransformer):
    """Puts the names and pieces of the source into what stands there instead."""

    def __init__(self, match: _Match, old: ast.AST, new: ast.AST, place: ast.AST) -> None:
        self._match = match
        self._place = place
        self._inner = bindings(new)
        rests = _rests(new)
        if len(rests) > len(_rests(old)):
            raise Outdated("`new` has more `...` than `old`")
        self._rests = dict(zip(rests, (match.rests[each] for each in _rests(old)), strict=False))
        self._own, _ = _bound(new)
        self._names: dict[tuple[str, bool, str], set[str]] = {}
        for (kind, scope, name), (_, _, there) in match.names.items():
            self._names.setdefault((kind, scope == 0, name), set()).add(there)

    def _name(self, kind: str, name: str, free: bool) -> str:
        there = self._names.get((kind, free, name), set())
        if len(there) == 1:
            return next(iter(there))
        known = self._match.module.public
        if there or is_private(name) or (free and name not in known | self._own):
            raise Outdated(f"`new` has {name}, which stands for nothing in `old`, or for several things")
        return name if name in known or not free else f"{name}_planted"

    def generic_visit(self, node: ast.AST) -> ast.AST:
        ast.copy_location(node, self._place)
        if name := getattr(node, name_field(node), None):
            kind = "private" if is_private(name) else "name"
            setattr(node, name_field(node), self._name(kind, name, self._inner.get(node, (0,))[0] == 0))
        return super().generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        if node in self._rests:
            pieces = self._rests[node]
            return pieces[0] if len(pieces) == 1 else pieces
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        if node.value in self._rests and _is_rest(node):
            pieces = self._rests[node.value]
            return [
                piece if isinstance(piece, ast.stmt) else ast.copy_location(ast.Expr(piece), piece) for piece in pieces
            ]
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if is_private(node.attr):
            node.attr = self._name("private", node.attr, True)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.arg = next(iter(self._names.get(("keyword", True, node.arg or ""), {node.arg})))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords += [each for each in node.args if isinstance(each, ast.keyword)]
        node.args = [each for each in node.args if not isinstance(each, ast.keyword)]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return node if len(node.values) > 1 else node.values[0]


@dataclass(frozen=True, slots=True)
class Edit:
    """One piece of the product, and what stands there instead.

    Attributes:
        where: in which file the piece is, and in which public class or function of it, if that is not another's:
            `master/machine/controller.py::Controller.on`.
        old, new: patterns: one expression, or statements. The names of `new` stand for what they do in `old`, the n-th
            `...` of `new` for what the n-th of `old` stands for.
    """

    where: str
    old: str
    new: str

    @property
    def file(self) -> str:
        """Such as `master/machine/controller.py`."""
        return self.where.partition("::")[0]

    def plant(self) -> None:
        """Changes the product in this process. Raises Outdated."""
        module = module_of(self.file)
        line, _ = self.apply(module)
        replace_code(self.file, module.tree, line)

    def apply(self, module: Module) -> tuple[int, Callable[[], None]]:
        """Changes the module's tree. Returns at which line, and what takes the change back.

        Raises Outdated where `old` is not there exactly once.
        """
        old, new = (ast.parse(inspect.cleandoc(code)) for code in (self.old, self.new))
        place: ast.AST = module.tree
        for name in filter(None, self.where.partition("::")[2].split(".")):
            inside = [each for each in ast.iter_child_nodes(place) if getattr(each, "name", "") == name]
            if len(inside) != 1:
                raise Outdated(f"{self.where} is there {len(inside)} times")
            place = inside[0]
        expressions = all(len(each.body) == 1 and isinstance(each.body[0], ast.Expr) for each in (old, new))
        pieces = list(_find(module, place, old, expressions))
        if len(pieces) != 1:
            raise Outdated(f"{self.where}: {len(pieces)} pieces match\n{inspect.cleandoc(self.old)}")
        match, parent, part, start, length = pieces[0]
        there = getattr(parent, part)
        first = there[start] if isinstance(there, list) else there
        body: list[Any] = _Filled(match, old, new, first).visit(new).body
        if expressions:
            body = [each.value for each in body]
        setattr(parent, part, there[:start] + body + there[start + length :] if isinstance(there, list) else body[0])
        return first.lineno, lambda: setattr(parent, part, there)


def _find(
    module: Module, place: ast.AST, old: ast.Module, expressions: bool
) -> Iterator[tuple[_Match, ast.AST, str, int, int]]:
    """Where the pattern is: what it stands for, and which items of which field of which node."""
    inner = bindings(old)
    pattern: list[Any] = [each.value for each in old.body if isinstance(each, ast.Expr)] if expressions else old.body
    first = type(pattern[0])
    for node in ast.walk(place):
        for part, value in ast.iter_fields(node):
            items = value if isinstance(value, list) else [value]
            for start in range(len(items) - len(pattern) + 1):
                if type(items[start]) is first:
                    match = _Match(module, inner)
                    if match.matches(pattern, items[start : start + len(pattern)]):
                        yield match, node, part, start, len(pattern)
