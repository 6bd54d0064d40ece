"""A worker's connection to one server, which never waits: bytes go out and come in as its socket takes and has them."""

import errno
import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Sequence

from ...rendezvous.host.local_socket import connected
from . import frames
from .frames import Replying
from .requests import Reply
from .server_events import Array

ROOM_SECONDS = 5.0
"""That a local server's queue of connections may be full."""

SILENT_MS, SILENT_SECONDS = 10_000, 5
"""After which the kernel gives a connection to another machine up: of bytes that are not received, and of nothing."""

WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises that cannot go on now."""


class ServerLine:
    """To one server.

    Args:
        local: `@` and the name of its Unix socket; empty where it is on another machine.
        remote: `host:port`.
        tls: for a remote one; None: the connection is as it is.
        name: that its certificate has.

    Raises OSError where nothing listens there; a remote connection is made later, and its errors are `move_bytes`'s.
    """

    def __init__(self, local: str, remote: str = "", tls: ssl.SSLContext | None = None, name: str = "") -> None:
        self._tls, self._name = tls, name
        self._dialed = self._greets = False  # it is not connected yet; the handshake is not over
        self._unsent: deque[memoryview] = deque()
        self._found: list[tuple[Reply, list[Array]]] = []
        self._reading = self._read()
        self._into = next(self._reading)
        if local:
            self._socket = connected(local, ROOM_SECONDS)
            self._socket.setblocking(False)
        else:
            self._dialed = True
            self._socket = dial(remote)

    def fileno(self) -> int:
        """For `poll`."""
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """What to `poll` for."""
        return select.POLLIN | (select.POLLOUT if self._dialed or (self._unsent and not self._greets) else 0)

    def send_request(self, parts: Sequence[bytes | memoryview]) -> None:
        """The request goes after those before it, as `frames.pack` has it."""
        self._unsent += (memoryview(part).cast("B") for part in parts)

    def move_bytes(self) -> list[tuple[Reply, list[Array]]]:
        """Sends and receives what can be now; the answers that are whole. Raises OSError, Malformed."""
        try:
            self._connect()
            self._write()
        except WAITS:
            if self._dialed or self._greets:
                return []
        self._fill()
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()

    def _connect(self) -> None:
        """Raises BlockingIOError and what ssl has for it where that is not done yet."""
        if self._dialed:
            check_connected(self._socket)
            self._dialed = False
            if self._tls is not None:
                self._socket = self._tls.wrap_socket(
                    self._socket, server_hostname=self._name, do_handshake_on_connect=False
                )
                self._greets = True
        if self._greets and isinstance(self._socket, ssl.SSLSocket):
            self._socket.do_handshake()
            self._greets = False

    def _write(self) -> None:
        while self._unsent:
            count = self._socket.send(self._unsent[0])
            self._unsent[0] = self._unsent[0][count:]
            if not self._unsent[0]:
                self._unsent.popleft()

    def _fill(self) -> None:
        try:
            while count := self._socket.recv_into(self._into):
                self._into = self._into[count:]
                while not self._into:
                    self._into = next(self._reading)
        except WAITS:
            return
        raise ConnectionError("it has closed the connection")

    def _read(self) -> Iterator[memoryview]:
        """Each buffer that is to be filled next. Raises Malformed."""
        while True:
            replying, arrays = yield from frames.fill_message(Replying)
            self._found.append((replying.reply, arrays))


def check_connected(dialed: socket.socket) -> None:
    """Raises BlockingIOError while it is on its way, and OSError where it has failed."""
    if error := dialed.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))
    try:
        dialed.getpeername()
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            raise BlockingIOError from None
        raise


def dial(address: str) -> socket.socket:
    """A connection to `host:port` that is on its way. Raises OSError."""
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, there = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    give_up_silent(made)
    made.connect_ex(there)
    return made


def give_up_silent(made: socket.socket) -> None:
    """Has the kernel give up a connection by TCP whose other machine is silent, and send small messages at once."""
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_MS)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_SECONDS)
