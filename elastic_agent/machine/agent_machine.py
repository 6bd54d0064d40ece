"""What each event changes of what a node knows (pure), and the one place that holds it.

An event replaces parts of the state; then `plan.report` and `plan.act` are asked of the whole.
"""

from dataclasses import replace

from . import known_round, node_events
from .node_events import NodeEvent
from .node_state import LocalWorkers, NodeKey, NodeSettings, NodeState, Notice, UnderWay

REPEAT_SECONDS = 0.5
"""Two signals within this are one preemption notice: `timeout`, schedulers and container runtimes signal a whole
process group, and the launcher's parent passes it on once more."""

MAX_FAILED_STARTS = 2
"""A node that could not start its workers so often in a row leaves: the others must not be stopped for it again."""


class AgentMachine:
    """Holds what one node knows. `state` is another value after each event."""

    def __init__(self, settings: NodeSettings) -> None:
        self.state = NodeState(settings)

    def on(self, event: NodeEvent, now: float) -> NodeState:
        """What is known after `event`, at the agent's second `now`."""
        self.state = apply_event(self.state, event, now)
        return self.state


def apply_event(state: NodeState, event: NodeEvent, now: float) -> NodeState:
    """What a node knows after `event`, at the agent's second `now`."""
    key, known, workers, machine = state.key, state.known, state.workers, state.machine
    match event:
        case node_events.SignalReceived(number):
            return replace(state, notice=_heed_signal(state.notice, number, now))
        case node_events.AskedToLeave(why):
            if state.departs or key.refusal:
                return state
            return replace(state, notice=Notice("leave", 0, now, why))
        case node_events.Registering(stale):
            # The end of an earlier run stays another's, also where the store has removed that by now.
            others = known.header and known.header.final and known.header.run in (known.stale, stale)
            return replace(state, known=replace(known, header=None if others else known.header, stale=stale))
        case node_events.KeyWritten(registration, report):
            return replace(
                state,
                key=NodeKey(registration, came=True, told=report, refusal=key.refusal, orphaned=key.orphaned),
                known=replace(known, assignment=None, assigned=False),
                workers=replace(workers, round=0, total=0, late=(), problem=""),
                machine=replace(machine, stood_still=False),
            )
        case node_events.KeyResumed(registration):
            return replace(
                state,
                key=replace(key, registration=registration, came=True, lapsed=False),
                machine=replace(machine, stood_still=False),
            )
        case node_events.ReportWritten(registration, report):
            return replace(state, key=replace(key, registration=registration, told=report))
        case node_events.KeyLapsed():
            return replace(state, key=replace(key, lapsed=True))
        case node_events.KeyLost():
            return replace(state, key=replace(key, registration=None, lapsed=False))
        case node_events.RefusedForGood(why):
            return replace(state, key=replace(key, refusal=why))
        case node_events.EndMissed(header):
            return replace(state, known=replace(known, header=header))
        case node_events.Orphaned(why):
            return replace(state, key=replace(key, orphaned=why))
        case node_events.RoundRead(header, revision, assignment):
            newer = known_round.take(
                known,
                header,
                revision,
                assignment,
                registered=key.registration.revision if key.registration else None,
                fresh=state.notice.kind == "none" and workers.round == 0,
                now=now,
            )
            if newer is None:
                return state
            problem = workers.problem if known.revision == revision else ""
            return replace(state, known=newer, workers=replace(workers, problem=problem))
        case node_events.OthersKeep():
            return replace(state, known=replace(known, others_keep=True))
        case node_events.OperationBegun(action):
            return replace(state, operation=UnderWay(action, state.notice.kind, known.revision))
        case node_events.ServicesAwaited(over):
            return replace(state, operation=state.operation and replace(state.operation, awaits_services=not over))
        case node_events.OperationEnded():
            return replace(state, operation=None)
        case node_events.MachineUnfit(why):
            return replace(state, machine=replace(machine, unfit=why))
        case node_events.RowsLost(why, wanted):
            return replace(state, machine=replace(machine, rows_lost=why, return_wanted=wanted))
        case node_events.Unkillable(pid):
            if state.departs:
                return state
            why = f"process {pid} of its workers does not exit after SIGKILL: the machine may need a restart"
            return replace(state, machine=replace(machine, unfit=why))
        case node_events.AgentBeat():
            stood_still = machine.stood_still or now - machine.beat_at > state.settings.lease_ttl
            return replace(state, machine=replace(machine, stood_still=stood_still, beat_at=now))
        case node_events.WorkerStalled():
            return replace(state, machine=replace(machine, stalled=machine.stalled + 1))
        case node_events.WorkersMove():
            return replace(state, machine=replace(machine, stalled=0))
        case node_events.MachineStrained():
            return replace(state, machine=replace(machine, strained=machine.strained + 1))
        case node_events.StoreSeen(store_gone, leading):
            return replace(state, machine=replace(machine, store_gone=store_gone, leading=leading))
        case node_events.WorkersSeen():
            return _take_look(state, event, now)
        case node_events.WorkersBegin(round, role, total, adopted):
            return _begin_round(state, round, role, total, adopted=adopted)
        case node_events.StartProblem(why, fault=True):
            failed = workers.failed_starts + 1
            if failed >= MAX_FAILED_STARTS:
                unfit = f"this node could not start its workers {failed} times in a row: {why}"
                machine = replace(machine, unfit=unfit)
            return replace(state, workers=replace(workers, problem=why, failed_starts=failed), machine=machine)
        case _:
            return replace(state, workers=_change_workers(workers, event))


