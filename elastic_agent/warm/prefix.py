"""What a script is sure to import first, read from its source: the imports before anything else happens in it.

Python parses; nothing of the script runs. Between imports there may be what cannot change what they do: functions,
plain classes, constants, a few calls that are known to do nothing else. A module of the script's own folder is read in
the same way, where it is imported. The reading ends at the first statement that could do anything, and says which.

What may stand between imports is decided by where a name comes from. A name that is bound by an import of a standard or
installed module may be called, used as a decorator, or operated on only where `INERT_CALLS` lists it. A name of the
script's own may be called nowhere.
"""

from __future__ import annotations

import _ast as ast
import builtins
import os
import sys

from .hazards import added_to, tell_of_filters
from .stamps import stamp_of

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from .stamps import Stamps

_ONLY_AST = 0x400

LARGEST = 1 << 20
"""Bytes of a source file that is read."""

MOST_FILES = 500
"""The script's own files that are read."""

INERT_CALLS = frozenset(
    f"{module}.{name}"
    for module, names in {
        "abc": "abstractmethod",
        "builtins": "bool classmethod dict float frozenset int len list object print property range set staticmethod"
        " str super tuple",
        "collections": "OrderedDict namedtuple",
        "contextlib": "asynccontextmanager contextmanager",
        "dataclasses": "dataclass field",
        "datetime": "date.today datetime.now timedelta",
        "enum": "auto unique",
        "functools": "cache cached_property lru_cache total_ordering wraps",
        "logging": "NullHandler getLogger",
        "os": "cpu_count environ.get getcwd getenv",
        "os.path": "abspath basename dirname exists expanduser isdir isfile join realpath",
        "pathlib": "Path",
        "re": "compile",
        "time": "monotonic monotonic_ns perf_counter perf_counter_ns process_time time time_ns",
        "torch": "device enable_grad inference_mode no_grad",
        "typing": "NewType TypeVar cast final overload runtime_checkable",
    }.items()
    for name in names.split()
)
"""Calls, and decorators, that change nothing that an import could see, whatever plain values they are given."""

_BUILTINS = frozenset([*vars(builtins), "__file__"])
"""Names that a file has without binding them. Their values do nothing, and a call of one has to be in `INERT_CALLS`."""

_IMPORT_ERRORS = frozenset(["ImportError", "ModuleNotFoundError", "Exception"])

_HOOKS = frozenset(["__init_subclass__", "__class_getitem__", "__set_name__", "__prepare__", "__getattr__"])
"""What makes a class or a module do something where it is only used."""

_MEMBER_HOOKS = frozenset(["__init__", "__new__", "_generate_next_value_", "_missing_", "_ignore_"])
"""What an enumeration runs for each of its members."""

VALUE, CLASS, UNKNOWN, IMPORTED = "value", "class", "unknown", "imported:"
"""Kinds of names: an inert value or a function, a plain class of the script's own, something of which nothing is known,
something that an import of a module that is not the script's own has bound, with where it comes from."""


class Step:
    """One import statement, and what the script has changed since the one before it.

    Attributes:
        name: of the module.
        names: what is taken from it (`from NAME import ...`).
        where: file and line.
        environment: the variables that the script has set to constants.
        filters: the arguments of its calls of `warnings.filterwarnings` and `simplefilter`.
        tried: the number of the `try` statement that it stands in, whose handlers take a missing module; 0: none.
    """

    def __init__(self, name: str, names: Sequence[str] = (), where: str = "", tried: int = 0) -> None:
        self.name = name
        self.names = tuple(names)
        self.where = where
        self.tried = tried
        self.environment: dict[str, str] = {}
        self.filters: list[tuple[str, list[Any], dict[str, Any]]] = []


