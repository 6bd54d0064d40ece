"""What is to be started and stopped, so that the job has the replicas that it wants (pure).

`reconcile` looks at all replicas that there are, each time, and never at a history of events: what was missed, repeated
or done by an earlier master is no matter. What it has learnt of the platform's room is passed on in `Room`; a master
that begins without it asks once for too much.

A role gets its minimum whatever the platform says: those stay pending until there is a place. More than that is asked
for as long as there are places:

- As long as nothing was refused a place, everything is asked for at once, and whatever was lost is replaced at once.
- A replica that stays without a place is withdrawn, but for one: that is the probe, and the platform starts it as soon
  as there is a place. So a job that cannot grow has one pending replica, however many it may have.
- When the probe has a place, twice as many are asked for each time, until one stays without a place again. Nobody
  waits for those to run: a place is found in a moment, and an image and an agent take their time.
- A place that others of a lower priority are leaving counts as one: the replica that is promised it is not withdrawn.

Of an index the newest replica is kept when it has ended, for its log and its count; those before it are removed.

Invariants: no more than `count` of a role are alive when all is done; the indexes are the lowest that are free; who is
not pending is only stopped where there are too many, the highest indexes first.
"""

from collections.abc import Mapping, Sequence
from itertools import count

from ...rendezvous.base.frozen import dataclass, field, replace
from ...rendezvous.wire.fields import Name, Number
from ...rendezvous.wire.values import Tagged
from .relaunch import Again, Finished, GivenUp, Limits, judge
from .replica import CannotStart, Exited, Launch, OutOfMemory, Replica, Submitted, Unschedulable

PATIENCE = 20.0
"""Seconds that a replica waits for a place before those beyond the minimum are withdrawn: a scheduler that is busy, or
that has to preempt somebody, needs some."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A role shall have `count` replicas, and cannot do with less than `least`."""

    role: Name
    count: Number
    least: Number


