"""The whole job at one moment, as one value (pure): what a summary, a command, a dashboard or metrics read.

`Controller.status` makes it. It is JSON by `rendezvous/wire/values.py`, as all else that leaves a process. Times are
durations in seconds, because no two machines' clocks agree. Reasons are codes with values (`rendezvous/reasons.py`).
"""

from typing import Annotated, Literal

from ..rendezvous import header
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.header import Header, Tally
from ..rendezvous.member import Member
from ..rendezvous.node_reasons import NodeReason, cut
from ..rendezvous.ranks import Assignment
from ..rendezvous.reasons import IncidentReason, Reason
from ..rendezvous.round import Cause
from ..rendezvous.wire.fields import Name, Number, Words
from ..rendezvous.wire.values import Count
from .data.ledger import Progress
from .diagnosis.findings import MAX_FINDINGS, Finding
from .machine.incident import charge
from .machine.memory_report import MemoryReport
from .machine.parameter_servers import ServersStatus
from .machine.targets import Target
from .machine.training_time import Goodput

NEWEST = 10
"""Incidents that a status tells of."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        state: what it reports of its workers; "lost" where it has a rank and is not registered.
        workers: how many it runs, or would.
        first_rank, role: of its workers in the current round; None where it has no part in one.
        problem: why it fails or leaves; None where it does not.
        address: where its agent listens; empty where it does not, or is lost.
    """

    node: Name
    host: Name
    state: Literal["waiting", "running", "failed", "succeeded", "leaving", "unfit", "lost"]
    workers: Number
    first_rank: Number | None = None
    role: Name | None = None
    problem: NodeReason | None = None
    address: Name = ""

    @classmethod
    def of(cls, member: Member, has: Assignment | None = None) -> "Node":
        """One that is registered; `has`: its part in the round."""
        report, address = member.report, member.agent_address
        if has is None:
            return cls(member.node, member.host, report.state, member.nproc, problem=report.problem, address=address)
        return cls(member.node, member.host, report.state, has.nproc, has.first_rank, has.role, report.problem, address)

    @classmethod
    def lost(cls, had: Assignment) -> "Node":
        """One that is not registered, though it is in the round."""
        return cls(had.node, "", "lost", had.nproc, had.first_rank, had.role)


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident that opened a round, suspended the job or ended it, so many seconds `ago`."""

    ago: float
    round: Number
    cause: Cause
    reason: IncidentReason
    node: Name = ""
    host: Name = ""

    @classmethod
    def of(cls, incident: header.Incident, ago: float) -> "Incident":
        """Without its exit, whose traceback is long."""
        return cls(ago, incident.round, incident.cause, incident.reason, incident.node, incident.host)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found so many seconds `ago` of a job that makes no progress.

    Attributes:
        domain, outlook: of the finding's kind; see `diagnosis/findings.py`.
    """

    ago: float
    finding: Finding
    domain: Name
    outlook: Name
    words: Words

    @classmethod
    def of(cls, finding: Finding, ago: float) -> "Diagnosis":
        """With what follows from its kind."""
        return cls(ago, finding, finding.domain, finding.outlook, cut(str(finding)))


RUNS = ("gathering", "open", "waiting")
"""States of a job that is not over."""


@dataclass(frozen=True, slots=True)
class Status:
    """One job.

    Attributes:
        job, run: its id, and which run of it this is.
        state: `gathering` before the first round; `open` while nodes train, `waiting` while the job is suspended, or
            how it ended.
        round: the number of the newest header; a suspension and the end have numbers, too.
        age: seconds since that header was published; since when this master's node waits for the first one.
        cause, reason: why it was published.
        next: what the master waits for now.
        deadline: in so many seconds it decides again; None: when something happens.
        in_place: the round was opened in place.
        targets: how many nodes the job wants, for each role where it has roles.
        nodes: those of the round, in rank order; of a suspended job, those that it had.
        standbys: other registered nodes, in order of arrival; why they wait is in `next`.
        returning: nodes whose leases ended while the store was away, and that may register again.
        tally: what happened so far; the incident that opened the round is counted.
        incidents: the newest, the newest last; a new master knows of one before it.
        datasets: how far the workers are with each that they lease shards of.
        diagnosis: why it makes no progress, the strongest evidence first; empty where it makes some.
        steps: optimizer steps a second, where rank 0 commits its steps; None: nobody tells of them.
        memory: what nodes hold of the job's checkpoint in memory; None: nothing.
        parameter_servers: as their nodes see them, and the ranks that wait for some.
    """

    job: Name
    run: Name
    state: Literal["gathering", "open", "waiting", "succeeded", "failed", "repeated", "preempted", "timeout"]
    round: Number
    age: float
    cause: Cause | None
    reason: Reason | None
    next: Reason
    deadline: float | None
    in_place: bool
    targets: tuple[Target, ...]
    world_size: Number
    nodes: tuple[Node, ...]
    standbys: tuple[Node, ...]
    returning: tuple[Name, ...]
    tally: Tally
    max_restarts: int
    incidents: Annotated[tuple[Incident, ...], Count(NEWEST)]
    datasets: tuple[Progress, ...]
    goodput: Goodput
    diagnosis: Annotated[tuple[Diagnosis, ...], Count(2 * MAX_FINDINGS)] = ()
    steps: float | None = None
    parameter_servers: ServersStatus = ServersStatus()
    memory: MemoryReport | None = None

    def node_of(self, rank: int) -> Node | None:
        """The node of the round that has this rank; None where the round has no such rank."""
        for each in self.nodes:
            if each.first_rank is not None and 0 <= rank - each.first_rank < each.workers:
                return each
        return None


def counted(header: Header) -> Tally:
    """What happened to the job so far, the incident of `header` included."""
    # A final header has counted everything; of another the incident that opened it is still to be added.
    return header.tally if header.final else charge(header.tally, header.incident)
