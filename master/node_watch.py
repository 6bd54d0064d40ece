"""What the failure detector says of the nodes: one task for each incarnation that the controller has watched."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ..rendezvous.header import Eviction
from ..rendezvous.keys import Keys
from ..rendezvous.member import Member
from ..rendezvous.node_reasons import LossReason, NodeReason
from ..rendezvous.store.contract import Store
from ..rendezvous.store.waits import Waits
from ..rendezvous.wire.values import decode_or_none
from .machine import effects, events
from .machine.events import Event
from .publish import Publisher

DEAD = "the eviction of dead nodes"
"""What may wait for the store."""


class NodeWatch:
    """Waits for proofs of death, and evicts who is dead.

    Args:
        store, keys, publisher, waits, say: the master's.
        dies: returns the proof once a peer is proven dead (`failure_detector.watch_until_dead`).
        heard: returns once a peer has answered (`failure_detector.watch_until_heard`).
        tell: has the controller know of an event.
        changed: is called when there is something to look at: an event was told, or a task has ended.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        publisher: Publisher,
        waits: Waits,
        *,
        say: Callable[[str], None],
        dies: Callable[[str, str], Awaitable[LossReason]],
        heard: Callable[[str, str], Awaitable[None]],
        tell: Callable[[Event], object],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._keys = keys
        self._publisher = publisher
        self._waits = waits
        self._say = say
        self._dies = dies
        self._heard = heard
        self._tell = tell
        self._changed = changed
        self._watchers: dict[str, asyncio.Task[None]] = {}  # by incarnation
        self._listeners: dict[str, asyncio.Task[None]] = {}  # by incarnation

    def carry_out(self, effect: effects.Watch | effects.Unwatch | effects.Listen | effects.Unlisten) -> None:
        """Begins or ends a task."""
        match effect:
            case effects.Watch():
                task = asyncio.create_task(self._watch(effect), name=f"master: failure detector of {effect.node}")
                self._watchers[effect.incarnation] = task
            case effects.Unwatch(incarnation):
                self._watchers.pop(incarnation).cancel()
            case effects.Listen():
                task = asyncio.create_task(self._listen(effect), name=f"master: return of {effect.node}")
                self._listeners[effect.incarnation] = task
            case effects.Unlisten(incarnation):
                self._listeners.pop(incarnation).cancel()

    def check(self) -> None:
        """Raises the error by which a task has ended: Deposed, StoreError."""
        for task in self._watchers.values():
            if task.done():
                task.result()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that were begun and not ended; who ends the leadership ends them."""
        return [*self._watchers.values(), *self._listeners.values()]

    async def _watch(self, node: effects.Watch) -> None:
        """Waits for a proof of its death, where there is none yet, and evicts it."""
        try:
            if how := node.proof or await self._dead(node):
                evict = partial(
                    self._publisher.evict, self._keys.node(node.node), node.order, node.incarnation, Eviction(how)
                )
                self._tell(events.Evicted(node.incarnation, await self._waits.until_answered(DEAD, evict)))
        finally:
            self._changed()

    async def _dead(self, node: effects.Watch) -> NodeReason | None:
        """Returns the proof when it has died; None: it cannot be watched."""
        try:
            how = await self._dies(node.address, node.incarnation)
        except Exception as error:  # noqa: BLE001  one member's oddity must not cost the job its master
            self._say(
                f"cannot watch node {node.node} at {node.address!r} ({error!r}): only its lease shows whether it "
                "is alive"
            )
            return None
        found = await self._waits.until_answered(DEAD, lambda: self._store.get(self._keys.success(node.incarnation)))
        self._tell(
            events.Died(node.node, node.incarnation, how, decode_or_none(Member, found.value) if found else None)
        )
        self._changed()
        return how

    async def _listen(self, node: effects.Listen) -> None:
        try:
            await self._heard(node.address, node.incarnation)
        except Exception:  # noqa: BLE001  as in `_dead`: then it has not been heard
            return
        self._tell(events.Answered(node.incarnation))
        self._changed()
