"""Evidence that a peer process has died, long before its lease expires.

Every agent listens on one TCP port and greets whoever connects with its incarnation; a watcher's connection then
stays open and silent. When a process dies its kernel closes the connection at once. The watcher dials again: only if
the very incarnation that once greeted it is now *refused*, or another one answers, is the peer dead. A time-out, an
unreachable host or a full descriptor table prove nothing: then the lease decides.

The greeting is no method of the RPC (`rpc/`), whose requests go over the same port: a probe costs each end one line,
and is understood before anything else is known of a peer.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Mapping
from ssl import SSLContext

from .identity import SERVER_NAME, job_mark, observed
from .node_reasons import AddressReused, LossReason, ProcessGone
from .rpc.envelope import Security
from .rpc.server import SHUTDOWN_SECONDS, Methods, Server

HELLO_TIMEOUT = 3.0
"""Seconds for a greeting: a stopped process accepts (its kernel does) but does not greet."""


REDIAL_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.2, 0.5)
"""Seconds between attempts while there is neither a greeting nor evidence; the last is repeated. They begin short
because a dying process closes its connections some milliseconds before its listener."""

BACKLOG = 4096
"""Peers that may wait to be accepted, where the kernel allows so many: when a job of thousands of nodes gets another
master, all of them dial it at once, and who finds the queue full tries again only seconds later."""

_KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
_LISTENER_KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""Seconds, seconds, and how often: a watcher asks whether its peer is there; who is watched only lets go of watchers
whose machines were lost, which close nothing."""

_SENDER_KEEPALIVE = {**_KEEPALIVE, socket.TCP_USER_TIMEOUT: 10_000}
"""And milliseconds for which what was sent may stay without a receipt: only then is a lost machine noticed by who
sends."""


class AgentListener:
    """An agent's one listener: greets every peer that connects, and answers those that ask something.

    Args:
        incarnation: who it says it is.
        methods: what can be asked; whoever only watches is silent.
        security: what peers must have and speak.
        say: prints a line about connections that were closed because of a bound, now and then.
        job: the id of the job whose observers may connect; None: no observer may.

    Attributes:
        address: `host:port` once it is started.
    """

    def __init__(
        self,
        incarnation: str,
        listen: Callable[[str], socket.socket] | None = None,
        methods: Methods | None = None,
        security: Security = Security(),  # noqa: B008  a frozen value
        say: Callable[[str], None] | None = None,
        job: str | None = None,
    ) -> None:
        self._job = job
        self.incarnation = incarnation
        self.address = ""
        self._listen = listen or listener
        self._server = Server(methods or {}, tls=security.server, admit=self._greet, say=say)

    @property
    def connections(self) -> int:
        return self._server.connections

    async def start(self, bind: str, advertise: str) -> None:
        """Listens on a free port of `bind` (an address; "" is every interface); `address` becomes `host:port`."""
        listening = self._listen(bind)
        port: int = listening.getsockname()[1]
        self._server.listen(listening, backlog=BACKLOG)
        self.address = f"[{advertise}]:{port}" if ":" in advertise else f"{advertise}:{port}"

    async def greet_as(self, incarnation: str) -> None:
        """From now on this process is `incarnation`; who watched the one before is told by a closed connection."""
        self.incarnation = incarnation
        self._server.hang_up()

    def _greet(self, peer: asyncio.Transport) -> bool:
        mark = observed(peer.get_extra_info("peercert"))
        if mark is not None and (self._job is None or mark != job_mark(self._job)):
            return False  # an observer of another job
        _keep_alive(peer, _LISTENER_KEEPALIVE)
        peer.write(json.dumps({"incarnation": self.incarnation}).encode() + b"\n")
        return True

    async def close(self) -> None:
        """Stops listening and closes every connection."""
        await self._server.close()


def parse(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address!r} is no host and port")
    return host.strip("[]"), int(port)


