"""What follows from a script's word that records are in the model, where part of that model is on servers.

The servers' client (`adapters/servers/session.py`) registers itself here when a script declares its first table.
"""

from typing import Protocol


class Pushes(Protocol):
    """Pushes what a script has computed from records, when it names them; `dataset`: `Layout.order`."""

    def cuts(self, dataset: str, shard_index: int, offset: int) -> list[int]:
        """Marks of the shard, at least one, ascending: the first is where it begins, and no push may cross another.

        What lies before a mark is applied in some of the model already, and what lies before the first in all of it.
        The ledger says `offset`, and nothing before that is done again.
        """
        ...

    def push(self, dataset: str, shard_index: int, begin: int, end: int) -> None:
        """Returns when what is known of these records of the shard is applied."""
        ...


registered: list[Pushes] = []
"""At most one."""
