"""What a server wants done, as it decides it, and what it has told each peer that is not answered (pure)."""

from collections import deque

from .requests import PeerRequest, Reply
from .server_events import (
    AnswerAsker,
    Arrays,
    Connection,
    HangUpPeer,
    Peer,
    ServerEffect,
    TellPeer,
)


class Outbox:
    """Of one server."""

    def __init__(self) -> None:
        self._effects: list[ServerEffect] = []
        self._told: dict[Peer, deque[PeerRequest]] = {}

    @property
    def peers(self) -> list[Peer]:
        """Those that were told something, and not hung up on since."""
        return list(self._told)

    def take_effects(self) -> list[ServerEffect]:
        """All since the last time."""
        effects, self._effects = self._effects, []
        return effects

    def add_effect(self, effect: ServerEffect) -> None:
        """That is neither of the others."""
        self._effects.append(effect)

    def answer(self, connection: Connection, reply: Reply, arrays: Arrays = ()) -> None:
        """For whoever asked."""
        self._effects.append(AnswerAsker(connection, reply, arrays))

    def tell_peer(self, peer: Peer, request: PeerRequest, arrays: Arrays = ()) -> None:
        """Its answer is matched with the request when it comes."""
        self._told.setdefault(peer, deque()).append(request)
        self._effects.append(TellPeer(peer, request, arrays))

    def take_told(self, peer: Peer) -> PeerRequest | None:
        """What that peer has answered; None: it was given up meanwhile."""
        waiting = self._told.get(peer)
        return waiting.popleft() if waiting else None

    def forget_told(self, peer: Peer) -> None:
        """Its connection is lost: nothing of what was told will be answered."""
        self._told[peer] = deque()

    def hang_up(self, peer: Peer) -> None:
        """Nothing more is wanted of it."""
        del self._told[peer]
        self._effects.append(HangUpPeer(peer))
