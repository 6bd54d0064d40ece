"""Who is in the job's current round: the one place where membership is decided (pure).

A *round* is a set of nodes in rank order that train together. It never changes: a change of membership is a new
round with the next number. `decide` looks at the registered members and the current round, and says to keep the
round, to open a new one, to suspend the job until enough nodes are back, or to finish. The master carries it out
(`master/master.py`); every decision comes with its reason (`reasons.py`), which the master publishes with it.

                 maximum in, or minimum in and last call over
      gathering ─────────────────────────────────────────────▶ running ──▶ finished (succeeded)
                                                                │   ▲
           loss, failure, departure or joining, minimum left ───┤   │
                                                                │   ├── a new round, at once: workers start anew
                                                                │   └── a new round in place: workers that have the
                                                                │       job's state keep their process
           the same, but below the minimum ──▶ suspended ───────┘
                                                  │ nobody came in time
                                                  └──▶ finished (timeout)

Invariants, whatever the members report:
  - a round holds only registered members that are not leaving, each once;
  - its size is a multiple of the node unit, between the minimum and the maximum;
  - survivors keep their rank order, and in a job with roles also their role, unless an earlier role would lack a node;
    workers that continue there keep their ranks, whoever comes and goes;
  - time only ever delays a decision that the deadlines in `Policy` name; nothing else waits.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from . import ranks, reasons
from .base.frozen import dataclass, field, replace
from .member import DEPARTING, Member
from .node_reasons import ReturnWanted, Unexplained
from .ranks import NodeWorkers
from .reasons import FaultReason, Nodes, Reason, Restarts
from .roles import MAX_ROLES, Filled, Role, RoleMember, continue_alone, fill
from .wire.values import Count

Cause = Literal["start", "failure", "lost", "left", "joined", "problem"]
"""Why a round was opened: the job began or came back, a worker failed, a node was lost, a node left in order,
a node joined, or a node could not start its workers (a port was taken)."""

Outcome = Literal["succeeded", "failed", "repeated", "preempted", "timeout"]
"""How a job ends. `repeated`: the same failure again and again without progress."""


OnHang = Literal["report", "restart", "fail"]
"""What is done about a job that stands still. report: it is said why. restart: the suspect is killed, too, so that the
job continues with new workers. fail: the job fails."""

OnStraggler = Literal["report", "replace"]
"""What is done about a rank for which the others wait in each step. report: it is said. replace: its node leaves, too,
where a standby can take its place."""

ScaleUp = Literal["now", "commit", "never"]
"""When joining nodes are admitted."""

IN_PLACE_SETTLE = 1.0
"""At most so many seconds a joining node waits for others and for the last change, if no worker restarts for it."""

READY_SECONDS = 60.0
"""So long it may take to get its workers ready, before it is admitted without."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user asked for. Times are in seconds.

    Attributes:
        min_nodes, max_nodes: how many nodes a round may have.
        node_unit: a round's size is a multiple of this (slices, racks).
        last_call: with the minimum in but not the maximum, the first round waits this long after the last join;
            short, because a node that is late is admitted later.
        join_timeout: how long the first round may wait for the minimum.
        recovery_timeout: how long a suspended job waits for nodes to come back.
        scale_up: admit joining nodes ("now"), as soon as a checkpoint has been written ("commit"), or only when a round
            must be opened anyway ("never").
        settle: after a join, wait this long for others, because each change restarts unchanged scripts.
        scale_up_interval: open at most one round per this for joining nodes' sake.
        roles: of the job; `min_nodes` and `max_nodes` are then their sums, and `node_unit` is 1. Empty: it has none.
        state_from_rank_0: workers that keep their process take the job's state from rank 0, whoever that is.
    """

    min_nodes: int
    max_nodes: int
    node_unit: int = 1
    last_call: float = 3.0
    join_timeout: float = 600.0
    recovery_timeout: float = 600.0
    scale_up: ScaleUp = "now"
    settle: float = 10.0
    scale_up_interval: float = 60.0
    roles: Annotated[tuple[Role, ...], Count(MAX_ROLES)] = ()
    state_from_rank_0: bool = False

    @property
    def span(self) -> str:
        """`2:8`, or `4` where the number is fixed."""
        return f"{self.min_nodes}:{self.max_nodes}" if self.min_nodes != self.max_nodes else str(self.min_nodes)

    def largest_world(self, nproc: int) -> int:
        """The most workers that the job can come to have, where a node has `nproc` of them."""
        if self.roles:
            return sum(role.max_nodes * (role.nproc or nproc) for role in self.roles)
        return self.max_nodes * nproc

    @property
    def usable_minimum(self) -> int:
        """The smallest size that a round can have: the minimum, as a multiple of the unit."""
        return -(-self.min_nodes // self.node_unit) * self.node_unit

    def usable(self, nodes: int) -> int:
        """The largest size that a round of `nodes` candidates can have; 0 where that is below the minimum."""
        size = min(nodes, self.max_nodes) // self.node_unit * self.node_unit
        return size if size >= self.min_nodes else 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A member as the master sees it.

    Attributes:
        member: what the node says.
        order: its key's create revision: the order of arrival, the same for every master.
        since: when it registered, as far as the master's node has heard (its clock, seconds).
        gone: it has left the store after all its workers had succeeded; kept so that its success counts.
        ready_at: since when its workers wait for a rank (`Report.ready`), on the same clock; long ago if they do not.
        finishes: the rounds in which a worker of it has trained to the end, or has ended with exit code 0. Found once,
            so that no look at all the members goes through the exits of each.
    """

    member: Member
    order: int
    since: float
    gone: bool = False
    ready_at: float = -math.inf
    finishes: frozenset[int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        report = self.member.report
        trained = (report.round,) if report.done else ()
        ended = (exit_.round for exit_ in report.exits if exit_.ok)
        object.__setattr__(self, "finishes", frozenset((*trained, *ended)))


@dataclass(frozen=True, slots=True)
class Fault:
    """What the incident judge says of failed workers in the current round (see `master/machine/incident.py`).

    Attributes:
        reason: what the incident is, and why the job must end, where it must.
        cause: what the next round is to be charged to.
        fatal: how the job ends on account of it, or None where a new round may be opened.
        settled_at: when the evidence is complete (the master's clock); a fatal verdict waits for that.
        root_by: where only ranks that lost another have told of it: so long whoever ended first may still say why.
        alike_by: where the job must end if every rank failed alike: so long the others may still report it.
    """

    reason: FaultReason
    cause: Cause
    fatal: Outcome | None
    settled_at: float
    root_by: float = -math.inf
    alike_by: float = -math.inf


@dataclass(frozen=True, slots=True)
class Round:
    """The current round as the master sees it; number 0 is the time before the first.

    Attributes:
        number: one sequence for the life of the job.
        nodes: the incarnations in it, in rank order.
        node_workers: what each of them does there, in a job with roles; else empty.
        running: the nodes train; False while gathering (`nodes` then is empty) or suspended (`nodes` then are the
            last round's, whose survivors keep their order).
        opened_at: when it was opened, as far as the master's node has heard (its clock); before the first, since when
            that node waits for it.
        fault: what the judge says of failed workers in it.
        grown_at: when a round was last opened for a joining node; long ago where none was.
        saved_at: when this master last heard that workers of it had written a checkpoint; long ago where it did not.
    """

    number: int
    nodes: tuple[str, ...]
    running: bool
    opened_at: float
    fault: Fault | None = None
    grown_at: float = -math.inf
    saved_at: float = -math.inf
    node_workers: tuple[NodeWorkers, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """Change nothing; look again at `until` (the master's clock), or at the next event where it is None."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """Open the next round with these nodes, in rank order.

    Attributes:
        node_workers: what each of them does, in a job with roles; else empty.
        untouched: the incarnations whose workers continue, with the ranks that they have; all others start theirs anew.
    """

    nodes: tuple[Member, ...]
    cause: Cause
    node_workers: tuple[NodeWorkers, ...] = ()
    untouched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenInPlace(Open):
    """Open the next round with these nodes; workers of some of them keep their process.

    An agent keeps those of its workers that have said they can, and starts the others, which get the job's state from
    those that have it. An agent's news of its workers may be newer than this, and then it goes by that.
    """


@dataclass(frozen=True, slots=True)
class Suspend:
    """Stop all workers and wait for more nodes."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over."""

    outcome: Outcome


Decision = Keep | Open | OpenInPlace | Suspend | Finish


@dataclass(frozen=True, slots=True)
class Survey:
    """What one walk over the members finds.

    Attributes:
        present: those that are registered, in order of arrival.
        by_incarnation: all members.
        done: every worker of the round whose success is the job's has succeeded.
        finishing: one of them has trained to the end: a node that joins now comes too late.
    """

    present: Sequence[Seen]
    by_incarnation: Mapping[str, Seen]
    done: bool
    finishing: bool


def survey(members: Iterable[Seen], current: Round, policy: Policy) -> Survey:
    """Looks once at each member (and at those `gone`), in any order; `current`, `policy`: as for `decide`."""
    counting = _counting(current, policy) if current.running else frozenset[str]()
    number, finishing = current.number, False
    present: list[Seen] = []
    by_incarnation: dict[str, Seen] = {}
    succeeded: set[str] = set()
    for seen in members:
        incarnation = seen.member.incarnation
        by_incarnation[incarnation] = seen
        if not seen.gone:
            present.append(seen)
        if incarnation in counting:
            finishing = finishing or number in seen.finishes
            if _succeeded(seen.member, number):
                succeeded.add(incarnation)
    present.sort(key=lambda seen: seen.order)
    return Survey(present, by_incarnation, current.running and succeeded.issuperset(counting), finishing)


def decide(found: Survey, current: Round, policy: Policy, now: float) -> tuple[Decision, Reason]:
    """What to do about the membership now, and why.

    Args:
        found: of every registered member, and of those `gone`, with this round and this policy.
        current: the current round.
        policy: what the user asked for.
        now: the master's clock, seconds; only differences of it are used.
    """
    present = found.present
    candidates = [seen for seen in present if seen.member.report.state not in DEPARTING]
    if found.done:
        some = len(_counting(current, policy)) < len(current.nodes)
        return Finish("succeeded"), reasons.AllSucceeded(current.number, counted=some)
    if present and not candidates:
        unfit = [seen.member.report for seen in present if seen.member.report.state == "unfit"]
        if unfit:
            return Finish("failed"), reasons.NoNodeFit(unfit[0].problem or Unexplained())
        return Finish("preempted"), reasons.AllLeaving(_nodes(present))
    if current.running:
        return _running(found, candidates, current, policy, now)
    return _gathering(candidates, current, policy, now)


def _gathering(candidates: Sequence[Seen], current: Round, policy: Policy, now: float) -> tuple[Decision, Reason]:
    first = not current.nodes
    have, span = len(candidates), policy.span
    size = _usable(candidates, current, policy)
    if size == 0:
        limit = policy.join_timeout if first else policy.recovery_timeout
        deadline = current.opened_at + limit
        if now >= deadline:
            return Finish("timeout"), reasons.TooFewNodes(have, span, limit, _lacking(candidates, current, policy))
        missing, lacking = _missing(candidates, current, policy), _lacking(candidates, current, policy)
        return Keep(deadline), reasons.WaitingForNodes(have, span, missing, limit, lacking)
    if not first:
        return _open(candidates, current, policy, size, "start"), reasons.JoinedAgain(have, span)
    if size == policy.max_nodes:
        return _open(candidates, current, policy, size, "start"), reasons.AllJoined(size)
    call_ends = max(seen.since for seen in candidates) + policy.last_call
    if now < call_ends:
        return Keep(call_ends), reasons.LastCall(have, span, policy.last_call)
    return _open(candidates, current, policy, size, "start"), reasons.LastCallOver(have, span, policy.last_call)


def _running(
    found: Survey, candidates: Sequence[Seen], current: Round, policy: Policy, now: float
) -> tuple[Decision, Reason]:
    in_round = [found.by_incarnation.get(incarnation) for incarnation in current.nodes]
    undone = [seen for seen in in_round if seen is None or not _succeeded(seen.member, current.number)]
    lost = [seen for seen in undone if seen is None or seen.gone]
    left = [seen for seen in undone if seen and seen.member.report.state in DEPARTING]
    fault = current.fault
    if fault and fault.fatal:
        if now < fault.settled_at:
            return Keep(fault.settled_at), reasons.AwaitingReports(fault.reason, "any")
        return Finish(fault.fatal), fault.reason

    cause: Cause | None = None
    what: FaultReason | reasons.NodesMissing | reasons.NodesLeaving | None = None
    if lost:
        cause, what = "lost", reasons.NodesMissing(len(lost), len(current.nodes))
        if fault and (fault.cause in ("lost", "left") or isinstance(fault.reason, ReturnWanted)):  # who left is gone
            cause, what = fault.cause, fault.reason
    elif left:
        cause, what = "left", fault.reason if fault else reasons.NodesLeaving(_nodes(left))
    elif fault:
        if now < fault.alike_by:
            return Keep(fault.alike_by), reasons.AwaitingReports(fault.reason, "all")
        if now < fault.root_by:
            return Keep(fault.root_by), reasons.AwaitingReports(fault.reason, "first")
        cause, what = fault.cause, fault.reason
    if cause and what:
        if cause != "problem":
            candidates = _able(candidates, current, policy)
        size = _usable(candidates, current, policy)
        if size == 0:
            have, missing = len(candidates), _missing(candidates, current, policy)
            lacking = _lacking(candidates, current, policy)
            limit = policy.recovery_timeout
            return Suspend(cause), reasons.Suspended(what, have, policy.min_nodes, missing, limit, lacking)
        return _open(candidates, current, policy, size, cause), what

    in_the_round = frozenset(current.nodes)
    newcomers = [seen for seen in candidates if seen.member.incarnation not in in_the_round]
    if not newcomers:
        return Keep(), reasons.NoChange()
    if in_round and all(seen and seen.member.report.keeps for seen in in_round):
        policy = _quickly(policy)
        until = {seen.order: max(seen.since, current.opened_at) + READY_SECONDS for seen in newcomers}
        busy = [seen for seen in newcomers if not seen.member.report.ready and now < until[seen.order]]
        busy = busy if not policy.roles else []  # which role's workers they would get ready is not known
        not_yet = {seen.order for seen in busy}
        newcomers = [seen for seen in newcomers if seen.order not in not_yet]
        candidates = [seen for seen in candidates if seen.order not in not_yet]
        if busy and _usable(candidates, current, policy) <= len(current.nodes):
            return Keep(min(until[seen.order] for seen in busy)), reasons.PreparingWorkers(_nodes(busy))
        # Those that came together are ready nearly together: one round for all of them, and not one for the first.
        together = max((seen.since for seen in newcomers), default=-math.inf) + policy.settle
        soon = [seen for seen in busy if seen.since <= together]
        ready = [seen.ready_at for seen in newcomers if seen.member.report.ready]
        if soon and ready and now < (deadline := min(max(ready) + policy.settle, min(ready) + 3 * policy.settle)):
            return Keep(deadline), reasons.PreparingWorkers(_nodes(soon))
        return _joins(newcomers, candidates, found, current, policy, now, "none")
    if policy.roles and len(_open_with_roles(candidates, current, policy, "joined").untouched) == len(in_round):
        return _joins(newcomers, candidates, found, current, _quickly(policy), now, "none")
    some = any(seen and seen.member.report.keeps for seen in in_round)
    return _joins(newcomers, candidates, found, current, policy, now, "some" if some else "all")


def _quickly(policy: Policy) -> Policy:
    """The same for nodes for which no worker restarts."""
    settle, interval = min(policy.settle, IN_PLACE_SETTLE), min(policy.scale_up_interval, IN_PLACE_SETTLE)
    return replace(policy, settle=settle, scale_up_interval=interval)


def _able(candidates: Sequence[Seen], current: Round, policy: Policy) -> Sequence[Seen]:
    """Those that can go on at once, where workers keep their process: who has to start some comes when they are ready.

    All candidates, where these would be too few, where none of them has the job's state, where somebody who lives and
    has it would be left out, or where who is left out now might not be admitted later.
    """
    in_the_round = frozenset(current.nodes)
    here = [seen for seen in candidates if seen.member.incarnation in in_the_round]
    whole = {seen.member.report.keeps for seen in here if seen.member.report.holding} == {True}
    if not whole or policy.scale_up != "now" or policy.roles:
        return candidates
    able = [
        seen
        for seen in candidates
        if (seen.member.report.keeps if seen.member.incarnation in in_the_round else seen.member.report.ready)
    ]
    return able if _usable(able, current, policy) else candidates


def _joins(
    newcomers: Sequence[Seen],
    candidates: Sequence[Seen],
    found: Survey,
    current: Round,
    policy: Policy,
    now: float,
    restarts: Restarts,
) -> tuple[Decision, Reason]:
    nodes = _nodes(newcomers)
    size = _usable(candidates, current, policy)
    if policy.scale_up == "never":
        return Keep(), reasons.NeverScalesUp(nodes)
    if size <= len(current.nodes):
        return Keep(), reasons.NoRoom(nodes, 0 if len(current.nodes) >= policy.max_nodes else policy.node_unit)
    if found.finishing:
        return Keep(), reasons.JoinedTooLate(nodes, current.number)
    arrived = max(seen.since for seen in newcomers)
    # A node that comes and goes must not keep the others out for ever, from when enough were there to grow.
    came = sorted(newcomers, key=lambda seen: seen.since)
    need = next(
        more
        for more in range(1, len(newcomers) + 1)
        if _usable(_without(candidates, came[more:]), current, policy) > len(current.nodes)
    )
    patience = came[need - 1].since + 3 * policy.settle
    ready = max(min(arrived + policy.settle, patience), current.grown_at + policy.scale_up_interval)
    if policy.scale_up == "commit" and current.saved_at < ready:
        return Keep(), reasons.AwaitingCheckpoint(nodes)
    if now < ready:
        return Keep(ready), reasons.Settling(nodes, round(ready - arrived, 1), restarts)
    return _open(candidates, current, policy, size, "joined"), reasons.NodesJoined(nodes, restarts)


def _open(candidates: Sequence[Seen], current: Round, policy: Policy, size: int, cause: Cause) -> Open:
    """The next round: survivors first, in rank order, then joining nodes; the first `size` of them."""
    if policy.roles:
        return _open_with_roles(candidates, current, policy, cause)
    survivors, newcomers = _divide(candidates, current)
    chosen = {member.incarnation for member in (*survivors, *newcomers)[:size]}
    stay = any(member.incarnation in chosen and (member.report.keeps or member.report.holding) for member in survivors)
    if stay and policy.state_from_rank_0:
        survivors.sort(key=lambda member: member.report.holding == 0)
    return (OpenInPlace if stay else Open)(
        ranks.order(
            [member for member in survivors if member.incarnation in chosen],
            [member for member in newcomers if member.incarnation in chosen],
        ),
        cause,
    )


def _open_with_roles(candidates: Sequence[Seen], current: Round, policy: Policy, cause: Cause) -> Open:
    """The next round of a job with roles: with as many workers untouched as can be, else with as many as there are."""
    if cause != "joined":
        exact = _open_ranked(_fill(candidates, current, policy, grow=False).ranked, candidates, current, policy, cause)
        if exact.untouched:
            return exact
    return _open_ranked(_fill(candidates, current, policy).ranked, candidates, current, policy, cause)


def _open_ranked(
    ranked: Sequence[RoleMember], candidates: Sequence[Seen], current: Round, policy: Policy, cause: Cause
) -> Open:
    by_name = {role.name: role for role in policy.roles}
    nodes = tuple(each.member for each in ranked if each.member)
    node_workers = tuple(
        NodeWorkers(each.role, by_name[each.role].nproc or each.member.nproc) for each in ranked if each.member
    )
    failed = {seen.member.incarnation for seen in candidates if _has_failed(seen.member, current.number)}
    # A checkpoint holds the position of all: where one worker returns to it, so do the others.
    leases = any(seen.member.report.leases for seen in candidates)
    before = dict(zip(current.nodes, current.node_workers, strict=True))
    untouched: tuple[str, ...] = ()
    if current.running and not leases:
        nodes, node_workers, untouched = continue_alone(policy.roles, before, nodes, node_workers, failed)
    stay = not untouched and any(
        (held := before.get(member.incarnation)) is not None
        and held.role == workers.role
        and (member.report.keeps or member.report.holding)
        for member, workers in zip(nodes, node_workers, strict=True)
    )
    return (OpenInPlace if stay else Open)(nodes, cause, node_workers, untouched)


def _has_failed(member: Member, number: int) -> bool:
    """Workers of it have failed in round `number`, or its group of them has."""
    report = member.report
    bad = any(not exit_.ok and not exit_.stopped and exit_.round == number for exit_ in report.exits)
    return bad or (report.state == "failed" and report.round == number)


def _fill(candidates: Sequence[Seen], current: Round, policy: Policy, *, grow: bool = True) -> Filled:
    """Who has which role."""
    members = {seen.member.incarnation: seen.member for seen in candidates}
    before = [
        RoleMember(workers.role, members.get(incarnation))
        for incarnation, workers in zip(current.nodes, current.node_workers, strict=True)
    ]
    return fill(policy.roles, before, _divide(candidates, current)[1], grow=grow)


def _divide(candidates: Sequence[Seen], current: Round) -> tuple[list[Member], list[Member]]:
    """The survivors of the round, in rank order, and who was not in it, in order of arrival."""
    rank = {incarnation: index for index, incarnation in enumerate(current.nodes)}
    survivors = sorted(
        (seen.member for seen in candidates if seen.member.incarnation in rank),
        key=lambda member: rank[member.incarnation],
    )
    return survivors, [seen.member for seen in candidates if seen.member.incarnation not in rank]


def _usable(candidates: Sequence[Seen], current: Round, policy: Policy) -> int:
    """How many of the candidates the next round would have; 0 where it cannot be opened with them."""
    if not policy.roles:
        return policy.usable(len(candidates))
    filled = _fill(candidates, current, policy)
    return 0 if filled.missing else len(filled.ranked)


def _without(candidates: Sequence[Seen], others: Sequence[Seen]) -> Sequence[Seen]:
    left = {seen.order for seen in others}
    return [seen for seen in candidates if seen.order not in left]


def _counting(current: Round, policy: Policy) -> frozenset[str]:
    """The incarnations whose success is the job's."""
    if not policy.roles:
        return frozenset(current.nodes)
    count = {role.name for role in policy.roles if role.counts}
    held = zip(current.nodes, current.node_workers, strict=True)
    return frozenset(each for each, workers in held if workers.role in count)


def _succeeded(member: Member, number: int) -> bool:
    return member.report.state == "succeeded" and member.report.round == number


def _missing(candidates: Sequence[Seen], current: Round, policy: Policy) -> int:
    if policy.roles:
        return sum(more for _, more in _fill(candidates, current, policy).missing)
    return policy.usable_minimum - len(candidates)


def _lacking(candidates: Sequence[Seen], current: Round, policy: Policy) -> str:
    """Which roles lack how many nodes, in words: the first few of them; empty without roles."""
    if not policy.roles:
        return ""
    missing = _fill(candidates, current, policy).missing
    more = f" and {len(missing) - reasons.NAMED} more roles" if len(missing) > reasons.NAMED else ""
    return ", ".join(f"{count} {name}" for name, count in missing[: reasons.NAMED]) + more


def _nodes(members: Sequence[Seen]) -> Nodes:
    return Nodes.of([seen.member.node for seen in members])
