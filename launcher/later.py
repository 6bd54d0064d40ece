"""What a job needs after its workers' first lines only: it is loaded then, so that workers start the sooner.

It is not left until it is needed: no fault is to wait for it, or to find that a machine short of memory or descriptors
cannot load it, or that the package has been replaced by another version meanwhile.
"""

import asyncio
from functools import partial
from importlib import import_module

from ..rendezvous.base.threads import Threads

SECONDS = 0.3
"""After the agent's start: until then the processors are for the workers."""

LONGEST_SECONDS = 60.0
"""For one of them, on a file system that hangs: those that are left are loaded where they are needed."""

MODULES = (
    "..elastic_agent.diagnosis.looks",
    "..elastic_agent.memory_holder",
    "..master.data.left_shards",
    "..master.data.shard",
    "..master.diagnosis.ends",
    "..master.diagnosis.replacement",
    "..master.diagnosis.stragglers",
    "..master.diagnosis.suspects",
    "..rendezvous.rpc.client",
    ".summary",
)


async def load_later() -> None:
    """In a thread: a package on a file system that hangs holds neither the agent nor its end."""
    await asyncio.sleep(SECONDS)
    threads = Threads(1)
    for name in MODULES:
        await threads.run(partial(import_module, name, __package__), LONGEST_SECONDS)
