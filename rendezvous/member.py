"""What a node says of itself: the value of its key `nodes/<node>`, which only that node writes.

State, not messages: a report is the whole truth about the node, written over the last one. Whoever becomes master
reads the reports and knows what the last master knew, so nothing is lost in a failover.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from .base.frozen import dataclass, field
from .node_reasons import NodeReason
from .wire.fields import Name, Number, Port, Words
from .wire.values import Count, Text, Within

MAX_TRACEBACK_BYTES = 6_000
"""Of one worker's traceback; the middle is cut, and the whole is in the worker's log."""

BRIEF_CHARACTERS = 120
"""Of a message in a line that says more than the message."""

MAX_EXITS = 16
"""Exits in one report: the first failures matter, the others are in the logs."""


MAX_WORKERS = 1 << 16
"""Worker processes of one node."""

MAX_WORKER_PORTS = 2_048
"""Ports that one node holds for its workers."""

WORD_BITS = 32
"""Local ranks in one number of a set of them."""


def out_of_memory(oom_kills: int) -> str:
    """What a worker died of while the kernel's count of such kills rose by `oom_kills`."""
    return f"killed by the kernel: out of memory (oom_kill rose by {oom_kills})"


@dataclass(frozen=True, slots=True)
class Exit:
    """How one worker process ended.

    Attributes:
        round: the round that it belonged to.
        code: its exit code, or None where a signal ended it.
        message: the last line of its traceback or error file; empty where it left none.
        traceback: its own traceback as text, at most MAX_TRACEBACK_BYTES; empty where it left none.
        log: where what explains its end is kept on its machine, its stderr or stdout; empty where it is not kept.
        seconds: how long it had run.
        stopped: its agent had told it to stop, so that its exit says nothing about the job.
        advanced: it had told of steps or of a checkpoint, or had asked for data.
        lost_peer: by its message it has lost another worker, as far as its framework's adapter knows: a consequence.
        oom_kills: where it died by SIGKILL, and is one of them: how many processes the kernel killed meanwhile for
            lack of memory, in the control group of its agent; else 0.
    """

    round: Number
    rank: Number
    local_rank: Number
    pid: Number
    code: int | None = None
    signal: Number | None = None
    message: Words = ""
    traceback: Annotated[str, Text(2 * MAX_TRACEBACK_BYTES)] = ""
    log: Words = ""
    seconds: float = 0.0
    stopped: bool = False
    lost_peer: bool = False
    advanced: bool = False
    oom_kills: Number = 0

    @property
    def status(self) -> int | None:
        """Its exit code, or minus its signal."""
        return self.code if self.signal is None else -self.signal

    @property
    def ok(self) -> bool:
        """The worker ended with exit code 0."""
        return self.code == 0

    @property
    def brief(self) -> str:
        """The message, cut for a line that says more: the whole is in the last lines and in the log."""
        text = self.message
        return text if len(text) <= BRIEF_CHARACTERS else text[: BRIEF_CHARACTERS - 4].rstrip() + " ..."


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What must be equal on every node of a job, as it was typed; see `named`.

    Attributes:
        arguments: of the script, each as a digest: they may hold what readers of the store need not know.
        framework: whose adapter makes the workers' environment.
        roles: the job's roles with all their properties.
        servers: how many parameter servers the job has, replicas, and where they save tables; empty: none.
        identity: how the nodes prove that they belong to the job; says which secret, and is none.
        source: `file:digest` of what the command runs, where the job's id was derived from the command; else empty,
            and compared with nothing.
        named: the job's id was given by the user, who may let nodes differ in `script`, `arguments`, `nproc_per_node`.
    """

    script: str
    arguments: tuple[str, ...]
    nnodes: str
    nproc_per_node: str
    version: str
    source: tuple[str, ...] = ()
    framework: str = "torch"
    roles: str = ""
    identity: str = ""
    named: bool = False
    servers: str = ""


def differing_sources(here: Fingerprint, there: Fingerprint) -> list[str]:
    """The files of which two nodes have different sources; none where one of the two has no digests."""
    if not here.source or not there.source:
        return []
    mine, theirs = (
        {name: digest for name, _, digest in (entry.rpartition(":") for entry in node.source)} for node in (here, there)
    )
    return [name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)]


def describe_difference(here: Fingerprint, there: Fingerprint) -> str:
    """What differs between two nodes' starts and may not, in words for a reader `here`; empty where nothing does."""
    names = {
        "nnodes": "--nnodes",
        "version": "elastic-run's version",
        "framework": "--framework",
        "roles": "--roles (or what --role-options and --role-command say of them)",
        "servers": "--servers (or --ps-replicas, --ps-checkpoint, --ps-memory, --ps-disk, --ps-log)",
        "identity": "how nodes prove that they belong to the job",
    }
    differences = _differing(names, here, there)
    if here.identity != there.identity:
        differences.append(
            "all nodes need one secret (elastic-run join, --join-file=FILE or ELASTIC_RUN_SECRET), or --insecure"
        )
    if files := differing_sources(here, there):
        differences.append(f"the source of {', '.join(files)} is not the same there and here")
    if (own := describe_own(here, there)) and not (here.named and there.named):
        differences += [own, "nodes that are to differ in this need the same --rdzv-id, given to each of them"]
    return "; ".join(differences)


