"""This node's workers: one set of them after the other, or one that keeps its process, and their process group.

`plan.act` says when they are started, ended, or given another rank assignment; here is how.
"""

import asyncio
import dataclasses
import re
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from ...adapters import contract, services
from ...adapters.client.context import AGENT
from ...adapters.environment import per_worker
from ...rendezvous.header import Header
from ...rendezvous.keys import Keys
from ...rendezvous.member import Exit
from ...rendezvous.peers import NodePeers
from ...rendezvous.ranks import Assignment
from ...rendezvous.store.contract import Store
from ..agent_trace import Recorder
from ..diagnosis.running import Running, list_workers
from ..inbox import Inbox
from ..local_machine import RealMachine
from ..logs.output import Output
from ..machine import plan
from ..machine.node_events import (
    AllStay,
    MachineUnfit,
    RoundLeft,
    ServicesAwaited,
    StartProblem,
    Unkillable,
    UnreadyOver,
    WorkersBegin,
    WorkersSeen,
    WorkersStarted,
    WorkersUnready,
)
from ..say_once import ExitLines
from ..setup import Setup
from ..timeline import Timeline, describe_round
from ..zygotes.zygote import AT_ONCE
from .adapter_round import list_peers, rank_to_come, round_of, worker_of
from .handover import GroupMembers, ProcessorSample, lacks_state, lowest_local_rank, wait_for_late
from .head_start import HeadStart
from .ports import RoundPorts
from .services import GRACE_SECONDS, Services
from .started_worker import WorkerSpec
from .worker_starter import StartFailed

SILENCE = (1.25, 1.0)
"""Of a lease's seconds, and seconds more: so long a stopped agent may be silent before its guardian ends its workers. A
little longer than its lease can live (a beat is younger than a renewal, and the store looks every half second), so that
the job hears of the loss first, and not of what the other ranks die of."""

LONG_SECONDS = 0.1
"""After so long a wait the header is read again, before anything is done on account of it."""


