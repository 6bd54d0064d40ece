"""etcd's JSON gateway: what it is sent, and what it has answered (pure). Its two users bring their own connections.

The supervisor is run by path, so this needs the standard library only. HTTP/1.0, because etcd then sends no chunks:
without a length, an answer ends with the connection.
"""

import base64
import json
import re
from typing import Any, cast

JOBS = "/elastic-run/"
"""Every job's keys lie under this."""

LARGEST_REPLY = 16 << 20  # the keys of some ten thousand nodes are less than a tenth of that

_NODE_KEY = re.compile(r"/elastic-run/.+/nodes/[^/]+")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)


class NotEtcd(ValueError):
    """What came is no answer of the gateway; its message says what it is."""


def request(host: str, path: str, body: dict[str, object] | None) -> bytes:
    """A POST of `body`, or a GET without one."""
    method, data = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
    head = f"{method} {path} HTTP/1.0\r\nHost: {host}\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def is_whole(reply: bytes | bytearray) -> bool:
    """All has come of an answer that says its length, and the connection may be used again. Raises NotEtcd."""
    if len(reply) > LARGEST_REPLY:
        raise NotEtcd(f"its answer has more than {LARGEST_REPLY >> 20} MiB")
    end = reply.find(b"\r\n\r\n")
    length = _LENGTH.search(reply, 0, end + 2) if end >= 0 else None
    return length is not None and len(reply) >= end + 4 + int(length[1])


def read_answer(reply: bytes | bytearray) -> tuple[int, dict[str, Any]]:
    """HTTP's status, and the JSON below it (Any). Raises NotEtcd."""
    head, _, body = bytes(reply).partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise NotEtcd(f"it answers {head[:40]!r}" if reply else "it closes the connection")
    try:
        decoded: Any = json.loads(body)
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        raise NotEtcd(f"it answers HTTP {int(words[1])} and no JSON")
    return int(words[1]), cast(dict[str, Any], decoded)


def encoded(data: bytes) -> str:
    """Bytes as the gateway takes them."""
    return base64.b64encode(data).decode()


def keys_under(prefix: bytes) -> dict[str, str]:
    """All keys under a prefix, as the gateway takes them: etcd's end is the prefix with its last byte raised."""
    return {"key": encoded(prefix), "range_end": encoded(prefix[:-1] + bytes([prefix[-1] + 1]))}


def node_keys(answer: dict[str, object]) -> list[bytes]:
    found: list[bytes] = []
    for entry in cast(list[dict[str, str]], answer.get("kvs") or []):
        key = base64.b64decode(entry["key"])
        if int(entry.get("lease", "0")) and _NODE_KEY.fullmatch(key.decode(errors="replace")):
            found.append(key)
    return found
