"""How far each shard of the data has been applied to the rows here (pure): what makes a gradient count once.

A worker that has a lease of a shard pushes the gradients of its records in the order in which it uses them, and says
with each push which records they are of. The server keeps, for each shard, how far that has come: its *mark*, which
changes together with the rows. When a worker is lost, the rest of its shard is leased anew, from a record that the
ledger knows of: what lies between that and the mark is in the rows already. So whoever leases a shard begins at its
mark, and what lies below a mark is not applied again.
"""

from .requests import PushSource


class RecordsRefused(Exception):
    """Nothing of the push may be applied; the message says why."""


class Marks:
    """Those of one server."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], tuple[int, int]] = {}  # by shard: its last lease, and how far it is applied

    def read(self, dataset: str, shard_index: int) -> int:
        """How many records of the shard, from its beginning, are applied."""
        return self._held.get((dataset, shard_index), (0, 0))[1]

    def judge(self, source: PushSource) -> bool:
        """Whether the push is new: it is not where all of it is applied. Raises RecordsRefused."""
        held = self._held.get((source.dataset, source.shard_index))
        what = f"records {source.begin} to {source.end} of shard {source.shard_index} of {source.dataset!r}"
        if source.begin >= source.end:
            raise RecordsRefused(f"{what} are none")
        if held is None:
            return True
        lease, applied = held
        if source.lease < lease:
            raise RecordsRefused(f"{what} are pushed under lease {source.lease}, which lease {lease} follows")
        if source.begin < applied < source.end:
            raise RecordsRefused(f"{what} are applied in part: cut the batch at record {applied}")
        if applied < source.begin:
            raise RecordsRefused(f"{what} do not follow those before them: {applied} records are applied")
        return applied == source.begin

    def advance(self, source: PushSource) -> None:
        """The push is applied, now or before."""
        applied = max(source.end, self.read(source.dataset, source.shard_index))
        self._held[source.dataset, source.shard_index] = source.lease, applied
