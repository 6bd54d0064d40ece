"""What follows from a script's word that records are in the model, where part of that model is on servers.

The servers' client (`adapters/servers/session.py`) registers itself here when a script declares its first table.
"""

from typing import Protocol


class Pushes(Protocol):
    """Pushes what a script has computed from records, when it names them.

    `dataset` is `Layout.order`; `lease` is the number of the shard's lease: whoever has it after another worker, which
    was lost or has ended, has a higher one.
    """

    def cuts(self, dataset: str, shard_index: int, lease: int, offset: int) -> list[int]:
        """Marks of the shard, at least one, ascending: the first is where it begins, and no push may cross another.

        What lies before a mark is applied in some of the model already, and what lies before the first in all of it.
        The ledger says `offset`, and nothing before that is done again. From now on no push counts that was made under
        an earlier lease, so that the marks stay where they are.
        """
        ...

    def push(self, dataset: str, shard_index: int, lease: int, begin: int, end: int) -> None:
        """Returns when what is known of these records of the shard is applied."""
        ...


registered: list[Pushes] = []
"""At most one."""
