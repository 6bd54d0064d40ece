"""Asks etcd over its JSON gateway: whether it answers, who its members are, and to change them.

Just enough HTTP for that, on asyncio, without a library and without heeding proxies from the environment. It works
before anything else does, so it needs no more than an address.
"""

import asyncio
import base64
import json
import socket
from collections.abc import Sequence
from typing import Any, cast

from ...errors import StoreError, StoreUnavailable
from ..endpoint import Endpoint
from .member_slot import Member, Probe, Reach
from .supervisor import JOBS, encoded, node_keys, range_end

BIRTH_KEY = b"elastic-run.birth"
"""Holds the store's birth: outside every job's prefix, so that no job lists it."""

ENDPOINTS_KEY = b"elastic-run.endpoints"
"""Holds the endpoints that the store was started with, separated by commas; written with the birth."""

_OWN = b"elastic-run."  # both of these, and nothing else, begin with it

_UNAVAILABLE = (4, 14)  # gRPC's codes for a deadline passed and for no leader


class NotAnswered(StoreUnavailable):
    """The endpoint gave no answer.

    Attributes:
        reach: what it did instead.
    """

    def __init__(self, reach: Reach, detail: str) -> None:
        super().__init__(f"{reach} ({detail})" if detail else str(reach))
        self.reach = reach
        self.detail = detail


class EtcdAdminRefused(StoreError):
    """etcd answered with an error.

    Attributes:
        code: gRPC's status code, or 0 where it gave none.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


async def call(endpoint: Endpoint, path: str, body: dict[str, object] | None, seconds: float) -> dict[str, Any]:
    """One exchange: a POST of `body`, or a GET without one. Connecting and answering may take `seconds` each.

    Any: JSON. Raises NotAnswered, EtcdAdminRefused.
    """
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await _connect(endpoint)
    except TimeoutError:
        raise NotAnswered(Reach.UNREACHABLE, f"no connection within {seconds:g} s") from None
    try:
        async with asyncio.timeout(seconds):
            method, data = ("GET", b"") if body is None else ("POST", json.dumps(body).encode())
            writer.write(
                f"{method} {path} HTTP/1.0\r\nHost: {endpoint}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\n\r\n".encode()
                + data
            )
            await writer.drain()
            reply = await reader.read(-1)
    except (TimeoutError, ConnectionError):
        raise NotAnswered(Reach.SILENT, "") from None
    finally:
        writer.transport.abort()  # nothing is left to be said, and closing politely could wait
    return _understood(reply)


async def _connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Tries each address of the host, so that "refused by ::1, listening on 127.0.0.1" is a connection."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotAnswered(Reach.UNRESOLVABLE, str(error)) from None
    failures: list[OSError] = []
    for *_, address in dict.fromkeys(found):
        try:
            return await asyncio.open_connection(str(address[0]), int(address[1]), limit=2**24)
        except OSError as error:
            failures.append(error)
    if any(isinstance(error, ConnectionRefusedError) for error in failures):
        raise NotAnswered(Reach.REFUSED, "")
    raise NotAnswered(Reach.UNREACHABLE, str(failures[0]) if failures else "no address")


def _understood(reply: bytes) -> dict[str, Any]:
    head, _, body = reply.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        what = f"it answers {reply[:40]!r}" if reply else "it closes the connection"
        raise NotAnswered(Reach.FOREIGN, what)
    try:
        decoded: Any = json.loads(body)
    except ValueError:
        decoded = None
    if not isinstance(decoded, dict):
        raise NotAnswered(Reach.FOREIGN, f"it answers HTTP {int(words[1])} and no JSON")
    answer = cast(dict[str, Any], decoded)
    if int(words[1]) == 200 and "error" not in answer:
        return answer
    raw = answer.get("code", 0)
    code = raw if isinstance(raw, int) else 0
    message = str(answer.get("message") or answer.get("error") or f"HTTP {int(words[1])}")
    if code in _UNAVAILABLE:
        raise NotAnswered(Reach.SILENT, message)
    raise EtcdAdminRefused(message, code)


async def probe(endpoint: Endpoint, seconds: float = 1.0) -> Probe:
    """What the endpoint does when asked for a linearizable read: only a member with a quorum answers it."""
    if endpoint.tls:
        return await _probe_tls(endpoint, seconds)
    try:
        body: dict[str, object] = {"key": encoded(_OWN), "range_end": encoded(range_end(_OWN))}
        answer = await call(endpoint, "/v3/kv/range", body, seconds)
        found = {base64.b64decode(kv["key"]): base64.b64decode(kv["value"]).decode() for kv in answer.get("kvs", ())}
        listed = frozenset(filter(None, found.get(ENDPOINTS_KEY, "").split(",")))
        member = int(answer["header"]["member_id"])
        return Probe(endpoint, Reach.ANSWERS, found.get(BIRTH_KEY, ""), member, listed=listed)
    except NotAnswered as error:
        return Probe(endpoint, error.reach, detail=error.detail)
    except EtcdAdminRefused as error:
        if "etcdserver" in str(error):  # it wants credentials, say: the store's client has them
            return Probe(endpoint, Reach.ANSWERS, detail=str(error))
        return Probe(endpoint, Reach.FOREIGN, detail=str(error))
    except (KeyError, TypeError, ValueError):
        return Probe(endpoint, Reach.FOREIGN, detail="its JSON is not etcd's")


async def _probe_tls(endpoint: Endpoint, seconds: float) -> Probe:
    """A store behind TLS is the user's own: that it accepts a connection is all that is asked here."""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await _connect(endpoint)
    except TimeoutError:
        return Probe(endpoint, Reach.UNREACHABLE, detail=f"no connection within {seconds:g} s")
    except NotAnswered as error:
        return Probe(endpoint, error.reach, detail=error.detail)
    writer.transport.abort()
    return Probe(endpoint, Reach.ANSWERS)


