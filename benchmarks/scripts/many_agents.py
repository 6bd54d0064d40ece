"""Many agents in one process: each is the real one, on a machine that has no workers.

Called with the store's address, the job, the folder of the run, this group's number, the number of its first agent, how
many there are, the nodes of the job as MIN:MAX, the lease's seconds, "own" or "shared" for their connections to the
store, how many may be about to register at a time, and the file that lets them begin ("-": at once).

Its answers: `ready<group>` once it may begin (the group that begins at once: once it leads the job), `joined<group>`
when all its agents have registered, and `round<number>-<group>` when the store has been told that all of them run that
round, with the instants (monotonic clock, seconds) of the last registration, assignment and report. On SIGUSR1 it
writes `counted<times>-<group>`: the bytes that its TCP connections have received and sent.
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elastic_run.adapters.environment import Told, WorkerSettings
from elastic_run.adapters.registry import adapter
from elastic_run.elastic_agent.agent import Agent
from elastic_run.elastic_agent.diagnosis.running import Running
from elastic_run.elastic_agent.setup import Setup
from elastic_run.elastic_agent.worker_server import Respond
from elastic_run.elastic_agent.workers.handover import GroupMembers
from elastic_run.elastic_agent.workers.services import Services
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.zygotes.seed import Recipe
from elastic_run.master.machine.controller import Terms
from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.rpc.server import Methods
from elastic_run.rendezvous.store.contract import Compare, KeyValue, Operation, Put, TxnResult
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.version import VERSION

HOST = "127.0.0.1"
POLL_SECONDS = 0.002
"""Between two looks for the file that lets a group begin."""

PATIENCE = 600.0
"""Seconds for which a job waits for its nodes: longer than any run."""

_ACKED_AND_RECEIVED = struct.Struct("@QQ")
_OFFSET = 120  # of tcpi_bytes_acked in the kernel's tcp_info; tcpi_bytes_received comes next


@dataclass(slots=True)
class Progress:
    """How far the agents of this process are with one round."""

    assigned: dict[str, float] = field(default_factory=dict[str, float])
    told: dict[str, float] = field(default_factory=dict[str, float])


class Notes:
    """What the store was asked and told, by whom and when; the group's answers."""

    def __init__(self, keys: Keys, folder: Path, group: int, count: int, pace: int) -> None:
        self._keys = keys
        self._folder = folder
        self._group = group
        self._count = count
        self.registered = 0.0
        self._known: set[str] = set()
        self.pace = asyncio.Semaphore(pace)
        self._rounds: dict[int, Progress] = {}
        self._counted = 0

    def read(self, key: str) -> None:
        """A key was found in the store."""
        if key.startswith(self._keys.assignments):
            prefix, _, node = key.removeprefix(self._keys.assignments).partition("/")
            self._round(int(prefix.split(".")[1])).assigned.setdefault(node, time.monotonic())
        elif key.startswith(self._keys.nodes):
            self._register(key)  # written by an attempt whose answer was lost

    def wrote(self, compares: Sequence[Compare], put: Put) -> None:
        """A key was written."""
        if put.key == self._keys.leader:
            self.answer("ready", {})
        elif put.key.startswith(self._keys.nodes):
            if compares[0].revision == 0:
                self._register(put.key)
                return
            report = json.loads(put.value)["report"]
            if report["state"] == "running":
                self._round(report["round"]).told.setdefault(put.key, time.monotonic())
                self._look(report["round"])

    def _register(self, key: str) -> None:
        self.registered = time.monotonic()
        if key not in self._known:
            self._known.add(key)
            self.pace.release()
            if len(self._known) == self._count:
                self.answer("joined", {})

    def _round(self, number: int) -> Progress:
        return self._rounds.setdefault(number, Progress())

    def _look(self, number: int) -> None:
        found = self._round(number)
        if len(found.told) == len(found.assigned) == self._count:
            instants = {"assigned": max(found.assigned.values()), "told": max(found.told.values())}
            self.answer(f"round{number}-", instants | {"registered": self.registered})

    def count(self) -> None:
        """Counts the bytes of this process's TCP connections as they are now."""
        self._counted += 1
        received = sent = 0
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  numbers, not paths
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
                info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if len(info) >= _OFFSET + _ACKED_AND_RECEIVED.size:
                    acked, got = _ACKED_AND_RECEIVED.unpack_from(info, _OFFSET)
                    received, sent = received + got, sent + acked
        self.answer(f"counted{self._counted}-", {"received": received, "sent": sent})

    def answer(self, name: str, value: object) -> None:
        """Writes an answer, which appears when it is whole."""
        part = self._folder / f"part{self._group}"
        part.write_text(json.dumps(value), encoding="utf-8")
        part.rename(self._folder / f"{name}{self._group}")


class NotedStore(EtcdStore):
    """The real store; what passes is noted."""

    def __init__(self, address: str, notes: Notes) -> None:
        super().__init__([address])
        self._notes = notes

    async def get(self, key: str) -> KeyValue | None:
        """See `Store.get`."""
        found = await super().get(key)
        if found:
            self._notes.read(key)
        return found

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        """See `Store.txn`."""
        result = await super().txn(compares, operations, idempotent=idempotent)
        there = [held.value for held in result.current if held]
        for operation in operations:
            # It may have been written by an attempt whose answer was lost.
            if isinstance(operation, Put) and (result.succeeded or operation.value in there):
                self._notes.wrote(compares, operation)
        return result


