"""Nodes in a queue: the real node manager on doubles of the API server, the controller of Jobs, and Kueue."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from elastic_run.master.nodes.kubernetes import objects
from elastic_run.master.nodes.kubernetes import queued as queued_module
from elastic_run.master.nodes.kubernetes.api import Api
from elastic_run.master.nodes.kubernetes.queued import QueuedPlatform
from elastic_run.master.nodes.node_manager import NodeManager, Wanted
from elastic_run.master.nodes.reconcile import Demand, Plan

from ..doubles.api_double import ApiDouble, Asked
from ..doubles.queue_double import BATCH, INDEX, QueueDouble

SECONDS = 60.0

PATIENCE = 0.5
"""Seconds that a pod waits for a place here, before those beyond the minimum are withdrawn."""

REQUEST = objects.Request("night", "night-1", "any", (), ("train.py",), cpu="1", queue="team")

ALL = Demand("", 8, 2)


class Queued:
    """A job's nodes in the queue."""

    def __init__(self, double: ApiDouble) -> None:
        self.double = double
        self.queue = QueueDouble(double, quota=3)
        self.said: list[str] = []
        self.plan = Plan()
        self.running: asyncio.Future[None] = asyncio.Future()
        owner = double.objects.create(double.place("jobs", BATCH), {"metadata": {"name": "night"}, "spec": {}})
        self.owner = objects.owner_of(owner)
        self.api = Api.load("", str(double.kubeconfig))

    @asynccontextmanager
    async def run(self, *demands: Demand) -> AsyncGenerator[tuple[NodeManager, QueuedPlatform]]:
        template = objects.with_command(objects.node_template(REQUEST, ""), ["true"])
        platform = QueuedPlatform(self.api, "night", self.owner, {"": template}, "team", time.monotonic)
        manager = NodeManager(platform, self.said.append, time.monotonic, patience=PATIENCE)
        manager.looked = lambda plan, replicas: setattr(self, "plan", plan)
        manager.want(Wanted(demands))
        self.running = asyncio.create_task(manager.run())
        try:
            yield manager, platform
        finally:
            self.running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.running

    async def until(self, happened: Callable[[], object], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not happened():
            if self.running.done():
                self.running.result()
            assert time.monotonic() < end, f"{what}: not within {SECONDS:g} s; {self.live()}, {self.said}"
            await asyncio.sleep(0.02)

    async def trains(self, count: int) -> dict[int, str]:
        """Waits until so many pods run; uids by index."""
        await self.until(lambda: len(self.live()) == count, f"{count} pods")
        return self.live()

    def live(self) -> dict[int, str]:
        found = self.double.all("pods").values()
        return {
            int(each["metadata"]["annotations"][INDEX]): each["metadata"]["uid"]
            for each in found
            if each["status"]["phase"] == "Running"
        }

    def pods(self) -> Sequence[str]:
        """Those that have not ended."""
        found = self.double.all("pods").items()
        return [name for name, each in found if each["status"]["phase"] in ("Pending", "Running")]

    def lose(self, index: int) -> None:
        name = next(each for each in self.pods() if each.startswith(f"night-worker-{index}-"))
        self.double.objects.delete(self.double.place("pods"), name, {"gracePeriodSeconds": 0})

    def size(self) -> int:
        return int(self.double.all("jobs", BATCH)["night-worker"]["spec"]["parallelism"])


@pytest.fixture
async def queued(tmp_path: Path) -> AsyncGenerator[Queued]:
    with ApiDouble(tmp_path) as double:
        made = Queued(double)
        yield made
        made.api.close()


async def test_a_job_takes_what_the_queue_has_and_one_pod_waits_for_more(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queued_module, "LOOK", 0.5)
    async with queued.run(ALL):
        before = await queued.trains(3)
        await queued.until(lambda: queued.size() == 4, "one that waits")
        await queued.until(
            lambda: queued.plan.notes and "insufficient unused quota" in str(queued.plan.notes[0]), "why"
        )
        queued.queue.have(8)
        after = await queued.trains(8)
    assert {index: after[index] for index in before} == before, "what ran stayed"


async def test_a_queue_that_has_too_little_for_the_minimum_is_waited_for(queued: Queued) -> None:
    queued.queue.have(1)
    async with queued.run(ALL):
        await queued.until(
            lambda: "night-worker" in queued.double.all("jobs", BATCH) and queued.size() == 2, "its least"
        )
        assert not queued.live()
        queued.queue.have(2)
        await queued.trains(2)


async def test_a_job_that_is_preempted_comes_back_with_what_there_is(queued: Queued) -> None:
    queued.queue.have(8)
    async with queued.run(ALL):
        before = await queued.trains(8)
        queued.queue.have(3)
        await queued.until(lambda: set(before.values()).isdisjoint(queued.live().values()), "all of it to end")
        await queued.trains(3)


async def test_a_job_that_is_preempted_but_left_running_gives_its_places_back(
    queued: Queued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queued_module, "LOOK", 0.1)
    queued.queue.leaves_running = True
    queued.queue.have(5)
    async with queued.run(ALL):
        before = await queued.trains(5)
        await queued.until(lambda: queued.size() == 6, "one that waits")
        queued.queue.have(3)
        await queued.until(lambda: set(before.values()).isdisjoint(queued.live().values()), "all of it to end")
        await queued.trains(3)
        await queued.until(lambda: queued.size() == 4, "one that waits")
        queued.queue.have(8)
        await queued.trains(8)


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_an_answer_that_comes_after_a_later_change_is_not_taken_for_it(queued: Queued, verb: str) -> None:
    def preempt(asked: Asked) -> None:
        """The Job is suspended between the request and its answer."""
        if (asked.verb, asked.place.plural, asked.name) in ((verb, "jobs", ""), (verb, "jobs", "night-worker")):
            queued.double.after = lambda _: None
            queued.queue.have(3)
            time.sleep(PATIENCE / 3)  # the watch tells of it

    queued.queue.have(8)
    async with queued.run(Demand("", 2 if verb == "patch" else 8, 2)) as (manager, _):
        if verb == "patch":
            await queued.trains(2)
        queued.double.after = preempt
        manager.want(Wanted((ALL,)))
        await queued.until(lambda: queued.said, "why it waits")
        labels = queued.double.all("jobs", BATCH)["night-worker"]["spec"]["template"]["metadata"]["labels"]
        pod = {"metadata": {"name": "other", "labels": labels}, "spec": {"containers": [{"name": "any"}]}}
        queued.double.objects.create(queued.double.place("pods"), pod)  # all is looked at again
        await queued.trains(3)


async def test_fewer_nodes_are_the_lowest_indexes_and_none_at_all_is_no_complete_job(queued: Queued) -> None:
    queued.queue.have(8)
    async with queued.run(ALL) as (manager, _):
        before = await queued.trains(8)
        manager.want(Wanted((Demand("", 5, 2),)))
        assert await queued.trains(5) == {index: before[index] for index in range(5)}
        manager.want(Wanted((Demand("", 0, 0),)))
        await queued.trains(0)
        spec = queued.double.all("jobs", BATCH)["night-worker"]["spec"]
        assert (spec["parallelism"], spec["completions"] > 0) == (0, True)
        manager.want(Wanted((ALL,)))
        await queued.trains(8)


async def test_a_pod_that_is_lost_is_followed_by_another_of_its_index(queued: Queued) -> None:
    async with queued.run(Demand("", 3, 2)):
        before = await queued.trains(3)
        queued.lose(1)
        await queued.until(lambda: len(queued.live()) == 3 and queued.live() != before, "another")
        after = queued.live()
    assert {index for index in before if after[index] != before[index]} == {1}


async def test_the_place_of_a_pod_that_is_lost_goes_to_the_one_that_waits_and_its_index_waits_next(
    queued: Queued,
) -> None:
    async with queued.run(ALL):
        before = await queued.trains(3)
        await queued.until(lambda: queued.size() == 4, "one that waits")
        queued.lose(1)
        await queued.until(lambda: sorted(queued.live()) == [0, 2, 3], "the one that waited")
        await queued.until(lambda: len(queued.pods()) == 4, "another of its index")
        queued.queue.have(8)
        after = await queued.trains(8)
    assert {index for index in before if after[index] != before[index]} == {1}


async def test_another_master_finds_the_nodes_where_they_are(queued: Queued) -> None:
    async with queued.run(ALL):
        before = await queued.trains(3)
        await queued.until(lambda: queued.size() == 4, "one that waits")
    queued.queue.have(6)
    async with queued.run(ALL):
        after = await queued.trains(6)
    assert {index: after[index] for index in before} == before
    assert len([each for each in queued.double.all("jobs", BATCH) if each != "night"]) == 1


async def test_a_job_that_somebody_has_deleted_is_made_again(queued: Queued) -> None:
    async with queued.run(ALL):
        before = await queued.trains(3)
        place = queued.double.place("jobs", BATCH)
        queued.double.objects.delete(place, "night-worker", {"propagationPolicy": "Background"})
        await queued.until(lambda: len(queued.live()) == 3 and queued.live() != before, "its pods anew")


async def test_when_the_job_is_over_nothing_is_started_again_and_what_has_ended_stays(queued: Queued) -> None:
    async with queued.run(ALL) as (manager, platform):
        await queued.trains(3)
        ended = sorted(queued.double.all("pods"))[0]
        queued.double.machines.say(queued.double.all("pods")[ended], {"phase": "Failed"})
        manager.want(Wanted((), over=True))
        await platform.finish()
        await queued.trains(0)
    assert ended in queued.double.all("pods"), "with its log"


async def test_an_api_server_without_indexed_jobs_is_said_in_words(queued: Queued) -> None:
    def forget(asked: Asked) -> None:
        """As a server does with a field that it does not know."""
        if (asked.verb, asked.place.plural) == ("create", "jobs"):
            del asked.body["spec"]["completionMode"]

    queued.double.before = forget
    async with queued.run(ALL):
        await queued.until(lambda: any("1.27 or newer" in line for line in queued.said), "a sentence")
        await queued.until(lambda: "night-worker" not in queued.double.all("jobs", BATCH), "no Job that runs otherwise")
