"""What one agent is started with."""

from typing import TYPE_CHECKING

from ..adapters.environment import WorkerSettings
from ..master.machine.controller import Terms
from ..rendezvous.base.frozen import dataclass, field
from ..rendezvous.rpc.envelope import Security
from .machine.node_state import NodeSettings
from .zygotes.seed import Recipe

if TYPE_CHECKING:
    from ..master.beside import BesideMaster


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
        grace_after_failure: seconds that workers which survive a failure, a loss or a departure get before SIGKILL.
        keep_detached: what the script has put into a session of its own lives on when the job has succeeded.
        node_role: the only role that this node takes, in a job with roles; empty: any.
        recipe: of the warm interpreter that workers are forked from; None: each is a fresh process.
        hang_timeout: seconds without progress after which workers are looked at; 0: they are not watched.
        security: what the job's agents must have and speak when they ask each other.
        known_runs: of this job, those whose success was known before this node was started.
        beside: what works in this process while its master leads the job.
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
    beside: "tuple[BesideMaster, ...]" = ()
    hang_timeout: float = 0.0

    @property
    def settings(self) -> NodeSettings:
        """What its decisions go by."""
        return NodeSettings(
            lease_ttl=self.lease_ttl,
            shutdown_timeout=self.shutdown_timeout,
            grace_after_failure=self.grace_after_failure,
            standby=self.workers.adapter.standby,
            roles=bool(self.terms.policy.roles),
        )
