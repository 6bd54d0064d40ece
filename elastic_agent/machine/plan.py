"""What this node does next, and what it says of itself (pure).

Both functions look at the whole state of affairs each time, never at a history of messages: whatever was missed,
repeated or overtaken, the next look is right. `report` is what the store should hold about this node; `act` is the
one thing to do now with the local workers.
"""

import dataclasses
import signal
from collections.abc import Iterable

from ...rendezvous.header import Header
from ...rendezvous.member import DEPARTING, MAX_EXITS, Exit, Report, write_ranks
from ...rendezvous.node_reasons import (
    PreemptionNotice,
    ProcessGroupBroke,
    Replaced,
    ReturnWanted,
    ServersLost,
    ServiceEnded,
    StartFailed,
    Unfit,
    cut,
)
from ...rendezvous.ranks import Assignment
from .actions import Action, Adopt, Break, Invite, Leave, Ready, Reform, Register, Resume, Start, Stop, Wait
from .node_state import LocalWorkers, NodeState, Notice

SUCCEEDED, FAILED, REFUSED, TIMEOUT, STORE_LOST, REPEATED = 0, 1, 2, 3, 4, 5
"""Exit codes of the launcher; a node that was told to go by a signal exits with 128 + the signal."""

NOTICE_PATIENCE = 1.0
"""Seconds for the store to take the news that this node leaves, before its workers are told: the master should know
the cause before the consequences arrive."""

FAREWELL_PATIENCE = 5.0
"""Seconds that a leaving node, its workers gone, waits to be left out of the round: so that nobody thinks it lost."""

UNREADY_SECONDS = 1.0
"""Before a node whose worker ended while it got ready tries again; then four times as long, and so on."""

STRANDED_SECONDS = 2.0
"""So long workers whose process group broke wait for the news of who is lost, before they ask for a new round."""

JOIN_SECONDS = 300.0
"""For the workers to come to a commit, where a node has arrived."""

FINAL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for workers of a job that has failed elsewhere."""


def report(state: NodeState, now: float) -> Report:
    """What the store should hold about this node, at the agent's second `now`."""
    wanted = _report(state, now)
    header, workers = state.header, state.workers
    if wanted is state.key.told or header is None:
        return wanted
    leases = workers.leases and workers.alive > 0
    return dataclasses.replace(
        wanted, run=header.run, holding=state.group.holding, leases=leases, ended=_untold(wanted, workers)
    )


def _untold(wanted: Report, workers: LocalWorkers) -> tuple[int, ...]:
    """The workers that ended with 0 and have no room among the report's exits: others wait for what they lease."""
    if wanted.round != workers.round or len(wanted.exits) < MAX_EXITS:
        return ()
    told = set(wanted.exits)
    return write_ranks(each.local_rank for each in workers.exits if each.ok and each not in told)


def _report(state: NodeState, now: float) -> Report:
    header, workers, group, told = state.header, state.workers, state.group, state.key.told
    # The failures that tell the cause come first: there is no room for all.
    telling = sorted((*workers.late, *workers.exits), key=lambda exit_: exit_.ok or exit_.stopped)
    exits = tuple(telling[:MAX_EXITS])
    ended = workers.total > 0 and workers.alive == 0 and header is not None and workers.round == header.number
    done = (
        ended and len(workers.exits) == workers.total and all(exit_.ok and not exit_.stopped for exit_ in workers.exits)
    )
    if header is not None and header.final:
        return told
    if state.machine.unfit:
        return Report("unfit", workers.round, exits, Unfit(cut(state.machine.unfit)))
    if state.notice.kind != "none" and (not done or told.state in DEPARTING):
        # Who has said that it leaves must not be taken for somebody who stays, whatever its workers did meanwhile.
        return Report("leaving", workers.round, exits, _told_by(state.notice))
    if header is None:
        return Report("waiting")
    if header.state != "open" or state.known.assignment is None:
        ready = workers.round == 0 and 0 < workers.total == workers.alive == group.waiting
        ready = ready or (not state.settings.standby and workers.alive == 0)
        return Report("waiting", header.number, exits, ready=ready)
    if state.machine.rows_lost:
        return Report("failed", header.number, exits, ServersLost(cut(state.machine.rows_lost)))
    if state.machine.return_wanted:
        return Report("failed", header.number, exits, ReturnWanted(cut(state.machine.return_wanted)))
    if workers.problem:
        return Report("failed", header.number, exits, StartFailed(cut(workers.problem)))
    if workers.round != header.number:
        return told  # the workers of this round are about to be started: then there is news
    if done:
        return Report("succeeded", workers.round, exits)
    if workers.service or workers.failed:
        ended_service = ServiceEnded(cut(workers.service)) if workers.service else None
        return Report("failed", workers.round, exits, ended_service)
    keeps = workers.keeps and group.staying == workers.total  # a new one among them may still be on its way
    if group.broke_at is not None and now - group.broke_at >= STRANDED_SECONDS:
        return Report("failed", workers.round, exits, ProcessGroupBroke(cut(group.broke)), keeps=keeps)
    return Report(
        "running",
        workers.round,
        exits,
        saved=workers.saved,
        keeps=keeps,
        done=group.done > 0,
        stalled=state.machine.stalled,
        strained=state.machine.strained,
    )


