"""The nodes that a master's process starts, replaces and stops itself (`elastic-run master --platform=...`).

The job's master says how many nodes the job wants (`master/targets.py`), whichever process it is in; the node manager
here brings a platform up to that (`master/nodes/`). What a node runs is the command that joins the job.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...elastic_agent import plan
from ...elastic_agent.master_process import MasterProcess, MasterSetup
from ...master.nodes.local import LocalPlatform
from ...master.nodes.node_manager import NodeManager, Wanted
from ...master.nodes.platform import PlatformRefused
from ...master.nodes.reconcile import Demand
from ...master.status import Status
from ...rendezvous.cancel import cancel
from ...rendezvous.identity.secret import VARIABLE, Secret
from ...rendezvous.reasons import JobOver
from ...rendezvous.store.contract import Store
from ...rendezvous.store.endpoint import Endpoint
from ...rendezvous.trace_file import Trace
from ..settings import Options, join_words

if TYPE_CHECKING:
    from .master_pod import Cluster

DRAIN_SECONDS = 30.0
"""Seconds beyond the shutdown timeout that the nodes of a job that is over have to end by themselves."""

FINISHED_SECONDS = 60.0
"""Seconds that the job's master has to see the end of a job of which a node has ended with success. The store tells of
it for a while only: a master that comes later would wait for nodes for ever."""

CANCELLED = "it was cancelled by its user"
"""Why a job ended that somebody has cancelled."""

Say = Callable[[str], None]

Spans = Mapping[str, tuple[int, int]]
"""By role, the least and the most nodes of the job; one nameless role where it has none."""


@dataclass(slots=True)
class Wish:
    """What the user wants of a job that runs, within what it was started with.

    Attributes:
        scale: by role, at most so many nodes; roles that are missing have their maximum.
        suspended: no node at all.
        cancelled: the job is to end.
        heard: called after each change.
    """

    scale: Mapping[str, int] = field(default_factory=dict[str, int])
    suspended: bool = False
    cancelled: bool = False
    heard: Callable[[], None] = lambda: None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self, scale: Mapping[str, int], *, suspended: bool, cancelled: bool) -> None:
        """That is wanted from now on."""
        self.scale, self.suspended, self.cancelled = scale, suspended, cancelled
        self.heard()
        before, self._changed = self._changed, asyncio.Event()
        before.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until a change has made that true."""
        while not holds():
            await self._changed.wait()


async def lead(start: "Start", endpoints: tuple[Endpoint, ...], cluster: "Cluster | None") -> tuple[int, str]:
    """Takes part in the election, and runs the node manager, until the job is over: the exit code, and why.

    A process that is told to end leaves pods as they are: they train on, and another process like this one takes them
    up. Nodes on this machine are its children, and go with it.

    Raises:
        PlatformError: the platform refuses.
    """
    text = ",".join(each.typed for each in endpoints)
    if cluster is None:
        return await _on_this_machine(start, text)
    from .master_pod import lead as lead_pods

    return await lead_pods(start, text, cluster)


@contextlib.asynccontextmanager
async def cluster_of(options: Options, say: Say) -> "AsyncGenerator[Cluster | None]":
    """The cluster in which this process leads a job; None where its nodes are on this machine, or nobody's.

    Raises:
        PlatformError: there is none here.
    """
    if options.platform != "kubernetes":
        yield None
        return
    try:  # here, because nothing else needs that package
        from . import master_pod
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes":
            raise
        raise PlatformRefused(NO_PACKAGE) from None
    async with master_pod.cluster_of(say) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Start:
    """What both platforms need to run a master beside their node manager."""

    options: Options
    setup: MasterSetup
    store: Store
    say: Say
    trace: Trace | None
    secret: Secret | None = None


