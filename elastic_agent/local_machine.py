"""What an agent needs of the machine that it runs on: worker processes, a guardian, ports, a listener.

`RealMachine` has the operating system's. The simulator brings machines of its own, and runs the agent as it is.
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

    @property
    def pids(self) -> Mapping[int, int]:
        """The living workers: local rank to pid."""
        ...

    @property
    def unkillable(self) -> Sequence[int]:
        """The pids of processes that SIGKILL has not ended in time, and that are still there."""
        ...

    @property
    def running(self) -> Sequence[Running]:
        """The current workers, those that have ended included."""
        ...

    def condemn(self, rank: int, why: str) -> bool:
        """Kills the worker of that rank; False where there is none."""
        ...

    def used(self, pids: Collection[int]) -> float:
        """Seconds of processor that these and their children have used."""
        ...

    async def changed(self) -> None:
        """Waits until `exits` or `alive` has changed."""
        ...

    def warm(self, recipe: Recipe) -> None:
        """Begins to make the warm interpreter that workers are forked from."""
        ...

    async def ready(self) -> None:
        """Waits until a start would wait for nothing more."""
        ...

    async def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Starts all or none (StartFailed)."""
        ...

    def let_go(self) -> None:
        """Has those begin that are held."""
        ...

    def keep(self, kept: Mapping[int, WorkerSpec]) -> None:
        """The next round, in which these, by pid, keep their process."""
        ...

    async def fill(self, specs: Sequence[WorkerSpec]) -> None:
        """Ends those that were not kept, and starts all or none beside the others (StartFailed)."""
        ...

    async def stop(self, *, first: int, grace: float) -> tuple[Exit, ...]:
        """Ends all; goes on where the caller is cancelled."""
        ...

    def pause(self) -> None:
        """Stops them where they are."""
        ...

    def resume(self) -> None:
        """Lets them continue."""
        ...

    async def close(self, *, keep_detached: bool = False, sessions: frozenset[int] = frozenset()) -> None:
        """Kills what still runs; with `keep_detached` not what has left its worker's session."""
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

    async def close(self, *, keep_detached: bool = False) -> None:
        """Ends it; its workers must be gone. With `keep_detached` it leaves alone what else there is."""
        ...


class PortSet(Protocol):
    """Ports that a node offers (`ports.Ports`)."""

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


class WorkerServerOnMachine(Protocol):
    """Where the workers of this node ask their agent (`worker_server.WorkerServer`)."""

    address: str
    calls: Counter[int]
    rounds: dict[int, int]

    async def start(self) -> None:
        """Begins to listen; OSError."""
        ...

    async def close(self) -> None:
        """Hangs up."""
        ...


class ProcessGroupSet(Protocol):
    """The process groups of workers that stay (`process_groups.ProcessGroups`, which explains each method)."""

    short: bool

    def start(self, address: str) -> None:
        """Listens beside the server for workers; OSError."""
        ...

    def close(self) -> None:
        """Hangs up."""
        ...

    def staying(self, pids: Collection[int]) -> frozenset[int]:
        """Those that keep their process."""
        ...

    def holding(self, pids: Collection[int]) -> frozenset[int]:
        """Those that have the job's state."""
        ...

    def done(self, pids: Collection[int]) -> frozenset[int]:
        """Those that have trained to the end, and take no other rank."""
        ...

    def waiting(self, pids: Collection[int]) -> frozenset[int]:
        """Those that wait for their next rank assignment."""
        ...

    def forming(self, pids: Collection[int]) -> frozenset[int]:
        """Those whose process group does not stand yet."""
        ...

    def slowest(self, pids: Collection[int]) -> float:
        """Seconds that a step of them takes, where that is long."""
        ...

    def trouble(self, pids: Collection[int]) -> str:
        """What the first of them says that was broken."""
        ...

    def plan(self, pids: Collection[int], round: int) -> None:
        """Tells these that another round is wanted."""
        ...

    def break_groups(self, pids: Collection[int], round: int) -> None:
        """Breaks the process groups of these."""
        ...

    def assign(self, pid: int, round: int, environment: Mapping[str, str]) -> bool:
        """Gives one that waits its rank assignment; False where it has gone."""
        ...

    def forget(self, pid: int) -> None:
        """This worker has ended."""
        ...

    def forget_all_but(self, pids: Collection[int]) -> None:
        """All others have ended."""
        ...


