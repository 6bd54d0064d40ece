"""One simulated cluster: real agents, masters and stores' clients on simulated machines, and what happens to them.

`run(schedule)` lives one schedule through to its end and returns what was seen. Each kind of fault is a method of
`World` named as in `schedule.VERBS`.
"""

import asyncio
import contextlib
import random
import secrets
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from elastic_run.adapters import environment
from elastic_run.adapters.client.channel import Back, Call
from elastic_run.adapters.client.commits import NOTHING
from elastic_run.adapters.registry import adapter
from elastic_run.elastic_agent.agent import Agent
from elastic_run.elastic_agent.machine import plan
from elastic_run.elastic_agent.master_process import MasterProcess, MasterSetup
from elastic_run.elastic_agent.setup import Setup
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.master.data.ledger import Answer, Position, Request
from elastic_run.master.data.ledger_service import Ledgers
from elastic_run.master.machine.controller import Terms
from elastic_run.rendezvous.base.cancel import cancel
from elastic_run.rendezvous.base.errors import RendezvousError
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.rpc.envelope import Caller
from elastic_run.rendezvous.store.contract import Event, KeyValue, Listing, Store
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore

from . import etcd
from .data import Model, Trainers, Writers
from .invariants import Checker, Violation
from .kernel import Kernel, Process
from .machine import Reporter, SimulatedGuard, SimulatedMachine, SimulatedPorts, SimulatedWorkerServer
from .network import Network
from .process_groups import SimulatedProcessGroups
from .roles import RoleScript, declared, type_of
from .schedule import Fault, Schedule, masters
from .script import Group, Script, Worker
from .services import Crew, SimulatedServices
from .services import declared as declared_services
from .stayers import ProcessGroup, Stayers

SOCKET = (0.00002, 0.0002)
"""Seconds that a word takes between a worker and its agent."""

PATIENCE = 20.0
"""Seconds that a node without workers waits for a store that does not answer."""

FAREWELL = 10.0
"""Seconds that a finished job's master waits for its nodes to leave."""

RECOVERY = 50.0
"""Seconds after the last fault within which a job that can train does, or has ended. A lease that expires late, a
deposition that has to wait for its turn, a store that elects: the parts are in `docs/simulator.md`."""

CONVERGENCE = 150.0
"""Seconds after that, the job's own deadlines and its work not included, within which every agent has ended."""


CALLBACKS = 100_000
"""That one schedule may take; the longest of many thousands takes 4,000. More, and something turns in a circle."""


