"""Whole jobs on one machine: agents as real processes that play nodes A, B, C, and faults that happen to them.

A test of a fault is short:

    def test_a_node_is_lost(job: Cluster) -> None:
        job.start("A", "B", nnodes="1:2")
        job.workers(2)                                  # the first round's workers are there
        job.kill_machine("B")
        job.wait_for_line("A", r"round 2: 2 -> 1 node, .* 1 of 2 nodes were lost")
        job.workers(1).release()                        # those of the next one end with exit code 0
        assert job.finish() == {"A": 0}

The workers are puppets (`scripts/puppet.py`): they wait until the test says what to do, so nothing sleeps and nothing
is timed. Every wait here is for an event and has a deadline, and a failure shows every node's log.

At the end nothing may be left: no process that the cluster started or that they started, nobody on its store's
ports, no file of a node that ended well. Only what carries this cluster's mark is ever killed.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pytest

from elastic_run.rendezvous.header import Leader
from elastic_run.rendezvous.identity import SERVER_NAME
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.sealing import SecretSeal
from elastic_run.rendezvous.identity.secret import own_folder, own_secret
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.store.embedded.binary import KEPT_VARIABLE
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore, Proof
from elastic_run.rendezvous.wire.values import decode

DEADLINE = 180.0
"""Seconds. Generous, because the machine may be busy; nothing waits that long unless it fails."""

CLEAN_SECONDS = 60.0
"""Seconds for what an ended agent leaves to the kernel and to its guardian."""

QUICK: Mapping[str, float] = {"settle": 0, "scale_up_interval": 0, "lease_ttl": 3, "close_timeout": 10}
"""Seconds, for `--rdzv-conf`: nothing waits for more than what has happened, and silence is short."""

SCRIPTS = Path(__file__).with_name("scripts")
EXAMPLES = Path(__file__).parents[2] / "examples"

FOREIGN = ("PET_", "SLURM_")
START_METHOD = "PET_START_METHOD"
"""Variables of whoever runs the tests that would change the jobs in them; the last may: all tests hold both ways."""

MARK = "ELASTIC_RUN_TEST_CLUSTER"
"""In the environment of everything that a cluster starts."""

_numbers = itertools.count(1)

T = TypeVar("T")


@contextlib.contextmanager
def held(how: str, pid: int) -> Iterator[None]:
    """Process `pid` stays at its end, as with a driver that hangs; see `scripts/holder.py`."""
    holder = SCRIPTS / "holder.py"
    command = [sys.executable, str(holder), how, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tracer:
        assert tracer.stdout is not None
        assert tracer.stdout.readline() == b"holds\n"
        yield


@dataclass(eq=False)
class Puppet:
    """One worker that has reported to the test."""

    node: str
    round: int
    rank: int
    world: int
    pid: int
    env: Mapping[str, str]
    connection: socket.socket
    said: list[str] = field(default_factory=list[str])
    did: int = 0
    alive: bool = True

    def tell(self, statement: str) -> None:
        """Has it run `statement`; does not wait."""
        self.connection.sendall(json.dumps(statement).encode() + b"\n")


class Workers(list[Puppet]):
    """All workers of one round, in rank order."""

    def __init__(self, cluster: "Cluster", puppets: Sequence[Puppet]) -> None:
        super().__init__(puppets)
        self._cluster = cluster
        self.round = puppets[0].round

    def tell(self, statement: str) -> None:
        """Has every one of them run `statement`; does not wait."""
        for puppet in self:
            puppet.tell(statement)

    def do(self, rank: int, statement: str) -> None:
        """Has one of them run `statement`, and waits until it has."""
        puppet = self[rank]
        wanted = puppet.did + 1
        puppet.tell(statement)
        self._cluster.wait_until(lambda: puppet.did >= wanted, f"rank {rank} does {statement!r}")

    def release(self) -> None:
        """All of them end with exit code 0."""
        self.tell("go")

    def wait_for(self, text: str, rank: int = 0) -> Puppet:
        """Waits until that rank has said `text`."""
        puppet = self[rank]
        self._cluster.wait_until(lambda: text in puppet.said, f"rank {rank} says {text!r}")
        return puppet

    @property
    def nodes(self) -> list[str]:
        """The node of each rank."""
        return [puppet.node for puppet in self]


@dataclass(eq=False)
class Node:
    """One agent, and what it printed."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    temporary: Path
    reader: threading.Thread | None = None
    lines: list[str] = field(default_factory=list[str])
    killed: bool = False
    ended: bool = False

    @property
    def text(self) -> str:
        """All that it printed so far."""
        return "\n".join(self.lines)


