"""How long many agents take to agree on a round: as the last of them arrives, as one is lost, as they begin at once."""

import asyncio
import dataclasses
import http.client
import json
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Self

import psutil

from elastic_run.rendezvous.store.embedded import local_member
from elastic_run.rendezvous.store.embedded.member_start import WantedStore
from elastic_run.rendezvous.store.endpoint import Endpoint

from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import BARE, SCRIPTS, Launcher

NODES = (10, 100, 256, 1000)

AT_ONCE_NODES = 256
"""More do not begin at once here: one machine has enough to do with so many clients."""

PEER_NODES = 256
"""torch's rendezvous is asked of so many nodes at most."""

MANY = 1000
"""From so many nodes on the leases are longer and the agents of a process share a connection to the store: what renews
and pings is one machine."""

LEASE_SECONDS, LONG_LEASE_SECONDS = 5, 60

PACE = 8
"""Agents of a process that may be about to register at a time, where they do not begin at once."""

GROUP_SIZE = 32
"""Agents for which a process of their own is worth its while."""

GROUPS = max(1, (os.cpu_count() or 1) - 1)
"""Processes that the agents are divided among, besides the master's and two of one agent each: with one core left for
the store, they cannot ask it for more than it can answer."""

START_BOUND = 60.0
BOUND = 120.0
"""Seconds for each part of a run."""

MANY_BOUND = 600.0
"""The same where there are MANY."""

CALM_SECONDS, CALM_SHARE = 0.5, 0.5
"""Master and etcd are idle when they have used less than this share of one core for so long."""

HOST = "127.0.0.1"
FIRST, LAST = "first", "last"
"""The files that let agents begin: all, or all but the last; and the last."""

OURS = Launcher("elastic-run", "bare")
TORCH = Launcher("torch c10d", "bare")

AT_ONCE, ARRIVES = "all begin at once: all hold it", "the last arrives: all hold it"

PHASES = (
    ARRIVES,
    "one is killed: the others hold the next",
    "the last arrives: agents alone in a process hold it",
    "one is killed: agents alone in a process hold the next",
    "processor of the store, until all hold the first round",
    "processor of the master's agent, until then",
    "processor of the store, one is killed",
    "processor of the master's agent, one is killed",
    "processor of those that share cores, one is killed",
)

OWN_ROWS = 4
"""Of these, times; the others say what they cost."""


@dataclasses.dataclass(frozen=True, slots=True)
class Used:
    """What the master's process and etcd have used.

    Attributes:
        etcd, master: seconds of processor.
        master_received, master_sent: bytes of its TCP connections that stand.
        etcd_received, etcd_sent: bytes of gRPC messages, as etcd counts them.
    """

    etcd: float
    master: float
    master_received: float
    master_sent: float
    etcd_received: float
    etcd_sent: float

    def __sub__(self, other: Self) -> "Used":
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return Used(*(here - there for here, there in zip(mine, others, strict=True)))