class Prefix:
    """What was read, and the reading of it.

    Args:
        folder: that Python searches first for modules.
        per_worker: variables that differ from worker to worker.

    Attributes:
        steps: the imports, in order.
        ended: (file and line, what stands there) of the first statement that could do anything; empty strings where
            the script has none.
        files: the stamps of the script's own files that were read.
        trees: what Python's parser made of these files.
        scopes: the names that each of them binds, with their kinds.
        pending: what the script has changed since the last import.
        tries: how many `try` statements were read.
    """

    def __init__(self, folder: str, per_worker: frozenset[str]) -> None:
        self.folder = folder
        self.steps: list[Step] = []
        self.ended: tuple[str, str] = ("", "")
        self.files: Stamps = {}
        self.trees: dict[str, ast.Module] = {}
        self.scopes: dict[str, dict[str, str]] = {}
        self.pending = Step("")
        self.tries = 0
        self._per_worker = per_worker
        self._main = ""

    def read(self, file: str, package: Sequence[str], *, main: bool = False) -> None:
        """Adds what `file` imports; raises _Stop where something else begins in it."""
        if main:
            self._main = os.path.realpath(file)
        elif self._main == os.path.realpath(file):
            raise _Stop("an import of the script itself, which runs it a second time", os.path.basename(file))
        if file in self.scopes:
            return
        names = self.scopes[file] = {}
        tree = parse(file, self.files)
        if tree is None:
            raise _Stop("no readable Python source", file)
        self.trees[file] = tree
        part = _File(self, file, package, names, main=main)
        for node in tree.body:
            try:
                part.statement(node)
            except (_Stop, RecursionError) as found:
                stop = found if isinstance(found, _Stop) else _Stop("an expression with too many parts")
                raise _Stop(stop.what, stop.where or f"{os.path.basename(file)}:{node.lineno}") from None

    def is_own(self, name: str) -> bool:
        """Whether a top-level name is the script's own; raises _Stop where only Python itself can tell."""
        if name in sys.builtin_module_names:
            return False
        if file_of([name], self.folder) is not None:
            return True
        if os.path.isdir(f"{self.folder}/{name}"):
            raise _Stop(f"an import of {name}, a folder without __init__.py beside the script")
        return False

    def set_variable(self, name: str, value: str) -> None:
        """The script sets it before the next import."""
        if name in self._per_worker:
            raise _Stop(f"it sets {name}, which is not the same for all workers")
        self.pending.environment[name] = value


def read_prefix(kind: str, target: str, per_worker: frozenset[str] = frozenset()) -> Prefix:
    """What is sure to be imported first; nothing where the source is not there or not to be understood.

    Args:
        kind: "script", "module" or "run_path".
        target: the file, or the module's name.
        per_worker: variables that differ from worker to worker.
    """
    folder, files = _main_files(kind, target)
    prefix = Prefix(folder, per_worker)
    try:
        if sys.flags.safe_path:
            raise _Stop("Python's safe path excludes the script's own folder", target)
        if not files:
            raise _Stop("no readable source file", target)
        for file, package in files:
            prefix.read(file, package, main=file == files[-1][0])
    except _Stop as end:
        prefix.ended = end.where, end.what
    return prefix


def _main_files(kind: str, target: str) -> tuple[str, list[tuple[str, Sequence[str]]]]:
    """The folder that Python searches first, and the files that it runs, in order, each with its package."""
    if kind != "module":
        folder = os.path.dirname(os.path.realpath(target)) if kind == "script" else os.getcwd()
        if os.path.isdir(target):
            folder = target
            target = f"{target}/__main__.py"
        return folder, [(target, ())] if os.path.isfile(target) else []
    folder, parts = os.getcwd(), target.split(".")
    files = _files_of(parts, folder)
    if len(files) < len(parts):
        return folder, []
    if files[-1][0].endswith("/__init__.py"):
        files.append((f"{folder}/{'/'.join(parts)}/__main__.py", parts))
    return folder, files if os.path.isfile(files[-1][0]) else []


class _Stop(Exception):
    """The reading ends here; `where`: file and line, as soon as they are known."""

    def __init__(self, what: str, where: str = "") -> None:
        self.what = what
        self.where = where


