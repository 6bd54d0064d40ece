"""The node manager on a double of the API server that does wrong: pods come to be there, and none twice."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from elastic_run.master.nodes import node_manager
from elastic_run.master.nodes.kubernetes import api, objects
from elastic_run.master.nodes.kubernetes.api import Api
from elastic_run.master.nodes.kubernetes.cluster import KubernetesPlatform
from elastic_run.master.nodes.kubernetes.job import OWNED
from elastic_run.master.nodes.node_manager import NodeManager, Wanted
from elastic_run.master.nodes.platform import Observer
from elastic_run.master.nodes.reconcile import Demand

from ..doubles.api_double import ApiDouble, Fault
from ..doubles.double_objects import Place

SECONDS = 60.0

REQUEST = objects.Request("mass", "mass-1", "any", (), ("train.py",), cpu="1")


class Managed:
    """A node manager whose API server is the double."""

    def __init__(self, double: ApiDouble) -> None:
        self.double = double
        self.said: list[str] = []
        owner = double.objects.create(double.place("configmaps"), {"metadata": {"name": "mass"}})
        self.owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mass", "uid": owner["metadata"]["uid"]}
        self.api = Api.load("", str(double.kubeconfig))

    @asynccontextmanager
    async def run(self, *demands: Demand) -> AsyncGenerator[NodeManager]:
        template = objects.with_command(objects.node_template(REQUEST, ""), ["true"])
        platform = KubernetesPlatform(self.api, "mass", [self.owner], {"": template}, time.monotonic)
        manager = NodeManager(platform, self.said.append, time.monotonic)
        manager.want(Wanted(demands))
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def until(self, happened: Callable[[], object], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < end, f"{what}: not within {SECONDS:g} s; {len(self.live())} pods; {self.said}"
            await asyncio.sleep(0.02)

    async def pods(self, count: int) -> dict[str, str]:
        """Waits until so many run, and no others are there; uids by name."""
        await self.until(lambda: len(self.live()) == count == len(self.double.all("pods")), f"{count} pods")
        return self.live()

    def live(self) -> dict[str, str]:
        found = self.double.all("pods")
        return {name: each["metadata"]["uid"] for name, each in found.items() if each["status"]["phase"] == "Running"}

    def lose(self, name: str) -> None:
        """Somebody has deleted it, and it has ended."""
        self.double.objects.delete(self.double.place("pods"), name, {"gracePeriodSeconds": 0})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a tenth, as long as the server refuses or does not answer."""
    monkeypatch.setattr(node_manager, "PAUSES", tuple(each / 10 for each in node_manager.PAUSES))


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the watch does not tell of is asked for again after a tenth of the time."""
    monkeypatch.setattr(node_manager, "AGAIN", tuple(each / 10 for each in node_manager.AGAIN))


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ApiDouble]:
    with ApiDouble(tmp_path, places=1000) as made:
        yield made


@pytest.fixture
def managed(double: ApiDouble) -> Iterator[Managed]:
    made = Managed(double)
    yield made
    made.api.close()


async def test_five_hundred_pods_that_are_lost_at_once_are_replaced_in_parallel(managed: Managed) -> None:
    async with managed.run(Demand("", 500, 500)):
        before = await managed.pods(500)
        managed.double.asked.clear()
        begin = time.monotonic()
        for name in before:
            managed.lose(name)
        await managed.until(lambda: len(managed.live()) == 500, "500 others")
        took, creates = time.monotonic() - begin, managed.double.count("create", "pods")
        print(f"500 pods replaced within {took:.1f} s, with {creates} requests")
    assert not set(before.values()) & set(managed.live().values())
    # What is there already is asked for again where the watch has not told of it yet.
    assert creates <= 1000 and len(managed.double.made()) == 1000


@pytest.mark.parametrize("order", ["drop", "end", "expire", "garble"])
async def test_a_watch_that_ends_in_any_way_is_followed_by_another(managed: Managed, order: str) -> None:
    double = managed.double
    async with managed.run(Demand("", 3, 3)):
        before = await managed.pods(3)
        getattr(double, f"{order}_watches")()
        managed.lose("mass-worker-1")
        await managed.until(lambda: len(managed.live()) == 3, "the pod to be replaced")
        await managed.until(lambda: double.watching, "another watch")
    assert {name for name, uid in managed.live().items() if before.get(name) == uid} == {
        "mass-worker-0",
        "mass-worker-2",
    }


@pytest.mark.parametrize("order", ["drop", "end", "expire", "garble"])
async def test_what_a_watch_tells_at_its_very_end_is_acted_upon(managed: Managed, order: str) -> None:
    double = managed.double
    async with managed.run(Demand("", 3, 3)):
        await managed.pods(3)
        await managed.until(lambda: double.watching, "a watch")
        await asyncio.sleep(0.5)  # nothing else changes any more
        with double.objects.changed:
            managed.lose("mass-worker-1")
            getattr(double, f"{order}_watches")()
        time.sleep(0.5)  # noqa: ASYNC251  the node manager finds the change and the end together
        await managed.until(lambda: len(managed.live()) == 3, "the pod to be replaced")


@pytest.mark.parametrize("as_event", [True, False], ids=["as an event", "as HTTP 410"])
async def test_a_version_that_is_gone_is_answered_with_a_new_list(managed: Managed, as_event: bool) -> None:
    double = managed.double
    double.gone_as_event = as_event
    async with managed.run(Demand("", 3, 3)):
        await managed.pods(3)
        double.fault(Fault(verb="watch", close=True))
        double.drop_watches()
        managed.lose("mass-worker-1")
        double.objects.compact()
        managed.lose("mass-worker-2")
        await managed.until(lambda: len(managed.live()) == 3 and double.watching, "3 pods again")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500, times=3),
        Fault(status=503, times=3, headers={"Retry-After": "1"}),
        Fault(status=429, times=3, headers={"Retry-After": "1"}),
        Fault(status=500, times=3, body=b"<html>a proxy</html>"),
        Fault(status=500, times=3, done=True),
        Fault(close=True, times=3),
        Fault(close=True, times=3, done=True),
        Fault(delay=0.5, times=10),
    ],
    ids=["500", "503", "429", "500 of a proxy", "500 though done", "closed", "closed though done", "slow"],
)
@pytest.mark.parametrize("verb", ["create", "list", "watch"])
async def test_an_answer_that_is_none_is_asked_for_again_and_no_pod_is_made_twice(
    managed: Managed, verb: str, fault: Fault
) -> None:
    double = managed.double
    # The node manager is patient with lists: each refusal makes it wait longer.
    times = fault.times if verb == "create" else 1
    double.fault(replace(fault, verb=verb, plural="pods", times=times))
    async with managed.run(Demand("", 4, 4)):
        before = await managed.pods(4)
        managed.lose("mass-worker-3")
        await managed.until(lambda: len(managed.live()) == 4, "the pod to be replaced")
    assert len(double.made()) == 5
    assert set(before) == {f"mass-worker-{index}" for index in range(4)}


@pytest.mark.parametrize("verb", ["create", "list", "watch", "delete"])
@pytest.mark.parametrize("body", [b"<html>log in</html>", b"[]", b"{}", b'{"type": "ADDED"}\n', b"7\n"])
async def test_an_answer_of_200_that_is_no_object_of_the_api_is_one_that_is_asked_for_again(
    managed: Managed, verb: str, body: bytes
) -> None:
    double = managed.double
    double.fault(Fault(verb, "pods", status=200, body=body))
    async with managed.run(Demand("", 3, 3)) as manager:
        await managed.pods(3)
        manager.want(Wanted((Demand("", 2, 2),)))
        stayed = sorted(await managed.pods(2))
        managed.lose(stayed[0])  # worker-0 may be gone: if its creation was repeated, it was the last that was pending
        await managed.until(lambda: len(managed.live()) == 2, "the pod to be replaced")


async def test_a_watch_that_is_silent_is_given_up(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "WATCHED", 1)
    monkeypatch.setattr(api, "SILENCE", 0.5)
    double = managed.double
    async with managed.run(Demand("", 3, 3)):
        await managed.pods(3)
        await managed.until(lambda: double.watching, "a watch")
        double.stall_watches()
        managed.lose("mass-worker-1")
        await managed.until(lambda: len(managed.live()) == 3, "the pod to be replaced")
    assert any("cannot see this job's nodes" in line for line in managed.said), managed.said


@pytest.mark.usefixtures("again")
async def test_a_pod_that_a_silent_watch_does_not_tell_of_is_asked_for_again_and_made_once(managed: Managed) -> None:
    """How often it is asked for is seen on a virtual clock (tests/unit/master/nodes/test_node_manager.py)."""
    double = managed.double
    async with managed.run(Demand("", 3, 3)) as manager:
        await managed.pods(3)
        await managed.until(lambda: double.watching, "a watch")
        double.stall_watches()
        double.asked.clear()
        manager.want(Wanted((Demand("", 4, 4),)))
        await managed.until(lambda: double.count("create", "pods") >= 3, "it to be asked for again and again")
        double.drop_watches()
        await managed.pods(4)
    assert len(double.made()) == 4


async def test_a_watch_that_breaks_now_and_then_is_taken_up_as_fast_each_time(managed: Managed) -> None:
    double = managed.double
    async with managed.run(Demand("", 1, 1)):
        await managed.pods(1)
        for _ in range(3):
            await managed.until(lambda: double.watching, "a watch")
            double.drop_watches()
            await managed.until(lambda: not double.watching, "it to be gone")
        await managed.until(lambda: double.watching, "a watch")
    assert {line.rpartition("; ")[2] for line in managed.said} == {"trying again in 0.1 s"}


async def test_a_server_that_asks_for_patience_is_given_it(managed: Managed) -> None:
    double = managed.double
    double.fault(Fault("create", "pods", status=429, headers={"Retry-After": "2"}))
    async with managed.run(Demand("", 3, 3)):
        await managed.pods(3)
    assert any(line.endswith("trying again in 2 s") for line in managed.said), managed.said


async def test_a_namespace_that_is_being_deleted_is_said_and_not_asked_without_pause(managed: Managed) -> None:
    double = managed.double
    async with managed.run(Demand("", 3, 3)):
        await managed.pods(3)
        double.objects.create(double.place("secrets"), {"metadata": {"name": "kept", "finalizers": ["somebody/else"]}})
        double.objects.delete(Place("v1", "", "namespaces"), "team", {})
        await managed.until(lambda: any("being terminated" in line for line in managed.said), "word of it")
        double.asked.clear()
        await asyncio.sleep(0.5)
    assert double.count("create", "pods") <= 3 * 4


@pytest.mark.parametrize("gone", [False, True])
async def test_nothing_is_started_for_a_job_that_is_being_deleted(managed: Managed, gone: bool) -> None:
    """The collector deletes its nodes, and a master that has not ended yet would replace each."""
    double, place = managed.double, managed.double.place("configmaps")
    async with managed.run(Demand("", 3, 3)):
        await managed.pods(3)
        await asyncio.sleep(OWNED)
        if not gone:
            double.objects.patch(place, "mass", {"metadata": {"finalizers": ["somebody/else"]}})
        double.objects.delete(place, "mass", {"propagationPolicy": "Orphan"})
        double.asked.clear()
        managed.lose("mass-worker-1")
        await managed.until(lambda: any("ConfigMap mass is being deleted" in line for line in managed.said), "word")
        managed.lose("mass-worker-2")
        await asyncio.sleep(0.5)
    assert double.count("create", "pods") == 0 and len(managed.live()) == 1


async def test_what_goes_wrong_in_following_is_an_error_of_the_node_manager(managed: Managed) -> None:
    """Whatever is not foreseen: a manager that sees nothing any more would replace nobody, and say nothing."""

    class Broken(KubernetesPlatform):
        async def follow(self, observe: Observer) -> None:
            raise KeyError("unforeseen")

    manager = NodeManager(Broken(managed.api, "mass", [managed.owner], {}, time.monotonic), print, time.monotonic)
    with pytest.raises(KeyError, match="unforeseen"):
        await asyncio.wait_for(manager.run(), SECONDS)


async def test_a_server_that_is_silent_holds_up_neither_the_end_nor_others(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "TIMEOUT", (3.0, 1.0))
    double = managed.double
    double.fault(Fault("create", "pods", times=0, hang=True), Fault("list", "pods", times=2, hang=True))
    async with managed.run(Demand("", 40, 40)):
        await managed.until(lambda: double.count("create", "pods") >= 32, "all threads to wait")
        assert await managed.api.ask("get", managed.api.path("configmaps", "mass"))
        double.heal()
        await managed.pods(40)
        double.fault(Fault("delete", "pods", times=0, hang=True))
    # The manager was cancelled while nothing was under way; here it is while requests are.
    async with managed.run(Demand("", 20, 20)):
        await managed.until(lambda: double.count("delete", "pods") >= 20, "requests to be under way")


@pytest.mark.usefixtures("again")
@pytest.mark.parametrize(
    "faults",
    [
        (Fault("list", "pods", delay=0.5),),
        (Fault("list", "pods", status=500),),
        (Fault("delete", "pods", status=500, times=3),),
        (Fault("delete", "pods", status=429, times=2, headers={"Retry-After": "1"}),),
    ],
    ids=["a slow list", "no list", "not deleted", "patience"],
)
async def test_a_job_that_ends_before_its_pods_were_seen_or_deleted_leaves_none(
    managed: Managed, faults: tuple[Fault, ...]
) -> None:
    """As when it is cancelled while a master comes back."""
    async with managed.run(Demand("", 3, 3)):
        await managed.pods(3)
    managed.double.fault(*faults)
    async with managed.run() as manager:
        await manager.drain(0.0)
        assert not managed.live()
    assert not any("did not end" in line for line in managed.said), managed.said


async def test_a_job_that_ends_while_pods_are_being_made_leaves_none(managed: Managed) -> None:
    """As when it is cancelled right after it was submitted: no watch has told of the pods yet."""
    managed.double.fault(Fault("create", "pods", delay=1.0, times=2))
    async with managed.run(Demand("", 4, 4)) as manager:
        await managed.until(lambda: managed.double.count("create", "pods") == 4, "requests to be under way")
        await manager.drain(0.0)
        assert len(managed.double.made()) == 4 and not managed.live()
