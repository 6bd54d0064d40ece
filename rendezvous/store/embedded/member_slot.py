"""Which member of the embedded store this machine should run, if any: pure decisions over what was seen.

The theory. The endpoints name the members of one static etcd cluster; each is a *member slot*. A member slot on this
machine that nobody serves is taken by one agent, in one of four ways:

    nothing is known of it               start     a new member of a new cluster
    its data is here                     restart   on that data
    the quorum waits for it, unstarted   join      with the quorum's own list of members
    the quorum knows it, data is lost    replace   remove the dead member, add a new one, then as above

Invariants: a member never starts empty under an identity that a live quorum remembers (it could vote twice);
a member slot is replaced only while a majority of the others answers, so that removing a dead member takes no vote
from the living; and never in a cluster that this program did not start, or that it started for other endpoints.

For the first of these, a machine that is cut off cannot know whether a quorum lives: where so many of the others cannot
be reached that they may be one, nothing starts empty. That costs nothing, because without them there is no majority.

A store has a *birth*, a random value written once when its quorum first stood. Data is good only for the store
that it was born with: data left over from an earlier store at the same endpoints is set aside. With its birth, the
store keeps the list of endpoints that it was started with. A command that names others never changes it.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

from ...base.frozen import dataclass
from ..endpoint import Endpoint, authority

PEER_OFFSET = 10_000
"""Members talk to each other on the clients' port plus this."""

MEMBER_PREFIX = "elastic-run-"
"""Begins the name of each member that was started here, and that of its folder."""


def peer_port(port: int) -> int:
    """The members' port beside clients' `port`; wraps to 1024 and up, past the ports that need root."""
    beyond = port + PEER_OFFSET
    return beyond if beyond < 65_536 else beyond - 65_536 + 1024


def peer_url(endpoint: Endpoint) -> str:
    """Where the other members reach the member of `endpoint`: the same text on every machine."""
    scheme = "https" if endpoint.secret else "http"
    return f"{scheme}://{authority(endpoint.host, peer_port(endpoint.port))}"


def member_name(endpoint: Endpoint) -> str:
    """The member's name in etcd; the prefix marks it as ours."""
    return MEMBER_PREFIX + re.sub(r"[^a-z0-9.-]", "-", str(endpoint))


def cluster_token(endpoints: Sequence[Endpoint], generation: int = 1) -> str:
    """What etcd derives its cluster's and members' ids from: equal for the same endpoints in any order.

    Stores of different secrets have different ones, so that none starts on the data of another.
    """
    protected = "".join(sorted({endpoint.secret for endpoint in endpoints}))
    text = ",".join(sorted(map(str, endpoints))) + f"#{generation}{protected}"
    return MEMBER_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:12]


def static_cluster(endpoints: Sequence[Endpoint]) -> str:
    """`--initial-cluster` of a new store: every member's name and peer URL."""
    return ",".join(f"{member_name(endpoint)}={peer_url(endpoint)}" for endpoint in sorted(endpoints, key=str))


def port_clash(endpoints: Sequence[Endpoint]) -> str | None:
    """Why these endpoints cannot share their hosts: one's peer port is another's port."""
    ports = {(endpoint.host, endpoint.port): endpoint for endpoint in endpoints}
    peers: dict[tuple[str, int], Endpoint] = {}
    for endpoint in endpoints:
        key = (endpoint.host, peer_port(endpoint.port))
        other = ports.get(key) or peers.get(key)
        if other is not None:
            return (
                f"the members of the store at {endpoint} use port {key[1]} for their own traffic, and {other} needs it "
                f"too: choose ports that are less than {PEER_OFFSET} apart"
            )
        peers[key] = endpoint
    return None


