"""What one `elastic-run` was asked to do, as frozen values (pure). `options/` makes them."""

import enum
import shlex
import signal
from pathlib import Path
from typing import Literal

from ..adapters.plain import Plain
from ..rendezvous.base.frozen import dataclass, field, replace
from ..rendezvous.identity.secret import Secret
from ..rendezvous.roles import Role
from ..rendezvous.round import OnHang, OnStraggler, Policy, ScaleUp
from ..rendezvous.store.endpoint import DEFAULT_PORT, Endpoint

Kind = Literal["script", "module", "executable", "run_path"]


@dataclass(frozen=True, slots=True)
class Command:
    """What each worker runs.

    Attributes:
        kind: script: a file for the interpreter; module: for `python -m`; run_path: a file for `runpy.run_path`;
            executable: a program that is no Python.
        target: the file, the module's name or the program, as typed.
        args: its own arguments.
        python: the interpreter: this one, or PYTHON_EXEC as for torchrun. Where this one was installed for the
            launcher alone (pipx, uv tool), that of the active environment or of PATH.
    """

    kind: Kind
    target: str
    args: tuple[str, ...]
    python: str


@dataclass(frozen=True, slots=True)
class Nodes:
    """How many nodes may train together: `minimum` to `maximum`, in multiples of `unit`."""

    minimum: int
    maximum: int
    unit: int = 1

    def __str__(self) -> str:
        return str(self.minimum) if self.minimum == self.maximum else f"{self.minimum}:{self.maximum}"


@dataclass(frozen=True, slots=True)
class ServerCount:
    """How many parameter servers a job has: one on each node, from `least` to `most`.

    Attributes:
        replicas: 1: what a server holds, another one has, too; 0: nobody has.
        checkpoint: the folder for checkpoints of tables, from the root; empty: there are none.
        every: seconds from one to the next.
        memory: bytes that the rows of one server may take there; 0: half of what there is.
        disk: the folder for rows that do not fit, from the root; empty: there is none.
        disk_size: bytes that one server may take there.
        log: the folder, on each machine, for what has happened to its servers, from the root; empty: there is none.
    """

    least: int
    most: int
    replicas: int
    checkpoint: str = ""
    every: float = 300.0
    memory: int = 0
    disk: str = ""
    disk_size: int = 0
    log: str = ""

    def __str__(self) -> str:
        span = str(self.least) if self.least == self.most else f"{self.least}:{self.most}"
        saved = f" checkpoint={self.checkpoint} every={self.every:g}" if self.checkpoint else ""
        memory = f" memory={self.memory}" if self.memory else ""
        disk = f" disk={self.disk}:{self.disk_size}" if self.disk else ""
        return f"{span} replicas={self.replicas}{saved}{memory}{disk}{' log' if self.log else ''}"


