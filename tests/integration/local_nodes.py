"""`elastic-run master --platform=kubernetes` where a process of this machine stands in for each pod, without a cluster.

    python -m tests.integration.local_nodes master --platform=kubernetes ... train.py

The election, the node manager, the agents and their workers are real.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from elastic_run.launcher.cli import main
from elastic_run.launcher.cluster import managed_nodes
from elastic_run.launcher.cluster.managed_nodes import Say, Start, Wish, managed
from elastic_run.launcher.settings import Options, join_words
from elastic_run.master.nodes.node_manager import NodeManager
from elastic_run.master.nodes.platform import Observer
from elastic_run.master.nodes.replica import Exited, Launch, Replica, Unschedulable

PLACES = "LOCAL_NODES_PLACES"
"""The variable that says how many nodes have a place."""


@dataclass(slots=True)
class Node:
    """An agent."""

    replica: Replica
    process: asyncio.subprocess.Process
    task: "asyncio.Task[None] | None" = None


class LocalPlatform:
    """Starts agents on this machine (`Platform`).

    Args:
        job: its id, which is part of the replicas' names.
        words: what runs a node, after the interpreter.
        places: so many may run at once; the others wait.
    """

    def __init__(self, job: str, words: list[str], places: int) -> None:
        self._job = job
        self._words = words
        self._places = places
        self._now = asyncio.get_running_loop().time
        self._nodes: dict[str, Node] = {}
        self._waiting: dict[str, Replica] = {}
        self._placed: set[str] = set()
        self._changed = asyncio.Event()

    async def follow(self, observe: Observer) -> None:
        while True:
            self._changed.clear()
            observe([*(each.replica for each in self._nodes.values()), *self._waiting.values()])
            await self._changed.wait()

    async def start(self, launch: Launch) -> None:
        name = f"{self._job}-{launch.index}-{launch.attempt}"
        if name in self._nodes or name in self._waiting:
            return
        print(f"platform: starts {name}", flush=True)
        role, index, attempt, counted = launch.role, launch.index, launch.attempt, launch.counted
        replica = Replica(name, role, index, attempt, counted, "running", self._now(), raised=launch.raised)
        if len(self._placed) >= self._places:
            self._waiting[name] = replace(replica, state="pending", pending=Unschedulable("all places are taken"))
        else:
            await self._run(replica)
        self._changed.set()

    async def _run(self, replica: Replica) -> None:
        self._placed.add(replica.name)
        words = ["-m", "elastic_run", f"--node-name={replica.name}", *self._words]
        process = await asyncio.create_subprocess_exec(sys.executable, *words, start_new_session=True)
        node = self._nodes[replica.name] = Node(replica, process)
        node.task = asyncio.create_task(self._reap(node))

    async def stop(self, name: str) -> None:
        print(f"platform: stops {name}", flush=True)
        self._waiting.pop(name, None)
        node = self._nodes.get(name)
        if node is None or node.process.returncode is not None:
            self._nodes.pop(name, None)
        else:
            node.replica = replace(node.replica, stopping=True)
            node.process.terminate()
        self._changed.set()

    async def _reap(self, node: Node) -> None:
        code = await node.process.wait()
        self._placed.discard(node.replica.name)
        if node.replica.stopping:
            del self._nodes[node.replica.name]
        else:
            end = Exited(code if code >= 0 else 128 - code)
            node.replica = replace(node.replica, state="ended", since=self._now(), end=end)
        if self._waiting:  # as a scheduler does: the first that waits has the place
            waits = self._waiting.pop(next(iter(self._waiting)))
            await self._run(replace(waits, state="running", pending=None, since=self._now()))
        self._changed.set()

    def close(self) -> None:
        """Ends all of them."""
        for node in self._nodes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.process.pid, signal.SIGKILL)


class Cluster:
    """Stands in for the cluster of the master's pod (`master_pod.Cluster`)."""

    def __init__(self, say: Say) -> None:
        self.say = say

    async def over(self) -> None:
        """No master was here before."""

    def waiting(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Nobody is told of it."""
        return contextlib.nullcontext()

    async def unless_store_fails(self, work: Coroutine[Any, Any, tuple[int, str]]) -> tuple[int, str]:
        """It does not."""
        return await work

    async def end_store(self) -> None:
        """The store is the test's."""

    async def lead(self, start: Start, endpoints: str) -> tuple[int, str]:
        """Until the job is over."""
        places = int(os.environ.get(PLACES, "1000"))
        platform = LocalPlatform(start.options.job_id, join_words(start.options, endpoints), places)
        try:
            return await managed(start, NodeManager(platform, start.say, asyncio.get_running_loop().time), Wish())
        finally:
            platform.close()


@contextlib.asynccontextmanager
async def cluster_of(options: Options, say: Say) -> AsyncGenerator[Cluster]:
    """In the place of the one in `managed_nodes`."""
    yield Cluster(say)


if __name__ == "__main__":
    with patch.object(managed_nodes, "cluster_of", cluster_of):
        sys.exit(main())
