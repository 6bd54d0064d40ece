"""A job of real torch workers to which a test does one thing after the other, and all that must be true at its end.

    def test_a_worker_is_killed(job: Job) -> None:
        job.train("A", "B", nnodes=2)
        job.advances()                              # it is training
        job.worker(1).kill()
        assert "died by SIGKILL" in job.cause(2)    # why round 2 was opened, the same on every node
        job.advances()                              # it is training again
        assert job.ends() == {"A": 0, "B": 0}

What every job must end with is checked by `Job` itself when the test is over: the training result is right to the last
step (`train.py`), every node's log explains itself (`explained`), and no process, port, lease, key or temporary file is
left over. A new kind of fault is a method here that begins with `self.fault("what happens")`, or a `with` in its test.
"""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_run.master.machine.incident import GATHER
from elastic_run.rendezvous.keys import ROOT, Keys
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.store.contract import Delete, KeyValue, Put
from elastic_run.rendezvous.store.embedded.binary import KEPT_VARIABLE
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.store.etcd.grpc_import import grpc
from elastic_run.rendezvous.wire.values import decode

from ..integration.cluster import CLEAN_SECONDS, DEADLINE, MARK, Cluster, Puppet, environment_of, seal

if TYPE_CHECKING:
    from ..integration.conftest import Cluster as Etcd

TRAIN = Path(__file__).with_name("train.py")

SOME = 15
"""Steps that show that a job is training."""

OURS = "[elastic-run] "

_WORKER = re.compile(r"\[\S+ rank \d+\] ")
_ROUND = re.compile(r"\[elastic-run\] round (\d+): (.*)")
_CAUSE = re.compile(r"(?:\d+ -> )?\d+ nodes?, \d+ workers?, ranks? [\d-]+ here: (.+?)(?:; downtime [\d.]+ s)?")
_STEP = re.compile(r"\] step (\d+)$")
_END = re.compile(
    r"job \S+ (?:succeeded|failed): \S|left job \S+: \S|gave up on job \S+: \S|the job refused this node: \S"
    r"|no longer a member of the job: \S|waiting for \S|^round \d+: |second signal"
)
"""What may explain why the workers of a round run no more."""

_CONSEQUENCE = re.compile(r"exited with code \d+: .*(?:closed by peer|[Cc]onnection (?:reset|closed|refused)|[Gg]loo)")
"""The death of a rank that had lost another: never a cause."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One living worker."""

    job: "Job"
    puppet: Puppet

    @property
    def node(self) -> str:
        return self.puppet.node

    @property
    def pid(self) -> int:
        return self.puppet.pid

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """A signal from outside."""
        self.job.fault(f"{number.name} to rank {self.puppet.rank}")
        with contextlib.suppress(ProcessLookupError):  # an earlier fault was quicker
            os.kill(self.pid, number)

    def does(self, statement: str) -> None:
        """Runs Python between two steps, without waiting for it."""
        self.job.fault(f"rank {self.puppet.rank} does {statement!r}")
        with contextlib.suppress(OSError):  # an earlier fault was quicker
            self.puppet.tell(statement)


