"""The nodes that a master's process starts, replaces and stops itself (`elastic-run master --nodes-on=...`).

The job's master says how many nodes the job wants (`master/targets.py`), whichever process it is in; the node manager
here brings a platform up to that (`master/nodes/`). What a node runs is the command that joins the job.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping

from ..elastic_agent import plan
from ..elastic_agent.master_process import MasterProcess, MasterSetup
from ..master.nodes.local import LocalPlatform
from ..master.nodes.node_manager import NodeManager, Wanted
from ..master.nodes.reconcile import Demand
from ..master.status import Status
from ..rendezvous.cancel import cancel
from ..rendezvous.reasons import JobOver
from ..rendezvous.store.contract import Store
from ..rendezvous.store.endpoint import Endpoint
from ..rendezvous.trace_file import Trace
from .settings import Options, join_words

DRAIN_SECONDS = 30.0
"""Seconds beyond the shutdown timeout that the nodes of a job that is over have to end by themselves."""

Say = Callable[[str], None]


async def lead(
    options: Options, endpoints: tuple[Endpoint, ...], setup: MasterSetup, store: Store, say: Say, trace: Trace | None
) -> tuple[int, str]:
    """Takes part in the election, and runs the node manager, until the job is over: the exit code, and why.

    A process that is told to end leaves the nodes as they are: they train on, and another process like this one takes
    them up. On this machine they are its children and go with it.
    """
    now = asyncio.get_running_loop().time
    text = ",".join(map(str, endpoints))

    def command(role: str, name: str) -> list[str]:
        own = [f"--node-name={name}", *([f"--node-role={role}"] if role else [])]
        return [sys.executable, "-m", "elastic_run", *join_words(options, text, *own)]

    local = LocalPlatform(options.job_id, command, now, environ=os.environ)
    manager = NodeManager(local, say, now)
    try:
        return await managed(options, manager, setup, store, say, trace)
    finally:
        await local.close()


async def managed(
    options: Options, manager: NodeManager, setup: MasterSetup, store: Store, say: Say, trace: Trace | None
) -> tuple[int, str]:
    """Has `manager` carry out the job's targets until the job is over, or cannot have its minimum any more."""
    spans = spans_of(options)
    manager.want(Wanted(tuple(Demand(role, most, least) for role, (least, most) in spans.items())))
    master = MasterProcess(setup, store, say, trace, lambda status: manager.want(wanted(status, spans)))
    managing = asyncio.create_task(manager.run(), name="node manager")
    leading = asyncio.create_task(master.run(), name="master")
    try:
        await asyncio.wait({managing, leading, manager.hopeless}, return_when=asyncio.FIRST_COMPLETED)
        if managing.done():
            managing.result()  # it never ends by itself: raises what went wrong
        if not leading.done():
            code, why = plan.FAILED, f"the job cannot have the nodes that it needs: {manager.hopeless.result()}"
            await manager.drain(0.0)
            return code, why
        code, why = leading.result()
        if code < 128:
            await manager.drain(options.shutdown_timeout + DRAIN_SECONDS)
        return code, why
    finally:
        await cancel(leading, managing)


def spans_of(options: Options) -> Mapping[str, tuple[int, int]]:
    """By role, the least and the most nodes of the job; one nameless role where it has none."""
    roles = {role.name: (role.min_nodes, role.max_nodes) for role in options.roles}
    return roles or {"": (options.policy.usable_minimum, options.policy.usable(options.nodes.maximum))}


def wanted(status: Status, spans: Mapping[str, tuple[int, int]]) -> Wanted:
    """What the job wants, as its master says (pure)."""
    return Wanted(
        tuple(
            Demand(each.role, each.count, min(each.count, spans[each.role][0]))
            for each in status.targets
            if each.role in spans
        ),
        over=any(isinstance(each.reason, JobOver) for each in status.targets),
    )
