"""A job of more than one node is encrypted although nobody says so: what its user sees, habit by habit."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_run.launcher.trust import INSECURE
from elastic_run.rendezvous.identity.secret import VARIABLE, own_secret
from elastic_run.rendezvous.store.endpoint import routable_address

from ..integration.cluster import Cluster, embedded_ports, failure

OTHER = "this node's secret is not that of the other side"


def at(host: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A job whose first agent starts the store there."""
    endpoint = f"{host}:{embedded_ports(1)[0]}"
    with Cluster(tmp_path / "job", endpoint, failure(request), embedded=True) as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    yield from at("127.0.0.1", tmp_path, request)


@pytest.fixture
def network(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The same, at an address that other machines reach."""
    host = routable_address(())
    if host.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    yield from at(host, tmp_path, request)


def home(path: Path) -> dict[str, str]:
    """The environment of a user whose configuration lies there."""
    return {"XDG_CONFIG_HOME": str(path)}


def test_the_same_command_with_one_home_folder_is_one_job(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("A", "B", nnodes=2, env=home(tmp_path))
    workers = cluster.workers(2)
    workers.release()
    assert cluster.finish() == {"A": 0, "B": 0}
    said = "\n".join(line for node in "AB" for line in cluster.nodes[node].lines)
    assert said.count("the secret that protects your jobs was made") == 1
    assert INSECURE not in said and "Run this on" not in said, "nobody else reaches loopback"
    assert said.count("no other machine reaches it: for nodes on others, name the address") == 1


def test_the_same_command_with_another_home_folder_is_refused_in_words(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start("A", nnodes="1:2", env=home(tmp_path / "a"))
    workers = cluster.workers(1)
    cluster.start("B", env=home(tmp_path / "b"))
    line = cluster.wait_for_line("B", OTHER).string
    assert all(way in line for way in ("elastic-run join", "--join-file", VARIABLE, "--insecure")), line
    cluster.nodes["B"].process.wait(60)
    workers.release()
    assert cluster.finish() == {"A": 0, "B": 2}


def test_the_agent_that_starts_the_store_tells_how_other_machines_join(network: Cluster, tmp_path: Path) -> None:
    network.start("A", nnodes=2, env=home(tmp_path / "a"))
    network.wait_for_line("A", "a secret that other machines need, too. Run this on them:")
    network.wait_for_line("A", r"elastic-run join elastic-run://\S+ --nnodes=2 ")
    kept = tmp_path / "a" / "elastic-run" / "secret"
    network.wait_for_line("A", rf"copy {re.escape(str(kept))} there first")
    secret, _ = own_secret(kept.parent)
    network.start("B", env=home(tmp_path / "b") | {VARIABLE: secret.text})
    network.workers(2).release()
    assert network.finish() == {"A": 0, "B": 0}
    assert not any("Run this on them" in line for line in network.nodes["B"].lines), "one agent starts the store"
    assert not any(secret.text in line for node in network.nodes.values() for line in node.lines)


def test_a_node_with_insecure_and_one_without_do_not_meet(cluster: Cluster) -> None:
    cluster.start("A", nnodes="1:2", insecure="")
    workers = cluster.workers(1)
    cluster.wait_for_line("A", re.escape(INSECURE))
    cluster.start("B", insecure=None)
    cluster.wait_for_line("B", "it speaks no TLS.*give --insecure to join that job")
    workers.release()
    assert cluster.finish() == {"A": 0, "B": 2}


def test_an_etcd_of_the_users_own_has_to_be_named_as_that(job: Cluster) -> None:
    job.start("A", nnodes="1:2", rdzv_endpoint=job.endpoint)
    job.wait_for_line("A", "it speaks no TLS. If it is an etcd of your own, write http:// before its address")
    assert job.finish() == {"A": 2}


def test_nodes_with_two_secrets_at_a_store_of_the_users_own_are_told(job: Cluster, tmp_path: Path) -> None:
    job.start("A", nnodes="1:2", env=home(tmp_path / "a"))
    workers = job.workers(1)
    job.start("B", env=home(tmp_path / "b"))
    job.wait_for_line("B", "its nodes have another secret than this one.*--join-file=FILE or in ELASTIC_RUN_SECRET")
    job.nodes["B"].process.wait(60)
    workers.release()
    assert job.finish() == {"A": 0, "B": 2}