class Job(Cluster):
    """One job, as its users' machines see it.

    Args:
        directory, failed, embedded: as `Cluster` has them.
        endpoint: the store, where the agents are to start one themselves.
        etcd: the store.
        inject: told of every fault.

    Attributes:
        faults: what was done to it, in order.
        innocent: nobody but a rank that lost another has failed, so that such a one may be named as the cause.
    """

    def __init__(
        self,
        directory: Path,
        failed: Callable[[], bool],
        inject: Callable[[str], None],
        *,
        etcd: "Etcd | None" = None,
        endpoint: str | None = None,
        embedded: bool = False,
    ) -> None:
        super().__init__(directory, ",".join(etcd.endpoints) if etcd else endpoint, failed, embedded=embedded)
        self.etcd = etcd
        self.faults: list[str] = []
        self.innocent = False
        self._inject = inject
        self._limit = 0
        self._begun = ticks()
        self._leases_before = leases(etcd.endpoint) if etcd else set[int]()

    # -- what a test says -----------------------------------------------------------------------------------------

    def train(self, *names: str, **more: object) -> None:
        """Starts nodes, as `Cluster.start` does, and does not wait."""
        defaults: dict[str, object] = {"script": TRAIN, "max_restarts": 100} if not self.nodes else {}
        self.start(*names, **{**defaults, **more})  # type: ignore[arg-type]  # as `start` has them

    def advances(self, steps: int = SOME) -> None:
        """Waits until it has trained `steps` more than now."""
        wanted = self.step + steps

        def there() -> bool | None:
            for node in self.nodes.values():
                for line in reversed(node.lines):
                    if found := _STEP.search(line):
                        if int(found[1]) >= wanted:
                            return True
                        break
            return None

        self.wait_until(there, f"step {wanted} is taken")

    @property
    def step(self) -> int:
        """The last step that has been taken."""
        steps = self.steps()
        return steps[-1] if steps else 0

    def worker(self, rank: int, after: int = 0) -> Worker:
        """The worker of `rank` in the newest round; waits for it, and with `after` for a later round than that."""

        def there() -> Puppet | None:
            last = max((puppet.round for puppet in self._puppets), default=0)
            found = [each for each in self._puppets if (each.round, each.rank) == (last, rank) and each.alive]
            return found[-1] if found and last > after else None

        return Worker(self, self.wait_until(there, f"rank {rank} runs in a round after {after}"))

    def worker_of(self, node: str) -> Worker:
        """The newest living worker of `node`."""

        def there() -> Puppet | None:
            found = [each for each in self._puppets if each.node == node and each.alive]
            return found[-1] if found else None

        return Worker(self, self.wait_until(there, f"a worker of {node} runs"))

    def living(self) -> list[Worker]:
        """The workers that run, by rank."""
        found = [each for each in tuple(self._puppets) if each.alive]
        return [Worker(self, each) for each in sorted(found, key=lambda each: (each.round, each.rank))]

    def cause(self, round: int) -> str:
        """Why that round was opened, as the first node says that starts workers in it. Waits for it.

        Where the consequence was known before the cause, the master's node says the cause when it has it, if ever.
        """
        _, found = self.wait_anywhere(rf"\[elastic-run\] round {round}: \d.* here: (.*)")
        if re.search("(lost its connection to|gave up waiting for) another rank", found[1]):
            with contextlib.suppress(AssertionError):
                _, found = self.wait_anywhere(rf"\[elastic-run\] round {round} was opened because (.*)", GATHER + 1)
        return found[1]

    def stays(self, *others: str) -> str:
        """A node that runs, is none of `others` and does not host the master."""
        return next(name for name in self.running() if name not in (*others, self.master()))

    def running(self) -> list[str]:
        """The nodes whose agents run."""
        return [name for name, node in self.nodes.items() if not node.killed and node.process.poll() is None]

    def ends(self, steps: int = SOME) -> dict[str, int]:
        """Lets it train `steps` more and end; the exit codes of the nodes that nobody killed."""
        self.may_end(steps)
        return self.finish()

    def may_end(self, steps: int = SOME) -> None:
        """The workers end when they have trained `steps` more."""
        self._limit = self.step + steps
        part = self.directory / "limit.part"
        part.write_text(str(self._limit))
        part.rename(self.directory / "limit")

    # -- faults ---------------------------------------------------------------------------------------------------

    def fault(self, what: str) -> None:
        """Counts a fault that is done now."""
        self.faults.append(what)
        self._inject(what)

    def send(self, node: str, number: signal.Signals) -> None:
        if number != signal.SIGCONT:
            self.fault(f"{number.name} to the agent of {node}")
        super().send(node, number)

    def ctrl_z(self, node: str) -> None:
        """As a terminal does it: the agent's process group is told. Returns when all of the node stands still.

        The node was started with `prefix=("setsid",)`, or the test would be in that group."""
        self.fault(f"Ctrl-Z at {node}")
        os.killpg(self.nodes[node].process.pid, signal.SIGTSTP)
        self._await_state(node, stopped=True)

    def fg(self, node: str) -> None:
        """As a shell does it. Returns when all of the node goes on."""
        os.killpg(self.nodes[node].process.pid, signal.SIGCONT)
        self._await_state(node, stopped=False)

    def _await_state(self, node: str, *, stopped: bool) -> None:
        until = time.monotonic() + DEADLINE
        pids = [self.nodes[node].process.pid]
        pids += [each.pid for each in self._puppets if each.node == node and each.alive]
        while any((state(pid) == "T") != stopped for pid in pids):
            if time.monotonic() > until:
                raise self.failed(f"node {node} does not {'stop' if stopped else 'go on'}")
            time.sleep(0.01)  # the kernel tells nobody but the parent of a process that it stopped

    def kill_agent(self, node: str) -> None:
        self.fault(f"SIGKILL to the agent of {node}")
        super().kill_agent(node)

    def kill_machine(self, node: str) -> None:
        self.fault(f"power off: {node}")
        super().kill_machine(node)

    def freeze_machine(self, node: str) -> None:
        self.fault(f"machine {node} freezes")
        super().freeze_machine(node)

    # -- the end --------------------------------------------------------------------------------------------------

    def failed(self, why: str) -> AssertionError:
        done = "".join(f"\n  {number}. {what}" for number, what in enumerate(self.faults, 1))
        return super().failed(f"{why}\nfaults so far:{done or ' none'}")

    def has_failed(self) -> bool:
        """The test has."""
        return self._test_failed()

    def _assert_clean(self) -> None:
        super()._assert_clean()
        self._assert_result()
        for name in self.nodes:
            self.explained(name)
        self._assert_store()
        self._assert_files()

    def steps(self) -> list[int]:
        """The steps that were taken, in order, as the checkpoint has them."""
        path = self.directory / "steps"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def _assert_result(self) -> None:
        steps = self.steps()
        if steps != list(range(1, len(steps) + 1)):
            wrong = next(index for index, step in enumerate(steps) if step != index + 1)
            raise self.failed(f"steps were lost or repeated: ... {steps[max(0, wrong - 3) : wrong + 3]} ...")
        succeeded = [node for node in self.nodes.values() if node.process.returncode == 0 and not node.killed]
        if succeeded and self._limit:
            total = len(steps) * (len(steps) + 1) // 2
            if len(steps) < self._limit:
                raise self.failed(f"the job ended well after {len(steps)} steps, and not after {self._limit}")
            words = f"ends after {len(steps)} steps with sum {total}"
            if not any(words in node.text for node in succeeded):
                raise self.failed(f"no rank {words}")

    def explained(self, name: str) -> None:
        """Raises AssertionError where the log of a node leaves a question open (see `question`)."""
        node = self.nodes[name]
        if asked := question(node.lines, killed=node.killed, innocent=self.innocent):
            raise self.failed(f"the log of node {name} leaves a question open: {asked}")

    def _assert_store(self) -> None:
        if self.etcd is None or all(member.process is None for member in self.etcd.members):
            return
        until = time.monotonic() + CLEAN_SECONDS
        while left := self._left_in_store():
            if time.monotonic() > until:
                raise self.failed(f"left in the store: {'; '.join(left)}")
            time.sleep(0.1)  # a dead agent's lease ends by the store's clock
        listening = listeners()
        for port in self._offered_ports() & listening.keys():
            for pid in listening[port]:
                if is_left_over(pid, self.mark, self._begun):
                    raise self.failed(f"process {pid} still listens on port {port}, which a node had offered")

    def _left_in_store(self) -> list[str]:
        assert self.etcd is not None
        endpoint = next(member.endpoint for member in self.etcd.members if member.process is not None)

        async def ask() -> tuple[KeyValue, ...]:
            store = EtcdStore([endpoint])
            try:
                return (await store.list(ROOT)).items
            finally:
                await store.close()

        items = asyncio.run(ask())
        won = any(node.process.returncode == 0 and not node.killed for node in self.nodes.values())
        keys = Keys(self.job)
        mine = [item.key for item in items if item.key.startswith(keys.root)]
        wrong = [key for key in mine if not (keys.is_mark(key) and won)]
        # Of the jobs before this one only the tombstones are there, for a minute each.
        # And an agent that a test had to kill has its lease until that ends.
        tombstones = {item.lease for item in items if item.key.endswith("/outcome")}
        leased = leases(endpoint) - tombstones - self._leases_before
        return [*wrong, *(f"lease {lease:x}" for lease in sorted(leased))]

    def _offered_ports(self) -> set[int]:
        """Every port that a node of this job has listened on or offered for MASTER_PORT, by the store's history."""
        assert self.etcd is not None
        endpoints = [member.endpoint for member in self.etcd.members if member.process is not None]
        return asyncio.run(_offered(endpoints, Keys(self.job)))

    def _assert_files(self) -> None:
        wrong = [path for path in Path(tempfile.gettempdir()).iterdir() if self.job in path.name]
        for node in self.nodes.values():
            if not self._embedded and not node.killed:
                # What a failed job keeps on purpose is the end of each failed worker's stderr, or else of its stdout.
                kept = {"stderr.log", "stdout.log"}
                files = [path for path in node.temporary.rglob("*") if path.is_file()]
                wrong += [path for path in files if path.name not in kept and path.parent.name != "succeeded"]
        if wrong:
            raise self.failed(f"files are left: {', '.join(map(str, wrong))}")


