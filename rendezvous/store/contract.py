"""The store: a small, strictly serializable key-value protocol with revisions, leases and watches.

The semantics are etcd's. Every successful transaction that writes makes one new *revision* (a positive integer,
one sequence for the whole store). A key remembers the revision that created it and the one that last changed it;
a key that does not exist has both at 0. Two implementations pass one contract suite
(`tests/integration/test_store_contract.py`): `memory.MemoryStore` and `etcd.EtcdStore`.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol

from ..base.frozen import dataclass

MAX_OPERATIONS = 128
"""Operations in one transaction; etcd refuses 129."""

MAX_VALUE_BYTES = 1_000_000
"""Bytes in one value; etcd refuses requests of 1.5 MB."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as the store holds it. `lease` is 0 for a key without a lease."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Compare:
    """True where `key`'s create (or mod) revision equals `revision`; 0 means that the key does not exist."""

    key: str
    revision: int
    field: Literal["create", "mod"] = "create"


@dataclass(frozen=True, slots=True)
class Put:
    """Writes `value`; with `lease`, the key goes when the lease does."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes `key`, or with `prefix` every key that begins with it. Removing nothing is no error."""

    key: str
    prefix: bool = False


Operation = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnResult:
    """What a transaction did.

    Attributes:
        succeeded: every compare held and the operations were applied, all at once; else nothing was.
        revision: the store's revision after it.
        current: where it did not succeed, the compared keys as they are, in the compares' order (None: absent);
            empty where it did.
    """

    succeeded: bool
    revision: int
    current: tuple[KeyValue | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The keys under a prefix, sorted by key, as of `revision`."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One change. On a deletion `value` is empty, `create_revision` 0 and `mod_revision` the deletion's revision."""

    kind: Literal["put", "delete"]
    kv: KeyValue


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the store answers.

    Attributes:
        reachable: the last exchange with some endpoint succeeded (False before the first).
        since: seconds on the caller's monotonic clock (`asyncio` loop time) when this began.
        detail: for a person: which endpoint said what.
    """

    reachable: bool
    since: float
    detail: str


class Store(Protocol):
    """What the job needs of a store. Every method but `watch` is bounded by the store's own deadline (seconds)."""

    async def get(self, key: str) -> KeyValue | None:
        """Linearizable read of one key. Raises StoreUnavailable, StoreRefused."""
        ...

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        """Linearizable read of every key under `prefix`. Raises StoreUnavailable, StoreRefused."""
        ...

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        """Applies `operations` at once where every compare holds.

        Args:
            compares: may be empty (always holds).
            operations: at most MAX_OPERATIONS together with the compares' keys; may be empty (a fenced read).
            idempotent: repeating an applied transaction is harmless, so a timed-out attempt is re-issued until
                the deadline.

        Raises:
            MaybeApplied: the answer was lost; re-read before repeating.
            LeaseLost: a Put names a lease that is gone.
            StoreUnavailable: certainly not applied.
            StoreRefused: too many operations, a value too large, no space, credentials.
        """
        ...

    def watch(self, key: str, from_revision: int, *, prefix: bool = False) -> AsyncGenerator[tuple[Event, ...]]:
        """Every change of `key` (or of the keys under it) from `from_revision` on, in revision order.

        Survives disconnects without losing, repeating or reordering a change; the events of one revision arrive
        together, one tuple per revision. Ends only by cancellation (`aclose`) or by an exception. Raises Compacted,
        StoreRefused.
        """
        ...

    async def grant(self, ttl: int) -> int:
        """A new lease of `ttl` seconds, as its id. Raises StoreUnavailable, StoreRefused."""
        ...

    async def keep_alive(self, lease: int, ttl: int) -> None:
        """Keeps `lease` alive until cancelled. Raises LeaseLost when the store says that it is gone, StoreRefused.

        While the store does not answer it goes on trying: a lease may survive a short loss of the store.
        """
        ...

    async def revoke(self, lease: int) -> None:
        """Ends `lease`; its keys go with it. A lease that is gone already is no error. Raises StoreUnavailable."""
        ...

    @property
    def health(self) -> Health:
        """Whether the store answers, as last seen."""
        ...

    async def health_changed(self) -> Health:
        """Waits until `health.reachable` changes, and returns the new health."""
        ...

    @property
    def away_until(self) -> float:
        """When it was last away for so long that leases may have ended of that (the loop's clock).

        Now, while it is away; -inf where it never was, as far as the renewals of this object's own lease tell.
        """
        ...

    def reached(self, revision: int) -> float:
        """When the store was at `revision`, or past it, as far as this object has heard (the loop's clock).

        It was there at that time or before, so an age that is told from it is never too long. Now, where it has not
        heard of that revision.
        """
        ...

    async def close(self) -> None:
        """Closes every connection; running watches end with StoreUnavailable."""
        ...
