"""Ranks: who stands where, for any nodes."""

import dataclasses
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.ranks import assign, order

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")


def member(name: str, *, nproc: int = 1, role: str = "default", topology: str = "", rank: int | None = None) -> Member:
    return Member(name, name.upper(), name, "", nproc, (), FINGERPRINT, role=role, topology=topology, node_rank=rank)


def names(members: tuple[Member, ...]) -> str:
    return "".join(each.node for each in members)


def test_survivors_come_first_then_newcomers_as_they_arrived() -> None:
    assert names(order([member("c"), member("a")], [member("z"), member("b")])) == "cazb"


def test_newcomers_that_asked_for_a_rank_stand_before_those_that_did_not() -> None:
    newcomers = [member("a"), member("b", rank=1), member("c", rank=0), member("d")]
    assert names(order([], newcomers)) == "cbad"


def test_of_two_that_asked_for_one_rank_the_first_to_arrive_gets_it() -> None:
    assert names(order([], [member("b", rank=0), member("a", rank=0)])) == "ba"


def test_a_survivor_gives_its_rank_to_nobody_who_asks_for_it() -> None:
    assert names(order([member("a")], [member("b", rank=0)])) == "ab"


def test_equal_topology_labels_stand_together_in_order_of_their_first() -> None:
    line = [member("a", topology="x"), member("b", topology="y"), member("c", topology="x"), member("d", topology="y")]
    assert names(order([], line)) == "acbd"


def test_a_newcomer_joins_the_survivors_of_its_label() -> None:
    survivors = [member("a", topology="x"), member("b", topology="y")]
    assert names(order(survivors, [member("c", topology="x")])) == "acb"


def test_nodes_without_a_label_keep_their_order_among_each_other() -> None:
    assert names(order([member("b"), member("a")], [member("x", topology="r"), member("c")])) == "bacx"


def test_the_assignment_of_two_nodes_of_two_and_three_workers() -> None:
    first, second = assign(7, [member("a", nproc=2), member("b", nproc=3)])
    assert (first.round, first.node, first.incarnation) == (7, "a", "A")
    assert (first.group_rank, first.group_size, first.first_rank, first.nproc, first.world_size) == (0, 2, 0, 2, 5)
    assert (second.group_rank, second.group_size, second.first_rank, second.nproc, second.world_size) == (1, 2, 2, 3, 5)
    assert (second.role_first_rank, second.role_world_size) == (2, 5)


def test_roles_are_counted_apart() -> None:
    nodes = [
        member("a", nproc=2, role="actor"),
        member("b", nproc=1, role="learner"),
        member("c", nproc=3, role="actor"),
    ]
    roles = [(each.role_first_rank, each.role_world_size) for each in assign(1, nodes)]
    assert roles == [(0, 5), (0, 1), (2, 5)]


@st.composite
def lines(draw: st.DrawFn) -> list[Member]:
    """Some nodes, each with a name of its own."""
    return [
        member(
            f"n{number}",
            nproc=draw(st.integers(1, 8)),
            role=draw(st.sampled_from(["default", "actor", "learner"])),
            topology=draw(st.sampled_from(["", "x", "y"])),
            rank=draw(st.none() | st.integers(0, 5)),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


@settings(deadline=None, max_examples=60)
@given(lines())
def test_every_rank_from_zero_is_given_once_in_one_piece_per_node(line: list[Member]) -> None:
    assignments = assign(1, line)
    ranks = [rank for each in assignments for rank in range(each.first_rank, each.first_rank + each.nproc)]
    world = sum(each.nproc for each in line)
    assert ranks == list(range(world))
    assert all(each.world_size == world for each in assignments)
    assert [each.group_rank for each in assignments] == list(range(len(line)))
    assert all(each.group_size == len(line) for each in assignments)
    assert [(each.node, each.incarnation, each.nproc) for each in assignments] == [
        (each.node, each.incarnation, each.nproc) for each in line
    ]


@settings(deadline=None, max_examples=60)
@given(lines())
def test_every_role_rank_from_zero_is_given_once_in_the_order_of_the_ranks(line: list[Member]) -> None:
    of_role: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for each, assignment in zip(line, assign(1, line), strict=True):
        ranks = range(assignment.role_first_rank, assignment.role_first_rank + assignment.nproc)
        of_role.setdefault(each.role, []).extend(ranks)
        sizes[each.role] = assignment.role_world_size
    assert of_role == {role: list(range(size)) for role, size in sizes.items()}


@settings(deadline=None, max_examples=60)
@given(lines(), lines())
def test_nobody_is_lost_or_doubled_in_the_order_and_labels_stand_together(
    one: list[Member], other: list[Member]
) -> None:
    newcomers = [dataclasses.replace(each, node=f"new-{each.node}") for each in other]
    line = order(one, newcomers)
    assert sorted(each.node for each in line) == sorted(each.node for each in (*one, *newcomers))
    labels = [label for label, _ in itertools.groupby(each.topology for each in line)]
    assert len(labels) == len(set(labels))


@settings(deadline=None, max_examples=60)
@given(lines(), lines(), st.sets(st.integers(0, 11)))
def test_survivors_of_a_round_keep_their_order_whoever_was_lost_and_whoever_comes(
    one: list[Member], other: list[Member], lost: set[int]
) -> None:
    before = order(one, [])
    survivors = [each for index, each in enumerate(before) if index not in lost]
    newcomers = [dataclasses.replace(each, node=f"new-{each.node}") for each in other]
    after = [each for each in order(survivors, newcomers) if not each.node.startswith("new-")]
    assert after == survivors
