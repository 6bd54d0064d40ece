"""What an agent needs of the machine that it runs on: worker processes, a guardian, ports, a place to be heard at.

`RealMachine` has the operating system's. The simulator brings machines of its own, and runs the agent as it is.
"""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..rendezvous import presence
from ..rendezvous.member import Exit
from .channel import Desk, Respond
from .guardian import Guardian
from .logs import Output
from .ports import Ports
from .workers import Workers, WorkerSpec


class Voice(Protocol):
    """Where the agent's own lines go (`logs.Output`)."""

    def say(self, line: str) -> None:
        """Prints one line for a person."""
        ...

    def error_file(self, round: int, local_rank: int) -> Path:
        """Where that worker's library may describe its error."""
        ...


class WorkerSet(Protocol):
    """The worker processes of one round after the other (`workers.Workers`, where each method is explained)."""

    @property
    def exits(self) -> tuple[Exit, ...]:
        """The ends of the current workers, in the order of arrival."""
        ...

    @property
    def alive(self) -> int:
        """How many of the current workers have not ended."""
        ...

    async def changed(self) -> None:
        """Waits until `exits` or `alive` has changed."""
        ...

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Starts all or none (StartFailed)."""
        ...

    async def stop(self, *, first: int, grace: float) -> tuple[Exit, ...]:
        """Ends all; goes on where the caller is cancelled."""
        ...

    def pause(self) -> None:
        """Stops them where they are."""
        ...

    def resume(self) -> None:
        """Lets them go on."""
        ...

    async def close(self) -> None:
        """Kills what still runs."""
        ...


class Guard(Protocol):
    """What kills the workers of an agent that is gone or silent (`guardian.Guardian`)."""

    def start(self) -> None:
        """Begins to watch."""
        ...

    def beat(self) -> None:
        """The agent is alive."""
        ...

    def pause(self) -> None:
        """Silence is meant from now on, until the next beat."""
        ...

    async def close(self) -> None:
        """Ends it; its workers must be gone."""
        ...


class PortSet(Protocol):
    """The ports that a node offers for MASTER_PORT (`ports.Ports`)."""

    offered: tuple[int, ...]

    def renew(self) -> None:
        """Offers others; OSError where none is free."""
        ...

    def release(self, port: int) -> bool:
        """Lets go of one for the workers; False where somebody else has it."""
        ...

    def hold(self) -> None:
        """Takes back those that are free."""
        ...

    def close(self) -> None:
        """Lets go of all."""
        ...


class DeskOnMachine(Protocol):
    """Where the workers of this node ask their agent (`channel.Desk`)."""

    address: str

    async def start(self) -> None:
        """Begins to listen; OSError."""
        ...

    async def close(self) -> None:
        """Hangs up."""
        ...


class Machine(Protocol):
    """Gives an agent its parts."""

    def workers(self, tag: str, silence: float | None) -> tuple[WorkerSet, Guard]:
        """The workers of the agent `tag`, and who guards them while it is not silent for `silence` seconds."""
        ...

    def ports(self) -> PortSet:
        """Ports to offer, held from now on."""
        ...

    def listener(self, bind: str) -> socket.socket:
        """A listening socket on a free port of that address; "" is every interface."""
        ...

    def desk(self, respond: Respond) -> DeskOnMachine:
        """Where workers ask, and get what `respond` answers."""
        ...


class RealMachine:
    """This one.

    Args:
        output: where the workers' lines go.
    """

    def __init__(self, output: Output) -> None:
        self._output = output

    def workers(self, tag: str, silence: float | None) -> tuple[Workers, Guardian]:
        """See `Machine.workers`."""
        guardian = Guardian(tag=tag, silence=silence, say=self._output.say)
        return Workers(tag=tag, output=self._output, guardian=guardian), guardian

    def ports(self) -> Ports:
        """See `Machine.ports`."""
        return Ports()

    def listener(self, bind: str) -> socket.socket:
        """See `Machine.listener`."""
        return presence.listener(bind)

    def desk(self, respond: Respond) -> Desk:
        """See `Machine.desk`."""
        return Desk(respond)
