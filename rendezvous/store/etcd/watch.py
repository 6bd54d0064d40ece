"""One watch over any number of connections: no change is lost, repeated or reordered.

`position` is the first revision that the reader has not had. It moves only when all events of a revision are there,
so a stream that breaks anywhere is resumed exactly where the reader is.
"""

import itertools
from collections.abc import AsyncGenerator

from ...base.errors import Compacted, StoreUnavailable
from ..contract import Event, KeyValue
from ..seal import Seal
from .connections import AttemptFailed, Endpoint, Stream, judge
from .proto import elastic_run_etcd_pb2 as pb
from .session import LONGEST_ATTEMPT, Session

_WATCH = "/etcdserverpb.Watch/Watch"
_RANGE = "/etcdserverpb.KV/Range"

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
"""Seconds between two rounds of attempts to open a stream; a new connection ends it early."""


async def follow(
    session: Session, key: bytes, range_end: bytes, from_revision: int, seal: Seal | None
) -> AsyncGenerator[tuple[Event, ...], None]:
    """The changes of `key`, or of [key, range_end), from `from_revision` on: one tuple for each revision.

    Raises Compacted, StoreRefused, and StoreUnavailable after `Session.close`.
    """
    position = max(1, from_revision)
    failures, pause, denials, resumed = 0, _FIRST_PAUSE, 0, False
    while True:
        session.check_open()
        if resumed and not await _history_is_there(session, key):
            continue
        metadata = await session.metadata(session.deadline())
        if metadata is None:
            continue  # nobody has answered the log-in, which paces its own attempts
        endpoint = session.endpoints.current
        stream: Stream[pb.WatchResponse] | None = None
        try:
            await endpoint.connected(LONGEST_ATTEMPT)
            stream = endpoint.stream(_WATCH, pb.WatchResponse, metadata)
            created = await _create(endpoint, stream, key, range_end, position)
            session.check_cluster(endpoint, created.header)
            session.answered(endpoint)
            failures, pause, denials, resumed = 0, _FIRST_PAUSE, 0, True
            behind = created.header.revision + 1 < position  # it lags, or its data is gone
            if behind and not await _history_is_there(session, key):
                raise AttemptFailed("unsent", f"{endpoint.address}: it is behind by an unknown number of revisions")
            while True:
                response = await _receive(endpoint, stream)
                for revision, events in itertools.groupby(response.events, key=lambda event: event.kv.mod_revision):
                    position = revision + 1
                    session.saw(revision)
                    yield tuple(_event(event, seal) for event in events)
                if not response.events:  # progress: up to here there was nothing to tell
                    position = max(position, response.header.revision + 1)
        except AttemptFailed as failure:
            session.check_open()
            if failure.kind == "token":
                denials += 1
                session.log_in_again(failure, denials)
                continue
            if failure.error is not None:
                raise failure.error from None
            session.failed(endpoint, failure)
        finally:
            if stream is not None:
                stream.end()
        failures += 1
        if failures % len(session.endpoints.all) == 0:
            await session.endpoints.change(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _history_is_there(session: Session, key: bytes) -> bool:
    """A cluster that came back without its data would leave the watch waiting for ever. Raises StoreRefused for one.

    False where nobody answered.
    """
    try:
        await session.ask(_RANGE, pb.RangeRequest(key=key, count_only=True), pb.RangeResponse, linearizable=True)
    except StoreUnavailable:
        return False
    return True


async def _create(
    endpoint: Endpoint, stream: Stream[pb.WatchResponse], key: bytes, range_end: bytes, position: int
) -> pb.WatchResponse:
    request = pb.WatchCreateRequest(
        key=key, range_end=range_end, start_revision=position, progress_notify=True, fragment=True
    )
    await stream.send(pb.WatchRequest(create_request=request))
    return await _next(endpoint, stream, LONGEST_ATTEMPT)


async def _receive(endpoint: Endpoint, stream: Stream[pb.WatchResponse]) -> pb.WatchResponse:
    """The next message, whole: etcd cuts long ones, also in the middle of a revision."""
    response = await _next(endpoint, stream)
    while response.fragment:
        more = await _next(endpoint, stream)
        response.events.extend(more.events)
        response.fragment = more.fragment
    return response


async def _next(endpoint: Endpoint, stream: Stream[pb.WatchResponse], seconds: float | None = None) -> pb.WatchResponse:
    """Raises what etcd's cancelling of the watch means."""
    response = await stream.receive(seconds)
    if not response.canceled:
        return response
    if response.compact_revision:
        raise Compacted(response.compact_revision)
    reason = response.cancel_reason or "it ended the watch"
    failure = judge(endpoint.address, "PERMISSION_DENIED" if "permission" in reason else "UNKNOWN", reason)
    if failure.kind == "final":
        # An old token looks like a missing permission, so a new one is tried first.
        failure = AttemptFailed("token", failure.words, failure.error)
    raise failure


def _event(event: pb.Event, seal: Seal | None) -> Event:
    if event.type == pb.Event.DELETE:
        return Event("delete", key_value(event.kv))  # it has no value
    return Event("put", key_value(event.kv, seal))


def key_value(kv: pb.KeyValue, seal: Seal | None = None) -> KeyValue:
    """From the wire. Keys that are not UTF-8 are somebody else's; they must not break a listing.

    Args:
        seal: opens the value; None: the store is not sealed, or there is no value (a deletion, a listing of keys).
    """
    key = kv.key.decode(errors="surrogateescape")
    value = seal.opened(kv.key, kv.value) if seal is not None else kv.value
    return KeyValue(key, value, kv.create_revision, kv.mod_revision, kv.lease)
