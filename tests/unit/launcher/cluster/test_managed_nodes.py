"""The node manager's end of the key that says how many nodes the job wants, on a store in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from elastic_run.launcher.cluster.managed_nodes import Spans, Wish, doubt, wanted, watch_targets
from elastic_run.master.machine.targets import Target, Targets
from elastic_run.master.nodes.node_manager import NodeManager
from elastic_run.master.nodes.platform import Observer
from elastic_run.master.nodes.replica import Launch, Replica
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.reasons import JobOver, MayHave
from elastic_run.rendezvous.store.contract import Delete, Health, Put
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.wire.values import encode
from tests.doubles.virtual_loop import VirtualLoop

KEYS = Keys("job")


class Store(MemoryStore):
    """One that a test takes away and gives back."""

    reachable = True

    @property
    def health(self) -> Health:
        return Health(self.reachable, 0.0, "no endpoint answered")


class Nodes:
    """A platform on which each node runs as soon as it is asked for."""

    def __init__(self) -> None:
        self.there: dict[str, Replica] = {}
        self.tell: Callable[[], None] = lambda: None

    async def follow(self, observe: Observer) -> None:
        self.tell = lambda: observe(tuple(self.there.values()))
        self.tell()
        await asyncio.get_running_loop().create_future()

    async def start(self, launch: Launch) -> None:
        name = f"{launch.role or 'worker'}-{launch.index}"
        self.there[name] = Replica(name, launch.role, launch.index, launch.attempt, 0, "running", 0.0)
        self.tell()

    async def stop(self, name: str) -> None:
        del self.there[name]
        self.tell()


class Scene:
    """A job of at least two nodes and at most eight, or of these roles, and its node manager."""

    def __init__(self, spans: Spans) -> None:
        self.store = Store()
        self.said: list[str] = []
        self.nodes = Nodes()
        self.now = asyncio.get_running_loop().time
        self.manager = NodeManager(self.nodes, self.said.append, self.now)
        self.manager.doubt = lambda: doubt(self.store.health)
        self.watching = watch_targets(self.store, KEYS, spans, self.said.append, self._aim)
        self._spans = spans

    def _aim(self, seen: Targets) -> None:
        if found := wanted(seen, self._spans, Wish()):
            self.manager.want(found)

    async def writes(self, *counts: int, over: bool = False) -> None:
        """The leader writes that for each role."""
        reason = JobOver("failed") if over else MayHave("", 2, 8)
        found = (Target(role, count, reason) for role, count in zip(self._spans, counts, strict=True))
        await self.puts(encode(Targets(tuple(found))))

    async def puts(self, value: bytes) -> None:
        await self.store.txn([], [Put(KEYS.targets, value)])
        await self.later(0.1)

    async def later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def running(self) -> list[str]:
        return sorted(self.nodes.there)


def live(body: Callable[[Scene], Coroutine[Any, Any, None]], spans: Spans = {"": (2, 8)}) -> None:  # noqa: B006  it is read only
    async def run() -> None:
        scene = Scene(spans)
        tasks = [asyncio.create_task(scene.watching), asyncio.create_task(scene.manager.run())]
        try:
            await body(scene)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_nothing_is_started_before_a_leader_has_written_how_many() -> None:
    async def body(scene: Scene) -> None:
        await scene.later(600.0)
        assert not scene.running
        await scene.writes(2)
        assert scene.running == ["worker-0", "worker-1"]

    live(body)


def test_each_role_has_its_own_target_and_the_newest_counts() -> None:
    async def body(scene: Scene) -> None:
        await scene.writes(1, 3)
        assert scene.running == ["ps-0", "worker-0", "worker-1", "worker-2"]
        await scene.writes(1, 1)
        assert scene.running == ["ps-0", "worker-0"]

    live(body, {"ps": (1, 1), "worker": (1, 4)})


def test_what_was_written_while_the_history_was_lost_is_read() -> None:
    async def body(scene: Scene) -> None:
        await scene.writes(2)
        for count in (3, 4, 5):
            await scene.store.txn([], [Put(KEYS.targets, encode(Targets((Target("", count, MayHave("", 2, 8)),))))])
        scene.store.compact(1_000)
        await scene.later(1.0)
        assert len(scene.running) == 5

    live(body)


def test_while_the_store_is_away_nothing_is_started_and_the_last_target_holds() -> None:
    async def body(scene: Scene) -> None:
        await scene.writes(3)
        scene.store.reachable = False
        await scene.later(300.0)
        assert len(scene.running) == 3 and not scene.said
        await scene.nodes.stop("worker-1")
        await scene.later(300.0)
        assert scene.running == ["worker-0", "worker-2"]
        assert scene.said == [
            "no node is started: the job may be over, for the store does not answer (no endpoint answered)"
        ]
        scene.store.reachable = True
        await scene.later(2.0)
        assert len(scene.running) == 3

    live(body)


def test_a_value_that_it_does_not_understand_changes_nothing_and_is_said() -> None:
    async def body(scene: Scene) -> None:
        await scene.puts(b'{"nodes":8}')
        await scene.writes(2)
        await scene.puts(b'{"wanted":[{"role":"","count":5,"reason":{"code":"Borrows"}}]}')
        await scene.nodes.stop("worker-0")
        await scene.later(1.0)
        assert len(scene.running) == 2, "a lost node is followed by another all the same"
        first, second = scene.said
        assert "ignored: /elastic-run/job/targets (Targets: " in first
        assert "'Borrows' is not one of" in second and second.endswith("lead the job? What was written before holds")

    live(body)


def test_at_the_end_of_the_job_nothing_is_started_nor_said() -> None:
    async def body(scene: Scene) -> None:
        await scene.writes(2)
        await scene.writes(0, over=True)
        await scene.nodes.stop("worker-0")
        await scene.store.txn([], [Delete(KEYS.targets)])
        await scene.later(60.0)
        assert scene.running == ["worker-1"] and not scene.said

    live(body)
