"""Why something was decided: one class for each reason, with its values and its sentence (pure).

A reason's *code* is the name of its class (`AllJoined`), and its values are its fields. That is what lies in the store,
and what programs read: `{"code": "AllJoined", "nodes": 4}`. `str(reason)` is the sentence for a person. It is made
where a line is printed, and nowhere else, so each sentence is in this file once, beside its values.

A code that only a newer version knows is read as `Unknown`, which names it.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Annotated, Literal

from .base.frozen import dataclass
from .member import out_of_memory
from .node_reasons import NodeReason, ReturnWanted
from .wire.fields import Name, Number, Sentence, Words, signal_name
from .wire.values import Count, Tagged, Unknown

NAMED = 4
"""Nodes that a reason names; of the others it says how many: ten thousand may be lost at once."""

DAY = 86400.0
"""Seconds."""

_OVERRIDE = " (--same-failure-limit=0 restarts anyway)"


@dataclass(frozen=True, slots=True)
class Nodes:
    """Some nodes: the names of the first few, and how many `more` there are."""

    names: Annotated[tuple[Name, ...], Count(NAMED)]
    more: Number = 0

    @classmethod
    def of(cls, names: Sequence[str]) -> "Nodes":
        """All of `names`, in order."""
        return cls(tuple(names[:NAMED]), max(0, len(names) - NAMED))

    def __len__(self) -> int:
        return len(self.names) + self.more

    def __str__(self) -> str:
        return ", ".join(self.names) + _more(self.more)


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of one node: how its loss was noticed, or why it left."""

    node: Name
    why: NodeReason


@dataclass(frozen=True, slots=True)
class Notes:
    """The same of some nodes: of the first few, and how many `more` there are."""

    notes: Annotated[tuple[Note, ...], Count(NAMED)]
    more: Number = 0

    @classmethod
    def of(cls, notes: Collection[tuple[str, NodeReason]]) -> "Notes":
        """All of `notes` (node, why), in order."""
        return cls(tuple(Note(*each) for each in islice(notes, NAMED)), max(0, len(notes) - NAMED))

    def __len__(self) -> int:
        return len(self.notes) + self.more


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


def _long(seconds: float) -> str:
    """In days where nobody would read so many seconds."""
    return f"{seconds:g} s" if seconds < 2 * DAY else f"{seconds / DAY:.3g} days"


def _of(roles: str) -> str:
    return f" ({roles})" if roles else ""


def _each(notes: Notes, words: Callable[[Note], str]) -> str:
    return "; ".join(map(words, notes.notes)) + _more(notes.more)


# -- gathering --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaitingForNodes(Tagged):
    """`have` nodes have joined of the `span` that the job may have, and so many are `missing` to its minimum."""

    have: Number
    span: Words
    missing: int
    seconds: float
    """How long the wait may last."""
    roles: Words = ""
    """Of which role how many; empty in a job without roles."""

    def __str__(self) -> str:
        return (
            f"{self.have} of {self.span} nodes have joined: waiting for {self.missing} more{_of(self.roles)}, "
            f"for at most {_long(self.seconds)}"
        )


@dataclass(frozen=True, slots=True)
class TooFewNodes(Tagged):
    """The minimum has not joined within `seconds`."""

    have: Number
    span: Words
    seconds: float
    roles: Words = ""
    """Of which role how many are missing; empty in a job without roles."""

    def __str__(self) -> str:
        joined = f"{self.have} of {self.span} nodes joined within {self.seconds:g} s"
        return f"{joined}, and these are missing: {self.roles}" if self.roles else f"only {joined}"


@dataclass(frozen=True, slots=True)
class LastCall(Sentence):
    """The minimum has joined; the first round waits for others until `seconds` after the latest join."""

    have: Number
    span: Words
    seconds: float
    words = "{0.have} of {0.span} nodes have joined: the last call ends {0.seconds:g} s after the latest join"


@dataclass(frozen=True, slots=True)
class LastCallOver(Sentence):
    """The minimum has joined, and nobody else within `seconds`."""

    have: Number
    span: Words
    seconds: float
    words = "{0.have} of {0.span} nodes have joined, and no other node joined within {0.seconds:g} s"