def question(lines: Sequence[str], *, killed: bool = False, innocent: bool = False) -> str:
    """What the log of a node does not answer; empty where it explains itself (pure).

    Every line is the launcher's or a worker's, so that no traceback of ours, and no word of asyncio's, is among them.
    Every round has a number above that of the one before, and its cause, which is never the death of a rank that lost
    another. After it something says why its workers run no more, and the last word is how the node's part ended.

    Args:
        lines: all that the agent printed.
        killed: it could say nothing at its end.
        innocent: nobody but a rank that lost another has failed, so that such a one may be the cause.
    """
    last = running = 0
    verdict = False
    for line in filter(None, lines):
        words = line.removeprefix(OURS)
        if words == line:
            if not _WORKER.match(line):
                return f"whose line is {line!r}?"
            continue
        if (found := _ROUND.match(line)) and (cause := _CAUSE.fullmatch(found[2])):
            number = int(found[1])
            if number <= last:
                return f"why does round {number} come after round {last}?"
            if _CONSEQUENCE.search(cause[1]) and not innocent:
                return f"who is to blame for round {number}? Not the one that it names: {cause[1]}"
            last = running = number
            verdict = False
        elif _END.search(words):
            running = 0
            verdict = not words.startswith("round ")
    if killed:
        return ""
    if running:
        return f"why did the workers of round {running} end?"
    return "" if verdict else "how did the node's part in the job end?"


