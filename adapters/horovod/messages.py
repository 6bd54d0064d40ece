"""What Horovod's workers and their launcher exchange as pickle: read without any class, written without Horovod (pure).

A worker that can live through a change registers where it listens, and its secret: base64 of a pickle of plain values.
Its launcher tells it of a change over TCP by one message: HMAC-SHA256 of the body, the body's length as four bytes of
this machine's order, and the body, a pickle of an object with two attributes.
"""

import base64
import binascii
import hashlib
import hmac
import io
import pickle
import pickletools
import struct
from dataclasses import dataclass
from typing import NoReturn, cast

MOST_BYTES = 1 << 20
"""In what a worker registers; a machine with a hundred network interfaces needs some thousands."""

_ADDED = 2
"""What a worker is told has happened. It always takes the state from rank 0 then; for "removed" (1) it would not."""


_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")
"""Operations of a pickle that store a value under a number of their own."""


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


class _Plain(pickle.Unpickler):
    """Reads numbers, texts, bytes, and tuples, lists and dicts of them; nothing that would run anything."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise Unexpected(f"it names {module_name}.{global_name}, and plain values were expected")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise Unexpected("it refers to an object, and plain values were expected")


def _check_memo(data: bytes) -> None:
    """Raises Unexpected where it would fill memory: whoever reads a pickle makes room for the memo that it names."""
    for operation, argument, _ in pickletools.genops(data):
        if operation.name in _MEMO and int(argument or 0) > len(data):
            raise Unexpected(f"its memo has an entry {argument}, and the whole has {len(data)} bytes")


def read_registration(body: bytes) -> Registered:
    """What a worker has put at /worker_addresses. Raises Unexpected."""
    if len(body) > MOST_BYTES:
        raise Unexpected(f"it has {len(body)} bytes, and at most {MOST_BYTES} are read")
    try:
        data = base64.b64decode(body, validate=True)
        _check_memo(data)
        value = cast(object, _Plain(io.BytesIO(data)).load())
    except Unexpected:
        raise
    except (binascii.Error, pickle.UnpicklingError, EOFError) as error:
        raise Unexpected(f"it is no pickle in base64: {error}") from error
    except Exception as error:  # an unpickler raises whatever its bytes make it raise
        raise Unexpected(f"it is no pickle that can be read: {error!r}") from error
    if isinstance(value, tuple) and len(pair := cast(tuple[object, ...], value)) == 2:
        by_interface, secret = pair
        if isinstance(by_interface, dict) and isinstance(secret, bytes):
            return Registered(tuple(_addresses(cast(dict[object, object], by_interface))), secret)
    raise Unexpected("it is not a pair of addresses and a secret")


def _addresses(by_interface: dict[object, object]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for some in by_interface.values():
        each_of = cast(list[object], some) if isinstance(some, list) else [None]
        for each in each_of:
            match each:
                case (str() as host, int() as port) if 0 < port < 65536:
                    found.append((host, port))
                case _:
                    raise Unexpected("its addresses are not lists of hosts and ports")
    if not found:
        raise Unexpected("it has no address")
    return found


def hosts_updated(timestamp: int, secret: bytes) -> bytes:
    """The message by which a worker hears that the membership is about to change.

    Args:
        timestamp: a later message must have a higher one. A worker that leads after another compares it with those
            that the other one had, so it cannot be a clock of some machine.
        secret: what the worker has registered.
    """
    return sealed(_request(timestamp), secret)


def sealed(body: bytes, secret: bytes) -> bytes:
    """A body with its digest and its length before it."""
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
