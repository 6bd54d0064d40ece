"""Checkpoints of a job's tables, written and read as the product does it, and the round that goes back to one."""

from pathlib import Path

import numpy as np

from elastic_run.adapters.servers.marks import Marks
from elastic_run.adapters.servers.part_files import PartReader, write_part
from elastic_run.adapters.servers.server_machine import ServerMachine
from elastic_run.adapters.servers.slot_roles import read_roles
from elastic_run.adapters.servers.tables import Tables
from elastic_run.master.servers.checkpoint_folder import CheckpointFolder, CheckpointManifest
from elastic_run.master.servers.checkpoint_keeper import can_be_saved, is_saved
from elastic_run.master.servers.slot_table import SLOTS, RunningServer, SlotTable
from elastic_run.rendezvous.base.frozen import replace


class SavedTables:
    """The folder that all machines see, and whoever leads.

    Args:
        every: seconds from one order to the next; 0: none is ever ordered.
    """

    def __init__(self, folder: Path, every: float) -> None:
        self._folder = CheckpointFolder(folder, "job")
        self._every = every
        self._due = every
        self.newest = 0

    def order(self, table: SlotTable, running: list[RunningServer], now: float) -> SlotTable:
        """The table that asks for one, where that is due; else the same object. Finishes what is written first."""
        if table.checkpoint > self.newest and is_saved(table, running):
            parts = tuple(table.servers[at].number for at in sorted(set(table.primary)))
            self._folder.complete_checkpoint(CheckpointManifest(table.version, parts))
            self.newest = table.version
        if not self._every or now < self._due or not can_be_saved(table, running):
            return table
        self._due = now + self._every
        return replace(table, version=table.version + 1, checkpoint=table.version + 1)

    def save_part(self, machine: ServerMachine, table: SlotTable, incarnation: str) -> bool:
        """As soon as a server has read the order; whether it has a part."""
        slots = machine.serving
        if slots.any():
            number = table.servers[table.index_of(incarnation)].number
            write_part(
                self._folder.name_part(table.version, number), table.version, slots, machine.tables, machine.marks
            )
        return bool(slots.any())

    def load_marks(self, checkpoint: int) -> Marks:
        """Of all slots."""
        marks, every = Marks(), np.ones(SLOTS, np.bool_)
        reader = PartReader(checkpoint, every, Tables(1 << 24), marks)
        for path in self._folder.read_parts(checkpoint):
            reader.read_part(path)
        marks.hold_slots(every)
        return marks

    def load_rows(self, machine: ServerMachine, table: SlotTable, incarnation: str) -> None:
        """Before the first table with slots."""
        if machine.has_begun or not table.serves or not table.restore:
            return
        roles = read_roles(table, incarnation)
        wanted = roles.mine | roles.kept
        reader = PartReader(table.restore, wanted, machine.tables, machine.marks)
        for path in self._folder.read_parts(table.restore) if wanted.any() else ():
            reader.read_part(path)
        machine.tables.note_restored(table.restore)
        assert not (wanted & ~reader.found).any(), "a checkpoint has all slots"
