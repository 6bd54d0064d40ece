"""What this node does next, and what it says of itself (pure).

Both functions look at the whole state of affairs each time, never at a history of messages: whatever was missed,
repeated or overtaken, the next look is right. `report` is what the store should hold about this node; `act` is the
one thing to do now with the local workers.
"""

import dataclasses
import signal
from dataclasses import dataclass, field
from typing import Literal

from ..rendezvous.header import Header
from ..rendezvous.member import DEPARTING, MAX_EXITS, Exit, Report
from ..rendezvous.node_reasons import (
    PreemptionNotice,
    ProcessGroupBroke,
    Replaced,
    ServiceEnded,
    StartFailed,
    Unfit,
    cut,
)
from ..rendezvous.ranks import Assignment

SUCCEEDED, FAILED, REFUSED, TIMEOUT, STORE_LOST, REPEATED = 0, 1, 2, 3, 4, 5
"""Exit codes of the launcher; a node that was told to go by a signal exits with 128 + the signal."""

NOTICE_PATIENCE = 1.0
"""Seconds for the store to take the news that this node leaves, before its workers are told: the master should know
the cause before the consequences arrive."""

FAREWELL_PATIENCE = 5.0
"""Seconds that a leaving node, its workers gone, waits to be left out of the round: so that nobody thinks it lost."""

STRANDED_SECONDS = 2.0
"""So long workers whose process group broke wait for the news of who is lost, before they ask for a new round."""

JOIN_SECONDS = 300.0
"""For the workers to come to a commit, where a node has arrived."""

FINAL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for workers of a job that has failed elsewhere."""


@dataclass(frozen=True, slots=True)
class View:
    """All that a node knows at one moment.

    Attributes:
        notice: the preemption notice: nobody told it to go; told to leave in order; told to be gone at once.
        notice_signal: which signal said so (0: none).
        notice_age: seconds since then.
        gives_way: why the job has told it to leave, so that a standby takes its place; empty where it has not.
        left_out_overdue: its workers have been gone for FAREWELL_PATIENCE.
        registered: its key is in the store, as far as it knows.
        lapsed: it was registered, and its lease has ended; nobody has put it out, as far as it knows.
        stood_still: this agent did nothing for so long that its guardian may have ended its workers.
        refusal: why the job refuses it for good; empty where it does not.
        orphaned: why it has no part in the job any more: the run that it was in has ended without it; in words.
        stale: the run whose final header was still there when it registered: another run's end, not this one's.
        header: the current round's header, None before the first.
        assignment: what `header`'s round gives this node, None where it has no part in it.
        assigned: some round has had a rank for this incarnation.
        round: the round that the local workers belong to; 0 where none were started.
        role: what they do.
        alive: how many of them live.
        total: how many there were.
        exits: how they ended, in order.
        saved: checkpoints that they told of; counted only where the job wants to know.
        leases: one of them has asked for shards.
        stalled: so often one of them was without progress for longer than its history allows.
        strained: so often this node has come near a limit.
        late: failures of the round before, which its workers died of by themselves.
        problem: why the workers of `header`'s round could not be started; empty where they could.
        service: how a service that its workers need died; empty where none has.
        lingers: its workers' round has left something here, such as a service of that round.
        unfit: why this node cannot start workers at all; empty where it can.
        leading: the job's master runs here.
        told: what the store holds about this node.
        staying: how many living workers keep their process when the membership changes.
        holding: how many of them have the job's state.
        done: how many others, which could have, have trained to the end.
        waiting: how many of them have left their process group and wait for their next rank assignment.
        forming: how many of them have a rank, and no process group yet.
        stranded: they wait because their process group broke, and have for STRANDED_SECONDS, though no round has come;
            in words.
        keeps: all workers here have said that they keep their process.
        outside: the workers of the round that this node has no part in keep theirs.
        standby: they may be started without a rank. If not, a node without workers has nothing to get ready.
        unready: its workers were started without a rank, and ended.
        slowest: seconds that a step takes here, where that is long.
        header_age: seconds since `header` was seen.
        gentle: the earliest round from which only joining nodes, and nodes that left in order, led to `header`'s.
        store_gone: the store has not answered for longer than the node waits for it; in words.
        shutdown_timeout: seconds that workers get between a preemption notice and SIGKILL.
        grace_after_failure: the same for those that survive a failure, a loss or a departure; 0: SIGKILL at once.
    """

    notice: Literal["none", "leave", "kill"] = "none"
    notice_signal: int = 0
    notice_age: float = 0.0
    gives_way: str = ""
    left_out_overdue: bool = False
    registered: bool = True
    lapsed: bool = False
    stood_still: bool = False
    refusal: str = ""
    orphaned: str = ""
    stale: str = ""
    header: Header | None = None
    assignment: Assignment | None = None
    assigned: bool = False
    round: int = 0
    role: str = "default"
    alive: int = 0
    total: int = 0
    exits: tuple[Exit, ...] = ()
    saved: int = 0
    leases: bool = False
    stalled: int = 0
    strained: int = 0
    late: tuple[Exit, ...] = ()
    problem: str = ""
    service: str = ""
    lingers: bool = False
    unfit: str = ""
    leading: bool = False
    told: Report = field(default_factory=Report)
    staying: int = 0
    holding: int = 0
    done: int = 0
    waiting: int = 0
    forming: int = 0
    stranded: str = ""
    slowest: float = 0.0
    header_age: float = 0.0
    gentle: int = 0
    keeps: bool = False
    outside: bool = False
    standby: bool = True
    unready: bool = False
    store_gone: str = ""
    shutdown_timeout: float = 30.0
    grace_after_failure: float = 0.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something changes, or `seconds` have passed."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Register:
    """Become a member (again)."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Take up the registration whose lease has ended, as the same incarnation. The workers continue."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the workers of this round, having read the header once more."""

    header: Header
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Ready:
    """Start workers without a rank: they do all that precedes their first process group, and wait, as stayers do."""

    header: Header


@dataclass(frozen=True, slots=True)
class Invite:
    """Ask the workers to leave the process group for `round` together, at a step's end; wait up to `seconds`."""

    round: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Break:
    """Break the workers' process group: the job waits for nodes, and they keep what they have until then."""

    round: int


