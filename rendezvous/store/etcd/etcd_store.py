"""The store in an etcd cluster (v3, 3.4 or newer): the protocol of `contract.py` as etcd's requests.

`session.py` asks and fails over, `watch.py` keeps watches whole, `connections.py` holds the connections.
"""

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from ...base.errors import LeaseLost, StoreRefused, StoreUnavailable
from ...base.frozen import dataclass
from ..contract import Compare, Event, Health, KeyValue, Listing, Operation, Put, TxnResult
from ..limits import check_key, check_txn
from ..seal import Seal
from .connections import Credentials, Endpoints, Proof, Tls
from .proto import elastic_run_etcd_pb2 as pb
from .session import Session
from .watch import follow, key_value

__all__ = ["Credentials", "EtcdStatus", "EtcdStore", "Proof", "Tls"]

_FIRST_KEY = b"\0"

PAGE = 250
"""Keys in one answer of a listing, so that each page fits into a short attempt."""


@dataclass(frozen=True, slots=True)
class EtcdStatus:
    """What one member says of itself.

    Attributes:
        endpoint: where it was asked.
        version: of the server, such as "3.4.23".
        leader: the leader's member id, 0 where it knows of none.
        member: its own member id.
    """

    endpoint: str
    version: str
    leader: int
    member: int


class Renewals:
    """What the renewals of a lease tell of the store: whether it was away for so long that leases ended of it.

    A lease is renewed three times in its life. So where half of its life passed without an answer, somebody else's
    lease may have ended in the same time, although its holder lives. All times are on one clock, in seconds.
    """

    def __init__(self) -> None:
        self._away_until = -math.inf
        self._answered = 0.0
        self._allowed = math.inf

    def begin(self, ttl: int, now: float) -> None:
        """From now on a lease of `ttl` seconds is renewed, which has just been granted."""
        self.answered(now)
        self._allowed = ttl / 2

    def answered(self, now: float) -> None:
        """The store has answered a renewal."""
        self._away_until = self.away_until(now)
        self._answered = now

    def away_until(self, now: float) -> float:
        return now if now - self._answered > self._allowed else self._away_until


