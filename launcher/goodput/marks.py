"""What a script says of its own time: spans of certain names, in the trace of its node.

A worker that loads data, or writes a checkpoint, trains for the launcher. With `--trace` it can tell by spans that are
named after the categories (`elastic_run.trace.span("data_loading")`); spaces and hyphens do as well. Of spans inside
each other the inner one counts, so no time counts twice.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.host.named_files import open_to_read
from ...rendezvous.time_split import MARKED, Marked

FIRST = 1 << 20
"""Bytes of a long trace's beginning that are read: there most rows are named."""

LAST = 1 << 26
"""Bytes of its end."""

_NAMES: Mapping[str, Marked] = {name: name for name in MARKED}


@dataclass(frozen=True, slots=True)
class Mark:
    """A span of one rank, in whole microseconds of its node's clock."""

    rank: int
    name: Marked
    begun: int
    ended: int


def of_file(file: Path) -> Mapping[Marked, int]:
    """What the lowest rank that says anything says, in microseconds; nothing where the file cannot be read.

    Of a file longer than FIRST and LAST together, what lies between is not read (`unread`).
    """
    try:
        with open_to_read(file) as lines:
            return of_lowest_rank(read(_bounded(lines, unread(file))))
    except OSError:
        return {}


def unread(file: Path) -> int:
    """Bytes of a trace that `of_file` leaves out."""
    try:
        return max(0, file.stat().st_size - FIRST - LAST)
    except OSError:
        return 0


def _bounded(lines: BinaryIO, left_out: int) -> Iterator[bytes]:
    """The lines that are read; where bytes are left out, one line at each edge may be incomplete. Raises OSError."""
    if left_out:
        yield from lines.read(FIRST).splitlines(keepends=True)
        lines.seek(left_out, 1)
    yield from lines


def read(lines: Iterable[bytes]) -> Iterator[Mark]:
    """The marks in the lines of a trace, of main threads; what is no event is passed over."""
    ranks: dict[tuple[object, object], int] = {}
    for line in lines:
        if b'"thread_name"' not in line and b'"X"' not in line:
            continue
        try:
            event: dict[str, Any] = json.loads(line.rstrip(b",\n"))  # Any: what a line of a trace holds
            row = event["pid"], event["tid"]
            if event["ph"] == "M":
                if event["name"] == "thread_name" and (found := re.fullmatch(r"rank (\d+)", event["args"]["name"])):
                    ranks[row] = int(found[1])
                continue
            name = _NAMES.get(re.sub(r"[ -]", "_", event["name"]))
            if name and row in ranks:
                begun = round(event["ts"])
                yield Mark(ranks[row], name, begun, begun + round(event["dur"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue


def of_lowest_rank(marks: Iterable[Mark]) -> Mapping[Marked, int]:
    """Microseconds by category, of the lowest rank that has any."""
    found = list(marks)
    lowest = min((mark.rank for mark in found), default=0)
    return exclusive([mark for mark in found if mark.rank == lowest])


def exclusive(marks: Iterable[Mark]) -> Mapping[Marked, int]:
    """Microseconds by category; where marks overlap, the one that began last counts."""
    known = list(marks)
    edges = sorted({edge for mark in known for edge in (mark.begun, mark.ended)})
    waiting = sorted(known, key=lambda mark: (mark.begun, -mark.ended), reverse=True)
    open_: list[Mark] = []
    sums: dict[Marked, int] = {}
    for begun, ended in itertools.pairwise(edges):
        while waiting and waiting[-1].begun <= begun:
            open_.append(waiting.pop())
        open_ = [mark for mark in open_ if mark.ended > begun]
        if open_:
            sums[open_[-1].name] = sums.get(open_[-1].name, 0) + ended - begun
    return sums
