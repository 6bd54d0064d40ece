"""etcd's replicated state, without any server: revisions, history, compaction and leases, on etcd's own messages."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from elastic_run.rendezvous.store.contract import MAX_OPERATIONS, KeyValue
from elastic_run.rendezvous.store.etcd.proto import elastic_run_etcd_pb2 as pb
from elastic_run.rendezvous.store.etcd.watch import key_value

LARGEST_REQUEST = 1_572_864
"""Bytes of one write."""


class Refusal(Exception):
    """etcd's no: a status of grpc's and etcd's words."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class Lease:
    __slots__ = ("ends", "keys", "ttl", "waiting")

    def __init__(self, ttl: int, ends: float) -> None:
        self.ttl = ttl
        self.ends = ends
        self.keys: dict[bytes, None] = {}
        self.waiting: list[Any] = []  # renewals that came too late


Changes = list[tuple[pb.Event, pb.KeyValue | None]]
"""What happened to keys in one revision, each with what it was before."""


class Engine:
    """The state that all members agree on. It knows no network and no members; time comes with each request."""

    def __init__(self, cluster_id: int) -> None:
        self.cluster_id = cluster_id
        self.revision = 1
        self.compacted = 0  # the oldest revision that is still there
        self.leases: dict[int, Lease] = {}
        self._kvs: dict[bytes, pb.KeyValue] = {}  # messages in here never change
        self._keys: list[bytes] = []  # sorted
        self._log: list[Changes] = []  # of revision 2 and on

    # For the one who checks

    def get(self, key: str) -> KeyValue | None:
        """As it is now."""
        kv = self._kvs.get(key.encode())
        return None if kv is None else key_value(kv)

    def list(self, prefix: str) -> tuple[KeyValue, ...]:
        """As they are now, sorted."""
        start = prefix.encode()
        first = bisect_left(self._keys, start)
        found: list[KeyValue] = []
        for key in self._keys[first:]:
            if not key.startswith(start):
                break
            found.append(key_value(self._kvs[key]))
        return tuple(found)

    # Reading

    def changes(self, revision: int) -> Changes:
        """What that revision changed."""
        return self._log[revision - 2] if revision >= 2 else []

    def range(self, request: pb.RangeRequest, answer: pb.RangeResponse) -> None:
        """Fills in the answer, its header apart."""
        if not request.key:
            raise Refusal("INVALID_ARGUMENT", "etcdserver: key is not provided")
        at = request.revision
        if at > self.revision:
            raise Refusal("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
        if 0 < at < self.compacted:
            raise Refusal("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
        if not request.range_end and at in (0, self.revision):
            kv = self._kvs.get(request.key)
            found = [] if kv is None else [kv]
        else:
            kvs, keys = (self._kvs, self._keys) if at in (0, self.revision) else self._as_of(at)
            found = [kvs[key] for key in _within(keys, request.key, request.range_end)]
        answer.count = len(found)
        if request.count_only:
            return
        if request.limit and len(found) > request.limit:
            found = found[: request.limit]
            answer.more = True
        if request.keys_only:
            found = [
                pb.KeyValue(
                    key=kv.key, create_revision=kv.create_revision, mod_revision=kv.mod_revision, lease=kv.lease
                )
                for kv in found
            ]
        answer.kvs.extend(found)

    def _as_of(self, revision: int) -> tuple[dict[bytes, pb.KeyValue], Sequence[bytes]]:
        """The past, by taking back what has happened since."""
        kvs = dict(self._kvs)
        for changes in reversed(self._log[revision - 1 :]):
            for event, before in reversed(changes):
                if before is None:
                    kvs.pop(event.kv.key, None)
                else:
                    kvs[event.kv.key] = before
        return kvs, sorted(kvs)

    def holds(self, compares: Sequence[pb.Compare], at: int) -> bool:
        """Whether all of them did, at that revision."""
        kvs = self._kvs if at == self.revision else self._as_of(at)[0]
        return all(_holds(compare, kvs.get(compare.key)) for compare in compares)

    # Writing

    def txn(self, request: pb.TxnRequest, answer: pb.TxnResponse) -> Changes:
        """Applies it and fills in the answer; what it changed, as a new revision where that is not empty."""
        holds = all(_holds(compare, self._kvs.get(compare.key)) for compare in request.compare)
        operations = request.success if holds else request.failure
        for operation in operations:
            # etcd looks for the leases of all before it writes any.
            if operation.HasField("request_put"):
                lease = operation.request_put.lease
                if lease and lease not in self.leases:
                    raise Refusal("NOT_FOUND", "etcdserver: requested lease not found")
        answer.succeeded = holds
        revision = self.revision + 1
        changes: Changes = []
        for operation in operations:
            said = answer.responses.add()
            kind = operation.WhichOneof("request")
            if kind == "request_put":
                said.response_put.SetInParent()
                changes += self._put(operation.request_put, revision)
            elif kind == "request_delete_range":
                request_ = operation.request_delete_range
                gone = self._delete(_within(self._keys, request_.key, request_.range_end), revision)
                said.response_delete_range.deleted = len(gone)
                changes += gone
            else:
                self.range(operation.request_range, said.response_range)
        self._keep(changes)
        return changes

    def _put(self, put: pb.PutRequest, revision: int) -> Changes:
        key, lease = put.key, put.lease
        before = self._kvs.get(key)
        if before is None:
            insort(self._keys, key)
            created, version = revision, 1
        else:
            created, version = before.create_revision, before.version + 1
            if before.lease and before.lease != lease:
                self.leases[before.lease].keys.pop(key, None)
        if lease:
            self.leases[lease].keys[key] = None
        kv = pb.KeyValue(
            key=key, value=put.value, create_revision=created, mod_revision=revision, version=version, lease=lease
        )
        self._kvs[key] = kv
        return [(pb.Event(type=pb.Event.PUT, kv=kv), before)]

    def _delete(self, keys: Sequence[bytes], revision: int) -> Changes:
        changes: Changes = []
        for key in keys:
            before = self._kvs.pop(key)
            del self._keys[bisect_left(self._keys, key)]
            if before.lease:
                self.leases[before.lease].keys.pop(key, None)
            changes.append((pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=key, mod_revision=revision)), before))
        return changes

    def _keep(self, changes: Changes) -> None:
        if changes:
            self.revision += 1
            self._log.append(changes)

    def revoke(self, lease: int) -> Changes:
        """Ends it and its keys, in one revision."""
        held = self.leases.get(lease)
        if held is None:
            raise Refusal("NOT_FOUND", "etcdserver: requested lease not found")
        changes = self._delete(sorted(held.keys), self.revision + 1)
        del self.leases[lease]
        self._keep(changes)
        return changes

    def compact(self, revision: int) -> None:
        """Forgets the history before `revision`."""
        if revision <= self.compacted:
            raise Refusal("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")
        if revision > self.revision:
            raise Refusal("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
        self.compacted = revision


def _holds(compare: pb.Compare, kv: pb.KeyValue | None) -> bool:
    if compare.target == pb.Compare.CREATE:
        return compare.create_revision == (0 if kv is None else kv.create_revision)
    return compare.mod_revision == (0 if kv is None else kv.mod_revision)


def _within(keys: Sequence[bytes], start: bytes, end: bytes) -> Sequence[bytes]:
    """Of sorted `keys`, those in etcd's half-open range."""
    first = bisect_left(keys, start)
    if not end:
        return keys[first : first + 1] if first < len(keys) and keys[first] == start else ()
    return keys[first:] if end == b"\0" else keys[first : bisect_left(keys, end)]


def check(request: pb.TxnRequest) -> None:
    """What etcd refuses before anybody is asked."""
    if max(len(request.compare), len(request.success), len(request.failure)) > MAX_OPERATIONS:
        raise Refusal("INVALID_ARGUMENT", "etcdserver: too many operations in txn request")
    if request.ByteSize() > LARGEST_REQUEST:
        raise Refusal("INVALID_ARGUMENT", "etcdserver: request is too large")
    written: set[bytes] = set()
    for operation in request.success:
        if operation.HasField("request_put"):
            key = operation.request_put.key
            if not key:
                raise Refusal("INVALID_ARGUMENT", "etcdserver: key is not provided")
            if key in written:
                raise Refusal("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request")
            written.add(key)
