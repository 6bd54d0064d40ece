"""A process's side of a stream's ledger: while there is nothing to lease, it looks at the source."""

import time
from dataclasses import dataclass, field, replace

from ...master.data.ledger import DONE, Answer, Mark, OffsetRange
from ...master.data.stream import StreamLayout
from ..client import pushes
from ..client.ledger_client import Leaser
from .contract import BadSource
from .watched_source import LOOK_SECONDS, Gap, WatchedSource

IDLE_SECONDS = 0.5
"""So often a worker without a shard asks the master, whose other workers may have given something back."""


@dataclass(eq=False)
class StreamLeaser(Leaser):
    """See `Leaser`.

    Attributes:
        watched: the source; it is always given.
        follows: the stream goes on with what comes.
        patience: seconds that the next shard is waited for; None: until there is one.
        stopped: no more are wanted.
        gaps: by shard index, what was gone of a lease and is not told yet.
        floors: by partition, before which offset nothing is ever leased again; servers are to hear of it.
    """

    watched: WatchedSource | None = None
    follows: bool = True
    patience: float | None = None
    stopped: bool = False
    gaps: dict[int, list[Gap]] = field(default_factory=dict[int, list[Gap]])
    floors: dict[str, OffsetRange] = field(default_factory=dict[str, OffsetRange])
    _floors_told: dict[str, OffsetRange] = field(default_factory=dict[str, OffsetRange])

    def find_open(self, servers: pushes.Pushes, offsets: OffsetRange, lease: int) -> tuple[int, int] | None:
        """See `Pushes.find_open`."""
        floors = tuple(each for name, each in self.floors.items() if self._floors_told.get(name) != each)
        found = servers.find_open(self.layout.order, offsets, lease, floors)
        self._floors_told.update((each.partition, each) for each in floors)
        return found

    def begin(self) -> None:
        """See `Leaser`; a ledger that begins anew goes on from the rows of tables, and one that knows more does not."""
        with self.io:
            for each in () if self.opened or self.outstanding else pushes.registered:
                assert isinstance(self.layout, StreamLayout)
                self.of_rows = self.layout.follow_rows(each.find_applied(self.layout.order))
            super().begin()

    def _settle(self, deadline: float | None = None) -> Answer:
        """See `Leaser`."""
        answer = super()._settle(deadline)
        self.floors.update((each.partition, each) for each in answer.floors)
        return answer

    def _exchange(self, wants: int, release: tuple[int, ...] = ()) -> None:
        """With what the source has by now, where leases are wanted."""
        assert self.watched is not None
        known = self.watched.find_news() if wants else ()
        self.watched.take_as_told(known)
        marks = self._outgoing()
        self._send(replace(self._numbered("exchange"), marks=marks, release=release, wants=wants, known=known))

    def _outgoing(self) -> tuple[Mark, ...]:
        """With what was gone of each shard, once the mark is beyond it."""
        marks: list[Mark] = []
        for mark in super()._outgoing():
            gaps = self.gaps.pop(mark.shard_index, [])
            rest = [gap for gap in gaps if mark.offset != DONE and gap.stop > mark.offset]
            if rest:
                self.gaps[mark.shard_index] = rest
            marks.append(replace(mark, lost=sum(gap.count for gap in gaps if gap not in rest)))
        return tuple(marks)

    def _fill(self) -> bool:
        """Waits until there is something in the queue; False where nothing came in time, or nothing will."""
        deadline = None if self.patience is None else time.monotonic() + self.patience
        while not self.stopped and not self.queue:
            if self.outstanding:
                self._settle()
            elif self.ended:
                self._all_done()
                break
            elif self.dry and not self._await_news(deadline):
                break
            else:
                self.dry = False
                self._exchange(self._wants())
        if self.stopped or not self.queue:
            self.flush()
            return False
        return True

    def _await_news(self, deadline: float | None) -> bool:
        """Waits until the master is to be asked again; False where the time is over before."""
        assert self.watched is not None
        if self.watched.empty and not self.follows:
            raise BadSource(
                f"the source of dataset {self.watched.dataset!r} has no partition, and follow=False reads only what is "
                "there: start the job once there is something, or use follow=True"
            )
        pushes.rest()
        again = self.sent + IDLE_SECONDS
        while not self.stopped and not self.watched.find_news():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            if now >= again:
                return True
            time.sleep(min(LOOK_SECONDS, again - now))
        return not self.stopped
