"""What is in a server's memory: its rows and marks, read by what they offer to everybody."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from elastic_run.adapters.servers.marks import FINISHED_BEFORE, Marks
from elastic_run.adapters.servers.rows import Rows
from elastic_run.master.servers.slot_table import SLOTS

from .server_process import Array
from .trainers import Records

DEPTH = 3
"""How deep in a `ServerMachine` its parts may be."""


def find_parts(kernel: object) -> tuple[Marks, Mapping[str, Rows]]:
    """The marks and the tables of a `ServerMachine`, wherever it keeps them."""
    marks: list[Marks] = []
    tables: dict[str, Rows] = {}
    seen: set[int] = set()

    def walk(value: Any, depth: int) -> None:  # Any: whatever is found
        if id(value) in seen or depth > DEPTH:
            return
        seen.add(id(value))
        if isinstance(value, Marks):
            marks.append(value)
        elif isinstance(value, Rows):
            tables[value.spec.name] = value
        elif isinstance(value, dict):
            for each in value.values():  # pyright: ignore[reportUnknownVariableType]
                walk(each, depth + 1)
        elif value.__class__.__module__.startswith("elastic_run.adapters.servers"):
            for name in (*getattr(value, "__dict__", ()), *getattr(value, "__slots__", ())):
                walk(getattr(value, name, None), depth + 1)

    walk(kernel, 0)
    (found,) = marks
    return found, tables


@dataclass(frozen=True, slots=True)
class Universe:
    """All ids of a job, and how often each is in the first records of each shard.

    Attributes:
        ids: sorted, int64.
        slots: of each.
        counts: (shards, length + 1, ids) int64.
    """

    ids: Array
    slots: Array
    counts: Array


def count_records(records: Records) -> Universe:
    """Of these."""
    ids, first = np.unique(records.ids, return_index=True)
    shards, length, _ = records.ids.shape
    counts = np.zeros((shards, length + 1, len(ids)), np.int64)
    for shard in range(shards):
        for record in range(length):
            counts[shard, record + 1] = counts[shard, record]
            for each in records.ids[shard, record]:
                counts[shard, record + 1, ids == each] += 1
    return Universe(ids, records.slots.reshape(-1)[first], counts)


def read_marks(marks: Marks, shards: int, length: int, slots: Array) -> Array:
    """How far each shard, so long, is applied in each of these slots, a bool each: (shards, SLOTS) int64."""
    found = np.zeros((shards, SLOTS), np.int64)
    _, (several, apart, *_) = marks.take_slots(slots)
    for _, shard, _, mark in several.tolist():
        if mark == FINISHED_BEFORE:
            found[: shard + 1] = length
        elif shard < shards:  # ranks that are in step ask for the epoch after the last, too
            found[shard] = mark
    for at, slot, mark in apart.tolist():
        found[several[at, 1], slot] = mark
    return np.clip(found, 0, length)


def read_offsets(marks: Marks, shards: int, length: int, slots: Array) -> Array:
    """Which offsets of each partition are applied in each of these slots: (shards, length, SLOTS) bool."""
    found = np.zeros((shards, length, SLOTS), np.bool_)
    _, (_, _, names, stretches, apart) = marks.take_slots(slots)
    partitions = [int(partition) for _, partition in json.loads(names.tobytes())]
    for key, first, stop, _, whole in stretches.tolist():
        if whole:
            found[partitions[key], first:stop] = slots
    for at, slot in apart.tolist():
        key, first, stop, *_ = stretches[at].tolist()
        found[partitions[key], first:stop, slot] = True
    return found


def read_rows(rows: Rows, slots: Array) -> dict[int, bytes]:
    """All that each row of these slots is, by its id: the same bytes where two are the same."""
    found: dict[int, bytes] = {}
    first, following = 0, -1
    while first != following:
        first = max(following, 0)
        arrays, following = rows.copy_piece(first, slots, 1 << 16)
        for at, each in enumerate(arrays[0].tolist()):
            found[each] = b"".join(part[at].tobytes() for part in arrays[1:])
    return found