class EtcdStore:
    """A `Store` in the etcd cluster at `endpoints` (`host:port`, `[v6]:port`). Connects when it is first used.

    Args:
        endpoints: any members of one cluster; or the wire to them that somebody else made, as a simulator does.
        deadline: seconds that each call but a watch may take.
        tls: encrypts; None is plain text.
        seal: for values that not everybody who may read the store shall read; None: they are written as they are.
        now: the clock of the loop that it will live in.
    """

    def __init__(
        self,
        endpoints: Sequence[str] | Endpoints,
        *,
        deadline: float = 10.0,
        tls: Tls | Proof | None = None,
        credentials: Credentials | None = None,
        seal: Seal | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        wire = endpoints if isinstance(endpoints, Endpoints) else Endpoints(endpoints, tls)
        self._session = Session(wire, credentials, deadline, now)
        self._seal = seal
        self._known_key = _FIRST_KEY
        self._renewals = Renewals()

    # Reading

    async def get(self, key: str) -> KeyValue | None:
        check_key(key)
        self._known_key = _wire(key)
        request = pb.RangeRequest(key=self._known_key)
        answer = await self._session.ask("/etcdserverpb.KV/Range", request, pb.RangeResponse, linearizable=True)
        return key_value(answer.kvs[0], self._seal) if answer.kvs else None

    async def list(self, prefix: str, *, keys_only: bool = False) -> Listing:
        """See `Store.list`. Long listings come in pages of one revision."""
        until = self._session.deadline()
        while True:
            try:
                return await self._list_at_once(prefix, keys_only, until)
            except StoreRefused as refused:
                # The first page's revision was compacted before the last page was read.
                if "required revision has been compacted" not in str(refused):
                    raise

    async def _list_at_once(self, prefix: str, keys_only: bool, until: float) -> Listing:
        start, end = _range(prefix, True)
        items: list[KeyValue] = []
        revision = 0
        seal = None if keys_only else self._seal
        while True:
            request = pb.RangeRequest(key=start, range_end=end, limit=PAGE, revision=revision, keys_only=keys_only)
            answer = await self._session.ask(
                "/etcdserverpb.KV/Range", request, pb.RangeResponse, linearizable=True, until=until
            )
            items += [key_value(kv, seal) for kv in answer.kvs]
            revision = revision or answer.header.revision
            if not answer.more:
                return Listing(revision, tuple(items))
            start = answer.kvs[-1].key + b"\0"

    def watch(self, key: str, from_revision: int, *, prefix: bool = False) -> AsyncGenerator[tuple[Event, ...], None]:
        return follow(self._session, *_range(key, prefix), from_revision, self._seal)

    # Writing

    async def txn(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, idempotent: bool = False
    ) -> TxnResult:
        check_txn(compares, operations)
        if not compares and not operations:
            return await self._read_nothing()
        self._known_key = _wire((*compares, *operations)[0].key)
        request = pb.TxnRequest(
            compare=[_compare(compare) for compare in compares],
            success=[_operation(operation, self._seal) for operation in operations],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=_wire(compare.key))) for compare in compares],
        )
        writes = len(operations) > 0  # a fenced read may be asked again
        answer = await self._session.ask(
            "/etcdserverpb.KV/Txn",
            request,
            pb.TxnResponse,
            repeatable=idempotent or not writes,
            write=writes,
            linearizable=True,
        )
        if answer.succeeded:
            return TxnResult(True, answer.header.revision)
        found = [response.response_range.kvs for response in answer.responses]
        current = tuple(key_value(kvs[0], self._seal) if kvs else None for kvs in found)
        return TxnResult(False, answer.header.revision, current)

    async def _read_nothing(self) -> TxnResult:
        """The store's revision, as the whole cluster has it.

        Etcd calls a transaction without any operation serializable: a member that lags answers it by itself. So this
        is a linearizable read, of a key that this store has used before: a user's role may allow no other.
        """
        request = pb.RangeRequest(key=self._known_key, count_only=True)
        answer = await self._session.ask("/etcdserverpb.KV/Range", request, pb.RangeResponse, linearizable=True)
        return TxnResult(True, answer.header.revision)

    # Leases

    async def grant(self, ttl: int) -> int:
        """See `Store.grant`. We choose the id, so that asking again makes no second lease."""
        path, until = "/etcdserverpb.Lease/LeaseGrant", self._session.deadline()
        while True:
            lease, began = secrets.randbits(62) + 1, self._session.now()
            request = pb.LeaseGrantRequest(TTL=ttl, ID=lease)
            try:
                await self._session.ask(path, request, pb.LeaseGrantResponse, write=True, until=until)
            except StoreRefused as refused:
                # Nobody else draws the same 62 bits: the answer to an earlier attempt was lost.
                if "lease already exists" not in str(refused):
                    raise
            # It lives since the first attempt that was applied: it may be over by the time of the first answer.
            if self._session.now() - began < ttl / 2 or await self._renew(lease, until):
                return lease

    async def keep_alive(self, lease: int, ttl: int) -> None:
        """See `Store.keep_alive`. Asks three times in `ttl` seconds; also raises StoreRefused."""
        loop = asyncio.get_running_loop()
        self._renewals.begin(ttl, loop.time())
        while True:
            began = loop.time()
            try:
                alive = await self._renew(lease)
                if not alive:
                    # A new leader that has not caught up does not know the lease yet; after a read it does.
                    await self.txn([], [])
                    alive = await self._renew(lease)
            except StoreUnavailable:
                self._session.check_open()
                continue
            self._renewals.answered(loop.time())
            if not alive:
                raise LeaseLost(f"lease {lease:x} has expired or was revoked, and its keys are deleted: register again")
            try:
                async with asyncio.timeout_at(began + ttl / 3):
                    await self._session.closed.wait()
            except TimeoutError:
                continue
            self._session.check_open()

    async def _renew(self, lease: int, until: float | None = None) -> bool:
        # etcd offers a stream; a stream of one request is a unary call on the wire, and fails over like one.
        path = "/etcdserverpb.Lease/LeaseKeepAlive"
        request = pb.LeaseKeepAliveRequest(ID=lease)
        return (await self._session.ask(path, request, pb.LeaseKeepAliveResponse, until=until)).TTL > 0

    async def revoke(self, lease: int) -> None:
        request = pb.LeaseRevokeRequest(ID=lease)
        with contextlib.suppress(LeaseLost):
            await self._session.ask("/etcdserverpb.Lease/LeaseRevoke", request, pb.LeaseRevokeResponse, write=True)

    # The cluster itself

    async def status(self) -> EtcdStatus:
        """What the member says whose turn it is, also where it has no leader. Raises StoreUnavailable, StoreRefused."""
        answer = await self._session.ask(
            "/etcdserverpb.Maintenance/Status", pb.StatusRequest(), pb.StatusResponse, leader=False
        )
        return EtcdStatus(
            endpoint=self._session.last_answer,
            version=answer.version,
            leader=answer.leader,
            member=answer.header.member_id,
        )

    @property
    def health(self) -> Health:
        return self._session.health

    async def health_changed(self) -> Health:
        return await self._session.health_changed()

    @property
    def away_until(self) -> float:
        return self._renewals.away_until(self._session.now())

    def reached(self, revision: int) -> float:
        """See `Store.reached`. The renewals of a lease tell the revision three times in its life, at the least."""
        return self._session.times.reached(revision, self._session.now())

    async def close(self) -> None:
        await self._session.close()


def _wire(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def _range(key: str, prefix: bool) -> tuple[bytes, bytes]:
    """etcd's half-open range; an empty end is one key, and a single zero byte is "to the last"."""
    start = _wire(key)
    if not prefix:
        return start, b""
    if not start:
        return b"\0", b"\0"
    return start, start[:-1] + bytes((start[-1] + 1,))  # the last byte of UTF-8 is never 255


def _compare(compare: Compare) -> pb.Compare:
    if compare.field == "create":
        return pb.Compare(target=pb.Compare.CREATE, key=_wire(compare.key), create_revision=compare.revision)
    return pb.Compare(target=pb.Compare.MOD, key=_wire(compare.key), mod_revision=compare.revision)


def _operation(operation: Operation, seal: Seal | None) -> pb.RequestOp:
    key = _wire(operation.key)
    if isinstance(operation, Put):
        value = seal.sealed(key, operation.value) if seal is not None else operation.value
        return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=operation.lease))
    start, end = _range(operation.key, operation.prefix)
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=start, range_end=end))
