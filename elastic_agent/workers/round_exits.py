"""How the workers of a round have ended, also those that did before the others went on into it (pure)."""

import re
from collections.abc import Callable, Iterable

from ...rendezvous.base.frozen import replace
from ...rendezvous.member import Exit


class RoundExits:
    """What the job is told of the ends of one node's workers.

    Args:
        consequences: patterns of what workers say of which a peer is lost.
        stepped: whether the worker that ended had made a step in its round.

    Attributes:
        earlier: the ends of those that the others have gone on without.
    """

    def __init__(self, consequences: Iterable[str], stepped: Callable[[Exit], bool]) -> None:
        self._lost_peer = re.compile("|".join(consequences) or "(?!)", re.IGNORECASE).search
        self._stepped = stepped
        self.earlier: tuple[Exit, ...] = ()

    def count(self, present: Iterable[Exit]) -> tuple[Exit, ...]:
        """All of the round, in order, where `present` are those of its current workers."""
        return tuple(
            replace(exit_, lost_peer=bool(self._lost_peer(exit_.message)), advanced=self._stepped(exit_))
            for exit_ in (*self.earlier, *present)
        )


def failures(exits: Iterable[Exit]) -> tuple[Exit, ...]:
    """Those of them that are no success."""
    return tuple(exit_ for exit_ in exits if not exit_.ok)
