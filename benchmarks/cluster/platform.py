"""The simulated cluster as one job's node manager sees it (`master/nodes/platform.py`)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from elastic_run.master.nodes.platform import Observer
from elastic_run.master.nodes.replica import Exited, Launch, Promised, Replica, Starting, Submitted, Unschedulable

from .scheduler import Cluster, Pod, Process


@dataclass(frozen=True, slots=True)
class Priority:
    """Of a job's pods: the lowest `high_count` indexes have `high`, the others `usual`."""

    usual: int = 0
    high: int = 0
    high_count: int = 0

    def of(self, index: int) -> int:
        """Of the pod with that index."""
        return self.high if index < self.high_count else self.usual


@dataclass(eq=False, slots=True)
class SimulatedPlatform:
    """One job's pods.

    Args:
        cluster: where they are.
        job: its name.
        cpu: of each pod.
        begin: starts an agent in a pod.
        grace: seconds between SIGTERM and SIGKILL.
    """

    cluster: Cluster
    job: str
    cpu: int
    priority: Priority
    begin: Callable[[Pod], Process]
    grace: float = 30.0
    _pods: dict[str, tuple[Pod, Launch]] = field(default_factory=dict[str, tuple[Pod, Launch]])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, observe: Observer) -> None:
        """See `Platform`."""
        while True:
            self._changed.clear()
            for name in [name for name, (pod, _) in self._pods.items() if pod.gone]:
                del self._pods[name]
            observe([_replica(pod, launch) for pod, launch in self._pods.values()])
            await self._changed.wait()
            await asyncio.sleep(self.cluster.times.api)

    async def start(self, launch: Launch) -> None:
        """See `Platform`."""
        await asyncio.sleep(self.cluster.times.api)
        name = f"{self.job}-{launch.index}-{launch.attempt}"
        if name in self._pods:
            return
        pod = Pod(
            name,
            self.job,
            self.cpu,
            self.priority.of(launch.index),
            self.grace,
            self.begin,
            self._changed.set,
        )
        self._pods[name] = pod, launch
        self.cluster.create(pod)

    async def stop(self, name: str) -> None:
        """See `Platform`."""
        await asyncio.sleep(self.cluster.times.api)
        if name in self._pods:
            self.cluster.delete(self._pods[name][0])


def _replica(pod: Pod, launch: Launch) -> Replica:
    match pod.state:
        case "submitted":
            state, pending, end = "pending", Submitted(), None
        case "bound":
            state, pending, end = "pending", Starting(), None
        case "unschedulable" if pod.nominated is not None:
            state, pending, end = "pending", Promised(), None
        case "unschedulable":
            state, pending, end = "pending", Unschedulable("Insufficient cpu"), None
        case "running":
            state, pending, end = "running", None, None
        case "ended":
            state, pending, end = "ended", None, Exited(pod.code or 0)
    return Replica(
        pod.name,
        launch.role,
        launch.index,
        launch.attempt,
        launch.counted,
        state,
        pod.since,
        stopping=pod.stopping,
        pending=pending,
        end=end,
    )