@dataclass(frozen=True, slots=True)
class AllJoined(Tagged):
    nodes: Number

    def __str__(self) -> str:
        return f"all {self.nodes} nodes have joined" if self.nodes > 1 else "single-node job"


@dataclass(frozen=True, slots=True)
class JoinedAgain(Sentence):
    """Enough nodes for a suspended job have joined."""

    have: Number
    span: Words
    words = "{0.have} of {0.span} nodes have joined again"


@dataclass(frozen=True, slots=True)
class NoChange(Sentence):
    """The nodes of the round are all there, and no other is: there is nothing to say."""

    words = ""


# -- nodes that join --------------------------------------------------------------------------------------------------

Restarts = Literal["none", "some", "all"]
"""Which workers restart where a node joins."""


def _restarts(which: Restarts) -> str:
    return {"none": "", "some": ", which restarts some workers", "all": ", which restarts the script"}[which]


@dataclass(frozen=True, slots=True)
class PreparingWorkers(Tagged):
    """These nodes start workers before they are admitted."""

    nodes: Nodes

    def __str__(self) -> str:
        return f"{self.nodes} {'are preparing their' if len(self.nodes) > 1 else 'is preparing its'} workers"


def _standby(nodes: Nodes) -> str:
    return f"{nodes} {'waits as a standby' if len(nodes) == 1 else 'wait as standbys'}"


@dataclass(frozen=True, slots=True)
class NeverScalesUp(Tagged):
    nodes: Nodes

    def __str__(self) -> str:
        return f"{_standby(self.nodes)} (--scale-up=never) until the next membership change"


@dataclass(frozen=True, slots=True)
class NoRoom(Tagged):
    """These nodes are standbys: the round has the maximum, or (`node_unit` > 0) cannot grow by fewer than a unit."""

    nodes: Nodes
    node_unit: Number

    def __str__(self) -> str:
        why = f"--node-unit={self.node_unit}" if self.node_unit else "the job has its maximum of nodes"
        return f"{_standby(self.nodes)} ({why}) until a node is lost"


@dataclass(frozen=True, slots=True)
class JoinedTooLate(Sentence):
    """Workers of `round` have trained to the end."""

    nodes: Nodes
    round: Number
    words = "{0.nodes} joined too late: workers of round {0.round} are already finishing"


@dataclass(frozen=True, slots=True)
class AwaitingCheckpoint(Sentence):
    """These nodes are admitted after the next checkpoint."""

    nodes: Nodes
    words = "{0.nodes} will join after the next checkpoint (--scale-up=commit)"


@dataclass(frozen=True, slots=True)
class Settling(Tagged):
    """These nodes are admitted so many `seconds` after the last of them has registered."""

    nodes: Nodes
    seconds: float
    restarts: Restarts = "none"

    def __str__(self) -> str:
        return (
            f"{self.nodes} will join {self.seconds:g} s after registering{_restarts(self.restarts)} "
            "(--scale-up=never keeps new nodes as standbys)"
        )


@dataclass(frozen=True, slots=True)
class NodesJoined(Tagged):
    """A round is opened for these nodes."""

    nodes: Nodes
    restarts: Restarts = "none"

    def __str__(self) -> str:
        never = " (--scale-up=never keeps new nodes as standbys)" if self.restarts != "none" else ""
        return f"{self.nodes} joined{_restarts(self.restarts)}{never}"


# -- incidents --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodesLost(Tagged):
    nodes: Notes

    def __str__(self) -> str:
        return _each(self.nodes, lambda note: f"node {note.node} was lost: {note.why}")


@dataclass(frozen=True, slots=True)
class NodesLeft(Tagged):
    """Nodes left in order."""

    nodes: Notes

    def __str__(self) -> str:
        return _each(self.nodes, lambda note: f"node {note.node} left: {note.why}")


