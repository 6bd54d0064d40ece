"""All that a node knows, as one value. `agent_machine.py` says what changes it, `plan.py` what follows from it."""

import math
from typing import Literal

from ...rendezvous.base.frozen import dataclass, field
from ...rendezvous.header import Header
from ...rendezvous.member import Exit, Report
from ...rendezvous.membership import Registration
from ...rendezvous.ranks import Assignment
from .actions import Operation

NoticeKind = Literal["none", "leave", "kill"]


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node was started with, as far as its decisions go by it.

    Attributes:
        lease_ttl: seconds until a silent machine is taken for lost.
        shutdown_timeout: seconds that workers get between a preemption notice and SIGKILL.
        grace_after_failure: the same for those that survive a failure, a loss or a departure; 0: SIGKILL at once.
        standby: workers may be started without a rank. If not, a node without workers has nothing to get ready.
        roles: the job has roles.
    """

    lease_ttl: float = 5.0
    shutdown_timeout: float = 30.0
    grace_after_failure: float = 0.0
    standby: bool = True
    roles: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """What tells the node to go.

    Attributes:
        kind: nobody told it to; told to leave in order; told to be gone at once.
        signal: which signal said so; 0: none.
        at: when, seconds.
        why: why the job has told it to leave (a standby takes its place, or it was cancelled); empty where it has not.
    """

    kind: NoticeKind = "none"
    signal: int = 0
    at: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """This node's key in the store.

    Attributes:
        registration: its newest; None where it was put out, or has not come yet.
        came: it has been registered, perhaps as an earlier incarnation.
        lapsed: its lease has ended, and nobody has put it out, as far as it knows.
        told: the report that the store holds.
        refusal: why the job refuses it for good; empty where it does not.
        orphaned: why it has no part in the job any more: its run has ended without it; in words.
    """

    registration: Registration | None = None
    came: bool = False
    lapsed: bool = False
    told: Report = field(default_factory=Report)
    refusal: str = ""
    orphaned: str = ""

    @property
    def registered(self) -> bool:
        """It is in the store, as far as this node knows."""
        return self.registration is not None and not self.lapsed

    @property
    def name(self) -> str:
        """Under which the node is registered; empty where it is not."""
        return self.registration.member.node if self.registration else ""

    @property
    def incarnation(self) -> str:
        """Of the registered node; empty where it is not."""
        return self.registration.member.incarnation if self.registration else ""


@dataclass(frozen=True, slots=True)
class KnownRound:
    """The newest header that this node has seen, and what follows from it and those before.

    Attributes:
        header: None before the first.
        revision: the store's, that wrote it; 0 before the first.
        seen_at: when it was seen, seconds.
        gentle: the earliest round from which only joining nodes, and nodes that left in order, led to `header`'s.
        assignment: what its round gives this node; None where it has no part in it.
        assigned: some round has had a rank for this incarnation.
        own_run: the run that this node is in; empty where it is not known yet.
        stale: the run whose end was there when this node came: another run's, not this one's.
        others_keep: the workers of a round that this node had no part in keep their process.
    """

    header: Header | None = None
    revision: int = 0
    seen_at: float = 0.0
    gentle: int = 0
    assignment: Assignment | None = None
    assigned: bool = False
    own_run: str = ""
    stale: str = ""
    others_keep: bool = False

    @property
    def over(self) -> bool:
        """The run that this node is in has ended."""
        return self.header is not None and self.header.final and self.header.run != self.stale


@dataclass(frozen=True, slots=True)
class LocalWorkers:
    """This node's workers.

    Attributes:
        round: that they belong to; 0 where none were started, or they have no rank.
        role: what they do.
        total: how many were started.
        adopted: earlier rounds that they continued from.
        alive: how many have not ended.
        exits: how the others ended, in order.
        late: failures of the round before, which its workers died of by themselves.
        problem: why those of the current round could not be started; empty where they could.
        failed_starts: so often in a row.
        saved: checkpoints that they told of.
        leases: one of them has opened a dataset whose position is in checkpoints.
        service: how a service that they need died, in words; empty where none has.
        lingers: their round has left something here, such as a service of it.
        unready: they were started without a rank, and have ended: there is a pause before others are.
        unready_times: so often in a row.
        keeps: all of them have said that they keep their process.
    """

    round: int = 0
    role: str = "default"
    total: int = 0
    adopted: frozenset[int] = frozenset()
    alive: int = 0
    exits: tuple[Exit, ...] = ()
    late: tuple[Exit, ...] = ()
    problem: str = ""
    failed_starts: int = 0
    saved: int = 0
    leases: bool = False
    service: str = ""
    lingers: bool = False
    unready: bool = False
    unready_times: int = 0
    keeps: bool = False

    @property
    def failed(self) -> bool:
        """One of them has."""
        return any(not exit_.ok for exit_ in self.exits)

    def current(self, round: int) -> int:
        """What the round of that number is called now, where its workers went on into a later one."""
        return self.round if round in self.adopted else round


@dataclass(frozen=True, slots=True)
class StayingWorkers:
    """Of this node's living workers those that keep their process when the membership changes.

    Attributes:
        staying: how many they are.
        holding: how many of them have the job's state.
        done: how many others, which could have, have trained to the end.
        waiting: how many have left their process group and wait for their next rank assignment.
        forming: how many have a rank, and no process group yet.
        slowest: seconds that a step takes here, where that is long.
        broke: why their process group broke, in words; empty where it has not, or is not that of the current round.
        broke_at: since when that is known; None where it has not.
    """

    staying: int = 0
    holding: int = 0
    done: int = 0
    waiting: int = 0
    forming: int = 0
    slowest: float = 0.0
    broke: str = ""
    broke_at: float | None = None


@dataclass(frozen=True, slots=True)
class MachineState:
    """The machine.

    Attributes:
        unfit: why it cannot run workers at all; empty where it can.
        beat_at: when this agent last did what it does regularly, seconds.
        stood_still: it did nothing for so long that its guardian may have ended the workers.
        cleared_at: since when no worker is left here of a node that leaves; None before.
        stalled: so often a worker was without progress for longer than its history allows.
        strained: so often the machine has come near a limit.
        store_gone: why this node waits no longer for the store, in words; empty where it does.
        leading: the job's master runs here.
        rows_lost: why the job cannot go on for the sake of its servers, in words; empty where it can.
        return_wanted: why the whole job is to go back to a checkpoint of their rows; empty where it is not.
    """

    unfit: str = ""
    beat_at: float = math.inf
    stood_still: bool = False
    cleared_at: float | None = None
    stalled: int = 0
    strained: int = 0
    store_gone: str = ""
    leading: bool = False
    rows_lost: str = ""
    return_wanted: str = ""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What the agent does at the moment.

    Attributes:
        action: what it is.
        notice: the kind of the notice that there was when it began.
        revision: that of the newest header then.
        awaits_services: it waits until the services of its round serve.
    """

    action: Operation
    notice: NoticeKind
    revision: int
    awaits_services: bool = False


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a node knows, and does."""

    settings: NodeSettings = field(default_factory=NodeSettings)
    notice: Notice = field(default_factory=Notice)
    key: NodeKey = field(default_factory=NodeKey)
    known: KnownRound = field(default_factory=KnownRound)
    workers: LocalWorkers = field(default_factory=LocalWorkers)
    group: StayingWorkers = field(default_factory=StayingWorkers)
    machine: MachineState = field(default_factory=MachineState)
    operation: UnderWay | None = None

    @property
    def departs(self) -> bool:
        """It was told to leave, or cannot stay."""
        return self.notice.kind != "none" or bool(self.machine.unfit)

    @property
    def header(self) -> Header | None:
        """The current one, unless it is the end of the run before this one."""
        header = self.known.header
        return None if header is None or (header.final and header.run == self.known.stale) else header
