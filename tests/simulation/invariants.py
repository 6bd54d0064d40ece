"""What must hold whatever happens, each rule with a sentence and the code that checks it.

The checker sees what nobody in the job sees: every revision of the store and who wrote it, every worker's start and
end, every fault. It never asks the product what it thinks, nor borrows its arithmetic: of the product it takes what
is on the wire. Where a rule cannot be exact under every fault (a frozen
master's decision is old when it is carried out), it is exact in *calm* schedules, whose faults are only deaths,
departures and joins, and has a bound in the others.
"""

import dataclasses
import math
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastic_run.rendezvous.header import Header, Incident, Leader, Tally
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import StartsFailed
from elastic_run.rendezvous.store.contract import Event
from elastic_run.rendezvous.wire.values import decode

from .books import Books
from .masters import MasterRules
from .roles import Before, RoleRules
from .schedule import Fault
from .script import COUPLED, MEETING, Group, Worker
from .services import ENDED, ServiceRules
from .stayers import FORM
from .survivors import Survivors
from .targets import TargetRules

if TYPE_CHECKING:
    from .world import End, World

CALM = frozenset(
    {"worker", "service", "kill", "leave", "start", "taken_port", "failed_start", "etcd_compact", "stranger"}
)
"""Faults after which everybody hears and answers everybody at once."""

STORE = frozenset(
    {"etcd_kill", "etcd_freeze", "etcd_stop", "etcd_down", "etcd_elect", "etcd_stall", "etcd_full", "etcd_compact"}
)
"""Faults of the store alone: every agent and every worker lives, and everybody hears everybody else."""

SHORT_LEASE = 5
"""A lease of fewer seconds can end by two failures of the store that are too short to be seen, each by itself."""

LAG = 1.0
"""Seconds: in a calm schedule, what the store holds for so long the master knows."""

AWAITED = 3.0
"""Seconds: so long a new master may wait for who is missing, where it cannot know whether the store was away."""

MOMENT = 0.001
"""Seconds: less is no time."""

WATCHED = 0.3
"""Seconds that a watch may lag behind."""

HEARD = 1.0
"""Seconds: in a calm schedule, the end of a worker is known to the master within this."""

ANSWER = 3.0
"""Seconds: in a calm schedule, a death or a failure is answered by a header within this, also where it was the
master's, and where the evidence is gathered first."""

PAUSE = 30.0
"""Seconds: so long after a deposition the next one may be somebody else's business."""

GATHER = 1.0
"""Seconds after a round was opened in which another cause may still come to light."""

QUICK = 50.0
"""Seconds: a worker that has lived for no longer has surely failed early."""

IN_A_ROW = 5
"""Rounds that may come to nothing in a row, each within RAN seconds of its opening."""

RAN = 60.0
"""Seconds."""

GIVES_UP = 2
"""Starts that fail in a row, after which a node leaves."""

TROUBLE = 30.0
"""Seconds after the last fault within which the master hears and answers again."""

AWAY = 0.75
"""Seconds: who is cut off from the store for no longer says that it leaves before its workers are told."""

SOON = 1.0
"""Seconds that a joining node waits at most for others, where workers keep their process."""

READY = 60.0
"""Seconds after which one is admitted whose workers are not ready, where they keep their process."""

FREED = 10.5
"""Seconds: workers that keep their process have so long to leave their process group before others are started beside
them, and the header is read before that."""

MARK = 60.0
"""Seconds that a success is told to who comes late."""

FINAL = 5.0
"""Seconds that the workers of a job that has failed elsewhere have after SIGTERM."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, how, and when (virtual seconds)."""

    rule: str
    what: str
    at: float


@dataclass(slots=True)
class _Life:
    """One incarnation of a node, as the store shows it."""

    owner: str
    node: str
    born: float
    member: Member
    able_since: float = 0.0  # since when its report says the same of its workers' readiness
    ready_until: float = -math.inf  # it had said so, and took it back
    departing_since: float | None = None
    gone_at: float | None = None
    evicted_at: float | None = None
    missed_at: float | None = None  # it was gone then, and came back
    left: bool = False  # it has removed its key itself


@dataclass(slots=True)
class _Published:
    """One header, and what it made valid."""

    header: Header
    revision: int
    at: float
    writer: str
    assignments: Mapping[str, Assignment] = field(default_factory=dict[str, Assignment])  # by incarnation
    hurts: list[tuple[Worker, str, str, float]] = field(default_factory=list[tuple[Worker, str, str, float]])