class WorkerGroup:
    """The worker processes of one agent.

    Args:
        setup: what the agent is started with.
        machine: what it runs on.
        tag: marks the processes as this agent's.
        inbox: what the agent knows.
        confirms: asks the store whether this header is still the current one.
        peers: asks it where the workers of that round are, with so many ports each; None where it does not say now.
        store, keys: by which nodes tell each other that rank 0 listens.

    Attributes:
        ports: those that this node holds for the workers.
        guardian: ends the workers when the agent is gone.
        lingers: something of the round that was begun last may be left here, though its workers have ended: a service
            of it, or ports of theirs that are not held again.
    """

    def __init__(
        self,
        setup: Setup,
        machine: RealMachine,
        tag: str,
        inbox: Inbox,
        reporter: Output,
        trace: Recorder,
        timeline: Timeline,
        confirms: Callable[[Header], Awaitable[bool]],
        peers: Callable[[Header, int], Awaitable[tuple[NodePeers, ...] | None]],
        store: Store,
        keys: Keys,
        stepped: Callable[[Exit], bool],
    ) -> None:
        self._setup = setup
        self._stepped = stepped
        self._inbox = inbox
        self._reporter = reporter
        self._trace = trace
        self._timeline = timeline
        self._confirms = confirms
        self._read_peers = peers
        self._peers: tuple[NodePeers, ...] = ()  # of the round that is being started
        self._contract_peers: tuple[contract.Peer, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._address = ""  # where workers reach the agent
        self._short = False  # of descriptors, and has said so
        self._first_local = 0  # the local rank of the node's lowest rank
        self._began: dict[int, int] = {}  # by pid: the round for which it was started
        self._ended: tuple[Exit, ...] = ()  # of workers that ended before the others went on into another round
        self._lost_peer = re.compile("|".join(setup.workers.adapter.consequences) or "(?!)", re.IGNORECASE).search
        self._process_groups = machine.process_groups(
            self._heard, lambda local_rank: self._workers.pids.get(local_rank), setup.workers.adapter.half_open_seconds
        )
        most = max((role.nproc or setup.nproc for role in setup.terms.policy.roles), default=setup.nproc)
        self.ports = RoundPorts(machine.ports, setup.workers.adapter, most, lambda why: inbox.note(MachineUnfit(why)))
        silence = None if setup.bind is None else setup.lease_ttl * SILENCE[0] + SILENCE[1]
        self._workers, self.guardian = machine.workers(tag, silence)
        forked = setup.recipe is not None  # else no two workers begin at the same moment
        meeting = setup.workers.adapter.meets_through if forked else None
        self._head_start = HeadStart(meeting, store, keys, inbox, machine.listens, self._workers.let_go)
        self._services: Services | None = None  # none has been wanted
        self.lingers = False
        self._begin_services = partial(machine.services, tag, inbox.wake)

    @property
    def pids(self) -> frozenset[int]:
        """Of the living workers."""
        return frozenset(self._workers.pids.values())

    @property
    def running(self) -> Sequence[Running]:
        """The round's workers, those that have ended included, as they are looked at from outside."""
        return list_workers(self._workers.running, self._ended)

    def condemn(self, rank: int, why: str) -> bool:
        """Kills the worker of that rank, whose end is said to be because of `why`; False where it has none."""
        return self._workers.condemn(rank, why)

    @property
    def alive(self) -> int:
        """How many workers have not ended."""
        return self._workers.alive

    @property
    def exits(self) -> tuple[Exit, ...]:
        """How workers have ended, in order; those of the round before are not among them."""
        return tuple(
            dataclasses.replace(exit_, lost_peer=bool(self._lost_peer(exit_.message)), advanced=self._stepped(exit_))
            for exit_ in (*self._ended, *self._workers.exits)
        )

    @property
    def _failed(self) -> tuple[Exit, ...]:
        return tuple(exit_ for exit_ in self.exits if not exit_.ok)

    @property
    def members(self) -> GroupMembers:
        """What the living workers have said of their process group."""
        return self._process_groups.members(self.pids)

    def see_workers(self) -> WorkersSeen:
        """What can be seen of them at the moment."""
        return WorkersSeen(
            alive=self.alive,
            exits=self.exits,
            service=self._services.failure if self._services else "",
            lingers=self.lingers,
            group=self.members.count(),
        )

    def listen(self, address: str) -> None:
        """Workers reach the agent at `address`, and the listener of process groups beside it. Raises OSError."""
        self._address = address
        self._process_groups.start(address)

    def hang_up(self) -> None:
        """Ends what workers reach."""
        self._process_groups.close()
        self.ports.close()

    async def close(self, *, keep_detached: bool = False) -> None:
        """Ends the processes that are left; with `keep_detached` not those that have left their worker's session."""
        await self._head_start.close()
        if self._services:
            await self._services.end(("round", "job"), GRACE_SECONDS)
        sessions = self._services.sessions if self._services else frozenset[int]()
        await self._workers.close(keep_detached=keep_detached, sessions=sessions)

    def pause(self) -> None:
        """Stops the workers, as Ctrl-Z does."""
        self._workers.pause()
        if self._services:
            self._services.pause()

    def resume(self) -> None:
        """Lets them continue."""
        self._workers.resume()
        if self._services:
            self._services.resume()

    def warm_up(self) -> None:
        """Begins to make the interpreter that workers are forked from, while the nodes still meet."""
        if self._setup.recipe is not None:
            self._workers.warm(self._setup.recipe)

    async def start(self, header: Header, assignment: Assignment) -> None:
        """New workers for this round, unless the store has another header by now."""
        await self.stop(signal.SIGKILL, 0.0)  # what the last workers left behind, and how they ended
        if self._inbox.state.machine.unfit:
            return
        with self._trace.span("warm"):
            await self._workers.ready()
        self._trace.starting()
        if not await self._is_current(header) or not self._release_ports(header, assignment):
            return
        self._first_local = 0
        try:
            self._ended = ()
            if not await self._serve(header, assignment):
                return
            await self._head_start.expect(header, assignment)
            await self._workers.start([self._spec(header, assignment, local) for local in range(assignment.nproc)])
        except (StartFailed, ValueError, OSError) as error:
            self._cannot_start(header, assignment, error)
            return
        self._belong_to(header, assignment)
        self._started(header, assignment, anew=True)

    async def get_ready(self, header: Header) -> None:
        """Workers without a rank, as if they came after all others; each asks for its own.

        Who keeps its process is among them, and those that are missing are started.
        """
        nproc, stay = self._setup.nproc, bool(self.members.staying)
        if stay:
            self._break_up(header.number)
            await self._freed()
        else:
            await self.stop(signal.SIGKILL, 0.0)
            await self._workers.ready()
        nobody, provisional = rank_to_come(self._setup.workers, header, nproc), dataclasses.replace(header, number=0)
        self._first_local = 0
        try:
            specs = {local: self._spec(provisional, nobody, local) for local in range(nproc)}
            self._inbox.note(WorkersBegin(0, nobody.role, nproc))
            missing, _ = self._keep(specs)
            await (
                self._workers.fill(missing, self._setup.grace_after_failure) if stay else self._workers.start(missing)
            )
        except (StartFailed, ValueError, OSError) as error:
            self._inbox.note(WorkersUnready(none=True))
            self._reporter.say(f"cannot prepare this node's workers: {error}")

    def _belong_to(self, header: Header, assignment: Assignment, *, adopted: bool = False) -> None:
        self._inbox.note(WorkersBegin(header.number, assignment.role, assignment.nproc, adopted))

    async def adopt(self, header: Header, assignment: Assignment) -> None:
        """The workers continue into this round, as they are; those that have ended count in it as they did."""
        if not await self._is_current(header):
            return
        ended = tuple(dataclasses.replace(exit_, round=header.number) for exit_ in self.exits)
        down = any(not exit_.ok for exit_ in ended) or not self.alive
        self._belong_to(header, assignment, adopted=True)
        if self._services:
            self._services.tell(self._line(self._services.services, self._round(header, assignment), assignment))
        pids = self._workers.pids
        self._workers.keep({pid: self._spec(header, assignment, local) for local, pid in pids.items()})
        self._ended = ended
        await self._workers.fill(())
        if not down:
            self._started(header, assignment, kept=len(pids))

    async def reform(self, header: Header, assignment: Assignment) -> None:
        """The next round, in which workers keep their process as far as they are free in time."""
        self._trace.starting()
        if not await self._is_current(header):
            return
        self._break_up(header.number)
        if not self._release_ports(header, assignment):
            return
        held = self.members.holding
        with self._trace.span("free", round=header.number):
            waited = await self._freed()
        if waited > LONG_SECONDS and not await self._confirms(header):
            return
        from_rank_0 = self._setup.workers.adapter.state_from_rank_0
        if held and lacks_state(self.members, assignment, from_rank_0=from_rank_0):
            await self._give_up_rank_0(header)
            return
        try:
            if not await self._serve(header, assignment):
                return
        except (StartFailed, ValueError, OSError) as error:
            self._cannot_start(header, assignment, error)
            return
        self._belong_to(header, assignment)
        pids, heirs = self._workers.pids, self.members.heirs
        began = {local: self._began.get(pid, 0) for local, pid in pids.items()}
        able = [local for local, pid in pids.items() if pid in heirs]
        self._first_local = lowest_local_rank(able, assignment, began, from_rank_0=from_rank_0)
        varying = per_worker(self._setup.workers.adapter)
        try:
            specs = {local: self._spec(header, assignment, local) for local in range(assignment.nproc)}
            missing, kept = self._keep(specs)
            for pid, spec in kept.items():
                self._process_groups.assign(
                    pid, header.number, {name: spec.env[name] for name in varying if name in spec.env}
                )
            await self._head_start.expect(header, assignment)
            await self._workers.fill(missing, self._setup.grace_after_failure)
        except (StartFailed, ValueError, OSError) as error:
            self._cannot_start(header, assignment, error)
            return
        finally:
            self._look_for_unkillable()
        self._started(header, assignment, kept=len(kept))

    def _break_up(self, round: int) -> None:
        """The process group that the workers have been in is over, and `round` the current one."""
        self._timeline.down(self._inbox.now())
        self._inbox.note(RoundLeft(self._failed))
        self.break_groups(round)
        self.ports.hold()

    async def _give_up_rank_0(self, header: Header) -> None:
        """Another node may still have the state: the next round is to know that this one has lost it."""
        problem = "its workers that have the job's state ended, or did not leave their process group in time"
        self._inbox.note(StartProblem(problem))
        self._reporter.say(f"round {header.number}: {problem}: leaving rank 0 to another node")
        await self.stop(signal.SIGTERM, self._setup.grace_after_failure)

    def _keep(self, specs: Mapping[int, WorkerSpec]) -> tuple[list[WorkerSpec], dict[int, WorkerSpec]]:
        """Keeps the workers that wait for a rank, as what `specs` has for their local ranks.

        Returns what of `specs` is missing, and what has been kept, by pid. `Workers.fill` ends the others.
        """
        members = self.members
        kept = {pid: specs[local] for local, pid in self._workers.pids.items() if pid in members.waiting}
        for pid in members.late:
            self._reporter.say(f"the worker with pid {pid} did not leave its process group in time: restarting it")
        # Who has failed while the others were waited for is forgotten now, and the master is to know.
        self._inbox.note(RoundLeft(self._failed, adds=True))
        self._workers.keep(kept)
        self._ended = ()
        self._process_groups.forget_all_but(self.pids)
        held = {spec.local_rank for spec in kept.values()}
        return [spec for local, spec in specs.items() if local not in held], kept

    async def _freed(self) -> float:
        """Waits until every worker that stays has left its process group, or has had the time for it; the seconds."""
        begun, samples = self._inbox.now(), tuple[ProcessorSample, ...]()
        while True:
            heard, now = self._inbox.count, self._inbox.now()
            members = self.members
            seconds = wait_for_late(members, begun, now, samples)
            if seconds is None:
                return now - begun
            if seconds:
                await self._inbox.news(heard, seconds)
                continue
            if not samples:
                those = ", ".join(f"pid {pid}" for pid in sorted(members.late))
                self._reporter.say(f"waiting for {those} to leave the process group")
            samples = (*samples[-1:], ProcessorSample(now, self._workers.used(members.late)))

    def invite(self, round: int) -> None:
        """Asks the workers to leave the process group for `round`, together with the others."""
        self._process_groups.plan(self.pids, round)

    def break_groups(self, round: int) -> None:
        """Breaks the process group: its round is over, and `round` the current one."""
        self._process_groups.break_groups(self.pids, round)

    async def stop(self, first: int, grace: float) -> None:
        """Ends all workers: signal `first`, SIGKILL after `grace` seconds."""
        self._timeline.down(self._inbox.now())
        own = self._failed
        with self._trace.span("stop", round=self._inbox.state.workers.round, grace=grace):
            await self._workers.stop(first=first, grace=grace)
            if self._services:
                await self._services.end(("round",), min(grace, GRACE_SECONDS))
        self._look_for_unkillable()
        self._process_groups.forget_all_but(self.pids)
        self._trace.exits(self._workers.exits)
        self._inbox.note(RoundLeft(own))
        self.ports.hold()
        self.lingers = False

    def _look_for_unkillable(self) -> None:
        """A node with a process that cannot be killed runs no further round: that may hold a device, memory, a port."""
        if unkillable := self._workers.unkillable:
            self._inbox.note(Unkillable(unkillable[0]))

    async def _serve(self, header: Header, assignment: Assignment) -> bool:
        """Has the services of this round run, and be ready; False where another round has begun meanwhile.

        Raises StartFailed, ValueError, AdapterFailed.
        """
        round = self._round(header, assignment)
        wanted = services.wanted(self._setup.workers.adapter, round, first=assignment.first_rank == 0)
        if wanted and self._services is None:
            self._services = self._begin_services()
        if not self._services:
            return True
        self.lingers = True
        python = (self._setup.workers.python, "-u")
        with self._trace.span("services", round=header.number):
            line = self._line(wanted, round, assignment)
            await self._services.enter(wanted, line, python, {**self._setup.workers.inherited, AGENT: self._address})
            self._inbox.post(ServicesAwaited())
            await self._services.ready()
            self._inbox.note(ServicesAwaited(over=True))  # workers that are being forked are not given up for a header
            return await self._confirms(header)

    def _line(self, told: tuple[contract.Service, ...], round: contract.Round, assignment: Assignment) -> bytes:
        """By which services hear of a round; those that speak to other nodes' are given this node's certificate."""
        written = self._setup.security.written if any(service.between_nodes for service in told) else None
        return services.line(round, assignment.group_rank, written() if written is not None else None)

    async def _is_current(self, header: Header) -> bool:
        """Whether the store still has this header; reads where all workers are, where their framework asks."""
        if each := self._setup.workers.adapter.worker_ports:
            found = await self._read_peers(header, each)
            if found is None:
                return False
            self._peers = found
            self._contract_peers = list_peers(found, each)
        return await self._confirms(header)

    def _release_ports(self, header: Header, assignment: Assignment) -> bool:
        """Gives the ports of this round's workers free that are this node's; False where somebody else has one."""
        self.lingers = bool(self.ports.offered[1])
        if problem := self.ports.release(header, assignment, self._peers):
            self._inbox.note(StartProblem(problem))
            self._reporter.say(f"round {header.number}: {problem}; offering other ports")
        return not problem

    def _cannot_start(self, header: Header, assignment: Assignment, error: Exception) -> None:
        self._trace.started(header, assignment, problem=str(error))
        self._inbox.note(StartProblem(str(error), fault=True))
        self._reporter.say(f"round {header.number}: {error}")

    def _started(self, header: Header, assignment: Assignment, kept: int = 0, *, anew: bool = False) -> None:
        self._head_start.started()
        down = self._timeline.up(self._inbox.now(), header)
        self._trace.started(header, assignment, down=down)
        self._began = {pid: self._began.get(pid, header.number) for pid in self.pids}
        here = self._inbox.note(WorkersStarted(anew)).key.name
        self._reporter.say(describe_round(header, assignment, down, kept, here))

    def _heard(self) -> None:
        """A worker that keeps its process has said something."""
        if self._process_groups.short and not self._short:
            self._short = True
            self._reporter.say(
                "too many open files: this agent cannot break the process groups of all its workers when a peer is "
                "lost, and they may wait longer: raise ulimit -n above workers here x ranks of the job first"
            )
        if len(self.members.staying) == self._inbox.state.workers.total > 0:
            self._inbox.note(AllStay())
        self._inbox.wake()

    async def watch(self) -> None:
        """Notes and tells how workers end."""
        known: tuple[Exit, ...] = ()
        say_exit = ExitLines(self._reporter.say)
        while True:
            await self._workers.changed()
            exits = self._workers.exits
            self._trace.exits(exits)
            for exit_ in (each for each in exits if each not in known):
                self._process_groups.forget(exit_.pid)
                if not exit_.ok and not exit_.stopped:
                    say_exit(exit_)
            known = exits
            early = any(exit_.round == 0 and not exit_.stopped for exit_ in exits)  # of those that were to get ready
            if early and not self._inbox.state.workers.unready:
                pause = plan.unready_pause(self._inbox.note(WorkersUnready()).workers)
                self._loop.call_later(pause, self._inbox.post, UnreadyOver())
                self._reporter.say(f"a worker exited before it was assigned a rank: retrying in {pause:g} s")
            if any(not exit_.ok for exit_ in exits):
                self._timeline.down(self._inbox.now())
            elif self._workers.alive == 0:
                self._timeline.finished(self._inbox.now())
            self._inbox.wake()

    def _spec(self, header: Header, assignment: Assignment, local_rank: int) -> WorkerSpec:
        error_file = self._reporter.error_file(header.number, local_rank)
        worker = worker_of(self._setup.workers, assignment, local_rank, self._first_local, str(error_file))
        command = self._setup.workers.commands.get(assignment.role, self._setup.workers.command)
        command = tuple(part.replace("${local_rank}", str(local_rank)) for part in command)
        return WorkerSpec(
            round=header.number,
            rank=worker.rank,
            local_rank=local_rank,
            argv=command,
            env=self._setup.workers.environment(self._round(header, assignment), worker, self._address),
            error_file=error_file,
            begin=self._head_start.begin(assignment, worker.rank) if header.number else AT_ONCE,
        )

    def _round(self, header: Header, assignment: Assignment) -> contract.Round:
        said: Mapping[str, str] = self._services.said if self._services else {}
        return round_of(self._setup.workers, header, assignment, self._contract_peers, said)
