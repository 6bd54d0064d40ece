"""Where the index of a data file is kept: beside it (`.NAME.elastic-run-index`), or in the user's cache folder.

An index is bound to what its `head` says. One that is damaged, of another file or not this user's own is passed over.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...rendezvous.host.named_files import open_to_read, planted

_LARGEST = 16 << 30
"""Bytes of an index that is read: enough for 16 TB of CSV."""


def read_indexes(path: Path, head: Mapping[str, object]) -> Iterator[tuple[int, bytes]]:
    """How many records, and the rest of each index of that file that is kept, the best one first."""
    for place in _places(path):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            if planted(place):
                continue
            with open_to_read(place) as opened:
                status = os.fstat(opened.fileno())
                if status.st_uid != os.geteuid() or status.st_size > _LARGEST:
                    continue
                line, _, body = opened.read(status.st_size).partition(b"\n")
            found: Mapping[str, Any] = json.loads(line)  # Any: from a file
            size, check = found["records"], found["check"]
            whole = found == {**head, "records": size, "check": check} and type(size) is int and 0 <= size < 2**63
            if whole and check == _checksum(size, body):
                yield size, body


def keep_index(path: Path, head: Mapping[str, object], size: int, body: bytes) -> None:
    """Writes the index where that is possible; nothing depends on it."""
    line = json.dumps({**head, "records": size, "check": _checksum(size, body)})
    for place in _places(path):
        with contextlib.suppress(OSError):
            if place.suffix != ".elastic-run-index":
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".elastic-run-", dir=place.parent)  # nobody else's
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(line.encode() + b"\n" + body)
                Path(name).replace(place)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            return


def _checksum(size: int, body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16, salt=size.to_bytes(16, "little")).hexdigest()


def _places(path: Path) -> list[Path]:
    """Where an index may lie, the best one first."""
    path = path.absolute()
    found = [path.with_name(f".{path.name}.elastic-run-index")]
    with contextlib.suppress(RuntimeError):
        name = hashlib.blake2b(os.fsencode(path), digest_size=16).hexdigest()
        found.append(cache_folder() / "indexes" / name)
    return found


def cache_folder() -> Path:
    """Where this user keeps what can be made again. Raises RuntimeError for a user without a home."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache.startswith("/") else Path.home() / ".cache") / "elastic-run"
