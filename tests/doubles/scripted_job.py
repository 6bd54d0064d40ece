"""A job whose masters are real, but for the part that trains: that is scripted, on the double of the API server."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastic_run.launcher.cluster import master_pod as cluster_master
from elastic_run.launcher.cluster.managed_nodes import Start, Wish
from elastic_run.launcher.options import parse as options
from elastic_run.master.nodes.kubernetes import objects
from elastic_run.master.nodes.kubernetes.api import Api
from elastic_run.master.nodes.kubernetes.objects import Control
from elastic_run.master.nodes.kubernetes.pods import INDEX
from elastic_run.master.nodes.node_manager import NodeManager, Wanted
from elastic_run.master.nodes.reconcile import Demand
from elastic_run.rendezvous.store.memory_store import MemoryStore

from .api_double import ApiDouble, Asked, Cut

SECONDS = 60.0

WORDS = ["--platform=kubernetes", "--rdzv-endpoint=127.0.0.1:2379", "--rdzv-id=night-1", "--nnodes=3", "train.py"]

REQUEST = objects.Request("night", "night-1", "any", WORDS[:-1], WORDS[-1:])


class ScriptedJob:
    """A job of three nodes, which its user scales to two, and which ends then with `code`."""

    def __init__(self, folder: Path, code: int) -> None:
        self.code = code
        self.double = ApiDouble(folder, places=10)
        self.said: list[str] = []
        self.lives = 0

    def __enter__(self) -> "ScriptedJob":
        double = self.double.__enter__()
        made = double.objects.create(double.place("jobs", "batch/v1"), objects.master_job(REQUEST))
        double.objects.create(double.place("configmaps"), objects.config_map(REQUEST, objects.owner_of(made)))
        return self

    def __exit__(self, *error: Any) -> None:
        self.double.__exit__(*error)

    async def live(self, cut: Callable[[Asked, str], bool] = lambda asked, when: False, account: str = "admin") -> bool:
        """A master's life; `cut`: whether it is killed at that request. Whether it came to its end."""
        self.lives += 1
        path = self.double.kubeconfig_of(account, f"-{self.lives}")
        token = json.loads(path.read_text())["users"][0]["user"]["token"]
        if account == "admin":
            self.double.users[token] = "admin"
        api = Api.load("", str(path))
        task = asyncio.create_task(self._lead(api))
        loop = asyncio.get_running_loop()
        dead = False

        def hook(when: str) -> Callable[[Asked], None]:
            def look(asked: Asked) -> None:
                nonlocal dead
                if asked.by == token:
                    if not dead and cut(asked, when):
                        dead = True
                        loop.call_soon_threadsafe(task.cancel)
                    if dead:
                        raise Cut

            return look

        self.double.before, self.double.after = hook("before"), hook("after")
        try:
            await asyncio.wait_for(task, SECONDS)
        except asyncio.CancelledError:
            return False
        finally:
            api.close()
        return True

    async def _lead(self, api: Api) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster_master.Api, "load", lambda: api)
            patch.setattr(cluster_master, "managed", self._managed)
            patch.setenv(objects.JOB_VARIABLE, "night")
            given = options.parse(WORDS, {}, workers=False, here=False)
            start = Start(given, None, MemoryStore(), self.said.append, None)  # type: ignore[arg-type]  only managed needs it
            async with cluster_master.cluster_of(self.said.append) as cluster:
                return await cluster.over() or await cluster.lead(start, "127.0.0.1:2379")

    async def _managed(self, start: Start, manager: NodeManager, wish: Wish, observe: Any) -> tuple[int, str]:
        running = asyncio.create_task(manager.run())
        try:
            if not wish.scale:
                manager.want(Wanted((Demand("", 3, 2),)))
                await self.until(lambda: len(self.running()) == 3)
                self.double.objects.patch(
                    self.double.place("configmaps"), "night", {"data": {objects.CONTROL: Control({"": 2}).text}}
                )
            await wish.until(lambda: bool(wish.scale))
            manager.want(Wanted((Demand("", wish.scale[""], 2),)))
            await self.until(lambda: len(self.running()) == 2)
            await manager.drain(0.0)
            return self.code, "the script has ended"
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def running(self) -> list[str]:
        return [name for name, each in self.double.all("pods").items() if each["status"]["phase"] == "Running"]

    async def until(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < end, f"{self.double.all('pods')}: {self.said}"
            await asyncio.sleep(0.01)

    def check(self) -> None:
        """What is left of a job that is over, whatever has happened on the way."""
        double = self.double
        status = objects.status_of(double.all("configmaps")["night"])
        assert status["exitCode"] == self.code and status["reason"] == "the script has ended", status
        assert not double.all("pods"), "no pod is left over"
        alive: dict[str, str] = {}
        for change in double.objects.history:
            if change.place.plural == "pods":
                metadata = change.after["metadata"]
                alive.pop(metadata["name"], None)
                if change.kind != "DELETED" and "deletionTimestamp" not in metadata:
                    alive[metadata["name"]] = metadata["labels"][INDEX]
                assert len(set(alive.values())) == len(alive) <= 3, f"more than one of an index, or too many: {alive}"
        limit = double.all("jobs", "batch/v1")["night"]["spec"]["backoffLimit"]
        assert limit == (0 if self.code else objects.ATTEMPTS)
