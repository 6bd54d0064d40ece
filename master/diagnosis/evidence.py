"""What agents see of their workers from outside, as values (pure).

An agent looks at a worker several times within about a second, and each look is a `Snapshot`. Nothing here comes from
the worker itself, so a worker whose interpreter is blocked is seen as well as any other.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.wire.fields import Name, Number, Words
from ...rendezvous.wire.values import Count, Text
from ..machine.parameter_servers import MOST_AWAITED, RankWait, ServerReport

MAX_FRAMES = 40
"""Of one stack: of a deeper one the innermost and the outermost."""

MAX_SNAPSHOTS = 24
MAX_CHILDREN = 32
MAX_SOCKETS = 256
MAX_THREADS = 32
"""With Python code, of one look: the main thread is not among them."""
MAX_SIGNALS = 64
MAX_LINES = 8
"""Of a worker's last output, in a diagnosis."""

MAX_TAIL = 200
"""The same, where only that is asked for."""

HALTED = ("T", "t")
"""States of a process that is stopped, as the kernel calls them."""

DEAD = ("Z", "X")
"""States of a process that has ended."""

SPAWNS = ("vfork", "clone", "clone3")
"""Calls that wait, in state D, until a new process has begun its program."""

Brief = Annotated[str, Text(400)]
"""A path, a function or a line of output, cut by who writes it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One call of a Python stack.

    Attributes:
        arguments: of an operation between ranks, those that say between which: "src=0, tag=3".
    """

    file: Brief
    line: Number
    function: Brief
    arguments: Brief = ""

    @property
    def name(self) -> str:
        """Of its file, without the folders."""
        return self.file.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Socket:
    """One TCP connection of a worker.

    Attributes:
        local, remote: `address:port`; the remote of a listener ends in `:0`.
        unsent: bytes that the other end has not confirmed.
        retries: how often the kernel has sent the oldest of them again.
        listens: it is a listener.
    """

    local: Brief
    remote: Brief
    unsent: Number = 0
    retries: Number = 0
    listens: bool = False


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a thread waits for in the kernel.

    Attributes:
        call: the name of the system call; empty: it is in none, or this kernel does not tell.
        on: what the call waits for.
        target: the path, or the address of the other end.
        sockets: those that it waits for, where it waits for connections.
        ends: seconds after which it ends by itself, at most; None: it does not, or that is not known.
        holders: the processes that hold the lock on a file for which it waits, as far as the kernel tells.
        semaphore: it waits for a semaphore in memory of its process alone, as Python's locks are.
        shared: it waits for a lock in memory that other processes may share.
    """

    call: Name = ""
    on: Literal[
        "", "socket", "listener", "local socket", "pipe", "file", "terminal", "lock", "time", "child", "signal"
    ] = ""
    target: Brief = ""
    sockets: Annotated[tuple[Socket, ...], Count(MAX_SOCKETS)] = ()
    ends: float | None = None
    holders: Annotated[tuple[Number, ...], Count(MAX_CHILDREN)] = ()
    semaphore: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class ThreadState:
    """One look at another thread that runs Python code, or at the main thread of a process that the worker has started.

    Attributes:
        number: the kernel's.
        child: it is of a process that the worker has started.
        apart: that process has no connection but with the worker and its other processes, and no accelerator.
        state: as the kernel calls it.
        cpu: seconds of processor that it has used, and for which it was ready to use one.
        frames: its Python stack, the innermost first.
    """

    number: Number
    child: bool
    state: Name
    cpu: float = 0.0
    blocked: Blocked = Blocked()
    frames: Annotated[tuple[Frame, ...], Count(MAX_FRAMES)] = ()
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a worker.

    Attributes:
        at: seconds since the first look.
        state: of the main thread, as the kernel calls it: R, S, D, T, t, Z.
        channel: the kernel function in which the main thread waits; empty where it waits in none.
        cpu: seconds of processor that the process has used.
        main_cpu: the same of its main thread.
        child_cpu: the same of its living descendants.
        delayed: seconds for which its main thread was ready to run, and had no processor.
        switches: how often the main thread has stopped running.
        output: bytes that it has printed.
        moved: bytes that it has read and written.
        blocked: what the main thread waits for.
        frames: the main thread's Python stack, the innermost first; empty where it was not taken.
        holds_gil: the main thread has the interpreter's lock; None where that was not taken.
        gil_holder: where the thread is that has that lock, if it is not the main one; empty: no other has it.
        threads: the others that run Python code; empty where no stack was taken.
    """

    at: float
    state: Name
    channel: Name = ""
    cpu: float = 0.0
    main_cpu: float = 0.0
    child_cpu: float = 0.0
    delayed: float = 0.0
    switches: Number = 0
    output: Number = 0
    moved: Number = 0
    blocked: Blocked = Blocked()
    frames: Annotated[tuple[Frame, ...], Count(MAX_FRAMES)] = ()
    holds_gil: bool | None = None
    gil_holder: Brief = ""
    threads: Annotated[tuple[ThreadState, ...], Count(MAX_THREADS)] = ()


Signals = Annotated[tuple[Number, ...], Count(MAX_SIGNALS)]
"""By their numbers."""


