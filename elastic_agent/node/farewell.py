"""The end of a node's part: it goes out of the store in an order that lets the job go on at once."""

import asyncio
import contextlib

from ...rendezvous import election
from ...rendezvous.base.errors import StoreError
from ...rendezvous.store.contract import Store
from ..candidate import Candidate
from ..inbox import Inbox
from ..logs.output import Output
from .registration import NodeRegistration

SECONDS = 5.0
"""That a node takes at most to tell the store that it goes; then its lease does it."""


async def farewell(
    store: Store,
    inbox: Inbox,
    node: NodeRegistration,
    candidate: Candidate,
    leading: asyncio.Task[None],
    reporter: Output,
    close_seconds: float,
) -> None:
    """Takes this node out of the store; whatever does not work within the deadline its lease does.

    A master resigns before its node goes, so that the others need not wait for its lease. Where the job is over, it
    stays until the others have gone and the job's keys are removed.

    Args:
        leading: the task that campaigns, and is the master while elected.
        close_seconds: that a master of a job that is over waits for the other nodes.
    """
    if inbox.state.key.registration is None:
        if node.unconfirmed:  # told to go while it registered: its key may be there, and somebody wait for it
            with contextlib.suppress(TimeoutError, StoreError):
                async with asyncio.timeout(SECONDS):
                    await node.revoke()
        return
    node.leaving = True
    over = inbox.state.known.over or candidate.cleaning_up
    try:
        async with asyncio.timeout(SECONDS):
            leadership = candidate.leadership
            if not over and leadership:
                leading.cancel()
                await asyncio.wait({leading})
                await election.resign(store, leadership)
            await node.deregister()
        if over and candidate.leadership:
            async with asyncio.timeout(close_seconds + SECONDS):
                await asyncio.wait({leading})
        async with asyncio.timeout(SECONDS):
            await node.revoke()
    except (TimeoutError, StoreError) as error:
        words = str(error) or f"no answer within {SECONDS:g} s"
        reporter.say(f"this node could not deregister ({words}); its lease expires by itself")
