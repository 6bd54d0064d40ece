"""The agent: one per machine. It looks, asks `plan.py` what to do, does it, and looks again.

Everything that can happen to a node is told as an event (`node_events.py`) by a part of its own: the round's header
(`node/round_follower.py`), this node's key and lease (`node/registration.py`), the workers (`workers/`), signals
(`node/preemption.py`); each change wakes the loop. The loop decides nothing: `plan.report` and `plan.act` do, and they
see the whole state of affairs every time.
"""

import asyncio
import os
import secrets
import signal
from functools import partial
from typing import TYPE_CHECKING

from ..master.diagnosis.evidence import NodeEvidence
from ..master.diagnosis.examination import Here
from ..master.diagnosis.findings import Finding
from ..master.diagnosis.requests import Look
from ..master.status import Status
from ..rendezvous import failure_detector
from ..rendezvous.base.errors import OtherSecret
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.base.tasks import Tasks
from ..rendezvous.header import Header
from ..rendezvous.host.trace_file import Trace
from ..rendezvous.keys import Keys
from ..rendezvous.member import Exit
from ..rendezvous.rpc.envelope import Caller
from ..rendezvous.store.contract import Store
from ..rendezvous.store.waits import Waits
from . import master_client
from .agent_trace import Observer, Recorder
from .candidate import Candidacy, Candidate
from .diagnosis.service import Diagnosis
from .inbox import Inbox
from .local_machine import RealMachine
from .logs.output import Output
from .machine import plan
from .machine.actions import Adopt, Break, Invite, Leave, Operation, Ready, Reform, Register, Resume, Start, Stop, Wait
from .machine.node_events import (
    AgentBeat,
    CheckpointSaved,
    EndMissed,
    MachineUnfit,
    OperationBegun,
    OperationEnded,
    RefusedForGood,
    RowsLost,
    ShardsAsked,
    StoreSeen,
)
from .machine.node_state import NodeState
from .machine.store_patience import store_gone
from .master_client import Link
from .node.preemption import PreemptionSignals
from .node.registration import NodeRegistration
from .node.round_follower import RoundFollower
from .node_memory import NodeMemory
from .observation import Observation, local_methods
from .say_once import SayOnce
from .setup import Setup
from .timeline import Timeline
from .worker_server import CallHandler
from .workers.failure import advice
from .workers.worker_group import WorkerGroup

if TYPE_CHECKING:
    from ..master.machine.parameter_servers import RankWait
    from .hosting import Host

ADDRESS_LOOKS = 7
"""Beats in a row in which this machine does not have its address: one that is renewed may be gone for an instant."""


@dataclass(frozen=True, slots=True)
class Result:
    """How the node's part in the job ended.

    Attributes:
        code: the launcher's exit code.
        reason: in words.
        header: the last header that it saw.
        node: the name under which it was registered.
        exits: the last workers' exits on this node, in order.
        timeline: what happened when.
        findings: of the job's diagnosis, as far as this node's master made them.
    """

    code: int
    reason: str
    header: Header | None
    node: str
    exits: tuple[Exit, ...]
    timeline: Timeline
    findings: tuple[Finding, ...] = ()