async def _offered(endpoints: Sequence[str], keys: Keys) -> set[int]:
    store = EtcdStore(endpoints, seal=seal())
    ports: set[int] = set()
    last = keys.node("end of the history")
    try:
        await store.txn([], [Put(last, b"")], idempotent=True)
        async for events in store.watch(keys.nodes, 1, prefix=True):
            for event in events:
                if event.kv.key == last:
                    await store.txn([], [Delete(last)], idempotent=True)
                    return ports
                if event.kind == "put":
                    member = decode(Member, event.kv.value)
                    ports |= {*member.ports, int(member.agent_address.rpartition(":")[2])}
    finally:
        await store.close()
    raise AssertionError("the store's history has no end")


def leases(endpoint: str) -> set[int]:
    """Every lease that etcd knows of. Its request is empty; of the answer only the numbers are read."""
    with grpc.insecure_channel(endpoint) as channel:
        answer: bytes = channel.unary_unary("/etcdserverpb.Lease/LeaseLeases")(b"", timeout=DEADLINE)
    return {
        number
        for field, status in _fields(answer)
        if field == 2 and isinstance(status, bytes)
        for inner, number in _fields(status)
        if inner == 1 and isinstance(number, int)
    }


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a protobuf message of numbers and messages."""
    rest = iter(message)

    def number() -> int:
        value = shift = 0
        for byte in rest:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return value

    for first in rest:
        yield first >> 3, (number() if first & 7 == 0 else bytes(itertools.islice(rest, number())))


def ticks() -> int:
    """Now, on the clock by which the kernel tells when a process began."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def is_left_over(pid: int, mark: str, begun: int) -> bool:
    """Whether it is of the job with this mark, which began at that time (see `ticks`).

    Whoever else runs here may have taken a port that a node has given back. What has no mark is of this job where all
    that it comes from began after it, and have ended but for the first process of all. (Where another process adopts
    orphans, none without a mark is found.)
    """
    environment = environment_of(pid)
    if MARK in environment:
        return environment[MARK] == mark
    if KEPT_VARIABLE in environment:
        return False  # of a store that agents have started, and here the test has one
    with contextlib.suppress(OSError):  # it has ended
        while pid > 1:
            known = stat(pid)
            if int(known[19]) < begun:
                return False
            pid = int(known[1])
        return True
    return False


def listeners() -> dict[int, set[int]]:
    """Who listens on each port, by its process id, as far as this user may see it."""
    sockets: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                sockets[f"socket:[{inode}]"] = int(local.rpartition(":")[2], 16)
    found: dict[int, set[int]] = {}
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            for entry in (process / "fd").iterdir() if process.name.isdigit() else ():
                with contextlib.suppress(OSError):  # it was closed
                    if port := sockets.get(str(entry.readlink())):
                        found.setdefault(port, set()).add(int(process.name))
    return found


def state(pid: int) -> str:
    """The letter that the kernel has for what the process does: T is stopped."""
    return stat(pid)[0]


def stat(pid: int) -> list[str]:
    """What the kernel tells of it, from its state on: the second is its parent, the twentieth when it began."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
