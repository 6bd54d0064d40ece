"""What `EtcdStore` does when real etcd servers die, freeze, lose their quorum, their history or their trust."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from elastic_run.rendezvous.base.errors import Compacted, LeaseLost, MaybeApplied, StoreRefused, StoreUnavailable
from elastic_run.rendezvous.store.contract import Compare, Put
from elastic_run.rendezvous.store.etcd.etcd_store import Credentials, EtcdStore, Tls
from elastic_run.rendezvous.store.etcd.grpc_import import aio
from elastic_run.rendezvous.store.etcd.proto import elastic_run_etcd_pb2 as pb

from .certificates import Certificates

if TYPE_CHECKING:
    from conftest import Cluster, Relay

    EtcdWith = Callable[..., Cluster]
    MakeRelay = Callable[[str], Awaitable[Relay]]

SOON = 60.0
"""Seconds after which a wait in a test has failed."""

Connect = Callable[..., EtcdStore]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`connect(endpoints, ...)` is a store that is closed at the end of the test."""
    stores: list[EtcdStore] = []

    def make(*args: object, **options: object) -> EtcdStore:
        stores.append(EtcdStore(*args, **options))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


class Reader:
    """A watch in a task of its own; it gathers the values of the puts that it sees."""

    def __init__(self, store: EtcdStore, from_revision: int = 1) -> None:
        self.values: list[bytes] = []
        self._more = asyncio.Event()
        self.task = asyncio.create_task(self._read(store, from_revision))

    async def _read(self, store: EtcdStore, from_revision: int) -> None:
        async with contextlib.aclosing(store.watch("/w/", from_revision, prefix=True)) as watch:
            async for events in watch:
                self.values += [event.kv.value for event in events]
                self._more.set()

    async def until(self, value: bytes) -> None:
        """Waits for `value`."""
        async with asyncio.timeout(SOON):
            while value not in self.values:
                more = asyncio.create_task(self._more.wait())
                await asyncio.wait({more, self.task}, return_when=asyncio.FIRST_COMPLETED)
                more.cancel()
                self._more.clear()
                if self.task.done():
                    self.task.result()

    async def end(self) -> None:
        """Cancels it."""
        self.task.cancel()
        await asyncio.wait([self.task])


async def write(store: EtcdStore, value: bytes) -> None:
    """Puts `value`, however long it takes."""
    async with asyncio.timeout(SOON):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store.txn([], [Put("/w/a", value)], idempotent=True)
                return


async def until_health(store: EtcdStore, *, reachable: bool) -> None:
    async with asyncio.timeout(SOON):
        while store.health.reachable != reachable:
            await store.health_changed()


async def raw(endpoint: str, path: str, request: bytes) -> None:
    """A request that the store itself never makes."""
    async with aio.insecure_channel(endpoint) as channel:
        await channel.unary_unary(path)(request, timeout=SOON)


# A slow disk


@pytest.fixture
def slow_disk() -> Iterator[Callable[[int, float], None]]:
    """`slow_disk(pid, seconds)`: each time that the process has the disk write its data, it takes that much longer."""
    tracers: list[subprocess.Popen[bytes]] = []

    def slow(pid: int, seconds: float) -> None:
        if shutil.which("strace") is None:
            pytest.skip("no strace here, which makes a disk slow")
        inject = f"inject=fdatasync,fsync:delay_enter={round(seconds * 1e6)}"
        tracer = subprocess.Popen(
            ["strace", "-f", "-e", "trace=fdatasync,fsync", "-e", inject, "-o", "/dev/null", "-p", str(pid)],
            stderr=subprocess.PIPE,
        )
        tracers.append(tracer)
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
        if b"attached" not in said:
            pytest.skip(f"strace may not trace here: {said.decode().strip()}")

    yield slow
    for tracer in tracers:
        tracer.terminate()
        tracer.communicate(timeout=SOON)


