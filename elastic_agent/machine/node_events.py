"""What happens to a node: one thing each, told by the part of the agent that sees it (`agent_machine.py`)."""

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.member import Exit, Report
from ...rendezvous.membership import Registration
from ...rendezvous.ranks import Assignment
from .actions import Operation
from .node_state import StayingWorkers


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """One of those that tell this node to go."""

    number: int


@dataclass(frozen=True, slots=True)
class AskedToLeave:
    """The job has told this node to leave: a standby takes its place, or the job was cancelled."""

    why: str


@dataclass(frozen=True, slots=True)
class Registering:
    """The node's key is about to be written as a new incarnation's. `stale`: the run whose end is there already."""

    stale: str


@dataclass(frozen=True, slots=True)
class KeyWritten:
    """The node is a member, as a new incarnation, of which the store holds this report."""

    registration: Registration
    report: Report


@dataclass(frozen=True, slots=True)
class KeyResumed:
    """The registration whose lease had ended is taken up again."""

    registration: Registration


@dataclass(frozen=True, slots=True)
class ReportWritten:
    """The store holds this report."""

    registration: Registration
    report: Report


@dataclass(frozen=True, slots=True)
class KeyLapsed:
    """The node's key is gone, and nobody has said that it was evicted."""


@dataclass(frozen=True, slots=True)
class KeyLost:
    """The registration is over: the node was put out, or its name is another's."""


@dataclass(frozen=True, slots=True)
class RefusedForGood:
    """The job does not take this node."""

    why: str


@dataclass(frozen=True, slots=True)
class EndMissed:
    """The run that this node is in has ended, with this header, while the node was no member."""

    header: Header


@dataclass(frozen=True, slots=True)
class Orphaned:
    """The same, and nothing is left of the run; in words."""

    why: str


@dataclass(frozen=True, slots=True)
class RoundRead:
    """The header was read, together with what its round gives this node, and the revision that wrote it."""

    header: Header
    revision: int
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class OthersKeep:
    """The workers of the round that this node has no part in keep their process."""


@dataclass(frozen=True, slots=True)
class OperationBegun:
    """This is under way from now on."""

    action: Operation


@dataclass(frozen=True, slots=True)
class ServicesAwaited:
    """What is under way waits for the services of its round; or, `over`, does so no longer."""

    over: bool = False


@dataclass(frozen=True, slots=True)
class OperationEnded:
    """Nothing is under way."""


@dataclass(frozen=True, slots=True)
class WorkersBegin:
    """Workers are this round's from now on; 0: they are started without a rank. `adopted`: they continue into it."""

    round: int
    role: str
    total: int
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    """All of them were. `anew`: none of them is from an earlier round."""

    anew: bool = False


@dataclass(frozen=True, slots=True)
class StartProblem:
    """The workers of the current round cannot be started. `fault`: for the machine's own fault."""

    why: str
    fault: bool = False


@dataclass(frozen=True, slots=True)
class WorkersUnready:
    """Workers without a rank ended, or could not be started (then there are `none`)."""

    none: bool = False


@dataclass(frozen=True, slots=True)
class UnreadyOver:
    """The pause after that is over."""


@dataclass(frozen=True, slots=True)
class RoundLeft:
    """The workers' round is over: how those failed that did so by themselves. `adds`: only where there are any."""

    failed: tuple[Exit, ...]
    adds: bool = False


@dataclass(frozen=True, slots=True)
class AllStay:
    """All workers have said that they keep their process."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A worker of the current round has told of one."""


@dataclass(frozen=True, slots=True)
class ShardsAsked:
    """A worker has opened a dataset whose position is in checkpoints."""


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """The workers at a look: see `LocalWorkers`. `group.broke` may be of an earlier round, and is dropped then."""

    alive: int
    exits: tuple[Exit, ...]
    service: str
    lingers: bool
    group: StayingWorkers


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """The store at a look. The attributes are those of `MachineState`."""

    store_gone: str
    leading: bool


@dataclass(frozen=True, slots=True)
class Unkillable:
    """A process of a worker does not exit after SIGKILL."""

    pid: int


@dataclass(frozen=True, slots=True)
class MachineUnfit:
    """This machine cannot run workers."""

    why: str


@dataclass(frozen=True, slots=True)
class RowsLost:
    """The job cannot go on, for the sake of its servers, or is to go back to a checkpoint of their rows.

    Attributes:
        why: it cannot, in words; empty: it can after all.
        return_wanted: why it is to go back; empty: it is not.
    """

    why: str
    return_wanted: str = ""


@dataclass(frozen=True, slots=True)
class AgentBeat:
    """The agent lives."""


@dataclass(frozen=True, slots=True)
class WorkerStalled:
    """A worker is without progress for longer than its history allows."""


@dataclass(frozen=True, slots=True)
class WorkersMove:
    """None of them is."""


@dataclass(frozen=True, slots=True)
class MachineStrained:
    """This machine has come near a limit."""


NodeEvent = (
    SignalReceived
    | AskedToLeave
    | Registering
    | KeyWritten
    | KeyResumed
    | ReportWritten
    | KeyLapsed
    | KeyLost
    | RefusedForGood
    | EndMissed
    | Orphaned
    | RoundRead
    | OthersKeep
    | OperationBegun
    | ServicesAwaited
    | OperationEnded
    | WorkersBegin
    | WorkersStarted
    | StartProblem
    | WorkersUnready
    | UnreadyOver
    | RoundLeft
    | AllStay
    | CheckpointSaved
    | ShardsAsked
    | WorkersSeen
    | StoreSeen
    | Unkillable
    | MachineUnfit
    | RowsLost
    | AgentBeat
    | WorkerStalled
    | WorkersMove
    | MachineStrained
)