@dataclass(frozen=True, slots=True)
class Timing:
    """The waits that `--rdzv-conf` sets, in seconds.

    Attributes:
        join_timeout: for the store to answer and for the first round's minimum. 600 as in torchrun: queues and image
            pulls take minutes.
        last_call_timeout: with the minimum in but not the maximum, after the last join. 3, because whoever comes
            later is admitted later (torchrun: 30).
        lease_ttl: after so much silence a node is lost, in whole seconds (etcd counts in them). 5 outlives a busy
            machine's hiccup; crashes are noticed at once, by other evidence.
        recovery_timeout: below the minimum, for nodes to come back. 600, as long as the first time.
        settle: after a join, for others to come with it. 10, because every change restarts unchanged scripts.
        scale_up_interval: between two rounds that are opened only for joining nodes. 60 bounds what a trickle of nodes
            can cost.
        close_timeout: after the verdict, for a node to take its leave of the store. 30 as in torchrun; a store that
            is gone must not hold a finished job.
    """

    join_timeout: float = 600.0
    last_call_timeout: float = 3.0
    lease_ttl: int = 5
    recovery_timeout: float = 600.0
    settle: float = 10.0
    scale_up_interval: float = 60.0
    close_timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to speak to a store that the user runs.

    Attributes:
        tls: encrypt; the system's authorities are trusted where `cacert` is None.
        cacert, cert, key: PEM files.
        user, password: etcd's own users; both empty without them.
    """

    tls: bool = False
    cacert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Trust:
    """How this node proves that it belongs to the job.

    Attributes:
        insecure: --insecure: it does not, and nobody has to.
        secret: the job's, where the user gave one; None: the user's own file has it.
        own: --tls-cert, --tls-key and --tls-ca, for the agents' port.
    """

    insecure: bool = False
    secret: Secret | None = None
    own: tuple[Path, Path, Path] | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """Where the nodes meet.

    Attributes:
        kind: memory: inside the agent, one node only; endpoints: the user named them; implicit: several nodes and
            no endpoint.
        endpoints: in the order given; none for memory, and for implicit outside of Slurm (this machine at `port`).
            One with `tls` is used and never started.
        credentials: for a store that the user runs.
        directory: where an etcd that this node starts keeps its files; None leaves the choice to it.
        port: of a store on this machine that no endpoint names.
        hosted: an endpoint that is this machine may be served by an etcd that this node starts.
    """

    kind: Literal["memory", "endpoints", "implicit"]
    endpoints: tuple[Endpoint, ...] = ()
    credentials: Credentials = Credentials()
    directory: Path | None = None
    port: int = DEFAULT_PORT
    hosted: bool = True


class Std(enum.IntFlag):
    """Streams of a worker, numbered as torchrun does."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3


