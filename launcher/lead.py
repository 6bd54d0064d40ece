"""`elastic-run master`: a process without workers that takes part in the election of the job's master.

It is given what the nodes are given, the command included: what a job's nodes must agree on, its master must, too, and
where no node has come yet, the master says what that is.
"""

import asyncio
import sys

from ..elastic_agent import plan
from ..elastic_agent.master_process import MasterProcess, MasterSetup
from ..master.nodes.platform import PlatformError
from ..rendezvous.errors import RendezvousError
from . import managed_nodes
from .early import heeded, node_name
from .flags import UsageError
from .run import Unreachable, address_of, code_of, ended_by, endpoints_of, store_of, terms, trace_of
from .settings import Options


def main(options: Options) -> int:
    """Runs it in an event loop of its own; the exit code is that of the job's nodes. Raises UsageError."""
    if options.store.kind == "memory":
        raise UsageError(
            "elastic-run master: a job of one node has its master in its agent; give --nnodes and --rdzv-endpoint as "
            "the nodes have them"
        )
    return asyncio.run(_run(options))


async def _run(options: Options) -> int:
    for note in options.notes:
        _say(note)
    endpoints = endpoints_of(options)
    told: list[int] = []
    trace = trace_of(options, _say)
    try:
        where = address_of(options, endpoints)
        with ended_by(options.signals, told):
            async with store_of(options, endpoints, where, _say) as store:
                _say(f"job {options.job_id}: this process has no workers, and leads the job while it is elected")
                setup = MasterSetup(
                    job=options.job_id,
                    name=f"{node_name(options)}-master",
                    host=where.host,
                    bind=where.bind or "",
                    terms=terms(options),
                    lease_ttl=options.timing.lease_ttl,
                    signals=heeded(options.signals),
                )
                if options.platform:
                    code, why = await managed_nodes.lead(options, endpoints, setup, store, _say, trace)
                else:
                    code, why = await MasterProcess(setup, store, _say, trace).run()
    except asyncio.CancelledError:
        if not told:
            raise
        code, why = 128 + told[0], "told to end while it waited for the store"
    except Unreachable as error:
        code, why = plan.REFUSED, str(error)
    except PlatformError as error:
        code, why = plan.REFUSED, str(error)
    except RendezvousError as error:
        code, why = code_of(error), str(error)
    except OSError as error:
        code, why = plan.FAILED, f"this machine cannot run a master: {error}"
    finally:
        trace.close()
    _say(f"the master's process ends with exit code {code}: {why}")
    return code


def _say(line: str) -> None:
    sys.stderr.write(f"[elastic-run] {line}\n")
    sys.stderr.flush()