class NoMachine:
    """What an agent needs of a machine, without processes: a listener is all that is real. See `local_machine`."""

    def __init__(self, number: int, speaks: bool) -> None:
        self._speaks = speaks
        self.offered = tuple(20_000 + port for port in range(4))
        self.address = ""
        self.exits: tuple[Exit, ...] = ()
        self.alive = 0
        self.pids: Mapping[int, int] = {}
        self.unkillable: Sequence[int] = ()
        self.running: Sequence[Running] = ()

    def condemn(self, rank: int, why: str) -> bool:
        return False

    def workers(
        self, tag: str, silence: float | None, changed: Callable[[], None]
    ) -> "tuple[NoMachine, NoGuard, Services]":
        beside: Any = self  # no framework here has any services, and nothing is asked of these
        services = Services(tag, beside, beside, set(), None, changed)
        return self, NoGuard(), services

    def services(self, tag: str, workers: object, guardian: object, changed: Callable[[], None]) -> Services:
        raise AssertionError("no job here has servers")

    def ports(self, count: int, least: int) -> "NoPorts":
        return NoPorts()

    def listener(self, bind: str) -> socket.socket:
        return failure_detector.listener(bind)

    def worker_server(self, respond: Respond, also: Methods, say: Callable[[str], None]) -> "NoWorkerServer":
        return NoWorkerServer()

    def has_address(self, address: str) -> bool:
        """See `RealMachine.has_address`."""
        return True

    def listens(self, port: int) -> bool:
        return True

    def process_groups(
        self, changed: Callable[[], None], pid_of: Callable[[int], int | None], half_open_seconds: float
    ) -> "NoProcessGroups":
        return NoProcessGroups()

    def say(self, line: str) -> None:
        if self._speaks:
            print(f"{time.monotonic():.3f} {line}", flush=True)

    def error_file(self, round: int, local_rank: int) -> Path:
        return Path(os.devnull)

    async def changed(self) -> None:
        await asyncio.get_running_loop().create_future()

    def warm(self, recipe: Recipe) -> None:
        return

    def let_go(self) -> None:
        return

    async def ready(self) -> None:
        return

    async def start(self, specs: Sequence[WorkerSpec]) -> None:
        self.alive = len(specs)

    def keep(self, kept: Mapping[int, WorkerSpec]) -> None:
        raise AssertionError("no worker stays")

    async def fill(self, specs: Sequence[WorkerSpec], grace: float = 0.0) -> None:
        raise AssertionError("no worker stays")

    def used(self, pids: Collection[int]) -> float:
        return 0.0

    async def stop(self, *, first: int, grace: float) -> tuple[Exit, ...]:
        self.alive = 0
        return ()

    def pause(self) -> None:
        return

    resume = pause

    async def close(self, *, keep_detached: bool = False, sessions: frozenset[int] = frozenset()) -> None:
        return


class NoGuard:
    """Nobody to kill."""

    def start(self) -> None:
        return

    beat = pause = start

    async def close(self, *, keep_detached: bool = False) -> None:
        return


class NoPorts:
    """Ports that are always free, for workers that do not come."""

    offered: tuple[int, ...] = tuple(range(20_000, 20_004))

    def renew(self) -> None:
        return

    hold = close = renew

    def release(self, port: int) -> bool:
        return True


class NoProcessGroups:
    """No worker stays when the membership changes, because none has come."""

    short = False

    def start(self, address: str) -> None:
        return

    def close(self) -> None:
        return

    def members(self, pids: Collection[int]) -> GroupMembers:
        return GroupMembers({})

    def plan(self, pids: Collection[int], round: int) -> None:
        return

    break_groups = plan

    def assign(self, pid: int, round: int, environment: Mapping[str, str]) -> bool:
        return False

    def forget(self, pid: int) -> None:
        return

    def forget_all_but(self, pids: Collection[int]) -> None:
        return


class NoWorkerServer:
    """Nobody asks."""

    address = ""
    memory = None

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.rounds: dict[int, int] = {}

    def reach_peers(self, node: Callable[[], str], peers: object) -> None:
        """No worker leaves memory here."""

    async def start(self) -> None:
        return

    close = start


def setup(job: str, number: int, nodes: str, ttl: int) -> Setup:
    """What agent `number` is started with; the times that a person could wait for are 0."""
    least, _, most = nodes.partition(":")
    policy = Policy(int(least), int(most), last_call=PATIENCE, settle=0.0, scale_up_interval=0.0)
    fingerprint = Fingerprint("train.py", (), nodes, "8", VERSION)
    told = Told(policy.largest_world(8))
    return Setup(
        workers=WorkerSettings(job, f"node{number}", adapter("torch"), ("python", "train.py"), {}, told, signals=()),
        host=HOST,
        bind=HOST,
        nproc=8,
        terms=Terms(policy, 3, 5, fingerprint),
        lease_ttl=ttl,
    )


async def run(address: str, keys: Keys, notes: Notes, numbers: range, nodes: str, ttl: int, shared: bool) -> None:
    """Runs the agents until this process is killed."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, notes.count)
    one = NotedStore(address, notes)
    agents: list[Agent] = []
    for number in numbers:
        store = one if shared else NotedStore(address, notes)
        machine = NoMachine(number, speaks=number == numbers.start)
        agents.append(Agent(setup(keys.job, number, nodes, ttl), store, machine, machine))
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            await notes.pace.acquire()
            group.create_task(agent.run())


def main(arguments: Sequence[str]) -> None:
    address, job, folder, group, first, count, nodes, ttl, connections, pace, gate = arguments
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    keys = Keys(job)
    notes = Notes(keys, Path(folder), int(group), int(count), int(pace))
    if gate != "-":
        notes.answer("ready", {})
        while not (Path(folder) / gate).exists():
            time.sleep(POLL_SECONDS)
    numbers = range(int(first), int(first) + int(count))
    asyncio.run(run(address, keys, notes, numbers, nodes, int(ttl), connections == "shared"))


if __name__ == "__main__":
    main(sys.argv[1:])