async def test_a_disk_that_needs_seconds_for_a_write_is_waited_for(
    etcd: "Cluster", connect: Connect, slow_disk: Callable[[int, float], None]
) -> None:
    store = connect(etcd.endpoints)
    await write(store, b"before")
    process = etcd.members[0].process
    assert process is not None
    slow_disk(process.pid, 1.8)  # etcd has it write twice for each write
    await write(store, b"slow")
    lease = await store.grant(60)
    await store.txn([], [Put("/w/b", b"leased", lease)], idempotent=True)
    found = await store.get("/w/b")
    assert found is not None and found.value == b"leased"


# Servers that die


async def test_a_member_answers_a_transaction_without_operations_by_itself_and_the_store_does_not_ask_for_one(
    etcd3: "Cluster", connect: Connect
) -> None:
    """A member without the others cannot know what is committed: the simulated etcd answers like it."""
    store = connect([etcd3.endpoint], deadline=2.0)
    await write(store, b"1")
    for member in etcd3.members[1:]:
        member.pause()
    await raw(etcd3.endpoint, "/etcdserverpb.KV/Txn", pb.TxnRequest().SerializeToString())
    with pytest.raises(StoreUnavailable):
        await store.txn([], [])


async def test_a_watch_outlives_its_server_and_loses_and_repeats_nothing(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints)
    other = connect(etcd.endpoints)
    reader = Reader(store)
    values = [b"%d" % index for index in range(60)]
    for index, value in enumerate(values):
        if index in (20, 40):
            await reader.until(values[index - 1])
            await asyncio.to_thread(etcd.kill)
            await asyncio.to_thread(etcd.start)
        await write(other, value)

    await reader.until(values[-1])
    await reader.end()

    assert reader.values == values


async def test_writes_go_on_when_the_leader_is_killed(etcd3: "Cluster", connect: Connect) -> None:
    store = connect(etcd3.endpoints)
    reader = Reader(connect(etcd3.endpoints))
    leader = await etcd3.leader()
    for index in range(60):
        if index == 20:
            leader.kill()
        # A repeated attempt compares with what the last one left: no number is written twice.
        await write(store, b"%d" % index)

    await reader.until(b"59")
    await reader.end()

    assert sorted(set(map(int, reader.values))) == list(range(60))
    assert [int(value) for value in reader.values] == sorted(int(value) for value in reader.values)


async def test_a_frozen_member_is_left_for_another_by_calls_and_watches(etcd3: "Cluster", connect: Connect) -> None:
    store = connect(etcd3.endpoints)
    frozen = (await store.status()).endpoint
    reader = Reader(store)
    await write(store, b"before")
    await reader.until(b"before")

    next(member for member in etcd3.members if member.endpoint == frozen).pause()
    await write(store, b"after")
    await reader.until(b"after")
    await reader.end()

    assert (await store.status()).endpoint != frozen
    assert reader.values[0] == b"before"


async def test_a_lease_survives_a_short_loss_of_every_member(etcd3: "Cluster", connect: Connect) -> None:
    store = connect(etcd3.endpoints)
    lease = await store.grant(5)
    keeping = asyncio.create_task(store.keep_alive(lease, 5))
    await store.txn([], [Put("/w/leased", b"", lease)])
    reader = Reader(store)

    await asyncio.to_thread(etcd3.kill)
    await until_health(store, reachable=False)
    await asyncio.to_thread(etcd3.start)
    await until_health(store, reachable=True)
    await write(store, b"back")
    await reader.until(b"back")

    assert await store.get("/w/leased") is not None
    assert not keeping.done()
    await reader.end()
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_the_loss_of_the_only_member_is_seen_without_asking_it(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints)
    await write(store, b"x")
    reader = Reader(store)
    await reader.until(b"x")

    await asyncio.to_thread(etcd.kill)
    await until_health(store, reachable=False)

    assert etcd.endpoint in store.health.detail
    await reader.end()


# Quorum and doubt


