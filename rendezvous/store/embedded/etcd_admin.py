"""Asks etcd over its JSON gateway: whether it answers, who its members are, and to change them.

`gateway` knows what is said; here it is said on asyncio, without heeding proxies from the environment. It works before
anything else does, so it needs no more than an address.
"""

import asyncio
import base64
import os
import re
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...base.errors import StoreError, StoreUnavailable
from ...identity import SERVER_NAME
from ...identity.contexts import NO_TLS, in_words
from ...identity.secret import GIVE_IT
from ..endpoint import Endpoint
from .gateway import JOBS, NotEtcd, encoded, is_whole, keys_under, node_keys, read_answer, request
from .member_slot import Member, Probe, Reach
from .supervisor import Patience

BIRTH_KEY = b"elastic-run.birth"
"""Holds the store's birth: outside every job's prefix, so that no job lists it."""

ENDPOINTS_KEY = b"elastic-run.endpoints"
"""Holds the endpoints that the store was started with, separated by commas; written with the birth."""

_OWN = b"elastic-run."  # both of these, and nothing else, begin with it

_ASK_SECONDS, _CHANGE_SECONDS = 2.0, 5.0
"""For one answer, as in `call`: to a question, and to a change of the members."""

RESOLVE_SECONDS = 10.0
"""For the host's name to be resolved: a name server may be slow, and that says nothing of the store."""

TLS_ONLY = "it speaks TLS only"

_REPLACED = re.compile("\ufffd+")

_WANTS_TLS = re.compile(rb"https|ssl|tls", re.IGNORECASE)
"""What a refusal of plain HTTP says."""

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


async def call(
    endpoint: Endpoint, path: str, body: dict[str, object] | None, seconds: float, tls: ssl.SSLContext | None = None
) -> dict[str, Any]:
    """One exchange: a POST of `body`, or a GET without one. Connecting and answering may take `seconds` each, and the
    name of the host RESOLVE_SECONDS.

    `tls`: for a store that the job's secret protects (`identity.contexts.Identity.store`); the same in all that follow.

    Any: JSON. Raises NotAnswered, EtcdAdminRefused.
    """
    found = await _resolved(endpoint)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await _connect(endpoint, found, tls)
    except TimeoutError:
        raise NotAnswered(Reach.UNREACHABLE, f"no connection within {seconds:g} s") from None
    try:
        async with asyncio.timeout(seconds):
            writer.write(request(str(endpoint), path, body))
            await writer.drain()
            reply = await _read(reader)
    except (TimeoutError, ConnectionError):
        raise NotAnswered(Reach.SILENT, "") from None
    except ssl.SSLError as error:
        raise _failed_handshake(error) from None
    finally:
        writer.transport.abort()  # nothing is left to be said, and closing politely could wait
    if tls is None and not reply.startswith(b"HTTP/") and await _speaks_tls(found, seconds):
        raise _stranger(TLS_ONLY)
    return _understood(reply)


async def _resolved(endpoint: Endpoint) -> list[tuple[str, int]]:
    """The addresses of the host. Raises NotAnswered."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        words = f"no name server answered within {RESOLVE_SECONDS:g} s"
        raise NotAnswered(Reach.UNRESOLVABLE, words) from None
    except (OSError, UnicodeError) as error:
        raise NotAnswered(Reach.UNRESOLVABLE, str(error)) from None
    return [(str(address[0]), int(address[1])) for *_, address in dict.fromkeys(found)]


async def _connect(
    endpoint: Endpoint, addresses: Sequence[tuple[str, int]], tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Tries each of them, so that "refused by ::1, listening on 127.0.0.1" is a connection."""
    failures: list[OSError] = []
    for host, port in addresses:
        try:
            name = SERVER_NAME if tls is not None else None
            return await asyncio.open_connection(host, port, limit=1 << 16, ssl=tls, server_hostname=name)
        except ssl.SSLError as error:
            raise _failed_handshake(error) from None
        except OSError as error:
            failures.append(error)
            hung_up = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
            if tls is not None and hung_up and await _speaks_plainly(host, port, endpoint):
                raise _stranger(NO_TLS) from None
    if any(isinstance(error, ConnectionRefusedError) for error in failures):
        raise NotAnswered(Reach.REFUSED, "")
    raise NotAnswered(Reach.UNREACHABLE, str(failures[0]) if failures else "no address")


