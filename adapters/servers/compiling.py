"""Has each loop compiled before a server is ready, or read from numba's cache: a worker must not wait for that."""

from collections.abc import Sequence

import numpy as np

from ...master.servers.slot_table import SLOTS, RunningServer, SlotTable
from . import kernels
from .buffer_pool import LEAST_BYTES
from .client import merge
from .record_file import DiskLimit
from .record_loops import MOST_HITS
from .routing import Routes
from .rows import FIRST_PLACES
from .server_events import Array
from .session import sum_parts
from .slot_sets import SlotSet
from .specs import FTRL, SGD, Adagrad, Adam, LeastRecent, Momentum, Normal, TableSpec, Uniform, Zeros
from .string_ids import hash_strings
from .tables import Tables, apply_parts, apply_where_present, find_parts
from .wire_numbers import read_numbers, round_numbers


def compile_loops(disk: DiskLimit | None = None) -> None:
    """Uses all there is once, with the types that requests have; `disk`: where rows may be. Raises OSError."""
    tables = Tables(1 << 20)
    slots = np.ones(SLOTS, np.bool_)
    some, ids, gradients = slots.copy(), np.arange(2), np.zeros((2, 1), np.float32)
    some[int(kernels.slot_of(ids[0]))] = False
    for optimizer in (SGD(1.0), Momentum(1.0), Adagrad(), Adam(), FTRL()):
        for initializer in (Zeros(), Uniform(), Normal()):
            name = f"{optimizer.code} {initializer.code}"
            tables.open_table(TableSpec(name, 1, optimizer, initializer))
            _use_table(tables, name, [ids, gradients], slots, some)
    tables.open_table(TableSpec("managed", 1, SGD(1.0), Zeros(), admit_after=2, evict=LeastRecent(rows=SLOTS)))
    for _ in range(2):  # seen, and admitted
        _use_table(tables, "managed", [ids, gradients], slots, some)
    many = np.arange(kernels.PARTS * FIRST_PLACES)  # so that its parts are lengthened
    for name in ("SGD Zeros", "managed"):
        rows = tables.find_table(name)
        rows.make(many, rows.find(many))
    rows.evict_rows(np.arange(SLOTS), np.zeros(SLOTS, np.bool_))
    if disk is not None:
        _use_disk(disk)
    _use_as_worker(ids, gradients)


def _use_disk(disk: DiskLimit) -> None:
    """Writes rows, and reads them again. Raises OSError, in words."""
    tables = Tables(1 << 20, DiskLimit(disk.folder, 1 << 20))
    tables.open_table(TableSpec("disk", LEAST_BYTES // 4, Adam(), Normal()))
    (rows,), ids = tables.list_rows(), np.arange(8)
    rows.apply(rows.make(ids, rows.find(ids)), np.zeros((len(ids), rows.spec.columns), np.float32))
    for _ in range(MOST_HITS + 1):
        if rows.pool is not None:
            rows.pool.spill(len(ids))
    if tables.shared is not None and (why := tables.shared.space.failure):
        raise OSError(why)
    rows.read(rows.find(ids[:4]), ids[:4])
    rows.apply(rows.find(ids), np.zeros((len(ids), rows.spec.columns), np.float32))
    rows.count_bytes(rows.find(ids))


def _use_table(tables: Tables, name: str, arrays: Sequence[Array], slots: SlotSet, some: SlotSet) -> None:
    parts = tables.read_push((name,), arrays, slots)
    apply_parts(find_parts(parts), reuse=True, at=0)
    apply_where_present([part.choose_slots(some) for part in parts])
    tables.pull_rows((name,), [arrays[0][:1].copy()], some | slots)
    rows = tables.find_table(name)
    piece, _ = rows.copy_piece(0, slots, 2)
    rows.forget_slots(~some)
    rows.remove_some()
    rows.put_piece(piece)
    kernels.are_ids_of(arrays[0], some)


def _use_as_worker(ids: Array, gradients: Array) -> None:
    """What workers use: their first start finds it, too."""
    sum_parts([(merge(ids)[0], gradients), (ids, gradients)])
    grouped = Routes(SlotTable(1, (), (RunningServer(0, "any", "any"),), (0,) * SLOTS)).group_ids(ids)
    for each in (gradients, round_numbers(gradients, "bfloat16")):
        kernels.has_unusable(read_numbers(grouped.reorder_rows(each)))
    hash_strings(["some"], 0)
