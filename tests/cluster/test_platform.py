"""The node manager and its platform on a real API server: whatever becomes of pods, as many are there again."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from elastic_run.master.nodes.kubernetes import objects
from elastic_run.master.nodes.kubernetes.api import Api, ApiRefused, Event, Gone
from elastic_run.master.nodes.kubernetes.cluster import KubernetesPlatform
from elastic_run.master.nodes.kubernetes.job import watched
from elastic_run.master.nodes.node_manager import NodeManager, Wanted
from elastic_run.master.nodes.platform import PlatformError
from elastic_run.master.nodes.reconcile import Demand
from elastic_run.master.nodes.replica import Launch

from .conftest import start_plane
from .control_plane import ControlPlane
from .jobs import Jobs
from .process_kubelet import Kubelet

pytestmark = pytest.mark.xdist_group("kubernetes")

SECONDS = 120.0

REQUEST = objects.Request("mass", "mass-1", "any", (), ("train.py",), cpu="1")


class Here:
    """A namespace, with an owner for pods."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        plane.make_namespace(namespace)
        self.api = Api.load(namespace, str(plane.kubeconfig))
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mass"}}
        made = self.api.ask_now("post", self.api.path("configmaps"), owner)
        self.owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mass", "uid": made["metadata"]["uid"]}
        self.said: list[str] = []

    def platform(self) -> KubernetesPlatform:
        template = objects.with_command(objects.node_template(REQUEST, ""), ["true"])
        return KubernetesPlatform(self.api, "mass", [self.owner], {"": template}, time.monotonic)

    @asynccontextmanager
    async def managed(self, *demands: Demand) -> AsyncGenerator[NodeManager]:
        manager = NodeManager(self.platform(), self.said.append, time.monotonic)
        manager.want(Wanted(demands))
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def pods(self) -> dict[str, str]:
        """Uids by name."""
        found = await self.api.ask("get", self.api.path("pods"))
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found["items"]}

    async def until(self, count: int, other_than: "frozenset[str]" = frozenset()) -> dict[str, str]:
        """Waits until there are so many pods, none of them with one of those uids."""
        end = time.monotonic() + SECONDS
        while True:
            found = await self.pods()
            if len(found) == count and not other_than & set(found.values()):
                return found
            assert time.monotonic() < end, f"{len(found)} pods, and not {count}: {self.said}"
            await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of its own, whose API server is killed here."""
    with start_plane(tmp_path_factory) as made:
        yield made


@pytest.fixture
def here(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Here]:
    made = Here(plane, f"p-{abs(hash(request.node.name)) % 10**8}")
    yield made
    made.plane.kubectl("delete", "namespace", made.namespace, "--wait=false")
    made.api.close()


async def test_five_hundred_pods_that_are_lost_at_once_are_there_again(here: Here) -> None:
    async with here.managed(Demand("", 500, 500)):
        before = await here.until(500)
        # In one request: kubectl delete --all sends one for each.
        pods = f"/api/v1/namespaces/{here.namespace}/pods?gracePeriodSeconds=0"
        await asyncio.to_thread(here.plane.kubectl, "delete", "--raw", pods)
        after = await here.until(500, frozenset(before.values()))
    # One that was seen while it was about to go was followed by the next attempt of its index.
    assert {name.split("-")[2] for name in after} == {str(index) for index in range(500)}


async def test_a_start_that_is_asked_twice_makes_one_pod(here: Here) -> None:
    platform = here.platform()
    await platform.start(Launch("", 0, 0))
    await platform.start(Launch("", 0, 0))
    assert list(await here.pods()) == ["mass-worker-0"]
    await platform.stop("mass-worker-0")
    await platform.stop("mass-worker-0")
    await platform.stop("never-there")


async def test_what_is_refused_is_said_in_the_clusters_words_and_asked_for_again(here: Here) -> None:
    quota: Any = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    here.plane.apply({**quota, "metadata": {"name": "few", "namespace": here.namespace}, "spec": {"hard": {"pods": 2}}})
    await asyncio.sleep(1.0)  # its controller counts first
    async with here.managed(Demand("", 4, 4)):
        await here.until(2)
        end = time.monotonic() + SECONDS
        while not any("exceeded quota" in line for line in here.said):
            assert time.monotonic() < end, here.said
            await asyncio.sleep(0.1)
        here.plane.kubectl("delete", "resourcequota", "few", "-n", here.namespace)
        await here.until(4)


async def test_it_goes_on_where_an_api_server_that_was_away_comes_back(here: Here) -> None:
    async with here.managed(Demand("", 3, 3)):
        before = await here.until(3)
        here.plane.kill("kube-apiserver")
        await asyncio.sleep(3.0)
        await asyncio.to_thread(here.plane.start, "kube-apiserver")
        await asyncio.to_thread(here.plane.kubectl, "delete", "pod", "mass-worker-1", "-n", here.namespace)
        after = await here.until(3, frozenset({before["mass-worker-1"]}))
    assert {name: after[name] for name in ("mass-worker-0", "mass-worker-2")} == {
        name: before[name] for name in ("mass-worker-0", "mass-worker-2")
    }
    assert any("cannot see this job's nodes" in line for line in here.said)


async def test_a_watch_from_a_version_that_is_long_gone_says_so(here: Here) -> None:
    """Compacted as the server does it every few minutes; here its store does it at once."""
    path, query = here.api.path("pods"), ()
    listing = await here.api.ask("get", path)
    old = str(int(listing["metadata"]["resourceVersion"]) - 50)
    newest = here.plane.kubectl("create", "configmap", "later", "-n", here.namespace, "-o", "json")
    assert newest
    compact = {"revision": listing["metadata"]["resourceVersion"]}
    address = f"http://{here.plane.store}/v3/kv/compaction"
    answer = await asyncio.to_thread(urllib3.request, "POST", address, json=compact)
    assert answer.status == 200, answer.data
    here.plane.kill("kube-apiserver")  # its own memory of changes goes with it
    await asyncio.to_thread(here.plane.start, "kube-apiserver")
    found: Sequence[Event] = ()
    with pytest.raises(PlatformError) as refused:
        async for events in watched(here.api, path, query, old):
            found = events
    assert isinstance(refused.value, Gone), (found, refused.value)


def test_what_the_server_refuses_is_told_with_its_own_words(here: Here) -> None:
    with pytest.raises(ApiRefused) as refused:
        here.api.ask_now("get", here.api.path("pods", "nobody"))
    assert refused.value.status == 404 and "nobody" in str(refused.value)


def test_training_goes_on_while_the_api_server_is_away(jobs: Jobs, machine: Kubelet, plane: ControlPlane) -> None:
    jobs.submit("four", "--nnodes=2")
    jobs.until("four", 2)
    pids = [machine.pid(name) for name in jobs.running()]
    plane.kill("kube-apiserver")
    jobs.release()
    machine.plane.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the nodes to end")
    plane.start("kube-apiserver")
    jobs.run("wait", "four")
    assert jobs.status("four")["state"] == "succeeded"
