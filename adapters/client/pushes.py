"""What follows from a script's word that records are in the model, where part of that model is on servers.

The servers' client (`adapters/servers/session.py`) registers itself here when a script declares its first table.
"""

from typing import Protocol


class Pushes(Protocol):
    """Pushes what a script has computed from records, when it names them; `dataset`: `Layout.order`."""

    def start_of(self, dataset: str, shard_index: int, offset: int) -> int:
        """From which record on the shard is to be used, where the ledger says `offset`: the others are applied."""
        ...

    def push(self, dataset: str, shard_index: int, begin: int, end: int) -> None:
        """Returns when what is known of these records of the shard is applied."""
        ...


registered: list[Pushes] = []
"""At most one."""
