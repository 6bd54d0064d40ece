"""Users of an etcd of one's own: what a job's user can do, and where its password can be read."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from elastic_run.rendezvous.base.errors import StoreError, StoreRefused
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.store.contract import Delete, Put
from elastic_run.rendezvous.store.etcd.etcd_store import Credentials, EtcdStore

from ..integration import cluster

if TYPE_CHECKING:
    from ..integration.conftest import Cluster as Etcd

PASSWORD = "hush-3141592653"

Grant = Callable[[str, str], None]


@pytest.fixture
def guarded(etcd: "Etcd") -> Iterator[Grant]:
    """Adds a user of that name, whose role may read and write the keys with that prefix."""

    def etcdctl(*words: str) -> None:
        program = Path(sys.executable).with_name("etcdctl")
        command = [program, f"--endpoints={etcd.endpoint}", "--user=root:root", *words]
        subprocess.run(command, check=True, capture_output=True)

    def grant(user: str, prefix: str) -> None:
        etcdctl("user", "add", f"{user}:{PASSWORD}")
        etcdctl("role", "add", user)
        etcdctl("role", "grant-permission", user, "readwrite", "--prefix", prefix)
        etcdctl("user", "grant-role", user, user)

    before = [f"--endpoints={etcd.endpoint}"]
    program = Path(sys.executable).with_name("etcdctl")
    for words in (["user", "add", "root:root"], ["user", "grant-role", "root", "root"], ["auth", "enable"]):
        subprocess.run([program, *before, *words], check=True, capture_output=True)
    yield grant


@pytest.fixture
def job(tmp_path: Path, etcd: "Etcd", request: pytest.FixtureRequest) -> Iterator[cluster.Cluster]:
    """A job on that etcd."""
    with cluster.Cluster(tmp_path / "job", etcd.endpoint, cluster.failure(request)) as made:
        yield made


async def ends(endpoint: str, user: str, job: str) -> bool:
    """Whether that user can end that job."""
    store = EtcdStore([endpoint], credentials=Credentials(user, PASSWORD))
    try:
        found = await store.list(Keys(job).root)
        await store.txn([], [Delete(item.key) for item in found.items] or [Put(Keys(job).outcome, b"{}")])
        return True
    except StoreRefused:
        return False
    finally:
        await store.close()


async def test_a_user_of_one_job_can_run_it_and_can_end_no_other(
    etcd: "Etcd", guarded: Grant, job: cluster.Cluster
) -> None:
    guarded("mine", Keys(job.job).root)
    guarded("other", Keys("another").root)
    guarded("everything", "/elastic-run/")
    job.start("A", "B", nnodes=2, etcd_user="mine", env={"ELASTIC_RUN_ETCD_PASSWORD": PASSWORD})
    workers = job.workers(2)
    assert not await ends(etcd.endpoint, "other", job.job)
    job.kill_worker(0)
    workers = job.workers(2)  # a round more: every kind of write was allowed
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}
    # The attack is one: a role for all jobs can end each of them.
    assert await ends(etcd.endpoint, "everything", "another")


def test_the_password_of_the_store_is_in_no_environment_and_in_no_file(
    guarded: Grant, job: cluster.Cluster, tmp_path: Path
) -> None:
    guarded("mine", Keys(job.job).root)
    job.start("A", "B", nnodes=2, etcd_user="mine", env={"ELASTIC_RUN_ETCD_PASSWORD": PASSWORD})
    workers = job.workers(2)
    shown: list[str] = []
    for pid in job.processes():
        for kind in ("environ", "cmdline"):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has just ended
                data = Path(f"/proc/{pid}/{kind}").read_bytes()
                shown += [f"{kind} of {pid}: {data!r}"] if PASSWORD.encode() in data else []
    assert shown == []
    workers.release()
    assert job.finish() == {"A": 0, "B": 0}
    written = [path for path in (tmp_path / "job").rglob("*") if path.is_file()]
    assert written and not [path for path in written if PASSWORD.encode() in path.read_bytes()]


async def test_a_user_without_a_role_reads_nothing(etcd: "Etcd", guarded: Grant) -> None:
    guarded("other", "/elsewhere/")
    store = EtcdStore([etcd.endpoint], credentials=Credentials("other", PASSWORD))
    try:
        with pytest.raises(StoreError):
            await store.list("/elastic-run/")
    finally:
        await store.close()
