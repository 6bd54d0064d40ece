"""`elastic-run master --platform=kubernetes`: its process starts, replaces and stops the job's nodes itself.

A process of this machine stands in for each pod (`local_nodes.py`).
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from elastic_run.master.machine.targets import Target, Targets
from elastic_run.master.publish import Publisher
from elastic_run.rendezvous.base.errors import Deposed
from elastic_run.rendezvous.election import Leadership
from elastic_run.rendezvous.header import Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.reasons import KeepsItsSize
from elastic_run.rendezvous.store.contract import KeyValue, Put
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.wire.values import decode

from .cluster import command_line, seal
from .commands import run
from .conftest import Cluster
from .local_nodes import PLACES

SECONDS = 90.0

HELD = """
import os, pathlib, sys, time
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
while not (pathlib.Path(sys.argv[1]).exists() or pathlib.Path(f"{sys.argv[1]}.{os.getppid()}").exists()):
    time.sleep(0.05)
sys.exit(int(sys.argv[2]))
"""

WAITS = """
import os, pathlib, sys, time
from elastic_run.adapters.client import steps

steps.EACH = 0.1  # it tells of its steps more often, so that it is measured sooner
world, counter = int(os.environ["WORLD_SIZE"]), steps.Steps()
print(f"rank {os.environ['RANK']} of {world}", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.03 if world <= 2 else 0.09)  # a third worker is in another rack
    counter.committed()
