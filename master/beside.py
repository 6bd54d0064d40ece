"""What else a job wants done where its master runs, without the master's knowing what that is."""

from collections.abc import Callable
from typing import Protocol

from ..rendezvous.election import Leadership
from ..rendezvous.keys import Keys
from ..rendezvous.store.contract import Store
from ..rendezvous.store.waits import Waits


class BesideMaster(Protocol):
    """Works for the whole job in the process whose master leads it; one leadership after the other."""

    async def work_beside(
        self, store: Store, keys: Keys, leadership: Leadership, say: Callable[[str], None], waits: Waits
    ) -> None:
        """Works until it is cancelled: when the job is over, or this process leads no more.

        It begins once the master has read what earlier ones have left, and has removed what is of another run.

        Args:
            store, keys: where the job is.
            leadership: what every write compares.
            say: prints one line for a person.
            waits: what waits for the store on this node.

        Raises Deposed when another master leads, StoreRefused; each ends this leadership, as the master's own do.
        """
        ...