@dataclass(frozen=True, slots=True)
class WorkerFailed(Tagged):
    """A worker ended with this exit code, or by this signal. `message`: the last line of what it said, cut."""

    node: Name
    rank: Number
    exit_code: int | None
    signal: Number | None
    message: Words

    def __str__(self) -> str:
        by, code = self.signal, self.exit_code
        how = f"died by {signal_name(by)} ({by})" if by else f"exited with code {code}"
        return f"rank {self.rank} on node {self.node} {how}{f': {self.message}' if self.message else ''}"


@dataclass(frozen=True, slots=True)
class OutOfMemory(Tagged):
    """The kernel killed a worker for lack of memory; in its control group it killed so many meanwhile."""

    node: Name
    rank: Number
    oom_kills: Number

    def __str__(self) -> str:
        return f"rank {self.rank} on node {self.node} died by SIGKILL (9): {out_of_memory(self.oom_kills)}"


@dataclass(frozen=True, slots=True)
class PeerLost(Tagged):
    """A worker lost another, or ranks `waited` for it in vain, and `behind` had not failed; nobody says (yet) why."""

    node: Name
    rank: Number
    exit_code: int | None
    message: Words
    waited: Words = ""
    behind: Words = ""

    def __str__(self) -> str:
        behind = f"; {self.behind} had not failed by then" if self.behind else ""
        if self.waited:
            return f"{self.waited} gave up waiting for another rank ({self.message}){behind}"
        how = f"exit code {self.exit_code}: {self.message}"
        return f"rank {self.rank} on node {self.node} lost its connection to another rank ({how})"


@dataclass(frozen=True, slots=True)
class EndedEarly(Sentence):
    """A worker ended with exit code 0, and `peer` lost it."""

    node: Name
    rank: Number
    peer: PeerLost
    words = "rank {0.rank} on node {0.node} ended with exit code 0 while other ranks still needed it; {0.peer}"


@dataclass(frozen=True, slots=True)
class NodeFailed(Sentence):
    """A round came to nothing on a node, though no worker failed."""

    node: Name
    why: NodeReason
    words = "node {0.node} {0.why}"


@dataclass(frozen=True, slots=True)
class NodesMissing(Sentence):
    """So many nodes of a round `of` so many are not registered any more, and no more is known."""

    lost: Number
    of: Number
    words = "{0.lost} of {0.of} nodes were lost"


@dataclass(frozen=True, slots=True)
class NodesLeaving(Sentence):
    """These nodes want no further round, and no more is known."""

    nodes: Nodes
    words = "{0.nodes} left the job"


NodesChanged = NodesLost | NodesLeft | NodesJoined
IncidentReason = NodesChanged | WorkerFailed | OutOfMemory | PeerLost | EndedEarly | NodeFailed | ReturnWanted | Unknown
"""What an incident amounts to."""


# -- incidents that end the job ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RestartsSpent(Sentence):
    """The job has had more failures than it is allowed."""

    what: IncidentReason
    failures: Number
    allowed: int
    words = "{0.what}; this is failure {0.failures}, and --max-restarts={0.allowed} allows {0.allowed}"


@dataclass(frozen=True, slots=True)
class SameFailure(Sentence):
    """One failure so many times in a row, each within `seconds` of the start."""

    what: IncidentReason
    times: Number
    seconds: float
    words = "{0.what}; the same failure {0.times} times in a row, each within {0.seconds:g} s of the start" + _OVERRIDE


@dataclass(frozen=True, slots=True)
class StartsFailed(Sentence):
    """Rounds came to nothing so many times in a row."""

    what: IncidentReason
    times: Number
    words = "{0.what}; rounds failed to start {0.times} times in a row"


@dataclass(frozen=True, slots=True)
class CannotBeFixed(Sentence):
    """Every rank has a failure that lies in what was started."""

    what: IncidentReason
    words = "{0.what}; every rank failed in the same way, and a restart cannot fix it" + _OVERRIDE


FaultReason = IncidentReason | RestartsSpent | SameFailure | StartsFailed | CannotBeFixed
"""What failed in a round, and why the job must end on account of it, where it must."""


