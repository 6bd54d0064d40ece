"""A worker's end of a connection to a server: one request after the other, and their answers in that order."""

from collections.abc import Sequence

import numpy as np

from ...rendezvous.host.local_socket import connected
from ...rendezvous.wire.values import Malformed
from . import frames, kernels
from .errors import PushRefused, ServerFull, ServerGone, TableMisused
from .frames import Asking, Replying
from .requests import OpenTable, PullRows, PushGradients, PushSource, ReadMarks, ReadPiece, Reply, Request
from .server_events import Array
from .specs import TableSpec

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
        try:
            self._socket = connected(address, seconds)
        except OSError as error:
            raise ServerGone(f"cannot connect to the server at {address} ({error})") from None
        self._socket.settimeout(seconds)

    def ask_server(self, request: Request, arrays: Sequence[Array] = ()) -> tuple[Reply, list[Array]]:
        """The answer, and the arrays that come with it. Raises ServerGone, and what a refusal is."""
        parts = frames.pack(Asking(request, frames.shapes_of(arrays)), arrays)
        whole = False
        try:
            for part in parts:
                self._socket.sendall(part)
            reply, found = self._read()
            whole = True
        except (OSError, Malformed) as error:
            raise ServerGone(f"the server at {self._address} does not answer ({error})") from None
        finally:
            if not whole:
                self._socket.close()  # or the next answer would be taken for that of another request
        match reply.refused:
            case "":
                return reply, found
            case "misused":
                raise TableMisused(reply.text)
            case "full":
                raise ServerFull(reply.text)
            case "records":
                raise PushRefused(reply.text)
            case "moved" | "copy":
                raise ServerGone(reply.text)

    def _read(self) -> tuple[Reply, list[Array]]:
        """Raises OSError, Malformed."""
        head = frames.read_head(Replying, self._bytes(frames.length_of_head(self._bytes(frames.PREFIX.size))))
        arrays = frames.make_arrays(head.arrays)
        for each in frames.buffers_of(arrays):
            self._fill(each)
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

    def open_table(self, spec: TableSpec) -> int:
        """Declares a table; how many rows it has already."""
        return self.ask_server(OpenTable(spec, 0))[0].count

    def pull(self, ids: dict[str, Array]) -> list[Array]:
        """The rows of these ids, by table."""
        return self.ask_server(PullRows(tuple(ids), 0), tuple(ids.values()))[1]

    def push(self, source: PushSource, gradients: dict[str, tuple[Array, Array]]) -> int:
        """Applies the gradients of each table's ids. How many rows were changed."""
        arrays = [array for pair in gradients.values() for array in pair]
        return self.ask_server(PushGradients(tuple(gradients), source, 0), arrays)[0].count

    def read_mark(self, dataset: str, shard_index: int) -> int:
        """See `Marks.read`."""
        return self.ask_server(ReadMarks(dataset, shard_index, 0, 0))[0].marks[0]

    def read_piece(self, table: str, first: int) -> tuple[Array, Array]:
        """Ids and rows from the `first` row on; none after the last."""
        ids, values = self.ask_server(ReadPiece(table, first, 0))[1]
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
