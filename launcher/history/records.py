"""The events of a job as one node sees them: values, lines of a file, and how much is kept (pure).

A file holds one event a line, `{"kind": ..., "value": {...}}`. Its times are the node's wall clock; a report lays the
files of several nodes over each other by the headers that all of them have seen.
"""

import dataclasses
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, get_args

from ...master.data.ledger import Progress
from ...master.status import Diagnosis, Status
from ...rendezvous.base.frozen import dataclass, field
from ...rendezvous.header import HeaderState, Incident, Tally
from ...rendezvous.member import Exit
from ...rendezvous.reasons import Reason
from ...rendezvous.round import Cause
from ...rendezvous.time_split import Split
from ...rendezvous.wire.fields import Name, Number, Words
from ...rendezvous.wire.values import Malformed, Text, decode, encode

SUFFIX = ".events.jsonl"
"""Of the files' names."""

MAX_TAIL = 16_384
"""Characters of a worker's last output."""

MOST_ROUNDS, MOST_EXITS, MOST_FOUND, MOST_POINTS = 1_000, 200, 100, 600
"""What is kept: the first and the newest rounds, the newest exits and findings, and points whose distance doubles."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A node's part in a job begins; `unix`: seconds since 1970, as in all that follows."""

    unix: float
    job: Name
    node: Name
    host: Name
    script: Words
    nodes: Name
    workers: Number
    version: Name


@dataclass(frozen=True, slots=True)
class Published:
    """A header is seen; the fields as there. `mine`: this node is in the round."""

    unix: float
    number: Number
    run: Name
    state: HeaderState
    cause: Cause
    reason: Reason
    nodes: Number
    previous_nodes: Number
    world_size: Number
    max_restarts: int
    in_place: bool
    tally: Tally
    split: Split
    incident: Incident | None
    mine: bool


@dataclass(frozen=True, slots=True)
class Started:
    """This node's workers of a round run, `down` seconds after the last ran; or they could not be started.

    Attributes:
        node: the name under which the node is registered, which may not be the one it began with.
    """

    unix: float
    node: Name
    round: Number
    first_rank: Number
    workers: Number
    down: float
    problem: Words = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker of this node has ended; `tail`: the last that it printed, where that was kept."""

    unix: float
    exit: Exit
    tail: Annotated[str, Text(2 * MAX_TAIL)] = ""


@dataclass(frozen=True, slots=True)
class Noticed:
    """This node was told to leave by a signal."""

    unix: float
    signal: Name


@dataclass(frozen=True, slots=True)
class Point:
    """How far the job is, as its master sees it; `steps`: a second, where they are known."""

    unix: float
    round: Number
    world_size: Number
    split: Split
    datasets: tuple[Progress, ...]
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole job, as its master sees it."""

    unix: float
    status: Status


@dataclass(frozen=True, slots=True)
class Found:
    unix: float
    diagnosis: Diagnosis

    @property
    def key(self) -> tuple[object, ...]:
        """Of what is the same at the next look."""
        return self.diagnosis.finding.key


@dataclass(frozen=True, slots=True)
class Over:
    """This node's part is over."""

    unix: float
    code: int
    reason: Words


Record = Begun | Published | Started | Ended | Noticed | Point | Snapshot | Found | Over

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Record)}  # Any: they are no one type

_MOST: Mapping[type[Any], int] = {
    Published: MOST_ROUNDS,
    Started: MOST_ROUNDS,
    Ended: MOST_EXITS,
    Noticed: MOST_EXITS,
    Found: MOST_FOUND,
}


def line(record: Record) -> bytes:
    """As it stands in a file."""
    return b'{"kind":"%s","value":%s}\n' % (type(record).__name__.encode(), encode(record))


def read(lines: Iterable[bytes]) -> Iterator[Record | None]:
    """What a file holds; None for a line that cannot be read: cut short, or of another version."""
    for each in lines:
        try:
            found = json.loads(each)
            yield decode(_KINDS[found["kind"]], json.dumps(found["value"]).encode())
        except (ValueError, KeyError, TypeError, RecursionError, Malformed):
            yield None


def without_repeats(tally: Tally) -> Tally:
    """Without what only the master's memory of failures needs, which is long."""
    return dataclasses.replace(tally, signature="", repeats=0, problems_in_row=0)


@dataclass(slots=True)
class Kept:
    """What is kept of a node's events: bounded, whatever happens."""

    begun: Begun | None = None
    over: Over | None = None
    first: list[Published] = field(default_factory=list[Published])
    newest: Mapping[type[Any], deque[Any]] = field(  # Any: as above
        default_factory=lambda: {kind: deque(maxlen=most) for kind, most in _MOST.items()}
    )
    points: list[Point] = field(default_factory=list[Point])
    snapshot: Snapshot | None = None
    distance: float = 1.0
    """Seconds between two points."""

    def add(self, record: Record) -> None:
        match record:
            case Begun():
                self.begun = record
            case Published() if len(self.first) < MOST_ROUNDS // 10:
                self.first.append(record)
            case Point():
                self._point(record)
            case Snapshot():
                self.snapshot = record
            case Over():
                self.over = record
            case _:
                self.newest[type(record)].append(record)

    def wants_point(self, unix: float) -> bool:
        return not self.points or unix - self.points[-1].unix >= self.distance

    def news(self, diagnosis: Iterable[Diagnosis], unix: float) -> Iterator[Found]:
        """What of it was not found before, or was not as sure, or has been acted upon since."""
        known = {each.key: each.diagnosis.finding for each in self.newest[Found]}
        for each in diagnosis:
            found, now = Found(round(unix - each.ago, 3), each), each.finding
            before = known.get(found.key)
            if before is None or before.strength != now.strength or now.done not in ("", before.done):
                yield found

    def __iter__(self) -> Iterator[Record]:
        """All of it; the beginning first, and the end last."""
        if self.begun:
            yield self.begun
        events: list[Record] = [*self.first, *chain(*self.newest.values()), *self.points]
        yield from sorted(events, key=lambda each: each.unix)
        if self.snapshot:
            yield self.snapshot
        if self.over:
            yield self.over

    def _point(self, point: Point) -> None:
        self.points.append(point)
        if len(self.points) > MOST_POINTS:
            del self.points[1::2]
            self.distance *= 2