@dataclass(frozen=True, slots=True)
class AwaitingReports(Tagged):
    """A fault is known, and the reports of others may change what it amounts to.

    Attributes:
        whose: `any`: before the job ends; `all`: the job ends if every rank has the same failure; `first`: known are
            only ranks that lost another.
    """

    what: FaultReason
    whose: Literal["any", "all", "first"]

    def __str__(self) -> str:
        waiting = {
            "any": "waiting for other failure reports before the job ends",
            "all": "waiting for the reports of the other ranks",
            "first": "waiting for the report of the rank that failed first",
        }
        return f"{self.what}; {waiting[self.whose]}"


@dataclass(frozen=True, slots=True)
class Suspended(Tagged):
    """Too few nodes remain after `what`. The job waits at most `seconds` for the `missing` ones."""

    what: FaultReason | NodesMissing | NodesLeaving
    have: Number
    required: Number
    missing: int
    seconds: float
    roles: Words = ""
    """Of which role how many; empty in a job without roles."""

    def __str__(self) -> str:
        return (
            f"{self.what}; {self.have} of {self.required} required nodes remain: "
            f"waiting for {self.missing} more{_of(self.roles)}, for at most {_long(self.seconds)}"
        )


# -- the end ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AllSucceeded(Tagged):
    """Every worker of `round` ended with exit code 0; `counted`: of the roles that count, and it has others, too."""

    round: Number
    counted: bool = False

    def __str__(self) -> str:
        which = " whose role counts" if self.counted else ""
        return f"every worker of round {self.round}{which} ended with exit code 0"


@dataclass(frozen=True, slots=True)
class NoNodeFit(Sentence):
    """No node that remains can start workers; what one of them says of it."""

    why: NodeReason
    words = "no remaining node can start workers: {0.why}"


@dataclass(frozen=True, slots=True)
class StandsStill(Sentence):
    """The job makes no progress, and is to fail then (`--on-hang=fail`). `what`: why, as far as it was found."""

    what: Words
    words = "the job makes no progress (--on-hang=fail): {0.what}"


@dataclass(frozen=True, slots=True)
class RecordsLeft(Sentence):
    what: Words
    words = "every worker ended with exit code 0, and one of them left {0.what} begun, which is nobody's"


@dataclass(frozen=True, slots=True)
class AllLeaving(Tagged):
    nodes: Nodes

    def __str__(self) -> str:
        if len(self.nodes) == 1:
            return "the job ends because its only node is leaving"
        return f"the job ends because every node is leaving ({self.nodes})"


# -- how many nodes the job wants ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MayHave(Tagged):
    """The job, or its role of that name, trains with `least` to `most` nodes, and takes as many as it gets."""

    role: Name
    least: Number
    most: Number

    def __str__(self) -> str:
        span = f"{self.least}:{self.most}" if self.least != self.most else str(self.most)
        return f"{f'role {self.role}' if self.role else 'the job'} may have {span} {'node' if span == '1' else 'nodes'}"


@dataclass(frozen=True, slots=True)
class KeepsItsSize(Sentence):
    """No node is admitted for growth's sake (`--scale-up=never`); one that is lost is replaced."""

    words = "--scale-up=never: lost nodes are replaced, and no others are admitted"


@dataclass(frozen=True, slots=True)
class Finishing(Sentence):
    """Workers of that round have trained to the end, so that a node that joins comes too late."""

    round: Number
    words = "workers of round {0.round} are already finishing"


@dataclass(frozen=True, slots=True)
class JobOver(Sentence):
    outcome: Words
    words = "the job has ended: {0.outcome}"


TargetReason = MayHave | KeepsItsSize | Finishing | JobOver
"""Why a job wants as many nodes as it does."""


Reason = (
    FaultReason
    | WaitingForNodes
    | TooFewNodes
    | LastCall
    | LastCallOver
    | AllJoined
    | JoinedAgain
    | NoChange
    | PreparingWorkers
    | NeverScalesUp
    | NoRoom
    | JoinedTooLate
    | AwaitingCheckpoint
    | Settling
    | NodesMissing
    | NodesLeaving
    | AwaitingReports
    | Suspended
    | AllSucceeded
    | NoNodeFit
    | StandsStill
    | RecordsLeft
    | AllLeaving
)
"""Why `round.decide` decided as it did."""
