"""Attaches a journal to an agent, where the job's events are wanted."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial

from ...elastic_agent.agent import Agent
from ...elastic_agent.setup import Setup
from ...rendezvous.base.cancel import running
from ...rendezvous.base.threads import call_from_thread
from ...rendezvous.version import VERSION
from ..settings import Options
from .journal import Journal
from .records import Begun


def journal_of(options: Options, setup: Setup, say: Callable[[str], None]) -> Journal:
    """The journal of this node. `say` prints one line, in the event loop's thread."""
    begun = Begun(
        unix=time.time(),
        job=options.job_id,
        node=setup.workers.node,
        host=socket.gethostname(),
        script=options.command.target,
        nodes=str(options.nodes),
        workers=options.nproc,
        version=VERSION,
    )
    return Journal(begun, options.output.history, partial(call_from_thread, asyncio.get_running_loop(), say))


@contextlib.asynccontextmanager
async def following(
    journal: Journal, agent: Agent, options: Options, say: Callable[[str], None]
) -> AsyncGenerator[None]:
    """The journal looks at the job while the context lasts, and a dashboard is served where one is wanted."""
    ask = agent.job_status if options.output.dashboard is not None else None
    async with running(journal.follow(lambda: agent.status, ask), "history"), contextlib.AsyncExitStack() as stack:
        if options.output.dashboard is not None:
            from ..dashboard.server import served

            where = options.output.dashboard
            await stack.enter_async_context(served(where, journal, agent.job_status, agent.look, say))
        yield