def act(state: NodeState, now: float) -> tuple[Action, str]:
    """What to do at the agent's second `now`, and why."""
    header, assignment = state.header, state.known.assignment
    notice, key, workers, group, machine = state.notice, state.key, state.workers, state.group, state.machine
    grace_after_failure = state.settings.grace_after_failure
    if notice.kind == "kill":
        return _gone(workers, 128 + notice.signal, "it received a second signal", 0.0)
    if key.refusal:
        return _gone(workers, REFUSED, key.refusal, 0.0)
    over = header is not None and header.final
    if notice.kind == "leave" and not (over and header and header.state == "succeeded"):
        return _leave(state, now)
    if key.orphaned:
        return _gone(workers, FAILED, key.orphaned, 0.0)
    if over and header:
        code = exit_code(header, notice.signal)
        # In a job with roles some have succeeded, and the others are needed no more: they may save something.
        grace = max(FINAL_GRACE, grace_after_failure)
        return _gone(workers, code, str(header.reason), 0.0 if code == SUCCEEDED and not header.roles else grace)
    if machine.unfit:
        return _leave(state, now)
    if machine.store_gone and (workers.alive == 0 or workers.failed):
        return _gone(workers, STORE_LOST, machine.store_gone, grace_after_failure)
    if key.lapsed:
        return Resume(), "its lease expired, and as far as this node knows it was not evicted"
    if not key.registered:
        if workers.alive:
            return _stop(0.0), "this node is no longer a member of the job: other nodes may have its ranks"
        return Register(), "this node is not a member of the job"
    if header is None:
        return Wait(), "waiting for the first round"
    if header.state == "waiting" or assignment is None:
        return _stand_by(state, header)
    if workers.round == header.number or workers.problem:
        return Wait(), ""
    if workers.alive and 0 < workers.round < header.rows_from:  # what they know is newer than the rows
        return _stop(grace_after_failure), str(header.reason)
    if 0 < assignment.since <= workers.round:
        return Adopt(header, assignment), str(header.reason)
    if workers.alive and group.staying and workers.role == assignment.role:
        return _reform(state, header, assignment, now), str(header.reason)
    if workers.alive:
        # A join is planned: scripts that save something on SIGTERM get the time for it. After a fault the user decides.
        planned = header.cause == "joined"
        return _stop(state.settings.shutdown_timeout if planned else grace_after_failure), str(header.reason)
    return Start(header, assignment), str(header.reason)


def _stand_by(state: NodeState, header: Header) -> tuple[Action, str]:
    """What a node does that has no part in the round, or whose job waits for nodes."""
    workers, group = state.workers, state.group
    if workers.alive and group.staying and header.state == "waiting":
        return (Break(header.number) if group.waiting < group.staying else Wait()), str(header.reason)
    outside = (state.known.others_keep or workers.keeps) and not state.settings.roles
    if (
        header.state == "open"
        and outside
        and state.settings.standby
        and not workers.unready
        and (workers.round or workers.alive < workers.total if group.staying else not workers.alive)
    ):
        return Ready(header), "not in the current round: preparing workers"
    if (workers.alive and (workers.round or header.state == "waiting")) or (workers.lingers and not workers.alive):
        return _stop(state.settings.grace_after_failure), str(header.reason)
    if header.state == "waiting":
        return Wait(), str(header.reason)
    return Wait(), "not in the current round: waiting to join"


def replaced(state: NodeState, now: float) -> str:
    """Why a node whose lease has ended cannot continue with the workers that it has; empty where it can."""
    header, machine = state.header, state.machine
    killed = any(exit_.signal == signal.SIGKILL and not exit_.stopped for exit_ in state.workers.exits)
    if killed and (machine.stood_still or now - machine.beat_at > state.settings.lease_ttl):
        return "its lease expired (this agent was suspended, and its workers were killed meanwhile)"
    left_out = header is not None and header.state == "open" and state.known.assignment is None
    if left_out and state.known.assigned:
        return "its lease expired (this machine was unreachable or suspended), and a round was opened without it"
    return ""


