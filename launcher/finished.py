"""Who has seen a job succeed: a command that is begun there later is a new start, and no late node of that job.

For a minute after a success its id is refused, so that a node which comes late does not start the job again. The same
command typed again looks like such a node to the store. So each node that has seen the end leaves word of it beside the
tombstone, for as long as that stays: a command that was begun after that, under the same name on the same machine,
means to run the job again.
"""

import asyncio
import contextlib
from pathlib import Path

from ..rendezvous.base.errors import StoreError
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.keys import Keys
from ..rendezvous.store.contract import Compare, Put, Store
from ..rendezvous.wire.fields import Name
from ..rendezvous.wire.values import Malformed, decode, encode

SECONDS = 5.0
"""That the store may take; without an answer the id is refused for its minute."""

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Names the machine and its start, since which the monotonic clock counts."""


@dataclass(frozen=True, slots=True)
class SeenEnd:
    """A node of this `machine` has seen the job's end `at` these seconds of its monotonic clock."""

    machine: Name
    at: float


async def note(store: Store, keys: Keys, node: str, run: str, now: float) -> None:
    """Leaves word that `node` has seen `run` succeed, unless one of that name has."""
    with contextlib.suppress(OSError, StoreError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            tombstone = await store.get(keys.outcome)
            if tombstone is not None:
                key, value = keys.seen_end(node, run), encode(SeenEnd(_machine(), now))
                compares = [Compare(keys.outcome, tombstone.create_revision), Compare(key, 0)]
                await store.txn(compares, [Put(key, value, tombstone.lease)], idempotent=True)


async def runs_before(store: Store, keys: Keys, node: str, begun: float) -> frozenset[str]:
    """The runs that a node of that name has seen succeed on this machine before `begun`, in monotonic seconds."""
    found, prefix = set[str](), keys.seen_end(node)
    with contextlib.suppress(OSError, StoreError, TimeoutError):
        async with asyncio.timeout(SECONDS):
            machine = _machine()
            for item in (await store.list(prefix)).items:
                with contextlib.suppress(Malformed):
                    seen = decode(SeenEnd, item.value)
                    if seen.machine == machine and seen.at < begun:
                        found.add(item.key.removeprefix(prefix))
    return frozenset(found)


def _machine() -> str:
    return BOOT.read_text(encoding="ascii").strip()