async def watch_until_dead(
    address: str,
    incarnation: str,
    security: Security = Security(),  # noqa: B008  a frozen value
) -> LossReason:
    """Waits until there is proof that `incarnation` at `address` has died; returns it.

    Never returns on doubt: it goes on dialling, so the caller cancels it when the lease has decided.
    """
    known = False
    pauses = iter(REDIAL_PAUSES)
    while True:
        try:
            reader, writer, greeting = await _greeted(address, security.client, _KEEPALIVE)
        except ConnectionRefusedError:
            if known:
                return ProcessGone(address)
        except (OSError, ValueError):  # ValueError: the member gave no address, or what is there is no agent
            pass
        else:
            try:
                if greeting == incarnation:
                    known, pauses = True, iter(REDIAL_PAUSES)
                    while await reader.read(256):
                        pass
                    # Closed: dial again almost at once, the answer is the evidence.
                elif greeting and known:
                    return AddressReused(address)
            except OSError:
                pass
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        await asyncio.sleep(next(pauses, REDIAL_PAUSES[-1]))


async def watch_until_heard(
    address: str,
    incarnation: str,
    security: Security = Security(),  # noqa: B008  a frozen value
) -> None:
    """Waits until `incarnation` at `address` greets: then it lives.

    Never returns on doubt: the caller cancels it when it has waited long enough.
    """
    while True:
        try:
            _, writer = await dial(address, incarnation, security.client)
        except OSError:
            await asyncio.sleep(REDIAL_PAUSES[-1])
            continue
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return


async def dial(
    address: str, incarnation: str | None, tls: SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to that very incarnation, which has greeted; None: to any agent.

    Raises OSError (a TimeoutError is one); ConnectionRefusedError only where nobody listens.
    """
    try:
        reader, writer, greeting = await _greeted(address, tls, _SENDER_KEEPALIVE)
    except TimeoutError:
        raise TimeoutError(f"{address} has not greeted within {HELLO_TIMEOUT:g} s") from None
    except ValueError as error:
        raise ConnectionError(f"there is no agent at {address!r} ({error})") from None
    if not greeting or greeting != (incarnation or greeting):
        writer.close()
        raise ConnectionError(f"{address} is not {incarnation or 'an agent that lets this observer in'}")
    return reader, writer


async def _greeted(
    address: str, tls: SSLContext | None, options: Mapping[int, int]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """A connection, and the incarnation that has greeted on it, empty where what came is no greeting.

    Raises OSError (a TimeoutError is one); ValueError: there is no such address, or it talks without an end of line.
    """
    host, port = parse(address)
    async with asyncio.timeout(HELLO_TIMEOUT):
        reader, writer = await _connect(host, port, tls)
        try:
            _keep_alive(writer, options)
            return reader, writer, read_incarnation(await reader.readline())
        except BaseException:
            writer.close()
            raise


async def _connect(host: str, port: int, tls: SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError: ConnectionRefusedError only where nobody listens, whatever TLS says of those who do."""
    if tls is None:
        return await asyncio.open_connection(host, port)
    # A peer proves that it belongs to the job, and not that it has this address, which may change.
    return await asyncio.open_connection(
        host, port, ssl=tls, server_hostname=SERVER_NAME, ssl_shutdown_timeout=SHUTDOWN_SECONDS
    )


def listener(bind: str) -> socket.socket:
    """A listening socket on a free port of `bind` (an address; "" is every interface)."""
    if bind:
        return socket.create_server((bind, 0), family=socket.AF_INET6 if ":" in bind else socket.AF_INET)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _keep_alive(end: asyncio.StreamWriter | asyncio.Transport, options: Mapping[int, int]) -> None:
    """Has the kernel ask now and then whether the peer's machine is there. Raises OSError."""
    connection = end.get_extra_info("socket")
    for option, value in options.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def read_incarnation(line: bytes) -> str:
    """The incarnation that a greeting names; empty if the line is no greeting (pure)."""
    try:
        return str(json.loads(line)["incarnation"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
