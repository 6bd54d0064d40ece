"""What waits for the store on this node: it is asked again until it answers, and a wait that lasts is told.

Nothing that a job needs is given up because the store is away for a while, or refuses for want of space. Who has
workers continues with them; who has none looks at `longest`, and ends in words when that is too long.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..base.errors import Compacted, LeaseLost, StoreError, StoreRefused, StoreUnavailable
from .contract import KeyValue, Store

T = TypeVar("T")

PAUSE = 0.1
"""Seconds between two attempts; the store paces its own, this only yields to the other tasks."""

TOLD_AFTER = 5.0
"""Seconds; what waits for a shorter time is not worth a word."""

TOLD_AGAIN = 60.0
"""Seconds until a wait that lasts is told again."""


@dataclass(slots=True)
class Wait:
    """One thing that waits; several tasks may wait for it.

    Attributes:
        what: in words, as the subject of a sentence.
        begun: when each of them began (the clock's time).
        error: what the store said last.
        due: when it is to be told, or told again.
        told: it has been.
    """

    what: str
    begun: list[float]
    error: StoreError
    due: float
    told: bool = False

    @property
    def since(self) -> float:
        """Since when the first of them has waited."""
        return min(self.begun)

    def words(self, now: float) -> str:
        """What waits, for how long, and why."""
        if isinstance(self.error, StoreRefused):
            does = "the store refuses"
        elif isinstance(self.error, LeaseLost):
            does = "the store takes longer than a lease lasts"
        else:
            does = "the store does not answer in time"
        seconds = round(now - self.since)
        waits = f"has waited for {seconds} s" if seconds else "is delayed"
        return f"{does} ({self.error}); {self.what} {waits}"


class Waits:
    """Of one node.

    Args:
        say: prints one line for a person.
        now: the clock, seconds.
        changed: is called when something waits, for longer than before.
    """

    def __init__(
        self, say: Callable[[str], None], now: Callable[[], float], changed: Callable[[], None] = lambda: None
    ) -> None:
        self._say = say
        self._now = now
        self._changed = changed
        self._waits: dict[str, Wait] = {}

    async def until_answered(self, what: str, ask: Callable[[], Awaitable[T]], *, within: float = math.inf) -> T:
        """The answer. Raises whatever is no StoreUnavailable at once, and StoreUnavailable `within` so many seconds."""
        began, wait, answered = self._now(), None, False
        try:
            while True:
                try:
                    answer = await ask()
                except StoreUnavailable as error:
                    wait = wait or self._begin(what, error, began)
                    self._tell(wait, error)
                    if self._now() - began > within:
                        raise StoreUnavailable(wait.words(self._now())) from None
                    await asyncio.sleep(PAUSE)
                else:
                    answered = True
                    return answer
        finally:
            if wait:
                self._end(wait, began, answered=answered)

    async def follow_key(
        self, what: str, store: Store, key: str, hear: Callable[[KeyValue | None], Awaitable[bool]]
    ) -> None:
        """Has `hear` know the key as it is, then each change (None: it is absent), until that returns True."""

        async def hear_item(seen: Mapping[str, KeyValue | None], _: int) -> bool:
            return await hear(seen[key])

        await self.follow_keys(what, store, key, hear_item, prefix=False)

    async def follow_keys(
        self,
        what: str,
        store: Store,
        key: str,
        hear: Callable[[Mapping[str, KeyValue | None], int], Awaitable[bool]],
        *,
        prefix: bool = True,
    ) -> None:
        """The same of all keys of a prefix: those that are there, then what changes together, and the store's revision.

        Where it is read again, the keys that have gone meanwhile are among them.
        """
        known = set[str]()
        while True:
            with contextlib.suppress(Compacted, StoreUnavailable):  # the next read says how it is
                # From the revision of the read on: an earlier run of this id may be in the store's history.
                listing = await self.until_answered(what, lambda: store.list(key))
                here = {item.key: item for item in listing.items if prefix or item.key == key}
                said = known | here.keys() if prefix else {key}
                known = set(here)
                if await hear({each: here.get(each) for each in sorted(said)}, listing.revision):
                    return
                async for changes in store.watch(key, listing.revision + 1, prefix=prefix):
                    seen = {each.kv.key: each.kv if each.kind == "put" else None for each in changes}
                    known = (known | seen.keys()) - {each for each, item in seen.items() if item is None}
                    if await hear(seen, changes[0].kv.mod_revision):
                        return

    def failed(self, what: str, error: StoreError, began: float | None = None) -> None:
        """An attempt at `what`, which began then (None: just now), has failed; it will be repeated."""
        wait = self._waits.get(what) or self._begin(what, error, self._now() if began is None else began)
        self._tell(wait, error)

    def done(self, what: str) -> None:
        if wait := self._waits.get(what):
            self._end(wait, wait.since, answered=True)

    def _begin(self, what: str, error: StoreError, began: float) -> Wait:
        wait = self._waits.setdefault(what, Wait(what, [], error, began + TOLD_AFTER))
        wait.begun.append(began)
        return wait

    def _tell(self, wait: Wait, error: StoreError) -> None:
        now = self._now()
        wait.error = error
        if isinstance(error, StoreRefused) and not wait.told:
            wait.due = now  # it will not pass by itself
        if now >= wait.due:
            wait.told, wait.due = True, now + TOLD_AGAIN
            self._say(f"{wait.words(now)}; retrying, and running workers continue")
        self._changed()

    def _end(self, wait: Wait, began: float, *, answered: bool) -> None:
        """The task that began to wait then has its answer, or wants none any more."""
        wait.begun.remove(began)
        if wait.begun:
            return
        del self._waits[wait.what]
        if answered and wait.told:
            self._say(f"the store answered after {self._now() - began:.0f} s: {wait.what} continues")

    @property
    def longest(self) -> Wait | None:
        """What has waited for the longest time."""
        return min(self._waits.values(), key=lambda wait: wait.since, default=None)