class Cluster:
    """One job on several "machines". Use as a context manager.

    Args:
        directory: for logs and all other files; the agents' working directory.
        endpoint: the store; None: the agents are given none.
        failed: whether the test has failed; then the end kills everything and asserts nothing (see `failure`).
        embedded: the agents start the store at `endpoint` themselves.

    Attributes:
        masters: names that are no nodes: `elastic-run master` is started for them.
    """

    def __init__(
        self, directory: Path, endpoint: str | None, failed: Callable[[], bool], *, embedded: bool = False
    ) -> None:
        self.directory = directory
        self.endpoint = endpoint
        self.job = f"test-{os.getpid()}-{next(_numbers)}"
        self.mark = f"{self.job}-{os.urandom(4).hex()}"
        self.flags: dict[str, str] = {}
        self.conf = dict(QUICK)
        self.script = SCRIPTS / "puppet.py"
        self.args: tuple[str, ...] = ()
        self.nodes: dict[str, Node] = {}
        self.masters: set[str] = set()
        self._embedded = embedded
        self._test_failed = failed
        self._changed = threading.Condition()
        self._puppets: list[Puppet] = []
        self._last_round = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        directory.mkdir(parents=True)
        # Not in `directory`, whose path is long: sockets of multiprocessing lie in TMPDIR, and theirs must be short.
        self._temporary = Path(tempfile.mkdtemp(prefix="cluster-"))
        self._thread(self._accept)

    @property
    def typed_endpoint(self) -> str:
        """As the agents are given it: a store that a test runs itself is a user's own, which is not encrypted."""
        scheme = "" if self._embedded else "http://"
        return ",".join(f"{scheme}{each}" for each in (self.endpoint or "").split(","))

    def store(self) -> EtcdStore:
        """Asks the job's store as its agents do: with the secret that they share."""
        endpoints = (self.endpoint or "").split(",")
        if self._embedded:
            return EtcdStore(endpoints, tls=proof())
        return EtcdStore(endpoints, seal=None if "insecure" in self.flags else seal())

    # -- starting -------------------------------------------------------------------------------------------------

    def command(self, name: str) -> list[str]:
        """The command line of node `name`, with the flags of the last `start`."""
        subcommand = ["master"] if name in self.masters else []
        command = [sys.executable, "-m", "elastic_run", *subcommand, f"--node-name={name}"]
        for flag, value in self.flags.items():
            command.append(f"--{flag.replace('_', '-')}" + (f"={value}" if value != "" else ""))
        return [*command, str(self.script), *self.args]

    def start(
        self,
        *names: str,
        script: Path | None = None,
        args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        conf: Mapping[str, float] | None = None,
        **flags: str | int | None,
    ) -> None:
        """Starts an agent for each of `names`, and does not wait.

        Args:
            script, args, flags: what `elastic-run` is started with; `nnodes="1:2"` is `--nnodes=1:2`, "" is a switch,
                None leaves a flag out. What is not given is as at the last start.
            env: added to the agents' environment.
            prefix: words before the command, of a program that becomes it in the end.
            conf: keys of `--rdzv-conf` that differ from `QUICK`, in seconds.
        """
        if all(node.ended for node in self.nodes.values()):
            self._last_round = 0  # another run of the job, which counts from 1 again
            self._puppets.clear()
        if not self.flags:
            self.flags = {"nproc_per_node": "1", "same_failure_limit": "0"}
            if self.endpoint:
                self.flags |= {"rdzv_endpoint": self.typed_endpoint, "rdzv_id": self.job}
            # Where all that fit are started together they shall all be in the first round, however slow the machine.
            most = int(str(flags.get("nnodes", 1)).rpartition(":")[2])
            self.conf["last_call_timeout"] = DEADLINE if len(names) >= most else 0.0
        self.conf |= conf or {}
        self.flags["rdzv_conf"] = ",".join(f"{key}={value:g}" for key, value in self.conf.items())
        for flag, value in flags.items():
            self.flags.pop(flag, None)
            if value is not None:
                self.flags[flag] = str(value)
        self.script = script or self.script
        self.args = self.args if args is None else tuple(args)
        for name in names:
            self._start(name, env or {}, prefix)

    def _start(self, name: str, more: Mapping[str, str], prefix: Sequence[str]) -> None:
        assert name not in self.nodes or self.nodes[name].process.poll() is not None, f"{name} still runs"
        # A machine's own folder for temporary files shows whose they are. Where the agents start the store they share
        # one, as agents of one machine do, because its lock lies there.
        temporary = self._temporary if self._embedded else self._temporary / f"{name}-{next(_numbers)}"
        temporary.mkdir(exist_ok=True)
        host, port = self._listener.getsockname()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(FOREIGN) or key == START_METHOD},
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(temporary),
            "PUPPET": f"{host}:{port}",
            "PUPPET_NODE": name,
            MARK: self.mark,
            **more,
        }
        process = subprocess.Popen(
            [*prefix, *self.command(name)],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        node = Node(name, process, self.directory / f"{name}.log", temporary)
        self.nodes[name] = node
        node.reader = self._thread(self._read, node)

    def _thread(self, work: Callable[..., None], *args: Any) -> threading.Thread:  # Any: passed on as it is
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _read(self, node: Node) -> None:
        assert node.process.stdout is not None
        with node.process.stdout, node.log.open("ab") as log:
            for line in node.process.stdout:
                log.write(line)
                log.flush()
                with self._changed:
                    node.lines.append(line.decode(errors="replace").rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            node.ended = True
            self._changed.notify_all()

    # -- the puppets ----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed: the cluster has ended
            self._thread(self._listen, connection)

    def _listen(self, connection: socket.socket) -> None:
        puppet: Puppet | None = None
        with contextlib.suppress(OSError), connection, connection.makefile(encoding="utf-8") as lines:
            for line in lines:
                word: dict[str, Any] = json.loads(line)  # Any: JSON
                with self._changed:
                    if puppet is None:
                        rank, world = int(word["RANK"]), int(word["WORLD_SIZE"])
                        env = {key: str(value) for key, value in word.items()}
                        puppet = Puppet(word["node"], word["round"], rank, world, word["pid"], env, connection)
                        self._puppets.append(puppet)
                    elif "said" in word:
                        puppet.said.append(word["said"])
                    else:
                        puppet.did += 1
                    self._changed.notify_all()
        if puppet:
            with self._changed:
                puppet.alive = False
                self._changed.notify_all()

    @property
    def puppets(self) -> tuple[Puppet, ...]:
        """Every worker that has reported in this run, the dead ones as well."""
        return tuple(self._puppets)

    def workers(self, world: int, deadline: float = DEADLINE) -> Workers:
        """Waits for a round later than the last one asked for, in which all of `world` workers have reported."""

        def ready() -> list[Puppet] | None:
            last = max((puppet.round for puppet in self._puppets), default=0)
            found = [puppet for puppet in self._puppets if puppet.round == last and puppet.alive]
            complete = {puppet.rank for puppet in found} == set(range(world)) and len(found) == world
            right = all(puppet.world == world for puppet in found)
            return found if last > self._last_round and complete and right else None

        found = self.wait_until(ready, f"a round after {self._last_round} with {world} workers", deadline)
        workers = Workers(self, sorted(found, key=lambda puppet: puppet.rank))
        self._last_round = workers.round
        return workers

    # -- waiting --------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], T | None], what: str, deadline: float = DEADLINE) -> T:
        """Waits until `condition` holds; it is asked whenever a node prints, ends or a worker speaks."""
        with self._changed:
            if not self._changed.wait_for(condition, deadline):
                raise self.failed(f"waited {deadline:g} s in vain: {what}")
            found = condition()
            assert found is not None
            return found

    def wait_for_line(self, node: str, pattern: str, deadline: float = DEADLINE) -> "re.Match[str]":
        """Waits until a line of `node`, an earlier one too, contains `pattern`; fails at once where it has ended."""
        regex, seen = re.compile(pattern), self.nodes[node]

        def look() -> "re.Match[str] | bool | None":
            for line in seen.lines:
                if found := regex.search(line):
                    return found
            return True if seen.ended else None

        found = self.wait_until(look, f"node {node} prints {pattern!r}", deadline)
        if isinstance(found, re.Match):
            return found
        raise self.failed(f"node {node} ended and never printed {pattern!r}")

    def wait_anywhere(self, pattern: str, deadline: float = DEADLINE) -> "tuple[str, re.Match[str]]":
        """Waits until a line of any node contains `pattern`; which node, and the match."""
        regex = re.compile(pattern)

        def look() -> "tuple[str, re.Match[str]] | None":
            for node in self.nodes.values():
                for line in node.lines:
                    if found := regex.search(line):
                        return node.name, found
            return None

        return self.wait_until(look, f"any node prints {pattern!r}", deadline)

    def finish(self, deadline: float = DEADLINE) -> dict[str, int]:
        """Waits until every agent has ended; the exit codes of those that no test killed, by node."""
        until = time.monotonic() + deadline
        for node in self.nodes.values():
            try:
                node.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise self.failed(f"node {node.name} has not ended within {deadline:g} s") from None
            assert node.reader is not None
            # Whoever holds its pipe open is a process that should not be there.
            node.reader.join(CLEAN_SECONDS)
            if node.reader.is_alive():
                raise self.failed(f"node {node.name} has ended, and something still holds its output open")
        return {node.name: node.process.returncode for node in self.nodes.values() if not node.killed}

    def log(self, node: str) -> str:
        """All that `node` printed so far."""
        return self.nodes[node].text

    def last_lines(self, node: str, count: int = 15) -> str:
        """The end of what `node` printed."""
        return "\n".join(self.nodes[node].lines[-count:])

    def failed(self, why: str) -> AssertionError:
        """What a test raises: why it failed, with every node's log."""
        logs = "\n".join(f"---- {node.name} ----\n{node.log.read_text()}" for node in self.nodes.values())
        return AssertionError(f"{why}\n{logs}")

    # -- faults ---------------------------------------------------------------------------------------------------

    def send(self, node: str, number: signal.Signals) -> None:
        """Sends a signal to the agent of `node`, as a scheduler or a person does."""
        self.nodes[node].process.send_signal(number)

    def kill_agent(self, node: str) -> None:
        """SIGKILL to the agent only: its guardian and the kernel see to the rest."""
        self.nodes[node].killed = True
        self.nodes[node].process.kill()

    def kill_machine(self, node: str) -> None:
        """SIGKILL at once to all that the agent of `node` started: workers, guardian, and its member of the store."""
        self.nodes[node].killed = True
        stopped = set[int]()
        while new := set(self._machine(node)) - stopped:  # nobody is to see another's end and start it again
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= new
        for pid in stopped:
            _kill(pid)

    def freeze_machine(self, node: str) -> None:
        """All processes of `node` stop: it is silent, and no connection of it closes."""
        for pid in self._machine(node):
            os.kill(pid, signal.SIGSTOP)

    def thaw_machine(self, node: str) -> None:
        """They go on."""
        for pid in self._machine(node):
            os.kill(pid, signal.SIGCONT)

    def kill_worker(self, rank: int, number: signal.Signals = signal.SIGKILL) -> int:
        """Sends a signal to the worker that has `rank` now; returns its pid."""
        pid = self.worker_pid(rank)
        os.kill(pid, number)
        return pid

    def worker_pid(self, rank: int) -> int:
        """The running worker of that rank: the child of an agent with that RANK."""
        agents = {node.process.pid for node in self.nodes.values()}
        for pid in self.processes():
            if _parent(pid) in agents and environment_of(pid).get("RANK") == str(rank):
                return pid
        raise self.failed(f"there is no worker of rank {rank}")

    def master(self) -> str:
        """The node whose agent is the elected master now, as the store says."""

        async def ask() -> str:
            store = self.store()
            try:
                held = await store.get(Keys(self.job).leader)
            finally:
                await store.close()
            assert held is not None, "nobody is elected"
            return decode(Leader, held.value).node

        return asyncio.run(ask())

    # -- what runs ------------------------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Every living process that carries this cluster's mark, or is a supervisor or etcd that its agents started."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                environment = environment_of(int(entry.name))
                marked = environment.get(MARK) == self.mark
                # The supervisor and etcd serve more than one job and get a clean environment, but for TMPDIR.
                if marked or Path(environment.get("TMPDIR", "/")).is_relative_to(self._temporary):
                    found.append(int(entry.name))
        return found

    def _machine(self, node: str) -> list[int]:
        agent = self.nodes[node].process.pid
        mine: list[int] = []
        supervisors: list[int] = []
        for pid in self.processes():
            if environment_of(pid).get("PUPPET_NODE") == node:
                mine.append(pid)
            elif environment_of(pid).get(KEPT_VARIABLE) == f"store of {agent}":
                supervisors.append(pid)  # and the etcd below it
        return [*supervisors, *mine]

    def gone(self, pid: int, deadline: float = CLEAN_SECONDS) -> None:
        """Waits until that process has ended."""
        left = _await_ends([pid], deadline)
        if left:
            raise self.failed(f"process {pid} still runs: {command_line(pid)}")

    # -- the end --------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = [node.name for node in self.nodes.values() if node.process.poll() is None]
        try:
            if kind is None and not self._test_failed():
                assert not running, f"the test ended while agents still ran: {', '.join(running)}"
                self._assert_clean()
        finally:
            self._end()

    def _assert_clean(self) -> None:
        for pid in self._supervisors():
            # It would linger for 10 s, in case another job comes.
            os.kill(pid, signal.SIGTERM)
        left = _await_ends(self.processes(), CLEAN_SECONDS) or self.processes()
        if left:
            raise self.failed("left over: " + "; ".join(f"{pid}: {command_line(pid)}" for pid in left))
        for endpoint in (self.endpoint or "").split(",") if self._embedded else ():
            host, port = endpoint.rsplit(":", 1)
            for used in (int(port), int(port) + 10_000):
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                with socket.socket(family) as probe:
                    assert probe.connect_ex((host.strip("[]"), used)) != 0, f"somebody still listens on {host}:{used}"
        for node in self.nodes.values():
            if node.process.returncode == 0 and not self._embedded:
                # All but that the job has succeeded, which the next command on the machine wants to know.
                files = [path for path in node.temporary.rglob("*") if path.is_file()]
                left_files = [str(path) for path in files if path.parent.name != "succeeded"]
                assert not left_files, f"node {node.name} ended well and left files: {left_files}"

    def _supervisors(self) -> list[int]:
        return [pid for pid in self.processes() if "supervisor.py\0" in command_line(pid)]

    def _end(self) -> None:
        for _ in range(100):  # a process may fork while it is looked for
            left = self.processes()
            if not left:
                break
            for pid in left:
                _kill(pid)
            _await_ends(left, CLEAN_SECONDS)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for node in self.nodes.values():
            node.process.wait()
        for thread in self._threads:
            thread.join(CLEAN_SECONDS)
        shutil.rmtree(self._temporary, ignore_errors=True)


def embedded_ports(count: int) -> list[int]:
    """Free ports for embedded members of the store; each also needs the one 10,000 above it, for its peers."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            # Both below the range from which agents choose theirs, and the kernel those of outgoing connections.
            port = random.randrange(6_000, 10_000)
            try:
                for used in (port, port + 10_000):
                    held.enter_context(socket.create_server(("127.0.0.1", used)))
            except OSError:
                continue
            found.append(port)
    return found


def proof() -> Proof:
    """What the tests' own tools prove themselves with: the secret of the user whom all tests run as."""
    folder = own_folder(os.environ)
    identity = Identity(own_secret(folder)[0], cache=folder)
    return Proof(lambda: identity.pem, SERVER_NAME)


def seal() -> SecretSeal:
    """How the agents of that user write values into a store that is not theirs alone."""
    return SecretSeal(own_secret(own_folder(os.environ))[0])


def failure(request: pytest.FixtureRequest) -> Callable[[], bool]:
    """For a fixture: answers at its end whether its test has failed."""
    before = request.session.testsfailed
    return lambda: request.session.testsfailed > before


def environment_of(pid: int) -> dict[str, str]:
    """What `pid` was started with; empty where that cannot be read."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in data.split("\0") if entry)
    return {name: value for name, _, value in pairs}


def command_line(pid: int) -> str:
    """Of `pid`, its words divided by zeros; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _await_ends(pids: Sequence[int], seconds: float) -> list[int]:
    """Waits for the ends of processes, which need not be children; those that still run after `seconds`."""
    until = time.monotonic() + seconds
    handles: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handles[os.pidfd_open(pid)] = pid
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    try:
        while handles and (rest := until - time.monotonic()) > 0:
            for handle, _ in poll.poll(rest * 1000):
                poll.unregister(handle)
                os.close(handle)
                del handles[handle]
        return list(handles.values())
    finally:
        for handle in handles:
            os.close(handle)