@dataclass(frozen=True, slots=True)
class Member:
    """One member as the quorum lists it; `started`: it has been up once and said where its clients connect."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    started: bool = True


def joining_cluster(members: Sequence[Member], endpoints: Sequence[Endpoint]) -> str:
    """`--initial-cluster` of a member that joins the listed ones; unstarted ones get the name that they will have."""
    names = {peer_url(endpoint): member_name(endpoint) for endpoint in endpoints}
    return ",".join(
        f"{names.get(url) or member.name or f'unstarted-{member.id:x}'}={url}"
        for member in members
        for url in member.peer_urls
    )


class Reach(StrEnum):
    """What an endpoint did when asked for a linearizable read."""

    ANSWERS = "answers"
    SILENT = "accepts connections and does not answer"
    FOREIGN = "is not etcd"
    STRANGER = "is not this job's store"
    REFUSED = "refuses connections"
    UNREACHABLE = "cannot be reached"
    UNRESOLVABLE = "does not resolve"


@dataclass(frozen=True, slots=True)
class Probe:
    """One endpoint, as just seen.

    Attributes:
        birth: the store's birth where it answered and has one.
        member: the id of the member that answered, or 0.
        detail: more for a person, or empty.
        listed: the endpoints (as text) that the store was started with; empty where it does not say.
    """

    endpoint: Endpoint
    reach: Reach
    birth: str = ""
    member: int = 0
    detail: str = ""
    listed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.endpoint} {self.reach}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Data:
    """Data of an endpoint's member on this machine; birth empty and member 0 where it never saw its quorum."""

    endpoint: Endpoint
    birth: str = ""
    member: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """Everything the decision needs.

    Attributes:
        probes: every endpoint, in the user's order.
        local: the endpoints that are this machine.
        busy: local ones whose lock another agent's member holds.
        data: what lies on this machine for local endpoints.
        members: the quorum's list of members, or None where it was not asked or does not tell.
        idle: the quorum answers and no job has a node in it: its members may be about to stop.
        hosted: the endpoint that this agent has started.
        remembered: local endpoints that could not start empty, since a member remembers them.
        patient: seconds that this has lasted were enough for anything transient to pass.
        theirs: the hosted member is that of another command, started again for it.
    """

    probes: tuple[Probe, ...]
    local: frozenset[Endpoint] = frozenset()
    busy: frozenset[Endpoint] = frozenset()
    data: tuple[Data, ...] = ()
    members: tuple[Member, ...] | None = None
    idle: bool = False
    hosted: Endpoint | None = None
    remembered: frozenset[Endpoint] = frozenset()
    patient: bool = False
    theirs: bool = False


