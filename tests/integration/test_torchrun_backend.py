"""`torchrun --rdzv-backend=elastic-etcd`: what torch asks of a backend, and real jobs of torchrun with faults."""

import contextlib
import os
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.distributed import DistStoreError  # noqa: E402  # torch may be absent
from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousConnectionError,
    RendezvousParameters,
    RendezvousStateError,
)

from elastic_run.adapters.torch.etcd_c10d_store import EtcdC10dStore  # noqa: E402
from elastic_run.adapters.torch.etcd_connection import Connection  # noqa: E402
from elastic_run.adapters.torch.etcd_rendezvous import SHARED_STORE, EtcdBackend, make  # noqa: E402
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore  # noqa: E402

from ..sampling import SEED, SOAK  # noqa: E402
from . import cluster, conftest  # noqa: E402
from .certificates import Certificates  # noqa: E402
from .cluster import SCRIPTS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
"""For a round of fresh interpreters that import torch, on a busy machine."""

STALL_SECONDS = 4.0
"""How long etcd does not answer: less than agents may miss keep-alives."""

Connect = Callable[[], Connection]


@pytest.fixture
def connect(shared_etcd: conftest.Cluster) -> Iterator[Connect]:
    """A connection of the test's own, at each call."""
    with contextlib.ExitStack() as made:

        def connection() -> Connection:
            found = Connection(lambda: EtcdStore([shared_etcd.endpoint]), seconds=10, ttl=60)
            made.callback(found.close)
            return found

        yield connection


def test_there_is_no_state_at_first_and_one_agent_sets_the_first(connect: Connect, prefix: str) -> None:
    one, two = EtcdBackend(connect(), prefix), EtcdBackend(connect(), prefix)
    assert one.get_state() is None
    state, token, done = one.set_state(b"one") or pytest.fail("nothing was set")
    assert (state, done) == (b"one", True)
    assert two.set_state(b"two") == (b"one", token, False)
    assert one.get_state() == two.get_state() == (b"one", token)


def test_a_state_is_replaced_by_the_token_that_goes_with_it_and_by_no_other(connect: Connect, prefix: str) -> None:
    one, two = EtcdBackend(connect(), prefix), EtcdBackend(connect(), prefix)
    _, first, _ = one.set_state(b"one") or pytest.fail("nothing was set")
    _, second, done = two.set_state(b"two", first) or pytest.fail("nothing was set")
    assert done and second != first
    assert one.set_state(b"late", first) == (b"two", second, False)
    assert one.set_state(b"odd", "no token of ours") == (b"two", second, False)
    assert one.get_state() == (b"two", second)
    assert EtcdBackend(connect(), f"{prefix}other").set_state(b"late", first) is None, "there is no such state"


def test_a_state_that_was_set_without_an_answer_counts_as_set(connect: Connect, prefix: str) -> None:
    backend = EtcdBackend(connect(), prefix)
    _, first, _ = backend.set_state(b"one") or pytest.fail("nothing was set")
    _, second, _ = backend.set_state(b"two", first) or pytest.fail("nothing was set")
    assert backend.set_state(b"two", first) == (b"two", second, True), "as the client asks again"


def test_what_is_no_state_is_called_so(connect: Connect, prefix: str) -> None:
    connection = connect()
    backend = EtcdBackend(connection, prefix)
    connection.call(connection.write([], {f"/elastic-run/torchrun/{prefix}/state": b"something else"}))
    with pytest.raises(RendezvousStateError, match=r"holds no state of a rendezvous: delete it"):
        backend.get_state()
    with pytest.raises(RendezvousStateError):
        backend.set_state(b"one")
    with pytest.raises(ValueError, match="the run id is empty"):
        EtcdBackend(connection, "")


def test_the_id_of_a_job_that_has_ended_is_free_again(connect: Connect, prefix: str) -> None:
    connection = connect()
    backend = EtcdBackend(connection, prefix)
    backend.set_state(b"closed")
    former = backend.prefix

    async def gone() -> None:
        key = f"/elastic-run/torchrun/{prefix}/state"
        listing = await connection.store.list(key)
        async with contextlib.aclosing(connection.store.watch(key, listing.revision + 1)) as changes:
            async for events in changes:
                if any(event.kind == "delete" for event in events):
                    return

    backend.expire(1)
    if backend.get_state() is not None:
        connection.call(gone(), SECONDS)
    assert backend.get_state() is None
    backend.set_state(b"another")
    assert backend.prefix != former, "nothing of the former job is read"


def test_agents_tell_each_other_values_and_count(connect: Connect, prefix: str) -> None:
    one, two = (EtcdC10dStore(connection, lambda: prefix) for connection in (connect(), connect()))
    for store in (one, two):
        store.set_timeout(timedelta(seconds=SECONDS))
    found: list[list[bytes]] = []
    waits = threading.Thread(target=lambda: found.append(two.multi_get(["a", "b"])))
    waits.start()
    one.set("a", "text")
    one.multi_set(["b", "ab"], [b"bytes", b"not asked for"])
    waits.join(SECONDS)
    assert found == [[b"text", b"bytes"]]
    assert one.check(["a", "b"]) and not one.check(["a", "c"])

    sums: list[int] = []
    counts = [threading.Thread(target=lambda store=store: sums.append(store.add("n", 2))) for store in (one, two) * 3]
    for thread in counts:
        thread.start()
    for thread in counts:
        thread.join(SECONDS)
    assert sorted(sums) == [2, 4, 6, 8, 10, 12] and one.get("n") == b"12"
    with pytest.raises(DistStoreError, match=r"waited 0.1 s for c in etcd: nobody set it"):
        one.wait(["c"], timedelta(seconds=0.1))


