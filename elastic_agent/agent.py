"""The agent: one per machine. It looks, asks `plan.py` what to do, does it, and looks again.

Everything that can happen to a node is kept in `Facts` by a task of its own (the round's header, this node's own
key, the lease, the workers' exits, signals); each change wakes the loop. The loop decides nothing: `plan.report` and
`plan.act` do, and they see the whole state of affairs every time.
"""

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..master import rpc
from ..rendezvous import election, failure_detector, membership
from ..rendezvous.errors import (
    AlreadyOver,
    Compacted,
    LeaseLost,
    Refused,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    Unreadable,
)
from ..rendezvous.header import Header
from ..rendezvous.keys import Keys
from ..rendezvous.member import Exit, Member
from ..rendezvous.membership import Registration
from ..rendezvous.ranks import Assignment
from ..rendezvous.store.contract import KeyValue, Store
from ..rendezvous.store.waits import Waits
from ..rendezvous.trace_file import Trace
from . import plan
from .agent_trace import Recorder
from .candidate import REFUSED_PAUSE, Candidate
from .event import CountingEvent
from .facts import Facts, Setup
from .local_machine import Machine, Reporter
from .master_client import Link
from .plan import Break, Invite, Leave, Ready, Reform, Register, Resume, Start, Stop, View, Wait
from .timeline import Timeline
from .worker_server import CallHandler
from .workers.failure import advice
from .workers.worker_group import WorkerGroup

T = TypeVar("T")

FAREWELL_SECONDS = 5.0
"""Seconds that a node takes at most to tell the store that it goes; then its lease does it."""


REGISTRATION = "this node's registration"
REPORT = "this node's report"
NEWS = "reading the state of the job"
"""What may wait for the store."""

LOOK_INSIDE_SECONDS = (0.25, 30.0)
"""Between two looks of a node that is in no round at those that are: at first, and in the end."""