Action = Literal["use", "start", "anew", "restart", "join", "replace", "discard", "wait", "refuse"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next, to which member slot, and why.

    use: the store answers; done.
    anew: as start, under another identity: a minority with old data remembers the usual one.
    start, restart, join, replace: take the member slot of `endpoint` in this way (see the module).
    discard: its data belongs to another store, or its member waits in vain: stop it and set the data aside.
    wait: for others; `reason` says for whom.
    refuse: these endpoints can never be served, or they are not those of the store that answers.
    """

    action: Action
    reason: str
    endpoint: Endpoint | None = None


def missing_members(probes: Sequence[Probe]) -> tuple[Endpoint, ...]:
    """The endpoints that nobody serves. One that is silent has a member: it waits for the others."""
    absent = (Reach.REFUSED, Reach.UNREACHABLE, Reach.UNRESOLVABLE, Reach.FOREIGN, Reach.STRANGER)
    return tuple(probe.endpoint for probe in probes if probe.reach in absent)


def vacant(view: View) -> tuple[Endpoint, ...]:
    """Member slots here that this agent may try to take, best first: where data lies, then in the user's order."""
    if view.hosted is not None:
        return ()
    kept = {data.endpoint for data in view.data}
    free = [
        probe.endpoint
        for probe in view.probes
        if probe.reach is Reach.REFUSED
        and probe.endpoint in view.local
        and probe.endpoint not in view.busy
        and not probe.endpoint.own
    ]
    return tuple(sorted(free, key=lambda endpoint: endpoint not in kept))


def decide(view: View) -> Decision:
    """The next step towards a store that answers, with a member slot on this machine filled where one is vacant."""
    answering = [probe for probe in view.probes if probe.reach is Reach.ANSWERS]
    birth = next((probe.birth for probe in answering if probe.birth), "")
    if other := next((probe for probe in answering if _is_of_other_endpoints(view, probe)), None):
        return Decision(
            "refuse",
            f"the store that answers at {other.endpoint} was started with --rdzv-endpoint="
            f"{','.join(sorted(other.listed))}, and this command names "
            f"{','.join(str(probe.endpoint) for probe in view.probes)}: nothing was changed. Name the same endpoints "
            "as the commands that use that store, or choose a port on which no store runs",
        )
    if stranger := next((probe for probe in view.probes if probe.reach is Reach.STRANGER), None):
        return Decision("refuse", f"the store at {stranger.endpoint} cannot be used: {stranger.detail}")
    if view.hosted is not None:
        return _with_member(view, view.hosted, answering, birth)
    slots = vacant(view)
    if not slots:
        if answering:
            return Decision("use", "the store answers")
        # One that accepts connections is somebody's etcd. Where nobody has one, no agent will start these.
        absent = len(missing_members(view.probes)) == len(view.probes) and not any(p.endpoint.own for p in view.probes)
        if absent and view.patient and len(view.probes) % 2 == 0:
            return _refuse_even(view.probes)
        return Decision("wait", waiting_for(view.probes))
    slot = slots[0]
    if answering:
        return _beside_quorum(view, slot, len(answering), birth)
    if len(view.probes) % 2 == 0:
        return _refuse_even(view.probes)
    if any(data.endpoint == slot for data in view.data):
        return Decision("restart", f"the member at {slot} restarts with its data", slot)
    if _may_hide_a_quorum(view.probes):
        return Decision("wait", waiting_for(view.probes), slot)
    if slot in view.remembered and view.patient:
        return Decision(
            "anew", f"the members that know {slot} have no majority: forming a new store without them", slot
        )
    if slot in view.remembered:
        return Decision(
            "wait",
            f"the other members know {slot}, and its data is not on this machine: it can be replaced "
            f"when a majority answers; {waiting_for(view.probes)}",
            slot,
        )
    return Decision("start", f"no store answers at {slot}, which is this machine", slot)


def _is_of_other_endpoints(view: View, probe: Probe) -> bool:
    """The store that answers there was started for other endpoints than this command names.

    A client may name some of the endpoints, or spell them in another way, as an address instead of a name. Only a
    machine that would run a member has to name them as the store does.
    """
    if not probe.listed:
        return False
    own = (view.hosted,) if view.hosted is not None else vacant(view)
    wanted = () if view.theirs else own
    return len(view.probes) > len(probe.listed) or any(str(endpoint) not in probe.listed for endpoint in wanted)


def _refuse_even(probes: Sequence[Probe]) -> Decision:
    return Decision(
        "refuse",
        f"no store answers at {_listed(probes)}, and elastic-run starts a store with one endpoint or an odd number of "
        f"endpoints: {len(probes)} members tolerate no more losses than {len(probes) - 1}",
    )


def _with_member(view: View, hosted: Endpoint, answering: Sequence[Probe], birth: str) -> Decision:
    if any(probe.endpoint == hosted for probe in answering):
        return Decision("use", f"the member at {hosted} answers", hosted)
    data = next((data for data in view.data if data.endpoint == hosted), Data(hosted))
    # Data that never saw a quorum may be about to; data that was born with another store cannot belong to this one.
    if birth and data.birth != birth and (data.birth or view.patient):
        return Decision("discard", f"the other members formed a store without {hosted}", hosted)
    if birth and data.birth == birth and view.patient:
        return Decision("use", f"the store answers; the member at {hosted} is still catching up", hosted)
    return Decision("wait", waiting_for(view.probes), hosted)


def _beside_quorum(view: View, slot: Endpoint, answering: int, birth: str) -> Decision:
    if view.members is None or not any(member.name.startswith(MEMBER_PREFIX) for member in view.members):
        return Decision("use", "the store answers, and elastic-run did not start it")
    known = next((member for member in view.members if peer_url(slot) in member.peer_urls), None)
    if known is None and not any(str(slot) in probe.listed for probe in view.probes):
        if view.patient:
            return Decision("use", f"the store answers, and does not list {slot} as one of its endpoints")
        return Decision("wait", "the store has just started and does not list its endpoints yet")
    data = next((data for data in view.data if data.endpoint == slot), None)
    if data is not None:
        if known is not None and birth and data.birth == birth and data.member == known.id:
            return Decision("restart", f"the member at {slot} restarts with its data", slot)
        return Decision("discard", f"the data of {slot} on this machine belongs to an earlier store", slot)
    if answering < len(view.members) // 2 + 1:
        if view.patient:
            return Decision("use", f"the store answers, but too few members are reachable to replace the one at {slot}")
        return Decision("wait", f"a majority must answer before the member at {slot} can be replaced", slot)
    if known is not None and not known.started:
        return Decision("join", f"the other members wait for the member at {slot}", slot)
    if view.idle and not view.patient:
        return Decision("wait", "the store that answers has no job and may stop soon", slot)
    return Decision("replace", f"the member at {slot} is dead, and its data is not on this machine", slot)


def _may_hide_a_quorum(probes: Sequence[Probe]) -> bool:
    """Those that cannot be reached are a majority: their store may live, and know the member that has lost its data."""
    unknown = sum(probe.reach in (Reach.UNREACHABLE, Reach.UNRESOLVABLE) for probe in probes)
    return unknown > len(probes) // 2


def waiting_for(probes: Sequence[Probe]) -> str:
    seen = "; ".join(map(str, probes))
    if len(probes) == 1:
        return f"the store does not answer: {seen}"
    silent = sum(probe.reach in (Reach.SILENT, Reach.ANSWERS) for probe in probes)
    short = len(probes) // 2 + 1 - silent
    if short > 0:
        more = f"{short} more member{'s are' if short > 1 else ' is'} needed for a majority of {len(probes)}"
        return f"the store waits for its quorum: {more} ({seen})"
    return f"the store's members are electing a leader: {seen}"


def _listed(probes: Iterable[Probe]) -> str:
    return ", ".join(str(probe.endpoint) for probe in probes)