async def test_a_member_without_a_quorum_serves_no_silent_watch(etcd3: "Cluster", connect: Connect) -> None:
    lone, *others = etcd3.members
    store = connect([lone.endpoint], deadline=2.0)
    await write(store, b"before")
    reader = Reader(store)
    await reader.until(b"before")

    for member in others:
        member.pause()
    await until_health(store, reachable=False)
    with pytest.raises(StoreUnavailable):
        await store.get("/w/a")
    assert (await store.status()).member != 0
    for member in others:
        member.resume()
    await write(store, b"after")
    await reader.until(b"after")
    await reader.end()


async def test_a_write_that_is_lost_in_frozen_servers_may_have_been_applied(etcd3: "Cluster", connect: Connect) -> None:
    store = connect(etcd3.endpoints, deadline=3.0)
    await write(store, b"before")
    etcd3.pause()

    with pytest.raises(MaybeApplied, match="may have been applied"):
        await store.txn([], [Put("/w/a", b"lost?")])
    # Whether this one was sent at all depends on which connections the first has given up.
    with pytest.raises(StoreUnavailable, match="within 3 s"):
        await store.txn([], [Put("/w/a", b"lost?")], idempotent=True)
    with pytest.raises(StoreUnavailable) as caught:
        await store.get("/w/a")
    assert not isinstance(caught.value, MaybeApplied)

    etcd3.resume()
    await write(store, b"after")
    kv = await store.get("/w/a")
    assert kv is not None


async def test_a_write_that_nobody_took_was_certainly_not_applied(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints, deadline=3.0)
    await write(store, b"before")
    await asyncio.to_thread(etcd.kill)
    await until_health_by_asking(store)

    with pytest.raises(StoreUnavailable, match="Connection refused") as caught:
        await store.txn([], [Put("/w/a", b"never")])

    assert not isinstance(caught.value, MaybeApplied)


async def until_health_by_asking(store: EtcdStore) -> None:
    with pytest.raises(StoreUnavailable):
        await store.get("/w/a")


async def test_an_idempotent_write_waits_for_a_frozen_server(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints)
    await write(store, b"before")
    etcd.pause()
    writing = asyncio.create_task(store.txn([], [Put("/w/a", b"after")], idempotent=True))
    await until_health(store, reachable=False)

    etcd.resume()

    assert (await asyncio.wait_for(writing, SOON)).succeeded


async def test_a_lease_is_granted_once_where_the_server_froze_meanwhile(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints)
    await write(store, b"before")
    etcd.pause()
    granting = asyncio.create_task(store.grant(60))
    await until_health(store, reachable=False)

    etcd.resume()
    lease = await asyncio.wait_for(granting, SOON)

    assert (await store.txn([], [Put("/w/leased", b"", lease)])).succeeded


async def test_a_call_in_flight_can_be_cancelled(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints)
    await write(store, b"before")
    etcd.pause()
    calls = [
        asyncio.create_task(store.get("/w/a")),
        asyncio.create_task(store.txn([], [Put("/w/a", b"")], idempotent=True)),
        asyncio.create_task(store.keep_alive(1, 1)),
        Reader(store).task,
    ]
    await until_health(store, reachable=False)

    for call in calls:
        call.cancel()
    done, pending = await asyncio.wait(calls, timeout=SOON)

    assert not pending
    assert all(call.cancelled() for call in done)
    etcd.resume()
    assert await asyncio.wait_for(store.get("/w/a"), SOON) is not None


# The network


async def test_a_cut_wire_is_left_for_another_member(etcd3: "Cluster", connect: Connect, relay: "MakeRelay") -> None:
    wires = [await relay(member.endpoint) for member in etcd3.members]
    store = connect([wire.endpoint for wire in wires])
    used = (await store.status()).endpoint
    await write(store, b"before")
    reader = Reader(store)
    await reader.until(b"before")

    next(wire for wire in wires if wire.endpoint == used).cut()
    await write(store, b"after")
    await reader.until(b"after")
    await reader.end()

    assert store.health.reachable
    assert (await store.status()).endpoint != used