async def _on_this_machine(start: Start, endpoints: str) -> tuple[int, str]:
    def command(role: str, name: str) -> Sequence[str]:
        own = [f"--node-name={name}", *([f"--node-role={role}"] if role else [])]
        return [sys.executable, "-P", "-m", "elastic_run", *join_words(start.options, endpoints, *own)]

    now = asyncio.get_running_loop().time
    # In the environment, and nowhere else: each of them takes it out of its own.
    environ = {**os.environ, **({VARIABLE: start.secret.text} if start.secret is not None else {})}
    local = LocalPlatform(start.options.job_id, command, now, environ)
    try:
        return await managed(start, NodeManager(local, start.say, now), Wish())
    finally:
        await local.close()


NO_PACKAGE = "Kubernetes needs the Python package of that name: pip install 'elastic-run[kubernetes]'"


async def managed(
    start: Start, manager: NodeManager, wish: Wish, observe: Callable[[Status], None] = lambda status: None
) -> tuple[int, str]:
    """Has `manager` carry out the job's targets until the job is over, or cannot have its minimum any more.

    A run that ends because all its nodes were told to go is followed by another: their places were taken, or the user
    has suspended the job. `observe` is told of the job's status all the time.
    """
    spans = spans_of(start.options)
    newest: Status | None = None

    def aim() -> None:
        manager.want(wanted(newest, spans, wish))

    def on_status(status: Status) -> None:
        nonlocal newest
        newest = status
        aim()
        observe(status)

    managing = asyncio.create_task(manager.run(), name="node manager")
    cancelled = asyncio.create_task(wish.until(lambda: wish.cancelled), name="cancelled")
    finished = asyncio.create_task(_after(manager.finished, FINISHED_SECONDS), name="finished")
    wish.heard = aim
    leading: asyncio.Task[tuple[int, str]] | None = None
    try:
        while True:
            newest = None
            aim()
            await wish.until(lambda: wish.cancelled or not wish.suspended)
            master = MasterProcess(start.setup, start.store, start.say, start.trace, on_status)
            leading = asyncio.create_task(master.run(), name="master")
            ends = {managing, leading, manager.hopeless, cancelled, finished}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if managing.done():
                managing.result()  # it never ends by itself: raises what went wrong
            if leading.done() and master.end is not None and master.end.state == "preempted" and not wish.cancelled:
                start.say("all nodes were told to leave; the job continues when other nodes have started")
                continue
            if leading.done():
                code, why = leading.result()
                if code < 128:
                    await manager.drain(start.options.shutdown_timeout + DRAIN_SECONDS)
                return code, why
            if finished.done():
                await manager.drain(0.0)
                return plan.SUCCEEDED, f"it has succeeded while no master saw it: {finished.result()}"
            why = CANCELLED if cancelled.done() else f"it cannot have its nodes: {manager.hopeless.result()}"
            await manager.drain(0.0)
            return plan.FAILED, why
    finally:
        wish.heard = lambda: None
        await cancel(managing, cancelled, finished, *([leading] if leading else []))


async def _after(reason: "asyncio.Future[str]", seconds: float) -> str:
    found = await asyncio.shield(reason)
    await asyncio.sleep(seconds)
    return found


def spans_of(options: Options) -> Spans:
    """How many nodes of each role the job may have (pure)."""
    roles = {role.name: (role.min_nodes, role.max_nodes) for role in options.roles}
    return roles or {"": (options.policy.usable_minimum, options.policy.usable(options.nodes.maximum))}


def wanted(status: Status | None, spans: Spans, wish: Wish) -> Wanted:
    """What the job wants, as its master says and its user allows (pure). `status`: None before the first word of it."""
    targets = {each.role: each for each in status.targets} if status else {}
    demands: list[Demand] = []
    for role, (least, most) in spans.items():
        count = targets[role].count if role in targets else most
        count = 0 if wish.suspended else min(count, wish.scale.get(role, count))
        demands.append(Demand(role, count, min(count, least)))
    return Wanted(tuple(demands), over=any(isinstance(each.reason, JobOver) for each in targets.values()))