@dataclass(frozen=True, slots=True)
class Reform:
    """Give each worker that keeps its process its rank assignment in this round, and start those that are missing."""

    header: Header
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Adopt:
    """The workers continue as they are: another node's are started again in this round, and theirs are not."""

    header: Header
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Stop:
    """End every local worker: signal `first`, SIGKILL after `grace` seconds."""

    first: int
    grace: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the job and exit with `code`."""

    code: int


Action = Wait | Register | Resume | Start | Ready | Invite | Break | Reform | Adopt | Stop | Leave


def report(view: View) -> Report:
    """What the store should hold about this node."""
    wanted = _report(view)
    header = _current(view)
    if wanted is view.told or header is None:
        return wanted
    leases = view.leases and view.alive > 0
    return dataclasses.replace(wanted, run=header.run, holding=view.holding, leases=leases)


def _report(view: View) -> Report:
    header = _current(view)
    # The failures that tell the cause come first: there is no room for all.
    telling = sorted((*view.late, *view.exits), key=lambda exit_: exit_.ok or exit_.stopped)
    exits = tuple(telling[:MAX_EXITS])
    ended = view.total > 0 and view.alive == 0 and header is not None and view.round == header.number
    done = ended and len(view.exits) == view.total and all(exit_.ok and not exit_.stopped for exit_ in view.exits)
    if header is not None and header.final:
        return view.told
    if view.unfit:
        return Report("unfit", view.round, exits, Unfit(cut(view.unfit)))
    if view.notice != "none" and (not done or view.told.state in DEPARTING):
        # Who has said that it leaves must not be taken for somebody who stays, whatever its workers did meanwhile.
        return Report("leaving", view.round, exits, _told_by(view))
    if header is None:
        return Report("waiting")
    if header.state != "open" or view.assignment is None:
        ready = view.round == 0 and 0 < view.total == view.alive == view.waiting
        ready = ready or (not view.standby and view.alive == 0)
        return Report("waiting", header.number, exits, ready=ready)
    if view.problem:
        return Report("failed", header.number, exits, StartFailed(cut(view.problem)))
    if view.round != header.number:
        return view.told  # the workers of this round are about to be started: then there is news
    if done:
        return Report("succeeded", view.round, exits)
    if view.service or any(not exit_.ok for exit_ in view.exits):
        return Report("failed", view.round, exits, ServiceEnded(cut(view.service)) if view.service else None)
    keeps = view.keeps and view.staying == view.total  # a new one among them may still be on its way
    if view.stranded:
        return Report("failed", view.round, exits, ProcessGroupBroke(cut(view.stranded)), keeps=keeps)
    return Report(
        "running",
        view.round,
        exits,
        saved=view.saved,
        keeps=keeps,
        done=view.done > 0,
        stalled=view.stalled,
        strained=view.strained,
    )


def act(view: View) -> tuple[Action, str]:
    """What to do now, and why."""
    header = _current(view)
    if view.notice == "kill":
        return _gone(view, 128 + view.notice_signal, "it received a second signal", 0.0)
    if view.refusal:
        return _gone(view, REFUSED, view.refusal, 0.0)
    over = header is not None and header.final
    if view.notice == "leave" and not (over and header and header.state == "succeeded"):
        return _leave(view)
    if view.orphaned:
        return _gone(view, FAILED, view.orphaned, 0.0)
    if over and header:
        code = exit_code(header, view.notice_signal)
        # In a job with roles some have succeeded, and the others are needed no more: they may save something.
        grace = max(FINAL_GRACE, view.grace_after_failure)
        return _gone(view, code, str(header.reason), 0.0 if code == SUCCEEDED and not header.roles else grace)
    if view.unfit:
        return _leave(view)
    if view.store_gone and (view.alive == 0 or any(not exit_.ok for exit_ in view.exits)):
        return _gone(view, STORE_LOST, view.store_gone, view.grace_after_failure)
    if view.lapsed:
        return Resume(), "its lease expired, and as far as this node knows it was not evicted"
    if not view.registered:
        if view.alive:
            return _stop(0.0), "this node is no longer a member of the job: other nodes may have its ranks"
        return Register(), "this node is not a member of the job"
    if header is None:
        return Wait(), "waiting for the first round"
    if header.state == "waiting" or view.assignment is None:
        if view.alive and view.staying and header.state == "waiting":
            return (Break(header.number) if view.waiting < view.staying else Wait()), str(header.reason)
        if (
            header.state == "open"
            and view.outside
            and view.standby
            and not view.unready
            and (view.round or view.alive < view.total if view.staying else not view.alive)
        ):
            return Ready(header), "not in the current round: preparing workers"
        if (view.alive and (view.round or header.state == "waiting")) or (view.lingers and not view.alive):
            return _stop(view.grace_after_failure), str(header.reason)
        if header.state == "waiting":
            return Wait(), str(header.reason)
        return Wait(), "not in the current round: waiting to join"
    if view.round == header.number or view.problem:
        return Wait(), ""
    if 0 < view.assignment.since <= view.round:
        return Adopt(header, view.assignment), str(header.reason)
    if view.alive and view.staying and view.role == view.assignment.role:
        return _reform(view, header, view.assignment), str(header.reason)
    if view.alive:
        # A join is planned: scripts that save something on SIGTERM get the time for it. After a fault the user decides.
        planned = header.cause == "joined"
        return _stop(view.shutdown_timeout if planned else view.grace_after_failure), str(header.reason)
    return Start(header, view.assignment), str(header.reason)


def replaced(view: View) -> str:
    """Why a node whose lease has ended cannot continue with the workers that it has; empty where it can."""
    header = _current(view)
    killed = any(exit_.signal == signal.SIGKILL and not exit_.stopped for exit_ in view.exits)
    if view.stood_still and killed:
        return "its lease expired (this agent was suspended, and its workers were killed meanwhile)"
    left_out = header is not None and header.state == "open" and view.assignment is None
    if left_out and view.assigned:
        return "its lease expired (this machine was unreachable or suspended), and a round was opened without it"
    return ""


def _reform(view: View, header: Header, assignment: Assignment) -> Action:
    """How the workers that keep their process come into `header`'s round."""
    planned = header.cause in ("joined", "left") and view.gentle <= view.round
    # The news travels with one commit, and the process group is left at the next. A joining node harms nobody by
    # waiting, also where this is an evaluation; who breaks it off may end all that have the job's state.
    patience = max(view.shutdown_timeout, 4 * view.slowest) - view.header_age
    if header.cause == "joined":
        patience = max(patience, JOIN_SECONDS - view.header_age)
    if planned and _trains(view) and view.waiting < view.alive and patience > 0:
        return Invite(header.number, patience)
    return Reform(header, assignment)


