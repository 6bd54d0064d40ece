"""What an agent needs of the machine that it runs on: worker processes, a guardian, ports, a listener.

`RealMachine` has the operating system's. The simulator brings machines of its own, and runs the agent as it is.
"""

from collections.abc import Callable

from ..rendezvous import failure_detector
from ..rendezvous.host.tcp_sockets import has_address, listens
from .logs.output import Output
from .processes.guard import Guardian
from .worker_server import WorkerServer
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

    ports = Ports
    process_groups = ProcessGroups
    worker_server = WorkerServer
    listener = staticmethod(failure_detector.listener)
    has_address = staticmethod(has_address)
    listens = staticmethod(listens)

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
        return workers, guardian, self.services(tag, workers, guardian, changed)

    def services(self, tag: str, workers: Workers, guardian: Guardian, changed: Callable[[], None]) -> Services:
        """Others of that agent, beside the same workers; none runs yet."""
        tag, _ = self._early or (tag, None)
        return Services(tag, self._output, guardian, workers.apart, self._limits, changed)
