"""Which events of a node are one recovery (pure).

A recovery ends when the workers of a round have been started; the start of the job is the first one. All nodes give the
trace of one round the same id, without having talked about it.
"""

import hashlib

from ...rendezvous.base.frozen import dataclass, field
from ...rendezvous.host.trace_file import AGENT

MOST_EVENTS = 500
"""Of one recovery; the newest."""

LIVES = "rank "
"""Begins the rows of workers' lives, which are no part of a recovery."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the trace; `ended` equals `begun` where it is a moment. Seconds of the monotonic clock."""

    name: str
    row: str
    begun: float
    ended: float
    args: dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one node has done for one round, or for its end.

    Attributes:
        name: as a viewer shows it.
        id: of the trace, 16 bytes.
        events: in the order of their ends.
    """

    name: str
    id: bytes
    begun: float
    ended: float
    args: dict[str, str | int | float | bool]
    events: tuple[Event, ...]


@dataclass(slots=True)
class Recoveries:
    """Collects events until a recovery is whole."""

    job: str
    _events: list[Event] = field(default_factory=list[Event])

    def add(self, event: Event) -> Recovery | None:
        """One more; the recovery that it ends."""
        if event.row.startswith(LIVES):
            return None
        self._events.append(event)
        del self._events[:-MOST_EVENTS]
        if event.row != AGENT or event.name not in ("start", "leave"):
            return None
        events, self._events = tuple(self._events), []
        run = next((each.args["run"] for each in reversed(events) if each.args.get("run")), "")
        if event.name == "start":
            number = event.args.get("round", 0)
            name = f"round {number}"
        else:
            number, name = "end", "end"
        digest = hashlib.sha256(f"{self.job}\0{run}\0{number}".encode()).digest()
        begun, ended = min(each.begun for each in events), max(each.ended for each in events)
        return Recovery(name, digest[:16], begun, ended, event.args, events)
