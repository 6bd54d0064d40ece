"""A query of DuckDB as records: it runs once, into a Parquet file, since its rows have no order that could be sharded.

The file lies in a folder that all workers see, under a digest of the query and of the files that it reads: each worker,
and each later run, finds the same rows in the same order, or other files.
"""

import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

from .errors import BadFiles, FileChanged
from .found_files import known
from .opened import RecordFiles, open_files

RECORDS = "records.parquet"

_GROUP = 16_384
"""Rows of a row group: what is decoded at once for one record."""

_CONFIG = {
    "autoinstall_known_extensions": False,  # nothing is downloaded
    "autoload_known_extensions": False,
    "python_enable_replacements": False,  # a table is never a variable of the script
}

_FILES = ("read_", "parquet_", "glob", "sniff_csv")
"""How the names of functions begin that read the files which their first argument names."""

_PATIENCE = 3600.0
"""Seconds that a worker waits for another one on its machine, which runs the same query."""


def open_query(
    text: str,
    folder: str | os.PathLike[str],
    *,
    bad: Literal["fail"] | float = "fail",
    kinds: Mapping[str, str] | None = None,
) -> RecordFiles:
    """Runs a query, where its rows are not there yet, and opens them as `elastic_run.data.open` does.

    Args:
        text: one SELECT of DuckDB's SQL, such as "SELECT user, click FROM 'clicks/*.parquet' WHERE day > 3". Files are
            named by texts, and not by expressions.
        folder: where rows are kept, in a folder for each query and state of its files. All workers must see it.
        bad, kinds: as of `elastic_run.data.open`.

    Raises:
        elastic_run.exceptions.BadFiles: DuckDB is not there, the text is no SELECT, or the query fails.
        elastic_run.exceptions.FileChanged: a file was written meanwhile.
    """
    try:
        duckdb: Any = import_module("duckdb")  # Any: it is not always there
    except ModuleNotFoundError:
        raise BadFiles("a query needs the package duckdb: install elastic-run with its extra `sql`") from None
    with duckdb.connect(config=_CONFIG) as connection:
        try:
            query = _read_query(connection, text)
            place = Path(folder).absolute() / _digest(connection, query, Path(folder))
            if not place.is_dir():
                _run_once(connection, query, place)
        except duckdb.Error as error:
            raise BadFiles(f"the query fails: {error}") from None
        except OSError as error:
            raise BadFiles(f"the query's rows cannot be kept in {folder}: {error}") from None
    return open_files(place / RECORDS, bad=bad, kinds=kinds)


@dataclass(frozen=True, slots=True)
class Query:
    """What a text says.

    Attributes:
        select: without what is around it.
        named: the files and patterns that it names.
    """

    select: str
    named: tuple[str, ...]


def _read_query(connection: Any, text: str) -> Query:
    """Raises BadFiles."""
    [said] = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    tree: dict[str, Any] = json.loads(said)
    if tree.get("error"):
        raise BadFiles(f"the query is no SELECT that DuckDB reads: {tree.get('error_message')}")
    if len(tree["statements"]) != 1:
        raise BadFiles(f"a query is one SELECT, and here are {len(tree['statements'])}")
    [select] = connection.execute("SELECT json_deserialize_sql(?::JSON)", [said]).fetchone()
    named: list[str] = []
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            named.append(node["table_name"])
        elif node.get("type") == "TABLE_FUNCTION":
            named += _files_of(node["function"])
    return Query(select, tuple(named))


def _files_of(function: Mapping[str, Any]) -> list[str]:
    """What a function in place of a table reads: `read_csv(['a.csv', 'b*.csv'], delim=';')`. Raises BadFiles."""
    name: str = function["function_name"]
    if name.startswith("query"):
        raise BadFiles(f"{name}() in a query hides which files it reads: write them out")
    if not name.startswith(_FILES):
        return []
    arguments: list[dict[str, Any]] = function["arguments"]
    first: dict[str, Any] = arguments[0]["expression"] if arguments else {}
    listed: list[dict[str, Any]] = first.get("arguments", []) if first.get("function_name") == "list_value" else []
    each: list[dict[str, Any]] = [one["expression"] for one in listed] or [first]
    texts: list[dict[str, Any]] = [one.get("literal", {}) for one in each]
    if not all(one.get("kind") == "STRING" for one in texts):
        raise BadFiles(f"{name}() in a query must name its files by texts, so that it is known when they change")
    return [one["text"] for one in texts]


def _nodes(node: object) -> Iterator[dict[str, Any]]:
    """All objects in a tree of JSON."""
    if isinstance(node, dict):
        yield cast(dict[str, Any], node)
    if isinstance(node, dict | list):
        tree = cast(dict[str, object] | list[object], node)
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _nodes(each)


def _digest(connection: Any, query: Query, folder: Path) -> str:
    """Of a query, and of the name, size and time of change of each file that DuckDB finds for it. Raises BadFiles."""
    files: dict[Path, None] = {}
    for each in query.named:
        found = connection.execute("SELECT file FROM glob(?)", [each]).fetchall()
        files |= {path: None for (file,) in found if (path := Path(file.removeprefix("file://")).absolute()).is_file()}
    if within := next((file for file in files if folder.resolve() in file.resolve().parents), None):
        raise BadFiles(f"the query reads {within}, which is in the folder of its own rows: name another folder")
    states = [[str(file), each.size, each.mtime] for file in files for each in [known(str(file))]]
    return hashlib.blake2b(json.dumps([query.select, states]).encode(), digest_size=16).hexdigest()


def _run_once(connection: Any, query: Query, place: Path) -> None:
    """Writes the rows; who comes at the same time, on this machine, waits, and elsewhere writes rows of its own."""
    place.parent.mkdir(parents=True, exist_ok=True)
    mine = f".{place.name}.{socket.gethostname()}"
    lock = os.open(place.with_name(f"{mine}.lock"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _await_lock(lock, place)
        if place.is_dir():
            return
        for left in place.parent.glob(f"{mine}-*"):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix=f"{mine}-", dir=place.parent))
        try:
            made.chmod(0o755)
            (made / "query.sql").write_text(query.select + "\n", encoding="utf-8")
            target = str(made / RECORDS).replace("'", "''")
            connection.execute(f"COPY ({query.select}) TO '{target}' (FORMAT parquet, ROW_GROUP_SIZE {_GROUP})")
            if _digest(connection, query, place.parent) != place.name:
                raise FileChanged("a file that the query reads was written while it ran: start the job again")
            try:
                made.rename(place)
            except OSError:
                if not place.is_dir():  # another machine was faster: its rows are the ones
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
            place.with_name(f"{mine}.lock").unlink(missing_ok=True)
    finally:
        os.close(lock)


def _await_lock(lock: int, place: Path) -> None:
    """Returns when this process has the lock, or the rows are there. Raises BadFiles after `_PATIENCE`."""
    begun = told = time.monotonic()
    while not place.is_dir():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks
            return
        else:
            return
        now = time.monotonic()
        if now - begun > _PATIENCE:
            raise BadFiles(f"another process on this machine has run the query for {_PATIENCE:.0f} s, and does still")
        if now - told > 10.0:
            print(f"waiting for {now - begun:.0f} s for another process that runs the query of {place}", flush=True)
            told = now
        time.sleep(0.1)