def describe_own(here: Fingerprint, there: Fingerprint) -> str:
    """What differs between two nodes' starts and may, where each was given the job's id by its user; as above."""
    differences = _differing({"script": "the script", "nproc_per_node": "--nproc-per-node"}, here, there)
    if here.arguments != there.arguments:
        differences.append(f"the script's arguments are not the same: {_arguments(here.arguments, there.arguments)}")
    return "; ".join(differences)


def _differing(names: Mapping[str, str], here: Fingerprint, there: Fingerprint) -> list[str]:
    return [
        f"{words} is {theirs!r} there and {mine!r} here"
        for name, words in names.items()
        if (mine := getattr(here, name)) != (theirs := getattr(there, name))
    ]


def _arguments(here: Sequence[str], there: Sequence[str]) -> str:
    """Where two lists of arguments differ, of which only digests are known."""
    if len(here) != len(there):
        return f"{len(there)} there and {len(here)} here"
    numbers = [str(number) for number, (mine, theirs) in enumerate(zip(here, there, strict=True), 1) if mine != theirs]
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"number {', '.join(numbers[:8])}{more} of {len(here)}"


State = Literal["waiting", "running", "failed", "succeeded", "leaving", "unfit"]


DEPARTING: tuple[State, ...] = ("leaving", "unfit")
"""States of a node that wants no further round."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a node's workers do in `round`.

    waiting: registered; no workers (`round` is 0 until the node has seen one).
    running: every local worker of `round` has been started.
    failed: at least one worker of `round` ended other than with 0 (`exits` tells), or they could not be started, or
        their process group is broken and nobody says why (`problem` says what the node did not do; it is charged to
        nobody).
    succeeded: every local worker of `round` exited 0.
    leaving: the node was told to go (`problem` says by what); it wants no further round.
    unfit: the node leaves because it cannot start workers (`problem` says why).

    `run` is the one of the job that this is about, empty before the node has seen one: a node that died may leave its
    last report behind for a while, and the next run counts its rounds from 1 again.
    `keeps`: all workers here keep their process when the membership changes.
    `holding`: so many living workers here have the job's state, as far as they say so.
    `done`: workers here have trained to the end, though they have not ended; then they keep their process no more.
    `ready`: the node has no part in the round, but its workers are there already, and wait for their rank assignment.
    `saved` counts the checkpoints of `round` that local workers told of, where the job asks (--scale-up=commit).
    `leases`: workers of `round` here lease shards whose position is in checkpoints, to which all return together.
    `stalled`: so often a worker of `round` here has been without progress for longer than its history allows.
    `strained`: so often this node has come near a limit: its memory, its processes, a worker's open files.
    `ended`: local ranks of `round` that ended with 0 and for which `exits` has no room, as `write_ranks` has them.
    """

    state: State = "waiting"
    round: Number = 0
    exits: Annotated[tuple[Exit, ...], Count(4 * MAX_EXITS)] = ()
    problem: NodeReason | None = None
    run: Name = ""
    saved: Number = 0
    keeps: bool = False
    ready: bool = False
    done: bool = False
    holding: Number = 0
    leases: bool = False
    stalled: Number = 0
    strained: Number = 0
    ended: Annotated[tuple[Number, ...], Count(MAX_WORKERS // WORD_BITS)] = ()


def write_ranks(local_ranks: Iterable[int]) -> tuple[int, ...]:
    """A set of local ranks in as little as it takes: a bit each, WORD_BITS in a number."""
    words: list[int] = []
    for rank in local_ranks:
        words += [0] * (rank // WORD_BITS + 1 - len(words))
        words[rank // WORD_BITS] |= 1 << rank % WORD_BITS
    return tuple(words)


def read_ranks(words: Iterable[int]) -> list[int]:
    """What `write_ranks` has written, ascending."""
    return [at * WORD_BITS + bit for at, word in enumerate(words) for bit in range(WORD_BITS) if word >> bit & 1]


@dataclass(frozen=True, slots=True)
class Member:
    """One registered node.

    Attributes:
        node: its name, unique in the job while it is registered.
        incarnation: random; another life of the same machine is another incarnation.
        host: what its peers call the machine; the workers' MASTER_ADDR where it has rank 0.
        agent_address: `host:port` of the agent's listener (see `failure_detector.py`).
        ports: ports that were free on it for the workers' MASTER_PORT; rounds take them in turn.
        worker_ports: ports that it holds for its workers themselves (`peers.py`); empty where they need none.
        fingerprint: what it was started with.
        role: the workers' role name, in a job without roles.
        topology: nodes with an equal label get neighbouring ranks.
        node_rank: the rank that its user asked for among the nodes of the first round, or None.
        report: what its workers do.
        run: which run of the job it took part in before it lost its registration; empty where it comes for the first
            time.
        node_role: the only role that it takes, in a job with roles; empty: any.
    """

    node: Name
    incarnation: Name
    host: Name
    agent_address: Annotated[str, Text(300, printable=True)]
    nproc: Annotated[int, Within(1, MAX_WORKERS)]
    ports: Annotated[tuple[Port, ...], Count(100)]
    fingerprint: Fingerprint
    role: Name = "default"
    topology: Name = ""
    node_rank: Number | None = None
    report: Report = field(default_factory=Report)
    run: Name = ""
    node_role: Name = ""
    worker_ports: Annotated[tuple[Port, ...], Count(MAX_WORKER_PORTS)] = ()