def gentle(known: Header | None, earliest: int, header: Header) -> int:
    """What `View.gentle` becomes, when `header` is seen after `known`, with which it was `earliest`."""
    if known is not None and known.number == header.number:
        return earliest
    if header.state != "open" or header.cause not in ("joined", "left"):
        return header.number
    return earliest if known is not None and known.number == header.number - 1 else header.number - 1


def _trains(view: View) -> bool:
    """The process group of the workers here is whole, as far as this node can tell: it is left at a step's end."""
    return view.staying == view.alive == view.total and not view.forming


def _current(view: View) -> Header | None:
    """The header, unless it is the end of the run before this one."""
    header = view.header
    return None if header is None or (header.final and header.run == view.stale) else header


def _leave(view: View) -> tuple[Action, str]:
    header = _current(view)
    code, why = 128 + (view.notice_signal or signal.SIGTERM), str(_told_by(view))
    if view.unfit:
        code, why = FAILED, view.unfit
    if header is not None and header.state == "preempted":
        why = str(header.reason)
    told = view.registered and not view.store_gone
    patient = not view.left_out_overdue if view.unfit else view.notice_age < NOTICE_PATIENCE
    if told and view.told.state not in DEPARTING and patient:
        return Wait(NOTICE_PATIENCE if view.unfit else NOTICE_PATIENCE - view.notice_age), view.unfit
    if view.alive:
        if told and (last_step := _last_step(view, header)):
            return last_step, view.unfit
        return Stop(view.notice_signal or signal.SIGTERM, view.shutdown_timeout), why
    # What is left to be published: the round without this node, or by its own master the end of the job.
    counted = header is not None and header.state == "open" and view.assignment is not None
    last = view.leading and (header is None or header.state == "waiting")
    if told and view.told.state in DEPARTING and (counted or last) and not view.left_out_overdue:
        return Wait(0.5), ""  # at most FAREWELL_PATIENCE, and the signal has been announced
    return Leave(code), why