async def _speaks_plainly(host: str, port: int, endpoint: Endpoint) -> bool:
    """An etcd without TLS hangs up on it, as one with TLS does that is just ending; the former answers HTTP.

    The latter, as others with TLS do, answers by a refusal in HTTP, which names what it wants.
    """
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 16)
    except OSError:
        return False
    try:
        writer.write(request(str(endpoint), "/version", None))
        reply = await _read(reader)
        return reply.startswith(b"HTTP/") and not (reply.split(None, 2)[1:2] == [b"400"] and _WANTS_TLS.search(reply))
    except (OSError, NotAnswered):
        return False
    finally:
        writer.transport.abort()


async def _speaks_tls(addresses: Sequence[tuple[str, int]], seconds: float) -> bool:
    """A server with TLS closes the connection of who speaks without, and so may any other; this one shakes hands.

    Nothing is said to it, so it need not prove who it is.
    """
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    for host, port in addresses:
        try:
            async with asyncio.timeout(seconds):
                _, writer = await asyncio.open_connection(host, port, ssl=anyone)
        except ssl.SSLError as error:
            return in_words(error) != NO_TLS and not isinstance(error, ssl.SSLEOFError)
        except OSError:  # a TimeoutError is one
            continue
        writer.transport.abort()
        return True
    return False


async def _read(reader: asyncio.StreamReader) -> bytes:
    """All that comes, within bounds. Raises NotAnswered."""
    reply = bytearray()
    try:
        while not is_whole(reply) and (part := await reader.read(1 << 16)):
            reply += part
    except NotEtcd as error:
        raise NotAnswered(Reach.FOREIGN, str(error)) from None
    return bytes(reply)


def _failed_handshake(error: ssl.SSLError) -> NotAnswered:
    """What that means at a store."""
    words = in_words(error)
    return _stranger(words) if words else NotAnswered(Reach.UNREACHABLE, f"TLS fails: {error.reason or error}")


def _stranger(words: str) -> NotAnswered:
    """The store is another one than the job's, as `words` say."""
    if words == NO_TLS:
        words = (
            f"{NO_TLS}. If it is an etcd of your own, write http:// before its address (nothing is encrypted then), or "
            "https:// where it has TLS; if it belongs to a job with --insecure, give --insecure to join that job, or "
            "wait until it has ended"
        )
    elif words == TLS_ONLY:
        words = (
            f"{TLS_ONLY}. If it belongs to a job that is encrypted, leave out --insecure and http://, or wait until "
            f"{Patience().linger:g} s after that job has ended; if it is an etcd of your own, write https:// before "
            "its address"
        )
    elif words.endswith(GIVE_IT):
        words += (
            f". A store of a job with another secret stops {Patience().linger:g} s after that job has ended. If it is "
            "an etcd of your own, write https:// before its address"
        )
    return NotAnswered(Reach.STRANGER, words)


def _understood(reply: bytes) -> dict[str, Any]:
    try:
        status, answer = read_answer(reply)
    except NotEtcd as error:
        raise _stranger(TLS_ONLY) if b"HTTPS server" in reply else NotAnswered(Reach.FOREIGN, str(error)) from None
    if status == 200 and "error" not in answer:
        return answer
    raw = answer.get("code", 0)
    code = raw if isinstance(raw, int) else 0
    message = str(answer.get("message") or answer.get("error") or f"HTTP {status}")
    if code in _UNAVAILABLE:
        raise NotAnswered(Reach.SILENT, message)
    raise EtcdAdminRefused(message, code)