async def test_a_cut_wire_is_noticed_by_a_watch_that_waits(
    etcd: "Cluster", connect: Connect, relay: "MakeRelay"
) -> None:
    wire = await relay(etcd.endpoint)
    store = connect([wire.endpoint])
    direct = connect(etcd.endpoints)
    await write(direct, b"before")
    reader = Reader(store)
    await reader.until(b"before")

    wire.cut()
    await until_health(store, reachable=False)
    await write(direct, b"meanwhile")
    wire.heal()
    await reader.until(b"meanwhile")
    await reader.end()

    assert reader.values == [b"before", b"meanwhile"]


async def test_a_watch_that_comes_back_too_late_is_told_that_the_history_is_gone(
    etcd: "Cluster", connect: Connect, relay: "MakeRelay"
) -> None:
    wire = await relay(etcd.endpoint)
    store = connect([wire.endpoint])
    direct = connect(etcd.endpoints)
    await write(direct, b"before")
    reader = Reader(store)
    await reader.until(b"before")
    wire.cut()
    for index in range(3):
        await write(direct, b"%d" % index)
    revision = (await direct.list("/w/")).revision
    await raw(etcd.endpoint, "/etcdserverpb.KV/Compact", pb.CompactionRequest(revision=revision).SerializeToString())

    wire.drop()
    wire.heal()

    with pytest.raises(Compacted) as caught:
        await asyncio.wait_for(reader.task, SOON)
    assert caught.value.revision == revision
    assert reader.values == [b"before"]


async def test_an_ipv6_address_is_an_endpoint(etcd_with: "EtcdWith", connect: Connect) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    cluster = etcd_with(host="[::1]")

    status = await connect(cluster.endpoints).status()

    assert status.endpoint.startswith("[::1]:")


async def test_a_name_is_an_endpoint(etcd: "Cluster", connect: Connect) -> None:
    endpoint = etcd.endpoint.replace("127.0.0.1", "localhost")

    assert (await connect([endpoint]).status()).endpoint == endpoint


async def test_a_name_that_does_not_resolve_is_unavailable(connect: Connect) -> None:
    with pytest.raises(StoreUnavailable, match=r"no-such-host\.invalid:2379"):
        await connect(["no-such-host.invalid:2379"], deadline=1.0).get("/w/a")


async def test_a_proxy_for_the_web_is_not_asked(
    etcd: "Cluster", connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)

    assert await connect(etcd.endpoints).get("/w/a") is None


# Servers that are not what they were


async def test_a_cluster_that_lost_its_data_is_refused(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints)
    for index in range(5):
        await write(store, b"%d" % index)
    reader = Reader(store)
    await reader.until(b"4")

    await asyncio.to_thread(etcd.kill)
    shutil.rmtree(etcd.members[0].directory / etcd.members[0].name)
    await asyncio.to_thread(etcd.start)

    with pytest.raises(StoreRefused, match="lost data"):
        await store.get("/w/a")
    with pytest.raises(StoreRefused, match="lost data"):
        await asyncio.wait_for(reader.task, SOON)


async def test_endpoints_of_two_clusters_are_refused(etcd: "Cluster", etcd_with: "EtcdWith", connect: Connect) -> None:
    other = etcd_with()
    store = connect([etcd.endpoint, other.endpoint])
    used = (await store.status()).endpoint
    await asyncio.to_thread((etcd if used == etcd.endpoint else other).kill)

    with pytest.raises(StoreRefused, match="not members of one cluster"):
        await store.get("/w/a")


async def test_no_space_says_whose_quota_it_is_and_what_to_type(etcd_with: "EtcdWith", connect: Connect) -> None:
    store = connect(etcd_with(["--quota-backend-bytes=4000000"]).endpoints)

    with pytest.raises(StoreRefused, match=r"quota.*etcdctl compact.*etcdctl defrag.*etcdctl alarm disarm"):
        for index in range(200):
            await store.txn([], [Put(f"/w/{index}", bytes(900_000))], idempotent=True)


async def test_a_smaller_limit_of_the_server_is_told_in_words(etcd_with: "EtcdWith", connect: Connect) -> None:
    store = connect(etcd_with(["--max-txn-ops=4"]).endpoints)

    with pytest.raises(StoreRefused, match="max-txn-ops"):
        await store.txn([], [Put(f"/w/{index}", b"") for index in range(5)])


