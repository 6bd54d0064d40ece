"""This node's workers: one set of them after the other, or one that keeps its process, and their process group.

`plan.act` says when they are started, ended, or given another rank assignment; here is how.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

from ...adapters import contract, services
from ...adapters.client.context import AGENT
from ...adapters.environment import per_worker
from ...rendezvous.base.frozen import replace
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
from .adapter_round import RoundEntry, list_peers, rank_to_come, round_of, worker_of
from .handover import choose_kept, lost_state
from .head_start import HeadStart
from .ports import RoundPorts
from .round_exits import RoundExits, failures
from .services import GRACE_SECONDS
from .started_worker import WorkerSpec
from .staying_group import StayingGroup
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
        stepped: see `RoundExits`.

    Attributes:
        ports: those that this node holds for the workers.
        processes: the workers themselves.
        guardian: ends them when the agent is gone.
        more_services: makes a set of processes that are kept as the round's services are, and outlive the rounds.
        staying: the process group of those that keep their process.
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
        self._inbox = inbox
        self._reporter = reporter
        self._trace = trace
        self._timeline = timeline
        self._confirms = confirms
        self._read_peers = peers
        self._address = ""  # where workers reach the agent
        self._first_local = 0  # the local rank of the node's lowest rank
        adapter = setup.workers.adapter
        self._exits = RoundExits(adapter.consequences, stepped)
        most = max((role.nproc or setup.nproc for role in setup.terms.policy.roles), default=setup.nproc)
        self.ports = RoundPorts(machine.ports, adapter, most, lambda why: inbox.note(MachineUnfit(why)))
        silence = None if setup.bind is None else setup.lease_ttl * SILENCE[0] + SILENCE[1]
        self.processes, self.guardian, self._services = machine.workers(tag, silence, inbox.wake)
        self.more_services = lambda: machine.services(tag, self.processes, self.guardian, inbox.wake)
        self.staying = StayingGroup(machine, adapter.half_open_seconds, self.processes, inbox, reporter.say)
        forked = setup.recipe is not None  # else no two workers begin at the same moment
        meeting = adapter.meets_through if forked else None
        self._head_start = HeadStart(meeting, store, keys, inbox, machine.listens, self.processes.let_go)
        self._serves = False  # services have been wanted
        # Something of the round that was begun last may be left here, though its workers have ended: a service of it,
        # or ports of theirs that are not held again.
        self._lingers = False

    @property
    def running(self) -> Sequence[Running]:
        """The round's workers, those that have ended included, as they are looked at from outside."""
        return list_workers(self.processes.running, self._exits.earlier)

    @property
    def exits(self) -> tuple[Exit, ...]:
        """How workers have ended, in order; those of the round before are not among them."""
        return self._exits.count(self.processes.exits)

    def see_workers(self) -> WorkersSeen:
        """What can be seen of them at the moment."""
        return WorkersSeen(
            alive=self.processes.alive,
            exits=self.exits,
            service=self._services.failure,
            lingers=self._lingers,
            group=self.staying.members.count(),
        )

    def listen(self, address: str) -> None:
        """Workers reach the agent at `address`, and the listener of process groups beside it. Raises OSError."""
        self._address = address
        self.staying.groups.start(address)

    def hang_up(self) -> None:
        """Ends what workers reach."""
        self.staying.groups.close()
        self.ports.close()

    async def close(self, *, keep_detached: bool = False) -> None:
        """Ends the processes that are left; with `keep_detached` not those that have left their worker's session."""
        await self._head_start.close()
        await self._services.end(("round", "job"), GRACE_SECONDS)
        await self.processes.close(keep_detached=keep_detached, sessions=self._services.sessions)

    def pause(self) -> None:
        """Stops the workers, as Ctrl-Z does."""
        self.processes.pause()
        self._services.pause()

    def resume(self) -> None:
        """Lets them continue."""
        self.processes.resume()
        self._services.resume()

    def warm_up(self) -> None:
        """Begins to make the interpreter that workers are forked from, while the nodes still meet."""
        if self._setup.recipe is not None:
            self.processes.warm(self._setup.recipe)

    async def start(self, header: Header, assignment: Assignment) -> None:
        """New workers for this round, unless the store has another header by now."""
        await self.stop(signal.SIGKILL, 0.0)  # what the last workers left behind, and how they ended
        if self._inbox.state.machine.unfit:
            return
        with self._trace.span("warm"):
            await self.processes.ready()
        self._trace.starting()
        entry = await self._enter(header, assignment)
        if entry is None or not self._release_ports(entry):
            return
        self._first_local = 0
        with self._telling_failure(entry):
            self._exits.earlier = ()
            if not await self._serve(entry):
                return
            await self._head_start.expect(header, assignment)
            await self.processes.start([*self._specs(entry).values()])
            self._belong_to(entry)
            self._started(entry, anew=True)

    async def get_ready(self, header: Header) -> None:
        """Workers without a rank, as if they came after all others; each asks for its own.

        Who keeps its process is among them, and those that are missing are started.
        """
        nproc, stay = self._setup.nproc, bool(self.staying.members.staying)
        if stay:
            self._break_up(header.number)
            await self.staying.wait_until_free()
        else:
            await self.stop(signal.SIGKILL, 0.0)
            await self.processes.ready()
        nobody = RoundEntry(replace(header, number=0), rank_to_come(self._setup.workers, header, nproc))
        self._first_local = 0
        try:
            specs = self._specs(nobody)
            self._inbox.note(WorkersBegin(0, nobody.assignment.role, nproc))
            missing, _ = self._keep(specs)
            await (
                self.processes.fill(missing, self._setup.grace_after_failure) if stay else self.processes.start(missing)
            )
        except (StartFailed, ValueError, OSError) as error:
            self._inbox.note(WorkersUnready(none=True))
            self._reporter.say(f"cannot prepare this node's workers: {error}")

    async def adopt(self, header: Header, assignment: Assignment) -> None:
        """The workers continue into this round, as they are; those that have ended count in it as they did."""
        entry = await self._enter(header, assignment)
        if entry is None:
            return
        ended = tuple(replace(exit_, round=header.number) for exit_ in self.exits)
        down = bool(failures(ended)) or not self.processes.alive
        self._belong_to(entry, adopted=True)
        self._services.tell(self._line(self._services.services, entry))
        pids = self.processes.pids
        self.processes.keep({pid: self._spec(entry, local) for local, pid in pids.items()})
        self._exits.earlier = ended
        await self.processes.fill(())
        if not down:
            self._started(entry, kept=len(pids))

    async def reform(self, header: Header, assignment: Assignment) -> None:
        """The next round, in which workers keep their process as far as they are free in time."""
        self._trace.starting()
        entry = await self._enter(header, assignment)
        if entry is None:
            return
        self._break_up(header.number)
        if not self._release_ports(entry):
            return
        before = self.staying.members
        with self._trace.span("free", round=header.number):
            waited = await self.staying.wait_until_free()
        if waited > LONG_SECONDS and not await self._confirms(header):
            return
        adapter = self._setup.workers.adapter
        if lost_state(before, self.staying.members, assignment, from_rank_0=adapter.state_from_rank_0):
            await self._give_up_rank_0(header)
            return
        with self._telling_failure(entry):
            if not await self._serve(entry):
                return
            self._belong_to(entry)
            self._first_local = self.staying.choose_first(assignment, from_rank_0=adapter.state_from_rank_0)
            try:
                missing, kept = self._keep(self._specs(entry))
                self.staying.assign(kept, header.number, per_worker(adapter))
                await self._head_start.expect(header, assignment)
                await self.processes.fill(missing, self._setup.grace_after_failure)
            finally:
                self._look_for_unkillable()
            self._started(entry, kept=len(kept))

    async def stop(self, first: int, grace: float) -> None:
        """Ends all workers: signal `first`, SIGKILL after `grace` seconds."""
        self._timeline.down(self._inbox.now())
        own = failures(self.exits)
        with self._trace.span("stop", round=self._inbox.state.workers.round, grace=grace):
            await self.processes.stop(first=first, grace=grace)
            await self._services.end(("round",), min(grace, GRACE_SECONDS))
        self._look_for_unkillable()
        self.staying.note_ends()
        self._trace.exits(self.processes.exits)
        self._inbox.note(RoundLeft(own))
        self.ports.hold()
        self._lingers = False

    async def watch(self) -> None:
        """Notes and tells how workers end."""
        known: tuple[Exit, ...] = ()
        say_exit = ExitLines(self._reporter.say)
        while True:
            await self.processes.changed()
            exits = self.processes.exits
            self._trace.exits(exits)
            for exit_ in (each for each in exits if each not in known):
                self.staying.groups.forget(exit_.pid)
                if not exit_.ok and not exit_.stopped:
                    say_exit(exit_)
            known = exits
            if plan.ended_early(self._inbox.state.workers, exits):
                pause = plan.unready_pause(self._inbox.note(WorkersUnready()).workers)
                asyncio.get_running_loop().call_later(pause, self._inbox.post, UnreadyOver())
                self._reporter.say(f"a worker exited before it was assigned a rank: retrying in {pause:g} s")
            self._timeline.ended(self._inbox.now(), failed=bool(failures(exits)), alive=self.processes.alive)
            self._inbox.wake()

    def _break_up(self, round: int) -> None:
        """The process group that the workers have been in is over, and `round` the current one."""
        self._timeline.down(self._inbox.now())
        self._inbox.note(RoundLeft(failures(self.exits)))
        self.staying.break_up(round)
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
        members = self.staying.members
        staying, missing = choose_kept(self.processes.pids, members.waiting, specs)
        kept = {pid: specs[local] for pid, local in staying.items()}
        for pid in members.late:
            self._reporter.say(f"the worker with pid {pid} did not leave its process group in time: restarting it")
        # Who has failed while the others were waited for is forgotten now, and the master is to know.
        self._inbox.note(RoundLeft(failures(self.exits), adds=True))
        self.processes.keep(kept)
        self._exits.earlier = ()
        self.staying.note_ends()
        return [specs[local] for local in missing], kept

    def _belong_to(self, entry: RoundEntry, *, adopted: bool = False) -> None:
        assignment = entry.assignment
        self._inbox.note(WorkersBegin(entry.header.number, assignment.role, assignment.nproc, adopted))

    def _look_for_unkillable(self) -> None:
        """A node with a process that cannot be killed runs no further round: that may hold a device, memory, a port."""
        if unkillable := self.processes.unkillable:
            self._inbox.note(Unkillable(unkillable[0]))

    async def _serve(self, entry: RoundEntry) -> bool:
        """Has the services of this round run, and be ready; False where another round has begun meanwhile.

        Raises StartFailed, ValueError, AdapterFailed.
        """
        settings, first = self._setup.workers, entry.assignment.first_rank == 0
        wanted = services.wanted(settings.adapter, self._round(entry), first=first)
        self._serves = self._serves or bool(wanted)
        if not self._serves:
            return True
        self._lingers = True
        with self._trace.span("services", round=entry.header.number):
            environment = {**settings.inherited, AGENT: self._address}
            await self._services.enter(wanted, self._line(wanted, entry), (settings.python, "-u"), environment)
            self._inbox.post(ServicesAwaited())
            await self._services.ready()
            self._inbox.note(ServicesAwaited(over=True))  # workers that are being forked are not given up for a header
            return await self._confirms(entry.header)

    def _line(self, told: tuple[contract.Service, ...], entry: RoundEntry) -> bytes:
        """By which services hear of a round; those that speak to other nodes' are given this node's certificate."""
        written = self._setup.security.written if any(service.between_nodes for service in told) else None
        certificate = written() if written is not None else None
        return services.line(self._round(entry), entry.assignment.group_rank, certificate)

    async def _enter(self, header: Header, assignment: Assignment) -> RoundEntry | None:
        """What this node enters, with where all workers are, if their framework asks; None: not the current round."""
        found: tuple[NodePeers, ...] | None = ()
        if each := self._setup.workers.adapter.worker_ports:
            found = await self._read_peers(header, each)
        if found is None or not await self._confirms(header):
            return None
        return RoundEntry(header, assignment, found, list_peers(found, each))

    def _release_ports(self, entry: RoundEntry) -> bool:
        """Gives the ports of this round's workers free that are this node's; False where somebody else has one."""
        self._lingers = bool(self.ports.offered[1])
        if problem := self.ports.release(entry.header, entry.assignment, entry.nodes):
            self._inbox.note(StartProblem(problem))
            self._reporter.say(f"round {entry.header.number}: {problem}; offering other ports")
        return not problem

    @contextlib.contextmanager
    def _telling_failure(self, entry: RoundEntry) -> Generator[None]:
        """Tells why the workers of the round cannot be started, where they cannot."""
        try:
            yield
        except (StartFailed, ValueError, OSError) as error:
            self._trace.started(entry.header, entry.assignment, problem=str(error))
            self._inbox.note(StartProblem(str(error), fault=True))
            self._reporter.say(f"round {entry.header.number}: {error}")

    def _started(self, entry: RoundEntry, kept: int = 0, *, anew: bool = False) -> None:
        self._head_start.started()
        down = self._timeline.up(self._inbox.now(), entry.header)
        self._trace.started(entry.header, entry.assignment, down=down)
        self.staying.note_start(entry.header.number)
        here = self._inbox.note(WorkersStarted(anew)).key.name
        self._reporter.say(describe_round(entry.header, entry.assignment, down, kept, here))

    def _specs(self, entry: RoundEntry) -> dict[int, WorkerSpec]:
        """What each worker of the round is started with, by its local rank."""
        return {local: self._spec(entry, local) for local in range(entry.assignment.nproc)}

    def _spec(self, entry: RoundEntry, local_rank: int) -> WorkerSpec:
        settings, number, assignment = self._setup.workers, entry.header.number, entry.assignment
        error_file = self._reporter.error_file(number, local_rank)
        worker = worker_of(settings, assignment, local_rank, self._first_local, str(error_file))
        command = settings.commands.get(assignment.role, settings.command)
        return WorkerSpec(
            round=number,
            rank=worker.rank,
            local_rank=local_rank,
            argv=tuple(part.replace("${local_rank}", str(local_rank)) for part in command),
            env=settings.environment(self._round(entry), worker, self._address),
            error_file=error_file,
            begin=self._head_start.begin(assignment, worker.rank) if number else AT_ONCE,
        )

    def _round(self, entry: RoundEntry) -> contract.Round:
        return round_of(self._setup.workers, entry, self._services.said)