def _change_workers(workers: LocalWorkers, event: NodeEvent) -> LocalWorkers:
    """What changes only what is known of the workers."""
    match event:
        case node_events.WorkersStarted(anew):
            return replace(workers, failed_starts=0, unready_times=0, keeps=workers.keeps and not anew)
        case node_events.StartProblem(why):
            return replace(workers, problem=why)
        case node_events.WorkersUnready(none):
            return replace(
                workers,
                unready=True,
                unready_times=workers.unready_times + (not none),
                total=0 if none else workers.total,
            )
        case node_events.UnreadyOver():
            return replace(workers, unready=False)
        case node_events.RoundLeft(failed, adds):
            return replace(workers, late=failed or workers.late if adds else failed)
        case node_events.AllStay():
            return replace(workers, keeps=True)
        case node_events.CheckpointSaved():
            return replace(workers, saved=workers.saved + 1)
        case node_events.ShardsAsked():
            return replace(workers, leases=True)
        case _:
            raise AssertionError(event)


def _heed_signal(notice: Notice, number: int, now: float) -> Notice:
    """What the preemption notice becomes by a signal: the first tells the node to leave, the second to be gone."""
    if notice.kind == "none" or not notice.signal:
        return replace(notice, kind="leave", signal=number, at=now)
    return notice if now - notice.at < REPEAT_SECONDS else replace(notice, kind="kill")


def _begin_round(state: NodeState, round: int, role: str, total: int, *, adopted: bool) -> NodeState:
    workers = replace(state.workers, round=round, role=role, total=total)
    if round == 0:  # without a rank
        return replace(state, workers=workers)
    before = state.workers
    return replace(
        state,
        workers=replace(
            workers,
            adopted=before.adopted | {before.round} if adopted else frozenset(),
            saved=0,
            leases=adopted and before.leases,
            unready=False,
        ),
        machine=replace(state.machine, stalled=0, strained=0),
    )


def _take_look(state: NodeState, seen: node_events.WorkersSeen, now: float) -> NodeState:
    header, workers, machine = state.known.header, state.workers, state.machine
    broke = seen.group.broke if header and workers.round == header.number else ""
    broke_at = None if not broke else now if state.group.broke_at is None else state.group.broke_at
    if machine.cleared_at is None and state.departs and seen.alive == 0:
        machine = replace(machine, cleared_at=now)
    exits = seen.exits if workers.round else ()
    return replace(
        state,
        workers=replace(workers, alive=seen.alive, exits=exits, service=seen.service, lingers=seen.lingers),
        group=replace(seen.group, broke=broke, broke_at=broke_at),
        machine=machine,
    )