async def test_a_status_tells_version_and_leader(etcd: "Cluster", connect: Connect) -> None:
    status = await connect(etcd.endpoints).status()

    assert status.version.startswith("3.")
    assert status.leader == status.member != 0


# Users


@pytest.fixture
async def guarded(etcd: "Cluster") -> "Cluster":
    """A server that asks for a user: `root` may all, `guest` nothing."""

    def two(first: str, second: str) -> bytes:
        return pb.AuthenticateRequest(name=first, password=second).SerializeToString()  # both messages have its shape

    for path, request in (
        ("UserAdd", two("root", "secret")),
        ("UserAdd", two("guest", "guest")),
        ("UserGrantRole", two("root", "root")),
        ("AuthEnable", b""),
    ):
        await raw(etcd.endpoint, f"/etcdserverpb.Auth/{path}", request)
    return etcd


async def test_a_user_with_the_right_password_can_do_everything(guarded: "Cluster", connect: Connect) -> None:
    store = connect(guarded.endpoints, credentials=Credentials("root", "secret"))
    lease = await store.grant(1)
    keeping = asyncio.create_task(store.keep_alive(lease, 1))
    await store.txn([Compare("/w/a", 0)], [Put("/w/a", b"x", lease)])
    reader = Reader(store)
    await reader.until(b"x")

    await store.revoke(lease)

    with pytest.raises(LeaseLost):
        await asyncio.wait_for(keeping, SOON)
    await reader.end()


async def test_a_wrong_password_is_refused(guarded: "Cluster", connect: Connect) -> None:
    store = connect(guarded.endpoints, credentials=Credentials("root", "wrong"))

    with pytest.raises(StoreRefused, match="refuses the user or the password"):
        await store.get("/w/a")


async def test_no_password_where_one_is_asked_for_is_refused(guarded: "Cluster", connect: Connect) -> None:
    store = connect(guarded.endpoints)

    with pytest.raises(StoreRefused, match="requires a user and a password"):
        await store.get("/w/a")
    with pytest.raises(StoreRefused):
        await asyncio.wait_for(Reader(store).task, SOON)


async def test_a_user_without_permission_is_refused(guarded: "Cluster", connect: Connect) -> None:
    store = connect(guarded.endpoints, credentials=Credentials("guest", "guest"))

    with pytest.raises(StoreRefused, match="no permission"):
        await store.get("/w/a")
    with pytest.raises(StoreRefused, match="no permission"):
        await asyncio.wait_for(Reader(store).task, SOON)


async def test_a_token_that_the_server_forgot_is_renewed(guarded: "Cluster", connect: Connect) -> None:
    store = connect(guarded.endpoints, credentials=Credentials("root", "secret"))
    await write(store, b"before")
    reader = Reader(store)
    await reader.until(b"before")

    await asyncio.to_thread(guarded.kill)
    await asyncio.to_thread(guarded.start)
    await write(store, b"after")

    await reader.until(b"after")
    await reader.end()


async def test_a_user_for_a_server_that_asks_for_none_is_no_error(etcd: "Cluster", connect: Connect) -> None:
    store = connect(etcd.endpoints, credentials=Credentials("root", "secret"))

    assert await store.get("/w/a") is None


def test_a_password_is_not_printed() -> None:
    assert "secret" not in repr(Credentials("root", "secret"))


# Certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def secured(certificates: Certificates, etcd_with: "EtcdWith") -> "Cluster":
    """A server with a certificate; it asks its clients for theirs."""
    cert, key = certificates.sign("server")
    options = [f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={certificates.ca}"]
    return etcd_with([*options, "--client-cert-auth"], scheme="https")


async def test_a_client_with_a_certificate_is_served(
    secured: "Cluster", certificates: Certificates, connect: Connect
) -> None:
    cert, key = certificates.sign("client")
    store = connect(secured.endpoints, tls=Tls(certificates.ca, cert, key))
    await write(store, b"x")
    reader = Reader(store)

    await reader.until(b"x")
    await reader.end()


async def test_a_server_of_another_authority_is_refused(secured: "Cluster", connect: Connect, tmp_path: Path) -> None:
    stranger = Certificates(tmp_path / "stranger")
    store = connect(secured.endpoints, deadline=4.0, tls=Tls(stranger.ca))

    with pytest.raises(StoreRefused, match=r"TLS certificates .* with --etcd-cacert"):
        await store.get("/w/a")


async def test_certificates_that_were_replaced_are_read_again(
    secured: "Cluster", certificates: Certificates, connect: Connect, tmp_path: Path
) -> None:
    cert, key = certificates.sign("client")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(await asyncio.to_thread(Path(Certificates(tmp_path / "of last year").ca).read_bytes))
    store = connect(secured.endpoints, deadline=6.0, tls=Tls(str(ca), cert, key))
    with pytest.raises(StoreRefused, match="TLS certificates"):
        await store.get("key")
    ca.unlink()
    with pytest.raises(StoreRefused, match="TLS certificates"):
        await store.get("key")
    ca.write_bytes(await asyncio.to_thread(Path(certificates.ca).read_bytes))
    assert await store.get("key") is None


async def test_a_client_without_a_certificate_is_not_served(
    secured: "Cluster", certificates: Certificates, connect: Connect
) -> None:
    store = connect(secured.endpoints, deadline=4.0, tls=Tls(certificates.ca))

    with pytest.raises(StoreRefused, match="with --etcd-cert and --etcd-key"):
        await store.get("/w/a")


def test_a_command_without_the_certificates_of_its_etcd_is_a_wrong_command_and_the_flag_is_named(
    secured: "Cluster", certificates: Certificates
) -> None:
    words = [sys.executable, "-m", "elastic_run", "--nnodes=2", f"--rdzv-endpoint=https://{secured.endpoint}"]
    missing = {"--etcd-cacert": [], "--etcd-cert and --etcd-key": [f"--etcd-cacert={certificates.ca}"]}
    started = {
        flag: subprocess.Popen([*words, *given, __file__], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for flag, given in missing.items()
    }
    for flag, process in started.items():
        said, _ = process.communicate(timeout=SOON)
        assert process.returncode == 2 and "cannot be used: etcd and this node" in said and f"with {flag}" in said, said


def test_a_certificate_that_cannot_be_read_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        EtcdStore(["127.0.0.1:2379"], tls=Tls(str(tmp_path / "nowhere.pem")))


def test_a_certificate_without_its_key_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="needs its key"):
        EtcdStore(["127.0.0.1:2379"], tls=Tls(cert="client.pem"))


# Living in a process that starts others


SPAWNER = """
import asyncio, subprocess, sys
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.store.contract import Put

async def main():
    store = EtcdStore(sys.argv[1:])
    for index in range(5):
        await store.txn([], [Put("/w/a", b"%d" % index)])
        command = [sys.executable, "-S", "-c", "print('child')"]
        child = await asyncio.create_subprocess_exec(*command, start_new_session=True)
        assert await child.wait() == 0
    print((await store.get("/w/a")).value)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("fork_support", ["0", "1"])
def test_a_process_that_uses_the_store_can_start_others(etcd: "Cluster", fork_support: str) -> None:
    environment = {**os.environ, "GRPC_ENABLE_FORK_SUPPORT": fork_support}
    command = [sys.executable, "-c", SPAWNER, *etcd.endpoints]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SOON)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("child") == 5
    assert "b'4'" in done.stdout


FORKER = """
import asyncio, os, sys
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore

async def main():
    store = EtcdStore(sys.argv[1:])
    await store.get("/w/a")
    for _ in range(40):
        if not (pid := os.fork()):
            os._exit(0)
        print("child", os.waitpid(pid, 0)[1])
    await store.close()
    print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))

asyncio.run(main())
"""


def test_a_child_lives_that_is_forked_while_a_connection_is_open(etcd: "Cluster") -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, "-c", FORKER, *etcd.endpoints]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SOON)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*["child 0"] * 40, "None"]
