"""What happens to a server, and what it wants done about it: the values that `ServerMachine` takes and gives.

Whoever does the I/O keeps one connection to each *peer*, another server by its incarnation in the table. It opens one
when something is to be told, keeps what is told while it cannot, and tries again a moment later. On a connection,
requests go out in the order in which they are told, and answers are taken in that order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...master.servers.slot_table import SlotTable
from ...rendezvous.base.frozen import dataclass
from .requests import PeerRequest, Reply, Request

Array = np.ndarray[Any, np.dtype[Any]]

Arrays = Sequence[Array]

Connection = int
"""Whoever asked: a number of its own for each connection that was ever made."""

Peer = str
"""The incarnation of another server."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """The agent says what the slot table is now. An earlier version than the last is ignored."""

    table: SlotTable


@dataclass(frozen=True, slots=True)
class ServerAsked:
    """A worker or another server asks; it is answered on that connection, after what it asked there before."""

    connection: Connection
    request: Request
    arrays: Arrays = ()


@dataclass(frozen=True, slots=True)
class PeerAnswered:
    """The answer to the first of what was told to that peer and is not answered."""

    peer: Peer
    reply: Reply


@dataclass(frozen=True, slots=True)
class PeerBroken:
    """The connection is lost, with all that was told and not answered. What is still wanted is told again at once."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class CopyTurn:
    """There is time for a piece of a copy: a few milliseconds."""


ServerEvent = TableRead | ServerAsked | PeerAnswered | PeerBroken | CopyTurn


@dataclass(frozen=True, slots=True)
class AnswerAsker:
    """The answer for a connection, which may have gone."""

    connection: Connection
    reply: Reply
    arrays: Arrays = ()


@dataclass(frozen=True, slots=True)
class TellPeer:
    """Asks another server of the table."""

    peer: Peer
    request: PeerRequest
    arrays: Arrays = ()


@dataclass(frozen=True, slots=True)
class HangUpPeer:
    """Nothing is wanted of this peer any more; what was told and not answered is forgotten. No `PeerBroken` follows."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class CopiesWhole:
    """All copies from here that this version of the table asks for are whole: `RunningServer.joined`."""

    version: int


@dataclass(frozen=True, slots=True)
class WantTurn:
    """A `CopyTurn` is wanted, when what waits to be answered is answered. Wanted once for each that is given."""


@dataclass(frozen=True, slots=True)
class SayWords:
    """To people."""

    words: str


ServerEffect = AnswerAsker | TellPeer | HangUpPeer | CopiesWhole | WantTurn | SayWords