class _File:
    """One file that is read, with the names that it has bound so far."""

    def __init__(self, prefix: Prefix, file: str, package: Sequence[str], names: dict[str, str], *, main: bool) -> None:
        self._prefix = prefix
        self._file = file
        self._package = package
        self._names = names
        self._main = main
        self._tried = 0
        self._builtins = _BUILTINS
        self._lazy_annotations = False

    # Statements.

    def statement(self, node: Any) -> None:
        """Takes one statement; raises _Stop where it could do anything."""
        take: Callable[[Any], None] | None = getattr(self, f"_{type(node).__name__.lower()}", None)
        if take is None:
            raise _Stop(_source(node))
        take(node)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            parts = alias.name.split(".")
            if self._prefix.is_own(parts[0]):
                self._own(parts)
                self._names[alias.asname or parts[0]] = UNKNOWN
            else:
                self._installed(alias.name, (), node)
                self._names[alias.asname or parts[0]] = IMPORTED + (alias.name if alias.asname else parts[0])

    def _importfrom(self, node: ast.ImportFrom) -> None:
        if node.module == "__future__":
            self._lazy_annotations |= any(alias.name == "annotations" for alias in node.names)
            return
        parts = node.module.split(".") if node.module else []
        if node.level:
            outer = len(self._package) - node.level + 1
            if outer < 1:
                raise _Stop(_source(node))
            parts = [*self._package[:outer], *parts]
        if node.level or self._prefix.is_own(parts[0]):
            self._from_own(parts, node)
            return
        name = ".".join(parts)
        self._installed(name, [alias.name for alias in node.names], node)
        for alias in node.names:
            if alias.name == "*":
                self._names.clear()  # whatever was bound may be something else now
                self._builtins = frozenset[str]()
            else:
                self._names[alias.asname or alias.name] = f"{IMPORTED}{name}.{alias.name}"

    def _installed(self, name: str, names: Sequence[str], node: ast.stmt) -> None:
        """The next step: an import of what is not the script's own."""
        step, self._prefix.pending = self._prefix.pending, Step("")
        step.name, step.names, step.tried = name, tuple(names), self._tried
        step.where = f"{os.path.basename(self._file)}:{node.lineno}"
        self._prefix.steps.append(step)

    def _own(self, parts: Sequence[str]) -> str:
        """Reads a module of the script's own, with the packages around it."""
        if self._tried:
            raise _Stop(f"an import of {'.'.join(parts)} that is tried, and is the script's own")
        files = _files_of(parts, self._prefix.folder)
        for file, package in files:
            self._prefix.read(file, package)
        if len(files) < len(parts):
            raise _Stop(f"an import of {'.'.join(parts)}, which is not found beside the script")
        return files[-1][0]

    def _from_own(self, parts: Sequence[str], node: ast.ImportFrom) -> None:
        scope = self._prefix.scopes[self._own(parts)]
        if "__getattr__" in scope:
            raise _Stop(f"an import from {'.'.join(parts)}, which computes its names")
        for alias in node.names:
            if alias.name == "*":
                if "__all__" in scope:
                    raise _Stop(f"an import of all that {'.'.join(parts)} names, which may be modules")
                self._names.update(scope)
            else:
                if alias.name not in scope and file_of([*parts, alias.name], self._prefix.folder) is not None:
                    self._own([*parts, alias.name])
                self._names[alias.asname or alias.name] = scope.get(alias.name, UNKNOWN)

    def _try(self, node: ast.Try) -> None:
        """Imports whose handlers do nothing else."""
        handling = [inner for handler in node.handlers for inner in handler.body]
        inert = all(map(_catches_imports, node.handlers)) and all(map(self._is_plain_statement, handling))
        if not node.handlers or node.finalbody or not inert:
            raise _Stop(_source(node))
        before = self._tried
        if not before:
            self._prefix.tries += 1
            self._tried = self._prefix.tries
        for inner in [*node.body, *node.orelse]:
            # What can fail before an import would keep it from being made.
            constant = isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Constant)
            if not constant and not isinstance(inner, (ast.Import, ast.ImportFrom)):
                raise _Stop(_source(inner))
            self.statement(inner)
        self._tried = before
        for inner in handling:
            for target in getattr(inner, "targets", ()):
                self._names[target.id] = UNKNOWN

    def _is_plain_statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign():
                return all(isinstance(target, ast.Name) for target in node.targets) and self._is_inert(node.value)
            case ast.Expr():
                return self._is_inert(node.value)
            case _:
                return isinstance(node, ast.Pass)

    def _if(self, node: ast.If) -> None:
        match node.test:
            case test if self._origin(test) == "typing.TYPE_CHECKING":
                taken = node.orelse
            case ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]) | ast.Compare(
                ast.Constant("__main__"), [ast.Eq()], [ast.Name("__name__")]
            ) if "__name__" not in self._names:
                taken = node.body if self._main else node.orelse
            case _:
                raise _Stop(_source(node))
        for inner in taken:
            self.statement(inner)

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self._must_be_inert(node, *arguments.defaults, *arguments.kw_defaults)
        if not self._lazy_annotations:
            self._must_be_inert(node, *(one.annotation for one in listed if one is not None), node.returns)
        self._decorators(node)
        self._names[node.name] = VALUE

    _asyncfunctiondef = _functiondef

    def _decorators(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call():
                    inert = self._is_inert(decorator)
                case ast.Attribute(ast.Name(name), "setter" | "getter" | "deleter") if self._names.get(name) == VALUE:
                    inert = True
                case _:
                    inert = self._origin(decorator) in INERT_CALLS
            if not inert:
                raise _Stop(f"{_source(decorator)} before {node.name}")

    def _classdef(self, node: ast.ClassDef) -> None:
        if node.keywords:
            raise _Stop(f"class {node.name} with {_source(node.keywords[0])}")
        for base in node.bases:
            root = base
            while isinstance(root, ast.Subscript):
                self._must_be_inert(node, root.slice)
                root = root.value
            if self._origin(root) is None and not self._is_own_class(root):
                raise _Stop(f"class {node.name}, made from {_source(base)}")
        self._decorators(node)
        inner = _File(self._prefix, self._file, self._package, dict(self._names), main=self._main)
        inner._lazy_annotations, inner._builtins = self._lazy_annotations, self._builtins
        for part in node.body:
            if isinstance(part, (ast.Import, ast.ImportFrom, ast.Try, ast.If)):
                raise _Stop(f"class {node.name} with {_source(part)}")
            inner.statement(part)
        defined = {name for part in node.body for name in _defined(part)}
        # Many modules hand on enum's classes (http.IntEnum), or have made one of theirs (transformers' ExplicitEnum).
        is_enum = any((self._origin(base) or "").endswith(("Enum", "Flag")) for base in node.bases)
        if is_enum and defined & _MEMBER_HOOKS:
            raise _Stop(f"class {node.name}, whose members its own code creates")
        self._names[node.name] = UNKNOWN if is_enum or defined & _HOOKS else CLASS

    def _is_own_class(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self._names.get(node.id) == CLASS

    def _assign(self, node: ast.Assign) -> None:
        match node:
            case ast.Assign([ast.Subscript(mapping, ast.Constant(str(name)))], ast.Constant(str(value))):
                if self._origin(mapping) == "os.environ" and not self._tried:
                    self._prefix.set_variable(name, value)
                    return
            case _:
                pass
        self._must_be_inert(node, node.value)
        self._bind(node, node.targets, node.value)

    def _bind(self, node: ast.stmt, targets: Sequence[ast.expr], value: ast.expr | None) -> None:
        alias = self._origin(value)
        for target in targets:
            several = isinstance(target, (ast.Tuple, ast.List))
            for name in target.elts if several else [target]:
                if not isinstance(name, ast.Name):
                    raise _Stop(_source(node))
                self._names[name.id] = VALUE if alias is None or several else IMPORTED + alias

    def _annassign(self, node: ast.AnnAssign) -> None:
        self._must_be_inert(node, node.value, None if self._lazy_annotations else node.annotation)
        self._bind(node, [node.target], node.value)

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call) or not self._sets_or_filters(node.value):
            self._must_be_inert(node, node.value)

    def _sets_or_filters(self, call: ast.Call) -> bool:
        """Whether it is a call with constants that sets a variable, or keeps warnings quiet, which the step notes."""
        values: list[Any] = [one.value for one in call.args if isinstance(one, ast.Constant)]
        keywords: dict[str, Any] = {}
        for one in call.keywords:
            if one.arg and isinstance(one.value, ast.Constant):
                keywords[one.arg] = one.value.value
        if len(values) < len(call.args) or len(keywords) < len(call.keywords):
            return False
        match self._origin(call.func), values:
            case "os.environ.setdefault", [str(name), str(value)] if not keywords and not self._tried:
                if name in os.environ:
                    return False
                self._prefix.set_variable(name, value)
            case "warnings.filterwarnings" | "warnings.simplefilter" as function, _:
                quiet = values[:1] in (["ignore"], ["default"], ["once"]) or keywords.get("action") == "ignore"
                if not quiet or "category" in keywords:
                    return False
                self._prefix.pending.filters.append((function.rpartition(".")[2], values, keywords))
            case _:
                return False
        return True

    def _pass(self, node: Any) -> None:
        """Nothing."""

    # Expressions.

    def _must_be_inert(self, node: ast.stmt, *expressions: ast.expr | None) -> None:
        for expression in expressions:
            if expression is not None and not self._is_inert(expression):
                raise _Stop(_source(node))

    def _is_inert(self, node: ast.AST) -> bool:
        """Whether working it out can do nothing, and its value can do nothing where it is used."""
        match node:
            case ast.Name(name):
                return self._names[name] != UNKNOWN if name in self._names else name in self._builtins
            case ast.Attribute():
                return self._origin(node) is not None or self._is_own_class(node.value)
            case ast.Call():
                values = [*node.args, *(one.value for one in node.keywords)]
                return self._origin(node.func) in INERT_CALLS and all(map(self._is_inert, values))
            case ast.Lambda():
                return all(self._is_inert(one) for one in (*node.args.defaults, *node.args.kw_defaults) if one)
            case _:
                parts = [part for part in _children(node) if isinstance(part, ast.expr)]
                return isinstance(node, _PLAIN_EXPRESSIONS) and all(map(self._is_inert, parts))

    def _origin(self, node: ast.expr | None) -> str | None:
        """Where a name or an attribute comes from, such as "torch.nn.Module"; None for all that is not imported."""
        first, *names = _dotted(node).split(".")
        kind = self._names.get(first)
        if kind is None and first in self._builtins:
            kind = f"{IMPORTED}builtins.{first}"
        if kind is None or not kind.startswith(IMPORTED):
            return None
        return ".".join([kind.removeprefix(IMPORTED), *names])


_PLAIN_EXPRESSIONS = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp, ast.Subscript, ast.Slice),
    *(ast.Starred, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue),
)
"""They do nothing where their parts do nothing."""


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    """Whether it is for imports that fail, and for nothing else."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {getattr(one, "id", None) for one in caught} <= _IMPORT_ERRORS


def _defined(node: Any) -> list[str]:
    """The names that a statement in a class defines."""
    targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
    return [name for name in (getattr(node, "name", None), *(getattr(one, "id", None) for one in targets)) if name]


def _source(node: ast.AST) -> str:
    """What a statement is, in a word or two. Never a value: it may be a secret."""
    match node:
        case ast.Expr(ast.Call(called)) | ast.Assign(_, ast.Call(called)) | ast.Call(called):
            return f"a call of {_dotted(called)}"
        case ast.AnnAssign(value=ast.Call(called)) | ast.AugAssign(value=ast.Call(called)):
            return f"a call of {_dotted(called)}"
        case ast.Name() | ast.Attribute():
            return _dotted(node)
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return "an assignment"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return f"the definition of {node.name}"
        case ast.keyword():
            return f"{node.arg}="
        case _:
            return f"a statement ({type(node).__name__.lower()})"


def _dotted(node: ast.AST | None) -> str:
    """A name and its attributes, as in the source; it begins with dots where something else stands before these."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([getattr(node, "id", "..."), *reversed(names)])