@dataclass(frozen=True, slots=True)
class Output:
    """Where the workers' output and the summary go.

    Attributes:
        log_dir: the base folder of the logs, which may not exist yet; None keeps none.
        keep_attempts: of the attempts' folders the newest so many; 0: all.
        redirects: by local rank, the streams that go to files only.
        tee: by local rank, the streams that go to files and to the terminal.
        line_prefix: what a worker's lines begin with on the terminal: torchrun's template; None is host and rank.
        raw: the terminal shows the only worker's bytes as they are, without prefix.
        shown_ranks: the local ranks that the terminal shows; None shows all.
        stdout_filters, stderr_filters: lines that contain one of these are copied to filtered_stdout.log and
            filtered_stderr.log; none are where it is empty.
        summary_json: the file for the final summary; its folder may not exist yet.
        trace: the file for the trace, from the root; None: nothing is traced.
        history: the folder for the job's events, which may not exist yet; None: they are not kept.
        dashboard: where the live page is served, at port 0: a free one; None: nowhere.
        otlp: the URL of the collector that gets a trace of each recovery; empty: its usual place; None: nobody.
        log_format, log_timestamps: of the launcher's own lines.
        live_line: a terminal has a line that tells how the job is.
        color: auto means only on a terminal (NO_COLOR has been read).
    """

    log_dir: Path | None
    keep_attempts: int
    redirects: tuple[Std, ...]
    tee: tuple[Std, ...]
    line_prefix: str | None
    raw: bool
    shown_ranks: frozenset[int] | None
    stdout_filters: tuple[str, ...]
    stderr_filters: tuple[str, ...]
    summary_json: Path | None
    trace: Path | None
    history: Path | None
    dashboard: Endpoint | None
    otlp: str | None
    log_format: Literal["text", "json"]
    log_timestamps: bool
    live_line: bool
    color: Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that one `elastic-run` was asked to do.

    Attributes:
        adapter: of the workers' framework (--framework).
        nproc: worker processes on this node, counted where a word was given.
        nproc_spec: the same as typed: a number, `auto`, `cpu` or `gpu`; equal on all nodes of a job.
        job_id: the job's name in the store.
        job_id_given: the user chose it; False where it was derived from the command.
        max_restarts: failures of the script that are recovered from.
        same_failure_limit: repeats of one failure without progress that end the job; 0 never does.
        own_failure_limit: the same for an exception of the script's own; 0: no other, as the user has given a number.
        on_hang: what is done about a job that stands still.
        on_straggler: what is done about a rank for which the others wait in each step.
        hang_timeout: seconds without progress after which workers are looked at; 0: they are not watched.
        node_rank: this node's place in the first round, or None.
        local_addr: how the others reach this node, without brackets; None where it is to be found out.
        node_name: this node's name in the job, or None.
        topology: nodes with an equal label get neighbouring ranks; empty for none.
        signals: forwarded to the workers; the node then leaves in order.
        shutdown_timeout: seconds between asking workers to end and SIGKILL.
        grace_after_failure: the same for survivors of a failure, a loss or a departure.
        keep_detached: what the script has put into a session of its own lives on when the job has succeeded.
        warm: workers are forked from a warm interpreter; False: each is a fresh one.
        preload: modules that are imported ahead by the user's own word; None: nothing is imported ahead.
        explain: only say what workers would be forked with.
        dry_run: only say what would be started.
        node_check: this node is checked before it takes part.
        roles: of the job; empty: it has none.
        node_role: the only one that this node takes; empty: any.
        servers: parameter servers; None: the job has none.
        plan: what says how many nodes the job should have while it trains; empty: it takes all that it gets.
        platform: the platform on which a master's process starts the job's nodes; empty: it starts none.
        given: the flags that apply to every node of the job, as `--name=value` (see `join_command`).
        notes: one line for each flag of the user that does nothing here.
        trust: how the nodes prove themselves to each other.
    """

    command: Command
    adapter: Plain
    nodes: Nodes
    nproc: int
    nproc_spec: str
    store: Store
    job_id: str
    job_id_given: bool
    timing: Timing
    max_restarts: int
    same_failure_limit: int
    own_failure_limit: int
    on_hang: OnHang
    on_straggler: OnStraggler
    hang_timeout: float
    scale_up: ScaleUp
    role: str
    node_rank: int | None
    local_addr: str | None
    node_name: str | None
    topology: str
    signals: tuple[signal.Signals, ...]
    shutdown_timeout: float
    grace_after_failure: float
    keep_detached: bool
    virtual_local_rank: bool
    warm: bool
    preload: tuple[str, ...] | None
    explain: bool
    dry_run: bool
    node_check: bool
    roles: tuple[Role, ...]
    node_role: str
    servers: ServerCount | None
    plan: str
    platform: Literal["", "kubernetes"]
    output: Output
    given: tuple[str, ...]
    notes: tuple[str, ...]
    trust: Trust = Trust()

    @property
    def nprocs(self) -> tuple[int, ...]:
        """Workers that this node may come to have, in increasing order: what its role says, which it may not know."""
        mine = [role for role in self.roles if not self.node_role or role.name == self.node_role]
        return tuple(sorted({role.nproc or self.nproc for role in mine})) or (self.nproc,)

    @property
    def likely_nproc(self) -> int:
        """Of those, what most nodes of such roles have."""
        mine = [role for role in self.roles if not self.node_role or role.name == self.node_role]
        return max(mine, key=lambda role: role.max_nodes).nproc or self.nproc if mine else self.nproc

    @property
    def policy(self) -> Policy:
        """What the master is to go by when it decides on membership."""
        return Policy(
            min_nodes=self.nodes.minimum,
            max_nodes=self.nodes.maximum,
            node_unit=self.nodes.unit,
            last_call=self.timing.last_call_timeout,
            join_timeout=self.timing.join_timeout,
            recovery_timeout=self.timing.recovery_timeout,
            scale_up=self.scale_up,
            settle=self.timing.settle,
            scale_up_interval=self.timing.scale_up_interval,
            roles=self.roles,
            state_from_rank_0=self.adapter.state_from_rank_0,
        )

    def command_of(self, role: Role) -> Command:
        """What the workers of that role run."""
        return replace(self.command, target=role.command[0], args=role.command[1:]) if role.command else self.command


def join_command(options: Options, endpoints: str) -> str:
    """The line, quoted for a shell, that another machine runs to join this job at `endpoints`.

    It names the job's id even where that was derived, because the user's name on the other machine may differ.
    """
    return shlex.join(["elastic-run", *join_words(options, endpoints)])


def join_words(options: Options, endpoints: str) -> list[str]:
    """The words of that line behind the program's name."""
    words = [f"--rdzv-endpoint={endpoints}", f"--rdzv-id={options.job_id}", *options.given]
    return [*words, options.command.target, *options.command.args]
