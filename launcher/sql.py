"""`elastic-run sql "SELECT ... TO TRAIN deepfm LABEL click INTO model"`: each statement as the job it stands for."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType

from ..adapters.models.errors import BadModel
from ..adapters.models.statements import Statement, read_program, write_model
from ..adapters.readers.errors import ReadersError
from .errors import UsageError

USAGE = """elastic-run sql STATEMENT [flags of elastic-run]
elastic-run sql PROGRAM.sql [flags of elastic-run]

  SELECT ... TO TRAIN deepfm WITH epochs=2 LABEL click INTO folder
  SELECT ... TO TRAIN 'model.py' INTO folder
  SELECT ... TO EVALUATE folder
  SELECT ... TO PREDICT outputs USING folder

Prints the command that each stands for, and runs it. The SELECT is DuckDB's, and names files: FROM 'clicks/*.parquet'.
Statements of a program end with ;. One that was interrupted is started again with the same words.
"""


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs a statement, or a file of them. Returns the exit code of the one that failed. Raises UsageError."""
    if not words or {"-h", "--help"} & set(words):
        print(USAGE, end="")
        return 0 if words else 2
    try:
        program = read_program(_read_text(words[0]), import_module("duckdb").tokenize)
        for statement in program:
            if code := _run_job(_prepare(statement, words[1:])):
                return code
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a statement needs the package {error.name}: install elastic-run with its extras `sql` and `torch`"
        ) from None
    except (BadModel, ReadersError, OSError) as error:
        raise UsageError(str(error)) from None
    return 0


def _read_text(word: str) -> str:
    return Path(word).read_text(encoding="utf-8") if word.lower().endswith(".sql") else word


def _prepare(statement: Statement, flags: Sequence[str]) -> list[str]:
    """The words that follow `elastic-run`, once the query has run and the model's file is there."""
    from ..adapters.readers.query import open_query  # here: it loads DuckDB and numpy

    folder = Path(statement.folder if statement.verb == "train" else statement.model)
    model = folder / "model.py"
    if statement.verb == "train":
        folder.mkdir(parents=True, exist_ok=True)
        source = (
            write_model(statement.model, statement.label)
            if statement.label
            else Path(statement.model).read_text(encoding="utf-8")
        )
        if model.exists() and model.read_text(encoding="utf-8") != source:
            raise BadModel(f"{model} is another model: train INTO another folder, or remove this one")
        model.write_text(source, encoding="utf-8")
    elif not model.exists():
        raise BadModel(f"there is no model in {folder}: TO TRAIN ... INTO {folder} makes one")
    [(file, _)] = open_query(statement.select, folder / "rows").files
    output = [f"--output={statement.folder}"] if statement.verb == "predict" else []
    words = [f"--data={file}", f"--state={folder / 'model.pt'}", *output, *statement.flags]
    return [statement.verb, str(model), *words, *flags]


def _run_job(words: Sequence[str]) -> int:
    """Runs it, and passes signals on to it."""
    print(f"elastic-run {shlex.join(words)}", flush=True)
    child = subprocess.Popen([sys.executable, "-m", "elastic_run", *words])

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:  # the terminal sends that to both
            child.send_signal(number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, pass_on)
    return child.wait()