def _reform(state: NodeState, header: Header, assignment: Assignment, now: float) -> Action:
    """How the workers that keep their process come into `header`'s round."""
    workers, group, age = state.workers, state.group, now - state.known.seen_at
    planned = header.cause in ("joined", "left") and state.known.gentle <= workers.round
    # The news travels with one commit, and the process group is left at the next. A joining node harms nobody by
    # waiting, also where this is an evaluation; who breaks it off may end all that have the job's state.
    patience = max(state.settings.shutdown_timeout, 4 * group.slowest) - age
    if header.cause == "joined":
        patience = max(patience, JOIN_SECONDS - age)
    if planned and _trains(state) and group.waiting < workers.alive and patience > 0:
        return Invite(header.number, patience)
    return Reform(header, assignment)


def is_overtaken(state: NodeState) -> bool:
    """Whether there is news that cuts short what is under way: the next look is to decide about it."""
    under_way = state.operation
    if under_way is None:
        return False
    notice, action = state.notice.kind, under_way.action
    if isinstance(action, Stop) and under_way.notice != "none":
        return under_way.notice == "leave" and notice == "kill"
    if notice != "none":
        return True
    if isinstance(action, Stop):
        return state.known.revision != under_way.revision
    # One that waits for the services of other nodes waits in vain where one of these is lost.
    return under_way.awaits_services and isinstance(action, Start | Reform) and state.known.header != action.header


def ended_early(workers: LocalWorkers, exits: Iterable[Exit]) -> bool:
    """Whether workers that had no rank yet have ended by themselves, and there is no pause for it already."""
    return not workers.unready and any(exit_.round == 0 and not exit_.stopped for exit_ in exits)


def unready_pause(workers: LocalWorkers) -> float:
    """Seconds until a node whose worker has ended without a rank tries again."""
    return UNREADY_SECONDS * 4 ** (workers.unready_times - 1)


def gentle(known: Header | None, earliest: int, header: Header) -> int:
    """What `KnownRound.gentle` becomes, when `header` is seen after `known`, with which it was `earliest`."""
    if known is not None and known.number == header.number:
        return earliest
    if header.state != "open" or header.cause not in ("joined", "left"):
        return header.number
    return earliest if known is not None and known.number == header.number - 1 else header.number - 1


def _trains(state: NodeState) -> bool:
    """The process group of the workers here is whole, as far as this node can tell: it is left at a step's end."""
    return state.group.staying == state.workers.alive == state.workers.total and not state.group.forming


def _leave(state: NodeState, now: float) -> tuple[Action, str]:
    header, notice, key, unfit = state.header, state.notice, state.key, state.machine.unfit
    code, why = 128 + (notice.signal or signal.SIGTERM), str(_told_by(notice))
    if unfit:
        code, why = FAILED, unfit
    if header is not None and header.state == "preempted":
        why = str(header.reason)
    cleared_at, age = state.machine.cleared_at, now - notice.at
    overdue = cleared_at is not None and now - cleared_at > FAREWELL_PATIENCE
    can_tell = key.registered and not state.machine.store_gone
    patient = not overdue if unfit else age < NOTICE_PATIENCE
    if can_tell and key.told.state not in DEPARTING and patient:
        return Wait(NOTICE_PATIENCE if unfit else NOTICE_PATIENCE - age), unfit
    if state.workers.alive:
        if can_tell and (last_step := _last_step(state, header, age)):
            return last_step, unfit
        return Stop(notice.signal or signal.SIGTERM, state.settings.shutdown_timeout), why
    # What is left to be published: the round without this node, or by its own master the end of the job.
    counted = header is not None and header.state == "open" and state.known.assignment is not None
    last = state.machine.leading and (header is None or header.state == "waiting")
    if can_tell and key.told.state in DEPARTING and (counted or last) and not overdue:
        return Wait(0.5), ""  # at most FAREWELL_PATIENCE, and the signal has been announced
    return Leave(code), why


def _told_by(notice: Notice) -> PreemptionNotice | Replaced:
    """What has told the node to leave."""
    return Replaced(cut(notice.why)) if notice.why else PreemptionNotice(notice.signal)


def _last_step(state: NodeState, header: Header | None, age: float) -> Action | None:
    """A leaving node whose workers keep their process lets them leave the process group together with the others."""
    patience = state.settings.shutdown_timeout - age
    if not _trains(state) or state.group.waiting == state.workers.alive or patience <= 0 or header is None:
        return None
    if header.state != "open" or (header.nodes < 2 and header.number == state.workers.round):
        return None  # there are no others, or they have stopped
    return Wait(patience) if header.number == state.workers.round else Invite(header.number, patience)


def _gone(workers: LocalWorkers, code: int, why: str, grace: float) -> tuple[Action, str]:
    return (_stop(grace) if workers.alive else Leave(code)), why


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