REPEAT_SECONDS = 0.5
"""Two signals within this are one preemption notice: `timeout`, schedulers and container runtimes signal a whole
process group, and the launcher's parent passes it on once more."""


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
        self._keys = Keys(setup.job)
        self._loop = asyncio.get_running_loop()
        self._incarnation = secrets.token_hex(8)
        self._facts = Facts()
        self._changed = CountingEvent()
        self._interrupt = asyncio.Event()
        self._registered = asyncio.Event()
        self._leaving = False
        self._unconfirmed = 0  # the lease under which it is about to register
        self._trace = Recorder(trace or Trace())
        self._waits = Waits(output.say, self._loop.time, self._changed.set)
        self._candidate = Candidate(
            store, self._keys, setup.terms, output.say, self._waits, trace, lease_ttl=setup.lease_ttl
        )
        self._agent_listener = failure_detector.AgentListener(self._incarnation, machine.listener, self._answer_rpc)
        self._link = Link(store, self._keys, lambda: self._candidate.ledgers, lambda: self._facts.header)
        self._worker_server = machine.worker_server(CallHandler(store, self._keys, self._link, self._on_saved).answer)
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they were begun
        self._lease_task: asyncio.Task[None] | None = None
        self._own_key_task: asyncio.Task[None] | None = None
        self._master_task: asyncio.Task[None] | None = None
        self.timeline = Timeline(self._loop.time())
        self._workers = WorkerGroup(
            setup,
            machine,
            self._incarnation,
            self._facts,
            output,
            self._trace,
            self.timeline,
            self._changed,
            self._confirmed,
        )
        self._guardian = self._workers.guardian
        self._said: dict[str, str] = {}

    # -- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> Result:
        """Takes part in the job until it is over, this node is told to go, or the job refuses it."""
        for number in self._setup.signals:
            self._loop.add_signal_handler(number, self._on_notice, number)
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
            self._spawn(self._watch_header(), "header")
            self._spawn(self._workers.watch(), "workers")
            self._spawn(self._watch_store(), "store")
            self._spawn(self._tell(), "report")
            self._spawn(self._look_inside(), "the others' workers")
            self._spawn(self._beat(), "guardian's beat")
            self._master_task = self._spawn(
                self._candidate.run(self._await_registration, lambda: self._facts.stale, self._over), "leadership"
            )
            self._trace.ready()
            result = await self._decide()
            # A round that follows must not meet anything of this one; after the last there is no such round.
            keep_detached = result.code == plan.SUCCEEDED and self._setup.keep_detached
            return result
        finally:
            tasks = [*self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._workers.close(keep_detached=keep_detached)
            await asyncio.gather(self._guardian.close(keep_detached=keep_detached), self._hang_up())
            for number in (*self._setup.signals, signal.SIGTSTP):
                self._loop.remove_signal_handler(number)

    async def _hang_up(self) -> None:
        """Ends what others reach this agent by, and what it reaches them by."""
        self._workers.hang_up()
        await self._worker_server.close()
        await self._link.close()
        await self._agent_listener.close()

    async def _decide(self) -> Result:
        while True:
            heard = self._changed.count
            for task in tuple(self._tasks):
                if task.done() and not task.cancelled():
                    task.result()  # a task that ended by an error ends the agent with it
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
                    await self._unless(self._register(), lambda: self._facts.notice != "none")
                case Resume():
                    await self._unless(self._resume(), lambda: self._facts.notice != "none")
                case Start(header, assignment):
                    await self._unless(self._workers.start(header, assignment), lambda: self._facts.notice != "none")
                case Ready(header):
                    await self._unless(self._workers.get_ready(header), lambda: self._facts.notice != "none")
                case Invite(round, seconds):
                    self._workers.invite(round)
                    await self._changed.after(heard, min(seconds, 1.0))
                    continue
                case Break(round):
                    self._workers.shatter(round)
                    await self._changed.after(heard, 1.0)
                    continue
                case Reform(header, assignment):
                    await self._unless(self._workers.reform(header, assignment), lambda: self._facts.notice != "none")
                case Stop(first, grace):
                    await self._unless(self._workers.stop(first, grace), self._worse_than(view))
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
        return Result(code, reason, self._facts.header, name, exits, self.timeline)

    def _note_departure(self) -> None:
        facts = self._facts
        departing = facts.notice != "none" or facts.unfit
        if departing and self._workers.alive == 0 and facts.workers_gone_at is None:
            facts.workers_gone_at = self._loop.time()

    def _view(self) -> View:
        facts, now = self._facts, self._loop.time()
        return View(
            notice=facts.notice,
            notice_signal=facts.notice_signal,
            notice_age=now - facts.notice_at,
            left_out_overdue=facts.workers_gone_at is not None and now - facts.workers_gone_at > plan.FAREWELL_PATIENCE,
            registered=facts.registration is not None and not facts.lapsed,
            lapsed=facts.lapsed,
            stood_still=facts.stood_still or now - facts.beat_at > self._setup.lease_ttl,
            refusal=facts.refusal,
            orphaned=facts.orphaned,
            stale=facts.stale,
            header=facts.header,
            assignment=facts.assignment,
            assigned=facts.assigned,
            round=facts.round,
            alive=self._workers.alive,
            total=facts.total,
            exits=self._workers.exits if facts.round else (),
            saved=facts.saved,
            late=facts.late,
            problem=facts.problem,
            unfit=facts.unfit,
            leading=self._candidate.leadership is not None,
            told=facts.told,
            staying=len(self._workers.staying),
            holding=len(self._workers.holding),
            done=len(self._workers.done),
            waiting=len(self._workers.waiting),
            forming=len(self._workers.forming),
            stranded=self._workers.stranded(now),
            slowest=self._workers.slowest,
            header_age=now - facts.header_at,
            gentle=facts.gentle,
            keeps=facts.keeps,
            outside=facts.outside or facts.keeps,
            unready=facts.unready,
            store_gone=self._store_gone(now),
            shutdown_timeout=self._setup.shutdown_timeout,
        )

    def _store_gone(self, now: float) -> str:
        """See `plan.View`. Where workers have ended, the node's patience begins then."""
        total, exits, patience = self._facts.total, self._workers.exits, self._setup.store_patience
        well = all(exit_.ok for exit_ in exits)
        ended_at = 0.0 if self._workers.alive and well else self.timeline.idle_since(now)
        health, wait = self._store.health, self._waits.longest
        if not health.reachable and now - max(health.since, ended_at) > patience:
            why = f"the store has not answered for {now - health.since:.0f} s ({health.detail})"
            mend = "Start the store again (its machine may be lost)"
        elif wait and now - max(wait.since, ended_at) > patience:
            why, mend = wait.words(now), "Repair the store"
        else:
            return ""
        ended = total > 0 and len(exits) == total and well
        workers = "have all ended with exit code 0" if ended else "are not running"
        return f"{why}, and this node's workers {workers}. {mend}, then start this command again"

    async def _unless(self, work: Coroutine[Any, Any, None], stop: Callable[[], bool]) -> None:
        """Runs `work`, giving it up as soon as a preemption notice makes `stop` true."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                noticed = asyncio.create_task(self._interrupt.wait())
                await asyncio.wait({task, noticed}, return_when=asyncio.FIRST_COMPLETED)
                noticed.cancel()
                self._interrupt.clear()
                if stop() and not task.done():
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    return
            task.result()
        finally:
            task.cancel()

    def _worse_than(self, view: View) -> Callable[[], bool]:
        """Whether there is news that may cut a stop's grace short: a second preemption notice, or another header."""
        seen = self._facts.header_revision

        def worse() -> bool:
            if view.notice == "none":
                return self._facts.header_revision != seen or self._facts.notice != "none"
            return view.notice == "leave" and self._facts.notice == "kill"

        return worse

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(lambda _: self._changed.set())
        return task

    def _say_once(self, topic: str, line: str) -> None:
        if line and self._said.get(topic) != line:
            self._output.say(line)
        self._said[topic] = line

    # -- signals --------------------------------------------------------------------------------------------------

    def _on_notice(self, number: int) -> None:
        facts = self._facts
        name = signal.Signals(number).name
        self._trace.instant("notice", signal=name)
        now = self._loop.time()
        if facts.notice != "none" and now - facts.notice_at < REPEAT_SECONDS:
            return
        if facts.notice == "none":
            facts.notice, facts.notice_signal, facts.notice_at = "leave", number, now
            self._output.say(
                f"{name}: this node leaves the job; its workers have {self._setup.shutdown_timeout:g} s to exit "
                "(a second signal kills them at once)"
            )
        else:
            facts.notice = "kill"
            self._output.say(f"{name} again: killing the workers")
        self._interrupt.set()
        self._changed.set()

    def _on_stop(self) -> None:
        """Ctrl-Z: the workers are in sessions of their own, so the terminal does not stop them; this does."""
        self._workers.pause()
        self._guardian.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._guardian.beat()
        self._workers.resume()

    # -- the workers ----------------------------------------------------------------------------------------------

    async def _look_inside(self) -> None:
        """A node that has no part in the round finds out whether the workers of those that have keep their process."""
        facts, seen, pause = self._facts, 0, LOOK_INSIDE_SECONDS[0]
        while self._worker_server.address:
            heard = self._changed.count
            header = facts.header
            if header is None or header.state != "open" or facts.assignment or facts.outside or not facts.registration:
                await self._changed.after(heard)
                continue
            if header.number != seen:
                seen, pause = header.number, LOOK_INSIDE_SECONDS[0]
            with contextlib.suppress(StoreUnavailable):
                facts.outside = await membership.round_keeps(self._store, self._keys, header)
            if facts.outside:
                self._changed.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_INSIDE_SECONDS[1])

    async def _confirmed(self, header: Header) -> bool:
        """Whether the store still has this header, just before something is done on account of it."""
        try:
            fresh = await membership.read_header(self._store, self._keys)
        except StoreUnavailable as error:
            self._say_once("store", f"cannot start round {header.number} yet: {error}")
            return False
        except Unreadable as error:
            self._say_once("unreadable", f"cannot start round {header.number} yet: {error}")
            await asyncio.sleep(REFUSED_PAUSE)
            return False
        if fresh is None or fresh[0] != header:
            if fresh:
                await self._take_header(*fresh)  # superseded while this node was getting ready
            return False
        return True

    async def _open_worker_server(self) -> None:
        try:
            await self._worker_server.start()
            self._workers.listen(self._worker_server.address)
        except OSError as error:
            self._output.say(f"workers cannot reach this agent: it could not open a Unix socket ({error})")

    async def _answer_rpc(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Another agent asks this one's master for data."""

        def responder(run: str) -> rpc.Respond | None:
            ledgers = self._candidate.ledgers
            return ledgers.answer if ledgers and ledgers.serves(run) else None

        await rpc.serve(line, reader, writer, responder)

    def _on_saved(self, round: int) -> None:
        """A worker of `round` has told of a checkpoint."""
        if round == self._facts.round:
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

    # -- membership -----------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        """Becomes a member under a new lease and a new incarnation. Tries until it is one or is refused."""
        setup, facts, began = self._setup, self._facts, self._loop.time()
        lease = 0
        self._end_registration_tasks()
        try:
            found = await membership.read_header(self._store, self._keys)
            missed = await membership.refuse_if_over(self._store, self._keys, facts.own_run if facts.came else None)
            if found and found[0].final and found[0].run == facts.own_run:
                missed = found[0]
            if missed:
                facts.header = missed  # the job ended while this node was out of it
                return
            if facts.own_run and (found is None or found[0].final):
                facts.orphaned = (
                    "the run ended while this node was not a member, and the store no longer holds its result: see the "
                    "logs of the other nodes"
                )
                return
            lease = self._unconfirmed = await self._store.grant(setup.lease_ttl)
            self._incarnation = secrets.token_hex(8)
            await self._agent_listener.greet_as(self._incarnation)
            facts.stale = found[0].run if found and found[0].final else ""
            member = Member(
                node=setup.node,
                incarnation=self._incarnation,
                host=setup.host,
                agent_address=self._agent_listener.address,
                nproc=setup.nproc,
                ports=self._workers.ports.offered,
                fingerprint=setup.fingerprint,
                role=setup.role,
                topology=setup.topology,
                node_rank=setup.node_rank,
                run=facts.own_run,
            )
            registering = membership.register(self._store, self._keys, member, lease)
            registration = await self._while_kept(lease, registering)
        except (Refused, StoreUnavailable, LeaseLost, StoreRefused) as error:
            if isinstance(error, Unreadable) and not facts.own_run:
                raise  # it comes to a job of another version
            if isinstance(error, StoreRefused) and not facts.came:
                raise  # it has not been in the job: whoever started it is told at once
            if lease:
                # A key that was written and not confirmed must not stay as somebody who never comes.
                with contextlib.suppress(StoreError):
                    await self._store.revoke(lease)
                self._unconfirmed = 0
            if isinstance(error, AlreadyOver) and lease and facts.came:
                return  # it may be its own run that has just succeeded: it looks again
            if isinstance(error, Refused):
                facts.refusal = str(error)
                return
            await self._try_later(REGISTRATION, error, began)
            return
        self._trace.registered()
        facts.told = member.report
        facts.round, facts.total, facts.late, facts.problem = 0, 0, (), ""
        facts.assignment, facts.assigned = None, False
        self._is_registered(registration)
        if setup.bind is not None:
            self._output.say(f"this node is registered as {registration.member.node}")

        async def look_once_more() -> None:
            """A round may have been opened since, and its header may have come before this registration."""
            found = await membership.read_header(self._store, self._keys)
            if found:
                await self._take_header(*found)

        try:
            await self._waits.until_answered("this node's assignment", look_once_more, within=setup.store_patience)
        except Unreadable as error:
            self._say_once("unreadable", f"ignored: {error}")

    async def _resume(self) -> None:
        """Takes up the registration whose lease has ended, or finds that the job has gone on without this node."""
        facts, began = self._facts, self._loop.time()
        registration = facts.registration
        assert registration is not None, "a lease that has ended was somebody's"
        self._end_registration_tasks()
        try:
            lease = self._unconfirmed = self._unconfirmed or await self._store.grant(self._setup.lease_ttl)
            if why := plan.replaced(self._view()):
                await self._give_up(registration, why)
                return
            known = facts.header_revision
            resuming = membership.resume(self._store, self._keys, registration, lease, known)
            result = await self._while_kept(lease, resuming)
            if result == "moved":
                found = await membership.read_header(self._store, self._keys)
                if found is None:
                    await self._give_up(registration, "its lease expired, and the store holds no round of the job")
                else:
                    await self._take_header(*found)
                return
            if result == "out":
                word = await membership.read_eviction(self._store, self._keys, registration.member.incarnation)
                facts.refusal = word.reason if word and word.final else ""
                await self._give_up(registration, word.reason if word else "another node uses its name")
                return
        except (StoreUnavailable, LeaseLost, StoreRefused) as error:
            # Workers that run need no store until membership changes.
            if isinstance(error, LeaseLost):
                self._unconfirmed = 0
            await self._try_later(REGISTRATION, error, began)
            return
        self._trace.registered()
        self._output.say("this node is registered again; its workers kept running")
        self._is_registered(result)

    async def _try_later(self, what: str, error: StoreError, began: float) -> None:
        self._waits.failed(what, error, began)
        await asyncio.sleep(REFUSED_PAUSE if isinstance(error, StoreRefused) else 0.2)

    async def _while_kept(self, lease: int, work: Coroutine[Any, Any, T]) -> T:
        """Does `work`, and renews the lease where it takes long: a slow store must not end it before it is used."""

        async def keep() -> None:
            with contextlib.suppress(StoreError):  # `work` hears of it, too
                await asyncio.sleep(self._setup.lease_ttl / 3)
                await self._store.keep_alive(lease, self._setup.lease_ttl)

        kept = asyncio.create_task(keep(), name="lease, not yet used")
        try:
            return await work
        finally:
            kept.cancel()
            await asyncio.wait({kept})

    async def _give_up(self, registration: Registration, why: str) -> None:
        """The registration whose lease has ended is not taken up again."""
        lease, self._unconfirmed = self._unconfirmed, 0
        self._lose_registration(registration, why)
        if lease:
            with contextlib.suppress(StoreError):
                await self._store.revoke(lease)

    def _is_registered(self, registration: Registration) -> None:
        facts = self._facts
        facts.registration, facts.came, facts.lapsed, facts.stood_still = registration, True, False, False
        self._unconfirmed = 0
        self._waits.done(REGISTRATION)
        self._lease_task = self._spawn(self._keep_lease(registration), "lease")
        self._own_key_task = self._spawn(self._watch_own_key(registration), "own key")
        self._registered.set()

    def _end_registration_tasks(self) -> None:
        for task in (self._lease_task, self._own_key_task):
            if task:
                task.cancel()
                self._tasks.pop(task, None)

    async def _keep_lease(self, registration: Registration) -> None:
        try:
            await self._store.keep_alive(registration.lease, self._setup.lease_ttl)
        except LeaseLost:
            self._lapse(registration)

    async def _watch_own_key(self, registration: Registration) -> None:
        revision = registration.revision + 1
        while True:
            try:
                async for events in self._store.watch(registration.key, revision):
                    revision = events[-1].kv.mod_revision + 1
                    if any(event.kind == "delete" for event in events):
                        await self._evicted(registration)
                        return
            except (Compacted, StoreUnavailable):
                listing = await self._waits.until_answered(NEWS, partial(self._store.list, registration.key))
                held = [item for item in listing.items if item.key == registration.key]
                if not held or held[0].create_revision != registration.revision:
                    await self._evicted(registration)
                    return
                revision = listing.revision + 1

    async def _evicted(self, registration: Registration) -> None:
        word = None
        with contextlib.suppress(StoreUnavailable):
            word = await membership.read_eviction(self._store, self._keys, registration.member.incarnation)
        if word is None:
            self._lapse(registration)
            return
        if word.final:
            self._facts.refusal = word.reason
        self._lose_registration(registration, word.reason)

    def _lapse(self, registration: Registration) -> None:
        """The node's key is gone, and nobody has said that it was evicted."""
        facts = self._facts
        current = facts.registration
        if current is None or current.revision != registration.revision or self._leaving or facts.lapsed:
            return
        facts.lapsed = True
        self._registered.clear()
        self._output.say(
            "this node's lease expired; it registers again, and its workers keep running unless the job has replaced "
            "them"
        )
        self._changed.set()

    def _lose_registration(self, registration: Registration, why: str) -> None:
        current = self._facts.registration
        if current is None or current.revision != registration.revision or self._leaving:
            return
        self._facts.registration, self._facts.lapsed = None, False
        self._trace.lost(why)
        self._registered.clear()
        if not self._facts.refusal:
            self._output.say(f"this node is no longer a member of the job: {why}; it registers again")
        self._changed.set()

    async def _tell(self) -> None:
        """Keeps the store's report about this node equal to what `plan.report` says."""
        facts = self._facts
        while not self._leaving:
            heard = self._changed.count
            registration = None if facts.lapsed else facts.registration
            wanted, ports = plan.report(self._view()), self._workers.ports.offered
            if registration is None or (wanted == facts.told and registration.member.ports == ports):
                self._waits.done(REPORT)
                await self._changed.after(heard)
                continue
            begun = self._loop.time()
            try:
                updated = await membership.report(self._store, self._keys, registration, wanted, ports)
            except LeaseLost:
                updated = None
            except (StoreUnavailable, StoreRefused) as error:
                await self._try_later(REPORT, error, begun)
                continue
            if facts.registration is not registration:
                continue
            if updated is None:
                await self._evicted(registration)
                continue
            self._trace.reported(wanted.state, begun)
            facts.registration, facts.told = updated, wanted
            self._changed.set()

    async def _await_registration(self) -> Registration:
        while self._facts.registration is None or self._facts.lapsed:
            await self._registered.wait()
        return self._facts.registration

    # -- the round ------------------------------------------------------------------------------------------------

    async def _watch_header(self) -> None:
        await self._registered.wait()  # only then is it known which run's end is not this one's
        while True:
            try:
                # From the revision of the read on: an earlier run of this id may be in the store's history.
                listing = await self._waits.until_answered(NEWS, partial(self._store.list, self._keys.round))
                for found in listing.items:
                    await self._take_value(found)
                revision = listing.revision + 1
                async for events in self._store.watch(self._keys.round, revision):
                    for event in events:
                        if event.kind == "put":
                            await self._take_value(event.kv)
            except (Compacted, StoreUnavailable):
                continue  # the next read says where the job is

    async def _take_value(self, found: KeyValue) -> None:
        try:
            header = membership.header_of(found)
        except Unreadable as error:
            self._say_once("unreadable", f"ignored: {error}")
            return
        await self._take_header(header, found.mod_revision)

    async def _take_header(self, header: Header, revision: int) -> None:
        """Makes `header` known together with this node's assignment in it, and wakes the loop."""
        facts = self._facts
        while True:
            member = facts.registration.member if facts.registration else None
            assignment = None
            if member and header.state == "open":
                assignment = await self._assignment(header, member)
            now = facts.registration.member if facts.registration else None
            if (now and now.incarnation) != (member and member.incarnation):
                continue  # this node has been born again meanwhile, and what was read is the dead one's
            if assignment or header.final or not self._workers.alive:
                break
            # Before workers are ended on account of it: the news may be late, and this node is in the round after it.
            newest = None
            with contextlib.suppress(StoreUnavailable, Unreadable):
                newest = await membership.read_header(self._store, self._keys)
            if newest is None or newest[1] <= revision:
                break
            header, revision = newest
        if facts.header_revision > revision:
            return
        if facts.assigned and facts.header and facts.header.final and header.run != facts.own_run:
            return  # its own run has ended, and its lease outlives that: it has no part in the next run
        if facts.header_revision != revision:
            facts.problem = ""
            facts.header_at = self._loop.time()
            facts.gentle = plan.gentle(facts.header, facts.gentle, header)
            self._trace.header(header, mine=assignment is not None)
        facts.header, facts.header_revision, facts.assignment = header, revision, assignment
        facts.assigned = facts.assigned or assignment is not None
        current = facts.registration
        if assignment or (current and revision > current.revision and not header.final):
            facts.own_run = header.run  # it lives, so this is no remains of an earlier run
        if current and header.final and self._came_for_another_run(header, revision, current):
            facts.stale, facts.own_run = header.run, ""
        self._interrupt.set()
        self._changed.set()

    async def _assignment(self, header: Header, member: Member) -> Assignment | None:
        """What `header`'s round gives this node; None where nothing, or nothing that can be meant, which is said."""
        try:
            return await membership.read_assignment(self._store, self._keys, header, member)
        except Unreadable as error:
            self._say_once("unreadable", f"this node takes no part in round {header.number}: {error}")
            return None

    def _came_for_another_run(self, end: Header, revision: int, registration: Registration) -> bool:
        """`end` is not this node's: it was there first, or it is that of the others, told to leave as this one came."""
        if revision < registration.revision:
            return end.run != self._facts.own_run
        return end.state == "preempted" and self._facts.notice == "none" and self._facts.round == 0

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

    def _over(self) -> bool:
        header = self._facts.header
        return header is not None and header.final and header.run != self._facts.stale

    # -- the end --------------------------------------------------------------------------------------------------

    async def _farewell(self) -> None:
        """Takes this node out of the store in order; whatever does not work within the deadline the lease does."""
        registration = self._facts.registration
        if registration is None:
            if self._unconfirmed:  # told to go while it registered: its key may be there, and somebody wait for it
                with contextlib.suppress(TimeoutError, StoreError):
                    async with asyncio.timeout(FAREWELL_SECONDS):
                        await self._store.revoke(self._unconfirmed)
            return
        self._leaving = True  # what happens to its key from here on is its own doing
        over = self._over() or self._candidate.cleaning_up
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                leadership = self._candidate.leadership
                if not over and leadership and self._master_task:
                    self._master_task.cancel()
                    await asyncio.wait({self._master_task})
                    await election.resign(self._store, leadership)
                await membership.deregister(self._store, registration)
            if over and self._candidate.leadership and self._master_task:
                limit = self._setup.terms.farewell_seconds + FAREWELL_SECONDS
                async with asyncio.timeout(limit):
                    await asyncio.wait({self._master_task})
            async with asyncio.timeout(FAREWELL_SECONDS):
                if self._lease_task:
                    self._lease_task.cancel()
                for lease in filter(None, (registration.lease, self._unconfirmed)):
                    await self._store.revoke(lease)
        except (TimeoutError, StoreError) as error:
            words = str(error) or f"no answer within {FAREWELL_SECONDS:g} s"
            self._output.say(f"this node could not deregister ({words}); its lease expires by itself")
