"""Every role gets the nodes that it needs: each behaviour of `fill`, then its invariants for any nodes."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.roles import Filled, Role, RoleMember, fill

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")
JOB = (Role("chief", 1, 1), Role("ps", 2, 2), Role("worker", 1, 4), Role("evaluator", 0, 1))


def node(name: str, only: str = "", topology: str = "") -> Member:
    return Member(name, name.upper(), name, "", 1, (), FINGERPRINT, node_role=only, topology=topology)


def nodes(names: str) -> list[Member]:
    """`a b:ps`: a takes any role, b only that one."""
    return [node(*word.split(":")) for word in names.split()]


def ranked(text: str, lost: str = "") -> list[RoleMember]:
    """`a=ps b=worker`, without the nodes that are lost; `b:worker=worker` is typed."""
    pairs = [word.split("=") for word in text.split()]
    return [RoleMember(role, None if name in lost.split() else nodes(name)[0]) for name, role in pairs]


def told(filled: Filled) -> str:
    return " ".join(f"{each.member.node}={each.role}" for each in filled.ranked if each.member)


def test_minimums_come_first_in_the_declared_order_and_then_growth_in_the_same() -> None:
    assert told(fill(JOB, [], nodes("a b c d"))) == "a=chief b=ps c=ps d=worker"
    assert told(fill(JOB, [], nodes("a b c d e f"))) == "a=chief b=ps c=ps d=worker e=worker f=worker"
    more = fill(JOB, [], nodes("a b c d e f g h i"))
    assert told(more).endswith("f=worker g=worker h=evaluator")
    assert [member.node for member in more.standbys] == ["i"]


def test_a_role_without_its_minimum_is_named() -> None:
    assert fill(JOB, [], nodes("a b")).missing == (("ps", 1), ("worker", 1))


def test_typed_nodes_take_their_role_and_no_other() -> None:
    assert told(fill(JOB, [], nodes("a:worker b c d e:ps"))) == "b=chief e=ps c=ps a=worker d=worker"
    assert fill(JOB, [], nodes("a:worker b:worker c:worker d:worker")).missing == (("chief", 1), ("ps", 2))
    assert [each.node for each in fill(JOB, [], nodes("a b c d x:evaluator y:evaluator")).standbys] == ["y"]


def test_survivors_keep_their_role_and_a_standby_takes_the_lost_place() -> None:
    before = ranked("a=chief b=ps c=ps d=worker e=worker", lost="b")
    assert told(fill(JOB, before, nodes("s"))) == "a=chief s=ps c=ps d=worker e=worker"
    before = ranked("a=chief b=ps c=ps d=worker e=worker f=worker", lost="d")
    assert told(fill(JOB, before, nodes("s"), grow=False)) == "a=chief b=ps c=ps s=worker e=worker f=worker"


def test_without_a_standby_a_node_of_the_least_role_above_its_minimum_takes_the_place() -> None:
    before = ranked("a=chief b=ps c=ps d=worker e=worker", lost="b")
    assert told(fill(JOB, before, [])) == "a=chief e=ps c=ps d=worker"
    before = ranked("a=chief b=ps c=ps d=worker e=worker f=evaluator", lost="a")
    assert told(fill(JOB, before, [])) == "f=chief b=ps c=ps d=worker e=worker"
    assert fill(JOB, ranked("a=chief b=ps c=ps d=worker", lost="b"), []).missing == (("ps", 1),)


def test_a_typed_node_is_not_moved_but_lets_another_go() -> None:
    before = ranked("a=chief b=ps c=ps d=worker e:worker=worker", lost="b")
    assert told(fill(JOB, before, [])) == "a=chief d=ps c=ps e=worker"
    before = ranked("a=chief b=ps c=ps d=worker", lost="b")
    assert told(fill(JOB, before, nodes("t:worker"))) == "a=chief d=ps c=ps t=worker"
    before = ranked("a=chief b=ps c=ps d:worker=worker e:worker=worker", lost="b")
    assert fill(JOB, before, []).missing == (("ps", 1),)


def test_without_growth_standbys_stay_standbys() -> None:
    before = ranked("a=chief b=ps c=ps d=worker")
    assert [each.node for each in fill(JOB, before, nodes("s"), grow=False).standbys] == ["s"]


def test_a_new_role_has_equal_topology_labels_together() -> None:
    roles = (Role("worker", 1, 4),)
    members = [node("a", topology="x"), node("b", topology="y"), node("c", topology="x")]
    assert told(fill(roles, [], members)) == "a=worker c=worker b=worker"


NAMES = tuple("abcdefghijkl")


@st.composite
def jobs(draw: st.DrawFn) -> tuple[tuple[Role, ...], list[Member]]:
    ranges = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=4))
    roles = tuple(Role(f"r{i}", least, max(1, least + more)) for i, (least, more) in enumerate(ranges))
    types = st.sampled_from(("", "", *(role.name for role in roles)))
    return roles, [node(name, draw(types)) for name in NAMES[: draw(st.integers(0, len(NAMES)))]]


def held(filled: Filled) -> dict[str, str]:
    return {each.member.node: each.role for each in filled.ranked if each.member}


def possible(roles: Sequence[Role], members: Sequence[Member]) -> bool:
    """Every minimum can be met: by those who can take no other role, and by anybody else."""
    short = sum(max(0, role.min_nodes - sum(each.node_role == role.name for each in members)) for role in roles)
    return sum(not each.node_role for each in members) >= short


@given(jobs(), st.data())
def test_a_filling_is_right_whoever_comes_and_goes(
    job: tuple[tuple[Role, ...], list[Member]], data: st.DataObject
) -> None:
    roles, members = job
    come = data.draw(st.integers(0, len(members)))
    before = fill(roles, [], members[:come])
    lost = data.draw(st.sets(st.sampled_from(NAMES)))
    left = [
        RoleMember(each.role, None if each.member and each.member.node in lost else each.member)
        for each in before.ranked
    ]
    waiting = [each for each in (*before.standbys, *members[come:]) if each.node not in lost]
    grow = data.draw(st.booleans())
    after = fill(roles, left, waiting, grow=grow)
    here = [each.member for each in left if each.member] + waiting
    assert sorted(each.node for each in here) == sorted([*held(after), *(each.node for each in after.standbys)])
    assert all(not each.node_role or held(after).get(each.node, each.node_role) == each.node_role for each in here)
    assert bool(after.missing) != possible(roles, here)
    counts = {role.name: list(held(after).values()).count(role.name) for role in roles}
    assert all(counts[role.name] <= role.max_nodes for role in roles)
    order = [each.role for each in after.ranked]
    assert order == [role.name for role in roles for _ in range(counts[role.name])]
    # A role changes only where some role would miss its minimum.
    short = possible(roles, here) and any(
        sum(each.role == role.name and each.member is not None for each in left) < role.min_nodes for role in roles
    )
    assert short or after.missing or all(held(after)[each.member.node] == each.role for each in left if each.member)
