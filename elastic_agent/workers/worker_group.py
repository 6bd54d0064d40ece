"""This node's workers: one set of them after the other, or one that keeps its process, and their process group.

`plan.act` says when they are started, ended, or given another rank assignment; here is how.
"""

import asyncio
import dataclasses
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from ...adapters import contract, services
from ...adapters.client.context import AGENT
from ...adapters.environment import per_worker
from ...rendezvous.header import Header
from ...rendezvous.keys import Keys
from ...rendezvous.member import Exit
from ...rendezvous.peers import NodePeers
from ...rendezvous.ranks import PORT_SETS, Assignment
from ...rendezvous.store.contract import Store
from ..agent_trace import Recorder
from ..diagnosis.running import Running, list_workers
from ..inbox import Inbox
from ..local_machine import RealMachine
from ..logs.output import Output
from ..node_events import (
    AllStay,
    MachineUnfit,
    RoundLeft,
    StartProblem,
    Unkillable,
    UnreadyOver,
    WorkersBegin,
    WorkersSeen,
    WorkersStarted,
    WorkersUnready,
)
from ..node_state import StayingWorkers
from ..say_once import ExitLines
from ..setup import Setup
from ..timeline import Timeline, describe_round
from ..zygotes.zygote import AT_ONCE
from .head_start import HeadStart
from .ports import OFFERED, Ports
from .services import GRACE_SECONDS, Services
from .worker_processes import StartFailed, WorkerSpec

SILENCE = (1.25, 1.0)
"""Of a lease's seconds, and seconds more: so long a stopped agent may be silent before its guardian ends its workers. A
little longer than its lease can live (a beat is younger than a renewal, and the store looks every half second), so that
the job hears of the loss first, and not of what the other ranks die of."""

FREE_SECONDS = 1.0
"""So long a worker that keeps its process may take to leave a process group that was broken, and twice the time of its
steps: one that computes notices only at the end of its backward pass."""

FORMING_SECONDS = 10.0
"""The same, where it is about to form one: some of that cannot be broken off."""

COMPUTING_SECONDS = 120.0
"""The same, where it computes, and no other of this node has the job's state."""

COMPUTES_WITHIN, COMPUTES_SHARE = 2.0, 0.2
"""Who computes uses so much of a processor, or waits for one, in so many seconds: more than another machine of the same
host takes a processor away for, which is neither."""