def _told_by(view: View) -> PreemptionNotice | Replaced:
    """What has told the node to leave."""
    return Replaced(cut(view.gives_way)) if view.gives_way else PreemptionNotice(view.notice_signal)


def _last_step(view: View, header: Header | None) -> Action | None:
    """A leaving node whose workers keep their process lets them leave the process group together with the others."""
    patience = view.shutdown_timeout - view.notice_age
    if not _trains(view) or view.waiting == view.alive or patience <= 0 or header is None:
        return None
    if header.state != "open" or (header.nodes < 2 and header.number == view.round):
        return None  # there are no others, or they have stopped
    return Wait(patience) if header.number == view.round else Invite(header.number, patience)


def _gone(view: View, code: int, why: str, grace: float) -> tuple[Action, str]:
    if view.alive:
        return _stop(grace), why
    return Leave(code), why


def _stop(grace: float) -> Stop:
    return Stop(signal.SIGTERM if grace else signal.SIGKILL, grace)


def exit_code(header: Header, notice_signal: int = 0) -> int:
    """The launcher's exit code for a final header."""
    match header.state:
        case "succeeded":
            return SUCCEEDED
        case "repeated":
            return REPEATED
        case "timeout":
            return TIMEOUT
        case "preempted":
            return 128 + (notice_signal or signal.SIGTERM)
        case _:
            return FAILED
