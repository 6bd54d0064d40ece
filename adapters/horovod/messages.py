"""What Horovod's workers and their launcher exchange as pickle: read without any class, written without Horovod (pure).

A worker that can live through a change registers where it listens, and its secret: base64 of a pickle of plain values.
Its launcher tells it of a change over TCP by one message: HMAC-SHA256 of the body, the body's length as four bytes of
this machine's order, and the body, a pickle of an object with two attributes.
"""

import base64
import hashlib
import hmac
import pickle
import pickletools
import struct
from dataclasses import dataclass

MOST_BYTES = 1 << 16
"""In what a worker registers; a machine with a hundred network interfaces needs some thousands."""

_ADDED = 2
"""What a worker is told has happened. It always takes the state from rank 0 then; for "removed" (1) it would not."""


_FROM_MEMO = ("BINGET", "LONG_BINGET")
_VALUES = ("SHORT_BINUNICODE", "BINUNICODE", "BININT1", "BININT2", "BININT", "SHORT_BINBYTES", *_FROM_MEMO)
_IN_BETWEEN = ("PROTO", "FRAME", "EMPTY_DICT", "EMPTY_LIST", "MARK", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "STOP")
"""Operations of a pickle, as far as Horovod writes them."""


class Unexpected(ValueError):
    """A worker has registered something else than addresses and a secret; the message says what."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Where one worker listens for notifications.

    Attributes:
        addresses: host and port, of one of its interfaces after the other.
        secret: of the messages.
    """

    addresses: tuple[tuple[str, int], ...]
    secret: bytes


def read_registration(body: bytes) -> Registered:
    """What a worker has put at /worker_addresses. Raises Unexpected.

    Nothing is built of it but its addresses, in order: nesting and hashing of a stranger's lists have no bound.
    """
    if len(body) > MOST_BYTES:
        raise Unexpected(f"it has {len(body)} bytes, and at most {MOST_BYTES} are read")
    addresses: list[tuple[str, int]] = []
    memo: list[object] = []
    before: object = None
    last: object = None
    try:
        for operation, argument, _ in pickletools.genops(base64.b64decode(body, validate=True)):
            if operation.name == "MEMOIZE":
                memo.append(last)
            elif operation.name in _VALUES:
                found = memo[int(argument or 0)] if operation.name in _FROM_MEMO else argument
                before, last = last, found
            elif operation.name == "TUPLE2":
                last = _pair(before, last, addresses)
            elif operation.name not in _IN_BETWEEN:
                raise Unexpected(f"it has {operation.name}, and plain addresses and a secret were expected")
    except Unexpected:
        raise
    except (ValueError, IndexError) as error:
        raise Unexpected(f"it is no pickle in base64: {error}") from error
    if not isinstance(last, Registered):
        raise Unexpected("it is not a pair of addresses and a secret")
    if not last.addresses:
        raise Unexpected("it has no address")
    return last


def _pair(first: object, second: object, addresses: list[tuple[str, int]]) -> object:
    match first, second:
        case str(), int() if 0 < second < 65536:
            addresses.append((first, second))
            return None
        case _, bytes():
            return Registered(tuple(addresses), second)
        case _:
            raise Unexpected("a pair in it is neither a host and a port nor addresses and a secret")


def hosts_updated(timestamp: int, secret: bytes) -> bytes:
    """The message by which a worker hears that the membership is about to change.

    Args:
        timestamp: a later message must have a higher one. A worker that leads after another compares it with those
            that the other one had, so it cannot be a clock of some machine.
        secret: what the worker has registered.
    """
    body = _request(timestamp)
    return hmac.new(secret, body, hashlib.sha256).digest() + struct.pack("i", len(body)) + body


def _request(timestamp: int) -> bytes:
    """A pickle of horovod.runner.elastic.worker.HostsUpdatedRequest(timestamp, added), for a worker to load."""
    module, name = b"horovod.runner.elastic.worker", b"HostsUpdatedRequest"
    return b"".join(
        (
            pickle.PROTO + b"\x02",
            pickle.GLOBAL + module + b"\n" + name + b"\n",
            pickle.EMPTY_TUPLE + pickle.NEWOBJ,
            pickle.EMPTY_DICT + pickle.MARK,
            _text(b"timestamp") + pickle.BININT + struct.pack("<i", timestamp),
            _text(b"res") + pickle.BININT1 + bytes([_ADDED]),
            pickle.SETITEMS + pickle.BUILD + pickle.STOP,
        )
    )


def _text(text: bytes) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(text)) + text
