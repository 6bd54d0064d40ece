"""Lays the events of a job's nodes over each other (pure).

Each node has written what it saw, by its own clock. All nodes see the same headers within milliseconds, so the clocks
are compared by them: times here are those of the node that has seen most of them.
"""

import itertools
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...elastic_agent.workers.failure import describe
from ...master import status
from ...master.machine.parameter_servers import ServersStatus
from ...master.machine.targets import plan_words
from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.header import Incident
from ...rendezvous.time_split import Split
from ..history.records import Begun, Ended, Found, Noticed, Over, Point, Published, Record, Snapshot, Started

MOST_EVIDENCE = 50
"""Pieces of evidence that are told of one interruption."""


@dataclass(frozen=True, slots=True)
class File:
    """The records of one node's part in a job, in order, and how many lines could not be read."""

    name: str
    records: tuple[Record, ...]
    unread: int = 0

    @property
    def begun(self) -> Begun | None:
        """Whose they are."""
        return next((each for each in self.records if isinstance(each, Begun)), None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen, at a time, by a node."""

    at: float
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class Interruption:
    """A time in which the job did not train, or a change of its membership.

    Attributes:
        at: of the first evidence, else of the header; in unix seconds, as all times here.
        over: the round that ended.
        next: the number of the header that followed; the round, where that is open.
        opened: the round in which the job went on; None where it did not.
        resumed: when the first workers ran again; None where they never did.
        down: the longest time in which a node's workers did not run, seconds; None where that is not known.
        incident: what the master took for its cause; None: an arrival, or a departure.
        found: what a diagnosis had found in the round that ended.
    """

    at: float
    over: int
    next: int
    opened: int | None
    cause: str
    code: str
    reason: str
    incident: Incident | None
    before: int
    after: int
    in_place: bool
    ended: bool
    resumed: float | None
    down: float | None
    evidence: tuple[Evidence, ...]
    found: tuple[Found, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node: what is known of it at the end."""

    node: str
    host: str
    state: str
    ranks: str
    role: str
    rounds: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tail:
    """The last that a failed worker printed."""

    at: float
    node: str
    round: int
    rank: int
    text: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Story:
    """A job's history.

    Attributes:
        state: as a header's; "gathering" before the first.
        began, until: its first and its last event.
        changes: each header once, in order.
        clocks: what was added to the times of each node, seconds.
        suspects: what a diagnosis says of the job as it is now.
        found: what one has said so far, in order.
        servers: the parameter servers, as they were seen last.
        plan: what the job's plan said last of its number of nodes; empty without one.
    """

    job: str
    run: str
    script: str
    version: str
    state: str
    reason: str
    began: float
    until: float
    changes: tuple[Published, ...]
    interruptions: tuple[Interruption, ...]
    nodes: tuple[NodeLine, ...]
    split: Split
    points: tuple[Point, ...]
    root_cause: Incident | None
    tails: tuple[Tail, ...]
    clocks: Mapping[str, float]
    files: tuple[str, ...]
    unread: int
    suspects: tuple[status.Diagnosis, ...] = ()
    found: tuple[Found, ...] = ()
    servers: ServersStatus = ServersStatus()
    plan: str = ""

    @property
    def over(self) -> bool:
        """The job has ended."""
        return self.state not in status.RUNS


def tell(files: Collection[File], run: str | None = None, now: float | None = None) -> Story | None:
    """The story of one run of a job; None where no file tells of one.

    Args:
        run: which; None: the newest.
        now: the job goes on until then; None: it is told until its last event.
    """
    known = [each for each in files if each.begun]
    if run is None:
        run = next(reversed(find_run_times(known)), None)
    known = [each for each in known if run is None or run in find_run_times((each,))]
    if not known:
        return None
    parts = [_of_run(each, run) for each in known]
    reference = max(parts, key=lambda part: len(_headers(part.records)))
    clocks = [_offset(_headers(part.records), _headers(reference.records)) for part in parts]
    moved = [
        replace(part, records=tuple(replace(each, unix=each.unix + by) for each in part.records))
        for part, by in zip(parts, clocks, strict=True)
    ]
    return _story(moved, {_name(part): round(by, 3) for part, by in zip(parts, clocks, strict=True)}, run or "", now)


def find_run_times(files: Iterable[File]) -> dict[str, tuple[float, float]]:
    """When each run was, from its first header to its last event; the oldest first."""
    found: dict[str, list[float]] = {}
    for file in files:
        run = None
        for each in file.records:
            if run := each.run if isinstance(each, Published) else run:
                found.setdefault(run, []).append(each.unix)
    return dict(sorted(((run, (min(at), max(at))) for run, at in found.items()), key=lambda each: each[1]))


def _name(part: File) -> str:
    """Under which the node was registered last."""
    assert part.begun is not None
    return next((each.node for each in reversed(part.records) if isinstance(each, Started)), part.begun.node)


def _of_run(file: File, run: str | None) -> File:
    """Without what belongs to an earlier or later run of the same id, which one agent may see as well."""
    records = list[Record]()
    current = run
    for each in file.records:
        if isinstance(each, Published):
            current = each.run
        elif isinstance(each, Snapshot) and each.status.run != run and each.status.state != "gathering":
            continue
        if current in (run, None) or isinstance(each, Begun | Over):
            records.append(each)
    return replace(file, records=tuple(records))


def _headers(records: Iterable[Record]) -> Mapping[int, float]:
    return {each.number: each.unix for each in records if isinstance(each, Published)}


def _offset(mine: Mapping[int, float], theirs: Mapping[int, float]) -> float:
    both = [theirs[number] - mine[number] for number in mine if number in theirs]
    return statistics.median(both) if both else 0.0


def _story(parts: Sequence[File], clocks: Mapping[str, float], run: str, now: float | None) -> Story:
    every = [(_name(part), each) for part in parts for each in part.records]
    times = [each.unix for _, each in every]
    begun = next(each for _, each in every if isinstance(each, Begun))
    changes = _changes(each for _, each in every if isinstance(each, Published))
    last = changes[-1] if changes else None
    snapshots = [each for _, each in every if isinstance(each, Snapshot)]
    newest_first = sorted(snapshots, key=lambda each: each.unix, reverse=True)
    snapshot = newest_first[0] if newest_first else None
    found = _found(every)
    points = tuple(sorted((each for _, each in every if isinstance(each, Point)), key=lambda each: each.unix))
    until = max(times) if last is None or last.state not in ("open", "waiting") or now is None else max(now, *times)
    return Story(
        job=begun.job,
        run=run,
        script=begun.script,
        version=begun.version,
        state=last.state if last else "gathering",
        reason=str(last.reason) if last else "",
        began=min(times),
        until=until,
        changes=changes,
        interruptions=tuple(_interruptions(changes, every, found)),
        nodes=tuple(_nodes(parts, snapshot, last)),
        split=_split(last, snapshot, points),
        points=points,
        root_cause=last.incident if last and last.state in ("failed", "repeated") else None,
        tails=tuple(_tails(every, changes)),
        clocks=clocks,
        files=tuple(part.name for part in parts),
        unread=sum(part.unread for part in parts),
        suspects=snapshot.status.diagnosis if snapshot and last and last.state == "open" else (),
        found=found,
        servers=snapshot.status.parameter_servers if snapshot else ServersStatus(),
        plan=next((words for each in newest_first for words in plan_words(each.status.targets)), ""),
    )


def _found(every: Iterable[tuple[str, Record]]) -> tuple[Found, ...]:
    """Each once, as it was said last: several nodes may have heard of it."""
    last: dict[object, Found] = {}
    for each in sorted((one for _, one in every if isinstance(one, Found)), key=lambda one: one.unix):
        last.pop(each.key, None)
        last[each.key] = each
    return tuple(last.values())


def _changes(headers: Iterable[Published]) -> tuple[Published, ...]:
    """Each number once, as it was seen first."""
    found: dict[int, Published] = {}
    for each in sorted(headers, key=lambda each: each.unix):
        found.setdefault(each.number, each)
    return tuple(found[number] for number in sorted(found))


def _split(last: Published | None, snapshot: Snapshot | None, points: Sequence[Point]) -> Split:
    """The newest that is known."""
    found = [(each.unix, each.split) for each in (*points[-1:], *((last,) if last else ()))]
    if snapshot:
        found.append((snapshot.unix, snapshot.status.goodput.split))
    return max(found, key=lambda each: (each[1].total, each[0]), default=(0.0, Split()))[1]


def _interruptions(
    changes: Sequence[Published], every: Sequence[tuple[str, Record]], found: Sequence[Found]
) -> Iterable[Interruption]:
    starts: dict[int, list[Started]] = {}
    by_round: dict[int, list[tuple[str, Record]]] = {}
    notices: list[tuple[str, Record]] = []
    for node, each in every:
        match each:
            case Started(problem=""):
                starts.setdefault(each.round, []).append(each)
            case Started():
                by_round.setdefault(each.round, []).append((node, each))
            case Ended() if not each.exit.ok and not each.exit.stopped:
                by_round.setdefault(each.exit.round, []).append((node, each))
            case Noticed():
                notices.append((node, each))
            case _:
                pass
    later = _opened_after(changes)
    for before, header in itertools.pairwise(changes):
        if header.state == "succeeded" or before.state != "open":
            continue
        opened = later.get(header.number)
        again = starts.get(opened.number, []) if opened else []
        told = (*by_round.get(before.number, ()), *notices)
        evidence = sorted(_evidence(before, header, told), key=lambda each: each.at)[:MOST_EVIDENCE]
        yield Interruption(
            at=min((each.at for each in evidence), default=header.unix),
            over=before.number,
            next=header.number,
            opened=opened.number if opened else None,
            cause=header.cause,
            code=header.incident.reason.code if header.incident else header.reason.code,
            reason=str(header.incident.reason if header.incident else header.reason),
            incident=header.incident,
            before=before.world_size,
            after=opened.world_size if opened else 0,
            in_place=header.in_place,
            ended=header.state not in ("open", "waiting"),
            resumed=min((each.unix for each in again), default=None),
            down=max((each.down for each in again), default=None),
            evidence=tuple(evidence),
            found=tuple(each for each in found if each.diagnosis.finding.round == before.number),
        )


def _opened_after(changes: Sequence[Published]) -> Mapping[int, Published]:
    """By the number of a header: the first round that is open from there on."""
    found: dict[int, Published] = {}
    newest: Published | None = None
    for each in reversed(changes):
        newest = each if each.state == "open" else newest
        if newest:
            found[each.number] = newest
    return found


def _evidence(before: Published, header: Published, told: Iterable[tuple[str, Record]]) -> Iterable[Evidence]:
    for node, each in told:
        match each:
            case Ended():
                what = describe(each.exit) + (f": {each.exit.message}" if each.exit.message else "")
                yield Evidence(each.unix, node, what)
            case Noticed() if before.unix <= each.unix <= header.unix:
                yield Evidence(each.unix, node, f"received {each.signal}")
            case Started():
                yield Evidence(each.unix, node, each.problem)
            case _:
                pass


def _nodes(parts: Sequence[File], snapshot: Snapshot | None, last: Published | None) -> Iterable[NodeLine]:
    seen: dict[str, status.Node] = {}
    standbys: set[str] = set()
    if snapshot:
        seen = {each.node: each for each in (*snapshot.status.nodes, *snapshot.status.standbys)}
        standbys = {each.node for each in snapshot.status.standbys}
    over = last is not None and last.state not in ("open", "waiting")
    for name in sorted({*map(_name, parts), *seen}):
        part = next((each for each in parts if _name(each) == name), None)
        node = seen.get(name)
        starts = [each for each in part.records if isinstance(each, Started) and not each.problem] if part else []
        end = next((each for each in part.records if isinstance(each, Over)), None) if part else None
        ranks = ""
        if node and node.first_rank is not None:
            ranks = _ranks(node.first_rank, node.workers)
        elif name not in standbys and starts:
            ranks = _ranks(starts[-1].first_rank, starts[-1].workers)
        state = "standby" if name in standbys else node.state if node else ""
        if over and end is None:
            state = "its end is not written"
        if end:
            state = "left" if end.code >= 128 else "succeeded" if end.code == 0 else f"ended with exit code {end.code}"
        yield NodeLine(
            node=name,
            host=part.begun.host if part and part.begun else node.host if node else "",
            state=state,
            ranks=ranks,
            role=node.role if node and node.role and node.role != "default" else "",
            rounds=len(starts),
            reason=end.reason if end else str(node.problem) if node and node.problem else "",
        )


def _ranks(first: int, workers: int) -> str:
    return f"{first}-{first + workers - 1}" if workers > 1 else str(first)


def _tails(every: Sequence[tuple[str, Record]], changes: Sequence[Published]) -> Iterable[Tail]:
    """Of the nodes whose files there are; of the others, what the master was told."""
    known: set[tuple[int, int]] = set()
    for node, each in every:
        if isinstance(each, Ended) and not each.exit.ok and not each.exit.stopped:
            exit_ = each.exit
            known.add((exit_.round, exit_.rank))
            if each.tail or exit_.traceback or exit_.message:
                yield Tail(each.unix, node, exit_.round, exit_.rank, each.tail or exit_.message, exit_.traceback)
    for change in changes:
        incident = change.incident
        if incident and (exit_ := incident.exit) and (exit_.round, exit_.rank) not in known:
            known.add((exit_.round, exit_.rank))
            yield Tail(change.unix, incident.node, exit_.round, exit_.rank, exit_.message, exit_.traceback)
