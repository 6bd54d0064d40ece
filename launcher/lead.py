"""`elastic-run master`: a process without workers that takes part in the election of the job's master.

It is given what the nodes are given, the command included: what a job's nodes must agree on, its master must, too, and
where no node has come yet, the master says what that is.
"""

import asyncio
import time
from typing import TYPE_CHECKING

from ..elastic_agent.machine import plan
from ..elastic_agent.master_process import MasterProcess, MasterSetup
from ..master.nodes.platform import PlatformError
from ..rendezvous.base.cancel import running
from ..rendezvous.base.errors import RendezvousError
from ..rendezvous.host.trace_file import Trace
from ..rendezvous.keys import Keys
from ..rendezvous.store.endpoint import Endpoint
from . import finished
from .address import Address, Unreachable, address_of, endpoints_of
from .cluster import managed_nodes
from .console import say
from .early import heeded, node_name
from .errors import UsageError
from .later import load_later
from .run import beside_master, code_of, ended_by, terms, trace_of
from .settings import Options
from .store_access import store_of
from .trust import identity_of, protected, security

if TYPE_CHECKING:
    from .cluster.master_pod import Cluster


def main(options: Options, entered: float) -> int:
    """Runs it in an event loop of its own; the exit code is that of the job's nodes. Raises UsageError.

    Args:
        entered: when the command line was begun to be read, in monotonic seconds.
    """
    if options.store.kind == "memory":
        raise UsageError(
            "elastic-run master: a job of one node has its master in its agent; give --nnodes and --rdzv-endpoint as "
            "the nodes have them"
        )
    return asyncio.run(_run(options, entered))


async def _run(options: Options, entered: float) -> int:
    for note in options.notes:
        say(note)
    wanted = (("--history", options.output.history), ("--dashboard", options.output.dashboard))
    for name in (name for name, value in wanted if value is not None):
        say(f"{name} has no effect on a master's process, which runs no workers: give it to the nodes")
    endpoints = endpoints_of(options)
    told: list[int] = []
    trace = trace_of(options, say)
    try:
        where = address_of(options, endpoints)
        with ended_by(options.signals, told):
            loading = running(load_later(), "load what is needed later")
            async with loading, managed_nodes.cluster_of(options, say) as cluster:
                code, why = await _in_cluster(options, endpoints, where, trace, cluster, entered)
    except asyncio.CancelledError:
        if not told:
            raise
        code, why = 128 + told[0], "told to end while it waited for the store"
    except (Unreachable, PlatformError) as error:
        code, why = plan.REFUSED, str(error)
    except RendezvousError as error:
        code, why = code_of(error), str(error)
    except OSError as error:
        code, why = plan.FAILED, f"this machine cannot run a master: {error}"
    finally:
        trace.close()
    say(f"the master's process ends with exit code {code}: {why}")
    return code


async def _in_cluster(
    options: Options,
    endpoints: tuple[Endpoint, ...],
    where: Address,
    trace: Trace,
    cluster: "Cluster | None",
    entered: float,
) -> tuple[int, str]:
    """`cluster`: in which this process starts the nodes, or None."""
    if cluster is None:
        return await _with_store(options, endpoints, where, say, trace, None, entered)
    over = await cluster.over()
    if over is None:
        async with cluster.waiting():
            work = _with_store(options, endpoints, where, cluster.say, trace, cluster, entered)
            code, why = await cluster.unless_store_fails(work)
    else:
        code, why = over
    if code < 128 and code != plan.STORE_LOST:
        await cluster.end_store()  # here, because the master leaves its store in order first
    return code, why


async def _with_store(
    options: Options,
    endpoints: tuple[Endpoint, ...],
    where: Address,
    say: managed_nodes.Say,
    trace: Trace,
    cluster: "Cluster | None",
    entered: float,
) -> tuple[int, str]:
    identity = identity_of(options.trust, endpoints, say)
    endpoints = protected(endpoints, identity)
    async with store_of(options, endpoints, where, say, identity) as store:
        say(f"job {options.job_id}: this process has no workers, and leads the job while it is elected")
        keys, name = Keys(options.job_id), f"{node_name(options)}-master"
        setup = MasterSetup(
            job=options.job_id,
            name=name,
            host=where.host,
            bind=where.bind or "",
            terms=terms(options, identity=identity),
            lease_ttl=options.timing.lease_ttl,
            signals=heeded(options.signals),
            security=security(identity),
            known_runs=await finished.runs_before(store, keys, name, entered),
            beside=beside_master(options),
        )
        if cluster is not None:
            start = managed_nodes.Start(options, setup, store, say, trace)
            return await cluster.lead(start, ",".join(each.typed for each in endpoints))
        process = MasterProcess(setup, store, say, trace)
        code, why = await process.run()
        if code == plan.SUCCEEDED and process.end:
            await finished.note(store, keys, name, process.end.run, time.monotonic())
        return code, why