class Agents:
    """The agents of one job, in groups: 0 has the master, 1 is one agent, as is the last. Raises DidNotCome."""

    def __init__(self, arena: Arena, job: str, nodes: int, pace: int) -> None:
        self._arena = arena
        self._folder = arena.folder / job
        self._folder.mkdir()
        self._nodes = nodes
        self._pace = pace
        self._bound = MANY_BOUND if nodes >= MANY else BOUND
        self._port = free_port()
        wanted = WantedStore(
            endpoints=(Endpoint(HOST, self._port),),
            directory=self._folder / "store",
            announce=lambda _: None,
            deadline=time.monotonic() + START_BOUND,
            runtime=self._folder / "locks",
        )
        local = asyncio.run(local_member.ensure(wanted)).local
        assert local is not None
        self._supervisor = psutil.Process(local.supervisor_pid)
        self._etcd = self._supervisor.children()[0].pid
        self._counted = 0
        self._started = [self._start(0, 0, 1, "-")]
        self._answers(["ready0"])
        rest = nodes - 3
        groups = max(1, min(GROUPS, rest // GROUP_SIZE))
        firsts = [2 + rest * group // groups for group in range(groups + 1)]
        self._started.append(self._start(1, 1, 1, FIRST))
        for group in range(groups):
            first, end = firsts[group], firsts[group + 1]
            self._started.append(self._start(2 + group, first, end - first, FIRST))
        self._all = range(3 + groups)
        self._started.append(self._start(self._all[-1], nodes - 1, 1, LAST))
        self._answers([f"ready{group}" for group in self._all])

    def _start(self, group: int, first: int, count: int, gate: str) -> Any:
        words = [
            *(sys.executable, str(SCRIPTS / "many_agents.py"), f"{HOST}:{self._port}", self._folder.name),
            *(str(self._folder), str(group), str(first), str(count), f"{self._nodes - 1}:{self._nodes}"),
            str(LONG_LEASE_SECONDS if self._nodes >= MANY else LEASE_SECONDS),
            *("shared" if self._nodes >= MANY else "own", str(self._pace), gate),
        ]
        return self._arena.start(words, self._arena.environment(BARE), f"{self._folder.name}/agents{group}.log")

    def at_once(self) -> float:
        """Seconds from the signal to begin until all hold their assignment."""
        begun = time.monotonic()
        self._open(LAST)
        self._open(FIRST)
        return _last(self._round(1, self._all)) - begun

    def in_turn(self) -> Outcome:
        """The last arrives, and one is killed."""
        before = self._used()
        self._open(FIRST)
        self._answers([f"joined{group}" for group in self._all[:-1]])
        self._calm()
        self._open(LAST)
        first = self._round(1, self._all)
        arrived = first[-1]["registered"]
        began = self._calm() - before
        before, shared = self._used(), self._shared()
        killed = time.monotonic()
        self._started[1].kill()
        second = self._round(2, [group for group in self._all if group != 1])
        went_on = self._calm() - before
        for process in self._started:
            process.kill()
        self._supervisor.kill()  # etcd dies with it
        return Outcome(
            _last(first) - arrived,
            note=f"until all hold the first round, {_bytes(began)}; one is killed: {_bytes(went_on)}",
            phases=(
                math.nan,
                _last(second) - killed,
                _last([first[0], first[1], first[-1]]) - arrived,
                _last([second[0], second[-1]]) - killed,
                *(began.etcd, began.master, went_on.etcd, went_on.master, self._shared() - shared),
            ),
        )

    def _open(self, gate: str) -> None:
        (self._folder / gate).touch()

    def _round(self, number: int, groups: Sequence[int]) -> list[Any]:
        return self._answers([f"round{number}-{group}" for group in groups])

    def _answers(self, names: Sequence[str]) -> list[Any]:
        files = [self._folder / name for name in names]

        def there() -> bool | None:
            for group, process in enumerate(getattr(self, "_started", ())):
                if process.returncode is None and process.poll() not in (None, -signal.SIGKILL):
                    words = (self._folder / f"agents{group}.log").read_text(encoding="utf-8").splitlines()
                    raise DidNotCome(f"the agents of group {group} have ended: {words[-1:]}")
            return all(file.exists() for file in files) or None

        self._arena.until(there, self._bound)
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _calm(self) -> Used:
        """Waits until master and etcd have done what they were given to do; what they have used until then."""
        deadline = time.monotonic() + self._bound
        last = self._processor()
        while time.monotonic() < deadline:
            time.sleep(CALM_SECONDS)
            now = self._processor()
            if sum(now) - sum(last) < CALM_SHARE * CALM_SECONDS:
                return self._used()
            last = now
        raise DidNotCome(f"master and etcd were not idle within {self._bound:g} s")

    def _processor(self) -> tuple[float, float]:
        """Seconds used by etcd and the master's process, by all threads that ever were."""
        return _processor_of(self._etcd), _processor_of(self._started[0].pid)

    def _shared(self) -> float:
        """The same of the agents that share processes."""
        return sum(_processor_of(process.pid) for process in self._started[2:-1])

    def _used(self) -> Used:
        self._counted += 1
        self._started[0].send_signal(signal.SIGUSR1)
        (counted,) = self._answers([f"counted{self._counted}-0"])
        return Used(*self._processor(), counted["received"], counted["sent"], *self._told_by_etcd())

    def _told_by_etcd(self) -> tuple[float, float]:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=START_BOUND)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        metrics = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        name = "etcd_network_client_grpc_{}_bytes_total"
        return float(metrics[name.format("received")]), float(metrics[name.format("sent")])


def _processor_of(pid: int) -> float:
    # The kernel's number for another process's clock, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


def _last(groups: Sequence[Any]) -> float:
    return max(one["assigned"] for one in groups)


def _bytes(used: Used) -> str:
    return (
        f"the master's agent received {_amount(used.master_received)} and sent {_amount(used.master_sent)}, "
        f"etcd {_amount(used.etcd_received)} and {_amount(used.etcd_sent)}"
    )


def _amount(count: float) -> str:
    """Bytes, to one digit and a half: so roughly that two runs mostly say the same."""
    unit, name = (1e6, "MB") if count >= 1e6 else (1e3, "kB")
    scale = 10 ** math.floor(math.log10(max(count, 1.0)))
    return f"{round(count / scale * 2) / 2 * scale / unit:g} {name}"


def _ours(arena: Arena, nodes: int) -> Outcome:
    outcome = Agents(arena, "in-turn", nodes, PACE).in_turn()
    if nodes > AT_ONCE_NODES or outcome.phases is None:
        return outcome
    at_once = Agents(arena, "at-once", nodes, nodes).at_once()
    return dataclasses.replace(outcome, seconds=at_once, phases=(outcome.seconds or math.nan, *outcome.phases[1:]))


def _torch(arena: Arena, nodes: int) -> Outcome:
    arrived, processor = _torch_once(arena, nodes, PACE)
    at_once, _ = _torch_once(arena, nodes, 0)
    phases = [math.nan] * len(PHASES)
    phases[0], phases[OWN_ROWS] = arrived, processor
    if not math.isfinite(at_once):
        return Outcome(None, f"began at once and did not all hold it within {BOUND:g} s", tuple(phases))
    return Outcome(at_once, phases=tuple(phases))


def _torch_once(arena: Arena, nodes: int, pace: int) -> tuple[float, float]:
    """The seconds (infinite: not within BOUND; NaN: the last could not come), and those of processor of the store."""
    answer = arena.folder / f"torch{pace}"
    words = [str(SCRIPTS / "torch_rendezvous.py"), *map(str, (free_port(), nodes, pace, BOUND, answer))]
    process = arena.start([sys.executable, *words], arena.environment(BARE), f"torch{pace}.log")
    arena.until(lambda: answer.exists() or None, 4 * BOUND)
    arena.kill_tree(process)
    found = json.loads(answer.read_text(encoding="utf-8"))
    if isinstance(found, str):
        return math.nan, math.nan
    return math.inf if found["seconds"] is None else found["seconds"], found["processor"]


def _measured(arena: Arena, launcher: Launcher, nodes: int) -> Outcome:
    try:
        return (_torch if launcher is TORCH else _ours)(arena, nodes)
    except DidNotCome as error:
        return Outcome(None, str(error))


COMMON = (
    "Until the last one holds its assignment; where one arrives, from when it has registered, all others waiting. Real "
    "agents without workers, on a real etcd; the first, with the master in it, the one that is killed and the last "
    "have each a process of their own, all others share the cores that are left but one. One that falls silent, and is "
    "not killed, adds its lease (5 s unless set). torch: DynamicRendezvousHandler over a C10dRendezvousBackend with "
    "its defaults, one process for each node and one for the TCPStore; its loss of a node is in benchmark node_kill."
)


def case(nodes: int) -> Case:
    """The case of so many nodes."""
    many = ""
    if nodes >= MANY:
        many = (
            f"Leases are of {LONG_LEASE_SECONDS} s, the agents of a process share a connection to etcd, and they do "
            "not begin at once, because this one machine is all of them."
        )
    return Case(
        name=f"rendezvous_{nodes}",
        title=f"{nodes:,} agents agree on a round",
        about=many,
        common=COMMON,
        until=AT_ONCE if nodes <= AT_ONCE_NODES else ARRIVES,
        bound=MANY_BOUND if nodes >= MANY else BOUND,
        ours=OURS,
        peers=(TORCH,) if nodes <= PEER_NODES else (),
        measure=lambda arena, launcher, _: _measured(arena, launcher, nodes),
        phases=PHASES,
        first_phase="",
        own_rows=OWN_ROWS,
    )


CASES = tuple(map(case, NODES))