async def probe(endpoint: Endpoint, seconds: float = 1.0, tls: ssl.SSLContext | None = None) -> Probe:
    """What the endpoint does when asked for a linearizable read: only a member with a quorum answers it.

    A store behind TLS is the user's own: that it accepts a connection is all that is asked here.
    """
    try:
        if endpoint.tls:
            found = await _resolved(endpoint)
            async with asyncio.timeout(seconds):
                _, writer = await _connect(endpoint, found, None)
            writer.transport.abort()
            return Probe(endpoint, Reach.ANSWERS)
        answer = await call(endpoint, "/v3/kv/range", {**keys_under(_OWN)}, seconds, tls)
        kept = {base64.b64decode(kv["key"]): base64.b64decode(kv["value"]).decode() for kv in answer.get("kvs", ())}
        listed = frozenset(filter(None, kept.get(ENDPOINTS_KEY, "").split(",")))
        member = int(answer["header"]["member_id"])
        return Probe(endpoint, Reach.ANSWERS, kept.get(BIRTH_KEY, ""), member, listed=listed)
    except TimeoutError:
        return Probe(endpoint, Reach.UNREACHABLE, detail=f"no connection within {seconds:g} s")
    except NotAnswered as error:
        return Probe(endpoint, error.reach, detail=error.detail)
    except EtcdAdminRefused as error:
        if "etcdserver" in str(error):  # it wants credentials, say: the store's client has them
            return Probe(endpoint, Reach.ANSWERS, detail=str(error))
        return Probe(endpoint, Reach.FOREIGN, detail=str(error))
    except (KeyError, TypeError, ValueError):
        return Probe(endpoint, Reach.FOREIGN, detail="its JSON is not etcd's")


async def command_line(endpoint: Endpoint, tls: ssl.SSLContext | None) -> tuple[str, ...]:
    """How the etcd that answers there was started, each word as `told` has it. Raises NotAnswered, EtcdAdminRefused."""
    answer = await call(endpoint, "/debug/vars", None, _ASK_SECONDS, tls)
    return tuple(_REPLACED.sub("\ufffd", str(word)) for word in answer.get("cmdline", ()))


def told(path: Path) -> str:
    """A path as `command_line` has it: etcd answers in JSON, which has no place for bytes that are not UTF-8.

    etcd replaces each of these bytes, and Python each run that begins a character: here every run has one replacement.
    """
    return _REPLACED.sub("\ufffd", os.fsencode(path).decode(errors="replace"))


async def list_members(endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> tuple[Member, ...]:
    """The members of the store. Raises NotAnswered, EtcdAdminRefused."""
    return _members(await call(endpoint, "/v3/cluster/member/list", {}, _ASK_SECONDS, tls))


async def remove_member(endpoint: Endpoint, member: int, tls: ssl.SSLContext | None) -> None:
    """Removes a member for good. Raises NotAnswered (it may have happened), EtcdAdminRefused."""
    await call(endpoint, "/v3/cluster/member/remove", {"ID": str(member)}, _CHANGE_SECONDS, tls)


async def add_member(endpoint: Endpoint, peer_url: str, tls: ssl.SSLContext | None) -> tuple[Member, ...]:
    """Adds a member slot and returns every member. Raises NotAnswered (it may have happened), EtcdAdminRefused."""
    return _members(await call(endpoint, "/v3/cluster/member/add", {"peerURLs": [peer_url]}, _CHANGE_SECONDS, tls))


async def is_idle(endpoint: Endpoint, tls: ssl.SSLContext | None) -> bool:
    """No job has a node in this store. Raises NotAnswered, EtcdAdminRefused."""
    body: dict[str, object] = {**keys_under(JOBS.encode()), "keys_only": True}
    return not node_keys(await call(endpoint, "/v3/kv/range", body, _ASK_SECONDS, tls))


async def give_birth(endpoint: Endpoint, birth: str, endpoints: Sequence[Endpoint], tls: ssl.SSLContext | None) -> str:
    """Writes the store's birth and its endpoints unless it has a birth; what it has then.

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
        "failure": [{"request_range": {"key": key}}],
    }
    answer = await call(endpoint, "/v3/kv/txn", body, _ASK_SECONDS, tls)
    if answer.get("succeeded"):
        return birth
    try:
        return base64.b64decode(answer["responses"][0]["response_range"]["kvs"][0]["value"]).decode()
    except (KeyError, IndexError, TypeError, ValueError):
        raise NotAnswered(Reach.FOREIGN, "its JSON is not etcd's") from None


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