"""


class Managed:
    """A master with its nodes."""

    def __init__(
        self, folder: Path, endpoint: str, *flags: str, code: int = 0, places: int = 1000, source: str = HELD
    ) -> None:
        self.job = folder.name
        self.release = folder / "release"
        self._log = folder / "log"
        script = folder / "held.py"
        script.write_text(source)
        times = "--rdzv-conf=last_call_timeout=0,settle=0,scale_up_interval=0,lease_ttl=3"
        words = [
            "master",
            "--platform=kubernetes",
            f"--rdzv-endpoint=http://{endpoint}",
            f"--rdzv-id={folder.name}",
            times,
        ]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.local_nodes",
                    *words,
                    *flags,
                    str(script),
                    str(self.release),
                    str(code),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, PLACES: str(places)},
            )

    @property
    def text(self) -> str:
        return self._log.read_text()

    def nodes(self) -> list[psutil.Process]:
        """The agents: its children that run the launcher."""
        found: list[psutil.Process] = []
        for each in psutil.Process(self.process.pid).children():
            if "\0--node-name=" in command_line(each.pid):
                found.append(each)
        return found

    def node(self, name: str) -> psutil.Process:
        """The agent of the node of that name."""
        (found,) = (each for each in self.nodes() if f"\0--node-name={name}\0" in command_line(each.pid))
        return found

    def wait_for(self, pattern: str, times: int = 1) -> None:
        end = time.monotonic() + SECONDS
        while len(re.findall(pattern, self.text)) < times:
            assert time.monotonic() < end and self.process.poll() is None, f"{pattern!r} x{times} in\n{self.text}"
            time.sleep(0.05)

    def finish(self) -> int:
        self.release.touch()
        return self.process.wait(SECONDS)


@pytest.fixture
def started(tmp_path: Path, etcd: Cluster) -> Iterator[list[Managed]]:
    found: list[Managed] = []
    yield found
    for each in found:
        children = psutil.Process(each.process.pid).children(recursive=True) if each.process.poll() is None else []
        each.process.kill()
        each.process.wait()
        for child in children:
            child.kill()


def test_a_node_that_is_killed_is_replaced_and_the_job_ends_with_its_nodes(
    tmp_path: Path, etcd: Cluster, started: list[Managed]
) -> None:
    job = Managed(tmp_path, etcd.endpoint, "--nnodes=2")
    started.append(job)
    job.wait_for(r"rank \d of 2", 2)
    before = job.nodes()
    assert len(before) == 2
    before[0].send_signal(signal.SIGKILL)
    job.wait_for(r"rank \d of 2", 4)
    after = {each.pid for each in job.nodes()}
    assert len(after) == 2 and before[1].pid in after and before[0].pid not in after
    assert job.finish() == 0, job.text
    assert not any(psutil.pid_exists(pid) for pid in after)


@asynccontextmanager
async def store_of(etcd: Cluster) -> AsyncGenerator[EtcdStore]:
    store = EtcdStore([etcd.endpoint], seal=seal())
    try:
        yield store
    finally:
        await store.close()


def leader_other_than(etcd: Cluster, job: str, *others: str) -> tuple[str, int]:
    """Who leads, as soon as it is none of these, and its token."""

    async def ask() -> tuple[str, int]:
        async with store_of(etcd) as store, asyncio.timeout(SECONDS):
            while True:
                listing = await store.list(Keys(job).leader)
                for held in listing.items:
                    if (name := decode(Leader, held.value).node) not in others:
                        return name, held.create_revision
                async for _ in store.watch(Keys(job).leader, listing.revision + 1):
                    break

    return asyncio.run(ask())


def written(etcd: Cluster, job: str) -> list[tuple[str, str]]:
    """All that was written of what the job wants since the store began: who led then, and what; empty: removed."""

    async def read() -> list[tuple[str, str]]:
        keys, leads = Keys(job), ""
        found: list[tuple[str, str]] = []
        async with store_of(etcd) as store, asyncio.timeout(SECONDS):
            end = (await store.txn([], [Put(f"{keys.root}end-of-test", b"")])).revision
            async for events in store.watch(keys.root, 1, prefix=True):
                for event in events:
                    if event.kv.key == keys.leader and event.kind == "put":
                        leads = decode(Leader, event.kv.value).node
                    elif event.kv.key == keys.targets:
                        wanted = decode(Targets, event.kv.value).wanted if event.kind == "put" else ()
                        found.append((leads, ", ".join(f"{each.count}: {each.reason.code}" for each in wanted)))
                if events[0].kv.mod_revision >= end:
                    break
        return found

    return asyncio.run(read())


def write_late(etcd: Cluster, job: str, token: int) -> tuple[KeyValue | None, KeyValue | None]:
    """A leader with that token writes what it wants; what the key holds before and after. Raises Deposed."""

    async def write() -> tuple[KeyValue | None, KeyValue | None]:
        keys = Keys(job)
        async with store_of(etcd) as store:
            before = await store.get(keys.targets)
            publisher = Publisher(store, keys, Leadership(keys.leader, token), 0, 0)
            with pytest.raises(Deposed, match="another master leads"):
                await publisher.put_targets(Targets((Target("", 1, KeepsItsSize()),)))
            return before, await store.get(keys.targets)

    return asyncio.run(write())


def test_the_node_manager_follows_what_each_leader_writes_while_agents_lead(
    tmp_path: Path, etcd: Cluster, started: list[Managed]
) -> None:
    job = Managed(tmp_path, etcd.endpoint, "--nnodes=1:3", places=2)
    started.append(job)
    probe = rf"platform: {{}} {job.job}-2-0\n"
    job.wait_for(r"rank \d of 2", 2)
    job.wait_for(probe.format("starts"))
    own, token = leader_other_than(etcd, job.job)
    # This process stands still until an agent leads, and goes on with its node manager alone.
    job.process.send_signal(signal.SIGSTOP)
    first, _ = leader_other_than(etcd, job.job, own)
    job.process.send_signal(signal.SIGCONT)
    job.wait_for("lease expired")
    nodes = {f"{job.job}-{index}-0" for index in range(2)}
    (second,) = nodes - {first}
    before, after = write_late(etcd, job.job, token)
    assert before == after and before, "its last write comes late, and changes nothing"
    # A rank of the other agent is done: the first one wants no more nodes than there are.
    done = Path(f"{job.release}.{job.node(second).pid}")
    done.touch()
    job.wait_for(probe.format("stops"))
    done.unlink()
    job.process.send_signal(signal.SIGSTOP)
    job.node(first).kill()
    assert leader_other_than(etcd, job.job, own, first)[0] == second
    job.process.send_signal(signal.SIGCONT)
    # The second one wants all three again: that for which there was no place has one now.
    job.wait_for(probe.format("starts"), 2)
    job.wait_for(r"rank \d of 2", 4)
    assert job.finish() == 0, job.text
    found = written(etcd, job.job)
    assert found[:3] == [(own, "3: MayHave"), (first, "2: Finishing"), (second, "3: MayHave")]
    assert found[-2:] == [(second, "0: JobOver"), (second, "")] and len(found) <= 6, found


def test_a_script_that_fails_ends_the_job_and_nothing_is_started_again(
    tmp_path: Path, etcd: Cluster, started: list[Managed]
) -> None:
    job = Managed(tmp_path, etcd.endpoint, "--nnodes=1:2", "--max-restarts=0", code=7)
    started.append(job)
    job.wait_for(r"rank \d of 2", 2)
    assert job.finish() == 1, job.text
    assert job.text.count("1 worker here") == 2, "each node was started once"


def test_a_job_grows_to_the_number_of_nodes_that_does_most_and_stays_there(
    tmp_path: Path, etcd: Cluster, started: list[Managed]
) -> None:
    job = Managed(tmp_path, etcd.endpoint, "--nnodes=1:3", "--plan=goodput:cap=1", source=WAITS)
    started.append(job)
    job.wait_for(r"the job's plan: 2 nodes: 1 more node would cost \d+ %, by what 1, 2 and 3 nodes did")
    job.wait_for(r"rank \d of 2", 4)
    status = run("status", f"--rdzv-endpoint=http://{etcd.endpoint}", f"--rdzv-id={job.job}")
    assert re.search(r"wanted: nodes 2\b.*\n  plan: 2 nodes: 1 more node would", status.stdout), status
    assert job.finish() == 0, job.text
    assert re.findall(r"rank 0 of (\d)", job.text) == ["1", "2", "3", "2"], job.text


def test_an_agent_has_no_platform() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", "--platform=kubernetes", __file__],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "elastic-run master" in done.stderr


def test_pods_are_for_a_master_in_a_cluster(etcd: Cluster) -> None:
    words = ["master", "--platform=kubernetes", "--nnodes=2", f"--rdzv-endpoint=http://{etcd.endpoint}", __file__]
    done = subprocess.run([sys.executable, "-m", "elastic_run", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "elastic-job submit" in done.stderr, done.stderr
