"""What no store takes: checked before anything is sent, so that both stores refuse the same in the same words."""

from collections.abc import Sequence

from ..base.errors import StoreRefused
from .contract import MAX_OPERATIONS, MAX_VALUE_BYTES, Compare, Delete, Operation, Put

MAX_REQUEST_BYTES = 1_400_000
"""Bytes of one transaction, keys included; etcd refuses 1.5 MB, and its framing needs a little of that."""

_FRAMING_BYTES = 32
"""At most, for one compare or operation on the wire."""


def check_key(key: str) -> None:
    """Raises StoreRefused for a key that no store takes."""
    if not key:
        raise StoreRefused("an empty key was given: every key of a job begins with its prefix")


def check_txn(compares: Sequence[Compare], operations: Sequence[Operation]) -> None:
    """Raises StoreRefused for a transaction that no store takes, whatever the store holds."""
    count = len(compares) + len(operations)
    if count > MAX_OPERATIONS:
        raise StoreRefused(
            f"too many operations in one transaction: {count}, and {MAX_OPERATIONS} fit; split it in batches"
        )
    for compare in compares:
        check_key(compare.key)
    for operation in operations:
        check_key(operation.key)
    puts = [operation for operation in operations if isinstance(operation, Put)]
    _check_sizes(compares, operations, puts)
    _check_overlaps(puts, [operation for operation in operations if isinstance(operation, Delete)])


def _check_sizes(compares: Sequence[Compare], operations: Sequence[Operation], puts: Sequence[Put]) -> None:
    for put in puts:
        if len(put.value) > MAX_VALUE_BYTES:
            raise StoreRefused(
                f"the value of {put.key!r} is too large: {len(put.value)} bytes, and {MAX_VALUE_BYTES} fit"
            )
    # A compared key travels twice: to be compared, and to be read where the compare fails.
    keys = [compare.key for compare in compares] * 2 + [operation.key for operation in operations]
    size = sum(len(put.value) for put in puts)
    size += sum(len(key.encode(errors="surrogateescape")) + _FRAMING_BYTES for key in keys)
    if size > MAX_REQUEST_BYTES:
        raise StoreRefused(
            f"the transaction is too large: {size} bytes, and {MAX_REQUEST_BYTES} fit: split it into batches"
        )


def _check_overlaps(puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
    written: set[str] = set()
    for put in puts:
        if put.key in written:
            raise StoreRefused(f"one transaction writes {put.key!r} twice")
        written.add(put.key)
    for delete in deletes:
        hit = next((key for key in written if covers(delete.key, delete.prefix, key)), None)
        if hit is not None:
            raise StoreRefused(f"one transaction writes {hit!r} and deletes it")


def covers(key: str, prefix: bool, candidate: str) -> bool:
    """`candidate` is `key`, or with `prefix` begins with it."""
    return candidate.startswith(key) if prefix else candidate == key
