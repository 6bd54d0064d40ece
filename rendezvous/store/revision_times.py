"""When the store was at which revision, on this node's own clock (pure).

A time-out that begins with something in the store must end in its time, whoever is the master by then. Clocks of
machines are never compared. So each node keeps pairs as it hears from the store: a revision, and when it first knew
that the store had come so far. What was written at a revision was written at that time or before it. So an age that is
told from the pairs is never too long; it is too short by as long as the node had not heard from the store before. Who
came later knows nothing older than its coming.

Pairs that lie close together are merged, the closer the longer they are past. So an age is told to SHARE of itself, and
a year takes a few hundred pairs.
"""

from bisect import bisect_left
from operator import itemgetter

SHARE = 0.02
"""Of an age: by so much more it may be too short, for the sake of fewer pairs."""

CLOSE = 0.1
"""Seconds between two pairs that are merged at any age."""

MANY = 256
"""Pairs, at least, before any are merged."""


class RevisionTimes:
    """All times are on one clock, in seconds."""

    def __init__(self) -> None:
        self._pairs: list[tuple[int, float]] = []  # both ascending
        self._many = MANY

    def __len__(self) -> int:
        return len(self._pairs)

    def saw(self, revision: int, now: float) -> None:
        """The store has come to `revision`, at least."""
        if self._pairs and revision <= self._pairs[-1][0]:
            return
        self._pairs.append((revision, now))
        if len(self._pairs) > self._many:
            self._merge(now)
            self._many = max(MANY, 2 * len(self._pairs))

    def reached(self, revision: int, now: float) -> float:
        """When the store was known to be at `revision`, or past it; `now` where that is not known."""
        index = bisect_left(self._pairs, revision, key=itemgetter(0))
        return self._pairs[index][1] if index < len(self._pairs) else now

    def _merge(self, now: float) -> None:
        kept = [self._pairs[-1]]
        for (_, before), pair in zip(self._pairs[-3::-1], self._pairs[-2:0:-1], strict=True):
            after = kept[-1][1]
            if after - before > max(CLOSE, SHARE * (now - after)):
                kept.append(pair)
        kept.append(self._pairs[0])
        self._pairs = kept[::-1]