UNREADY_SECONDS = 1.0
"""Before a node whose worker ended while it got ready tries again; then four times as long, and so on."""

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
        ports: those that this node offers for the workers' meeting place.
        worker_ports: those that it holds for the workers themselves.
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
        self._unready = 0  # times in a row
        self._first_local = 0  # the local rank of the node's lowest rank
        self._began: dict[int, int] = {}  # by pid: the round for which it was started
        self._ended: tuple[Exit, ...] = ()  # of workers that ended before the others went on into another round
        self._lost_peer = re.compile("|".join(setup.workers.adapter.consequences) or "(?!)", re.IGNORECASE).search
        self._process_groups = machine.process_groups(
            self._heard, lambda local_rank: self._workers.pids.get(local_rank), setup.workers.adapter.half_open_seconds
        )
        most = max((role.nproc or setup.nproc for role in setup.terms.policy.roles), default=setup.nproc)
        held = most * setup.workers.adapter.worker_ports * PORT_SETS
        self.ports = self._hold(machine, OFFERED if setup.workers.adapter.port else 0, 1)
        self.worker_ports = self._hold(machine, held, held)
        silence = None if setup.bind is None else setup.lease_ttl * SILENCE[0] + SILENCE[1]
        self._workers, self.guardian = machine.workers(tag, silence)
        forked = setup.recipe is not None  # else no two workers begin at the same moment
        meeting = setup.workers.adapter.meets_through if forked else None
        self._head_start = HeadStart(meeting, store, keys, inbox, machine.listens, self._workers.let_go)
        self._services: Services | None = None  # none has been wanted
        self.lingers = False
        self._begin_services = partial(machine.services, tag, inbox.wake)

    def _hold(self, machine: RealMachine, count: int, least: int) -> Ports:
        try:
            return machine.ports(count, least)
        except OSError as error:
            self._inbox.note(MachineUnfit(str(error)))
            return machine.ports(0, 0)

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
    def staying(self) -> frozenset[int]:
        """The pids of those that keep their process."""
        return self._process_groups.staying(self.pids)

    @property
    def holding(self) -> frozenset[int]:
        """The pids of those that have the job's state."""
        return self._process_groups.holding(self.pids)

    @property
    def waiting(self) -> frozenset[int]:
        """Of those that have left their process group, and wait for their next rank assignment."""
        return self._process_groups.waiting(self.pids)

    @property
    def forming(self) -> frozenset[int]:
        """Of those whose process group does not stand yet."""
        return self._process_groups.forming(self.pids)

    def see_workers(self) -> WorkersSeen:
        """What can be seen of them at the moment."""
        groups, pids = self._process_groups, self.pids
        return WorkersSeen(
            alive=self.alive,
            exits=self.exits,
            service=self._services.failure if self._services else "",
            lingers=self.lingers,
            group=StayingWorkers(
                staying=len(groups.staying(pids)),
                holding=len(groups.holding(pids)),
                done=len(groups.done(pids)),
                waiting=len(groups.waiting(pids)),
                forming=len(groups.forming(pids)),
                slowest=groups.slowest(pids),
                broke=groups.trouble(pids),
            ),
        )

    def listen(self, address: str) -> None:
        """Workers reach the agent at `address`, and the listener of process groups beside it. Raises OSError."""
        self._address = address
        self._process_groups.start(address)

    def hang_up(self) -> None:
        """Ends what workers reach."""
        self._process_groups.close()
        self.ports.close()
        self.worker_ports.close()

    async def close(self, *, keep_detached: bool = False) -> None:
        """Ends the processes that are left; with `keep_detached` not those that have left their worker's session."""
        await self._head_start.close()
        sessions: frozenset[int] = frozenset()
        if self._services:
            await self._services.end(("round", "job"), GRACE_SECONDS)
            sessions = self._services.sessions
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
        self._unready = 0
        self._started(header, assignment, anew=True)

    def _ready_again(self) -> None:
        self._inbox.post(UnreadyOver())

    async def get_ready(self, header: Header) -> None:
        """Workers without a rank, as if they came after all others; each asks for its own.

        Who keeps its process is among them, and those that are missing are started.
        """
        nproc, stay = self._setup.nproc, self.staying
        if stay:
            self._break_up(header.number)
            await self._freed()
        else:
            await self.stop(signal.SIGKILL, 0.0)
            await self._workers.ready()
        nobody = Assignment(
            0,
            self._setup.workers.node,
            "",
            group_rank=header.nodes,
            group_size=header.nodes + 1,
            first_rank=header.world_size,
            nproc=nproc,
            world_size=header.world_size + nproc,
            role_first_rank=header.world_size,
            role_world_size=header.world_size + nproc,
            role=self._setup.workers.role,
        )
        provisional = dataclasses.replace(header, number=0)
        self._first_local = 0
        try:
            specs = {local: self._spec(provisional, nobody, local) for local in range(nproc)}
            self._inbox.note(WorkersBegin(0, nobody.role, nproc))
            missing, _ = self._keep(specs)
            grace = self._setup.grace_after_failure
            await (self._workers.fill(missing, grace) if stay else self._workers.start(missing))
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
        held = self.holding
        with self._trace.span("free", round=header.number):
            waited = await self._freed()
        if waited > LONG_SECONDS and not await self._confirms(header):
            return
        if held and self._is_first_without_state(assignment):
            await self._give_up_rank_0(header)
            return
        try:
            if not await self._serve(header, assignment):
                return
        except (StartFailed, ValueError, OSError) as error:
            self._cannot_start(header, assignment, error)
            return
        self._belong_to(header, assignment)
        self._first_local = self._eldest(assignment)
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
        self._unready = 0
        self._started(header, assignment, kept=len(kept))

    def _break_up(self, round: int) -> None:
        """The process group that the workers have been in is over, and `round` the current one."""
        self._timeline.down(self._inbox.now())
        self._inbox.note(RoundLeft(self._failed))
        self.break_groups(round)
        self.ports.hold()
        self.worker_ports.hold()

    def _eldest(self, assignment: Assignment) -> int:
        """The local rank of this node's lowest rank: where that is rank 0, and the state comes from it, who has it."""
        if assignment.first_rank or not self._setup.workers.adapter.state_from_rank_0:
            return 0
        able = self.waiting & self.holding
        pids = self._workers.pids
        return min(
            (local for local in pids if pids[local] in able),
            key=lambda at: (self._began.get(pids[at], 0), at),
            default=0,
        )

    def _is_first_without_state(self, assignment: Assignment) -> bool:
        """Whether others would take the job's state from a worker here, and none that waits for a rank has it."""
        takes = assignment.first_rank == 0 and self._setup.workers.adapter.state_from_rank_0
        return takes and not self.waiting & self.holding

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
        pids, waiting = self._workers.pids, self.waiting
        kept = {pid: specs[local] for local, pid in pids.items() if pid in waiting}
        for pid in self.staying - waiting:
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
        begun = self._inbox.now()
        looked: tuple[float, float] | None = None  # when, and how much of the processor the late ones had used
        while True:
            heard = self._inbox.count
            late = self.staying - self.waiting
            limit = FORMING_SECONDS if late <= self.forming else FREE_SECONDS + 2 * self._process_groups.slowest(late)
            now = self._inbox.now()
            rest = begun + limit - now
            if late and rest <= 0 and now < begun + COMPUTING_SECONDS and not late <= self.forming:
                # In an evaluation, perhaps: not all who have the job's state are to be ended for that.
                if self.waiting & self.holding:
                    return now - begun
                if looked is None:
                    self._reporter.say(
                        f"waiting for {', '.join(f'pid {pid}' for pid in sorted(late))} to leave the process group"
                    )
                if looked is None or now >= looked[0] + COMPUTES_WITHIN:
                    used = self._workers.used(late)
                    # Less than before: a child has ended, so something is under way.
                    if looked is not None and 0 <= used - looked[1] < COMPUTES_SHARE * (now - looked[0]):
                        return now - begun
                    looked = now, used
                rest = looked[0] + COMPUTES_WITHIN - now
            if not late or rest <= 0:
                return now - begun
            await self._inbox.news(heard, rest)

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
        self.worker_ports.hold()
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
            # One that waits for the services of other nodes waits in vain where one of these is lost.
            ready = await self._inbox.unless(self._services.ready(), lambda: self._inbox.state.known.header != header)
            return ready and await self._confirms(header)

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
            self._contract_peers = _by_rank(found, each)
        return await self._confirms(header)

    def _release_ports(self, header: Header, assignment: Assignment) -> bool:
        """Gives the ports of this round's workers free that are this node's; False where somebody else has one."""
        name = self._setup.workers.adapter.port
        self.lingers = bool(self.worker_ports.offered)
        if assignment.group_rank == 0 and name and not self.ports.release(header.master_port):
            return self._taken(header, self.ports, header.master_port, f"the workers' {name}")
        for peer in self._peers:
            if peer.first_rank == assignment.first_rank:
                for port in peer.ports:
                    if not self.worker_ports.release(port):
                        return self._taken(header, self.worker_ports, port, "its workers")
        return True

    def _taken(self, header: Header, ports: Ports, port: int, whose: str) -> bool:
        problem = f"port {port} for {whose} is still taken, by an earlier round's connections or another program"
        self._inbox.note(StartProblem(problem))
        try:
            ports.renew()
        except OSError as error:
            self._inbox.note(MachineUnfit(str(error)))
        self._reporter.say(f"round {header.number}: {problem}; offering other ports")
        return False

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
        if len(self.staying) == self._inbox.state.workers.total > 0:
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
                self._inbox.note(WorkersUnready())
                pause = UNREADY_SECONDS * 4**self._unready
                self._unready += 1
                self._loop.call_later(pause, self._ready_again)
                self._reporter.say(f"a worker exited before it was assigned a rank: retrying in {pause:g} s")
            if any(not exit_.ok for exit_ in exits):
                self._timeline.down(self._inbox.now())
            elif self._workers.alive == 0:
                self._timeline.finished(self._inbox.now())
            self._inbox.wake()

    def _spec(self, header: Header, assignment: Assignment, local_rank: int) -> WorkerSpec:
        error_file = self._reporter.error_file(header.number, local_rank)
        worker = self._worker(assignment, local_rank, str(error_file))
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
        return contract.Round(
            job=self._setup.workers.job,
            number=header.number,
            world_size=assignment.world_size,
            nodes=assignment.group_size,
            master_addr=header.master_addr,
            master_port=header.master_port,
            restart_count=header.restart_count,
            max_restarts=header.max_restarts,
            signals=self._setup.workers.signal_names,
            peers=self._contract_peers if header.number else (),
            services=self._services.said if self._services and header.number else {},
        )

    def _worker(self, assignment: Assignment, local_rank: int, error_file: str) -> contract.Worker:
        place = (local_rank - self._first_local) % assignment.nproc
        return contract.Worker(
            rank=assignment.first_rank + place,
            local_rank=local_rank,
            local_world_size=assignment.nproc,
            node=self._setup.workers.node,
            node_rank=assignment.group_rank,
            role=assignment.role,
            role_rank=assignment.role_first_rank + place,
            role_world_size=assignment.role_world_size,
            error_file=error_file,
            own_device=self._setup.workers.own_device,
        )


def _by_rank(nodes: Iterable[NodePeers], each: int) -> tuple[contract.Peer, ...]:
    """Each worker's host and its `each` ports, of nodes in rank order (pure)."""
    found: list[contract.Peer] = []
    for number, node in enumerate(nodes):
        for local in range(node.nproc):
            ports = node.ports[local * each : (local + 1) * each]
            found.append(contract.Peer(node.first_rank + local, node.host, ports, node.role, number))
    return tuple(found)
