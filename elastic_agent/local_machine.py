"""What an agent needs of the machine that it runs on: worker processes, a guardian, ports, a listener.

`RealMachine` has the operating system's. The simulator brings machines of its own, and runs the agent as it is.
"""

import socket
from collections.abc import Callable

from ..rendezvous import failure_detector
from ..rendezvous.host.tcp_sockets import has_address, listens
from .logs.output import Output
from .processes.guard import Guardian
from .worker_server import Methods, Respond, WorkerServer
from .workers.ports import Ports
from .workers.process_groups import ProcessGroups
from .workers.services import Services
from .workers.worker_processes import Workers
from .zygotes.seed import Limits, Seed


class RealMachine:
    """This one.

    Args:
        output: where the workers' lines go.
        early: the agent's tag, and the process of a warm interpreter that carries it already.
        limits: the workers' soft limits; None: this process's own.
        alone: this process is the launcher's own, and not that of a program which calls `launch`.
    """

    def __init__(
        self,
        output: Output,
        early: tuple[str, Seed] | None = None,
        limits: Limits | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self._output = output
        self._early = early
        self._limits = limits
        self._alone = alone

    def close(self) -> None:
        """Ends what was begun early, where no agent has come to take it."""
        if self._early is not None:
            self._early[1].close()

    def workers(
        self, tag: str, silence: float | None, changed: Callable[[], None]
    ) -> tuple[Workers, Guardian, Services]:
        """The workers of the agent `tag`, who guards them while it is not silent for `silence` seconds, and services
        beside them; `changed` hears of the ends of these.
        """
        tag, seed = self._early or (tag, None)
        guardian = Guardian(tag=tag, silence=silence, say=self._output.say)
        workers = Workers(
            tag=tag, output=self._output, guardian=guardian, seed=seed, limits=self._limits, alone=self._alone
        )
        services = Services(
            tag=tag,
            output=self._output,
            guardian=guardian,
            apart=workers.apart,
            limits=self._limits,
            changed=changed,
        )
        return workers, guardian, services

    def ports(self, count: int, least: int) -> Ports:
        """So many ports to offer, held from now on; OSError where fewer than `least` are free."""
        return Ports(count, least)

    def listener(self, bind: str) -> socket.socket:
        """A listening socket on a free port of that address; "" is every interface."""
        return failure_detector.listener(bind)

    def has_address(self, address: str) -> bool:
        """Whether an interface of this machine still has it; True where that cannot be known."""
        return has_address(address)

    def worker_server(self, respond: Respond, also: Methods, say: Callable[[str], None]) -> WorkerServer:
        """Where workers ask, and get what `respond` answers; `also` for other processes of this user."""
        return WorkerServer(respond, also, say)

    def listens(self, port: int) -> bool:
        """Whether a process of this machine listens at that TCP port. Raises OSError where that cannot be known."""
        return listens(port)

    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> ProcessGroups:
        """The process groups of workers that keep their process; `changed` hears of what they say."""
        return ProcessGroups(changed, pid_of, half_open_seconds)
