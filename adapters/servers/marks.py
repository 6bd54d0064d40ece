"""How far each shard of the data has been applied to the rows here (pure): what makes a gradient count once.

A worker that has a lease of a shard pushes the gradients of its records in the order in which it uses them, and says
with each push which records they are of. A slot keeps, for each shard, how far that has come: its *mark*, which
changes together with its rows. When a worker is lost, the rest of its shard is leased anew, from a record that the
ledger knows of: what lies between that and a mark is in the rows already. So whoever leases a shard reads its marks and
cuts its batches at each of them, and what lies below a mark is not applied again.
"""

from typing import Any

import numpy as np

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Number
from .kernels import SLOTS
from .specs import Name

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class PushSource:
    """Which records a push is of.

    Attributes:
        dataset: the name of the dataset.
        shard_index: of the shard, in the order of all epochs.
        lease: the shard's how many-th: one that follows a lost worker's has a higher number.
        begin, end: records of the shard, in the order of their use.
    """

    dataset: Name
    shard_index: Number
    lease: Number
    begin: Number
    end: Number


class ClaimRefused(Exception):
    """Nothing of the push may be applied; the message says why."""


class Marks:
    """Those of the slots that are here.

    Args:
        here: a bool for each slot.
    """

    def __init__(self, here: Array) -> None:
        self._here = here
        self._applied: dict[tuple[str, int], Array] = {}
        self._leases: dict[tuple[str, int], int] = {}

    def read(self, dataset: str, shard_index: int) -> list[int]:
        """How many records of the shard slots have, in order, each number once; empty where nothing is known of it."""
        applied = self._applied.get((dataset, shard_index))
        return [] if applied is None else sorted(set(applied[self._here].tolist()))

    def judge(self, source: PushSource) -> Array:
        """To which slots the push is new: a bool for each. Raises ClaimRefused."""
        key = source.dataset, source.shard_index
        what = f"records {source.begin} to {source.end} of shard {source.shard_index} of {source.dataset!r}"
        if source.begin >= source.end:
            raise ClaimRefused(f"{what} are none")
        if source.lease < self._leases.get(key, 0):
            raise ClaimRefused(f"{what} are pushed under lease {source.lease}, which lease {self._leases[key]} follows")
        if (applied := self._applied.get(key)) is None:
            return self._here
        new = self._here & (applied < source.end)
        if (cut := new & (applied > source.begin)).any():
            raise ClaimRefused(f"{what} are applied in part: cut the batch at record {applied[cut].min()}")
        if (gap := new & (applied < source.begin)).any():
            raise ClaimRefused(f"{what} do not follow those before them: a slot has {applied[gap].min()} records")
        return new

    def advance(self, source: PushSource) -> None:
        """The push is applied."""
        key = source.dataset, source.shard_index
        applied = self._applied.setdefault(key, np.zeros(SLOTS, np.int64))
        np.maximum(applied, source.end, out=applied, where=self._here)
        self._leases[key] = source.lease
