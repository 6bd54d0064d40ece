"""When this node's workers ran and when they did not, and what changed in between.

Times are the agent's monotonic clock, in seconds. "Training" here means that every local worker was running: what a
script does in that time (imports, loading a checkpoint, steps) the launcher cannot see.
"""

from ..rendezvous.base.frozen import dataclass, field, replace
from ..rendezvous.base.plural import plural
from ..rendezvous.header import Header
from ..rendezvous.ranks import Assignment
from ..rendezvous.reasons import WorkerFailed


@dataclass(frozen=True, slots=True)
class Change:
    """One round that started on this node. `down`: its downtime, seconds since its workers' end in the round before.

    `code` and `reason`: why it was opened, for programs and for a person.
    """

    at: float
    round: int
    cause: str
    code: str
    reason: str
    previous_nodes: int
    nodes: int
    world_size: int
    down: float


@dataclass(slots=True)
class Timeline:
    """Collects the changes from `begun` on."""

    begun: float
    changes: list[Change] = field(default_factory=list[Change])
    trained: float = 0.0
    _since: float = 0.0
    _running: bool = False
    _finished: bool = False  # all workers have ended with exit code 0: what follows is no downtime

    def __post_init__(self) -> None:
        self._since = self.begun

    def idle_since(self, now: float) -> float:
        """Since when no worker runs, or one has failed; `now` where all run."""
        return now if self._running else self._since

    @property
    def stopped(self) -> float:
        """The downtime in all."""
        return sum(change.down for change in self.changes)

    def up(self, now: float, header: Header) -> float:
        """All local workers of `header`'s round have been started; returns the downtime: 0 for the node's first."""
        if self._running:
            self.down(now)
        down = now - self._since if self.changes else 0.0
        self._since, self._running, self._finished = now, True, False
        self.changes.append(
            Change(
                at=now - self.begun,
                round=header.number,
                cause=header.cause,
                code=header.reason.code,
                reason=str(header.reason),
                previous_nodes=header.previous_nodes,
                nodes=header.nodes,
                world_size=header.world_size,
                down=down,
            )
        )
        return down

    def down(self, now: float) -> None:
        """The workers stop, or the first of them failed; only the first call after `up` or `finished` counts."""
        if self._running:
            self.trained += now - self._since
            self._since, self._running = now, False
        elif self._finished:
            self._since, self._finished = now, False

    def ended(self, now: float, *, failed: bool, alive: int) -> None:
        """Workers have ended, and so many have not; where none failed, the node waits for others or for a round."""
        finished = self._running and not failed and alive == 0
        if failed or finished:
            self.down(now)
            self._finished = self._finished or finished


def describe_round(header: Header, assignment: Assignment, down: float, kept: int = 0, here: str = "") -> str:
    """The one line for a change of membership: old size, new size, cause, downtime where there was any.

    `kept`: so many workers here have kept their process. `here`: the node that prints it, and has told already what its
    own workers failed of.
    """
    ranks = f"rank {assignment.first_rank}"
    if assignment.nproc > 1:
        ranks = f"ranks {assignment.first_rank}-{assignment.first_rank + assignment.nproc - 1}"
    size = plural(header.nodes, "node")
    if header.previous_nodes:
        size = f"{header.previous_nodes} -> {size}"
    workers = plural(header.world_size, "worker")
    lost = f"; downtime {down:.2f} s" if down else ""
    if kept:
        those = "all workers" if kept == assignment.nproc else f"{kept} of {assignment.nproc} workers"
        lost = f"; {those} here keep running"
    reason = header.reason
    if isinstance(reason, WorkerFailed) and reason.node == here:
        reason = replace(reason, message="")
    return f"round {header.number}: {size}, {workers}, {ranks} here: {reason}{lost}"
