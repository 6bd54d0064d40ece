"""How much all peers of one listening socket may take, and which of them has to go where that is exceeded.

A *stranger* is a connection of which nothing is known: it has not said who it is, and no certificate did. The core is
pure: it counts, and names the connections that are to be closed; whoever asks closes them.

At the bound a newcomer is not turned away: the oldest stranger goes, of that address from which there are most. A peer
that says at once who it is is a stranger for milliseconds, and so a flood closes connections of the flood.
"""

import ipaddress
import resource
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

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
        strangers_by_group: of these, from one address (`group_of`).
        unfinished: bytes of messages that have begun and not ended.
        held_by_one: bytes of the requests of one connection that have no answer yet; the next is not read before.
        held: bytes of such requests of all.
        observers: connections of observers at a time.
    """

    connections: int
    strangers: int
    strangers_by_group: int
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
    return Bounds(files * 3 // 4, strangers, strangers)


def group_of(address: str) -> str:
    """What counts as one address: of IPv6 its /64, since each machine there has as many as it likes."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or int(parsed) >> 64)


class Census(Generic[C]):
    """Counts connections, and what they take.

    Args:
        bounds: what they may take.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._groups: dict[C, str] = {}  # of every connection, in order of arrival
        self._strangers: dict[str, dict[C, None]] = {}  # by group, in order of arrival
        self._number = 0  # of strangers
        self._observers: dict[C, None] = {}  # in order of arrival
        self._unfinished: dict[C, int] = {}  # bytes, in the order in which the messages began
        self._bytes = 0  # of these
        self._held: dict[C, int] = {}
        self._held_bytes = 0

    @property
    def count(self) -> int:
        """Connections."""
        return len(self._groups)

    @property
    def strangers(self) -> int:
        """Of these, of which nothing is known."""
        return self._number

    def all(self) -> tuple[C, ...]:
        """Every connection, in order of arrival."""
        return tuple(self._groups)

    def arrives(self, connection: C, group: str) -> Iterator[C]:
        """There is one more; gives each that has to go, which `leaves` before the next is asked for."""
        self._groups[connection] = group
        self._strangers.setdefault(group, {})[connection] = None
        self._number += 1
        bounds = self._bounds
        while len(self._strangers.get(group, ())) > bounds.strangers_by_group:
            yield next(iter(self._strangers[group]))
        while self._number > bounds.strangers or (self._number and len(self._groups) > bounds.connections):
            yield next(iter(max(self._strangers.values(), key=len)))

    def meets(self, connection: C) -> None:
        """It is known."""
        self._forget_stranger(connection)

    def observes(self, connection: C) -> Iterator[C]:
        """It is an observer's, and stays a stranger; gives each that has to go, as `arrives`."""
        self._observers[connection] = None
        while len(self._observers) > self._bounds.observers:
            yield next(iter(self._observers))

    def leaves(self, connection: C) -> None:
        """It is closed."""
        self._observers.pop(connection, None)
        self._forget_stranger(connection)
        self._groups.pop(connection, None)
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

    def _forget_stranger(self, connection: C) -> None:
        group = self._groups.get(connection, "")
        if (strangers := self._strangers.get(group)) is not None and connection in strangers:
            del strangers[connection]
            self._number -= 1
            if not strangers:
                del self._strangers[group]