def test_an_etcd_that_does_not_answer_is_a_lost_connection(etcd: conftest.Cluster) -> None:
    with contextlib.closing(
        Connection(lambda: EtcdStore([etcd.endpoint], deadline=1), seconds=1, ttl=60)
    ) as connection:
        backend = EtcdBackend(connection, "job")
        etcd.kill()
        with pytest.raises(RendezvousConnectionError, match="etcd: "):
            backend.get_state()
        with pytest.raises(RendezvousConnectionError, match="etcd: "):
            backend.set_state(b"one")
        etcd.start()
        assert backend.get_state() is None
    with pytest.raises(RendezvousConnectionError, match="the connection is closed"):
        backend.get_state()


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"read_timeout": "0"}, "read_timeout must be a positive number"),
        ({"protocol": "tcp"}, "neither http nor https"),
        ({"protocol": "http", "ca_cert": "ca.pem"}, "contradicts the certificates"),
        ({"user": "ada"}, "user has no password"),
        ({"ssl_cert": "cert.pem"}, "a client certificate needs its key"),
        ({"cacert": "/nowhere/ca.pem"}, "cannot read the TLS file /nowhere/ca.pem"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_asked(conf: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(RendezvousParameters("elastic-etcd", "127.0.0.1:1", "job", 1, 2, **conf))


def test_a_handler_speaks_to_an_etcd_with_certificates_and_leaves_nothing_open(
    tmp_path: Path, etcd_with: Callable[..., conftest.Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    cert, key = certificates.sign("server")
    options = (f"--cert-file={cert}", f"--key-file={key}", f"--trusted-ca-file={certificates.ca}", "--client-cert-auth")
    secured = etcd_with(options, scheme="https")
    cert, key = certificates.sign("client")
    conf = {"ca_cert": str(certificates.ca), "ssl_cert": str(cert), "ssl_cert_key": str(key), "read_timeout": "10"}
    parameters = RendezvousParameters("elastic-etcd", secured.endpoint, "job", 1, 2, **conf)
    monkeypatch.delenv(SHARED_STORE, raising=False)
    handler = make(parameters)
    assert os.environ[SHARED_STORE] == "1" and not handler.use_agent_store
    assert (handler.get_backend(), handler.get_run_id()) == ("elastic-etcd", "job")
    assert (handler.is_closed(), handler.num_nodes_waiting()) == (False, 0)
    late = make(parameters)
    assert handler.shutdown()
    assert late.is_closed()
    assert late.shutdown()
    with pytest.raises(RendezvousConnectionError, match="etcd: "):
        make(RendezvousParameters("elastic-etcd", secured.endpoint, "job", 1, 2, read_timeout="1"))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("etcd")]


class Torchrun(cluster.Cluster):
    """Nodes whose agents are torchrun's."""

    def command(self, name: str) -> list[str]:
        """torchrun's, with what makes it quick; a keep-alive may be late on a busy machine."""
        flags = {
            "nnodes": self.flags["nnodes"],
            "nproc-per-node": "1",
            "max-restarts": "30",
            "monitor-interval": "0.1",
            "local-addr": "127.0.0.1",
            "rdzv-backend": "elastic-etcd",
            "rdzv-endpoint": self.endpoint,
            "rdzv-id": self.job,
            "rdzv-conf": "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=15",
        }
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        return [sys.executable, "-m", "torch.distributed.run", *words, str(self.script), *self.args]


@pytest.fixture
def torchrun(tmp_path: Path, etcd: conftest.Cluster, request: pytest.FixtureRequest) -> Iterator[Torchrun]:
    """A job of torchrun's, and its etcd, which the test may hurt."""
    with Torchrun(tmp_path / "job", etcd.endpoint, cluster.failure(request)) as made:
        yield made


def start(job: Torchrun, *nodes: str, nnodes: str, hold: tuple[int, ...]) -> None:
    site = job.directory / "site-packages" / "points-1.0.dist-info"  # as installed, whichever version is here
    site.mkdir(parents=True, exist_ok=True)
    (group,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"].values()
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: points\nVersion: 1.0\n")
    lines = ["[torchrun.handlers]", *(f"{name} = {value}" for name, value in group.items()), ""]
    (site / "entry_points.txt").write_text("\n".join(lines))
    args = (f"--checkpoint={job.directory / 'steps'}", "--steps=18", "--hold", *map(str, hold))
    env = {"PYTHONPATH": str(site.parent)}
    job.start(*nodes, script=SCRIPTS / "torchrun_steps.py", args=args, env=env, nnodes=nnodes)


VICTIMS = [1, 0] * 5 if SOAK else [1, SEED % 2]
"""The ranks of the workers that are killed, one after the other."""


def test_torchrun_goes_on_when_workers_agents_and_etcd_die_and_come(torchrun: Torchrun, etcd: conftest.Cluster) -> None:
    hold = (*range(1, 1 + len(VICTIMS)), 12, 14, 16)
    start(torchrun, "A", "B", nnodes="1:2", hold=hold)
    for step, victim in enumerate(VICTIMS, 1):
        torchrun.workers(2, SECONDS).wait_for(f"step {step}")
        torchrun.kill_worker(victim)
    workers = torchrun.workers(2, SECONDS)
    workers.wait_for("step 12")
    first, other = workers.nodes

    etcd.kill()
    etcd.start()
    torchrun.kill_machine(first)
    torchrun.workers(1, SECONDS).wait_for("step 14")

    etcd.members[0].pause()
    start(torchrun, "C", nnodes="1:2", hold=hold)
    time.sleep(STALL_SECONDS)
    etcd.members[0].resume()
    workers = torchrun.workers(2, SECONDS)
    workers.wait_for("step 16")
    workers.release()
    assert torchrun.finish(SECONDS) == {other: 0, "C": 0}
    assert (torchrun.directory / "steps").read_text() == "18"
