"""Who is registered, who is lost and how that is known, and who may come back.

A part of the controller (pure). What follows from an event is effects and, in their order, who is lost or was heard.
"""

import dataclasses
import math
from collections import deque
from collections.abc import Collection, Mapping

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.identity.secret import OTHER_SECRET
from ...rendezvous.keys import Keys
from ...rendezvous.member import DEPARTING, Member
from ...rendezvous.node_reasons import LeaseExpired, NodeReason, NotRegistered, NotReturned, StartedAgain, Unexplained
from ...rendezvous.round import Seen
from . import effects, events
from .changes import Change, Heard, Lost
from .effects import Effect

RETURN_SECONDS = 10.0
"""So long a node has to register again, when its lease ended because the store was away and its agent answers."""

SILENT_SECONDS = 3.0
"""The same of a node whose agent does not answer: it may be out of reach for this node alone."""

LEASE_LATE = 1.0
"""Seconds after its last that a lease may still be there: etcd looks every half second."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A node whose lease ended when the store had been away, so that this tells nothing of the node.

    Attributes:
        since: when its key was missed (the master's clock).
        seen: as it was last seen; None where this master never saw it.
        answers: its agent has answered since then.
    """

    node: str
    since: float
    seen: Seen | None
    answers: bool = False


class Membership:
    """Of one leadership; `number` is that of the current round, `now` the master's clock, in seconds.

    Args:
        keys: what the job's keys are called.
        lost_how: incarnations that are proven dead, each with the proof; what is learned is added.
        lease_ttl: seconds that a node's lease lives.
    """

    def __init__(self, keys: Keys, lost_how: dict[str, NodeReason], lease_ttl: float) -> None:
        self._keys = keys
        self._lost_how = lost_how
        self._lease_ttl = lease_ttl
        self._away_until = -math.inf  # the store
        self._members: dict[str, Seen] = {}  # by node; `gone/INCARNATION` where it has left after its success
        self._ignored: dict[str, None] = {}  # nodes whose key holds no member, and that have been said
        self._watched = set[str]()  # incarnations
        self._awaited: dict[str, _Awaited] = {}  # by incarnation
        self._overdue: dict[str, NodeReason] = {}  # incarnations that were awaited in vain, or evicted before, and why
        self._unconfirmed = False  # since leases ended, it has not been asked whether this node still leads
        self._removed: deque[tuple[int, str]] = deque()  # since which revision the dead are in the store no more

    @property
    def seen(self) -> Collection[Seen]:
        """The registered nodes, and those that have left after their success."""
        return self._members.values()

    @property
    def by_incarnation(self) -> Mapping[str, Member]:
        """The same."""
        return {seen.member.incarnation: seen.member for seen in self._members.values()}

    @property
    def present(self) -> Mapping[str, str]:
        """The registered nodes, by incarnation."""
        return {seen.member.incarnation: node for node, seen in self._members.items() if not seen.gone}

    @property
    def keys_held(self) -> Collection[str]:
        """The nodes that have a key in the store, whatever it holds."""
        return {*self._members, *self._ignored}

    @property
    def returning(self) -> tuple[str, ...]:
        """The nodes that may register again."""
        return tuple(awaited.node for awaited in self._awaited.values())

    def host_of(self, node: str) -> str:
        """Empty where it is not registered."""
        return seen.member.host if (seen := self._members.get(node)) else ""

    def has_left(self, incarnation: str) -> bool:
        """It has left after its success in the current round."""
        return f"gone/{incarnation}" in self._members

    def standbys(self, in_round: Collection[str], mismatched: Collection[str]) -> list[Member]:
        """Nodes that could have a part in the round: without these, which were started with something else."""
        return [
            seen.member
            for node, seen in self._members.items()
            if seen.member.incarnation not in in_round
            and seen.member.report.state == "waiting"
            and not seen.gone
            and node not in mismatched
        ]

    def on(self, event: events.MembershipEvent, number: int, now: float) -> list[Change]:
        match event:
            case events.Registered():
                return self._register(event, number, now)
            case events.Unregistered(node):
                return self._unregister(node, number, now)
            case events.Died():
                return self._die(event, number, now)
            case events.Refused(node, incarnation):
                # While that was written the node's user may have started it again, under the same key.
                if (held := self._members.get(node)) and held.member.incarnation == incarnation:
                    return self._lose(self._members.pop(node), number)
            case events.Answered(incarnation):
                if awaited := self._awaited.get(incarnation):
                    self._awaited[incarnation] = dataclasses.replace(awaited, answers=True)
            case events.Evicted(incarnation, revision):
                self._removed.append((revision, incarnation))
            case events.StoreAway(until):
                self._away_until = until
        return []

    def begin_round(self) -> None:
        for node in [node for node, seen in self._members.items() if seen.gone]:
            del self._members[node]
        self._overdue.clear()

    def adopt(self, header: Header, found: events.Found, now: float) -> list[Lost]:
        """Goes on with what an earlier master has left; who of its running round is missing."""
        present = set(self.by_incarnation)
        for success in found.successes:
            member = success.member
            if member and member.incarnation not in present and member.report.round == header.number:
                self._members[f"gone/{member.incarnation}"] = Seen(member, 0, now, gone=True)
                present.add(member.incarnation)
        return [
            Lost(each.node, each.incarnation, None, self._how(each.incarnation, NotRegistered()))
            for each in found.assigned
            if each.incarnation not in present and header.state == "open"
        ]

    def forget_dead(self, in_round: Collection[str]) -> None:
        """This master leads from now on: of the dead, only who is registered still or was in the round matters."""
        for incarnation in [each for each in self._lost_how if each not in self._watched]:
            if incarnation not in in_round:
                del self._lost_how[incarnation]

    def forget_removed(self, revision: int, in_round: Collection[str]) -> list[Effect]:
        """The watch has told of all before `revision`: who was removed until then is not heard of again.

        Of the current round the proofs are kept until the next is published, which they explain.
        """
        todo = list[Effect]()
        while self._removed and self._removed[0][0] < revision and self._removed[0][1] not in in_round:
            _, incarnation = self._removed.popleft()
            self._lost_how.pop(incarnation, None)
            todo += self._unwatch(incarnation)
        return todo

    # -- leases that ended while the store was away -----------------------------------------------------------------

    def await_missing(self, found: events.Found, began: float, now: float) -> list[Effect]:
        """What a new master does where nodes of the round are missing, and the store was away, or may have been.

        A node that has just registered cannot know. One that did so some time ago has renewed its lease meanwhile.

        Args:
            found: of a job that is not over.
            began: since when this master's node has renewed a lease.
        """
        self._overdue.update((each.incarnation, each.reason) for each in found.evictions)
        unknown = now - began < self._lease_ttl / 2 or now - self._away_until < RETURN_SECONDS
        if not (unknown or self._was_away(now)):
            return []
        known = {*self.by_incarnation, *self._lost_how, *self._overdue, *(each.incarnation for each in found.successes)}
        missing = [each for each in found.assigned if each.incarnation not in known]
        return [self._await(each.incarnation, _Awaited(each.node, now, None), each.agent_address) for each in missing]

    def await_returns(self, number: int, now: float) -> tuple[list[Change], float | None]:
        """Gives up those that are overdue; until when to wait for the others, None: there are none."""
        changes, untils = list[Change](), list[float]()
        for incarnation, awaited in list(self._awaited.items()):
            until = max(awaited.since, self._away_until) + (RETURN_SECONDS if awaited.answers else SILENT_SECONDS)
            if now < until and incarnation not in self._lost_how:
                untils.append(until)
            else:
                changes += self._give_up(incarnation, NotReturned(awaited.answers), number)
        return changes, min(untils, default=None)

    def ask_confirmation(self) -> bool:
        """Leases have ended, this leadership's perhaps too: whether it still leads is asked once."""
        asks, self._unconfirmed = self._unconfirmed, False
        return asks

    def _was_away(self, now: float) -> bool:
        """A lease that has just ended may have ended because the store was away, and not its holder."""
        return now - self._away_until < self._lease_ttl + LEASE_LATE

    def _await(self, incarnation: str, awaited: _Awaited, address: str) -> Effect:
        self._awaited[incarnation] = awaited
        self._unconfirmed = True
        return effects.Listen(awaited.node, incarnation, address)

    def _give_up(self, incarnation: str, why: NodeReason, number: int) -> list[Change]:
        """That node is not awaited any more: it is lost."""
        awaited = self._awaited.pop(incarnation)
        self._overdue[incarnation] = why
        lost = self._lose(awaited.seen, number) if awaited.seen else []
        return [effects.Unlisten(incarnation), *lost]

    # -- who comes and goes -----------------------------------------------------------------------------------------

    def _register(self, event: events.Registered, number: int, now: float) -> list[Change]:
        node, member, changes = event.node, event.member, list[Change]()
        if member is None:
            if node not in self._ignored:
                self._ignored[node] = None
                version = "its value is not a member (another version of elastic-run?)"
                why = f"it has {OTHER_SECRET}" if event.sealed else version
                changes.append(effects.Say(f"ignoring {self._keys.node(node)}: {why}"))
            return changes
        proof = self._lost_how.get(member.incarnation)
        if member.incarnation not in self._watched and (proof or member.agent_address):
            self._watched.add(member.incarnation)
            changes.append(effects.Watch(node, event.order, member.incarnation, member.agent_address, proof))
        if proof:
            return changes
        for incarnation, awaited in list(self._awaited.items()):
            if awaited.node == member.node and incarnation != member.incarnation:
                changes += self._give_up(incarnation, StartedAgain(), number)
        before = self._members.get(node)
        if before and before.member.incarnation != member.incarnation:
            changes += self._lose(self._members.pop(node), number)
            before = None
        since = before.since if before else event.since
        if awaited := self._awaited.pop(member.incarnation, None):
            changes.append(effects.Unlisten(member.incarnation))
            since = awaited.seen.since if awaited.seen else since
        self._members.pop(f"gone/{member.incarnation}", None)
        waited = before.ready_at if before and before.member.report.ready else now
        self._members[node] = Seen(member, event.order, since, ready_at=waited if member.report.ready else -math.inf)
        return [*changes, Heard(member, before.member.report if before else None)]

    def _unregister(self, node: str, number: int, now: float) -> list[Change]:
        self._ignored.pop(node, None)
        seen = self._members.pop(node, None)
        if seen is None:
            return []
        member = seen.member
        finished = member.report.state in ("succeeded", *DEPARTING)
        if member.incarnation not in self._lost_how and not finished and self._was_away(now):
            return [self._await(member.incarnation, _Awaited(member.node, now, seen), member.agent_address)]
        return self._lose(seen, number)

    def _die(self, event: events.Died, number: int, now: float) -> list[Change]:
        self._lost_how[event.incarnation] = event.how
        seen = self._members.get(event.node)
        if seen and seen.member.incarnation == event.incarnation:
            self._members[event.node] = dataclasses.replace(seen, member=event.last or seen.member)
            # Now: the next round must not wait for the store's news, nor hold the dead.
            return self._unregister(event.node, number, now)
        if (awaited := self._awaited.get(event.incarnation)) and awaited.seen and event.last:
            seen = dataclasses.replace(awaited.seen, member=event.last)
            self._awaited[event.incarnation] = dataclasses.replace(awaited, seen=seen)
        return []

    def _lose(self, seen: Seen, number: int) -> list[Change]:
        """It has left the store for good."""
        incarnation, report = seen.member.incarnation, seen.member.report
        unwatch = [] if incarnation in self._lost_how else self._unwatch(incarnation)
        left = (report.problem or Unexplained()) if report.state in DEPARTING else None
        succeeded = report.state == "succeeded" and report.round == number
        if succeeded:
            self._members[f"gone/{incarnation}"] = dataclasses.replace(seen, gone=True)
        return [*unwatch, Lost(seen.member.node, incarnation, left, self._how(incarnation, LeaseExpired()), succeeded)]

    def _how(self, incarnation: str, otherwise: NodeReason) -> NodeReason:
        """How its loss is known."""
        return self._lost_how.get(incarnation) or self._overdue.get(incarnation, otherwise)

    def _unwatch(self, incarnation: str) -> list[Effect]:
        if incarnation not in self._watched:
            return []
        self._watched.remove(incarnation)
        return [effects.Unwatch(incarnation)]
