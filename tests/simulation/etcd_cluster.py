"""An etcd cluster simulated at the wire: the real `EtcdStore` asks it, with its retries, fail-overs and watches.

Two halves. The *engine* is etcd's replicated state: revisions, history, leases; every change of it happens at one
moment. Around it are members that may be dead, frozen or cut off, one of which leads, and connections to them on which
requests and answers get lost. What is decided here happens in the world, never in a client's process: a client that is
killed after it sent still has its request applied. All chance comes from one `random.Random`.

Where etcd's own behaviour is a matter of scheduling, chance decides: whether a write that its leader had not committed
when it was lost survives into the next term, whether a request that waited in a frozen or leaderless member is taken up
when that is over. Both may happen long after the client has given up, as they do in etcd.
"""

import asyncio
import contextvars
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from elastic_run.rendezvous.store.contract import Event
from elastic_run.rendezvous.store.etcd.connections import judge
from elastic_run.rendezvous.store.etcd.proto import elastic_run_etcd_pb2 as pb
from elastic_run.rendezvous.store.etcd.watch import key_value

from .etcd_engine import Changes, Engine, Lease, Refusal, check
from .network import between

if TYPE_CHECKING:
    from .etcd_client import Endpoint, Stream

LEASE_CHECK = 0.5
"""Seconds between two looks of the leader for leases that are over."""

ELECTION = (0.2, 0.6)
"""Seconds from the loss of a leader to the next one, at least and at most."""

NOTICED = 0.2
"""Seconds without a leader after which a member says so at once, instead of keeping requests."""

DROPS_STREAMS = 0.6
"""Seconds without a leader after which a member ends the watches that asked for one."""

BATCH = 4
"""Revisions that one message to a watch holds at most. Of etcd's 1000, no job here would ever see the end."""

NEXT_BATCH = 0.01
"""Seconds until the next one."""

SLOW_FOLLOWER, SLOWEST_FOLLOWER = 0.3, 6.0
"""How often a follower that answers by itself is behind by more than a moment, and by how many seconds at most."""

LATE = 0.25
"""How often a frozen member still takes up what its client has cancelled meanwhile, as measured with a real one."""

COMMIT = (0.0005, 0.003)
"""Seconds that a write takes on a healthy disk."""

BACKOFF = (0.1, 0.5)
"""Seconds between two attempts to connect."""

_RANGE = "/etcdserverpb.KV/Range"
_TXN = "/etcdserverpb.KV/Txn"
_GRANT = "/etcdserverpb.Lease/LeaseGrant"
_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
_STATUS = "/etcdserverpb.Maintenance/Status"
_COMPACT = "/etcdserverpb.KV/Compact"


class World(Protocol):
    """Time, as the kernel has it, and the context of what happens in nobody's process."""

    @property
    def now(self) -> float:
        """Seconds."""
        ...

    @property
    def world(self) -> contextvars.Context:
        """Nobody's."""
        ...

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> object:
        """Calls it `delay` seconds later."""
        ...


class Network(Protocol):
    """Who hears whom. Names are those of machines."""

    def delay(self, source: str, target: str) -> float | None:
        """Seconds that one message takes now; None: it never arrives."""
        ...

    def reaches(self, source: str, target: str) -> bool:
        """Whether messages can arrive at all."""
        ...

    def refuses(self, source: str, target: str) -> bool:
        """Whether something between them refuses new connections."""
        ...


Observer = Callable[[float, int, tuple[Event, ...], str], object]
"""Of every revision: world time, revision, events, and the client that wrote it (empty: a lease ended)."""


class Member:
    """One server: its machine has its name."""

    __slots__ = (
        *("alone_since", "applied", "frozen", "held", "id", "life", "links", "name", "said", "up", "wanted", "watches"),
    )

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.id = number
        self.up = True
        self.frozen = False
        self.life = 1  # a connection holds to one life
        self.applied = 1  # the newest revision that it has heard of
        self.said = 1  # the newest that it has told anybody of: it has applied that one
        self.alone_since = math.inf  # without a leader
        self.held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []  # what came while it was frozen
        self.links: dict[Endpoint, None] = {}
        self.wanted: dict[Endpoint, None] = {}  # who waits for it to start
        self.watches: dict[Watch, None] = {}


