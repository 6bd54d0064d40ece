"""What can be told of a model file from its source, without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from .errors import BadModel

NEEDED = {
    "forward": "def forward(): ...  # returns the module",
    "loss": "def loss(output, labels): ...  # returns a scalar, the mean over the batch",
    "optimizer": "def optimizer(parameters): ...  # returns an optimizer",
    "feed": "def feed(columns): ...  # returns inputs and labels",
}
"""What each model file has."""

FEATURES = ("features", "label")
"""What may stand for `feed`."""

OPTIONAL = ("metrics", "schedule", "callbacks")


def check_model(file: str) -> None:
    """Raises BadModel where there is no such file, Python cannot read it, or a function is missing."""
    path = Path(file)
    try:
        source = path.read_bytes()  # Python's own parser finds its encoding
    except OSError as error:
        raise BadModel(
            f"the model {file} cannot be read: {error.strerror}; elastic-run new deepfm > {path.stem or 'model'}.py "
            "makes one"
        ) from None
    check_source(source, file)


def check_source(source: str | bytes, file: str) -> None:
    """The same, of its text (pure)."""
    try:
        tree = ast.parse(source, file)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise BadModel(f"{file}{line} is no Python: {getattr(error, 'msg', error)}") from None
    names = set(_bound(tree.body))
    if "*" not in names:
        check_names(names, file)


def check_names(names: set[str], file: str) -> None:
    """Raises BadModel where one is missing that a model file has."""
    missing = [name for name in NEEDED if name not in names]
    if "features" in names and "feed" in missing:
        missing.remove("feed")
        if "label" not in names:
            raise BadModel(f'{file} has features and no label: add label = "click", the column that is learned')
    if missing:
        raise BadModel(f"{file} has no {' and no '.join(f'{name}()' for name in missing)}: add {NEEDED[missing[0]]}")


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names that these statements may bind at the top of a module; `*`: any."""
    for node in body:
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.Import(names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name for each in names)
            case ast.Assign(targets):
                yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(name)):
                yield name
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                for field in ("body", "orelse", "finalbody"):
                    yield from _bound(getattr(node, field, []))
                for handler in getattr(node, "handlers", []):
                    yield from _bound(handler.body)
            case _:
                pass
