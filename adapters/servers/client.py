"""A worker's end of a connection to a server: one request after the other, and their answers in that order."""

import select
import socket
from collections import deque
from collections.abc import Sequence

import numpy as np

from ...rendezvous.wire.values import Malformed
from . import frames, kernels
from .errors import PushRefused, ServerFull, ServerGone, TableMisused
from .frames import Asking, Replying
from .marks import PushSource
from .specs import TableSpec
from .tables import Array, OpenTable, PullRows, PushGradients, ReadMarks, ReadPiece, Reply, Request

SECONDS = 60.0
"""That an answer may take."""


class ServerConnection:
    """To one server.

    Args:
        address: of its Unix socket, an abstract name.
        seconds: that an answer may take.
    """

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        self._address = address
        self._waiting = 0  # answers that have not been read
        self._early: deque[tuple[Reply, list[Array]]] = deque()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        try:
            self._socket.connect("\0" + address)
        except OSError as error:
            self._socket.close()
            raise ServerGone(f"cannot connect to the server at {address} ({error})") from None

    def send(self, request: Request, arrays: Sequence[Array] = ()) -> None:
        """Asks, and does not wait for the answer. Raises ServerGone."""
        parts = frames.pack(Asking(request, frames.shapes_of(arrays)), arrays)
        try:
            for part in parts:
                self._send(memoryview(part))
        except OSError as error:
            raise ServerGone(f"cannot send to the server at {self._address} ({error})") from None
        self._waiting += 1

    def _send(self, part: memoryview) -> None:
        """All of it; reads answers meanwhile, so that neither end waits for the other to read."""
        while part:
            readable, writable, _ = select.select([self._socket], [self._socket], [], self._socket.gettimeout())
            if readable and self._waiting > len(self._early):
                self._early.append(self._read())
            elif writable:
                part = part[self._socket.send(part, socket.MSG_DONTWAIT) :]
            else:
                raise TimeoutError("it does not read")

    def receive(self) -> tuple[Reply, list[Array]]:
        """The answer to the first request that has not had one. Raises ServerGone, and what a refusal is."""
        reply, arrays = self._early.popleft() if self._early else self._read()
        self._waiting -= 1
        match reply.refused:
            case "":
                return reply, arrays
            case "misused":
                raise TableMisused(reply.text)
            case "full":
                raise ServerFull(reply.text)
            case "records":
                raise PushRefused(reply.text)

    def _read(self) -> tuple[Reply, list[Array]]:
        try:
            head = frames.read_head(Replying, self._bytes(frames.length_of_head(self._bytes(frames.PREFIX.size))))
            arrays = frames.make_arrays(head.arrays)
            for each in frames.buffers_of(arrays):
                self._fill(each)
        except (OSError, Malformed) as error:
            raise ServerGone(f"the server at {self._address} does not answer ({error})") from None
        return head.reply, arrays

    def _bytes(self, count: int) -> bytearray:
        buffer = bytearray(count)
        self._fill(memoryview(buffer))
        return buffer

    def _fill(self, into: memoryview) -> None:
        while into:
            count = self._socket.recv_into(into)
            if not count:
                raise ConnectionError("it has closed the connection")
            into = into[count:]

    def ask_server(self, request: Request, arrays: Sequence[Array] = ()) -> tuple[Reply, list[Array]]:
        """Sends, and waits."""
        self.send(request, arrays)
        return self.receive()

    def open_table(self, spec: TableSpec) -> int:
        """Declares a table; how many rows it has already."""
        return self.ask_server(OpenTable(spec))[0].count

    def pull(self, ids: dict[str, Array]) -> list[Array]:
        """The rows of these ids, by table."""
        return self.ask_server(PullRows(tuple(ids)), tuple(ids.values()))[1]

    def push(self, source: PushSource, gradients: dict[str, tuple[Array, Array]]) -> int:
        """Applies the gradients of each table's ids. How many rows were changed."""
        arrays = [array for pair in gradients.values() for array in pair]
        return self.ask_server(PushGradients(tuple(gradients), source), arrays)[0].count

    def read_marks(self, dataset: str, shard_index: int) -> tuple[int, ...]:
        """See `Marks.read`."""
        return self.ask_server(ReadMarks(dataset, shard_index))[0].marks

    def read_piece(self, table: str, first: int) -> tuple[Array, Array]:
        """Ids and rows from the `first` row on; none after the last."""
        ids, values = self.ask_server(ReadPiece(table, first))[1]
        return ids, values

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()


def merge(ids: Array) -> tuple[Array, Array]:
    """Each of these int64 ids once, in the order in which they come, and where in that each of `ids` is."""
    length = 64
    while length < 2 * len(ids):
        length *= 2
    distinct, inverse = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    count = kernels.merge_ids(ids, np.empty(length, np.int64), np.zeros(length, np.int64), distinct, inverse)
    return distinct[:count], inverse
