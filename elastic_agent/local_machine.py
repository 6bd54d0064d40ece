"""What an agent needs of the machine that it runs on: worker processes, a guardian, ports, a listener.

`RealMachine` has the operating system's. The simulator brings machines of its own, and runs the agent as it is: the
protocols here are what both have.
"""

import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ..adapters.contract import Lifetime, Service
from ..rendezvous import failure_detector
from ..rendezvous.member import Exit
from ..rendezvous.tcp_sockets import has_address, listens
from .diagnosis.running import Running
from .logs.output import Output
from .processes.guard import Guardian
from .worker_server import Methods, Respond, WorkerServer
from .workers.ports import Ports
from .workers.process_groups import ProcessGroups
from .workers.services import Services
from .workers.worker_processes import Workers, WorkerSpec
from .zygotes.seed import Limits, Recipe, Seed


class Reporter(Protocol):
    """Where the agent's own lines go (`logs.Output`)."""

    def say(self, line: str) -> None: ...
    def error_file(self, round: int, local_rank: int) -> Path: ...


class WorkerSet(Protocol):
    """The worker processes of one round after the other (`workers.Workers`, which explains each method)."""

    @property
    def exits(self) -> tuple[Exit, ...]: ...
    @property
    def alive(self) -> int: ...
    @property
    def pids(self) -> Mapping[int, int]: ...
    @property
    def unkillable(self) -> Sequence[int]: ...
    @property
    def running(self) -> Sequence[Running]: ...
    def condemn(self, rank: int, why: str) -> bool: ...
    def used(self, pids: Collection[int]) -> float: ...
    async def changed(self) -> None: ...
    def warm(self, recipe: Recipe) -> None: ...
    async def ready(self) -> None: ...
    async def start(self, specs: Sequence[WorkerSpec]) -> None: ...
    def let_go(self) -> None: ...
    def keep(self, kept: Mapping[int, WorkerSpec]) -> None: ...
    async def fill(self, specs: Sequence[WorkerSpec]) -> None: ...
    async def stop(self, *, first: int, grace: float) -> tuple[Exit, ...]: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    async def close(self, *, keep_detached: bool = False, sessions: frozenset[int] = frozenset()) -> None: ...


class Guard(Protocol):
    """What kills the workers of an agent that is gone or silent (`guard.Guardian`, which explains each method)."""

    def start(self) -> None: ...
    def beat(self) -> None: ...
    def pause(self) -> None: ...
    async def close(self, *, keep_detached: bool = False) -> None: ...


class PortSet(Protocol):
    """Ports that a node offers (`ports.Ports`, which explains each method)."""

    offered: tuple[int, ...]

    def renew(self) -> None: ...
    def release(self, port: int) -> bool: ...
    def hold(self) -> None: ...
    def close(self) -> None: ...


class WorkerServerOnMachine(Protocol):
    """Where the workers of this node ask their agent (`worker_server.WorkerServer`)."""

    address: str
    calls: Counter[int]
    rounds: dict[int, int]

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class ProcessGroupSet(Protocol):
    """The process groups of workers that stay (`process_groups.ProcessGroups`, which explains each method)."""

    short: bool

    def start(self, address: str) -> None: ...
    def close(self) -> None: ...
    def staying(self, pids: Collection[int]) -> frozenset[int]: ...
    def holding(self, pids: Collection[int]) -> frozenset[int]: ...
    def done(self, pids: Collection[int]) -> frozenset[int]: ...
    def waiting(self, pids: Collection[int]) -> frozenset[int]: ...
    def forming(self, pids: Collection[int]) -> frozenset[int]: ...
    def slowest(self, pids: Collection[int]) -> float: ...
    def trouble(self, pids: Collection[int]) -> str: ...
    def plan(self, pids: Collection[int], round: int) -> None: ...
    def break_groups(self, pids: Collection[int], round: int) -> None: ...
    def assign(self, pid: int, round: int, environment: Mapping[str, str]) -> bool: ...
    def forget(self, pid: int) -> None: ...
    def forget_all_but(self, pids: Collection[int]) -> None: ...


class ServiceSet(Protocol):
    """The services beside the workers (`services.Services`, which explains each method)."""

    @property
    def sessions(self) -> frozenset[int]: ...
    @property
    def said(self) -> Mapping[str, str]: ...
    @property
    def failure(self) -> str: ...
    @property
    def services(self) -> tuple[Service, ...]: ...
    async def enter(
        self, wanted: Sequence[Service], line: bytes, python: Sequence[str], environment: Mapping[str, str]
    ) -> None: ...
    async def ready(self) -> None: ...
    def tell(self, line: bytes) -> None: ...
    async def end(self, lifetimes: Iterable[Lifetime], grace: float) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Machine(Protocol):
    """Gives an agent its parts (`RealMachine`, which explains each method)."""

    def workers(self, tag: str, silence: float | None) -> tuple[WorkerSet, Guard]: ...
    def services(self, tag: str, changed: Callable[[], None]) -> ServiceSet: ...
    def ports(self, count: int, least: int) -> PortSet: ...
    def listener(self, bind: str) -> socket.socket: ...
    def has_address(self, address: str) -> bool: ...
    def worker_server(self, respond: Respond, also: Methods) -> WorkerServerOnMachine: ...
    def listens(self, port: int) -> bool: ...
    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> ProcessGroupSet: ...


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
        self._kept: tuple[Workers, Guardian] | None = None

    def close(self) -> None:
        """Ends what was begun early, where no agent has come to take it."""
        if self._early is not None:
            self._early[1].close()

    def workers(self, tag: str, silence: float | None) -> tuple[Workers, Guardian]:
        """The workers of the agent `tag`, and who guards them while it is not silent for `silence` seconds."""
        tag, seed = self._early or (tag, None)
        guardian = Guardian(tag=tag, silence=silence, say=self._output.say)
        workers = Workers(
            tag=tag, output=self._output, guardian=guardian, seed=seed, limits=self._limits, alone=self._alone
        )
        self._kept = workers, guardian
        return workers, guardian

    def services(self, tag: str, changed: Callable[[], None]) -> Services:
        """The services beside the workers that it has given; `changed` hears of their ends."""
        assert self._kept is not None, "services are beside workers"
        workers, guardian = self._kept
        tag = self._early[0] if self._early else tag
        return Services(
            tag=tag,
            output=self._output,
            guardian=guardian,
            apart=workers.apart,
            limits=self._limits,
            changed=changed,
        )

    def ports(self, count: int, least: int) -> Ports:
        """So many ports to offer, held from now on; OSError where fewer than `least` are free."""
        return Ports(count, least)

    def listener(self, bind: str) -> socket.socket:
        """A listening socket on a free port of that address; "" is every interface."""
        return failure_detector.listener(bind)

    def has_address(self, address: str) -> bool:
        """Whether an interface of this machine still has it; True where that cannot be known."""
        return has_address(address)

    def worker_server(self, respond: Respond, also: Methods) -> WorkerServer:
        """Where workers ask, and get what `respond` answers; `also` for other processes of this user."""
        return WorkerServer(respond, also)

    def listens(self, port: int) -> bool:
        """Whether a process of this machine listens at that TCP port. Raises OSError where that cannot be known."""
        return listens(port)

    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> ProcessGroups:
        """The process groups of workers that keep their process; `changed` hears of what they say."""
        return ProcessGroups(changed, pid_of, half_open_seconds)
