"""The header of the current round: what the master publishes, and every agent acts on.

Only the header publishes a round. Assignments are written before it and mean nothing until a header names their
prefix; a header that names a round makes it the current one everywhere at once.
"""

from typing import Annotated, Literal

from .base.frozen import dataclass, field
from .member import Exit, Fingerprint
from .node_reasons import NodeReason
from .ranks import RoleRanks
from .reasons import IncidentReason, Reason
from .roles import MAX_ROLES
from .round import Cause
from .time_split import Split
from .wire.fields import Name, Number
from .wire.values import Count, Text, Within

HeaderState = Literal["open", "waiting", "succeeded", "failed", "repeated", "preempted", "timeout"]
"""A round that nodes train in, a suspended job, or one of `round.Outcome`."""


MAX_REASON = 1 << 16
"""Characters of a failure's likeness."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault with all its consequences: one cause, charged once.

    Attributes:
        cause: what it is charged to.
        reason: what it amounts to.
        node, host: where its root cause was; empty where it is not one node's.
        exit: the worker exit that is its root cause, if it was one.
        ran: so many seconds the round had been there, as far as this master knows.
        optional: only workers of optional roles have failed (`Role.optional`).
    """

    round: Number
    cause: Cause
    reason: IncidentReason
    node: Name = ""
    host: Name = ""
    exit: Exit | None = None
    ran: float = 0.0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened to this run of the job so far, of closed incidents, and the failures' memory.

    Attributes:
        failures: charged against `--max-restarts`.
        lost, left, joined: nodes that were lost, have left on request, and have joined; free.
        unfit: nodes that have left because they could not run their workers; free.
        problems: rounds opened because a node could not start its workers; free.
        signature, repeats: the last failure's likeness (empty where it came late, or tells nothing), and how often it
            came in a row: a job that only ever repeats one failure is stopped early.
        problems_in_row: those that came soon after the round's opening, without another cause between them.
        optional: failures and problems of optional roles alone. `--max-restarts` allows as many of them, too, and after
            that they open no round.
    """

    failures: Number = 0
    lost: Number = 0
    left: Number = 0
    joined: Number = 0
    problems: Number = 0
    signature: Annotated[str, Text(MAX_REASON)] = ""
    repeats: Number = 0
    problems_in_row: Number = 0
    unfit: Number = 0
    optional: Number = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The current round.

    Attributes:
        number: the round's number; one sequence for the life of the job's id.
        run: random; another run of the same job id is another one.
        state: open (nodes train), waiting (suspended: all workers stop), or how the job ended.
        cause, reason: why this round was opened, suspended or finished.
        prefix, nodes: the assignments that this header makes valid, and how many they are (a waiting header names the
            last round's).
        previous_nodes: how many nodes the round before had.
        master_addr, master_port: where the workers meet: on the first node.
        restart_count: the most failures charged so far, this round's included; the same on every node.
        fingerprint: what every node must have been started with.
        tally: closed incidents, this round's cause not included.
        incident: why this round was opened, where that was an incident; the root cause where the job failed.
        in_place: this round was opened in place (`round.OpenInPlace`).
        split, at_risk: the job's time from its first round until this was decided, as in `SplitUntil`.
        deadline_seconds: in a waiting header, how long the wait may last; else 0.
        roles: who has which ranks, in a job with roles; else empty.
        rows_from: the round with which the job went back to a checkpoint of its tables last, where all that its
            datasets and rows were begins again, and no worker of an earlier round goes on; 0: it has not.
    """

    number: Number
    run: Name
    state: HeaderState
    cause: Cause
    reason: Reason
    fingerprint: Fingerprint
    prefix: Name = ""
    nodes: Number = 0
    previous_nodes: Number = 0
    world_size: Number = 0
    master_addr: Name = ""
    master_port: Annotated[int, Within(0, 65535)] = 0
    restart_count: Number = 0
    max_restarts: int = 0
    tally: Tally = field(default_factory=Tally)
    incident: Incident | None = None
    in_place: bool = False
    split: Split = field(default_factory=Split)
    at_risk: Number | None = None
    deadline_seconds: float = 0.0
    roles: Annotated[tuple[RoleRanks, ...], Count(MAX_ROLES)] = ()
    rows_from: Number = 0

    @property
    def final(self) -> bool:
        """The job is over."""
        return self.state not in ("open", "waiting")


@dataclass(frozen=True, slots=True)
class Leader:
    """The elected master: which agent runs it, and the address at which it can be watched."""

    node: Name
    incarnation: Name
    agent_address: Annotated[str, Text(300, printable=True)]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a node was evicted. `final`: it must not come back (it does not fit this job)."""

    reason: NodeReason
    final: bool = False
