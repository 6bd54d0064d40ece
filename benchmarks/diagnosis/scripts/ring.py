"""Collective operations over TCP sockets, with the standard library only: each rank sends to the next one."""

import os
import socket
import struct
import time

_MESSAGE = struct.Struct("16sd")


class Ring:
    """The ring of all ranks."""

    def __init__(self) -> None:
        # In a job of two roles, of the ranks of one.
        self.rank, self.world = int(os.environ["ROLE_RANK"]), int(os.environ["ROLE_WORLD_SIZE"])
        self._stash: dict[bytes, list[float]] = {}
        if self.world == 1:
            return
        listener = socket.create_server(("127.0.0.1", 0))
        ports = self._exchange(listener.getsockname()[1])
        self._next = socket.create_connection(("127.0.0.1", ports[(self.rank + 1) % self.world]))
        self._previous, _ = listener.accept()
        listener.close()

    def _exchange(self, own: int) -> list[int]:
        """The port of each rank, by way of rank 0."""
        where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank == 0:
            with socket.create_server(("", where[1])) as server:
                ports, peers = [own] + [0] * (self.world - 1), list[socket.socket]()
                for _ in range(self.world - 1):
                    peer, _ = server.accept()
                    rank, port = map(int, peer.recv(64).decode().split())
                    ports[rank] = port
                    peers.append(peer)
                for peer in peers:
                    peer.sendall(" ".join(map(str, ports)).encode())
                    peer.close()
            return ports
        while True:
            try:
                with socket.create_connection(where) as server:
                    server.sendall(f"{self.rank} {own}".encode())
                    return [int(port) for port in server.recv(1 << 16).split()]
            except ConnectionRefusedError:
                time.sleep(0.02)

    @property
    def port(self) -> int:
        """Of the connection to the next rank, on this side."""
        return self._next.getsockname()[1]

    def all_reduce(self, value: float) -> float:
        """The sum of all ranks' values."""
        return sum(self._round(b"all_reduce", value))

    def all_gather(self, value: float) -> list[float]:
        """All ranks' values."""
        return self._round(b"all_gather", value)

    def barrier(self) -> None:
        """Returns when all ranks have come."""
        self._round(b"barrier", 0.0)

    def _round(self, tag: bytes, value: float) -> list[float]:
        values = [value]
        for _ in range(self.world - 1):
            self._next.sendall(_MESSAGE.pack(tag, values[-1]))
            values.append(self._receive(tag))
        return values

    def _receive(self, tag: bytes) -> float:
        while not self._stash.get(tag):
            data = b""
            while len(data) < _MESSAGE.size:
                part = self._previous.recv(_MESSAGE.size - len(data))
                if not part:
                    raise ConnectionError("connection closed by peer")
                data += part
            name, value = _MESSAGE.unpack(data)
            self._stash.setdefault(name.rstrip(b"\0"), []).append(value)
        return self._stash[tag].pop(0)
