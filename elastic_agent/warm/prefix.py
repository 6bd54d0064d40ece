"""What a script is sure to import first, read from its source: the imports before anything else happens in it.

Python parses; nothing of the script runs. Between imports there may be what cannot change what they do: functions,
plain classes, constants, a few calls that are known to do nothing else. A module of the script's own folder is read in
the same way, where it is imported. The reading ends at the first statement that could do anything, and says which.

What may stand between imports is decided by where a name comes from. A name that is bound by an import of a standard or
installed module may be called, used as a decorator, or operated on only where `INERT_CALLS` lists it. A name of the
script's own may be called nowhere.
"""

from __future__ import annotations

import _warnings
import os
import sys

from .hazards import tell_of_filters

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

_ONLY_AST = 0x400

LARGEST = 1 << 20
"""Bytes of a source file that is read."""

MOST_FILES = 500
"""The script's own files that are read."""

INERT_CALLS = frozenset(
    [
        *(f"builtins.{name}" for name in ("bool", "dict", "float", "frozenset", "int", "len", "list", "object")),
        *(f"builtins.{name}" for name in ("print", "property", "range", "set", "staticmethod", "classmethod")),
        *(f"builtins.{name}" for name in ("str", "super", "tuple")),
        "abc.abstractmethod",
        "collections.OrderedDict",
        "collections.namedtuple",
        "contextlib.asynccontextmanager",
        "contextlib.contextmanager",
        "dataclasses.dataclass",
        "dataclasses.field",
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.timedelta",
        "enum.auto",
        "enum.unique",
        "functools.cache",
        "functools.cached_property",
        "functools.lru_cache",
        "functools.total_ordering",
        "functools.wraps",
        "logging.NullHandler",
        "logging.getLogger",
        "os.cpu_count",
        "os.environ.get",
        "os.getcwd",
        "os.getenv",
        "os.path.abspath",
        "os.path.basename",
        "os.path.dirname",
        "os.path.exists",
        "os.path.expanduser",
        "os.path.isdir",
        "os.path.isfile",
        "os.path.join",
        "os.path.realpath",
        "pathlib.Path",
        "re.compile",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.process_time",
        "time.time",
        "time.time_ns",
        "torch.device",
        "torch.enable_grad",
        "torch.inference_mode",
        "torch.no_grad",
        "typing.NewType",
        "typing.TypeVar",
        "typing.cast",
        "typing.final",
        "typing.overload",
        "typing.runtime_checkable",
    ]
)
"""Calls, and decorators, that change nothing that an import could see, whatever plain values they are given."""

_BUILTINS = frozenset(
    [
        *("ArithmeticError", "BaseException", "Exception", "ImportError", "KeyError", "LookupError", "OSError"),
        *("RuntimeError", "TypeError", "ValueError", "NotImplementedError", "StopIteration", "ModuleNotFoundError"),
        *("bool", "bytes", "bytearray", "callable", "complex", "dict", "float", "frozenset", "int", "len", "list"),
        *("object", "print", "property", "range", "set", "slice", "staticmethod", "classmethod", "str", "super"),
        *("tuple", "type", "Ellipsis", "NotImplemented", "__name__", "__file__", "__doc__"),
    ]
)

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

    __slots__ = ("environment", "filters", "name", "names", "tried", "where")

    def __init__(self, name: str, names: Sequence[str] = (), where: str = "", tried: int = 0) -> None:
        self.name = name
        self.names = tuple(names)
        self.where = where
        self.tried = tried
        self.environment: dict[str, str] = {}
        self.filters: list[tuple[str, list[Any], dict[str, Any]]] = []


class Prefix:
    """What was read.

    Attributes:
        steps: the imports, in order.
        ended: (file and line, what stands there) of the first statement that could do anything; empty strings where
            the script has none.
        files: the script's own files that were read: (time of change in ns, bytes).
        trees: what Python's parser made of these files.
    """

    __slots__ = ("ended", "files", "steps", "trees")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.ended: tuple[str, str] = ("", "")
        self.files: dict[str, tuple[int, int]] = {}
        self.trees: dict[str, Any] = {}

    @property
    def changed(self) -> str:
        """The first of the files that is not as it was; empty where all are."""
        for file, known in self.files.items():
            if _stamp(file) != known:
                return file
        return ""


