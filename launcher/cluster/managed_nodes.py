"""The nodes that a master's process starts, replaces and stops itself (`elastic-run master --platform=kubernetes`).

The job's master writes how many nodes the job wants (`master/machine/targets.py`), whichever process it is in; the node
manager here watches that, and brings a platform up to it (`master/nodes/`). What a node runs is the command that joins
the job.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from ...elastic_agent.machine import plan
from ...elastic_agent.master_process import MasterProcess, MasterSetup
from ...master.machine.targets import Targets, read_targets
from ...master.nodes.node_manager import NodeManager, Wanted
from ...master.nodes.platform import PlatformRefused
from ...master.nodes.reconcile import Demand
from ...master.status import Status
from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.errors import StoreError
from ...rendezvous.base.frozen import dataclass, field
from ...rendezvous.host.trace_file import Trace
from ...rendezvous.keys import Keys
from ...rendezvous.reasons import JobOver
from ...rendezvous.store.contract import Health, KeyValue, Store
from ...rendezvous.store.waits import Waits
from ...rendezvous.wire.values import Malformed
from ..settings import Options

if TYPE_CHECKING:
    from .master_pod import Cluster

DRAIN_SECONDS = 30.0
"""Seconds beyond the shutdown timeout that the nodes of a job that is over have to end by themselves."""

FINISHED_SECONDS = 60.0
"""Seconds that the job's master has to see the end of a job of which a node has ended with success. The store tells of
it for a while only: a master that comes later would wait for nodes for ever."""

LEAVE_SECONDS = 10.0
"""Seconds that nodes are asked to leave by themselves, and that they have beyond the shutdown timeout."""

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


@contextlib.asynccontextmanager
async def cluster_of(options: Options, say: Say) -> "AsyncGenerator[Cluster | None]":
    """The cluster in which this process leads a job; None where it starts no nodes.

    Raises:
        PlatformError: there is none here.
    """
    if not options.platform:
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
    """What a master needs that runs beside its node manager."""

    options: Options
    setup: MasterSetup
    store: Store
    say: Say
    trace: Trace | None


NO_PACKAGE = "Kubernetes needs the Python package of that name: pip install 'elastic-run[kubernetes]'"


async def managed(
    start: Start, manager: NodeManager, wish: Wish, observe: Callable[[Status], None] | None = None
) -> tuple[int, str]:
    """Has `manager` carry out the job's targets until the job is over, or cannot have its minimum any more.

    A run that ends because all its nodes were told to go is followed by another: their places were taken, or the user
    has suspended the job. `observe` is told of the job's status all the time, for a person.
    """
    spans = spans_of(start.options)
    seen: Targets | None = None

    def aim(found: Targets | None = None) -> None:
        nonlocal seen
        seen = found or seen
        if want := wanted(seen, spans, wish):
            manager.want(want)

    start.say("nodes are started when the job's master has written how many it wants")
    manager.doubt = lambda: doubt(start.store.health)
    watching = asyncio.create_task(watch_targets(start.store, Keys(start.options.job_id), spans, start.say, aim))
    managing = asyncio.create_task(manager.run(), name="node manager")
    cancelled = asyncio.create_task(wish.until(lambda: wish.cancelled), name="cancelled")
    finished = asyncio.create_task(_after(manager.finished, FINISHED_SECONDS), name="finished")
    wish.heard = aim
    leading: asyncio.Task[tuple[int, str]] | None = None
    try:
        while True:
            aim()
            await wish.until(lambda: wish.cancelled or not wish.suspended)
            master = MasterProcess(start.setup, start.store, start.say, start.trace, observe)
            leading = asyncio.create_task(master.run(), name="master")
            ends = {managing, watching, leading, manager.hopeless, cancelled, finished}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in (managing, watching):
                if each.done():
                    each.result()  # it never ends by itself: raises what went wrong
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
            # What ends by itself stays, with its log; what the platform stops goes.
            leaving: Collection[str] = ()
            if master.known:
                with contextlib.suppress(StoreError, TimeoutError):
                    async with asyncio.timeout(LEAVE_SECONDS):
                        leaving = await master.ask_to_leave(master.known.number, why)
            await manager.drain(start.options.shutdown_timeout + LEAVE_SECONDS if leaving else 0.0, leaving)
            return plan.FAILED, why
    finally:
        wish.heard = lambda: None
        await cancel(managing, watching, cancelled, finished, *([leading] if leading else []))


async def _after(reason: "asyncio.Future[str]", seconds: float) -> str:
    found = await asyncio.shield(reason)
    await asyncio.sleep(seconds)
    return found


def spans_of(options: Options) -> Spans:
    """How many nodes of each role the job may have (pure)."""
    roles = {role.name: (role.min_nodes, role.max_nodes) for role in options.roles}
    return roles or {"": (options.policy.usable_minimum, options.policy.usable(options.nodes.maximum))}


async def watch_targets(store: Store, keys: Keys, spans: Spans, say: Say, heard: Callable[[Targets], None]) -> None:
    """Has `heard` know what the job's leader has written, whoever leads, until cancelled. Raises StoreRefused."""

    async def hear_value(item: KeyValue | None) -> bool:
        try:
            if item:
                heard(read_targets(item.value, tuple(spans)))
        except Malformed as error:
            say(f"ignored: {keys.targets} ({error}): does another version lead the job? What was written before holds")
        return False

    waits = Waits(say, asyncio.get_running_loop().time)
    await waits.follow_key("how many nodes the job wants", store, keys.targets, hear_value)


def doubt(health: Health) -> str:
    """Why the job may want nobody any more, whatever its leader had written; empty where it says so now (pure)."""
    return "" if health.reachable else f"the job may be over, for the store does not answer ({health.detail})"


def wanted(seen: Targets | None, spans: Spans, wish: Wish) -> Wanted | None:
    """What the job wants, as its leader has written and its user allows (pure); None before the first word of it."""
    if seen is None and not wish.suspended:
        return None
    demands: list[Demand] = []
    for number, (role, (least, most)) in enumerate(spans.items()):
        count = seen.wanted[number].count if seen and not wish.suspended else 0
        count = min(count, wish.scale.get(role, most), most)
        demands.append(Demand(role, count, min(count, least)))
    ends = {each.reason.outcome for each in (seen or Targets()).wanted if isinstance(each.reason, JobOver)}
    # A job whose nodes were all told to go is not over; while its user has suspended it, nothing follows that run.
    over = bool(ends) and not (wish.suspended and ends == {"preempted"})
    return Wanted(tuple(demands), over)
