"""A job in one statement of SQL: a SELECT of DuckDB's, and what becomes of its rows (pure).

    SELECT ... TO TRAIN deepfm WITH epochs=2 LABEL click INTO model
    SELECT ... TO TRAIN 'my_model.py' INTO model
    SELECT ... TO EVALUATE model
    SELECT ... TO PREDICT outputs USING model

The SELECT is DuckDB's affair; DuckDB's own tokens say where it ends.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from ...rendezvous.base.frozen import dataclass
from . import zoo_files
from .errors import BadModel

Tokens = Callable[[str], Iterable[tuple[int, object]]]
"""`duckdb.tokenize`: where each token begins, in bytes, and its kind."""

CLAUSES = {"train": ("with", "label", "into"), "evaluate": ("with",), "predict": ("with", "using")}
"""What may follow each verb and its word, in this order."""

NEEDED = {"train": ("into",), "evaluate": (), "predict": ("using",)}


@dataclass(frozen=True, slots=True)
class Statement:
    """One of a program.

    Attributes:
        select: the query.
        verb: what becomes of its rows.
        model: to train: one of the zoo, or a file; else the folder that training has made.
        label: the column that is learned; empty: as the model's file says.
        folder: to train: where the model is made; to predict: where outputs are.
        flags: of `WITH`, as flags of the command.
    """

    select: str
    verb: Literal["train", "evaluate", "predict"]
    model: str
    label: str = ""
    folder: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a program's text.

    Attributes:
        text: without quotes.
        begin, end: in the text, in bytes, with what follows before the next token.
        quoted: it is a text or a name in quotes.
    """

    text: str
    begin: int
    end: int
    quoted: bool

    def means(self, word: str) -> bool:
        """It is this word or sign, in whatever case."""
        return not self.quoted and self.text.lower() == word


def read_program(text: str, tokenize: Tokens) -> list[Statement]:
    """The statements of a program, which end with `;`. Raises BadModel."""
    statements = list[Statement]()
    part = list[Token]()
    data = text.encode()
    for token in [*_tokens(data, tokenize(text)), Token(";", len(data), len(data), quoted=False)]:
        if not token.means(";"):
            part.append(token)
        elif part:
            statements.append(_read_statement(data, part))
            part = []
    if not statements:
        raise BadModel("there is no statement: write SELECT ... TO TRAIN deepfm LABEL click INTO model")
    return statements


def _tokens(data: bytes, found: Iterable[tuple[int, object]]) -> Iterator[Token]:
    begins = [*((begin, str(kind)) for begin, kind in found), (len(data), "comment")]
    for (begin, kind), (end, _) in pairwise(begins):
        if kind.endswith("comment"):
            continue
        word = data[begin:end].decode().strip()
        quote = word[:1] if word[:1] in ("'", '"') and word[-1:] == word[:1] else ""
        text = word[1:-1].replace(quote * 2, quote) if quote else word
        # A sign may come with the blank and the sign that follow it.
        for sign in text.split() if not quote and kind.endswith("operator") else [text]:
            yield Token(sign, begin, end, bool(quote))


def _read_statement(data: bytes, tokens: Sequence[Token]) -> Statement:
    depth = 0
    for at, token in enumerate(tokens):
        depth += token.means("(") - token.means(")")
        verb = tokens[at + 1].text.lower() if at + 1 < len(tokens) else ""
        if depth == 0 and token.means("to") and verb in CLAUSES:
            select = data[tokens[0].begin : token.begin].decode().strip()
            if not select:
                raise BadModel(f"TO {verb.upper()} follows no SELECT")
            return _read_task(select, verb, list(tokens[at + 2 :]))
    begun = data[tokens[0].begin : tokens[-1].end].decode().strip()
    raise BadModel(
        f"{_short(begun)} says not what becomes of its rows: end it with TO TRAIN model LABEL column INTO folder, TO "
        "EVALUATE folder, or TO PREDICT outputs USING folder"
    )


def _read_task(select: str, verb: str, left: list[Token]) -> Statement:
    if not left:
        raise BadModel(f"TO {verb.upper()} ends the statement, and what is missing: {_form(verb)}")
    found = {"model": _take_name(verb, left)}
    flags = tuple[str, ...]()
    for clause in CLAUSES[verb]:
        if not left or not left[0].means(clause):
            continue
        left.pop(0)
        if clause == "with":
            flags = tuple(_take_flags(verb, left))
        else:
            found[clause] = _take_name(clause, left)
    if left:
        raise BadModel(f"{left[0].text!r} is not understood after TO {verb.upper()}: write {_form(verb)}")
    if missing := [clause for clause in NEEDED[verb] if clause not in found]:
        raise BadModel(f"{missing[0].upper()} is missing: write {_form(verb)}")
    if verb == "train":
        return _check_label(Statement(select, "train", found["model"], found.get("label", ""), found["into"], flags))
    if verb == "predict":
        return Statement(select, "predict", found["using"], "", found["model"], flags)
    return Statement(select, "evaluate", found["model"], "", "", flags)


def _check_label(statement: Statement) -> Statement:
    known = zoo_files.list_names()
    if statement.model.endswith(".py"):
        if statement.label:
            raise BadModel(f"{statement.model} says itself what it learns: leave LABEL {statement.label} out")
        return statement
    if statement.model not in known:
        raise BadModel(f"there is no model {statement.model!r}: name a file that ends in .py, or {', '.join(known)}")
    if not statement.label:
        raise BadModel(f"LABEL is missing: say which column {statement.model} learns")
    return statement


def _form(verb: str) -> str:
    return {
        "train": "TO TRAIN model [WITH epochs=2, ...] LABEL column INTO folder",
        "evaluate": "TO EVALUATE folder [WITH batch_size=1024, ...]",
        "predict": "TO PREDICT outputs [WITH ...] USING folder",
    }[verb]


def _take_name(clause: str, left: list[Token]) -> str:
    if not left or not left[0].text or not (left[0].quoted or left[0].text.replace("_", "a").isalnum()):
        raise BadModel(f"a name is missing after {clause.upper()}: others than words are written in quotes")
    return left.pop(0).text


def _take_flags(verb: str, left: list[Token]) -> Iterator[str]:
    """Of `name = value, ...`."""
    while True:
        name = _take_name("with", left).replace("_", "-")
        if len(left) < 2 or not left[0].means("="):
            raise BadModel(f"WITH {name} has no value: write {_form(verb)}")
        left.pop(0)
        yield f"--{name}={left.pop(0).text}"
        if not left or not left[0].means(","):
            return
        left.pop(0)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) < 60 else line[:57] + "...")


def write_model(name: str, label: str) -> str:
    """A model of the zoo whose features are inferred from all columns, and which learns that one: its source."""
    source = zoo_files.read_model(name)
    lines = source.splitlines(keepends=True)
    values = {"features": '"auto"  # what it makes of the columns is printed', "label": repr(label)}
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id in values:
            lines[node.lineno - 1 : node.end_lineno] = [f"{target.id} = {values[target.id]}\n"]
    return "".join(lines).replace("Category, Features, FittedFeatures, Numeric", "FittedFeatures")
