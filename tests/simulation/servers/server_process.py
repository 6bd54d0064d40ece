"""One server's process: what the product's I/O does around a `ServerMachine`, on simulated connections.

In some runs, messages cross as they would on a real connection: written as JSON and bytes, and read again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np

from elastic_run.adapters.servers import frames, tables
from elastic_run.adapters.servers.frames import Asking, Replying
from elastic_run.adapters.servers.record_file import DiskLimit
from elastic_run.adapters.servers.requests import ForwardPush, PushGradients, Reply, Request
from elastic_run.adapters.servers.row_memory import TableFull
from elastic_run.adapters.servers.server_events import (
    AnswerAsker,
    CopiesWhole,
    CopyTurn,
    HangUpPeer,
    PeerAnswered,
    PeerBroken,
    ServerAsked,
    ServerEvent,
    TableRead,
    TellPeer,
    WantTurn,
)
from elastic_run.adapters.servers.server_machine import ServerMachine
from elastic_run.master.servers.slot_table import SlotTable

from .lines import Line, LineNetwork, LineProcess, Machine
from .saved_tables import SavedTables

Array = np.ndarray[Any, np.dtype[Any]]

AGAIN_SECONDS = 0.05
"""Between two attempts to connect to a peer."""


Message = bytes | tuple[Asking | Replying, list[Array]]
"""As it goes over a connection; or the values themselves, which is quicker."""


def write_message(network: LineNetwork, head: Asking | Replying, arrays: Sequence[Array]) -> Message:
    """What is sent."""
    if network.coded:
        return b"".join(bytes(part) for part in frames.pack(head, arrays))
    return head, [each.copy() for each in arrays]


def read_message(kind: type, message: Message) -> tuple[Any, list[Array]]:
    """The head, and arrays that share nothing with those that were sent."""
    if isinstance(message, tuple):
        return message
    length = frames.length_of_head(message[: frames.PREFIX.size])
    at = frames.PREFIX.size + length
    head = frames.read_head(kind, message[frames.PREFIX.size : at])
    arrays = frames.make_arrays(head.arrays)
    for each in frames.buffers_of(arrays):
        each[:] = message[at : at + len(each)]
        at += len(each)
    assert at == len(message), "a message is as long as its head says"
    return head, arrays


class PeerLine:
    """The connection to one peer: what is to be sent, and whether it can be."""

    def __init__(self) -> None:
        self.waiting: deque[Message] = deque()
        self.line: Line | None = None
        self.wanted = True


class ServerProcess(LineProcess):
    """One server.

    Args:
        find: the process of another server, by its incarnation.
        report: hears that all copies of a version are whole.
        saved: where checkpoints are.
        report_saved: hears of a part that is written.
        look: called after each event.
        cramped: how likely it has no room for a push.
        disk: where rows may be that do not fit into its memory.

    Attributes:
        incarnation: its own.
        kernel: of the product.
        table: which it has read last.
    """

    def __init__(
        self,
        network: LineNetwork,
        machine: Machine,
        incarnation: str,
        memory: int,
        find: Callable[[str], "ServerProcess | None"],
        report: Callable[[int], object],
        saved: SavedTables,
        report_saved: Callable[[int], object],
        look: Callable[["ServerProcess", ServerEvent], object],
        cramped: float = 0.0,
        disk: DiskLimit | None = None,
    ) -> None:
        super().__init__(network, incarnation, machine)
        self.incarnation = incarnation
        self.kernel = ServerMachine(incarnation, memory, disk)
        self.table = SlotTable()
        self._find = find
        self._report = report
        self._saved = saved
        self._report_saved = report_saved
        self._look = look
        self._cramped = cramped
        self._peers: dict[str, PeerLine] = {}
        self._askers: dict[int, Line] = {}

    def read_table(self, table: SlotTable) -> None:
        """Its agent says what the table is now."""

        def read() -> None:
            newer = table.version > self.kernel.version
            self._saved.load_rows(self.kernel, table, self.incarnation)
            self.table = max(self.table, table, key=lambda each: each.version)
            self.happen(TableRead(table))
            ordered = newer and table.checkpoint == table.version
            if ordered and self._saved.save_part(self.kernel, table, self.incarnation):
                self._report_saved(table.version)

        self.hear(read)

    def happen(self, event: ServerEvent) -> None:
        """Tells the machine, and does what it wants."""
        for effect in self.kernel.on(event):
            match effect:
                case AnswerAsker(connection, reply, arrays):
                    if line := self._askers.get(connection):
                        line.send(self, write_message(self.network, Replying(reply, frames.shapes_of(arrays)), arrays))
                case TellPeer(peer, request, arrays):
                    self._tell(peer, write_message(self.network, Asking(request, frames.shapes_of(arrays)), arrays))
                case HangUpPeer(peer):
                    if (gone := self._peers.pop(peer, None)) is not None:
                        gone.wanted = False
                        if gone.line is not None:
                            gone.line.leave(self)
                case CopiesWhole(version):
                    self._report(version)
                case WantTurn():
                    pause = self.network.random.uniform(0.0001, 0.003)
                    self.network.timeline.after(pause, lambda: self.hear(lambda: self.happen(CopyTurn())))
        self._look(self, event)

    def _cramp(self, request: Request) -> AbstractContextManager[object]:
        """There is no room for this push, perhaps."""
        is_push = isinstance(request, PushGradients | ForwardPush)
        if not (is_push and self._cramped and self.network.random.random() < self._cramped):
            return nullcontext()
        return patch.object(tables, "check_fits", side_effect=TableFull("no room"))

    def accept(self, line: Line) -> None:
        self._askers[line.number] = line

    def take(self, line: Line, message: Message) -> None:
        if line.number in self._askers:
            head, arrays = read_message(Asking, message)
            request: Request = head.request
            with self._cramp(request):
                self.happen(ServerAsked(line.number, request, arrays))
        elif (peer := self._peer_of(line)) is not None:
            head, _ = read_message(Replying, message)
            reply: Reply = head.reply
            self.happen(PeerAnswered(peer, reply))

    def lose(self, line: Line) -> None:
        if self._askers.pop(line.number, None) is None and (peer := self._peer_of(line)) is not None:
            self._peers.pop(peer).wanted = False
            self.happen(PeerBroken(peer))

    def _peer_of(self, line: Line) -> str | None:
        return next((peer for peer, each in self._peers.items() if each.line is line), None)

    def _tell(self, peer: str, message: Message) -> None:
        if (found := self._peers.get(peer)) is None:
            found = self._peers[peer] = PeerLine()
            self._dial(peer, found)
        if found.line is not None:
            found.line.send(self, message)
        else:
            found.waiting.append(message)

    def _dial(self, peer: str, found: PeerLine) -> None:
        def told(line: Line | None) -> None:
            if not found.wanted:
                if line is not None:
                    line.leave(self)
                return
            if line is None:
                self.network.timeline.after(AGAIN_SECONDS, lambda: self.hear(again))
                return
            found.line = line
            while found.waiting:
                line.send(self, found.waiting.popleft())

        def again() -> None:
            if found.wanted:
                self._dial(peer, found)

        self.network.dial(self, lambda: self._find(peer), told)