@dataclass(frozen=True, slots=True)
class End:
    """How one agent ended. `code` is None where a fault killed it."""

    machine: str
    owner: str
    code: int | None
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one schedule.

    Attributes:
        violations: rules that were broken; empty where all is well.
        trace: what happened, line by line, each with the virtual second.
        state: how the job ended, as the last header says; "" where there was none.
        faults: which faults did something, and how often.
        seconds: virtual time that passed.
        rounds: how many there were, the end among them.
    """

    violations: tuple[Violation, ...]
    trace: tuple[str, ...]
    state: str
    faults: Mapping[str, int]
    seconds: float
    rounds: int


class World:
    """Everything there is. Use `run`."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.roles = declared(schedule.shape.roles)
        shape = schedule.shape
        if self.roles:
            least, most = (sum(getattr(role, name) for role in self.roles) for name in ("min_nodes", "max_nodes"))
            shape = replace(shape, min=least, max=most)
        self.shape = shape
        self.chance = random.Random(f"world {schedule.seed}")
        self.network = Network(random.Random(f"network {schedule.seed}"))
        self.kernel = Kernel(self.network, random.Random(f"kernel {schedule.seed}"))
        self.kernel.cost = shape.cost / 1e6
        self.store = etcd.Cluster(
            [f"m{number + 1}" for number in range(shape.etcd)],
            self.network,
            self.kernel,
            random.Random(f"etcd {schedule.seed}"),
            behind=random.Random(f"behind {schedule.seed}"),
        )
        self.store.write_seconds = shape.write
        self.keys = Keys("job")
        self.checker = Checker(self)
        self.script = Stayers(self, shape) if shape.inplace else Script(self, shape.work)
        if self.roles:
            self.script = RoleScript(self, shape.work, self.roles)
        if shape.data == "checkpoint":
            self.script.train = Trainers(self, self.script, shape).begin
        elif shape.data == "ack":
            self.script.write = Writers(self, self.script, shape).begin
        self.trace: list[str] = []
        self.violations: list[Violation] = []
        self.agents: dict[str, Process] = {}  # by owner, living and dead
        self.machine_of: dict[str, str] = {}  # owner -> machine
        self.booted: dict[str, float] = {}  # owner -> when
        self.guards: dict[str, SimulatedGuard] = {}
        self.worker_servers: dict[str, SimulatedWorkerServer] = {}
        self.process_groups: dict[str, SimulatedProcessGroups] = {}
        self.services: dict[str, SimulatedServices] = {}
        self.port_sets: dict[str, list[SimulatedPorts]] = {}  # by owner: for the meeting place, and for its workers
        self.clients: dict[str, etcd.Client] = {}
        self.workers: list[Worker] = []
        self.ends: dict[str, End] = {}
        self.taken_ports: dict[str, int] = {}
        self.failed_starts: dict[str, int] = {}
        self.effective: Counter[str] = Counter()  # by verb: faults that did something
        self.busy_until = 0.0  # when the last fault is over
        self._coming = 1  # boots and faults that will be, `start` among them
        self._ports = 20_000
        self._moments: dict[str, int] = {}
        self._waiting: dict[str, list[Fault]] = {}
        self._lives: dict[str, int] = {}
        self._marks = 0
        self.store.observe(self._observed)

    # -- time and chance ------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """World time, seconds."""
        return self.kernel.now

    def after(self, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        """Calls it later, in the world's own context."""
        self.kernel.call_later(seconds, what, *arguments, context=self.kernel.world)

    def next_port(self) -> int:
        """A port that nobody had."""
        self._ports += 1
        return self._ports

    # -- the trace ------------------------------------------------------------------------------------------------

    def say(self, who: str, line: str) -> None:
        """Into the trace."""
        self.trace.append(f"{self.now:9.4f} {who:<9} {line}")

    def violated(self, rule: str, what: str) -> None:
        """A rule was broken."""
        self.violations.append(Violation(rule, what, self.now))
        self.say("VIOLATED", f"{rule}: {what}")

    # -- running --------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Lives the schedule through."""
        shape = self.shape
        for fault in self.schedule.faults:
            self._waiting.setdefault(fault.moment, []).append(fault)
        for machine in (*(f"n{number + 1}" for number in range(shape.nodes)), *masters(shape)):
            self._coming += 1
            self.after(self.chance.uniform(0.0, 0.3), self._first_boot, machine)
        self.moment("start")
        self._coming -= 1
        with _seeded_secrets(random.Random(f"secrets {self.schedule.seed}")), _overheard_ledgers(self):
            try:
                self._run()
                self.checker.at_end()
            finally:
                self.kernel.close()
        found = self.checker.last_header
        return Outcome(
            tuple(self.violations),
            tuple(self.trace),
            found.state if found else "",
            dict(self.effective),
            self.now,
            found.number if found else 0,
        )

    def _run(self) -> None:
        allowed = max(self.shape.join, self.shape.recovery) + 5 * self.shape.work + CONVERGENCE
        checked = False
        while not self._over():
            limit = self.busy_until + (allowed if checked else RECOVERY)
            if self.now < limit:
                self.kernel.run(until=limit, stop=self._over, limit=CALLBACKS)
            elif not checked:
                checked = True
                self.checker.when_quiet()
            else:
                living = [owner for owner in self.agents if owner not in self.ends]
                self.violated("every agent ends", f"{living} still run {allowed:g} s after the last fault was over")
        # What the job leaves is looked at when leases have had their time to end.
        if not self.violations:
            self.kernel.run(until=self.now + self.shape.ttl + 70)

    def _over(self) -> bool:
        return bool(self.violations) or (self._coming == 0 and len(self.ends) == len(self.agents))

    # -- moments and faults ---------------------------------------------------------------------------------------

    def moment(self, name: str) -> None:
        """The job passes a moment that faults may wait for."""
        if name.startswith("assigned."):
            self.say("store", f"the assignments of round {name.partition('.')[2]} are written, its header is not")
        for fault in self._waiting.pop(name, ()):
            self.busy_until = max(self.busy_until, self.now + fault.after)
            self._coming += 1
            self.after(fault.after, self._do, fault)

    def count(self, what: str) -> None:
        """One more of `what`: the moment `what.1`, then `what.2`, ..."""
        self._moments[what] = self._moments.get(what, 0) + 1
        self.moment(f"{what}.{self._moments[what]}")

    def _first_boot(self, machine: str) -> None:
        self._coming -= 1
        self.boot(machine)

    def _do(self, fault: Fault) -> None:
        self._coming -= 1
        words = [float(word) if _is_number(word) else word for word in fault.words]
        did = getattr(self, fault.verb)(*words)
        if did is False:
            return
        self.effective[fault.verb] += 1
        seconds = next((word for word in reversed(words) if isinstance(word, float)), 0.0)
        if fault.verb not in ("worker", "failed_start"):
            self.busy_until = max(self.busy_until, self.now + seconds)
        self.checker.on_fault(fault)

    # -- agents ---------------------------------------------------------------------------------------------------

    def boot(self, machine: str, script: str = "train.py") -> bool:
        """Starts an agent on `machine`, unless one lives there or it has no power."""
        if self.agent_on(machine) or not self.kernel.machine(machine).on:
            return False
        self._lives[machine] = self._lives.get(machine, 0) + 1
        owner = f"{machine}.{self._lives[machine]}"
        self.booted[owner] = self.now
        self.machine_of[owner] = machine
        lives = self._master if self.is_master(owner) else self._agent
        self.say("world", f"{'a master' if self.is_master(owner) else 'an agent'} starts on {machine}")
        self.agents[owner] = self.kernel.spawn(machine, owner, lambda: self._live(machine, owner, script, lives))
        return True

    def is_master(self, owner: str) -> bool:
        """That process has no workers, and takes part in nothing but the election."""
        return self.machine_of[owner].startswith("c")

    async def _agent(self, store: Store, machine: str, owner: str, script: str) -> tuple[int, str]:
        agent = Agent(
            self._setup(machine, script),
            store,
            Reporter(self, owner),
            SimulatedMachine(self, machine, owner, self.kernel.listen),
        )
        result = await agent.run()
        return result.code, result.reason

    async def _master(self, store: Store, machine: str, owner: str, script: str) -> tuple[int, str]:
        node = self._setup(machine, script)
        setup = MasterSetup(
            job=node.workers.job,
            name=machine,
            host=machine,
            bind=machine,
            terms=node.terms,
            lease_ttl=node.lease_ttl,
            signals=node.workers.signals,
        )
        say = Reporter(self, owner).say
        listen = cast(Callable[[str], socket.socket], lambda bind: self.kernel.listen())
        managing = asyncio.create_task(self.checker.targets.manage(store, self.keys, machine, owner, say))
        try:
            return await MasterProcess(setup, store, say, listen=listen).run()
        finally:
            await cancel(managing)

    async def _live(
        self, machine: str, owner: str, script: str, lives: Callable[..., Awaitable[tuple[int, str]]]
    ) -> None:
        client = self.clients[owner] = etcd.Client(self.store, self.network, machine, owner)
        store = EtcdStore(client, now=asyncio.get_running_loop().time)
        try:
            await store.status()  # as the launcher does
            witnessed = Witnessed(store, self.checker, owner, self.keys)
            code, reason = await lives(witnessed, machine, owner, script)
        except RendezvousError as error:
            code, reason = plan.STORE_LOST, f"{type(error).__name__}: {error}"
        finally:
            await store.close()
        self._ended(owner, code, reason)

    def _setup(self, machine: str, script: str) -> Setup:
        shape = self.shape
        policy = Policy(
            min_nodes=shape.min,
            max_nodes=shape.max,
            node_unit=shape.unit,
            last_call=shape.last_call,
            join_timeout=shape.join,
            recovery_timeout=shape.recovery,
            scale_up=cast(Any, shape.scale_up),
            settle=shape.settle,
            scale_up_interval=shape.interval,
            roles=self.roles,
        )
        fingerprint = Fingerprint(script, (), policy.span, str(shape.nproc), "0")
        told = environment.Told(policy.largest_world(shape.nproc), tells_saves=shape.scale_up == "commit")
        served = shape.services or shape.ports
        crew = Crew(shape.ports, declared_services(shape.services)) if served else adapter("torch")
        return Setup(
            workers=environment.WorkerSettings("job", machine, crew, ("python", script), {}, told),
            host=machine,
            bind=machine,
            nproc=shape.nproc,
            terms=Terms(policy, shape.restarts, shape.same, fingerprint, FAREWELL),
            lease_ttl=shape.ttl,
            store_patience=PATIENCE,
            shutdown_timeout=shape.shutdown,
            node_role="" if machine.startswith("c") else type_of(shape.typed, machine),
        )

    def _ended(self, owner: str, code: int | None, reason: str) -> None:
        if owner in self.ends:
            return
        self.ends[owner] = End(self.machine_of[owner], owner, code, reason, self.now)
        self.say(owner, f"ends with {code}: {reason}" if code is not None else f"is killed: {reason}")
        if code is None and owner in self.guards:
            self.guards[owner].agent_gone()
        if code is None and owner in self.clients:
            self.clients[owner].die()
        self.script.agent_gone(owner)
        self.checker.on_agent_end(self.ends[owner])

    def agent_on(self, machine: str) -> str | None:
        """The agent that lives there."""
        return next((owner for owner, on in self.machine_of.items() if on == machine and owner not in self.ends), None)

    # -- workers --------------------------------------------------------------------------------------------------

    def start_worker(self, machine: str, owner: str, spec: WorkerSpec, on_end: Callable[[Worker], None]) -> Worker:
        """Starts what an agent asks for, and looks whether it may."""
        env = spec.env
        worker = Worker(
            number=len(self.workers) + 1000,
            machine=machine,
            owner=owner,
            run=self.checker.last_header.run if self.checker.last_header else "",
            round=spec.round,
            rank=int(env["RANK"]),
            local=int(env["LOCAL_RANK"]),
            place=(env["MASTER_ADDR"], env["MASTER_PORT"]),
            world=int(env["WORLD_SIZE"]),
            began=self.now,
            on_end=lambda ended: (self._worker_ended(ended), on_end(ended)),
            environment=env,
        )
        if worker.round or not self.shape.inplace:
            self.checker.on_worker_start(worker, env)
        if worker.round:
            self.checker.services.on_worker(worker, env)
        self.workers.append(worker)
        self.script.begin(worker)
        if worker.round:
            self.moment(f"started.{worker.round}")
        return worker

    def keeps_worker(self, worker: Worker, spec: WorkerSpec) -> None:
        """An agent gives a worker its rank assignment in another round."""
        env = spec.env
        worker.round = spec.round
        if spec.round == 0:
            self.say(worker.owner, f"keeps the worker {worker.number} without a rank")
            return
        self.say(
            worker.owner, f"keeps the worker {worker.number}: rank {env['RANK']} of {env['WORLD_SIZE']} from here on"
        )
        worker.run = self.checker.last_header.run if self.checker.last_header else ""
        worker.rank, worker.world = int(env["RANK"]), int(env["WORLD_SIZE"])
        worker.place = env["MASTER_ADDR"], env["MASTER_PORT"]
        self.checker.on_worker_kept(worker, env)
        self.checker.services.on_worker(worker, env)
        if isinstance(self.script, RoleScript) and not worker.ended:
            self.script.arrive(worker)

    def start_fails(self, machine: str, owner: str) -> bool:
        """Whether its workers cannot be started this time."""
        fails = self.failed_starts.get(machine, 0) > 0
        if fails:
            self.failed_starts[machine] -= 1
        self.checker.on_start(owner, fails=fails)
        return fails

    def started_workers(self, owner: str, workers: Sequence[Worker]) -> None:
        """An agent has started its workers of one round."""
        first, last = workers[0], workers[-1]
        if first.round == 0:
            self.say(owner, f"starts {len(workers)} workers without a rank")
            return
        ranks = f"rank {first.rank}" if first is last else f"ranks {first.rank}-{last.rank}"
        self.say(owner, f"starts {ranks} of {first.world} for round {first.round}")

    def _worker_ended(self, worker: Worker) -> None:
        assert worker.ended is not None
        code, number, message = worker.ended
        how = f"signal {number}" if number else f"code {code}"
        self.say(worker.owner, f"{worker.name} ends with {how}{f' ({message})' if message else ''}")

    def met(self, group: Group) -> None:
        """A group has begun to train."""
        worker = group.workers[0]
        self.say("script", f"round {worker.round} trains with {group.world} workers")
        self.checker.on_running(group)
        self.moment(f"running.{worker.round}")

    def stands(self, group: ProcessGroup, steps: Sequence[int]) -> None:
        """A process group of workers that keep their process stands, and they say which step they have."""
        have = ", ".join("nothing" if step == NOTHING else str(step) for step in steps)
        self.say("script", f"the process group of round {group.round} stands; its ranks have committed {have}")
        self.checker.survivors.on_stands(group)
        self.moment(f"formed.{group.round}")

    def finishing(self, worker: Worker) -> None:
        """A worker has done its work."""
        self.moment(f"finishing.{worker.round}")

    # -- data -----------------------------------------------------------------------------------------------------

    def ask(self, worker: Worker, call: Call, then: Callable[[Back], object]) -> None:
        """The worker asks its agent; `then` is called with the answer, while the worker lives."""
        self.after(self.chance.uniform(*SOCKET), self._call, worker, call, then)

    def _call(self, worker: Worker, call: Call, then: Callable[[Back], object]) -> None:
        if not worker.ended:
            self.worker_servers[worker.owner].ask(call, lambda back: self._answer(worker, then, back))

    def _answer(self, worker: Worker, then: Callable[[Back], object], back: Back) -> None:
        self.after(self.chance.uniform(*SOCKET), self._heard, worker, then, back)

    def _heard(self, worker: Worker, then: Callable[[Back], object], back: Back) -> None:
        if worker.ended:
            return
        if worker.paused:
            self.after(0.25, self._heard, worker, then, back)
        else:
            then(back)

    def told(self, worker: Worker, request: Request, answer: Answer) -> None:
        """A worker has an answer."""
        self.checker.books.on_told(worker, request, answer)

    def told_current(self, worker: Worker, asked_at: float) -> None:
        """A worker was told that its round is the current one."""
        self.checker.on_told_current(worker, asked_at)

    def restored(self, worker: Worker, position: Position | None) -> None:
        """A worker has loaded the last checkpoint, with that position, or there was none."""
        self.checker.books.on_restored(worker, position)

    def has_cut(self, worker: Worker, model: Model, position: Position) -> None:
        """A worker has the position that belongs to its model."""
        self.checker.books.on_cut(worker, model, position)

    def trained(self, worker: Worker, model: Model) -> None:
        """The ranks of that worker's group are all out of shards."""
        self.checker.books.on_trained(worker, model)

    def wrote(self, worker: Worker, place: int) -> None:
        """An output is written."""
        self.checker.books.on_output(worker, place)

    def reaches(self, a: str, b: str) -> bool:
        """Messages from machine a arrive at machine b."""
        return a == b or self.network.reaches(a, b)

    def is_on(self, machine: str) -> bool:
        """It has power."""
        return self.kernel.machine(machine).on

    def live_workers(self, machine: str) -> list[Worker]:
        """Those that run there."""
        return [worker for worker in self.workers if worker.machine == machine and not worker.ended]

    def _observed(self, at: float, revision: int, events: Sequence[Event], client: str) -> None:
        self.checker.on_revision(revision, events, client)

    # -- faults: each returns False where there was nothing to hurt ------------------------------------------------

    def worker(self, node: str, local: float, how: str) -> bool:
        """A worker ends, or hangs."""
        found = next((worker for worker in self.live_workers(node) if worker.local == int(local)), None)
        if found is None or found.held:  # the kernel would tell nobody that it has ended: it would be as one that hangs
            return False
        self._marks += 1
        mark = f"injected fault {chr(96 + self._marks)}"
        self.say("FAULT", f"{found.name}: {how}")
        self.checker.on_hurt(found, how, mark)
        self.script.hurt(found, how, mark)
        return True

    def service(self, node: str, name: str, end: str) -> bool:
        """A service beside the workers ends."""
        owner = self.agent_on(node)
        services = self.services.get(owner or "")
        running = services.running if services else ()
        found = next((each for each in running if each.service.name == name and each.ended is None), None)
        if owner is None or services is None or found is None or found.stopped:
            return False
        self.say("FAULT", f"the service {name} on {node}: {end}")
        self.checker.on_service_hurt(owner, name, end)
        services.finish(found, {"killed": -signal.SIGKILL, "exit0": 0}.get(end, 3))
        return True

    def hold(self, node: str, local: float) -> bool:
        """A worker that SIGKILL will not end: a driver hangs."""
        found = next((worker for worker in self.live_workers(node) if worker.local == int(local)), None)
        if found is None or found.held:
            return False
        self.say("FAULT", f"{found.name}: SIGKILL will not end it")
        found.held = True
        return True

    def kill(self, node: str) -> bool:
        """SIGKILL to the agent."""
        owner = self.agent_on(node)
        if owner is None:
            return False
        self.say("FAULT", f"the agent on {node} is killed")
        self.agents[owner].kill()
        self._ended(owner, None, "SIGKILL")
        return True

    def freeze(self, node: str, seconds: float) -> bool:
        """SIGSTOP to the agent, SIGCONT later; its workers run on until the guardian strikes."""
        owner = self.agent_on(node)
        if owner is None or self.agents[owner].frozen:
            return False
        self.say("FAULT", f"the agent on {node} is stopped for {seconds:g} s")
        self.agents[owner].freeze()
        if owner in self.guards:
            self.guards[owner].agent_stopped()
        self.after(seconds, self._thaw, owner)
        return True

    def _thaw(self, owner: str) -> None:
        if owner not in self.ends:
            self.say("world", f"the agent {owner} goes on")
        process = self.agents[owner]
        process.thaw()
        if not process.alive and process.end.startswith("SIG"):
            self._ended(owner, None, f"{process.end} before it listened")  # which came while it was stopped

    def pause(self, node: str, seconds: float) -> bool:
        """The whole machine stands still: agent, guardian, workers."""
        owner = self.agent_on(node)
        if owner is None or self.agents[owner].frozen:
            return False
        self.say("FAULT", f"the machine {node} stands still for {seconds:g} s")
        self.agents[owner].freeze()
        held = self.live_workers(node)
        for worker in held:
            worker.paused = True
        self.after(seconds, self._unpause, owner, held)
        return True

    def _unpause(self, owner: str, held: Sequence[Worker]) -> None:
        for worker in held:
            worker.paused = False
        self._thaw(owner)

    def leave(self, node: str) -> bool:
        """SIGTERM to the agent."""
        return self._signal(node, signal.SIGTERM)

    def leave_twice(self, node: str) -> bool:
        """Two SIGINT."""
        if not self._signal(node, signal.SIGINT):
            return False
        self.after(1.0, self._signal, node, signal.SIGINT)
        return True

    def _signal(self, node: str, number: signal.Signals) -> bool:
        owner = self.agent_on(node)
        if owner is None:
            return False
        self.say("FAULT", f"{number.name} to the agent on {node}")
        self.checker.on_notice(owner)
        process = self.agents[owner]
        process.signal(number)
        if not process.alive:
            self._ended(owner, None, f"{number.name} before it listened")
        return True

    def start(self, node: str) -> bool:
        """A new agent on that machine; one that has no power gets it back."""
        if not self.kernel.machine(node).on:
            self.kernel.power_on(node)
        return self.boot(node)

    def stranger(self, node: str) -> bool:
        """An agent of another script with the same job id."""
        return self.boot(f"{node}x", script="other.py")

    def power_off(self, node: str) -> bool:
        """The machine is gone, and nobody is told."""
        if not self.kernel.machine(node).on:
            return False
        self.say("FAULT", f"the machine {node} has no power")
        self.kernel.power_off(node)
        self.script.power_lost({worker.number: worker for worker in self.live_workers(node)})
        owner = self.agent_on(node)
        if owner in self.services:
            self.services[owner].kill()
        if owner:
            self._ended(owner, None, "power")
        return True

    def taken_port(self, node: str) -> bool:
        """The next port that it wants for MASTER_PORT is somebody else's."""
        self.say("FAULT", f"a port on {node} is taken")
        self.taken_ports[node] = 1
        return True

    def failed_start(self, node: str, count: float) -> bool:
        """Its next workers cannot be started."""
        self.say("FAULT", f"{node} cannot start workers, {count:g} times")
        self.failed_starts[node] = int(count)
        return True

    # -- the network

    def cut(self, a: str, b: str, seconds: float) -> bool:
        """Both ways."""
        self.say("FAULT", f"{a} and {b} are cut off from each other for {seconds:g} s")
        for source, target in ((a, b), (b, a)):
            self.network.cut(source, target)
            self.after(seconds, self.network.heal, source, target)
        return True

    def deafen(self, source: str, target: str, seconds: float) -> bool:
        """One way: what `source` says, `target` does not hear."""
        self.say("FAULT", f"{target} does not hear {source} for {seconds:g} s")
        self.network.cut(source, target)
        self.after(seconds, self.network.heal, source, target)
        return True

    def lose(self, percent: float, seconds: float) -> bool:
        """Messages are lost."""
        self.say("FAULT", f"{percent:g} % of all messages are lost for {seconds:g} s")
        self.network.lose("*", "*", percent / 100)
        self.after(seconds, self.network.lose, "*", "*", 0.0)
        return True

    def refuse(self, source: str, target: str, seconds: float) -> bool:
        """A firewall."""
        self.say("FAULT", f"new connections from {source} to {target} are refused for {seconds:g} s")
        self.network.refuse(source, target)
        self.after(seconds, self.network.accept, source, target)
        return True

    def reset(self, a: str, b: str, seconds: float) -> bool:
        """A firewall that ends what it let through before. Workers keep their connections: their ports are others."""
        self.say("FAULT", f"connections between {a} and {b} are reset, and new ones refused for {seconds:g} s")
        for source, target in ((a, b), (b, a)):
            self.network.refuse(source, target)
            self.after(seconds, self.network.accept, source, target)
        self.kernel.stack.reset(a, b)
        self.store.reset(a, b)
        return True

    # -- the store

    def etcd_kill(self, member: str, seconds: float) -> bool:
        """Killed, and started again on its data."""
        self.say("FAULT", f"the store's member {member} is killed; it comes back after {seconds:g} s")
        self.store.kill(member)
        self.after(seconds, self.store.start, member)
        return True

    def etcd_freeze(self, member: str, seconds: float) -> bool:
        """Stopped, and goes on."""
        self.say("FAULT", f"the store's member {member} is stopped for {seconds:g} s")
        self.store.freeze(member)
        self.after(seconds, self.store.thaw, member)
        return True

    def etcd_stop(self, count: float, seconds: float) -> bool:
        """Several members are stopped at once, and go on together."""
        stopped = self.chance.sample(tuple(self.store.members), min(int(count), len(self.store.members)))
        self.say("FAULT", f"the store's members {', '.join(sorted(stopped))} are stopped for {seconds:g} s")
        for member in stopped:
            self.store.freeze(member)
            self.after(seconds, self.store.thaw, member)
        return True

    def etcd_down(self, seconds: float) -> bool:
        """All of it."""
        self.say("FAULT", f"the store is down for {seconds:g} s")
        self.store.kill_all()
        self.after(seconds, self.store.start_all)
        return True

    def etcd_elect(self) -> bool:
        """Another member leads."""
        self.say("FAULT", "the store elects")
        self.store.transfer_leadership()
        return True

    def etcd_stall(self, seconds: float) -> bool:
        """A slow disk."""
        self.say("FAULT", f"the store's disk is slow for {seconds:g} s")
        self.store.hiccup(seconds)
        return True

    def etcd_full(self, seconds: float) -> bool:
        """Its space is used up, until somebody makes room."""
        if self.store.full:
            return False
        self.say("FAULT", f"the store has no space for {seconds:g} s")
        self.store.full = True
        self.after(seconds, self._make_room)
        return True

    def _make_room(self) -> None:
        self.store.full = False

    def etcd_forget_answers(self, percent: float, seconds: float) -> bool:
        """Writes are applied, and nobody hears of it."""
        self.say("FAULT", f"{percent:g} % of the store's answers to writes are lost for {seconds:g} s")
        self.store.lose_answers(percent / 100)
        self.after(seconds, self.store.lose_answers, 0.0)
        return True

    def etcd_compact(self) -> bool:
        """Its history is gone."""
        self.say("FAULT", "the store forgets its history")
        self.store.compact()
        return True


class Witnessed:
    """A store whose reads of the header and the targets, and whose news, the checker sees; all else passes."""

    def __init__(self, store: EtcdStore, checker: Checker, owner: str, keys: Keys) -> None:
        self._store = store
        self._checker = checker
        self._owner = owner
        self._header, self._targets = keys.round, keys.targets

    def __getattr__(self, name: str) -> Any:  # Any: whatever the store has
        return getattr(self._store, name)

    async def get(self, key: str) -> KeyValue | None:
        found = await self._store.get(key)
        if key == self._header:
            self._checker.on_header_read(self._owner, found.mod_revision if found else 0)
        return found

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        listing = await self._store.list(prefix, keys_only=keys_only)
        if prefix == self._header:
            self._checker.on_heard(self._owner, (item.mod_revision for item in listing.items))
        if prefix == self._targets:
            self._checker.targets.on_told(self._owner, [Event("put", item) for item in listing.items])
        return listing

    def watch(self, key: str, from_revision: int, *, prefix: bool = False) -> "Watched":
        news = self._store.watch(key, from_revision, prefix=prefix)
        return Watched(news, partial(self._checker.on_told, self._owner, key, prefix), from_revision - 1)


class Watched:
    """A watch, of which the checker is told what the reader is told. Not a generator: those end in their own time."""

    def __init__(
        self, news: AsyncIterator[tuple[Event, ...]], tell: Callable[[int, Sequence[Event]], int], revision: int
    ) -> None:
        self._news = news
        self._tell = tell
        self._revision = revision  # the last that the reader has had

    def __aiter__(self) -> "Watched":
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        events = await anext(self._news)
        self._revision = self._tell(self._revision, events)
        return events


@contextlib.contextmanager
def _seeded_secrets(chance: random.Random) -> Generator[None]:
    """Where the product draws random names, it draws them from the seed."""
    kept = secrets.token_hex, secrets.randbits
    secrets.token_hex = lambda nbytes=None: f"{chance.getrandbits(8 * (nbytes or 32)):0{2 * (nbytes or 32)}x}"
    secrets.randbits = chance.getrandbits
    try:
        yield
    finally:
        secrets.token_hex, secrets.randbits = kept


@contextlib.contextmanager
def _overheard_ledgers(world: World) -> Generator[None]:
    """Whatever a master answers of its job's ledgers, the checker hears."""
    kept = Ledgers.answer

    async def answer(self: Ledgers, request: Request, caller: Caller) -> Answer:
        process, began = world.kernel.current(), world.now
        answered = await kept(self, request, caller)
        if process is not None:
            world.checker.books.on_answer(process.name, request, answered, began)
        return answered

    Ledgers.answer = answer
    try:
        yield
    finally:
        Ledgers.answer = kept


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def run(schedule: Schedule) -> Outcome:
    """Lives one schedule through."""
    return World(schedule).run()
