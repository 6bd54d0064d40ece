"""How much all peers of one listening socket may take, and which of them has to go where that is exceeded.

A *stranger* is a connection of which nothing is known: it has not said who it is, and no certificate did. The core is
pure: it counts, and names the connections that are to be closed; whoever asks closes them.

At the bound a newcomer is not turned away: the oldest stranger goes. A peer that says at once who it is is a stranger
for milliseconds, and so a flood closes connections of the flood.
"""

import resource
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from ..base.frozen import dataclass

C = TypeVar("C")

LEAST, MOST = 64, 200_000
"""Descriptors that are reckoned with, whatever their limit is."""

MOST_PASSING = 512
"""Strangers at a time, where none of them may stay."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all peers may take together.

    Attributes:
        connections: at a time.
        strangers: of these, of which nothing is known.
        unfinished: bytes of messages that have begun and not ended.
        held_by_one: bytes of the requests of one connection that have no answer yet; the next is not read before.
        held: bytes of such requests of all.
        observers: connections of observers at a time.
    """

    connections: int
    strangers: int
    unfinished: int = 2**26
    held_by_one: int = 2**25
    held: int = 2**27
    observers: int = 64


def bounds_of_this_process(*, silent: bool) -> Bounds:
    """What fits into its limit of descriptors: a quarter stays for its workers, their output and its store.

    Args:
        silent: strangers may stay, as those do who only watch; else each of them is known or closed within seconds.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST if soft == resource.RLIM_INFINITY else max(LEAST, min(MOST, soft))
    strangers = files // 2 if silent else min(MOST_PASSING, files // 4)
    return Bounds(files * 3 // 4, strangers)


class Census(Generic[C]):
    """Counts connections, and what they take."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._all: dict[C, None] = {}  # in order of arrival
        self._strangers: dict[C, None] = {}  # of these, in order of arrival
        self._observers: dict[C, None] = {}  # in order of arrival
        self._unfinished: dict[C, int] = {}  # bytes, in the order in which the messages began
        self._bytes = 0  # of these
        self._held: dict[C, int] = {}
        self._held_bytes = 0

    @property
    def count(self) -> int:
        """Connections."""
        return len(self._all)

    @property
    def strangers(self) -> int:
        """Of these, of which nothing is known."""
        return len(self._strangers)

    def all(self) -> tuple[C, ...]:
        """Every connection, in order of arrival."""
        return tuple(self._all)

    def arrives(self, connection: C) -> Iterator[C]:
        """There is one more; gives each that has to go, which `leaves` before the next is asked for."""
        self._all[connection] = self._strangers[connection] = None
        bounds, strangers = self._bounds, self._strangers
        while len(strangers) > bounds.strangers or (strangers and len(self._all) > bounds.connections):
            yield next(iter(strangers))

    def meets(self, connection: C) -> None:
        """It is known."""
        self._strangers.pop(connection, None)

    def observes(self, connection: C) -> Iterator[C]:
        """It is an observer's, and stays a stranger; gives each that has to go, as `arrives`."""
        self._observers[connection] = None
        while len(self._observers) > self._bounds.observers:
            yield next(iter(self._observers))

    def leaves(self, connection: C) -> None:
        self._observers.pop(connection, None)
        self._strangers.pop(connection, None)
        self._all.pop(connection, None)
        self._bytes -= self._unfinished.pop(connection, 0)
        self._held_bytes -= self._held.pop(connection, 0)

    def unfinished(self, connection: C, size: int, *, again: bool) -> Iterator[C]:
        """So many bytes of its message are there; gives each that has to go, as `arrives`.

        Args:
            again: the message is another than before.
        """
        if size == 0 or again:
            self._bytes -= self._unfinished.pop(connection, 0)
        if size:
            self._bytes += size - self._unfinished.get(connection, 0)
            self._unfinished[connection] = size
        while self._bytes > self._bounds.unfinished and self._unfinished:
            yield next(iter(self._unfinished))

    def holds(self, connection: C, size: int) -> Iterable[C]:
        """So many bytes of its requests have no answer yet; gives each that has to go, as `arrives`."""
        self._held_bytes += size - self._held.pop(connection, 0)
        if size:
            self._held[connection] = size
        while self._held_bytes > self._bounds.held and self._held:
            yield max(self._held, key=lambda each: self._held[each])