def read_prefix(kind: str, target: str, per_worker: frozenset[str] = frozenset()) -> Prefix:
    """What is sure to be imported first; nothing where the source is not there or not to be understood.

    Args:
        kind: "script", "module" or "run_path".
        target: the file, or the module's name.
        per_worker: variables that differ from worker to worker.
    """
    prefix = Prefix()
    if getattr(sys.flags, "safe_path", False):
        prefix.ended = (target, "Python's safe path excludes the script's own folder")
        return prefix
    folder, files = _main_files(kind, target)
    if not files:
        prefix.ended = (target, "no readable source file")
        return prefix
    reader = _Reader(folder, prefix, per_worker)
    for file, package in files:
        if not reader.read(file, package, main=file == files[-1][0]):
            break
    return prefix


def _main_files(kind: str, target: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """The folder that Python searches first, and the files that it runs, in order, each with its package."""
    if kind != "module":
        folder = os.path.dirname(os.path.realpath(target)) if kind == "script" else os.getcwd()
        if os.path.isdir(target):
            folder = target
            target = f"{target}/__main__.py"
        return folder, [(target, [])] if os.path.isfile(target) else []
    folder, parts = os.getcwd(), target.split(".")
    files: list[tuple[str, list[str]]] = []
    for length in range(1, len(parts) + 1):
        file = file_of(parts[:length], folder)
        if file is None:
            return folder, []
        files.append((file, parts[:length] if file.endswith("/__init__.py") else parts[: length - 1]))
    if files[-1][0].endswith("/__init__.py"):
        files.append((f"{folder}/{'/'.join(parts)}/__main__.py", parts))
    return folder, files if os.path.isfile(files[-1][0]) else []


class _Stop(Exception):
    """The reading ends here; the message says what stands there."""


class _Reader:
    def __init__(self, folder: str, prefix: Prefix, per_worker: frozenset[str]) -> None:
        self._folder = folder
        self._prefix = prefix
        self._per_worker = per_worker
        self._scopes: dict[str, dict[str, str]] = {}
        self._pending = Step("")
        self._tries = 0
        self._main = ""

    def read(self, file: str, package: Sequence[str], *, main: bool = False) -> bool:
        """Adds what `file` imports; False where something else begins in it, which `Prefix.ended` then names."""
        if main:
            self._main = os.path.realpath(file)
        elif self._main == os.path.realpath(file):
            self._prefix.ended = (os.path.basename(file), "an import of the script itself, which runs it a second time")
            return False
        if file in self._scopes:
            return True
        names: dict[str, str] = {}
        self._scopes[file] = names
        tree = parse(file, self._prefix.files)
        if tree is None:
            self._prefix.ended = (file, "no readable Python source")
            return False
        self._prefix.trees[file] = tree
        part = _File(self, file, list(package), names, main=main)
        for node in tree.body:
            try:
                part.statement(node)
            except (_Stop, RecursionError) as found:
                if not self._prefix.ended[0]:
                    what = str(found) if isinstance(found, _Stop) else "an expression with too many parts"
                    self._prefix.ended = (f"{os.path.basename(file)}:{node.lineno}", what)
                return False
        return True

    def scope(self, file: str) -> dict[str, str]:
        return self._scopes.get(file, {})

    def own(self, parts: Sequence[str]) -> str | None:
        """The script's own file of that module; None where it is not the script's own."""
        return file_of(parts, self._folder)

    def is_own(self, name: str) -> bool:
        """Whether a top-level name is the script's own; raises _Stop where only Python itself can tell."""
        if name in sys.builtin_module_names:
            return False
        if file_of([name], self._folder) is not None:
            return True
        if os.path.isdir(f"{self._folder}/{name}"):
            raise _Stop(f"an import of {name}, a folder without __init__.py beside the script")
        return False

    def installed(self, name: str, names: Sequence[str], where: str, tried: int) -> None:
        step, self._pending = self._pending, Step("")
        step.name, step.names, step.where, step.tried = name, tuple(names), where, tried
        self._prefix.steps.append(step)

    def set_variable(self, name: str, value: str) -> None:
        if name in self._per_worker:
            raise _Stop(f"it sets {name}, which is not the same for all workers")
        self._pending.environment[name] = value

    def filter_warnings(self, function: str, args: list[Any], keywords: dict[str, Any]) -> None:
        self._pending.filters.append((function, args, keywords))

    def next_try(self) -> int:
        self._tries += 1
        return self._tries


class _File:
    """One file that is read, with the names that it has bound so far."""

    def __init__(self, reader: _Reader, file: str, package: list[str], names: dict[str, str], *, main: bool) -> None:
        self._reader = reader
        self._file = file
        self._package = package
        self._names = names
        self._main = main
        self._tried = 0
        self._builtins: frozenset[str] = _BUILTINS
        self._lazy_annotations = False

    # Statements.

    def statement(self, node: Any) -> None:
        """Takes one statement; raises _Stop where it could do anything."""
        kind = type(node).__name__
        take: Callable[[Any], None] | None = getattr(self, f"_{kind.lower()}", None)
        if take is None:
            raise _Stop(_source(node))
        take(node)

    def _import(self, node: Any) -> None:
        for alias in node.names:
            parts = alias.name.split(".")
            if self._reader.is_own(parts[0]):
                self._own(parts)
                self._bind(alias.asname or parts[0], UNKNOWN)
            else:
                self._reader.installed(alias.name, (), self._where(node), self._tried)
                self._bind(alias.asname or parts[0], IMPORTED + (alias.name if alias.asname else parts[0]))

    def _importfrom(self, node: Any) -> None:
        if node.module == "__future__":
            self._lazy_annotations |= any(alias.name == "annotations" for alias in node.names)
            return
        if node.level:
            base = self._package[: len(self._package) - node.level + 1]
            if len(base) != len(self._package) - node.level + 1 or not base:
                raise _Stop(_source(node))
            parts = [*base, *(node.module.split(".") if node.module else ())]
        else:
            parts = node.module.split(".")
        if node.level or self._reader.is_own(parts[0]):
            self._from_own(parts, node)
            return
        names = [alias.name for alias in node.names]
        self._reader.installed(node.module, names, self._where(node), self._tried)
        for alias in node.names:
            if alias.name == "*":
                self._names.clear()  # whatever was bound may be something else now
                self._builtins = frozenset[str]()
            else:
                self._bind(alias.asname or alias.name, f"{IMPORTED}{node.module}.{alias.name}")

    def _own(self, parts: Sequence[str]) -> str:
        """Reads a module of the script's own, with the packages around it."""
        if self._tried:
            raise _Stop(f"an import of {'.'.join(parts)} that is tried, and is the script's own")
        file = None
        for length in range(1, len(parts) + 1):
            file = self._reader.own(parts[:length])
            if file is None:
                raise _Stop(f"an import of {'.'.join(parts)}, which is not found beside the script")
            package = parts[:length] if file.endswith("/__init__.py") else parts[: length - 1]
            if not self._reader.read(file, package):
                raise _Stop("")
        assert file is not None
        return file

    def _from_own(self, parts: Sequence[str], node: Any) -> None:
        scope = self._reader.scope(self._own(parts))
        if "__getattr__" in scope:
            raise _Stop(f"an import from {'.'.join(parts)}, which computes its names")
        for alias in node.names:
            if alias.name == "*":
                if "__all__" in scope:
                    raise _Stop(f"an import of all that {'.'.join(parts)} names, which may be modules")
                for name, kind in scope.items():
                    self._bind(name, kind)
            elif alias.name in scope:
                self._bind(alias.asname or alias.name, scope[alias.name])
            else:
                if self._reader.own([*parts, alias.name]) is not None:
                    self._own([*parts, alias.name])
                self._bind(alias.asname or alias.name, UNKNOWN)

    def _try(self, node: Any) -> None:
        """Imports whose handlers do nothing else."""
        inert = all(self._handles_imports(handler) for handler in node.handlers)
        if not node.handlers or node.finalbody or not inert:
            raise _Stop(_source(node))
        before, self._tried = self._tried, self._tried or self._reader.next_try()
        try:
            for inner in [*node.body, *node.orelse]:
                imports = type(inner).__name__ in ("Import", "ImportFrom")
                # What can fail before an import would keep it from being made.
                if not imports and not (type(inner).__name__ == "Assign" and _constant(inner.value) is not NOTHING):
                    raise _Stop(_source(inner))
                self.statement(inner)
        finally:
            self._tried = before
        for handler in node.handlers:
            for inner in handler.body:
                self._unbind(inner)

    def _handles_imports(self, handler: Any) -> bool:
        caught = handler.type
        listed = caught.elts if type(caught).__name__ == "Tuple" else [caught]
        names = {getattr(one, "id", None) for one in listed}
        return names <= _IMPORT_ERRORS and all(self._is_plain_statement(inner) for inner in handler.body)

    def _is_plain_statement(self, node: Any) -> bool:
        kind = type(node).__name__
        if kind == "Assign":
            return all(type(target).__name__ == "Name" for target in node.targets) and self._is_inert(node.value)
        return kind == "Pass" or (kind == "Expr" and self._is_inert(node.value))

    def _unbind(self, node: Any) -> None:
        for target in getattr(node, "targets", ()):
            self._bind(target.id, UNKNOWN)

    def _if(self, node: Any) -> None:
        test = node.test
        if self._origin(test) in ("typing.TYPE_CHECKING",):
            taken = node.orelse
        elif self._is_main_check(test):
            taken = node.body if self._main else node.orelse
        else:
            raise _Stop(_source(node))
        for inner in taken:
            self.statement(inner)

    def _is_main_check(self, test: Any) -> bool:
        if type(test).__name__ != "Compare" or len(test.ops) != 1 or type(test.ops[0]).__name__ != "Eq":
            return False
        sides = [test.left, test.comparators[0]]
        ids = [getattr(side, "id", None) for side in sides]
        values = [getattr(side, "value", None) for side in sides]
        return "__name__" in ids and "__main__" in values and "__name__" not in self._names

    def _functiondef(self, node: Any) -> None:
        arguments = node.args
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        annotations = [one.annotation for one in listed if one is not None] + [node.returns]
        self._must_be_inert(node, *arguments.defaults, *arguments.kw_defaults)
        if not self._lazy_annotations:
            self._must_be_inert(node, *annotations)
        self._decorators(node)
        self._bind(node.name, VALUE)

    _asyncfunctiondef = _functiondef

    def _decorators(self, node: Any) -> None:
        for decorator in node.decorator_list:
            called = type(decorator).__name__ == "Call"
            if called and self._is_inert(decorator):
                continue
            origin = None if called else self._origin(decorator)
            is_setter = (
                type(decorator).__name__ == "Attribute"
                and decorator.attr in ("setter", "getter", "deleter")
                and self._names.get(getattr(decorator.value, "id", "")) == VALUE
            )
            if origin not in INERT_CALLS and not is_setter:
                raise _Stop(f"{_source(decorator)} before {node.name}")

    def _classdef(self, node: Any) -> None:
        if node.keywords:
            raise _Stop(f"class {node.name} with {_source(node.keywords[0])}")
        for base in node.bases:
            root = base
            while type(root).__name__ == "Subscript":
                self._must_be_inert(node, root.slice)
                root = root.value
            if self._origin(root) is None and self._names.get(getattr(root, "id", "")) != CLASS:
                raise _Stop(f"class {node.name}, made from {_source(base)}")
        self._decorators(node)
        inner = _File(self._reader, self._file, self._package, dict(self._names), main=self._main)
        inner._lazy_annotations, inner._builtins = self._lazy_annotations, self._builtins
        for part in node.body:
            if type(part).__name__ in ("Import", "ImportFrom", "Try", "If"):
                raise _Stop(f"class {node.name} with {_source(part)}")
            inner.statement(part)
        defined = {name for part in node.body for name in _defined(part)}
        # Many modules hand on enum's classes (http.IntEnum), or have made one of theirs (transformers' ExplicitEnum).
        is_enum = any((self._origin(base) or "").endswith(("Enum", "Flag")) for base in node.bases)
        if is_enum and defined & _MEMBER_HOOKS:
            raise _Stop(f"class {node.name}, whose members its own code creates")
        self._bind(node.name, UNKNOWN if is_enum or defined & _HOOKS else CLASS)

    def _assign(self, node: Any) -> None:
        (first, *others) = node.targets
        if type(first).__name__ == "Subscript" and not others and self._origin(first.value) == "os.environ":
            name, value = getattr(first.slice, "value", None), getattr(node.value, "value", None)
            if isinstance(name, str) and isinstance(value, str) and not self._tried:
                self._reader.set_variable(name, value)
                return
        for target in node.targets:
            names = target.elts if type(target).__name__ in ("Tuple", "List") else [target]
            if any(type(name).__name__ != "Name" for name in names):
                raise _Stop(_source(node))
        self._must_be_inert(node, node.value)
        alias = self._origin(node.value)
        for target in node.targets:
            for name in getattr(target, "elts", [target]):
                self._bind(name.id, VALUE if alias is None or hasattr(target, "elts") else IMPORTED + alias)

    def _annassign(self, node: Any) -> None:
        if type(node.target).__name__ != "Name":
            raise _Stop(_source(node))
        self._must_be_inert(node, node.value, None if self._lazy_annotations else node.annotation)
        alias = self._origin(node.value) if node.value is not None else None
        self._bind(node.target.id, VALUE if alias is None else IMPORTED + alias)

    def _expr(self, node: Any) -> None:
        call = node.value
        if type(call).__name__ == "Call":
            origin = self._origin(call.func)
            values = [_constant(one) for one in call.args]
            keywords = {one.arg: _constant(one.value) for one in call.keywords}
            if all(value is not NOTHING for value in (*values, *keywords.values())) and None not in keywords:
                if origin == "os.environ.setdefault" and len(values) == 2 and not keywords and not self._tried:
                    name, value = values
                    if isinstance(name, str) and isinstance(value, str) and name not in os.environ:
                        self._reader.set_variable(name, value)
                        return
                quiet = values[:1] in (["ignore"], ["default"], ["once"]) or keywords.get("action") == "ignore"
                if (
                    origin in ("warnings.filterwarnings", "warnings.simplefilter")
                    and quiet
                    and "category" not in keywords
                ):
                    self._reader.filter_warnings(origin.rpartition(".")[2], values, keywords)
                    return
        self._must_be_inert(node, call)

    def _pass(self, node: Any) -> None:
        """Nothing."""

    # Expressions.

    def _must_be_inert(self, node: Any, *expressions: Any) -> None:
        for expression in expressions:
            if expression is not None and not self._is_inert(expression):
                raise _Stop(_source(node))

    def _is_inert(self, node: Any) -> bool:
        """Whether working it out can do nothing, and its value can do nothing where it is used."""
        match type(node).__name__:
            case "Constant" | "Load":
                return True
            case "Name":
                kind = self._names.get(node.id)
                return kind != UNKNOWN if kind is not None else node.id in self._builtins
            case "Attribute":
                return self._origin(node) is not None or self._names.get(getattr(node.value, "id", "")) == CLASS
            case "Call":
                if self._origin(node.func) not in INERT_CALLS:
                    return False
                return all(map(self._is_inert, node.args)) and all(self._is_inert(one.value) for one in node.keywords)
            case "Lambda":
                defaults = [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
                return all(map(self._is_inert, defaults))
            case "Tuple" | "List" | "Dict" | "Set" | "UnaryOp" | "BinOp" | "Subscript" | "Slice" | "Starred":
                pass
            case "BoolOp" | "Compare" | "IfExp" | "JoinedStr" | "FormattedValue":
                pass
            case _:
                return False
        return all(self._is_inert(part) for field in node._fields for part in _parts(getattr(node, field)))

    def _origin(self, node: Any) -> str | None:
        """Where a name or an attribute comes from, such as "torch.nn.Module"; None for all that is not imported."""
        names: list[str] = []
        while type(node).__name__ == "Attribute":
            names.append(node.attr)
            node = node.value
        if type(node).__name__ != "Name":
            return None
        kind = self._names.get(node.id)
        if kind is None and node.id in self._builtins:
            return ".".join([f"builtins.{node.id}", *reversed(names)])
        if kind is None or not kind.startswith(IMPORTED):
            return None
        return ".".join([kind.removeprefix(IMPORTED), *reversed(names)])

    def _bind(self, name: str, kind: str) -> None:
        self._names[name] = kind

    def _where(self, node: Any) -> str:
        return f"{os.path.basename(self._file)}:{node.lineno}"


NOTHING = object()


def _constant(node: Any) -> Any:
    return node.value if type(node).__name__ == "Constant" else NOTHING


def _defined(node: Any) -> list[str]:
    """The names that a statement in a class defines."""
    targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
    return [name for name in (getattr(node, "name", None), *(getattr(one, "id", None) for one in targets)) if name]


def _parts(value: Any) -> list[Any]:
    """The expressions in one field of a node, which may be one, several, or an operator."""
    listed: list[Any] = [*value] if isinstance(value, list) else [value]
    return [part for part in listed if hasattr(part, "lineno")]


def _source(node: Any) -> str:
    """What a statement is, in a word or two. Never a value: it may be a secret."""
    match type(node).__name__:
        case "Expr" | "Assign" | "AnnAssign" | "AugAssign" if type(node.value).__name__ == "Call":
            return f"a call of {_dotted(node.value.func)}"
        case "Call":
            return f"a call of {_dotted(node.func)}"
        case "Name" | "Attribute":
            return _dotted(node)
        case "Assign" | "AnnAssign" | "AugAssign":
            return "an assignment"
        case "FunctionDef" | "AsyncFunctionDef" | "ClassDef":
            return f"the definition of {node.name}"
        case "keyword":
            return f"{node.arg}="
        case kind:
            return f"a statement ({kind.lower()})"


def _dotted(node: Any) -> str:
    names: list[str] = []
    while type(node).__name__ == "Attribute":
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


def parse(file: str, noted: dict[str, tuple[int, int]]) -> Any:
    """The file's tree, with when it was changed put into `noted`; None where it cannot be read or understood."""
    stamp = _stamp(file)
    try:
        with open(file, "rb") as opened:
            source = opened.read(LARGEST + 1)
        if len(source) > LARGEST:
            return None
        with _quiet():
            tree = compile(source, file, "exec", _ONLY_AST, dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    noted[file] = stamp
    return tree


class _quiet:
    """No warning is given or noted meanwhile: the script is to give its own."""

    def __enter__(self) -> None:
        self._module: Any = sys.modules.get("warnings", _warnings)
        self._kept = list(self._module.filters)
        self._module.filters[:] = [("ignore", None, Warning, None, 0)]
        tell_of_filters()

    def __exit__(self, *_: object) -> None:
        self._module.filters[:] = self._kept
        tell_of_filters()


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def mentions(kind: str, target: str, trees: Mapping[str, Any]) -> tuple[set[str], set[str]]:
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
        tree = trees.get(file) or parse(file, {})
        for node in _walk(tree) if tree is not None else ():
            match type(node).__name__:
                case "Name":
                    identifiers.add(node.id)
                case "Attribute":
                    identifiers.add(node.attr)
                case "alias":
                    identifiers.update(node.name.split("."))
                case "keyword" if node.arg:
                    texts.add(node.arg)
                case "Constant" if isinstance(node.value, str):
                    texts.add(node.value)
                case _:
                    pass
            waiting += _imported_files(node, file, folder)
    return identifiers, texts


def _imported_files(node: Any, file: str, folder: str) -> Iterable[str]:
    match type(node).__name__:
        case "Import":
            modules: list[list[str]] = [alias.name.split(".") for alias in node.names]
        case "ImportFrom":
            base: list[str] = node.module.split(".") if node.module else []
            modules = [base, *([*base, alias.name] for alias in node.names)]
            for _ in range(node.level):
                file = os.path.dirname(file)
            folder = file if node.level else folder
        case _:
            return
    for parts in modules:
        for length in range(1, len(parts) + 1):
            if found := file_of(parts[:length], folder):
                yield found


def _walk(tree: Any) -> Iterable[Any]:
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in node._fields:
            value: Any = getattr(node, field, None)
            listed: list[Any] = [*value] if isinstance(value, list) else [value]
            waiting += [part for part in listed if hasattr(part, "_fields")]
