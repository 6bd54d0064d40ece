"""A query of DuckDB as records: it runs once, into a Parquet file, since its rows have no order that could be sharded.

The file lies in a folder that all workers see, under a digest of the query and of the files that it reads: each worker,
and each later run, finds the same rows in the same order, or other files.
"""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
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


def open_query(text: str, folder: str | os.PathLike[str], *, bad: Literal["fail"] | float = "fail") -> RecordFiles:
    """Runs a query, where its rows are not there yet, and opens them as `elastic_run.data.open` does.

    Args:
        text: one SELECT of DuckDB's SQL, such as "SELECT user, click FROM 'clicks/*.parquet' WHERE day > 3".
        folder: where rows are kept, in a folder for each query and state of its files. All workers must see it.
        bad: as of `elastic_run.data.open`.

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
            select, named = _read_query(connection, text)
            place = Path(folder) / _digest(select, named)
            if not place.is_dir():
                _run_once(connection, select, named, place)
        except duckdb.Error as error:
            raise BadFiles(f"the query fails: {error}") from None
        except OSError as error:
            raise BadFiles(f"the query's rows cannot be kept in {folder}: {error}") from None
    return open_files(place / RECORDS, bad=bad)


def _read_query(connection: Any, text: str) -> tuple[str, list[str]]:
    """The SELECT without what is around it, and the files and patterns that it names. Raises BadFiles."""
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
        elif node.get("type") == "TABLE_FUNCTION":  # such as read_csv(['a.csv', 'b*.csv'])
            named += [each["text"] for each in _nodes(node) if each.get("kind") == "STRING"]
    return select, named


def _nodes(node: object) -> Iterator[dict[str, Any]]:
    """All objects in a tree of JSON."""
    if isinstance(node, dict):
        yield cast(dict[str, Any], node)
    if isinstance(node, dict | list):
        tree = cast(dict[str, object] | list[object], node)
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _nodes(each)


def _digest(select: str, named: Sequence[str]) -> str:
    """Of a query, and of the name, size and time of change of each file."""
    files = [file for each in named for file in ([each] if Path(each).is_file() else sorted(glob.glob(each)))]  # noqa: PTH207  # absolute ones, too
    states = [[file, each.size, each.mtime] for file in dict.fromkeys(files) for each in [known(file)]]
    return hashlib.blake2b(json.dumps([select, states]).encode(), digest_size=16).hexdigest()


def _run_once(connection: Any, select: str, named: Sequence[str], place: Path) -> None:
    """Writes the rows; who comes at the same time, on this machine, waits, and elsewhere writes rows of its own."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lock_path = place.with_name(f".{place.name}.lock")
    with lock_path.open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return
        made = Path(tempfile.mkdtemp(prefix=".elastic-run-", dir=place.parent))
        try:
            made.chmod(0o755)
            (made / "query.sql").write_text(select + "\n", encoding="utf-8")
            target = str(made / RECORDS).replace("'", "''")
            connection.execute(f"COPY ({select}) TO '{target}' (FORMAT parquet, ROW_GROUP_SIZE {_GROUP})")
            if _digest(select, named) != place.name:
                raise FileChanged("a file that the query reads was written while it ran: start the job again")
            try:
                made.rename(place)
            except OSError:
                if not place.is_dir():  # another machine was faster: its rows are the ones
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
            lock_path.unlink(missing_ok=True)
