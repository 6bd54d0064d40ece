"""Jobs whose nodes share a secret: what is asked of them without it, and where the secret could be read.

Each attack is shown to work against the same job without a secret.
"""

import asyncio
import contextlib
import os
import ssl
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastic_run.rendezvous import failure_detector
from elastic_run.rendezvous.identity import SERVER_NAME
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import VARIABLE, Secret, new_secret
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.store.embedded import etcd_admin
from elastic_run.rendezvous.store.embedded.member_slot import Reach, peer_port
from elastic_run.rendezvous.store.endpoint import Endpoint
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore, Proof
from elastic_run.rendezvous.wire.values import decode

from ..integration.cluster import Cluster, embedded_ports, failure

READ_ALL: dict[str, object] = {"key": "AA==", "range_end": "AA=="}
"""Every key of a store, as etcd's gateway is asked for it."""

SECONDS = 10.0


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A job that starts its own store."""
    endpoint = f"127.0.0.1:{embedded_ports(1)[0]}"
    with Cluster(tmp_path / "job", endpoint, failure(request), embedded=True) as made:
        yield made


def store_at(cluster: Cluster) -> Endpoint:
    host, _, port = str(cluster.endpoint).rpartition(":")
    return Endpoint(host, int(port))


async def addresses(cluster: Cluster, identity: Identity | None) -> list[tuple[str, str]]:
    """The address and the incarnation of each agent, as the store says."""
    tls = Proof(lambda: identity.pem, SERVER_NAME) if identity else None
    store = EtcdStore([str(store_at(cluster))], tls=tls)
    try:
        found = await store.list(Keys(cluster.job).nodes)
    finally:
        await store.close()
    members = [decode(Member, item.value) for item in found.items]
    return [(member.agent_address, member.incarnation) for member in members]


async def reads(endpoint: Endpoint, tls: ssl.SSLContext | None) -> bool:
    """Whether the store gives away its keys, over HTTP."""
    try:
        return bool((await etcd_admin.call(endpoint, "/v3/kv/range", READ_ALL, SECONDS, tls)).get("kvs"))
    except (etcd_admin.NotAnswered, etcd_admin.EtcdAdminRefused):
        return False


async def greets(address: str, incarnation: str, tls: ssl.SSLContext | None) -> bool:
    """Whether the agent says who it is."""
    try:
        _, writer = await failure_detector.dial(address, incarnation, tls)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def anyone() -> ssl.SSLContext:
    """Speaks TLS, believes everybody, and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def stranger() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a store and an agent: certificates of another secret; believes everybody."""
    identity = Identity(new_secret())
    assert identity.store is not None
    for context in (identity.store, identity.client):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return identity.store, identity.client


def held_by(paths: Iterator[Path], secret: Secret) -> list[Path]:
    """The files that contain the secret."""
    found: list[Path] = []
    for path in paths:
        try:
            if stat.S_ISREG(path.lstat().st_mode) and secret.text.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found


def test_without_a_secret_everybody_of_the_machine_is_let_in(cluster: Cluster) -> None:
    cluster.start("A", "B", nnodes=2, insecure="")
    workers = cluster.workers(2)

    async def attack() -> None:
        assert await reads(store_at(cluster), None)
        assert all([await greets(*each, None) for each in await addresses(cluster, None)])

    asyncio.run(attack())
    workers.release()
    assert cluster.finish() == {"A": 0, "B": 0}


def test_with_a_secret_nobody_else_is_let_in_and_it_can_be_read_nowhere(cluster: Cluster, tmp_path: Path) -> None:
    secret = new_secret()
    cluster.start("A", "B", nnodes=2, env={VARIABLE: secret.text}, trace=str(tmp_path / "trace"))
    workers = cluster.workers(2)
    identity = Identity(secret)
    endpoint = store_at(cluster)
    ports = (endpoint, replace(endpoint, port=peer_port(endpoint.port)))

    async def attack() -> None:
        for_store, for_agents = stranger()
        assert await reads(endpoint, identity.store), "who knows the secret is let in"
        for port in ports:
            for tls in (None, anyone(), for_store):
                assert not await reads(port, tls)
        agents = await addresses(cluster, identity)
        assert len(agents) == 2
        for address, incarnation in agents:
            assert await greets(address, incarnation, identity.client), "who knows the secret is greeted"
            for tls in (None, anyone(), for_agents):
                assert not await greets(address, incarnation, tls)
        probe = await etcd_admin.probe(endpoint, tls=Identity(new_secret()).store)
        assert probe.reach is Reach.STRANGER and "this node's secret is not" in probe.detail

    asyncio.run(attack())
    shown = [pid for pid in cluster.processes() if any(secret.text.encode() in text for text in of_process(pid))]
    assert not shown, f"processes that show the secret: {shown}"
    assert VARIABLE not in workers[0].env
    workers.release()
    assert cluster.finish() == {"A": 0, "B": 0}
    assert not any(secret.text in node.text for node in cluster.nodes.values())
    assert not held_by(tmp_path.rglob("*"), secret)


def of_process(pid: int) -> tuple[bytes, bytes]:
    """Its arguments and its first environment."""

    def read(name: str) -> bytes:
        try:
            return Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            return b""

    return read("cmdline"), read("environ")


def test_a_node_with_another_secret_is_told_so_at_once(cluster: Cluster) -> None:
    secret = new_secret()
    cluster.start("A", nnodes="1:2", env={VARIABLE: secret.text})
    workers = cluster.workers(1)
    cluster.start("B", env={VARIABLE: new_secret().text})
    said = cluster.wait_for_line("B", "cannot be used: this node's secret is not that of the other side")
    assert "--join-file" in said.string
    cluster.wait_until(lambda: cluster.nodes["B"].ended or None, "B ends")
    assert cluster.nodes["B"].process.wait() == 2
    workers.release()
    assert cluster.finish()["A"] == 0


def test_of_two_secrets_that_start_together_in_ones_own_store_one_is_refused(job: Cluster) -> None:
    for name in "AB":
        job.start(name, nnodes="1:2", conf={"last_call_timeout": 0}, env={VARIABLE: new_secret().text})
    workers = job.workers(1)
    (leads,) = workers.nodes
    (other,) = {"A", "B"} - {leads}
    job.wait_until(lambda: job.nodes[other].ended or None, f"{other} ends")
    assert job.nodes[other].process.wait() == 2
    job.wait_for_line(other, "nodes have another secret than this one")
    assert "another version" not in job.log(leads)
    workers.release()
    assert job.finish() == {leads: 0, other: 2}


def test_a_secret_in_a_file_that_others_can_read_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "join"
    file.write_text(new_secret().text)
    file.chmod(0o644)
    cluster.start("A", nnodes=2, join_file=str(file))
    cluster.wait_for_line("A", r"--join-file=.*: others have access to .* \(mode 0644\): chmod 600")
    assert cluster.nodes["A"].process.wait() == 2


def test_a_line_to_join_is_gone_from_the_arguments(cluster: Cluster) -> None:
    secret = new_secret()
    cluster.start("A", nnodes="1:2", env={VARIABLE: secret.text})
    workers = cluster.workers(1)
    line = f"elastic-run://{cluster.endpoint}/{cluster.job}#{secret.text}"
    command: Callable[[str], list[str]] = cluster.command

    def joining(name: str) -> list[str]:
        python, option, module, *words = command(name)
        kept = [word for word in words if not word.startswith(("--rdzv-endpoint", "--rdzv-id"))]
        return [python, option, module, "join", line, *kept]

    cluster.command = joining  # type: ignore[method-assign]  # one node of this test is started so
    cluster.start("B")
    workers = cluster.workers(2)
    shown = [pid for pid in cluster.processes() if any(secret.text.encode() in text for text in of_process(pid))]
    assert not shown, f"processes that show the secret: {shown}"
    assert os.getpid() not in shown
    cluster.wait_for_line("B", "stood on the command line, where until now every user of this machine could read its")
    workers.release()
    assert cluster.finish() == {"A": 0, "B": 0}