class Call:
    """A request on its way. It has one end: an answer, a failure, or its time is over."""

    __slots__ = ("endpoint", "ends", "future", "leader", "life", "lost", "path", "request")

    def __init__(self, endpoint: "Endpoint", path: str, request: Any, ends: float, leader: bool) -> None:
        self.endpoint = endpoint
        self.path = path
        self.request = request
        self.ends = ends
        self.leader = leader
        self.life = endpoint.life
        self.lost = False
        self.future: asyncio.Future[Any] = endpoint.client.loop.create_future()


class Watch:
    """The server's end of a stream."""

    __slots__ = ("due", "end", "key", "life", "member", "position", "stream", "tries")

    def __init__(self, stream: "Stream", member: Member, key: bytes, end: bytes, position: int) -> None:
        self.stream = stream
        self.member = member
        self.life = member.life
        self.key = key
        self.end = end
        self.position = position
        self.due = False  # something is on its way
        self.tries = 0

    def covers(self, key: bytes) -> bool:
        if not self.end:
            return key == self.key
        return self.key <= key and (self.end == b"\0" or key < self.end)


class Cluster:
    """The servers, of which one leads where it can.

    Args:
        members: names of the machines that they run on.
        network: between all machines.
        world: time, and what happens in nobody's process.
        chance: everything random.
        lag: seconds that a change takes to a watch beyond the wire's, at least and at most.
        slow: how often a change takes up to `slowest` seconds instead.
        behind: how far a member that answers by itself is behind the others; everything random about that.
    """

    def __init__(
        self,
        members: Sequence[str],
        network: Network,
        world: World,
        chance: random.Random,
        *,
        lag: tuple[float, float] = (0.0, 0.004),
        slow: float = 0.03,
        slowest: float = 0.8,
        behind: random.Random | None = None,
    ) -> None:
        self.members = {name: Member(name, 0xE7CD0 + number) for number, name in enumerate(members, 1)}
        self.network = network
        self.world = world
        self._call_later, self._context = world.call_later, world.world
        self.chance = chance
        self.engine = Engine(0xC1)
        self.leader: str | None = chance.choice(tuple(members))
        self.term = 2
        self.lags: dict[str, float] = {}  # by machine: seconds more that its watches are behind
        self._lag, self._slow, self._slowest = lag, slow, slowest
        self._behind = behind or random.Random("behind")
        self._moments: list[float] = []  # when revision 2 and those after it were made
        self._observers: list[Observer] = []
        self._lost_answers = 0.0
        self.full = False  # its space is used up: what makes it grow is refused
        self.write_seconds = 0.0  # that a disk needs for one write; who comes meanwhile waits for the next
        self._stalled_until = 0.0
        self._last_commit = 0.0
        self._looked_at = -math.inf
        self._group: dict[str, None] = {}  # who works with the leader; empty where none leads
        self._electing = 0  # counts elections; a timer of an earlier one does nothing
        self._election_due = False
        self._pending: dict[Call, None] = {}  # at the leader, not committed
        self._survivors: list[Call] = []  # in the log of some who may lead next
        self._parked: list[tuple[Member, Call]] = []  # requests to members without a leader
        self._lease_check_at: float = math.inf
        self._phase = chance.random() * LEASE_CHECK

    def after(self, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        """Calls it so much later, in nobody's process."""
        self._call_later(seconds, what, *arguments, context=self._context)

    # For the one who checks

    def observe(self, observer: Observer) -> None:
        """Calls it at once for every revision, as it is applied. After `lose_data` revisions begin again at 2."""
        self._observers.append(observer)

    def keys(self, prefix: str) -> list[str]:
        """All keys under it, without asking anybody."""
        return [item.key for item in self.engine.list(prefix)]

    # Faults

    def kill(self, member: str) -> None:
        """Its process dies; its data stay. The machine's kernel resets its connections."""
        it = self.members[member]
        if not it.up:
            return
        it.up, it.frozen = False, False
        self._end_life(it, "Socket closed")
        if self.leader == member:
            self._lose_leader()
            self.leader = None
        self._look()

    def start(self, member: str) -> None:
        """Starts it on its data."""
        it = self.members[member]
        if it.up:
            return
        it.up = True
        waiting, it.wanted = it.wanted, {}
        for endpoint in waiting:
            self.after(self.chance.uniform(0.0, BACKOFF[1]), endpoint.connect, endpoint.attempt)
        self._look()

    def freeze(self, member: str) -> None:
        """It stops where it is; its connections stand and nothing answers."""
        it = self.members[member]
        if it.up and not it.frozen:
            it.frozen = True
            self._look()

    def thaw(self, member: str) -> None:
        """It goes on; what was sent to it meanwhile is there. Its leases have run on."""
        it = self.members[member]
        if not it.frozen:
            return
        it.frozen = False
        held, it.held = it.held, []
        self._look()
        for what, arguments in held:
            if self.chance.random() < LATE:
                self.after(self.chance.uniform(0.0, 0.005), what, *arguments)
        for watch in it.watches:
            self._kick(watch)

    def kill_all(self) -> None:
        """Every member's process dies."""
        for member in self.members:
            self.kill(member)

    def start_all(self) -> None:
        """Starts every one that does not run."""
        for member in self.members:
            self.start(member)

    def lose_data(self, *, another: bool) -> None:
        """Everybody restarts without anything: as `another` cluster, or as the same one at revision 1."""
        for member in self.members.values():
            if member.up:
                self._end_life(member, "Socket closed")
            member.applied = member.said = 1
        self._moments.clear()
        self._lose_leader()
        self._survivors.clear()
        self._parked.clear()
        self.leader = None
        self.engine = Engine(self.engine.cluster_id + 1 if another else self.engine.cluster_id)
        self._look()

    def transfer_leadership(self) -> None:
        """Another member that works with the leader leads now."""
        if not self._led():
            return
        others = [name for name in self._group if name != self.leader]
        if others:
            self._lose_leader()
            self._lead(self.chance.choice(others))

    def hiccup(self, seconds: float) -> None:
        """The disks stand still for so long: no write is committed meanwhile."""
        self._stalled_until = max(self._stalled_until, self.world.now + seconds)

    def reset(self, a: str, b: str) -> None:
        """Something between machines ends the connections of clients to members."""
        for member in self.members.values():
            for endpoint in tuple(member.links):
                if between(a, b, member.name, endpoint.client.machine):
                    endpoint.break_off(endpoint.attempt, "Connection reset by peer")

    def lose_answers(self, probability: float) -> None:
        """From now on, answers to applied writes vanish."""
        self._lost_answers = probability

    def compact(self, revision: int | None = None) -> None:
        """Forgets the history before `revision`, or before now."""
        wanted = self.engine.revision if revision is None else revision
        if wanted > self.engine.compacted:
            self.engine.compact(wanted)

    def _end_life(self, member: Member, words: str) -> None:
        member.life += 1
        member.alone_since = math.inf
        member.held.clear()
        member.watches.clear()
        self._parked = [(other, call) for other, call in self._parked if other is not member]
        links, member.links = member.links, {}
        for endpoint in links:
            delay = self.network.delay(member.name, endpoint.client.machine)
            if delay is not None:
                self.after(delay, endpoint.break_off, endpoint.attempt, words)

    # Who leads

    def nudge(self) -> None:
        """Somebody's ping is a moment at which members see whom they reach."""
        self._led()

    def _look(self) -> None:
        """Something has changed: who leads is to be found out anew."""
        self._looked_at = -math.inf
        self._led()

    def _around(self, name: str) -> dict[str, None]:
        """Who hears `name` and is heard, itself among them; nobody where it does nothing."""
        it, reaches = self.members[name], self.network.reaches
        if not it.up or it.frozen:
            return {}
        return {
            other.name: None
            for other in self.members.values()
            if other is it
            or (other.up and not other.frozen and reaches(name, other.name) and reaches(other.name, name))
        }

    def _led(self) -> bool:
        """Somebody leads a majority. Where not, there will be an election."""
        now = self.world.now
        if now == self._looked_at:
            return bool(self._group)
        self._looked_at = now
        group = self._around(self.leader) if self.leader is not None else {}
        if 2 * len(group) <= len(self.members):
            if self._group:
                self._lose_leader()
            self._group = {}
            if not self._election_due:
                self._electing += 1
                self._election_due = True
                self.after(self.chance.uniform(*ELECTION), self._elect, self._electing)
            group = {}
        else:
            self._election_due = False
            self._group = group
        for name, member in self.members.items():
            if name in group:
                member.alone_since = math.inf
                if member.applied < self.engine.revision:
                    self._catch_up(member)
            elif member.up and member.alone_since == math.inf:
                member.alone_since = now
                self.after(DROPS_STREAMS, self._drop_streams, member, member.life)
        if group and self._survivors:
            survivors, self._survivors = self._survivors, []
            for call in survivors:
                self._apply(call)
        if group and self._parked:
            self._take_up()
        return bool(group)

    def _catch_up(self, member: Member) -> None:
        member.applied = self.engine.revision
        for watch in member.watches:
            self._kick(watch)

    def _lose_leader(self) -> None:
        """What was not committed survives in the log of a follower, or does not."""
        self._group = {}
        self._looked_at = -math.inf
        pending, self._pending = self._pending, {}
        for call in pending:
            self._lose(call)
            if self.chance.random() < 0.5:
                self._survivors.append(call)

    def _elect(self, number: int) -> None:
        if number != self._electing or not self._election_due:
            return
        self._election_due = False
        self._looked_at = -math.inf
        if self.leader is not None and 2 * len(self._around(self.leader)) > len(self.members):
            self._led()
            return
        able = [it for name, it in self.members.items() if 2 * len(self._around(name)) > len(self.members)]
        if not able:
            if self.leader is not None and not self.members[self.leader].frozen:
                self.leader = None  # it has stepped down
            return  # whoever asks next begins the next election
        newest = max(it.applied for it in able)
        self._lead(self.chance.choice([it.name for it in able if it.applied == newest]))

    def _lead(self, name: str) -> None:
        self.leader = name
        self.term += 1
        self._election_due = False
        self._phase = self.chance.random() * LEASE_CHECK
        self._last_commit = 0.0
        now = self.world.now
        for lease in self.engine.leases.values():
            lease.ends = now + lease.ttl
            lease.waiting.clear()
        self._looked_at = -math.inf
        self._led()
        self._plan_lease_check()

    def _take_up(self) -> None:
        """What waited for a leader is forwarded to it, or was dropped."""
        parked, self._parked = self._parked, []
        for member, call in parked:
            if member.name not in self._group:
                self._parked.append((member, call))
            elif self.chance.random() < 0.5:
                self._serve(member, call)

    def _drop_streams(self, member: Member, life: int) -> None:
        if member.life != life or member.frozen or not member.up:
            return
        self._led()
        if self.world.now - member.alone_since < DROPS_STREAMS - 0.001:
            return
        watches, member.watches = member.watches, {}
        for watch in watches:
            self._send(watch.stream, judge(watch.stream.address, "UNAVAILABLE", "etcdserver: no leader"))

    # Requests

    def arrive(self, call: Call) -> None:
        """A request is at its member."""
        member = call.endpoint.member
        if call.life != member.life or not member.up:
            self._lose(call)
        elif member.frozen:
            member.held.append((self.arrive, (call,)))
            self._lose(call)
        elif call.path == _STATUS:
            self._answer(call, self._status(member))
        elif _is_serializable(call) and (not call.leader or self._knows_leader(member)):
            own = self._own_revision(member)
            holds = self.engine.holds(call.request.compare, own)
            self._answer(call, pb.TxnResponse(header=self._header(member, own), succeeded=holds))
        elif self._led() and member.name in self._group:
            self._serve(member, call)
        elif call.leader and not self._knows_leader(member):
            self._answer(call, Refusal("UNAVAILABLE", "etcdserver: no leader"))
        else:
            self._parked.append((member, call))
            self._lose(call)

    def _knows_leader(self, member: Member) -> bool:
        """It has one, or has not noticed yet that it has none."""
        return (self._led() and member.name in self._group) or self.world.now - member.alone_since < NOTICED

    def _own_revision(self, member: Member) -> int:
        """What it has applied by itself: followers are behind, by chance, and a member never goes back."""
        applied = member.applied
        if member.name != self.leader:
            chance = self._behind
            slow = chance.random() < SLOW_FOLLOWER
            behind = chance.random() * SLOWEST_FOLLOWER if slow else chance.uniform(*self._lag)
            applied = min(applied, 1 + bisect_right(self._moments, self.world.now - behind))
        member.said = max(member.said, applied)
        return member.said

    def _serve(self, member: Member, call: Call) -> None:
        """A member that has a leader. Reads happen now, writes when they are committed."""
        hop = 0.0 if member.name == self.leader else self.chance.random() * 0.002
        path, request = call.path, call.request
        try:
            if path == _TXN:
                check(request)
            elif path == _RANGE:
                answer = pb.RangeResponse(header=self._header(member))
                self.engine.range(request, answer)
                member.said = self.engine.revision
                self._answer(call, answer, hop)
                return
            elif path == _KEEP_ALIVE:
                self._renew(member, call, hop)
                return
        except Refusal as refusal:
            self._answer(call, refusal)
            return
        if (
            path == _TXN
            and not request.success
            and not any(operation.WhichOneof("request") != "request_range" for operation in request.failure)
        ):
            read = pb.TxnResponse(header=self._header(member))
            self.engine.txn(request, read)
            member.said = self.engine.revision
            self._answer(call, read, hop)
            return
        self._pending[call] = None
        # A log is written in order.
        now = self.world.now
        slow = self.chance.uniform(1.0, 2.0) * self.write_seconds if self.write_seconds else 0.0
        at = max(now + hop + slow + self.chance.uniform(*COMMIT), self._stalled_until, self._last_commit)
        self._last_commit = at
        if slow and at >= call.ends:
            self._lose(call)
        self.after(at - now, self._commit, call)

    def _commit(self, call: Call) -> None:
        if call not in self._pending:
            return  # its leader was lost
        if self._stalled_until > self.world.now:
            self.after(self._stalled_until - self.world.now + 0.0001, self._commit, call)
            return
        if not self._led():
            return
        del self._pending[call]
        self._answer(call, self._apply(call), written=True)

    def _apply(self, call: Call) -> Any:
        """A write's one moment."""
        path, request, member = call.path, call.request, call.endpoint.member
        changes: Changes = []
        try:
            if self.full and _grows(path, request):
                raise Refusal("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
            if path == _TXN:
                answer: Any = pb.TxnResponse()
                changes = self.engine.txn(request, answer)
            elif path == _GRANT:
                answer = self._grant(request)
            elif path == _REVOKE:
                changes = self._revoke(request.ID)
                answer = pb.LeaseRevokeResponse()
            elif path == _COMPACT:
                self.engine.compact(request.revision)
                answer = pb.CompactionResponse()
            else:
                raise Refusal("UNIMPLEMENTED", f"unknown method {path}")
        except Refusal as refusal:
            return refusal
        answer.header.CopyFrom(self._header(member))
        member.said = self.engine.revision
        if changes:
            self._publish(changes, call.endpoint.client.owner)
        return answer

    def _publish(self, changes: Changes, owner: str) -> None:
        revision = self.engine.revision
        self._moments.append(self.world.now)
        if self._observers:
            events = tuple(
                Event("delete" if event.type == pb.Event.DELETE else "put", key_value(event.kv)) for event, _ in changes
            )
            for observer in self._observers:
                observer(self.world.now, revision, events, owner)
        keys = [event.kv.key for event, _ in changes]
        for name in self._group:
            member = self.members[name]
            member.applied = revision
            for watch in member.watches:
                if not watch.due and any(watch.covers(key) for key in keys):
                    self._kick(watch)

    def _header(self, member: Member, revision: int = 0) -> pb.Header:
        """`revision` is the member's own where it answers without asking the others: as it does to a watch."""
        engine = self.engine
        return pb.Header(
            cluster_id=engine.cluster_id,
            member_id=member.id,
            revision=revision or engine.revision,
            raft_term=self.term,
        )

    def _status(self, member: Member) -> pb.StatusResponse:
        leader = self.leader if self._led() and member.name in self._group else None
        return pb.StatusResponse(
            header=self._header(member),
            version="3.4.23",
            leader=0 if leader is None else self.members[leader].id,
            raft_term=self.term,
        )

    def _answer(self, call: Call, answer: Any, after: float = 0.0, *, written: bool = False) -> None:
        if call.future.done():
            return
        endpoint = call.endpoint
        member = endpoint.member
        delay = self.network.delay(member.name, endpoint.client.machine)
        lost = delay is None or member.frozen or call.life != member.life
        if written and self._lost_answers:
            lost = self.chance.random() < self._lost_answers or lost
        if lost or delay is None or self.world.now + after + delay >= call.ends:
            self._lose(call)
        else:
            self.after(after + delay, self._deliver, call, answer)

    def _deliver(self, call: Call, answer: Any) -> None:
        if not call.future.done():
            if isinstance(answer, Refusal):
                answer = judge(call.endpoint.address, answer.code, answer.words)
            call.future.set_result(answer)

    def _lose(self, call: Call) -> None:
        """Nothing will be heard of it: the client waits until its time is over."""
        if not call.lost and not call.future.done():
            call.lost = True
            self.after(max(0.0, call.ends - self.world.now), self.expire, call)

    def expire(self, call: Call) -> None:
        """The client's time for it is over."""
        if not call.future.done():
            call.future.set_result(judge(call.endpoint.address, "DEADLINE_EXCEEDED", "Deadline Exceeded"))

    # Leases

    def _grant(self, request: pb.LeaseGrantRequest) -> pb.LeaseGrantResponse:
        if request.ID in self.engine.leases:
            raise Refusal("FAILED_PRECONDITION", "etcdserver: lease already exists")
        lease = request.ID or self.chance.getrandbits(62) + 1
        self.engine.leases[lease] = Lease(request.TTL, self.world.now + request.TTL)
        self._plan_lease_check()
        return pb.LeaseGrantResponse(ID=lease, TTL=request.TTL)

    def _renew(self, member: Member, call: Call, hop: float) -> None:
        lease = call.request.ID
        held = self.engine.leases.get(lease)
        answer = pb.LeaseKeepAliveResponse(header=self._header(member), ID=lease)
        if held is not None and held.ends <= self.world.now:
            held.waiting.append(call)  # it is over, and answered when it is gone
            self._lose(call)
            return
        if held is not None:
            held.ends = self.world.now + held.ttl
            answer.TTL = held.ttl
        self._answer(call, answer, hop)

    def _revoke(self, lease: int) -> Changes:
        held = self.engine.leases.get(lease)
        changes = self.engine.revoke(lease)
        for call in held.waiting if held is not None else ():
            gone = pb.LeaseKeepAliveResponse(header=self._header(call.endpoint.member), ID=lease)
            self._answer(call, gone)
        return changes

    def _plan_lease_check(self) -> None:
        """The leader looks every half second; between two looks that find nothing, nobody needs to be woken."""
        first = min((lease.ends for lease in self.engine.leases.values()), default=math.inf)
        if first == math.inf:
            return
        at = self._phase + math.ceil((first - self._phase) / LEASE_CHECK) * LEASE_CHECK
        at = max(at, self.world.now + 0.001)
        if at < self._lease_check_at:
            self._lease_check_at = at
            self.after(at - self.world.now, self._check_leases, at)

    def _check_leases(self, at: float) -> None:
        if at != self._lease_check_at:
            return  # an earlier look was planned since
        self._lease_check_at = math.inf
        now = self.world.now
        if self._led() and self._stalled_until <= now:
            for lease in [lease for lease, held in self.engine.leases.items() if held.ends <= now]:
                changes = self._revoke(lease)
                if changes:
                    self._publish(changes, "")
            self._plan_lease_check()
        elif self.engine.leases:
            self._lease_check_at = now + LEASE_CHECK
            self.after(LEASE_CHECK, self._check_leases, self._lease_check_at)

    # Watches

    def open_watch(self, stream: "Stream", request: pb.WatchCreateRequest, leader: bool) -> None:
        """A request for a watch is at its member."""
        member = stream.endpoint.member
        if stream.life != member.life or not member.up or stream.ended:
            return
        if member.frozen:
            member.held.append((self.open_watch, (stream, request, leader)))
            return
        alone = not self._led() or member.name not in self._group
        if alone and leader and self.world.now - member.alone_since >= NOTICED:
            self._send(stream, judge(stream.address, "UNAVAILABLE", "etcdserver: no leader"))
            return
        position = request.start_revision or member.applied + 1
        watch = Watch(stream, member, request.key, request.range_end, position)
        watch.due = True  # first of all it is told that it was created
        member.watches[watch] = None
        stream.watch = watch
        self._send(stream, pb.WatchResponse(header=self._header(member, member.applied), created=True))

    def _kick(self, watch: Watch) -> None:
        """There may be news: they travel."""
        if watch.due or watch.stream.ended or watch.life != watch.member.life:
            return
        watch.due = True
        machine = watch.stream.endpoint.client.machine
        delay = self.network.delay(watch.member.name, machine)
        if delay is None:
            self._try_again(watch)
            return
        chance = self.chance
        slow = chance.random() < self._slow
        lag = chance.random() * self._slowest if slow else chance.uniform(*self._lag)
        lag += self.lags.get(machine, 0.0)
        self.after(delay + lag, self._flush, watch)

    def _try_again(self, watch: Watch) -> None:
        """What a wire loses is sent again, until the connection is given up."""
        watch.stream.endpoint.suspect()
        watch.tries += 1
        self.after(min(0.2 * 2 ** (watch.tries - 1), 1.6), self._flush, watch)

    def _flush(self, watch: Watch) -> None:
        """All news arrive."""
        stream, member = watch.stream, watch.member
        if stream.ended or watch.life != member.life or watch not in member.watches:
            return
        if stream.endpoint.client.is_gone():
            return
        if member.frozen:
            watch.due = False  # the thaw kicks it
            return
        if not self.network.reaches(member.name, stream.endpoint.client.machine):
            self._try_again(watch)
            return
        watch.due, watch.tries = False, 0
        engine = self.engine
        if watch.position < engine.compacted:
            del member.watches[watch]
            stream.take(pb.WatchResponse(header=self._header(member), canceled=True, compact_revision=engine.compacted))
            return
        response: pb.WatchResponse | None = None
        revisions = 0
        while watch.position <= member.applied and revisions < BATCH:
            covered = [event for event, _ in engine.changes(watch.position) if watch.covers(event.kv.key)]
            if covered and response is None:
                response = pb.WatchResponse(header=self._header(member, member.applied))
            if response is not None:
                response.events.extend(covered)
            revisions += bool(covered)
            watch.position += 1
        if response is not None:
            member.said = max(member.said, watch.position - 1)
            stream.take(response)
        if watch.position <= member.applied:
            watch.due = True
            self.after(NEXT_BATCH, self._flush, watch)

    def _send(self, stream: "Stream", message: Any, tries: int = 0) -> None:
        """That it was created, or why it ends: until it arrives."""
        if stream.ended:
            return
        delay = self.network.delay(stream.endpoint.member.name, stream.endpoint.client.machine)
        if delay is None:
            stream.endpoint.suspect()
            self.after(min(0.2 * 2**tries, 1.6), self._send, stream, message, tries + 1)
        else:
            self.after(delay, self._tell, stream, message)

    def _tell(self, stream: "Stream", message: Any) -> None:
        stream.take(message)
        watch = stream.watch
        if watch is not None and not stream.ended:
            watch.due = False
            if watch.position <= watch.member.applied:
                self._kick(watch)


def _grows(path: str, request: Any) -> bool:
    """Whether etcd refuses this under an alarm for space: what puts a key, in either case, and a new lease."""
    if path != _TXN:
        return path == _GRANT
    return any(each.WhichOneof("request") == "request_put" for each in (*request.success, *request.failure))


def _is_serializable(call: Call) -> bool:
    """Whether a member answers it by itself. Etcd does so where every operation is a serializable range, thus also
    where there is none; our messages have no serializable ranges."""
    return call.path == _TXN and not call.request.success and not call.request.failure