class Checker:
    """Watches one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._keys = world.keys
        shape = world.shape
        self._shape = shape
        self._lives: dict[str, _Life] = {}  # by incarnation
        self._at_key: dict[str, str] = {}  # nodes/<node> -> incarnation
        self._leader: str | None = None  # the owner that holds the leader key
        self._leads = ""  # its incarnation
        self._elected_at = 0.0
        self._stood_still: dict[str, float] = {}  # by machine: the most seconds for which its agent was stopped
        self._grown_at = -PAUSE * 10  # when the leader of now has last opened a round for a joining node
        self._deposed: dict[str, float] = {}  # owner -> when it has last deposed a master
        self._ends_of_masters: list[float] = []  # also where it went in order: who saw it go may have deposed it
        self._expired = False  # a lease has ended with a member of it
        self._success_keys: set[str] = set()
        self._succeeded: dict[tuple[str, int], float] = {}  # (incarnation, round) -> since when the store knows it
        self._assignments: dict[str, dict[str, Assignment | None]] = {}  # prefix -> key -> assignment, or other value
        self._published: list[_Published] = []
        self._header_key = False
        self._read: dict[str, list[tuple[float, int]]] = {}  # owner -> its reads of the header: when, which revision
        self._heard: dict[str, set[int]] = {}  # owner -> revisions of headers that it was told of
        self._noticed: dict[str, float] = {}
        self._did: dict[str, int] = {}  # verb -> effective faults
        self._cuts: list[tuple[float, float]] = []  # from when to when; without end where not only the store is cut off
        self._refused: list[tuple[str, str]] = []  # from, to: links on which a living agent was refused
        self._last_start: dict[str, tuple[str, int]] = {}  # machine -> run, round
        self._failed_starts: dict[str, int] = {}  # owner -> how many of its last starts have failed, in a row
        self._history: list[tuple[int, list[tuple[str, str]]]] = []  # revisions: what was done to which key
        self._running: dict[int, Group] = {}
        self._led_until: dict[str, float] = {}  # owner -> when it has last ceased to lead
        self.books = Books(world, self)
        self.survivors = Survivors(world, self)
        self.roles = RoleRules(world, self) if shape.roles else None
        self.targets = TargetRules(world, self)
        self.masters = MasterRules(world, self)
        self.services = ServiceRules(world, self)
        self.last_header: Header | None = None

    # -- what the checker is told ---------------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        """Only faults so far that everybody hears of at once."""
        return CALM.issuperset(self._did)

    @property
    def leader(self) -> str | None:
        """The process that holds the leader key."""
        return self._leader

    @property
    def header_age(self) -> float:
        """Seconds since the last was published."""
        return self._world.now - self._published[-1].at if self._published else 0.0

    @property
    def finishing(self) -> bool:
        """A worker has ended with success."""
        return any(worker.ended and worker.ended[0] == 0 for worker in self._world.workers)

    def noticed(self, owner: str) -> bool:
        """That process was told to end."""
        return owner in self._noticed

    @property
    def headers(self) -> Sequence[Header]:
        """All that were published."""
        return [each.header for each in self._published]

    @property
    def able(self) -> Sequence[str]:
        """Agents that live and are members, and that nobody has told to go."""
        return [owner for owner in self._able() if owner not in self._noticed]

    def born(self, owner: str) -> float:
        """When that agent has registered for the first time."""
        return min(life.born for life in self._lives.values() if life.owner == owner)

    def deposed_within(self, seconds: float) -> bool:
        """A leadership has ended since then."""
        return any(self._world.now - at < seconds for at in self._ends_of_masters)

    @property
    def done(self) -> Iterable[str]:
        """The kinds of faults that did something."""
        return self._did

    def owner_of(self, incarnation: str) -> str:
        """The agent that is that incarnation."""
        return self._lives[incarnation].owner

    def node_of(self, incarnation: str) -> str:
        """The machine on which it runs."""
        return self._world.machine_of[self.owner_of(incarnation)]

    def on_fault(self, fault: Fault) -> None:
        """A fault did something."""
        self._did[fault.verb] = self._did.get(fault.verb, 0) + 1
        self.masters.on_fault(fault)
        now = self._world.now
        if fault.verb == "cut":
            ends = sum(word.startswith("m") for word in fault.words[:2])
            self._cuts.append((now, now + float(fault.words[2]) if ends == 1 else math.inf))
        if fault.verb in ("freeze", "pause"):
            node, seconds = fault.words
            self._stood_still[node] = max(self._stood_still.get(node, 0.0), float(seconds))
        if fault.verb in ("refuse", "reset"):
            one, other = fault.words[:2]
            self._refused += [(one, other), (other, one)] if fault.verb == "reset" else [(one, other)]

    def on_notice(self, owner: str) -> None:
        """An agent was told to go."""
        self._noticed.setdefault(owner, self._world.now)

    def on_hurt(self, worker: Worker, how: str, mark: str) -> None:
        """A worker is about to be hurt."""
        published = self._of_round(worker.round)
        if published:
            published.hurts.append((worker, how, mark, self._world.now))
            if how not in ("hang", "exit0") and self.last_header is published.header:
                self._world.after(ANSWER, self._check_answered, f"{worker.name} ended ({how})", published, worker.owner)
        if how == "exit0":
            meeting = FORM if self._shape.inplace else MEETING
            self._world.busy_until = max(self._world.busy_until, self._world.now + meeting + 10)

    def on_service_hurt(self, owner: str, name: str, end: str) -> None:
        """A service is about to end."""
        published = self._published[-1] if self._published else None
        mine = self.assignment_of(owner)
        if end == "exit0" or published is None or mine is None or published.header.state != "open":
            return
        running = [w for w in self._world.workers if w.owner == owner and w.round == published.header.number]
        if running and not any(worker.ended for worker in running):
            what = f"the service {name} of {owner} ended ({end})"
            self._world.after(ANSWER, self._check_answered, what, published, owner)

    def assignment_of(self, owner: str) -> Assignment | None:
        """What the current round gives to that agent."""
        held = self._published[-1].assignments if self._published else {}
        return next((each for each in held.values() if self._lives[each.incarnation].owner == owner), None)

    def starts_anew(self, owner: str, last: int) -> bool:
        """Whether the current round starts workers of that agent anew, which have run since it started them in `last`.

        False where it had none meanwhile: which ports the next ones get is then open.
        """
        mine = self.assignment_of(owner)
        between = [each for each in self._published if mine and last < each.header.number < mine.round]
        held = [each.assignments.get(mine.incarnation) for each in between if mine]
        return mine is not None and not mine.since and all(each and each.since for each in held)

    def on_header_read(self, owner: str, revision: int) -> None:
        """An agent has had an answer about the header."""
        self._read.setdefault(owner, []).append((self._world.now, revision))
        self.on_heard(owner, (revision,))

    def on_heard(self, owner: str, revisions: Iterable[int]) -> None:
        """An agent knows the headers of these revisions."""
        self._heard.setdefault(owner, set()).update(revisions)

    def on_start(self, owner: str, *, fails: bool) -> None:
        """An agent starts its workers of a round, or cannot."""
        self._failed_starts[owner] = self._failed_starts.get(owner, 0) + 1 if fails else 0

    def on_told(self, owner: str, key: str, prefix: bool, last: int, events: Sequence[Event]) -> int:
        """A watch tells each change once, and in order. `last` is the revision that it has told before."""
        revision = events[0].kv.mod_revision
        self.on_heard(owner, (event.kv.mod_revision for event in events if event.kv.key == self._keys.round))
        if key == self._keys.targets:
            self.targets.on_told(owner, events)
        due: tuple[int, list[tuple[str, str]]] | None = None
        for number, changes in reversed(self._history):
            if number <= last:
                break
            if covered := [(name, kind) for name, kind in changes if name == key or (prefix and name.startswith(key))]:
                due = number, covered
        told = [(event.kv.key, event.kind) for event in events]
        if due != (revision, told):
            self._violated(
                "a watch tells each change once and in order",
                f"{owner} is told of {revision}: {told} after {last}; next is {due}",
            )
        return revision

    def on_running(self, group: Group) -> None:
        """A group has begun to train."""
        self._running[group.workers[0].round] = group
        published = self._published[-1]
        if self.calm and published.header is self.last_header and published.header.number == group.workers[0].round:
            has = Counter(each.role if self.roles else "" for each in published.assignments.values())
            self.targets.on_running(has)

    def led(self, owner: str, since: float) -> bool:
        """That agent's master has led the job at some moment since then."""
        return owner == self._leader or self._led_until.get(owner, -1.0) >= since

    def is_over(self, worker: Worker) -> bool:
        """There has been a later round, or run, than the worker's, and it does not continue there."""
        index = next((i for i, each in enumerate(self._published) if _is_of(worker, each.header)), len(self._published))
        later = self._published[index + 1 :]
        return not all(each.header.state == "open" and self._continues(worker, each) for each in later)

    def _continues(self, worker: Worker, published: _Published) -> bool:
        mine = (each for each in published.assignments.values() if self._lives[each.incarnation].owner == worker.owner)
        return any(0 < each.since <= worker.round for each in mine)

    def first_round(self, rank: int) -> int:
        """For which round, at the earliest, the process was started that has this rank now; 0: none has it."""
        held = self._published[-1].assignments.values() if self._published else ()
        return next((each.since or each.round for each in held if rank in each.ranks), 0)

    def is_leaving(self, owner: str) -> bool:
        """That agent was told to go, or is gone."""
        return owner in self._noticed or owner in self._world.ends

    def is_member(self, owner: str) -> bool:
        """As far as the store knows, that agent is in the job and stays."""
        life = self._newest_life(owner)
        here = life is not None and life.gone_at is None and life.evicted_at is None and life.departing_since is None
        return here and not self.is_leaving(owner)

    def takes_part(self, owner: str) -> bool:
        """That agent is in the job for all that anybody knows, and nothing was done to it."""
        header = self.last_header
        if header is None or header.final or not self.calm or "failed_start" in self._did:
            return False
        return self.is_member(owner)

    def has_only_grown(self, worker: Worker) -> bool:
        """Nothing else has happened than that nodes came, and the worker has the time to leave its process group for
        them."""
        header, now = self.last_header, self._world.now
        if header is None or header.cause != "joined" or header.number != worker.round + 1:
            return False
        patience = self._shape.shutdown - (now - self._published[-1].at)
        return {"start"}.issuperset(self._did) and patience > WATCHED

    def went_early(self, workers: Sequence[Worker]) -> bool:
        """One of them has ended with 0 because somebody wanted it, not because its work was done."""
        hurt = [worker for each in self._published for worker, how, *_ in each.hurts if how == "exit0"]
        return any(worker.told or worker in hurt for worker in workers)

    def on_told_current(self, worker: Worker, asked_at: float) -> None:
        """A worker was told that its round is the current one: it was, at some moment since it asked."""
        for each, later in zip(self._published, (*self._published[1:], None), strict=True):
            if _is_of(worker, each.header) and (later is None or later.at >= asked_at):
                return
        self._violated("a round is current when a worker is told so", f"{worker.name}, which asked at {asked_at:.4f}")

    def _goes_on_without(self, owner: str) -> bool:
        """That agent has an optional role, and these have no restart left."""
        header, mine = self.last_header, self.assignment_of(owner)
        if header is None or mine is None or self.roles is None or not self.roles.is_optional(mine.role):
            return False
        return _with(header.tally, header.incident).optional >= self._shape.restarts

    def _check_answered(self, what: str, published: _Published, owner: str) -> None:
        """Survivors do not wait for time-outs: what ends a round is answered by a header, at once.

        By whoever leads: where a master dies meanwhile, by the next one, which may have to wait for its lease. A node
        that had just come when it was elected also waits for missing nodes to register again.
        """
        able = [end for end in self._able() if end not in self._noticed]
        if not self.calm or not able or self.last_header is not published.header or self._goes_on_without(owner):
            return
        led = self._leader is not None and self._leader not in self._world.ends
        awaits = self._leader != published.writer and self._leads_young()
        limit = ANSWER + AWAITED if awaits else ANSWER
        wait = limit - (self._world.now - self._elected_at if led else 0.0)
        if wait > MOMENT:
            self._world.after(wait, self._check_answered, what, published, owner)
        else:
            self._violated("what ends a round is answered at once", f"{what}: no answer within {limit:g} s")

    def _leads_young(self) -> bool:
        """The leader had registered too shortly before its election to know whether the store was away."""
        births = [life.born for life in self._lives.values() if life.owner == self._leader]
        if self._leader and self._world.is_master(self._leader):
            births = [self._world.booted[self._leader]]
        return bool(births) and self._elected_at - min(births) < self._shape.ttl / 2

    def _check_heard(self, life: _Life, number: int) -> None:
        """What a node has reported, the master answers, also where it was busy when that came."""
        header, now = self.last_header, self._world.now
        if header is None or header.state != "open" or header.number != number or life.gone_at is not None:
            return
        report = life.member.report
        counts = life.member.incarnation in self._published[-1].assignments
        if (report.state, report.round) != ("failed", number) or not counts or self._goes_on_without(life.owner):
            return
        led = self._leader is not None and self._leader not in self._world.ends
        ready = now if self.calm and led else max(now, self._world.busy_until + TROUBLE)
        if ready > now:
            self._world.after(ready - now, self._check_heard, life, number)
        elif life.owner not in self._world.ends:
            self._violated("what ends a round is answered at once", f"{life.owner} has failed in round {number}")

    def _able(self) -> list[str]:
        """Agents that live and are members."""
        lives = [self._lives[incarnation] for incarnation in self._at_key.values()]
        return [life.owner for life in lives if life.owner not in self._world.ends]

    # -- the store's history --------------------------------------------------------------------------------------

    def on_revision(self, revision: int, events: Sequence[Event], client: str) -> None:
        """One transaction has been applied; `client` is the agent that asked for it, "" where a lease has ended."""
        keys = self._keys
        written = {event.kv.key: event for event in events}
        self._history.append((revision, [(event.kv.key, event.kind) for event in events]))
        self._check_fence(written, client)
        for key, event in written.items():
            if key.startswith(keys.nodes):
                self._on_node(key, event, client, written)
            elif key.startswith(keys.evictions) and event.kind == "put":
                life = self._lives.get(key.removeprefix(keys.evictions))
                if life and life.evicted_at is None:
                    life.evicted_at = self._world.now
                    if keys.node(life.node) in written:  # else its lease had ended before
                        self._check_evidence(life, client)
            elif key.startswith(keys.successes) and event.kind == "put":
                member = decode(Member, event.kv.value)
                self._succeeded.setdefault((member.incarnation, member.report.round), self._world.now)
                self._success_keys.add(key)
            elif key.startswith(keys.successes):
                self._success_keys.discard(key)
            elif key.startswith(keys.assignments):
                self._on_assignment(key, event, written)
            elif key.startswith((keys.ledgers, keys.queues)):
                self.books.on_ledger(key, event)
            elif key == keys.targets:
                self.targets.on_written(event)
        if keys.leader in written:
            self._on_leader(written[keys.leader], client, written)
        if keys.round in written:
            event = written[keys.round]
            self._header_key = event.kind == "put"
            if event.kind == "put":
                header = decode(Header, event.kv.value)
                self._on_header(header, revision, client)
                if header.state == "succeeded" and keys.outcome not in written:
                    self._violated("a success leaves a tombstone", f"round {header.number} succeeded without one")

    def _check_fence(self, written: Mapping[str, Event], client: str) -> None:
        """A deposed master changes nothing: only who holds the leader key writes what a master writes."""
        keys = self._keys
        deposes = keys.leader in written and written[keys.leader].kind == "delete"  # which leaves a mark of that
        for key, event in written.items():
            masters = key in (keys.round, keys.targets) or key.startswith(keys.assignments)
            masters = masters or key.startswith((keys.ledgers, keys.queues))
            masters = masters or key.startswith(keys.evictions if event.kind == "put" else keys.successes)
            if deposes and key == keys.eviction(self._leads):
                continue
            if masters and client and client != self._leader:
                self._violated("a deposed master changes nothing", f"{client} wrote {key}; {self._leader} leads")

    def _on_node(self, key: str, event: Event, client: str, written: Mapping[str, Event]) -> None:
        now = self._world.now
        if event.kind == "delete":
            incarnation = self._at_key.pop(key, "")
            life = self._lives.get(incarnation)
            if life is None:
                return
            life.gone_at = now
            life.left = client == life.owner
            self._expired = self._expired or not client
            deposition = self._keys.leader in written and incarnation == self._leads
            evicted = client == self._leader and self._keys.eviction(incarnation) in written
            if not client and self._one_member_may_fail() and life.owner not in self._world.ends:
                self._violated("one member of the store may fail", f"the lease of {life.owner} has ended")
            if client and client != life.owner and not deposition and not evicted:
                self._violated("only its own node or the master removes a member", f"{client} removed {key}")
            return
        member = decode(Member, event.kv.value)
        if self._world.is_master(client):
            self._violated("a master without workers is no member", f"{client} wrote {key}")
        before = self._at_key.get(key)
        if before is not None and before != member.incarnation:
            self._violated("a name has one owner", f"{client} wrote {key}, which is {before}'s")
        self._at_key[key] = member.incarnation
        life = self._lives.get(member.incarnation)
        if life is None:
            self._lives[member.incarnation] = life = _Life(client, member.node, now, member)
            self._world.moment(f"registered.{self._world.machine_of[client]}")
            for seconds in (0.0, READY) if self._shape.inplace else (0.0,):
                self._world.after(seconds + self._patience(), self._check_join, life)
        elif life.gone_at is not None:
            self._on_return(life, key, client)
        if life.owner != client:
            self._violated("only the node writes its key", f"{client} wrote {key}")
        told = life.member.report
        if member.report.state == "failed" and (told.state, told.round) != ("failed", member.report.round):
            self._world.after(ANSWER, self._check_heard, life, member.report.round)
        if (told.keeps, told.ready) != (member.report.keeps, member.report.ready):
            life.able_since = now
        if told.ready and not member.report.ready:
            life.ready_until = now
        life.member = member
        if member.report.state == "succeeded":
            self._succeeded.setdefault((member.incarnation, member.report.round), now)
        unable = self._failed_starts.get(client, 0) >= GIVES_UP or self._has_unkillable(client)
        unable = unable or self._did.get("service", 0) >= GIVES_UP  # each before it was ready
        if member.report.state == "unfit" and told.state != "unfit" and not unable:
            self._violated("a node that can start workers stays", f"{client}: {member.report.problem}")
        if member.report.state == "failed" and member.report.problem and self._has_unkillable(client):
            self._violated("a node that cannot end its workers leaves", f"{client}: {member.report.problem}")
        if member.report.state in ("leaving", "unfit") and life.departing_since is None:
            life.departing_since = now

    def _on_return(self, life: _Life, key: str, client: str) -> None:
        """A node whose lease had ended has its key again: it was not evicted, and no round was opened without it."""
        incarnation = life.member.incarnation
        before = next((each for each in reversed(self._published) if each.at <= (life.gone_at or 0.0)), None)
        last = self._published[-1] if self._published else None
        ran = before is not None and any(
            (worker.owner, worker.run, worker.round) == (life.owner, before.header.run, before.header.number)
            for worker in self._world.workers
        )
        replaced = ran and last is not None and last.header.state == "open" and incarnation not in last.assignments
        word = self._world.store.engine.get(self._keys.eviction(incarnation))  # it goes with the lease of who left it
        if life.left or word is not None or replaced or life is not self._newest_life(life.owner):
            self._violated("the dead do not come back", f"{client} wrote {key} again after it was gone")
        life.missed_at, life.gone_at, life.evicted_at = life.gone_at, None, None
        self._lives[incarnation] = self._lives.pop(incarnation)  # the order of arrival is that of the keys

    def _has_unkillable(self, owner: str) -> bool:
        """A worker of this agent was killed, and the kernel has not let go of it; one that ended otherwise is gone."""
        mine = [worker for worker in self._world.workers if worker.held and worker.owner == owner]
        return any(worker.ended and worker.ended[1] == signal.SIGKILL for worker in mine)

    def _one_member_may_fail(self) -> bool:
        """Only one of three members of the store has failed, once."""
        store = {verb: count for verb, count in self._did.items() if verb not in CALM}
        return self._shape.etcd == 3 and sum(store.values()) <= 1 and {"etcd_kill", "etcd_elect"}.issuperset(store)

    def _check_evidence(self, life: _Life, client: str) -> None:
        """Only the dead are evicted on evidence (a firewall's refusal on that very link is false evidence)."""
        end = self._world.ends.get(life.owner)
        stranger = "stranger" in self._did
        alive = end is None and self._at_key.get(self._keys.node(life.node)) != life.member.incarnation
        current = self._newest_life(life.owner)
        if alive and not stranger and current is life and not self._misled(client, life.owner):
            self._violated("only the dead are evicted", f"{life.owner} ({life.node}) lives")

    def _on_leader(self, event: Event, client: str, written: Mapping[str, Event]) -> None:
        if event.kind == "put":
            leader = decode(Leader, event.kv.value)
            self._leader, self._leads, self._elected_at = client, leader.incarnation, self._world.now
            self._grown_at = -PAUSE * 10
            self._world.say("store", f"{client} leads")
            self._world.count("elected")
            if self._world.is_master(client):
                self.masters.on_leader(client, leader, event.kv)
            elif leader.incarnation not in self._lives:
                self._violated("only members lead", f"{client} leads as {leader.incarnation}")
            return
        owner = self._leader
        self._leader = None
        if owner is not None:
            self._led_until[owner] = self._world.now
        self._ends_of_masters.append(self._world.now)
        if client and client != owner:
            if self._world.now - self._deposed.get(client, -PAUSE) < PAUSE:
                self._violated("no node deposes again and again", f"{client} deposed {owner} soon after another")
            self._deposed[client] = self._world.now
        if owner is None or owner in self._world.ends or client in ("", owner):
            return
        if not self._misled(client, owner):
            # Another incarnation of a living agent may be deposed: its earlier life is over.
            lives = [life for life in self._lives.values() if life.owner == owner]
            reborn = self._world.is_master(owner) and not self.calm  # under another lease, which no key shows
            if len(lives) < 2 and not reborn:
                self._violated("only the dead are deposed", f"{client} deposed {owner}, which lives")

    def _misled(self, owner: str | None, about: str) -> bool:
        """Something between their machines has refused what the one asked of the other."""
        machines = self._world.machine_of
        one, other = machines.get(owner or "", ""), machines[about]
        return any(source in ("*", one) and target in ("*", other) for source, target in self._refused)

    def _on_assignment(self, key: str, event: Event, written: Mapping[str, Event]) -> None:
        prefix = key.removeprefix(self._keys.assignments).partition("/")[0]
        held = self._assignments.setdefault(prefix, {})
        in_force = self._header_key and self.last_header is not None and self.last_header.prefix == prefix
        if event.kind == "delete":
            held.pop(key, None)
            if in_force and self._keys.round not in written:
                self._violated("assignments in force are not touched", f"{key} was deleted")
            return
        # Where the workers are, or what the job's time went into: no node's assignment.
        if "/peers/" in key or key == self._keys.time(prefix):
            held[key] = None
            return
        assignment = decode(Assignment, event.kv.value)
        if in_force and held.get(key) != assignment:
            self._violated("assignments in force are not touched", f"{key} was changed")
        if not held:
            self._world.moment(f"assigned.{assignment.round}")
        held[key] = assignment

    # -- headers --------------------------------------------------------------------------------------------------

    def _on_header(self, header: Header, revision: int, client: str) -> None:
        before = self._published[-1] if self._published else None
        published = _Published(header, revision, self._world.now, client)
        who = ""
        if header.state == "open":
            held = self._assignments.get(header.prefix, {})
            assignments = sorted((each for each in held.values() if each), key=lambda each: each.group_rank)
            published.assignments = {each.incarnation: each for each in assignments}
            who = " " + ",".join(each.node for each in assignments)
        self._world.say("store", f"round {header.number} {header.state}{who}: {header.reason}")
        self._check_succession(before, header)
        if header.state == "open":
            self._check_round(before, published)
        if header.final:
            self._check_verdict(before, published)
        self._check_tally(before, published)
        self._published.append(published)
        self.last_header = header
        leaving = max(self._shape.shutdown, FINAL) + ANSWER + (FREED if self._shape.inplace else 0.0)
        self._world.after(leaving, self._check_old_workers, header, self._world.now)
        self._world.after(leaving + ENDED, self.services.check_old, header)
        self._world.moment(f"round.{header.number}")

    def _check_old_workers(self, header: Header, since: float) -> None:
        """No worker of an older round runs on where its agent hears what is new."""
        if not self.calm:
            return
        for worker in self._world.workers:
            if self._is_old(worker, header, since) and worker.owner not in self._world.ends:
                self._violated("old workers end", f"{worker.name} still runs in round {header.number}")

    def _is_old(self, worker: Worker, header: Header, since: float) -> bool:
        """It should have ended on account of that header, which was published at `since`, or have another rank
        assignment."""
        if worker.ended or worker.began >= since:
            return False
        if self.roles:
            return header.final or (header is self.last_header and worker.round != header.number)
        if not self._shape.inplace:
            return True
        if header.final:
            return self._world.now - since > FINAL + ANSWER
        # Who keeps its process waits for its next rank assignment: while the job does, or in round 0.
        return header.state == "open" and header is self.last_header and worker.round not in (0, header.number)

    def _check_succession(self, before: _Published | None, header: Header) -> None:
        """At most one round is current: numbers follow each other, and nothing follows the end of a run."""
        if before is None:
            if header.number != 1:
                self._violated("rounds are numbered one by one", f"the first is {header.number}")
            return
        old = before.header
        if header.number != old.number + 1 and not (header.number == 1 and old.final):
            self._violated("rounds are numbered one by one", f"{header.number} follows {old.number}")
        if old.final and header.run == old.run:
            self._violated("an end is final", f"round {header.number} follows the end of its own run")
        if not old.final and header.run != old.run:
            alive = [i for i in self._in_force(before) if self._lives[i].gone_at is None]
            if alive:
                self._violated("a run continues while a member of it lives", f"{header.run} replaces {old.run}")

    def _check_round(self, before: _Published | None, published: _Published) -> None:
        """A round is whole: ranks 0..n-1, each once; of members that registered and were not known to be dead."""
        header, now = published.header, self._world.now
        assignments = sorted(published.assignments.values(), key=lambda each: each.group_rank)
        if len(assignments) != header.nodes or not assignments:
            self._violated("a header names what is there", f"{header.nodes} nodes, {len(assignments)} assignments")
            return
        if self._usable(len(assignments)) != len(assignments):
            self._violated("a round's size is one that the user allowed", f"{len(assignments)} of {self._shape}")
        on = any(each.since for each in assignments)
        if on:
            self._check_ranks(header, assignments)
        first = 0
        for index, each in enumerate(assignments if not on else ()):
            whole = (each.round, each.group_rank, each.group_size, each.first_rank, each.world_size) == (
                header.number,
                index,
                len(assignments),
                first,
                header.world_size,
            )
            if not whole:
                self._violated("ranks are 0..n-1, each once", f"{each}")
            first += each.nproc
        if self._success_keys:
            self._violated("a round begins without the successes of another", ", ".join(sorted(self._success_keys)))
        named = {header.prefix, *(each.header.prefix for each in self._published)}  # of an earlier run, say
        others = sorted(prefix for prefix, held in self._assignments.items() if held and prefix not in named)
        if others and self.calm:
            self._violated("assignments that no header names do not stay", ", ".join(others))
        if before is not None and before.header.state == "open" and header.run == before.header.run:
            self._check_because(before, published)
        if first != header.world_size and not on:
            self._violated("ranks are 0..n-1, each once", f"{first} workers, world size {header.world_size}")
        for each in assignments:
            life = self._lives.get(each.incarnation)
            if life is None:
                self._violated("a round contains only members", f"{each.node} never registered")
                continue
            old = LAG if self.calm else self._world.shape.ttl + 15.0
            known = 0.05 if self.calm else 2 * LAG
            if life.evicted_at is not None and now - life.evicted_at > known:
                self._violated("no node known to be dead is in a round", f"{each.node} had been evicted")
            if life.gone_at is not None and now - life.gone_at > old:
                self._violated("no node known to be dead is in a round", f"{each.node} has gone at {life.gone_at:.3f}")
            if life.departing_since is not None and now - life.departing_since > old:
                self._violated("no leaving node is in a new round", f"{each.node} leaves")
            if life.member.fingerprint != header.fingerprint:
                self._violated("a round's nodes were started alike", f"{each.node} runs {life.member.fingerprint}")
        leader = self._lives.get(assignments[0].incarnation)
        if leader and (header.master_addr != leader.member.host or header.master_port not in leader.member.ports):
            # The ports may have been renewed a moment before.
            moved = header.master_addr != leader.member.host
            if moved or (self.calm and "taken_port" not in self._did):
                self._violated("workers meet on the first node", f"{header.master_addr}:{header.master_port}")
        if self.roles:
            self._check_roles(before, published, assignments)
        elif before is not None and before.header.run == header.run:
            order = [i for i in self._in_force(before) if i in published.assignments]
            kept = [each.incarnation for each in assignments if each.incarnation in order]
            if order != kept:
                self._violated("survivors keep their order", f"{order} became {kept}")
            self._check_first_come(order, published)
            if len(assignments) < self._shape.max and self.calm:
                self._check_nobody_left_out(published)
            self._check_growth(before, published)
            self._check_needed(before)
            return
        else:
            self._check_first_come([], published)
        if before is not None and before.header.run == header.run:
            return
        if len(assignments) < self._shape.max:
            last = max(self._lives[each.incarnation].born for each in assignments)
            if now - last < self._shape.last_call:
                self._violated("the first round waits for a last call", f"the last node came {now - last:.3f} s before")

    def _check_ranks(self, header: Header, assignments: Sequence[Assignment]) -> None:
        """Where nodes have come and gone alone there may be free ranks, but no rank is two workers'."""
        taken = [rank for each in assignments for rank in each.ranks]
        in_role = [(each.role, each.role_first_rank + i) for each in assignments for i in range(each.nproc)]
        nodes = [each.group_rank for each in assignments]
        twice = any(len(set(numbers)) < len(numbers) for numbers in (taken, in_role, nodes))
        high = any(rank >= each.world_size for each in assignments for rank in each.ranks)
        if twice or high or len(taken) != header.world_size:
            self._violated("no rank is two workers'", f"{assignments}, of {header.world_size} workers")

    def _check_roles(self, before: _Published | None, published: _Published, assignments: Sequence[Assignment]) -> None:
        """See `roles.py`."""
        assert self.roles is not None
        header, now = published.header, self._world.now
        last = None
        if before is not None and before.header.run == header.run:
            index = self._published.index(before)
            found = next((each for each in reversed(self._published[: index + 1]) if each.header.state == "open"), None)
            if found is not None:
                each = sorted(found.assignments.values(), key=lambda each: each.group_rank)
                meeting = found.header.master_addr, found.header.master_port
                last = Before({one.incarnation: one for one in each}, meeting, found.header.number)
        standbys = [
            incarnation
            for incarnation in self._at_key.values()
            if incarnation not in published.assignments
            and (life := self._lives[incarnation]).departing_since is None
            and life.owner not in self._world.ends
            and now - life.born > LAG
        ]
        running = before is not None and before.header.state == "open"
        hurts = before.hurts if before else []
        hurt = {worker.owner: at for worker, how, _, at in reversed(hurts) if how not in ("hang", "exit0")}
        failed = {i: hurt[life.owner] for i, life in self._lives.items() if life.owner in hurt}
        meeting = header.master_addr, header.master_port
        self.roles.on_round(last, running, assignments, meeting, standbys, failed)

    def _check_first_come(self, survivors: Sequence[str], published: _Published) -> None:
        """Survivors stand first, then who came, in order of arrival; nobody is taken before one who came earlier."""
        now = self._world.now
        ranks = sorted(published.assignments, key=lambda i: published.assignments[i].group_rank)
        came = [i for i in self._lives if i in published.assignments and i not in survivors]
        if came != ranks[len(ranks) - len(came) :]:
            self._violated("nodes are admitted in order of arrival", f"{came} came, {ranks} are the ranks")
        last = max((self._lives[i].born for i in came), default=0.0)
        earlier = [
            life.node
            for incarnation in self._at_key.values()
            if incarnation not in published.assignments
            and (life := self._lives[incarnation]).departing_since is None
            and life.owner not in self._world.ends
            and life.member.fingerprint == published.header.fingerprint
            and now - LAG > life.born
            and life.born < last
            and not self._gets_ready(life)
        ]
        if self.calm and earlier:
            self._violated("nodes are admitted in order of arrival", f"{', '.join(earlier)} came earlier and must wait")

    def _check_growth(self, before: _Published, published: _Published) -> None:
        """Joining nodes restart the script as seldom as the user said."""
        header, now, shape = published.header, self._world.now, self._shape
        if header.cause != "joined":
            return
        old = self._in_force(before)
        new = sorted((self._lives[i] for i in published.assignments if i not in old), key=lambda life: life.born)
        # One that cannot be admitted without others waits for those, and they have the time to settle, too.
        enough = [life for more, life in enumerate(new, 1) if self._usable(len(old) + more) > len(old)]
        settle, interval = shape.settle, shape.interval
        if shape.inplace:  # no worker is restarted for them
            settle, interval = min(settle, SOON), min(interval, SOON)
            if self.calm and all(self._has(self._lives[i], "keeps") for i in old):
                self.survivors.on_joins(
                    [
                        life.node
                        for life in new
                        if not life.member.report.ready
                        and now - life.ready_until > LAG
                        and now - max(life.born, before.at) < READY - LAG
                    ]
                )
        if shape.scale_up == "never" or not new or len(published.assignments) <= len(old):
            self._violated("joining nodes restart the script as the user said", f"{header.reason}: {len(new)} joined")
        elif enough and now - enough[0].born < settle:
            self._violated("joining nodes restart the script as the user said", f"{enough[0].node} has just arrived")
        elif now - max(self._grown_at, before.at if before.header.cause == "joined" else self._grown_at) < interval:
            self._violated("joining nodes restart the script as the user said", "another had arrived a moment before")
        ended = [
            self.survivors.done.get(worker, worker.ended_at)
            for worker in self._world.workers
            if (worker.run, worker.round) == (before.header.run, before.header.number)
            and (worker.ended == (0, None, "") or (worker in self.survivors.done and not worker.ended))
        ]
        if self.calm and ended and now - min(ended) > HEARD:
            self._violated(
                "joining nodes do not restart what is finishing", f"a worker was at its end at {min(ended):.3f}"
            )
        self._grown_at = now

    def _check_because(self, before: _Published, published: _Published) -> None:
        """A round says why it was opened, and who has succeeded and left is not the reason."""
        because = published.header.incident
        if because is None:
            self._violated("a round says why it was opened", str(published.header.reason))
            return
        if because.cause == "lost" != published.header.cause:
            self._violated("a round says why it was opened", f"{published.header.cause}: {because}")
        if because.cause == "failure":
            self._check_farewell(before)
        if because.cause == "lost" and because.round == before.header.number:
            for incarnation, each in before.assignments.items():
                since = self._succeeded.get((incarnation, because.round), self._world.now)
                life = self._lives[incarnation]
                gone = life.gone_at or life.missed_at or self._world.now
                if (end := self._world.ends.get(life.owner)) is not None:
                    gone = min(gone, end.at)
                if each.node == because.node and gone - since > WATCHED:
                    self._violated("a node that has succeeded and left is not lost", str(because.reason))

    def _check_farewell(self, before: _Published) -> None:
        """A node that is told to go says so before its workers end: what the others die of then is no failure."""
        owners = {self._lives[incarnation].owner for incarnation in before.assignments}
        dead = [owner for owner in owners if owner in self._world.ends]
        away = max((to for _, to in self._cuts), default=0.0) - min((at for at, _ in self._cuts), default=0.0)
        heard = away <= AWAY and {"leave", "start", "etcd_compact", "cut"}.issuperset(self._did)
        if heard and not dead and owners.intersection(self._noticed):
            self._violated(
                "a node reports that it leaves before its workers end",
                f"round {before.header.number} ended of a failure",
            )

    def _check_needed(self, before: _Published) -> None:
        """Who has succeeded is not made to train again."""
        if before.header.state != "open" or not before.assignments:
            return
        ends = [self._succeeded.get((i, before.header.number)) for i in before.assignments]
        old = LAG if self.calm else self._shape.ttl + 15.0
        # A new master has read what there was.
        if all(at is not None and (self._world.now - at > old or at < self._elected_at) for at in ends):
            self._violated("a success stays one", f"all nodes of round {before.header.number} had succeeded")

    def _usable(self, nodes: int) -> int:
        """How many of so many nodes may be in a round."""
        sizes = [size for size in range(self._shape.min, self._shape.max + 1) if size % self._shape.unit == 0]
        return max((size for size in sizes if size <= nodes), default=0)

    def _check_join(self, life: _Life) -> None:
        """A node that can be admitted is, once the user's delays are over."""
        header = self.last_header
        if self._shape.typed:
            return  # who can be admitted is another question there
        if not self.calm or header is None or header.state != "open" or self._shape.scale_up == "never":
            return
        if life.gone_at is not None or life.departing_since is not None or life.owner in self._world.ends:
            return
        published = self._published[-1]
        allowed = self._patience()
        waiting = [
            each
            for incarnation in self._at_key.values()
            if incarnation not in published.assignments
            and (each := self._lives[incarnation]).departing_since is None
            and each.member.fingerprint == header.fingerprint
            and self._world.now - each.born > allowed - 0.01
            and not (self._gets_ready(each) and self._world.now - each.born < READY)
        ]
        training = [w for w in self._world.workers if (w.run, w.round) == (header.run, header.number)]
        quiet = all(worker.ended is None for worker in training) and self._world.now - published.at > allowed
        able = {self._lives[i].owner for i in published.assignments}.isdisjoint((*self._noticed, *self._world.ends))
        if life in waiting and quiet and able and self._usable(header.nodes + len(waiting)) > header.nodes:
            self._violated("a node that can be admitted is admitted", f"{life.node} waits for {allowed:g} s")

    def _gets_ready(self, life: _Life) -> bool:
        """The others need not wait for it: it has workers to start, and theirs keep their process."""
        of_round = bool(self._published) and life.member.incarnation in self._in_force(self._published[-1])
        return bool(self._shape.inplace) and not self._has(life, "keeps" if of_round else "ready")

    def _has(self, life: _Life, what: str) -> bool:
        """Its report says so, and the master knows."""
        return bool(getattr(life.member.report, what)) and self._world.now - life.able_since > LAG

    def _patience(self) -> float:
        return max(3 * self._shape.settle, self._shape.interval) + ANSWER

    def _check_nobody_left_out(self, published: _Published) -> None:
        """Who can be admitted is admitted, when a round is opened anyway."""
        now = self._world.now
        waiting = [
            life
            for incarnation, life in self._lives.items()
            if life.gone_at is None
            and life.departing_since is None
            and incarnation not in published.assignments
            and life.member.fingerprint == published.header.fingerprint
            and life.owner not in self._world.ends
            and now - life.born > LAG
            and not self._gets_ready(life)
        ]
        if self._usable(len(published.assignments) + len(waiting)) > len(published.assignments):
            self._violated("a node that can be admitted is admitted", ", ".join(life.node for life in waiting))

    def _check_tally(self, before: _Published | None, published: _Published) -> None:
        """Each incident is counted once, against the right budget."""
        header = published.header
        tally = header.tally
        old = before.header if before and before.header.run == header.run else None
        kinds = [new - was for new, was in zip(_kinds(tally), _kinds(old.tally if old else Tally()), strict=True)]
        grown = sum(each > 0 for each in kinds)
        most = (1 if old else 0) + (1 if header.final else 0)
        # A failure, or a start that failed, is one; of nodes several may be lost at once.
        if grown > most or min(kinds) < 0 or max(tally.failures - (old.tally.failures if old else 0), kinds[-1]) > most:
            self._violated("each incident is counted once", f"{old.tally if old else None} became {tally}")
        # The news of a loss may come after its consequences, but not long after: then it is another incident.
        merged = header.incident is not None and header.incident.cause in ("lost", "left")
        merged = merged and before is not None and (not self.calm or self._world.now - before.at < 2 * LAG)
        # That of a departure comes before them: a failure that came first has another reason. One of an optional role,
        # which costs no other a restart, goes free beside it.
        if header.cause == "left" and old and old.incident and old.incident.exit and old.incident.exit.code:
            merged = merged and (old.incident.exit.lost_peer or old.incident.optional)
        if old and old.incident and grown == 0 and not merged and not header.final:
            self._violated("each incident is counted once", f"{old.incident.reason} was not charged")
        charged = _charged(header)
        highest = max(_charged(each.header).failures for each in (*self._run_of(header), published))
        # News may take a charge back; what workers were told is not: they may have acted on it.
        if header.restart_count != highest:
            self._violated(
                "the restart count is the most failures charged", f"{header.restart_count} of {highest}, {charged}"
            )
        if not header.final and header.cause == "failure" and charged.failures > self._shape.restarts:
            self._violated("no round is opened beyond the budget", f"{charged}, {self._shape.restarts} are allowed")
        if charged.optional > self._shape.restarts:
            self._violated(
                "optional roles restart within their budget", f"{charged}, {self._shape.restarts} are allowed"
            )
        if not header.final and header.cause == "problem" and charged.problems_in_row >= IN_A_ROW:
            self._violated("what cannot be started is not tried for ever", f"{charged}")
        if not header.final and header.cause == "failure" and self._shape.same:
            self._check_repeats(header)
        failing = [each for each in self._run_of(header) if self._failed_in(each)]
        hurt = [each for each in self._run_of(header) if each.hurts]
        possible = len(hurt) if self.calm else len(failing)
        if self.roles:  # a failure that was told of while the others' workers went on is one of the next round
            possible = max(possible, sum(len(each.hurts) for each in hurt))
        # The header's own incident is provisional: a consequence may have come before its cause.
        if tally.failures > possible:
            self._violated("only failures are counted as failures", f"{tally}, {possible} rounds had one")
        for kind, counted, verbs in (
            ("lost", tally.lost, ("kill", "leave", "stranger")),
            ("left", tally.left, ("leave",)),
            ("unfit", tally.unfit, ("failed_start", "service")),
            ("problems", tally.problems, ("taken_port", "failed_start", "service")),
        ):
            if self.calm and counted > sum(self._did.get(verb, 0) for verb in verbs) + self._slack(kind):
                self._violated("only what happened is counted", f"{kind}: {tally} after {self._did}")
        self._check_root_cause(published, charged)
        own = header.state in ("failed", "repeated")  # whose tally holds their own incident, too
        # Another may know only what is provisional; with roles an incident may go on into the next round.
        same = before is not None and before.writer == published.writer and not self.roles
        if old and before and same and not own and tally.failures > old.tally.failures:
            self._check_memory(before, tally)
        if self.calm and header.state == "succeeded" and not self.roles:  # who does not count may fail at the end
            self._check_count(header, charged)

    def _slack(self, kind: str) -> int:
        """Agents that ended by themselves in a running job (they could not start workers) are lost or left, too."""
        if kind == "problems":
            # Whose process group breaks, and hears of no loss, says so: where a rank has left as if its work were done.
            early = sum(how == "exit0" for each in self._published for _, how, *_ in each.hurts)
            return 3 * self._did.get("failed_start", 0) + (early if self._shape.inplace else 0)
        return sum(1 for end in self._world.ends.values() if end.code not in (None, 0))

    def _is_optional(self, round: _Published, owner: str) -> bool:
        """The job goes on without that agent's role: what happens there has a budget of its own, and blames nobody."""
        incarnations = {life.member.incarnation for life in self._lives.values() if life.owner == owner}
        mine = next((each for name, each in round.assignments.items() if name in incarnations), None)
        return mine is not None and self.roles is not None and self.roles.is_optional(mine.role)

    def _check_root_cause(self, published: _Published, charged: Tally) -> None:
        """The root cause is what was done, not what followed from it."""
        header = published.header
        if not self.calm or header.state != "failed" or header.incident is None or header.incident.exit is None:
            return
        found = self._of_round(header.incident.round)
        exit_ = header.incident.exit
        hurts = [hurt for hurt in found.hurts if hurt[1] not in ("hang", "exit0")] if found else []
        if (
            hurts
            and all(_took_place(hurt[0], hurt[1]) for hurt in hurts)
            and not any(worker.rank == exit_.rank for worker, *_ in hurts)
        ):
            names = ", ".join(f"{worker.name} ({how})" for worker, how, _, _ in hurts)
            self._violated("the root cause is what was done", f"rank {exit_.rank} is blamed: {names}")
        crashed = [worker for worker, how, *_ in hurts if how in ("killed", "segv") and not worker.told]
        crashed = [worker for worker in crashed if not (found and self._is_optional(found, worker.owner))]
        soon = hurts and max(at for *_, at in hurts) - min(at for *_, at in hurts) < HEARD / 5
        if crashed and soon and exit_.signal is None:
            names = ", ".join(worker.name for worker in crashed)
            self._violated("the root cause is what was done", f"rank {exit_.rank} is blamed, but {names} crashed")

    def _check_repeats(self, header: Header) -> None:
        """The same exit code again and again, without a word, ends the job as the user said."""
        row = 0
        for each in reversed(self._run_of(header)):
            exit_ = each.header.incident.exit if each.header.incident else None
            optional = each.header.incident is not None and each.header.incident.optional
            if each.header.cause != "failure" or exit_ is None or exit_.code != 3 or exit_.message or optional:
                break
            row += 1
        # The header itself is not among those that were published.
        exit_ = header.incident.exit if header.incident else None
        optional = header.incident is not None and header.incident.optional
        mine = exit_ is not None and exit_.code == 3 and not exit_.message and not optional
        if mine and row + 1 >= self._shape.same and self.calm:
            self._violated("a job is stopped early when it repeats a failure", f"{row + 1} times {exit_}")

    def _check_memory(self, before: _Published, tally: Tally) -> None:
        """What a closed failure is remembered by is what was done, also where it was told of last."""
        because = before.header.incident
        found = self._of_round(because.round) if because and because.cause == "failure" else None
        early = [each for each in found.hurts if self.calm or each[-1] < before.at + GATHER] if found else []
        if found is None or len(early) != 1:
            return
        worker, how, mark, _ = early[0]
        if not _took_place(worker, how) or not (self.calm or self._sure(before, found, worker)):
            return
        words = {"raise": f"1:ValueError: {mark}", "exit3": "3:", "killed": "", "segv": ""}.get(how)
        if words is not None and tally.signature != words:
            self._violated("the root cause is what was done", f"{tally.signature!r} is remembered after {words!r}")
        if words == "" and tally.repeats:
            self._violated("only the same failure is repeated", f"{tally} after {how}")

    def _sure(self, opened: _Published, found: _Published, worker: Worker) -> bool:
        """Round `opened` was opened with the right cause, and what else came in time was only its consequence."""
        exit_ = opened.header.incident.exit if opened.header.incident else None
        if exit_ is None or exit_.rank != worker.rank or worker.ended_at - worker.began > QUICK:
            return False
        if "freeze" in self._did:
            return False  # a guardian kills, too
        for other in self._world.workers:
            if (other.run, other.round) != (found.header.run, found.header.number) or other is worker:
                continue
            if other.ended is None or other.ended_at > opened.at + GATHER:
                continue
            _, number, message = other.ended
            stopped = number == 9 and other.ended_at > opened.at
            if other.ended[0] != 0 and not message and not other.told and not stopped:
                return False
        return True

    def _check_count(self, header: Header, charged: Tally) -> None:
        """Where nothing else happened, every failure is counted, and its cause remembered."""
        if set(self._did) - {"worker"} or len(self._world.agents) != self._shape.nodes + self._shape.masters:
            return
        counted = [
            each
            for each in self._run_of(header)
            if any(how not in ("hang", "exit0") and _took_place(worker, how) for worker, how, _, _ in each.hurts)
            and not self._overtaken(each)
        ]
        if charged.failures < len(counted):
            self._violated("every failure is counted", f"{charged}, {len(counted)} rounds had one")
        last = counted[-1] if counted else None
        if last and any(text.partition("{}")[0][:30] in charged.signature for text in COUPLED):
            hows = [how for _, how, _, _ in last.hurts]
            if set(hows) <= {"raise", "exit3"} and last.header.number == header.number - 2:
                self._violated("the root cause is what was done", f"{charged.signature!r} is remembered after {hows}")

    def _check_new_run(self, published: _Published) -> None:
        """A job that has ended is begun again by those who come for it, not by those who were in it.

        Who never heard of it, nor could after a minute, is as one that comes late.
        """
        owners = {self._lives[incarnation].owner for incarnation in published.assignments}
        for end in self._published:
            if not end.header.final or end.header.state == "preempted" or end.header.run == published.header.run:
                continue
            run = self._run_of(end.header)
            told = end.header.state == "succeeded" and self._world.now - end.at < MARK
            revisions = {each.revision for each in run}
            places = {self._lives[i].owner for each in run for i in each.assignments}
            before = {owner for owner in places if told or not revisions.isdisjoint(self._heard.get(owner, ()))}
            if owners <= before:
                self._violated("a node of a run that has ended begins no other run", f"{sorted(owners)}")

    def _problems_in_a_row(self, header: Header) -> int:
        """How many starts have failed one after the other up to this end of the job."""
        row = 1
        for each in reversed(self._run_of(header)):
            if each.header.cause != "problem":
                break
            row += 1
            if each.header.incident and each.header.incident.ran >= RAN:
                break
        return row

    def _overtaken(self, published: _Published) -> bool:
        """A joining node was being admitted at that very moment: the round had ended before the news of the failure."""
        after = self._of_round(published.header.number + 1)
        first = min(at for _, how, _, at in published.hurts if how not in ("hang", "exit0"))
        return after is not None and after.header.cause == "joined" and after.at - first < LAG

    def _check_verdict(self, before: _Published | None, published: _Published) -> None:
        """A job ends for the reason that it gives."""
        header, now = published.header, self._world.now
        present = [self._lives[incarnation] for incarnation in self._at_key.values()]
        staying = [life for life in present if life.departing_since is None and life.owner not in self._world.ends]
        match header.state:
            case "succeeded":
                number = before.header.number if before else 0
                ends = {
                    worker.rank
                    for worker in self._world.workers
                    if (worker.run, worker.round) == (header.run, number) and worker.ended == (0, None, "")
                }
                whole = len(ends) == header.world_size
                if self.roles and before:
                    whole = self.roles.succeeded([*before.assignments.values()], number)
                if not before or before.header.state != "open" or not whole:
                    self._violated("success is when every worker has succeeded", f"only ranks {sorted(ends)} have")
                self.books.on_success(header, number)
            case "failed":
                over = header.tally.failures > self._world.shape.restarts  # not what is told: no charge taken back
                trouble = sum(self._did.get(verb, 0) for verb in ("taken_port", "failed_start", "hold", "service"))
                row = self._problems_in_a_row(header)
                if not over and (
                    not trouble or (self.calm and isinstance(header.reason, StartsFailed) and row < IN_A_ROW)
                ):
                    self._violated(
                        "a job fails when its budget is spent", f"{header.tally.failures} failures, {row} starts"
                    )
            case "repeated":
                same = self._shape.same
                if not same or header.tally.repeats < same:
                    self._violated("a job is stopped early when it repeats a failure", f"{header.tally}")
                hurts = [(how, mark) for each in self._run_of(header) for _, how, mark, _ in each.hurts]
                alike = sum(how in ("exit3", "exit0") for how, _ in hurts)  # what peers die of is alike, too
                if self.calm and alike < same:
                    self._violated("a job is stopped early when it repeats a failure", f"after {hurts}")
            case "timeout":
                self._check_time(before, published)
                long = [life for life in staying if now - life.born > 2 * LAG]
                if self.calm and not self._shape.typed and self._usable(len(long)):
                    self._violated("a job times out when nodes are missing", f"{len(long)} are there")
            case _:
                long = [life for life in staying if now - life.born > 2 * LAG]
                if self.calm and long:
                    self._violated("a job is preempted when all must go", f"{[life.node for life in long]} stay")

    def _check_time(self, before: _Published | None, published: _Published) -> None:
        """A job ends neither before its time is over nor long after, whoever was the master meanwhile."""
        now, leader = self._world.now, published.writer
        began = before.header.run == published.header.run if before else False
        limit = self._shape.recovery if began else self._shape.join
        abandoned = before is not None and not began and not before.header.final
        since = self._world.booted[leader]
        if before and began:
            since = before.at
        elif before and abandoned:  # nobody waits for the next run before the last node of this one has gone
            gone = [self._lives[incarnation].gone_at or 0.0 for incarnation in before.assignments]
            since = max(since, before.at, *gone)
        if now - since < limit - 0.01:
            self._violated("a job times out when its time is over", f"after {now - since:.3f} s of {limit:g}")
        hears = set(self._did) <= {*CALM, "freeze", "pause", "power_off"}
        if abandoned or not hears or self._world.booted[leader] > since + LAG:
            return
        stood_still = self._stood_still.get(self._world.machine_of[leader], 0.0)
        late = now - max(since + limit, self._elected_at)
        if late > ANSWER + stood_still:
            self._violated("a job times out as soon as its time is over", f"{late:.3f} s late")

    # -- workers --------------------------------------------------------------------------------------------------

    def on_worker_start(self, worker: Worker, env: Mapping[str, str]) -> None:
        """An agent starts a worker: it must be what the current header gives to that very agent."""
        published = self._check_assignment(worker, env)
        if published is None:
            return
        header = published.header
        self._check_role(worker, published, env)
        for other in self._world.live_workers(worker.machine):
            if other.owner == worker.owner and other.round != worker.round:
                self._violated("no two rounds on one machine", f"{worker.name} starts beside {other.name}")
        if other := next(
            (w for w in self._world.live_workers(worker.machine) if w.round == worker.round and w.rank == worker.rank),
            None,
        ):
            self._violated("a rank is started once", f"{worker.name} twice ({other.owner}, {worker.owner})")
        last = self._last_start.get(worker.machine)
        if last and last[0] == header.run and worker.round < last[1]:
            self._violated("no older round starts after a newer one", f"{worker.name} after round {last[1]}")
        self._last_start[worker.machine] = (header.run, worker.round)

    def on_worker_kept(self, worker: Worker, env: Mapping[str, str]) -> None:
        """An agent gives a worker its rank assignment in another round."""
        if not self.roles:
            self.survivors.on_kept(worker)
        self._check_assignment(worker, env)

    def _last_read(self, worker: Worker) -> tuple[float, _Published | None]:
        """When its agent has last read the header, and which; that of its round, where its process group was left
        meanwhile."""
        reads = self._read.get(worker.owner, [(-1.0, 0)])
        for at, revision in reversed(reads if self._shape.inplace else reads[-1:]):
            published = next((each for each in reversed(self._published) if each.revision == revision), None)
            if published is not None and published.header.number == worker.round:
                return at, published
        at, revision = reads[-1]
        return at, next((each for each in reversed(self._published) if each.revision == revision), None)

    def _check_assignment(self, worker: Worker, env: Mapping[str, str]) -> _Published | None:
        """What a worker is told is what the header gives to its agent that this has just read; None where it is not."""
        now = self._world.now
        at, published = self._last_read(worker)
        fresh = now - at < FREED if self._shape.inplace else at == now
        if published is None or not fresh or published.header.number != worker.round:
            seen = f"round {published.header.number}" if published else "nothing"
            self._violated(
                "the header is read again just before workers start", f"{worker.name}: {seen} was read at {at:.4f}"
            )
            return None
        header = published.header
        mine = [each for i, each in published.assignments.items() if self._lives[i].owner == worker.owner]
        if header.state != "open" or len(mine) != 1:
            self._violated("assignments that no header names start no workers", worker.name)
            return None
        self._check_new_run(published)
        life = self._lives[mine[0].incarnation]
        if self._newest_life(worker.owner) is not life:
            self._violated("a reborn agent inherits nothing", f"{worker.name} is an earlier life's")
        expected = {
            "RANK": str(mine[0].first_rank + worker.local),
            "WORLD_SIZE": str(mine[0].world_size),
            "LOCAL_WORLD_SIZE": str(mine[0].nproc),
            "GROUP_RANK": str(mine[0].group_rank),
            "GROUP_WORLD_SIZE": str(mine[0].group_size),
            "MASTER_ADDR": header.master_addr,
            "MASTER_PORT": str(header.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(header.restart_count),
            "TORCHELASTIC_MAX_RESTARTS": str(self._world.shape.restarts),
        }
        wrong = {name: env.get(name) for name, value in expected.items() if env.get(name) != value}
        if wrong:
            self._violated("workers are told what the header says", f"{worker.name}: {wrong}")
        return published

    def _check_role(self, worker: Worker, published: _Published, env: Mapping[str, str]) -> None:
        mine = [each for i, each in published.assignments.items() if self._lives[i].owner == worker.owner]
        if self.roles and mine:
            self.roles.on_start(worker, mine[0], env)

    # -- ends -----------------------------------------------------------------------------------------------------

    def on_agent_end(self, end: "End") -> None:
        """An agent has ended: its exit code must be one that what happened explains."""
        if self._world.is_master(end.owner):
            self.masters.on_end(end)
        if end.code is None:
            self._on_death(end)
            return
        newest = self._published[-1] if self._published else None
        if self.calm and newest and newest.header.final and newest.writer == end.owner:
            self.targets.on_end()
        noticed = end.owner in self._noticed
        born = min((life.born for life in self._lives.values() if life.owner == end.owner), default=0.0)
        if self._world.is_master(end.owner):
            born = self._world.booted[end.owner]
        over = [each.header for each in self._published if each.header.final and each.at >= born]
        states = {header.state for header in over}
        late = not born or len({header.run for header in over}) > 1  # for the run that has succeeded
        stranger = end.machine.endswith("x")
        trouble = not self.calm
        match end.code:
            case 0:
                fine = "succeeded" in states
            case 1:
                fine = "failed" in states or bool(self._did.get("failed_start", 0) + self._did.get("taken_port", 0))
                fine = (
                    fine
                    or (bool(states) and "while this node was not a member" in end.reason)
                    or self._has_unkillable(end.owner)
                    or ("the service" in end.reason and self._did.get("service", 0) >= GIVES_UP)
                )
            case 2:
                fine = stranger or ("succeeded" in states and late) or self._did.get("stranger", 0) > 0
                fine = fine or (
                    self._world.is_master(end.owner) and "succeeded" in {each.state for each in self.headers}
                )
            case 3:
                fine = "timeout" in states
            case 4:
                never_in = "StoreRefused" in end.reason  # it could not begin, and who started it is told at once
                heard = self._world.is_master(end.owner) and end.owner in self._heard
                fine = trouble and (never_in or not heard)
            case 5:
                fine = "repeated" in states
            case _:
                fine = noticed or "preempted" in states
        if not fine:
            self._violated("an exit code says what happened", f"{end.owner} ends with {end.code}: {end.reason}")
        self.services.on_agent_end(end.owner)
        alive = [worker for worker in self._world.workers if worker.owner == end.owner and not worker.ended]
        if alive:
            self._violated("no worker outlives its agent", f"{end.owner}: {[worker.name for worker in alive]}")
        if left := self._world.agents[end.owner].leftover:
            self._violated("no task outlives its agent", f"{end.owner}: {left}")

    def _on_death(self, end: "End") -> None:
        """An agent was killed."""
        now = self._world.now
        masters = self._leader == end.owner
        lately = any(now - at < PAUSE for at in self._ends_of_masters)
        life = self._newest_life(end.owner)
        published = self._published[-1] if self._published else None
        if life is None or published is None or published.header.state != "open" or (masters and lately):
            return
        counts = life.member.incarnation in published.assignments and life.gone_at is None
        known = now - life.born > LAG and life.member.report.state == "running"
        if counts and known and not (self._leader in self._world.ends and not masters):
            incarnation = life.member.incarnation
            self._world.after(ANSWER, self._check_death_answered, end, incarnation, published, masters)

    def _check_death_answered(self, end: "End", incarnation: str, published: _Published, masters: bool) -> None:
        if (incarnation, published.header.number) in self._succeeded:
            return  # it had said so just before, and the store heard it later
        lives = [life for life in (self._lives[i] for i in self._at_key.values()) if life.owner not in self._world.ends]
        old = [life for life in lives if life.born < end.at - LAG and life.owner not in self._noticed]
        quiet = sum(at > end.at for at in self._ends_of_masters) <= masters
        dead = self._leader in self._world.ends  # also one whose request to lead was done after its death
        both = dead and (self._leader != end.owner or self._elected_at > end.at)
        if self.calm and old and quiet and not both and self.last_header is published.header:
            self._violated("what ends a round is answered at once", f"{end.owner} was killed at {end.at:.3f}")

    def when_quiet(self) -> None:
        """After the faults have stopped, a job with enough nodes trains, or has ended."""
        self.targets.when_quiet()
        able = [
            owner
            for owner in self._world.agents
            if owner not in self._world.ends
            and owner not in self._noticed
            and not self._world.machine_of[owner].endswith("x")
            and not self._world.is_master(owner)
        ]
        usable = self._usable(len(able))
        members = {self._lives[incarnation].owner for incarnation in self._at_key.values()}
        if not (self.last_header and self.last_header.final) and (
            out := [each for each in able if each not in members]
        ):
            self._violated("a living node is a member", ", ".join(out))
        if self.last_header:
            for worker in self._world.workers:
                if self._is_old(worker, self.last_header, self._published[-1].at):
                    self._violated("old workers end", f"{worker.name} still runs in round {self.last_header.number}")
        header = self.last_header
        if not usable or (header and header.final) or self._shape.typed:
            return
        group = None
        if header and header.state == "open":  # workers may go on in it that have trained since an earlier one
            continues = [each.since for each in self._published[-1].assignments.values() if each.since]
            numbers = [header.number, *sorted(continues, reverse=True)]
            group = next((self._running[number] for number in numbers if number in self._running), None)
        inside = {self.owner_of(each) for each in self._published[-1].assignments} if self._published else set[str]()
        workers = [each for each in group.workers.values() if each.owner in inside] if group else []
        if not workers or any(worker.ended and worker.ended[0] != 0 for worker in workers):
            state = f"round {header.number} is {header.state}" if header else "there was no round"
            self._violated("after the faults a job trains again", f"{able} could; {state}")

    def at_end(self) -> None:
        """When all is over: nothing is left, and a success is one everywhere."""
        world = self._world
        for error in world.kernel.errors:
            self._violated("no error goes unseen", error)
        if world.violations:
            return
        leased = [
            key
            for key in world.store.keys(self._keys.root)
            if key == self._keys.leader or key.startswith((self._keys.nodes, self._keys.evictions))
        ]
        if leased:
            self._violated("no leased key is left", ", ".join(leased))
        running = [worker.name for worker in world.workers if not worker.ended]
        if running:
            self._violated("no worker is left", ", ".join(running))
        by_themselves = [end for end in world.ends.values() if end.code is not None]
        over = self.last_header is not None and self.last_header.final
        # A suspended job whose nodes are all told to go ends as well.
        if self.calm and len(by_themselves) == len(world.ends) and (over or not self._expired):
            left = [key for key in world.store.keys(self._keys.root) if key != self._keys.outcome]
            if self.last_header is None or self.last_header.state != "succeeded":  # it can go on where it was
                left = [key for key in left if not key.startswith(self._keys.queues)]
            if left:
                self._violated("no key is left", ", ".join(left))
        self.masters.at_end()
        self.services.at_end()
        self._check_success_everywhere()
        self._check_reasons()
        self._check_store_alone()

    def _check_store_alone(self) -> None:
        """Where only the store failed, nobody is called lost, and no worker is ended before the job is over.

        A renewal shows that the store was away for half a lease's life. Two shorter failures within the life of one
        short lease can end it, and nobody sees that.
        """
        failures = sum(self._did[each] for each in self._did if each in STORE and each != "etcd_compact")
        if failures > 1 and self._world.shape.ttl < SHORT_LEASE:
            return
        if not STORE.issuperset(self._did) or any(end.code not in (0, None) for end in self._world.ends.values()):
            return
        for published in self._published:
            because = published.header.incident
            if published.header.cause == "lost" or (because is not None and because.cause != "joined"):
                self._violated("a store that was away costs no worker", str(published.header.reason))
        for worker in self._world.workers:
            later = [each.header for each in self._published if each.at <= worker.ended_at]
            reason = any(each.final or (each.cause == "joined" and each.number > worker.round) for each in later)
            if worker.ended is not None and worker.ended[1] is not None and not reason:
                self._violated("a store that was away costs no worker", f"{worker.name} at {worker.ended_at:.3f}")

    def _check_reasons(self) -> None:
        """Nobody's workers are stopped without a reason, and for a joining node they are told first."""
        quiet = {"worker", "etcd_compact", "start", "stranger", "etcd_down", "etcd_kill", "etcd_elect", "etcd_stall"}
        if not quiet.issuperset(self._did):
            return
        for worker in self._world.workers:
            if worker.ended is None or worker.ended[1] != 9:
                continue
            found = self._of_round(worker.round)
            if found is None or found.header.run != worker.run or found.hurts:
                continue
            later = [each for each in self._published if each.revision > found.revision and each.at <= worker.ended_at]
            gone = any(
                life.owner == worker.owner and life.gone_at is not None and life.gone_at <= worker.ended_at
                for life in self._lives.values()
            )
            if not later and not gone:
                self._violated("workers that run are left alone", f"{worker.name} was killed at {worker.ended_at:.3f}")
            elif self._shape.inplace:
                continue  # who has its process group to leave is told otherwise, and `survivors.py` knows who is ended
            elif later and all(each.header.cause == "joined" for each in later) and not worker.told and self.calm:
                self._violated("workers are told before a node joins", f"{worker.name} was killed at once")

    def _check_success_everywhere(self) -> None:
        """A job whose workers all succeeded ends with success on every node."""
        world = self._world
        for published in self._published:
            header = published.header
            if header.state != "open":
                continue
            done = {
                worker.rank
                for worker in world.workers
                if (worker.run, worker.round) == (header.run, header.number)
                and worker.ended == (0, None, "")
                and not worker.told
            }
            owners = [self._lives[incarnation].owner for incarnation in published.assignments]
            if len(done) != header.world_size or self._next_run_began(published):
                continue
            for owner in owners:
                end = world.ends.get(owner)
                lived = end is not None and end.code is not None and owner not in self._noticed
                if lived and end is not None and end.code != 0 and self._store_was_there(end.code):
                    self._violated("a success is one everywhere", f"{owner} ended with {end.code}: {end.reason}")

    def _store_was_there(self, code: int) -> bool:
        return code != 4 or self.calm

    def _next_run_began(self, published: _Published) -> bool:
        later = self._published[self._published.index(published) + 1 :]
        return any(
            each.header.run != published.header.run or each.header.state in ("open", "waiting") for each in later
        )

    # -- looking back ---------------------------------------------------------------------------------------------

    def _violated(self, rule: str, what: str) -> None:
        self._world.violated(rule, what)

    def _newest_life(self, owner: str) -> _Life | None:
        lives = [life for life in self._lives.values() if life.owner == owner]
        return lives[-1] if lives else None

    def _of_round(self, number: int) -> _Published | None:
        return next((each for each in reversed(self._published) if each.header.number == number), None)

    def _in_force(self, published: _Published) -> list[str]:
        """The incarnations of the last open round up to `published`, in rank order."""
        index = self._published.index(published)
        while index >= 0 and self._published[index].header.state != "open":
            index -= 1
        if index < 0:
            return []
        assignments = self._published[index].assignments
        return sorted(assignments, key=lambda incarnation: assignments[incarnation].group_rank)

    def _run_of(self, header: Header) -> list[_Published]:
        return [each for each in self._published if each.header.run == header.run]

    def _failed_in(self, published: _Published) -> bool:
        return published.header.state == "open" and any(
            (worker.run, worker.round) == (published.header.run, published.header.number)
            and worker.ended is not None
            and worker.ended[0] != 0
            and not worker.told
            for worker in self._world.workers
        )


def _is_of(worker: Worker, header: Header) -> bool:
    return (worker.run, worker.round, "open") == (header.run, header.number, header.state)


def _kinds(tally: Tally) -> Sequence[int]:
    """How much of each kind has happened; a node that leaves is one kind, whatever it leaves for."""
    return tally.failures, tally.optional, tally.lost, tally.left + tally.unfit, tally.joined, tally.problems


def _took_place(worker: Worker, how: str) -> bool:
    """It ended as it was made to; while it took its leave, its agent may have been told to stop it."""
    code = {"raise": 1, "exit3": 3}.get(how)
    return worker.ended is not None and (code is None or worker.ended[0] == code)


def _charged(header: Header) -> Tally:
    """All that a header charges; at a job's end the tally holds its incident already."""
    return _with(header.tally, None if header.final else header.incident)


def _with(tally: Tally, incident: Incident | None) -> Tally:
    """The tally with the open incident."""
    if incident is None or incident.cause not in ("failure", "lost", "left", "joined", "problem"):
        return tally
    if incident.optional:
        return dataclasses.replace(tally, optional=tally.optional + 1)
    match incident.cause:
        case "failure":
            return dataclasses.replace(tally, failures=tally.failures + 1)
        case "problem":
            row = tally.problems_in_row if incident.ran < RAN else 0
            return dataclasses.replace(tally, problems=tally.problems + 1, problems_in_row=row + 1)
        case "lost":
            return dataclasses.replace(tally, lost=tally.lost + 1)
        case "left":
            return dataclasses.replace(tally, left=tally.left + 1)
        case _:
            return dataclasses.replace(tally, joined=tally.joined + 1)
