"""What a wing may run beside a node's workers for as long as the job lasts; the core knows no more of it than this."""

from collections.abc import Callable
from typing import Protocol

from ..master.machine.parameter_servers import NodeServers, RankWait
from ..rendezvous.keys import Keys
from ..rendezvous.store.contract import Store
from ..rendezvous.store.waits import Waits
from .inbox import Inbox
from .setup import Setup
from .workers.services import Services


class HostedProcesses(Protocol):
    """Processes of the job's on this node."""

    @property
    def failure(self) -> str:
        """Why the job cannot go on, in words; empty where it can."""
        ...

    @property
    def return_wanted(self) -> str:
        """Why the job is to go back to a checkpoint, in words; empty where it is not."""
        ...

    async def run(self) -> None:
        """Keeps what the job wants here, until it is cancelled; the processes live on."""
        ...

    async def answer(self, version: int, wait: RankWait, round: int) -> str:
        """What a worker of that round is told that knows this version and waits, within about a second."""
        ...

    def describe(self) -> NodeServers:
        """The processes as they are now, and the workers that wait for such."""
        ...

    async def give_away(self) -> None:
        """Before this node leaves: waits until others have what is here, as long as it has time for that."""
        ...

    def pause(self) -> None:
        """Stops the processes where they are."""
        ...

    def resume(self) -> None:
        """Lets them continue."""
        ...

    async def close(self) -> None:
        """Ends the processes."""
        ...


class Host(Protocol):
    """Makes them, for one agent."""

    def __call__(
        self,
        setup: Setup,
        store: Store,
        keys: Keys,
        waits: Waits,
        inbox: Inbox,
        say: Callable[[str], None],
        services: Callable[[], Services],
        /,
    ) -> HostedProcesses:
        """Made of what the agent has.

        Args:
            setup: what the agent is started with.
            store, keys: where the job is.
            waits: what waits for the store on this node.
            inbox: what the agent knows; its news wake everybody.
            say: prints one line for a person.
            services: makes an empty set of processes, each watched, shown and ended as services of the workers are.
        """
        ...