def file_of(parts: Sequence[str], folder: str) -> str | None:
    """The file of a module in `folder`; None where there is none."""
    base = "/".join([folder, *parts])
    for file in (f"{base}/__init__.py", f"{base}.py"):
        if os.path.isfile(file):
            return file
    return None


def _files_of(parts: Sequence[str], folder: str) -> list[tuple[str, Sequence[str]]]:
    """The files of the packages around a module, and its own, with their packages, up to the first that is missing."""
    found: list[tuple[str, Sequence[str]]] = []
    for length in range(1, len(parts) + 1):
        file = file_of(parts[:length], folder)
        if file is None:
            break
        found.append((file, parts[:length] if file.endswith("/__init__.py") else parts[: length - 1]))
    return found


def parse(file: str, noted: Stamps) -> ast.Module | None:
    """The file's tree, with the file's stamp put into `noted`; None where it cannot be read or understood."""
    known, filters = stamp_of(file), added_to()[-1]
    kept = list(filters)
    filters[:] = [("ignore", None, Warning, None, 0)]  # the script is to give its own
    tell_of_filters()
    try:
        with open(file, "rb") as opened:
            source = opened.read(LARGEST + 1)
        if len(source) > LARGEST:
            return None
        tree: Any = compile(source, file, "exec", _ONLY_AST, dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    finally:
        filters[:] = kept
        tell_of_filters()
    noted[file] = known
    return tree


def mentions(kind: str, target: str, trees: Mapping[str, ast.Module]) -> tuple[set[str], set[str]]:
    """What occurs anywhere in the script and in its own modules: (identifiers, texts).

    Modules that it imports anywhere count, also within functions. At most `MOST_FILES` are read; of those in `trees`,
    that is what the files hold.
    """
    folder, files = _main_files(kind, target)
    identifiers: set[str] = set()
    texts: set[str] = set()
    waiting = [file for file, _ in files]
    seen: set[str] = set()
    while waiting and len(seen) < MOST_FILES:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        nodes: list[ast.AST] = list(filter(None, [trees.get(file) or parse(file, {})]))
        while nodes:
            node = nodes.pop()
            nodes += _children(node)
            match node:
                case ast.Name(name) | ast.Attribute(_, name):
                    identifiers.add(name)
                case ast.alias(name):
                    identifiers.update(name.split("."))
                case ast.keyword(str(text)) | ast.Constant(str(text)):
                    texts.add(text)
                case _:
                    waiting += _imported_files(node, file, folder)
    return identifiers, texts


def _imported_files(node: ast.AST, file: str, folder: str) -> Iterable[str]:
    match node:
        case ast.Import():
            modules = [alias.name.split(".") for alias in node.names]
        case ast.ImportFrom():
            base = node.module.split(".") if node.module else []
            modules = [base, *([*base, alias.name] for alias in node.names)]
            for _ in range(node.level):
                folder = file = os.path.dirname(file)
        case _:
            return
    for parts in modules:
        for length in range(1, len(parts) + 1):
            if found := file_of(parts[:length], folder):
                yield found


def _children(node: ast.AST) -> list[ast.AST]:
    found: list[ast.AST] = []
    for field in node._fields:
        value: Any = getattr(node, field, None)
        listed: list[Any] = [*value] if isinstance(value, list) else [value]
        found += [part for part in listed if isinstance(part, ast.AST)]
    return found