@dataclass(frozen=True, slots=True)
class Room:
    """What is known of the platform's room for a role.

    Attributes:
        peak: so many had a place at once, since a replica was last withdrawn; they are replaced at once.
        step: beyond that, so many may be asked for at once; 0: as many as are wanted, because none was withdrawn yet.
        placed: how many had a place when this was last looked at.
        ran: one of them has run, so that what they are made of can be started.
    """

    peak: Number = 0
    step: Number = 0
    placed: Number = 0
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """What a person should know of a replica: why it is pending, how it ended."""

    replica: Name
    reason: Tagged


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    Attributes:
        start: replicas, the lowest indexes first.
        stop: names.
        room: what is known now, by role.
        look: at this time nothing may have changed, and there will be something to do; None: when something changes.
        notes: why replicas are pending, or were given up.
        hopeless: the job cannot have its minimum any more; None where it can.
        finished: a replica that has ended because the job has succeeded; None where there is none.
    """

    start: tuple[Launch, ...] = ()
    stop: tuple[Name, ...] = ()
    room: Mapping[str, Room] = field(default_factory=dict[str, Room])
    look: float | None = None
    notes: tuple[Note, ...] = ()
    hopeless: Note | None = None
    finished: Note | None = None


def reconcile(
    demands: Sequence[Demand],
    replicas: Sequence[Replica],
    room: Mapping[str, Room],
    limits: Limits,
    now: float,
    patience: float = PATIENCE,
) -> Plan:
    """What to do `now`.

    Args:
        demands: one for each role; replicas of others are stopped.
        replicas: all that there are.
        room: of the plan before.
        limits: how often one that ended is followed by another.
        patience: seconds until a replica without a place is withdrawn.
    """
    known = {demand.role for demand in demands}
    finished = [
        Note(each.name, each.end)
        for each in replicas
        if each.end is not None and not each.stopping and isinstance(judge(each, each.end, limits), Finished)
    ]
    stop = [each.name for each in replicas if each.role not in known and _alive(each)]
    start: list[Launch] = []
    looks: list[float] = []
    notes: list[Note] = []
    hopeless: Note | None = None
    rooms: dict[str, Room] = {}
    for demand in demands:
        part = _of_role(
            demand,
            [each for each in replicas if each.role == demand.role],
            room.get(demand.role, Room()),
            limits,
            now,
            patience,
        )
        start += part.start
        stop += part.stop
        rooms |= part.room
        notes += part.notes
        looks += [part.look] if part.look is not None else []
        hopeless = hopeless or part.hopeless
    return Plan(
        tuple(start), tuple(stop), rooms, min(looks, default=None), tuple(notes), hopeless, next(iter(finished), None)
    )


def _of_role(
    demand: Demand, replicas: Sequence[Replica], room: Room, limits: Limits, now: float, patience: float
) -> Plan:
    newest: dict[int, Replica] = {}
    for each in sorted(replicas, key=lambda one: one.attempt):
        newest[each.index] = each
    stop = [each.name for each in replicas if not each.stopping and newest[each.index] is not each]
    live = sorted(filter(_alive, newest.values()), key=_worth)
    surplus = max(0, len(live) - demand.count)
    stop += [each.name for each in live[:surplus]]
    live = live[surplus:]

    placed = sum(map(_placed, live))
    ran = room.ran or any(each.state == "running" or isinstance(each.end, Exited | OutOfMemory) for each in replicas)
    withdrawn, look = _withdrawn(live, demand.least, now, patience)
    if withdrawn:
        stop += [each.name for each in withdrawn]
        live = [each for each in live if each not in withdrawn]
        room = Room(peak=placed, step=1, placed=placed, ran=ran)
    doubled = room.step * 2 if placed > room.placed and placed == len(live) else room.step
    room = Room(max(room.peak, placed), doubled, placed, ran)

    most = demand.count
    if any(map(_placeless, live)):
        most = min(most, demand.least)
    elif room.step:
        most = min(most, max(demand.least, room.peak, placed + room.step))
    started = _started(demand, newest, len(live), most, limits, now)
    waits = [Note(each.name, each.pending) for each in live if isinstance(each.pending, Unschedulable | CannotStart)]
    stuck, stuck_look = ((), None) if ran else _stuck(live, limits, now)
    lost = (*started.notes, *stuck)
    return Plan(
        start=started.start,
        stop=tuple(stop),
        room={demand.role: room},
        look=min((moment for moment in (look, started.look, stuck_look) if moment is not None), default=None),
        notes=(*waits, *started.notes),
        hopeless=lost[0] if lost and demand.count - len(lost) < demand.least else None,
    )


def _stuck(live: Sequence[Replica], limits: Limits, now: float) -> tuple[Sequence[Note], float | None]:
    """Those that could not be started for long enough, or never can; when to look again at the others of that kind."""
    trying = [each for each in live if isinstance(each.pending, CannotStart)]
    late = [each for each in trying if each.since + limits.cannot_start <= now or _is_never(each)]
    look = min((each.since + limits.cannot_start for each in trying if each not in late), default=None)
    return [Note(each.name, each.pending) for each in late if each.pending is not None], look


def _is_never(replica: Replica) -> bool:
    return isinstance(replica.pending, CannotStart) and replica.pending.never


def _worth(replica: Replica) -> tuple[bool, bool, int]:
    """Who goes first: who waits for a place, then who is about to start, then the highest index."""
    return replica.state == "running", not _placeless(replica), -replica.index


def _withdrawn(
    live: Sequence[Replica], least: int, now: float, patience: float
) -> tuple[Sequence[Replica], float | None]:
    """Those beyond the minimum that have waited long enough for a place, but for the probe; and when to look again."""
    placeless = sorted(filter(_placeless, live), key=lambda each: each.index)
    most = min(len(placeless) - 1, len(live) - least)
    if most <= 0:
        return (), None
    weary = [each for each in placeless if each.since + patience <= now]
    if len(weary) < most:
        return (), min(each.since for each in placeless if each not in weary) + patience
    return weary[-most:], None


def _started(demand: Demand, newest: Mapping[int, Replica], live: int, most: int, limits: Limits, now: float) -> Plan:
    """Up to `most` replicas: again where one has ended, else those with the lowest free indexes.

    The notes are of those that are not followed by another, though their role wants one.
    """
    taken = live
    again: list[Launch] = []
    given_up: list[Note] = []
    looks: list[float] = []
    raised = max((each.raised for each in newest.values()), default=0)
    for index, each in sorted(newest.items()):
        if each.stopping or each.end is None:
            continue
        match judge(each, each.end, limits):
            case Finished():
                taken += 1
            case GivenUp():
                taken += 1
                given_up.append(Note(each.name, each.end))
            case Again(not_before=moment) if moment > now:
                taken += 1
                looks.append(moment)
            case Again(counted, _, more):
                raised = max(raised, more)
                again.append(Launch(demand.role, index, each.attempt + 1, each.counted + counted))
    free = (index for index in count() if index not in newest or newest[index].stopping)
    start = again[: max(0, most - taken)]
    while taken + len(start) < most:
        index = next(free)
        attempt = newest[index].attempt + 1 if index in newest else 0
        start.append(Launch(demand.role, index, attempt))
    start = [replace(each, raised=raised) for each in start]
    return Plan(tuple(start), look=min(looks, default=None), notes=tuple(given_up))


def _alive(replica: Replica) -> bool:
    return replica.state != "ended" and not replica.stopping


def _placed(replica: Replica) -> bool:
    return not isinstance(replica.pending, Submitted | Unschedulable)


def _placeless(replica: Replica) -> bool:
    return isinstance(replica.pending, Unschedulable)
