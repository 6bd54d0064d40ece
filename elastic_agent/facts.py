"""What one agent is started with, and all that it knows: what its parts share."""

import math
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..adapters.contract import Adapter
from ..master.controller import Terms
from ..rendezvous.member import Exit, Fingerprint, Report
from ..rendezvous.membership import Registration
from ..rendezvous.rpc.envelope import Security
from .known_round import KnownRound
from .zygotes.seed import Recipe


@dataclass(frozen=True, slots=True)
class Setup:
    """What one agent is started with.

    Attributes:
        job: the job's id.
        node: this node's name (others of that name make it name-2, ...).
        host: what peers call this machine; the workers' MASTER_ADDR where it has rank 0.
        bind: the address that this agent's listener binds; "" is every interface; None: nobody else is in the job.
        nproc: worker processes here.
        adapter: what their framework expects of a launcher.
        command: the workers' command line.
        environment: what the workers inherit.
        python: the workers' interpreter, for the services beside them.
        terms: what the master needs.
        lease_ttl: seconds until a silent machine is taken for lost.
        store_patience: seconds that a node without workers waits for a store that does not answer.
        shutdown_timeout: seconds that workers get between a preemption notice and SIGKILL.
        signals: which signals are a preemption notice to leave.
        keep_detached: what the script has put into a session of its own lives on when the job has succeeded.
        role: of the workers, in a job without roles.
        node_role: the only role that this node takes, in a job with roles; empty: any.
        commands: by role, the workers' command line where it is not `command`.
        recipe: of the warm interpreter that workers are forked from; None: each is a fresh process.
        security: what the job's agents must have and speak when they ask each other.
    """

    job: str
    node: str
    host: str
    bind: str | None
    nproc: int
    adapter: Adapter
    command: tuple[str, ...]
    environment: Mapping[str, str]
    terms: Terms
    lease_ttl: int = 5
    store_patience: float = 60.0
    shutdown_timeout: float = 30.0
    signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    role: str = "default"
    node_role: str = ""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    topology: str = ""
    node_rank: int | None = None
    virtual_local_rank: bool = False
    python: str = sys.executable
    keep_detached: bool = True
    recipe: Recipe | None = None
    security: Security = field(default_factory=Security)

    @property
    def fingerprint(self) -> Fingerprint:
        """What must be equal on every node."""
        return self.terms.fingerprint


@dataclass(slots=True)
class Facts:
    """See `plan.View` for the meaning. `came`: the node has been registered, perhaps as an earlier incarnation.

    Each is written by one part of the agent: `known` and `outside` by `node/round_follower.py`; the registration, what
    the store was told and why it ended by `node/registration.py`, which also begins anew what a new incarnation must
    not inherit; the notice by `node/preemption.py`; the beat and `workers_gone_at` by `agent.py`; all else
    by `workers/`.
    """

    notice: Literal["none", "leave", "kill"] = "none"
    notice_signal: int = 0
    notice_at: float = 0.0
    workers_gone_at: float | None = None
    registration: Registration | None = None
    came: bool = False
    lapsed: bool = False
    beat_at: float = math.inf
    stood_still: bool = False
    refusal: str = ""
    orphaned: str = ""
    known: KnownRound = field(default_factory=KnownRound)
    stranded_at: float | None = None
    keeps: bool = False
    outside: bool = False
    unready: bool = False
    round: int = 0
    role: str = "default"
    adopted: frozenset[int] = frozenset()
    total: int = 0
    saved: int = 0
    leases: bool = False
    late: tuple[Exit, ...] = ()
    problem: str = ""
    failed_starts: int = 0
    unfit: str = ""
    told: Report = field(default_factory=Report)
