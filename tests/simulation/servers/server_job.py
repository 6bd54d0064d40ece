"""A job with servers as it runs, all that can be done to it, and how one run of it ends."""

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from elastic_run.adapters.servers import copies
from elastic_run.adapters.servers.record_file import DiskLimit
from elastic_run.adapters.servers.requests import PushSource
from elastic_run.adapters.servers.server_events import ServerEvent
from elastic_run.adapters.servers.specs import FTRL, SGD, Adagrad, Adam, Momentum, Normal, TableSpec
from elastic_run.master.servers.placement import ServersWanted
from elastic_run.master.servers.slot_table import SLOTS, SlotTable

from .holdings import read_marks
from .lines import LineNetwork, Machine
from .saved_tables import SavedTables
from .server_process import ServerProcess
from .server_rules import BrokenRule, ServerRules
from .server_schedules import ServerFault, ServerSchedule
from .slot_store import SlotAgent, SlotLeader, first_store
from .step_trainers import StepTeam, StepTrainer
from .stream_trainers import StreamBook, StreamTrainer
from .timeline import Timeline
from .trainers import COUNT, Piece, Records, ShardLedger, Trainer, slots_of

OPTIMIZERS = (SGD(0.1), Momentum(0.1), Adagrad(), Adam(), FTRL())

MEMORY = 1 << 22
"""Bytes of each server."""

LITTLE_MEMORY = 42_000
"""Where rows go to disk: what stays of 180 rows, and the numbers of a quarter of them."""

LEASE_SECONDS = 2.0
"""After which a machine without power is gone from the store."""

QUIET_SECONDS = 90.0
"""After the last fault, in which a job has to end."""

FICKLE_SECONDS = 6.0
"""Until when workers die as tables are written."""

SETTLED_SECONDS = 8.0
"""After that, in which each slot gets all of its holders, beside the time that copies take on slow lines."""


