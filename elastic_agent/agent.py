"""The agent: one per machine. It looks, asks `plan.py` what to do, does it, and looks again.

Everything that can happen to a node is kept in `Facts` by a part of its own: the round's header
(`node/round_follower.py`), this node's key and lease (`node/registration.py`), the workers (`workers/`), signals
(`node/preemption.py`); each change wakes the loop. The loop decides nothing: `plan.report` and `plan.act` do, and they
see the whole state of affairs every time.
"""

import asyncio
import os
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass

from ..rendezvous import failure_detector
from ..rendezvous.header import Header
from ..rendezvous.keys import Keys
from ..rendezvous.member import Exit
from ..rendezvous.rpc.envelope import Caller
from ..rendezvous.store.contract import Store
from ..rendezvous.store.waits import Waits
from ..rendezvous.trace_file import Trace
from . import master_client, plan
from .agent_trace import Recorder
from .candidate import Candidacy, Candidate
from .event import CountingEvent, Interrupt
from .facts import Facts, Setup
from .local_machine import Machine, Reporter
from .master_client import Link
from .node.farewell import farewell
from .node.preemption import PreemptionSignals
from .node.registration import NodeRegistration
from .node.round_follower import RoundFollower
from .plan import Adopt, Break, Invite, Leave, Ready, Reform, Register, Resume, Start, Stop, View, Wait
from .say_once import SayOnce
from .tasks import Tasks
from .timeline import Timeline
from .view import look, store_gone
from .worker_server import CallHandler
from .workers.failure import advice
from .workers.worker_group import WorkerGroup


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
    """

    code: int
    reason: str
    header: Header | None
    node: str
    exits: tuple[Exit, ...]
    timeline: Timeline


class Agent:
    """One node's part in a job. `run` returns when it is over.

    Args:
        setup: what it is started with.
        store: the job's store; the caller closes it.
        output: where workers' lines and the launcher's own go.
        machine: what it runs on.
        trace: where it records what it does; None: nowhere.
    """

    def __init__(
        self, setup: Setup, store: Store, output: Reporter, machine: Machine, trace: Trace | None = None
    ) -> None:
        self._setup = setup
        self._store = store
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._facts = facts = Facts()
        self._changed = changed = CountingEvent()
        self._interrupt = interrupt = Interrupt()
        self._trace = recorder = Recorder(trace or Trace())
        self._say_once = SayOnce(output.say)
        self._tasks = Tasks(changed.set)
        self._master_task: asyncio.Task[None] | None = None
        self.timeline = Timeline(self._loop.time())
        keys, tag = Keys(setup.job), secrets.token_hex(8)
        self._waits = waits = Waits(output.say, self._loop.time, changed.set)
        security = setup.security
        self._candidate = Candidate(
            store, keys, setup.terms, output.say, waits, trace, lease_ttl=setup.lease_ttl, tls=security.client
        )
        self._agent_listener = failure_detector.AgentListener(
            tag,
            machine.listener,
            master_client.methods(lambda: self._candidate.ledgers, lambda: self._candidate.status),
            security,
        )
        self._link = Link(
            store, keys, lambda: self._candidate.ledgers, lambda: facts.known.header, self._caller, security
        )
        self._worker_server = machine.worker_server(
            CallHandler(store, keys, self._link, self._on_saved, self._on_lease, self._current).answer
        )
        self._signals = PreemptionSignals(setup, facts, output, recorder, changed, interrupt)
        self._rounds = RoundFollower(
            store, keys, facts, output, waits, recorder, changed, interrupt, lambda: self._workers.alive
        )
        self._workers = WorkerGroup(
            setup,
            machine,
            tag,
            facts,
            output,
            recorder,
            self.timeline,
            changed,
            self._rounds.confirm,
            self._rounds.peers,
            store,
            keys,
        )
        self._guardian = self._workers.guardian
        self._node = NodeRegistration(
            setup,
            store,
            keys,
            facts,
            output,
            waits,
            recorder,
            changed,
            self._tasks,
            self._agent_listener,
            self._rounds,
            lambda: (self._workers.ports.offered, self._workers.worker_ports.offered),
            self._view,
        )

    async def run(self) -> Result:
        """Takes part in the job until it is over, this node is told to go, or the job refuses it."""
        self._signals.open()
        self._loop.add_signal_handler(signal.SIGTSTP, self._on_stop)
        keep_detached = False
        try:
            try:
                self._guardian.start()
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
            self._master_task = self._tasks.begin(
                self._campaign(),
                "leadership",
            )
            self._trace.ready()
            result = await self._decide()
            # A round that follows must not meet anything of this one; after the last there is no such round.
            keep_detached = result.code == plan.SUCCEEDED and self._setup.keep_detached
            return result
        finally:
            await self._tasks.close()
            await self._workers.close(keep_detached=keep_detached)
            await asyncio.gather(self._guardian.close(keep_detached=keep_detached), self._hang_up())
            self._signals.close()
            self._loop.remove_signal_handler(signal.SIGTSTP)

    async def _hang_up(self) -> None:
        """Ends what others reach this agent by, and what it reaches them by."""
        self._workers.hang_up()
        await self._worker_server.close()
        await self._link.close()
        await self._agent_listener.close()

    async def _decide(self) -> Result:
        while True:
            heard = self._changed.count
            self._tasks.check()
            self._note_departure()
            view = self._view()
            action, why = plan.act(view)
            match action:
                case Wait(seconds):
                    self._say_once("wait", why)
                    waits = not self._store.health.reachable or self._waits.longest
                    await self._changed.after(heard, 1.0 if waits else seconds)
                    continue
                case Register():
                    await self._interrupt.unless(self._node.register(), self._noticed)
                case Resume():
                    await self._interrupt.unless(self._node.resume(), self._noticed)
                case Start(header, assignment):
                    await self._interrupt.unless(self._workers.start(header, assignment), self._noticed)
                case Ready(header):
                    await self._interrupt.unless(self._workers.get_ready(header), self._noticed)
                case Invite(round, seconds):
                    self._workers.invite(round)
                    await self._changed.after(heard, min(seconds, 1.0))
                    continue
                case Break(round):
                    self._workers.shatter(round)
                    await self._changed.after(heard, 1.0)
                    continue
                case Reform(header, assignment):
                    await self._interrupt.unless(self._workers.reform(header, assignment), self._noticed)
                case Adopt(header, assignment):
                    await self._interrupt.unless(self._workers.adopt(header, assignment), self._noticed)
                case Stop(first, grace):
                    await self._interrupt.unless(self._workers.stop(first, grace), self._worse_than(view))
                case Leave(code):
                    exits = self._workers.exits
                    self.timeline.ended(self._loop.time())
                    self._trace.instant("leave", code=code, why=why)
                    with self._trace.span("farewell"):
                        await self._farewell()
                    return self.result(code, why, exits)
            self._changed.set()  # whatever was done is news to the task that reports it

    def result(self, code: int, reason: str, exits: tuple[Exit, ...] = ()) -> Result:
        """How its part ended, or has come to nothing."""
        name = self._facts.registration.member.node if self._facts.registration else self._setup.node
        return Result(code, reason, self._facts.known.header, name, exits, self.timeline)

    def _note_departure(self) -> None:
        facts = self._facts
        departing = facts.notice != "none" or facts.unfit
        if departing and self._workers.alive == 0 and facts.workers_gone_at is None:
            facts.workers_gone_at = self._loop.time()

    def _view(self) -> View:
        facts, now = self._facts, self._loop.time()
        gone = store_gone(
            self._store.health,
            self._waits.longest,
            self._workers.exits,
            alive=self._workers.alive,
            total=facts.total,
            idle_since=self.timeline.idle_since(now),
            patience=self._setup.store_patience,
            now=now,
        )
        leading = self._candidate.leadership is not None
        return look(self._setup, facts, self._workers, gone, leading=leading, now=now)

    def _noticed(self) -> bool:
        return self._facts.notice != "none"

    def _worse_than(self, view: View) -> Callable[[], bool]:
        """Whether there is news that may cut a stop's grace short: a second preemption notice, or another header."""
        seen = self._facts.known.revision

        def worse() -> bool:
            if view.notice == "none":
                return self._facts.known.revision != seen or self._facts.notice != "none"
            return view.notice == "leave" and self._facts.notice == "kill"

        return worse

    def _on_stop(self) -> None:
        """Ctrl-Z: the workers are in sessions of their own, so the terminal does not stop them; this does."""
        self._workers.pause()
        self._guardian.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._guardian.beat()
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

        await self._candidate.run(stand, lambda: self._facts.known.stale, lambda: self._facts.known.over)

    def _caller(self) -> Caller:
        """Who this agent is for the master."""
        header, registration = self._facts.known.header, self._facts.registration
        node = registration.member.node if registration else self._setup.node
        return Caller(header.run if header else "", node, self._agent_listener.incarnation)

    def _current(self, round: int) -> int:
        """What the round of that number is called now, where its workers went on into a later one."""
        return self._facts.round if round in self._facts.adopted else round

    def _on_lease(self) -> None:
        """A worker asks for shards."""
        if self._setup.terms.policy.roles and not self._facts.leases:
            self._facts.leases = True
            self._changed.set()

    def _on_saved(self, round: int) -> None:
        """A worker of `round` has told of a checkpoint."""
        if self._current(round) == self._facts.round:
            self._facts.saved += 1
            self._changed.set()

    async def _beat(self) -> None:
        if self._setup.bind is None:
            return
        facts = self._facts
        while True:
            now = self._loop.time()
            facts.stood_still = facts.stood_still or now - facts.beat_at > self._setup.lease_ttl
            facts.beat_at = now
            self._guardian.beat()
            await asyncio.sleep(self._setup.lease_ttl / 5)

    async def _watch_store(self) -> None:
        health = self._store.health
        while True:
            if health.reachable:
                self._changed.set()
            else:
                self._output.say(f"the store does not answer ({health.detail}); running workers continue")
                self._changed.set()
            health = await self._store.health_changed()
            if health.reachable:
                self._output.say("the store answers again")

    async def _farewell(self) -> None:
        close_seconds = self._setup.terms.farewell_seconds
        await farewell(
            self._store, self._facts, self._node, self._candidate, self._master_task, self._output, close_seconds
        )
