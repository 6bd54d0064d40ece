"""What one agent is started with, and all that it knows: what its parts share."""

import math
from dataclasses import dataclass, field
from typing import Literal

from ..adapters.environment import WorkerSettings
from ..master.controller import Terms
from ..rendezvous.member import Exit, Report
from ..rendezvous.membership import Registration
from ..rendezvous.rpc.envelope import Security
from .known_round import KnownRound
from .zygotes.seed import Recipe


@dataclass(frozen=True, slots=True)
class Setup:
    """What one agent is started with.

    Attributes:
        workers: what its workers have in common, this node's name included (others of that name make it name-2, ...).
        host: what peers call this machine; the workers' MASTER_ADDR where it has rank 0.
        bind: the address that this agent's listener binds; "" is every interface; None: nobody else is in the job.
        nproc: worker processes here.
        terms: what the master needs.
        lease_ttl: seconds until a silent machine is taken for lost.
        store_patience: seconds that a node without workers waits for a store that does not answer.
        shutdown_timeout: seconds that workers get between a preemption notice and SIGKILL.
        grace_after_failure: see `plan.View`.
        keep_detached: what the script has put into a session of its own lives on when the job has succeeded.
        node_role: the only role that this node takes, in a job with roles; empty: any.
        recipe: of the warm interpreter that workers are forked from; None: each is a fresh process.
        hang_timeout: seconds without progress after which workers are looked at; 0: they are not watched.
        security: what the job's agents must have and speak when they ask each other.
        known_runs: of this job, those whose success was known before this node was started.
    """

    workers: WorkerSettings
    host: str
    bind: str | None
    nproc: int
    terms: Terms
    lease_ttl: int = 5
    store_patience: float = 60.0
    shutdown_timeout: float = 30.0
    grace_after_failure: float = 0.0
    node_role: str = ""
    topology: str = ""
    node_rank: int | None = None
    keep_detached: bool = True
    recipe: Recipe | None = None
    security: Security = field(default_factory=Security)
    known_runs: frozenset[str] = frozenset()
    hang_timeout: float = 0.0


@dataclass(slots=True)
class Facts:
    """See `plan.View` for the meaning. `came`: the node has been registered, perhaps as an earlier incarnation.

    Each is written by one part of the agent: `known` and `outside` by `node/round_follower.py`; the registration, what
    the store was told and why it ended by `node/registration.py`, which also begins anew what a new incarnation must
    not inherit; the notice by `node/preemption.py`; the beat and `workers_gone_at` by `agent.py`; all else
    by `workers/`, but for `stalled` and `strained`, which are written by
    `diagnosis/`.
    """

    notice: Literal["none", "leave", "kill"] = "none"
    notice_signal: int = 0
    notice_at: float = 0.0
    gives_way: str = ""
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
    stalled: int = 0
    strained: int = 0
    late: tuple[Exit, ...] = ()
    problem: str = ""
    failed_starts: int = 0
    unfit: str = ""
    told: Report = field(default_factory=Report)