def make_records(schedule: ServerSchedule) -> Records:
    """What the job trains on."""
    shape, chance = schedule.shape, np.random.default_rng(schedule.seed)
    drawn = chance.integers(-(1 << 62), 1 << 62, shape.ids * 1024 // shape.slots)
    universe = drawn[slots_of(drawn) < shape.slots]
    ids = chance.choice(universe, (shape.shards, shape.length, shape.each))
    slots = slots_of(ids.reshape(-1)).reshape(ids.shape)
    columns = 16 if shape.disk else 2
    model = TableSpec(
        "model", columns, OPTIMIZERS[shape.optimizer], Normal(), admit_after=shape.admit, evict=shape.evict
    )
    return Records(ids, slots, model, shape.pace, replace(COUNT, admit_after=shape.admit))


class ServerJob:
    """One run.

    Attributes:
        trace: what has happened, a line each.
        done: faults that did something, by verb.
    """

    def __init__(self, schedule: ServerSchedule) -> None:
        self.trace: list[str] = []
        self.done: dict[str, int] = {}
        self._schedule = schedule
        self._timeline = Timeline()
        self._random = random.Random(f"job {schedule.seed}")
        self._network = LineNetwork(self._timeline, self._random, schedule.shape.delay, coded=schedule.seed % 4 == 0)
        self._store = first_store()
        shape = schedule.shape
        self._records = make_records(schedule)
        self._ledger = ShardLedger([Piece(shard) for shard in range(shape.shards)])
        self._book: StreamBook | None = None
        if shape.lease:
            self._ledger = self._book = StreamBook(
                self._records, self._timeline, self._random, shape.lease, self._store.round
            )
        self._processes: dict[str, ServerProcess] = {}
        self._agents: dict[str, SlotAgent] = {}
        self._trainers: list[Trainer] = []
        self._counted: dict[str, int] = {}
        self._last_loss = -LEASE_SECONDS
        self._team = StepTeam(self._records, self._random) if shape.steps else None
        self.rules = ServerRules(self._store, self._records, self._processes, self._timeline, of_stream=shape.lease > 0)
        wanted = ServersWanted(shape.least, shape.most, shape.replicas)
        self._folder = tempfile.TemporaryDirectory()
        self._saved = SavedTables(Path(self._folder.name), shape.saves)
        self._leader = SlotLeader(self._network, self._store, wanted, self._saved, self._write)
        for _ in range(shape.nodes):
            self._add_node()

    # -- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> BrokenRule | None:
        """The first rule that is broken; None: none is."""
        with self._folder, patch.object(copies, "PIECE", self._schedule.shape.piece):
            return self._run()

    def _run(self) -> BrokenRule | None:
        try:
            for fault in self._schedule.faults:
                self._timeline.after(fault.at, lambda fault=fault: self._do(fault))
            last = max((fault.at for fault in self._schedule.faults), default=0.0)
            if not self._timeline.run(lambda: self._ledger.over and self._timeline.now >= last, last + QUIET_SECONDS):
                waits = [trainer.name for trainer in self._trainers if trainer.alive]
                self.rules.fail("after the faults a job ends", f"{', '.join(waits) or 'no worker'} train on")
            shape = self._schedule.shape  # a copy of all rows, piece by piece, comes several times after another
            copies = 8 * shape.ids / shape.piece * shape.delay
            self._timeline.run(lambda: False, self._timeline.now + SETTLED_SECONDS + copies)
            if self._store.table.goes_back:  # what was lost is of a job that has ended
                return None
            self.rules.check_end(self._schedule.shape.replicas, self._most_servers())
            if self._team is not None:
                self.rules.check_alone(self._team.train_alone())
        except BrokenRule as broken:
            return broken
        return None

    def _most_servers(self) -> int:
        return sum(each.machine.on for each in self._agents.values())

    def say(self, text: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self._timeline.now:8.4f} {text}")

    def _write(self, table: SlotTable) -> None:
        shape = self._schedule.shape
        servers = " ".join(
            f"{each.incarnation}:{table.primary.count(at)}/{table.backup.count(at)}/{table.joining.count(at)}"
            for at, each in enumerate(table.servers)
        )
        places = " ".join(f"{each.number}@{each.node}" for each in table.places)
        self.say(f"table {table.version}: {servers or 'no servers'}; places {places} {table.lost}")
        self.rules.check_table()
        for agent in self._agents.values():
            agent.see_later(table)
        if table.goes_back:
            self._timeline.after(self._random.uniform(0.0, 0.5), self._open_round)
        if table.primary and self._timeline.now < FICKLE_SECONDS and self._random.random() < shape.fickle:
            self._timeline.after(self._random.uniform(0.0, shape.delay), self._kill_pushing)

    # -- who takes part ---------------------------------------------------------------------------------------------

    def _number(self, kind: str) -> int:
        self._counted[kind] = self._counted.get(kind, 0) + 1
        return self._counted[kind]

    def _add_node(self, _: float = 0.0) -> bool:
        machine, shape = Machine(f"n{self._number('n')}"), self._schedule.shape

        def start(name: str, report: Callable[[int], object], report_saved: Callable[[int], object]) -> ServerProcess:
            incarnation = f"{name}.{self._number(name)}"
            process = ServerProcess(
                self._network,
                machine,
                incarnation,
                LITTLE_MEMORY + (shape.evict is not None) * 32 * shape.ids if shape.disk else MEMORY,
                self._processes.get,
                report,
                self._saved,
                report_saved,
                self._look_at,
                shape.cramped,
                DiskLimit(Path(self._folder.name), MEMORY) if shape.disk else None,
            )
            self._processes[incarnation] = process
            self.say(f"{machine.name} starts {incarnation}")
            return process

        self.say(f"{machine.name} joins")
        self._agents[machine.name] = SlotAgent(self._network, self._store, machine, start, self._leader.look, self.say)
        self._leader.look()
        for _ in range(self._schedule.shape.trainers):
            self._add_trainer(self._agents[machine.name])
        return True

    def _add_trainer(self, agent: SlotAgent) -> None:
        if not agent.machine.on or self._ledger.over:
            return
        name = f"w{self._number('w')}"
        what = (
            self._network,
            name,
            agent,
            self._records,
            self._ledger,
            self._processes.get,
            self.rules.fail,
            self._acknowledge,
            self._random,
            self._store.round,
        )
        may_be_full = self._schedule.shape.cramped > 0
        if self._book is not None:
            trainer = StreamTrainer(self._book, *what, may_be_full=may_be_full)
        elif self._team is not None:
            trainer = StepTrainer(self._team, *what, may_be_full=may_be_full)
        else:
            trainer = Trainer(*what, may_be_full=may_be_full)
        self._trainers.append(trainer)

    def _look_at(self, process: ServerProcess, event: ServerEvent) -> None:
        self.rules.check_server(process, event)

    def _acknowledge(self, trainer: Trainer, source: PushSource) -> None:
        shard = source.partition or source.shard_index
        self.say(f"{trainer.name} has pushed {source.begin}:{source.end} of shard {shard}")
        if trainer.round >= self._store.rows_from and not self._store.table.goes_back:
            self.rules.check_acknowledged(source)

    def _open_round(self) -> None:
        """Goes back: the ledger begins anew at once, and workers of before live on for a moment."""
        store = self._store
        if not store.table.goes_back or store.rows_from > store.table.rows_from or self._ledger.over:
            return
        store.round += 1
        store.rows_from = store.round
        self._ledger.go_back(store.round)
        if self._team is not None:
            shape = self._schedule.shape
            marks = self._saved.load_marks(store.table.restore)
            self._team.go_back(store.round, read_marks(marks, shape.shards, shape.length, np.ones(SLOTS, np.bool_)))
        self.say(f"round {store.round} goes back to checkpoint {store.table.restore}")
        for agent in self._agents.values():
            agent.see_round_later(store.rows_from)
        for trainer in self._trainers:
            if trainer.alive:
                self._timeline.after(self._random.uniform(0.0, 1.0), lambda each=trainer: self._replace_trainer(each))
        self._leader.look()

    def _replace_trainer(self, trainer: Trainer) -> None:
        if trainer.alive:
            self._end_trainer(trainer)

    # -- faults -----------------------------------------------------------------------------------------------------

    def _do(self, fault: ServerFault) -> None:
        if getattr(self, f"_{fault.verb}")(fault.seconds):
            self.done[fault.verb] = self.done.get(fault.verb, 0) + 1

    def _can_die(self, process: ServerProcess) -> bool:
        """Each slot that it holds has another holder, which runs, and the last loss is a while ago."""
        if self._timeline.now < self._last_loss + 0.4:
            return False
        table, index = self._store.table, self._store.table.index_of(process.incarnation)
        replicas = self._schedule.shape.replicas
        if not table.primary:  # the first holders may be chosen among those whose leases have not ended: this one too
            return replicas > 0 and self._timeline.now > self._last_loss + LEASE_SECONDS + 0.4
        if index < 0:
            return True
        if not replicas:
            return False
        runs = [self._processes[each.incarnation].alive for each in table.servers]
        if self._team is not None:  # whose lease has ended is to lose what it holds; earlier seeds keep what they draw
            runs = [
                alive and self._agents[each.node].registered for alive, each in zip(runs, table.servers, strict=True)
            ]
        for primary, backup in zip(table.primary, table.backup, strict=True):
            if index in (primary, backup) and not any(at not in (-1, index) and runs[at] for at in (primary, backup)):
                return False
        return True

    def _choose(self, some: Sequence[Any]) -> Any:  # Any: one of them; None where there is none
        return self._random.choice(some) if some else None

    def _end_server(self, process: ServerProcess, *, silently: bool = False) -> None:
        process.end(silently=silently)
        self._last_loss = self._timeline.now
        self._agents[process.machine.name].lose_server(process)

    def _kill_server(self, _: float) -> bool:
        process = self._choose([each for each in self._processes.values() if each.alive and self._can_die(each)])
        if process is None:
            return False
        self.say(f"FAULT {process.name} is killed")
        self._end_server(process)
        return True

    def _lose_rows(self, _: float) -> bool:
        table = self._store.table
        if not (self._saved.newest and table.serves) or self._ledger.over:
            return False
        slot = self._random.randrange(len(table.primary))
        held = {table.servers[at].incarnation for at in (table.primary[slot], table.backup[slot]) if at >= 0}
        self.say(f"FAULT all that hold slot {slot} are killed: {', '.join(sorted(held))}")
        self.rules.may_lose = True
        for incarnation in sorted(held):
            if (process := self._processes[incarnation]).alive:
                self._end_server(process)
        return True

    def _power_off(self, seconds: float) -> bool:
        def may_go(agent: SlotAgent) -> bool:
            return all(self._can_die(each) for each in agent.servers.values())

        running = [each for each in self._agents.values() if each.machine.on]
        agent = self._choose([each for each in running if may_go(each) and len(running) > 1])
        if agent is None or (self._together(agent) and len(agent.servers) > 1):
            return False
        self.say(f"FAULT {agent.node} has no power")
        agent.machine.on = False
        for process in tuple(agent.servers.values()):
            self._end_server(process, silently=True)
        for trainer in self._trainers:
            if trainer.machine is agent.machine:
                self._end_trainer(trainer, silently=True)
        self._timeline.after(LEASE_SECONDS, agent.vanish)
        self._timeline.after(LEASE_SECONDS + seconds, self._add_node)
        return True

    def _together(self, agent: SlotAgent) -> bool:
        """Some slot has both holders on that node."""
        table = self._store.table
        here = {at for at, each in enumerate(table.servers) if each.node == agent.node}
        return any(pair <= here for pair in map(set, zip(table.primary, table.backup, strict=True)))

    def _kill_trainer(self, _: float) -> bool:
        trainer = self._choose([each for each in self._trainers if each.alive])
        if trainer is None:
            return False
        if isinstance(trainer, StepTrainer) and self._team and self._random.random() < 0.3:
            self.say(f"FAULT {trainer.name} is given up by the others")
            self._team.lose(trainer)
            self._timeline.after(self._random.uniform(0.1, 1.0), lambda: self._add_trainer(trainer.agent))
            return True
        self.say(f"FAULT {trainer.name} is killed")
        self._end_trainer(trainer)
        return True

    def _kill_pushing(self) -> None:
        if trainer := self._choose([each for each in self._trainers if each.alive and each.pushing]):
            self.say(f"FAULT {trainer.name} is killed while it pushes")
            self._end_trainer(trainer)

    def _end_trainer(self, trainer: Trainer, *, silently: bool = False) -> None:
        trainer.end(silently=silently)
        if isinstance(trainer, StepTrainer) and self._team:
            self._team.lose(trainer)
        self._timeline.after(self._random.uniform(0.02, 0.5), lambda: self._ledger.give_back(trainer))
        self._timeline.after(self._random.uniform(0.1, 1.0), lambda: self._add_trainer(trainer.agent))

    def _reset_line(self, _: float) -> bool:
        lines = {line: None for each in self._processes.values() if each.alive for line in each.lines}
        line = self._choose([line for line in lines if line.busy] or list(lines))
        if line is None:
            return False
        self.say(f"FAULT the connection of {line.ends[0].name} to {line.ends[1].name} is reset")
        line.reset()
        return True

    def _part_machines(self, seconds: float) -> bool:
        machines = [each.machine for each in self._agents.values() if each.machine.on]
        if len(machines) < 2:
            return False
        one, other = self._random.sample(machines, 2)
        self.say(f"FAULT {one.name} and {other.name} hear nothing of each other for {seconds:.3f} s")
        self._network.part(one, other, seconds)
        if self._random.random() < self._schedule.shape.fickle:
            self._timeline.after(self._random.uniform(0.0, 0.1), self._kill_pushing)
        return True

    def _freeze_server(self, seconds: float) -> bool:
        process = self._choose([each for each in self._processes.values() if each.alive])
        if process is None:
            return False
        self.say(f"FAULT {process.name} stands still for {seconds:.3f} s")
        process.freeze(seconds)
        return True

    def _lose_lease(self, seconds: float) -> bool:
        def may_go(agent: SlotAgent) -> bool:
            if not (agent.machine.on and agent.registered):
                return False
            if not self._schedule.shape.replicas:
                return True  # nobody takes over, and it may come back
            return not self._together(agent) and all(self._can_die(each) for each in agent.servers.values())

        agent = self._choose([each for each in self._agents.values() if may_go(each)])
        if agent is None:
            return False
        self.say(f"FAULT the lease of {agent.node} ends, which comes back in {seconds:.3f} s")
        self._last_loss = self._timeline.now
        agent.lose_lease(seconds)
        return True

    def _elect_leader(self, seconds: float) -> bool:
        self.say(f"FAULT nobody leads for {seconds:.3f} s")
        self._leader.elect_another(seconds)
        return True

    def _lag_agent(self, seconds: float) -> bool:
        agent = self._choose([each for each in self._agents.values() if each.machine.on])
        if agent is None:
            return False
        self.say(f"FAULT {agent.node} is up to {seconds:.3f} s behind")
        agent.lag = seconds
        self._timeline.after(3.0, lambda: setattr(agent, "lag", 0.02))
        return True

    def _drain_node(self, _: float) -> bool:
        staying = [each for each in self._agents.values() if each.machine.on and self._store.nodes.get(each.node)]
        agent = self._choose(staying) if len(staying) > 1 else None
        if agent is None:
            return False
        self.say(f"FAULT {agent.node} is to go")
        agent.leave()
        return True