class Agent:
    """One node's part in a job. `run` returns when it is over.

    Args:
        setup: what it is started with.
        store: the job's store; the caller closes it.
        output: where workers' lines and the launcher's own go.
        machine: what it runs on.
        trace: where it records what it does; None: nowhere.
        observer: is told of what happens; None: nobody.
        host: makes what runs beside the workers for the whole job; None: nothing does.
    """

    def __init__(
        self,
        setup: Setup,
        store: Store,
        output: Output,
        machine: RealMachine,
        trace: Trace | None = None,
        observer: Observer | None = None,
        host: "Host | None" = None,
    ) -> None:
        self._setup = setup
        self._store = store
        self._output, self._machine = output, machine
        self._address_missed = 0  # beats in a row
        self._inbox = inbox = Inbox(setup.settings, asyncio.get_running_loop().time)
        self._trace = recorder = Recorder(trace or Trace(), observer)
        self._tasks = Tasks(inbox.wake)
        self.timeline = Timeline(inbox.now())
        keys, tag = Keys(setup.workers.job), secrets.token_hex(8)
        self._waits = waits = Waits(output.say, inbox.now, inbox.wake)
        self._diagnosis = diagnosis = Diagnosis(
            setup,
            inbox,
            lambda: self._workers.running,
            lambda rank: self._worker_server.calls[rank],
            lambda rank, why: self._workers.processes.condemn(rank, why),
            lambda why: self._signals.give_way(why),
            output.say,
            observer.diagnosed if observer else lambda _: None,
            lambda: self._hosting.describe() if self._hosting else None,
        )
        self._candidate = leads = Candidate(
            store,
            keys,
            setup.terms,
            output.say,
            waits,
            trace,
            setup.lease_ttl,
            setup.security,
            Here(
                lambda: inbox.state.key.incarnation,
                diagnosis.look,
                diagnosis.condemn,
                diagnosis.replace,
                diagnosis.tell,
            ),
            setup.beside,
        )
        self._observation = observation = Observation(self.job_status, inbox.now)
        self._memory = NodeMemory(setup, store, keys, self._caller)
        self._agent_listener = failure_detector.AgentListener(
            tag,
            machine.listener,
            {**master_client.methods(leads), **diagnosis.methods(), **observation.methods, **self._memory.methods},
            setup.security,
            output.say,
            setup.workers.job,
        )
        self._link = link = Link(
            store,
            keys,
            lambda: leads.ledgers,
            self._caller,
            setup.security,
            leads.stepped,
            lambda: inbox.state.known,
            partial(master_client.answer_clocks, leads),
            leads.served,
            output.say,
        )
        handler = CallHandler(
            store, keys, link, waits, self._on_saved, self._on_lease, self._current, link.stepped, self._ask_hosting
        )
        told = local_methods(self.job_status, self.look)
        self._worker_server = self._memory.attach(machine.worker_server(handler.answer, told, output.say))
        self._signals = PreemptionSignals(setup, inbox, output, recorder)
        self._rounds = RoundFollower(store, keys, inbox, output, waits, recorder, lambda: self._workers.processes.alive)
        self._workers = WorkerGroup(
            setup,
            machine,
            tag,
            inbox,
            output,
            recorder,
            self.timeline,
            self._rounds.confirm,
            self._rounds.peers,
            store,
            keys,
            lambda exit_: self._current(self._worker_server.rounds.get(exit_.rank, 0)) == exit_.round,
        )
        more = self._workers.more_services
        self._hosting = host(setup, store, keys, waits, inbox, output.say, more) if host else None
        self._node = NodeRegistration(
            setup,
            store,
            keys,
            inbox,
            output,
            waits,
            recorder,
            self._tasks,
            self._agent_listener,
            self._rounds,
            lambda: self._workers.ports.offered,
            self._look_around,
        )

    @property
    def status(self) -> Status | None:
        """The job's, while this node's master leads it."""
        return self._candidate.status

    async def job_status(self) -> Status:
        """The job's, from the agent that leads it. Raises RpcError or OSError where nobody tells it now."""
        return self._candidate.status or await self._link.status()

    async def look(self, node: str, wanted: Look) -> NodeEvidence:
        """What the agent of a node sees of its workers. Raises RendezvousError or OSError where it does not tell."""
        if node and node == self._state.key.name:
            return await self._diagnosis.look(wanted)
        return await self._link.look(node, wanted)

    async def run(self) -> Result:
        """Takes part in the job until it is over, this node is told to go, or the job refuses it."""
        self._signals.open()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._on_stop)
        keep_detached = False
        try:
            try:
                self._workers.guardian.start()
                await self._open_worker_server()
                self._workers.warm_up()
                if self._setup.bind is not None:
                    await self._agent_listener.start(self._setup.bind, self._setup.host)
            except OSError as error:
                return self.result(plan.FAILED, f"this machine cannot run an agent: {error}{advice(error)}")
            self._tasks.begin(self._rounds.watch(self._node.registered), "header")
            self._tasks.begin(self._workers.watch(), "workers")
            self._tasks.begin(self._watch_store(), "store")
            self._tasks.begin(self._node.report(), "report")
            self._tasks.begin(self._rounds.look_inside(self._worker_server.address), "the others' workers")
            self._tasks.begin(self._beat(), "guardian's beat")
            if self._setup.hang_timeout:
                self._tasks.begin(self._diagnosis.watch(), "progress")
            if self._hosting:
                self._tasks.begin(self._hosting.run(), "servers")
                self._tasks.begin(self._link.tell_servers(self._hosting.describe), "what servers do")
            leading = self._tasks.begin(self._campaign(), "leadership")
            self._trace.ready()
            result = await self._decide(leading)
            # A round that follows must not meet anything of this one; after the last there is no such round.
            keep_detached = result.code == plan.SUCCEEDED and self._setup.keep_detached
            return result
        finally:
            await self._tasks.close()
            await self._workers.close(keep_detached=keep_detached)
            if self._hosting:
                await self._hosting.close()
            await asyncio.gather(self._workers.guardian.close(keep_detached=keep_detached), self._hang_up())
            self._signals.close()
            loop.remove_signal_handler(signal.SIGTSTP)

    async def _hang_up(self) -> None:
        """Ends what others reach this agent by, and what it reaches them by."""
        self._workers.hang_up()
        await self._worker_server.close()
        await self._memory.close()
        await self._link.close()
        await self._agent_listener.close()
        await self._observation.close()

    async def _decide(self, leading: asyncio.Task[None]) -> Result:
        say_once = SayOnce(self._output.say)
        while True:
            heard = self._inbox.count
            self._tasks.check()
            state = self._look_around()
            action, why = plan.act(state, self._inbox.now())
            match action:
                case Wait(seconds):
                    say_once("wait", why)
                    waits = not self._store.health.reachable or self._waits.longest
                    await self._inbox.news(heard, 1.0 if waits else seconds)
                    continue
                case Invite(round, seconds):
                    self._workers.staying.invite(round)
                    await self._inbox.news(heard, min(seconds, 1.0))
                    continue
                case Break(round):
                    self._workers.staying.break_up(round)
                    await self._inbox.news(heard, 1.0)
                    continue
                case Leave(code):
                    exits = self._workers.exits
                    self.timeline.down(self._inbox.now())
                    self._trace.instant("leave", code=code, why=why)
                    if self._hosting:
                        await self._hosting.give_away()
                    with self._trace.span("farewell"):
                        await self._node.leave(self._candidate, leading, self._setup.terms.farewell_seconds)
                    return self.result(code, why, exits)
                case _:
                    await self._carry_out(action)

    async def _carry_out(self, action: Operation) -> None:
        """Does what takes time, until it is done or news makes it pointless."""
        match action:
            case Register():
                work = self._node.register()
            case Resume():
                work = self._node.resume()
            case Start(header, assignment):
                work = self._workers.start(header, assignment)
            case Ready(header):
                work = self._workers.get_ready(header)
            case Reform(header, assignment):
                work = self._workers.reform(header, assignment)
            case Adopt(header, assignment):
                work = self._workers.adopt(header, assignment)
            case Stop(first, grace):
                work = self._workers.stop(first, grace)
        self._inbox.note(OperationBegun(action))
        try:
            await self._inbox.unless(work, lambda: plan.is_overtaken(self._state))
        finally:
            self._inbox.post(OperationEnded())  # whatever was done is news to the task that reports it

    def result(self, code: int, reason: str, exits: tuple[Exit, ...] = ()) -> Result:
        """How its part ended, or has come to nothing."""
        header, name = self._state.known.header, self._state.key.name or self._setup.workers.node
        return Result(code, reason, header, name, exits, self.timeline, tuple(self._diagnosis.findings))

    @property
    def _state(self) -> NodeState:
        return self._inbox.state

    def _look_around(self) -> NodeState:
        """What the node knows when it has looked at its workers and its store."""
        now, broke_at = self._inbox.now(), self._state.group.broke_at
        hosting, machine = self._hosting, self._state.machine
        if hosting and (lost := (hosting.failure, hosting.return_wanted)) != (machine.rows_lost, machine.return_wanted):
            self._inbox.note(RowsLost(*lost))
        state = self._inbox.note(self._workers.see_workers())
        if broke_at is None and state.group.broke_at is not None:
            asyncio.get_running_loop().call_later(plan.STRANDED_SECONDS + 0.01, self._inbox.wake)
        gone = store_gone(
            self._store.health,
            self._waits.longest,
            state.workers,
            idle_since=self.timeline.idle_since(now),
            patience=self._setup.store_patience,
            now=now,
        )
        return self._inbox.note(StoreSeen(gone, leading=self._candidate.leadership is not None))

    def _on_stop(self) -> None:
        """Ctrl-Z: the workers are in sessions of their own, so the terminal does not stop them; this does."""
        self._workers.pause()
        if self._hosting:
            self._hosting.pause()
        self._workers.guardian.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._workers.guardian.beat()
        if self._hosting:
            self._hosting.resume()
        self._workers.resume()

    async def _open_worker_server(self) -> None:
        try:
            await self._worker_server.start()
            self._workers.listen(self._worker_server.address)
        except OSError as error:
            self._output.say(f"workers cannot reach this agent: it could not open a Unix socket ({error})")

    async def _campaign(self) -> None:
        async def stand() -> Candidacy:
            return Candidacy.of(await self._node.wait())

        try:
            ended = await self._candidate.run(stand, lambda: self._state.known.stale, lambda: self._state.known.over)
            if ended and not self._state.known.over:
                self._inbox.post(EndMissed(ended))
        except OtherSecret as error:
            self._inbox.post(RefusedForGood(str(error)))

    def _caller(self) -> Caller:
        """Who this agent is for the master."""
        header, node = self._state.known.header, self._state.key.name or self._setup.workers.node
        return Caller(header.run if header else "", node, self._agent_listener.incarnation)

    def _current(self, round: int) -> int:
        return self._state.workers.current(round)

    def _on_lease(self) -> None:
        """A worker asks for shards whose position is in checkpoints."""
        if self._setup.terms.policy.roles and not self._state.workers.leases:
            self._inbox.post(ShardsAsked())

    def _on_saved(self, round: int) -> None:
        """A worker of `round` has told of a checkpoint."""
        if self._current(round) == self._state.workers.round:
            self._inbox.post(CheckpointSaved())

    async def _ask_hosting(self, version: int, wait: "RankWait", round: int) -> str:
        return await self._hosting.answer(version, wait, round) if self._hosting else ""

    async def _beat(self) -> None:
        if self._setup.bind is None:
            return
        while True:
            self._inbox.note(AgentBeat())
            self._workers.guardian.beat()
            self._look_for_address()
            await asyncio.sleep(self._setup.lease_ttl / 5)

    def _look_for_address(self) -> None:
        """Leaves where this machine has lost the address under which the others look for it and its workers."""
        if not (address := self._setup.bind) or self._state.machine.unfit:
            return
        self._address_missed = 0 if self._machine.has_address(address) else self._address_missed + 1
        if self._address_missed >= ADDRESS_LOOKS:
            why = f"this machine no longer has the address {address}, under which the other nodes know it"
            self._inbox.post(MachineUnfit(f"{why}: start this command again"))

    async def _watch_store(self) -> None:
        health = self._store.health
        while True:
            if not health.reachable:
                self._output.say(f"the store does not answer ({health.detail}); running workers continue")
            self._inbox.wake()
            health = await self._store.health_changed()
            if health.reachable:
                self._output.say("the store answers again")