class ServiceSet(Protocol):
    """The services beside the workers (`services.Services`, which explains each method)."""

    @property
    def sessions(self) -> frozenset[int]:
        """Of all that were ever started."""
        ...

    @property
    def said(self) -> Mapping[str, str]:
        """What each said last when it was ready."""
        ...

    @property
    def failure(self) -> str:
        """How one of them died; empty where none has."""
        ...

    @property
    def services(self) -> tuple[Service, ...]:
        """Those that run."""
        ...

    async def enter(
        self, wanted: Sequence[Service], line: bytes, python: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """These run, and know of a round; StartFailed."""
        ...

    async def ready(self) -> None:
        """Waits until they are ready, or late; StartFailed."""
        ...

    def tell(self, line: bytes) -> None:
        """Those that run hear of a round."""
        ...

    async def end(self, lifetimes: Iterable[Lifetime], grace: float) -> None:
        """Ends those of these lifetimes."""
        ...

    def pause(self) -> None:
        """Stops them where they are."""
        ...

    def resume(self) -> None:
        """Lets them continue."""
        ...


class Machine(Protocol):
    """Gives an agent its parts."""

    def workers(self, tag: str, silence: float | None) -> tuple[WorkerSet, Guard]:
        """The workers of the agent `tag`, and who guards them while it is not silent for `silence` seconds."""
        ...

    def services(self, tag: str, changed: Callable[[], None]) -> ServiceSet:
        """The services beside the workers that it has given; `changed` hears of their ends."""
        ...

    def ports(self, count: int, least: int) -> PortSet:
        """So many ports to offer, held from now on; OSError where fewer than `least` are free."""
        ...

    def listener(self, bind: str) -> socket.socket:
        """A listening socket on a free port of that address; "" is every interface."""
        ...

    def has_address(self, address: str) -> bool:
        """Whether an interface of this machine still has it; True where that cannot be known."""
        ...

    def worker_server(self, respond: Respond, also: Methods) -> WorkerServerOnMachine:
        """Where workers ask, and get what `respond` answers; `also` for other processes of this user."""
        ...

    def listens(self, port: int) -> bool:
        """Whether a process of this machine listens at that TCP port. Raises OSError where that cannot be known."""
        ...

    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> ProcessGroupSet:
        """The process groups of workers that keep their process; `changed` hears of what they say."""
        ...


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
        """See `Machine.workers`."""
        tag, seed = self._early or (tag, None)
        guardian = Guardian(tag=tag, silence=silence, say=self._output.say)
        workers = Workers(
            tag=tag, output=self._output, guardian=guardian, seed=seed, limits=self._limits, alone=self._alone
        )
        self._kept = workers, guardian
        return workers, guardian

    def services(self, tag: str, changed: Callable[[], None]) -> Services:
        """See `Machine.services`."""
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
        """See `Machine.ports`."""
        return Ports(count, least)

    def listener(self, bind: str) -> socket.socket:
        """See `Machine.listener`."""
        return failure_detector.listener(bind)

    def has_address(self, address: str) -> bool:
        """See `Machine.has_address`."""
        return has_address(address)

    def worker_server(self, respond: Respond, also: Methods) -> WorkerServer:
        """See `Machine.worker_server`."""
        return WorkerServer(respond, also)

    def listens(self, port: int) -> bool:
        """See `Machine`."""
        return listens(port)

    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> ProcessGroups:
        """See `Machine.process_groups`."""
        return ProcessGroups(changed, pid_of, half_open_seconds)