async def command_line(endpoint: Endpoint, seconds: float = 2.0) -> tuple[str, ...]:
    """How the etcd that answers there was started. Raises NotAnswered, EtcdAdminRefused."""
    answer = await call(endpoint, "/debug/vars", None, seconds)
    return tuple(map(str, answer.get("cmdline", ())))


async def list_members(endpoint: Endpoint, seconds: float = 2.0) -> tuple[Member, ...]:
    """The members of the store. Raises NotAnswered, EtcdAdminRefused."""
    return _members(await call(endpoint, "/v3/cluster/member/list", {}, seconds))


async def remove_member(endpoint: Endpoint, member: int, seconds: float = 5.0) -> None:
    """Removes a member for good. Raises NotAnswered (it may have happened), EtcdAdminRefused."""
    await call(endpoint, "/v3/cluster/member/remove", {"ID": str(member)}, seconds)


async def add_member(endpoint: Endpoint, peer_url: str, seconds: float = 5.0) -> tuple[Member, ...]:
    """Adds a member slot and returns every member. Raises NotAnswered (it may have happened), EtcdAdminRefused."""
    return _members(await call(endpoint, "/v3/cluster/member/add", {"peerURLs": [peer_url]}, seconds))


async def is_idle(endpoint: Endpoint, seconds: float = 2.0) -> bool:
    """No job has a node in this store. Raises NotAnswered, EtcdAdminRefused."""
    prefix = JOBS.encode()
    body: dict[str, object] = {
        "key": encoded(prefix),
        "range_end": encoded(range_end(prefix)),
        "keys_only": True,
    }
    return not node_keys(await call(endpoint, "/v3/kv/range", body, seconds))


async def give_birth(endpoint: Endpoint, birth: str, endpoints: Sequence[Endpoint], seconds: float = 2.0) -> None:
    """Writes the store's birth and its endpoints unless it has a birth.

    Raises NotAnswered (it may be written), EtcdAdminRefused.
    """
    key = encoded(BIRTH_KEY)
    listed = ",".join(sorted(map(str, endpoints))).encode()
    body: dict[str, object] = {
        "compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
        "success": [
            {"request_put": {"key": key, "value": encoded(birth.encode())}},
            {"request_put": {"key": encoded(ENDPOINTS_KEY), "value": encoded(listed)}},
        ],
    }
    await call(endpoint, "/v3/kv/txn", body, seconds)


def _members(answer: dict[str, Any]) -> tuple[Member, ...]:
    return tuple(
        Member(
            id=int(member["ID"]),
            name=str(member.get("name", "")),
            peer_urls=tuple(map(str, member.get("peerURLs", ()))),
            started=bool(member.get("clientURLs")),
        )
        for member in answer.get("members", ())
    )
