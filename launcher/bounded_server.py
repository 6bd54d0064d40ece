"""An HTTP server that strangers may reach, in a thread for each request: they take threads and time, both bounded."""

import asyncio
import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import AsyncGenerator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ..rendezvous.store.endpoint import resolve

SILENT = 10.0
"""Seconds for a whole request, however slowly it comes, and for its answer; then the connection is closed."""

ROOM = 64
"""Connections. For one more the oldest is closed whose request is not there yet, or else the new one."""

ENDING = 64
"""Connections beyond these that are closed, and whose threads have not seen it yet."""


class BoundedServer(ThreadingHTTPServer):
    """Its handler is a BoundedHandler. Raises OSError where the address cannot be used."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, handler: "type[BoundedHandler]") -> None:
        host = next(iter(resolve(host)), host)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._room = threading.Semaphore(ROOM + ENDING)
        self._lock = threading.Lock()
        self._silent: dict[socket.socket, float] = {}  # whose request is not there yet: since when, the oldest first
        self._connections: set[socket.socket] = set()  # but those that were hung up on
        super().__init__((host, port), handler)

    @contextlib.asynccontextmanager
    async def serving(self, name: str) -> AsyncGenerator[None]:
        """It answers while the context lasts, in a thread of that name."""
        thread = threading.Thread(target=self.serve_forever, args=(0.2,), name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.shutdown)
            self.server_close()

    def server_bind(self) -> None:
        """Without asking the DNS for this machine's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: object, client_address: object) -> None:
        """In a thread, where there is room for one."""
        assert isinstance(request, socket.socket)
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        if not self._takes(request):
            self._room.release()
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)  # pyright: ignore[reportArgumentType]
        except RuntimeError:  # no thread can be started
            self._room.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: object, client_address: object) -> None:
        """One connection, one request."""
        assert isinstance(request, socket.socket)
        try:
            super().process_request_thread(request, client_address)  # pyright: ignore[reportArgumentType]
        finally:
            self._room.release()

    def shutdown_request(self, request: object) -> None:
        """It has been answered, or will not be."""
        assert isinstance(request, socket.socket)
        with self._lock:
            self._silent.pop(request, None)
            self._connections.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Several times a second: whose request has not come in time is hung up on."""
        super().service_actions()
        late = time.monotonic() - SILENT
        with self._lock:
            for each in [each for each, since in self._silent.items() if since <= late]:
                self._hang_up(each)

    def heard(self, request: socket.socket) -> bool:
        """Its request is there; False where it was hung up on, and what has come is not all."""
        with self._lock:
            return self._silent.pop(request, None) is not None

    def _takes(self, request: socket.socket) -> bool:
        """Whether there is room for it, also by closing another."""
        with self._lock:
            if len(self._connections) >= ROOM:
                oldest = next(iter(self._silent), None)
                if oldest is None:
                    return False
                self._hang_up(oldest)
            self._silent[request] = time.monotonic()
            self._connections.add(request)
            return True

    def _hang_up(self, request: socket.socket) -> None:
        """Its thread sees the end of the request, and closes it."""
        del self._silent[request]
        self._connections.discard(request)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Somebody who hangs up is no news."""


class BoundedHandler(BaseHTTPRequestHandler):
    """Tells its server when a request is there."""

    timeout = SILENT
    server: BoundedServer  # pyright: ignore[reportIncompatibleVariableOverride]  the only one that makes it

    def parse_request(self) -> bool:
        """Reads what follows the first line of a request."""
        return super().parse_request() and self.server.heard(self.connection)
