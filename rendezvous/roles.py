"""Which node does what, where a job has roles (pure).

Nodes come untyped, and get the role that the job needs most, or are typed (`--node-role`) and take no other. A role
that is declared earlier has priority:

  1. survivors keep their role, and their position in it;
  2. each role gets its minimum, in the declared order: from standbys first, then from nodes of the role declared last
     of those that have more than their minimum;
  3. what is left lets roles grow to their maximum, in the declared order.

A node that comes into a role takes the position of a lost one there. A role with `on-loss=one` shares no process group:
its nodes come and go alone, and no other worker restarts or gets another rank for it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

from . import ranks
from .base.frozen import dataclass
from .member import MAX_WORKERS, Member
from .ranks import NodeWorkers
from .wire.fields import Name, Number
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

    @property
    def optional(self) -> bool:
        """The job goes on when the workers of this role have used up their restarts: its minimum is 0, no other worker
        restarts with it, and its success is not needed. Any less, and somebody may wait for it for ever."""
        return not self.min_nodes and self.on_loss == "one" and not self.counts


@dataclass(frozen=True, slots=True)
class RoleMember:
    """The role at one position of the rank order, and the member that has it; None where that node is lost."""

    role: str
    member: Member | None


@dataclass(frozen=True, slots=True)
class Filled:
    """Who does what.

    Attributes:
        ranked: in rank order: the roles in the declared order. Each has a member.
        missing: (role, how many nodes) of each role that is below its minimum; a round needs that to be empty.
        standbys: who has no role.
    """

    ranked: tuple[RoleMember, ...]
    missing: tuple[tuple[str, int], ...]
    standbys: tuple[Member, ...]


def fill(
    roles: Sequence[Role], before: Sequence[RoleMember], newcomers: Sequence[Member], *, grow: bool = True
) -> Filled:
    """Gives every role its nodes.

    Args:
        roles: in the declared order.
        before: the last round's, in rank order, with survivors only; empty before the first round.
        newcomers: nodes that had no role, in order of arrival.
        grow: give a role more nodes than it had before, beyond its minimum.
    """
    members = {role.name: [each.member for each in before if each.role == role.name] for role in roles}
    anew = [role.name for role in roles if not _count(members[role.name])]
    waiting = list(newcomers)
    for role in roles:
        _take(role, members[role.name], waiting, role.min_nodes)
    for role in roles:
        while _count(members[role.name]) < role.min_nodes and (moved := _from_another_role(roles, members, waiting)):
            _put(members[role.name], (moved,))
    for role in roles:
        _take(role, members[role.name], waiting, role.max_nodes if grow else len(members[role.name]))
    for name in anew:
        members[name] = [*ranks.order((), [member for member in members[name] if member])]
    ranked = [RoleMember(role.name, member) for role in roles for member in members[role.name] if member]
    short = ((role.name, role.min_nodes - _count(members[role.name])) for role in roles)
    return Filled(tuple(ranked), tuple((name, more) for name, more in short if more > 0), tuple(waiting))


def continue_alone(
    roles: Sequence[Role],
    before: Mapping[str, NodeWorkers],
    nodes: Sequence[Member],
    node_workers: Sequence[NodeWorkers],
    failed: Collection[str],
) -> tuple[tuple[Member, ...], tuple[NodeWorkers, ...], tuple[str, ...]]:
    """The next round in rank order, and the incarnations whose workers continue.

    Some do only where each role that has lost one, has a failed one or gets one restarts one alone; and not where they
    meet on the first node and that is another one, nor where the framework has told each of them the addresses of all
    (`Member.worker_ports`), and one of their role has come or gone.

    Args:
        before: by incarnation, who did what in the last round, in rank order.
        nodes, node_workers: of the next round, by roles.
        failed: incarnations whose workers have to be started anew.
    """
    after = {member.incarnation: workers for member, workers in zip(nodes, node_workers, strict=True)}
    same = [each for each, workers in after.items() if _is_like(before.get(each), workers)]
    stay = [each for each in same if each not in failed]
    touched = {workers.role for each, workers in (*before.items(), *after.items()) if each not in stay}
    alone = {role.name for role in roles if role.on_loss == "one"}
    known = any(member.worker_ports for member in nodes)
    meet = known or any(after[each].role not in alone for each in stay)
    nobody = tuple(nodes), tuple(node_workers), ()
    if not stay or not touched or not touched <= alone or (meet and nodes[0].incarnation != next(iter(before))):
        return nobody
    stand, new_stand = (dict(zip(some, ranks.places(tuple(some.values())), strict=True)) for some in (before, after))
    sizes, new_sizes = (Counter(workers.role for workers in some.values()) for some in (before, after))
    if known and any(stand[i] != new_stand[i] or sizes[after[i].role] != new_sizes[after[i].role] for i in stay):
        return nobody
    kept = ranks.keep_ranks(nodes, node_workers, {each: stand[each] for each in same})
    return tuple(member for member, _ in kept), tuple(workers for _, workers in kept), tuple(stay)


def _is_like(before: NodeWorkers | None, after: NodeWorkers) -> bool:
    """As many workers of the same role."""
    return before is not None and (before.role, before.nproc) == (after.role, after.nproc)


def _take(role: Role, members: list[Member | None], waiting: list[Member], up_to: int) -> None:
    """Fills a role from those who wait: first from those who can take no other."""
    room = max(0, up_to - _count(members))
    chosen = [
        *(each for each in waiting if each.node_role == role.name),
        *(each for each in waiting if not each.node_role),
    ]
    taken = {member.incarnation for member in chosen[:room]}
    waiting[:] = [each for each in waiting if each.incarnation not in taken]
    _put(members, chosen[:room])


def _from_another_role(
    roles: Sequence[Role], members: dict[str, list[Member | None]], waiting: list[Member]
) -> Member | None:
    """The node that can best be taken out of its role: its position goes to one that can take no other, or to none."""
    for role in reversed(roles):
        held = members[role.name]
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


def _put(members: list[Member | None], added: Sequence[Member]) -> None:
    """Into the empty positions, in order, and after the last."""
    coming = iter(added)
    for index in [index for index, held in enumerate(members) if held is None]:
        members[index] = next(coming, None)
    members.extend(coming)


def _count(members: Sequence[Member | None]) -> int:
    return sum(member is not None for member in members)
