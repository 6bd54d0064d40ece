"""Which node does what, where a job has roles (pure).

Nodes come untyped, and get the role that the job needs most, or are typed (`--node-role`) and take no other. A role
that is declared earlier has priority:

  1. survivors keep their role, and their place in it;
  2. each role gets its minimum, in the declared order: from standbys first, then from nodes of the role declared last
     of those that have more than their minimum;
  3. what is left lets roles grow to their maximum, in the declared order.

A node that comes into a role takes the place of a lost one there, so that the ranks of all others stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from . import ranks
from .fields import Name, Number
from .member import MAX_WORKERS, Member
from .wire.values import Count, Text, Within

OnLoss = Literal["all", "one"]
"""What is started again when a worker or a node of a role fails: the workers of the whole job, or of this node only."""

MAX_ROLES = 32


@dataclass(frozen=True, slots=True)
class Role:
    """One role of a job, as the user declared it.

    Attributes:
        min_nodes, max_nodes: how many nodes have it in a round.
        nproc: worker processes on each of them; 0: as many as the node has otherwise.
        command: what they run, script and arguments; empty: the job's command.
        on_loss: what is started again when one of its workers or nodes fails.
        counts: the job has succeeded when all roles that count have.
    """

    name: Name
    min_nodes: Number
    max_nodes: Annotated[int, Within(1, 1 << 20)]
    nproc: Annotated[int, Within(0, MAX_WORKERS)] = 0
    command: Annotated[tuple[Annotated[str, Text(1 << 16)], ...], Count(1 << 12)] = ()
    on_loss: OnLoss = "all"
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in rank order: its role, and who has it; None where that node is lost."""

    role: str
    member: Member | None


@dataclass(frozen=True, slots=True)
class Filled:
    """Who does what.

    Attributes:
        seats: in rank order: the roles in the declared order. Each has a member.
        missing: (role, how many nodes) of each role that is below its minimum; a round needs that to be empty.
        standbys: who has no place.
    """

    seats: tuple[Seat, ...]
    missing: tuple[tuple[str, int], ...]
    standbys: tuple[Member, ...]


def fill(roles: Sequence[Role], before: Sequence[Seat], newcomers: Sequence[Member], *, grow: bool = True) -> Filled:
    """Gives every role its nodes.

    Args:
        roles: in the declared order.
        before: the last round's, in rank order, with survivors only; empty before the first round.
        newcomers: nodes that had no place, in order of arrival.
        grow: give a role more nodes than it had before, beyond its minimum.
    """
    places = {role.name: [seat.member for seat in before if seat.role == role.name] for role in roles}
    anew = [role.name for role in roles if not _count(places[role.name])]
    waiting = list(newcomers)
    for role in roles:
        _take(role, places[role.name], waiting, role.min_nodes)
    for role in roles:
        while _count(places[role.name]) < role.min_nodes and (moved := _spare(roles, places, waiting)):
            _put(places[role.name], (moved,))
    for role in roles:
        _take(role, places[role.name], waiting, role.max_nodes if grow else len(places[role.name]))
    for name in anew:
        places[name] = [*ranks.order((), [member for member in places[name] if member])]
    seats = [Seat(role.name, member) for role in roles for member in places[role.name] if member]
    short = ((role.name, role.min_nodes - _count(places[role.name])) for role in roles)
    return Filled(tuple(seats), tuple((name, more) for name, more in short if more > 0), tuple(waiting))


def _take(role: Role, places: list[Member | None], waiting: list[Member], up_to: int) -> None:
    """Fills a role from those who wait: first from those who can take no other."""
    room = max(0, up_to - _count(places))
    chosen = [
        *(each for each in waiting if each.node_role == role.name),
        *(each for each in waiting if not each.node_role),
    ]
    taken = {member.incarnation for member in chosen[:room]}
    waiting[:] = [each for each in waiting if each.incarnation not in taken]
    _put(places, chosen[:room])


def _spare(roles: Sequence[Role], places: dict[str, list[Member | None]], waiting: list[Member]) -> Member | None:
    """The node that can best be taken out of its role: its place stays empty, or goes to one that can take no other."""
    for role in reversed(roles):
        held = places[role.name]
        heir = next((each for each in waiting if each.node_role == role.name), None)
        if _count(held) <= role.min_nodes and heir is None:
            continue
        for index in reversed(range(len(held))):
            member = held[index]
            if member and not member.node_role:
                held[index] = heir
                if heir:
                    waiting.remove(heir)
                return member
    return None


def _put(places: list[Member | None], members: Sequence[Member]) -> None:
    """Into the empty places, in order, and after the last."""
    coming = iter(members)
    for index in [index for index, held in enumerate(places) if held is None]:
        places[index] = next(coming, None)
    places.extend(coming)


def _count(places: Sequence[Member | None]) -> int:
    return sum(member is not None for member in places)