@dataclass(frozen=True, slots=True)
class Child:
    """A descendant of a worker.

    Attributes:
        blocked: what its main thread waits for.
        signals: those for which it has handlers.
        timers: it has timers of POSIX, which may call its code.
    """

    pid: Number
    name: Brief
    state: Name
    cpu: float
    channel: Name = ""
    blocked: Blocked = Blocked()
    signals: Signals = ()
    timers: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker.

    Attributes:
        ended: its exit code, or minus its signal; None while it lives.
        quiet: seconds for which it has made no progress that can be seen from outside.
        allowed: seconds for which it may be quiet, by its own history.
        woken: of the agent's looks since it was quiet, those before which its main thread had woken up.
        spins: seconds for which its main thread has not waited in the kernel, where it uses an accelerator.
        snapshots: in order; empty where it has ended.
        connections: its TCP connections, so that it is known who is connected with whom.
        children: its descendants.
        descriptors, descriptor_limit: open files, and how many it may have; 0: it is not known.
        resident: bytes of memory.
        stacks: why there are no Python stacks; empty where there are.
        last_lines: of its output, the last one last.
        throttled: seconds between the first look and the last for which its control group had used up its quota.
        servers: the parameter servers for which it waits, as it has told its agent a moment ago; None: it does not.
        signals: those for which it has handlers, of Python or of native code.
        timers: it has timers of POSIX, which may call its code.
        rested: seconds for which its main thread has not run; None: that is not known.
        native: neither it nor a process that it has started runs Python: a shell, say.
    """

    rank: Number
    local_rank: Number
    pid: Number
    ended: int | None = None
    quiet: float = 0.0
    allowed: float = 0.0
    woken: Number = 0
    spins: float = 0.0
    snapshots: Annotated[tuple[Snapshot, ...], Count(MAX_SNAPSHOTS)] = ()
    connections: Annotated[tuple[Socket, ...], Count(MAX_SOCKETS)] = ()
    children: Annotated[tuple[Child, ...], Count(MAX_CHILDREN)] = ()
    descriptors: Number = 0
    descriptor_limit: Number = 0
    threads: Number = 0
    resident: Number = 0
    stacks: Words = ""
    last_lines: Annotated[tuple[Brief, ...], Count(MAX_TAIL)] = ()
    throttled: float = 0.0
    servers: RankWait | None = None
    signals: Signals = ()
    timers: bool = False
    rested: float | None = None
    native: bool = False

    @property
    def blocked(self) -> Blocked:
        """What the main thread waited for at the last look."""
        return self.snapshots[-1].blocked if self.snapshots else Blocked()


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system that a worker uses: its working directory's, the temporary folder's, shared memory."""

    path: Brief
    size: Number
    free: Number


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What one agent sees.

    Attributes:
        round: whose workers they are.
        network: names the machine's network, whose loopback addresses are the same for all that are in it.
        unix_time: what this machine's clock says, in the middle of the looks.
        memory, memory_limit: bytes that are used, and that may be: of the control group, else of the machine.
        processes, process_limit: the same of processes and threads; 0: not known.
        blind: not all connections of its workers could be read.
        servers: its parameter servers.
    """

    node: Name
    round: Number
    workers: tuple[Worker, ...] = ()
    network: Name = ""
    unix_time: float = 0.0
    memory: Number = 0
    memory_limit: Number = 0
    processes: Number = 0
    process_limit: Number = 0
    disks: Annotated[tuple[Disk, ...], Count(8)] = ()
    blind: bool = False
    servers: Annotated[tuple[ServerReport, ...], Count(MOST_AWAITED)] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node has answered.

    Attributes:
        node, host: whose.
        evidence: None where there is none.
        trouble: why.
        skew: seconds by which its clock is ahead of the asker's, at least; 0 within what the way explains.
    """

    node: Name
    host: Name = ""
    evidence: NodeEvidence | None = None
    trouble: Words = ""
    skew: float = 0.0
    role: Name = ""
    workers: Number = 0

    @property
    def complete(self) -> bool:
        """All its workers are seen."""
        return self.evidence is not None and len(self.evidence.workers) >= self.workers


Ends = Mapping[tuple[str, str], int]
"""The local end of each worker's connections, with its network where it is a loopback address: whose it is."""


def end(network: str, address: str) -> tuple[str, str]:
    """How an address is looked up: a loopback address is one of a network alone."""
    return (network if address.startswith(("127.", "[::1]", "[::ffff:127.")) else "", address)


def ends_of(workers: Sequence[tuple[str, Worker]]) -> dict[tuple[str, str], int]:
    """See `Ends`; `workers` with their networks."""
    return {
        end(network, connection.local): worker.rank
        for network, worker in workers
        for connection in worker.connections
        if not connection.listens
    }


class Shared:
    """Keeps what is equal in the evidence of many nodes once.

    Ranks of one job run the same script, so most of their stacks are alike, and these are most of the evidence.
    """

    def __init__(self) -> None:
        self._frames: dict[Frame, Frame] = {}
        self._stacks: dict[tuple[Frame, ...], tuple[Frame, ...]] = {}
        self._blocked: dict[Blocked, Blocked] = {}

    def of(self, evidence: NodeEvidence) -> NodeEvidence:
        """Equal evidence that shares its stacks and waits with all that came before."""
        return replace(evidence, workers=tuple(self._worker(each) for each in evidence.workers))

    def _worker(self, worker: Worker) -> Worker:
        snapshots = tuple(
            replace(
                each,
                frames=self._stack(each.frames),
                blocked=self._blocked.setdefault(each.blocked, each.blocked),
                threads=tuple(replace(thread, frames=self._stack(thread.frames)) for thread in each.threads),
            )
            for each in worker.snapshots
        )
        return replace(worker, snapshots=snapshots)

    def _stack(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        if (known := self._stacks.get(frames)) is not None:
            return known
        stack = tuple(self._frames.setdefault(each, each) for each in frames)
        return self._stacks.setdefault(stack, stack)
