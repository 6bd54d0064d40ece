"""How many nodes a job wants, and what may be read of that."""

import dataclasses

import pytest

from elastic_run.master.machine.targets import PlannedSize, Target, Targets, plan_words, read_targets
from elastic_run.master.machine.targets import targets as targets_of
from elastic_run.rendezvous.header import HeaderState
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.reasons import Finishing, JobOver, KeepsItsSize, MayHave
from elastic_run.rendezvous.roles import MAX_ROLES, Role
from elastic_run.rendezvous.round import NodeWorkers, Policy, Round, Seen, survey
from elastic_run.rendezvous.wire.values import Malformed, encode

POLICY = Policy(min_nodes=2, max_nodes=8)
ROLES = (Role("ps", 1, 1, counts=False), Role("worker", 2, 4), Role("evaluator", 0, 1, counts=False))
WITH_ROLES = Policy(min_nodes=3, max_nodes=6, roles=ROLES)


def seen(name: str, *exits: Exit) -> Seen:
    report = Report("running", 3, exits)
    return Seen(Member(name, name, name, "", 1, (5001,), Fingerprint("", (), "", "", ""), report=report), 1, 0.0)


def running(*names: str, roles: tuple[str, ...] = ()) -> Round:
    return Round(3, names, True, 0.0, node_workers=tuple(NodeWorkers(role, 1) for role in roles))


def targets(
    members: tuple[Seen, ...], current: Round, policy: Policy, ended: HeaderState | None = None
) -> tuple[Target, ...]:
    return targets_of(current, policy, finishing=survey(members, current, policy).finishing, ended=ended)


def done(rank: int) -> Exit:
    return Exit(3, rank, 0, 1, code=0)


def test_a_job_wants_its_maximum_before_its_first_round_while_it_runs_and_while_it_is_suspended() -> None:
    wanted = (Target("", 8, MayHave("", 2, 8)),)
    assert targets((), Round(0, (), False, 0.0), POLICY) == wanted
    assert targets((seen("a"), seen("b")), running("a", "b"), POLICY) == wanted
    assert targets((seen("a"),), dataclasses.replace(running("a", "b"), running=False), POLICY) == wanted


def test_a_target_is_a_size_that_a_round_can_have() -> None:
    policy = Policy(min_nodes=3, max_nodes=9, node_unit=4)
    assert targets((), Round(0, (), False, 0.0), policy) == (Target("", 8, MayHave("", 4, 8)),)


def test_each_role_has_a_target() -> None:
    found = targets((), Round(0, (), False, 0.0), WITH_ROLES)
    assert [(target.role, target.count) for target in found] == [("ps", 1), ("worker", 4), ("evaluator", 1)]
    assert [str(target.reason) for target in found] == [
        "role ps may have 1 node",
        "role worker may have 2:4 nodes",
        "role evaluator may have 0:1 nodes",
    ]


def test_a_job_that_is_not_to_grow_wants_the_nodes_that_it_has_and_before_its_first_round_its_maximum() -> None:
    never = dataclasses.replace(POLICY, scale_up="never")
    members = seen("a"), seen("b"), seen("c")
    # c waits as a standby; where b is lost, its place is still wanted.
    assert targets(members, running("a", "b"), never) == (Target("", 2, KeepsItsSize()),)
    assert targets(members[:1], running("a", "b"), never) == (Target("", 2, KeepsItsSize()),)
    assert targets((), Round(0, (), False, 0.0), never) == (Target("", 8, MayHave("", 2, 8)),)


def test_a_plan_says_how_many_a_job_wants_until_it_finishes_and_roles_have_none() -> None:
    plan = Target("", 4, PlannedSize("4 nodes: 1 more node would add 3 %, by what 2, 4 and 8 nodes did"))
    now = running("a", "b")
    assert targets_of(now, POLICY, finishing=False, planned=plan) == (plan,)
    assert targets_of(now, POLICY, finishing=True, planned=plan) == (Target("", 2, Finishing(3)),)
    assert targets_of(now, POLICY, finishing=False, ended="failed", planned=plan) == (Target("", 0, JobOver("failed")),)
    assert [each.count for each in targets_of(now, WITH_ROLES, finishing=False, planned=plan)] == [1, 4, 1]
    assert plan_words([plan]) == ["4 nodes: 1 more node would add 3 %, by what 2, 4 and 8 nodes did"]
    assert read_targets(encode(Targets((plan,))), [""]) == Targets((plan,))


def test_a_job_that_is_finishing_wants_no_more_nodes_than_it_has() -> None:
    members = seen("a", done(0)), seen("b")
    assert targets(members, running("a", "b"), POLICY) == (Target("", 2, Finishing(3)),)


@pytest.mark.parametrize(("who", "finishes"), [("a", False), ("b", True)])
def test_only_roles_that_count_finish_a_job(who: str, finishes: bool) -> None:
    members = tuple(seen(name, *([done(0)] if name == who else [])) for name in "abc")
    found = targets(members, running("a", "b", "c", roles=("ps", "worker", "worker")), WITH_ROLES)
    assert [target.count for target in found] == ([1, 2, 0] if finishes else [1, 4, 1])


def test_a_job_that_has_ended_wants_no_nodes() -> None:
    found = targets((seen("a"),), running("a", "b"), POLICY, "failed")
    assert found == (Target("", 0, JobOver("failed")),)
    assert str(found[0].reason) == "the job has ended: failed"


WRITTEN = encode(Targets(targets((), Round(0, (), False, 0.0), WITH_ROLES)))


def test_what_is_written_is_read_for_the_roles_of_the_job() -> None:
    assert encode(read_targets(WRITTEN, ("ps", "worker", "evaluator"))) == WRITTEN


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"4", "expected an object"),
        (b"", "not JSON"),
        (b"{}", "fields that this version does not know"),
        (WRITTEN.replace(b'"count":4', b'"count":4,"machine":"large"'), "fields that this version does not know"),
        (WRITTEN.replace(b'"count":4', b'"count":-1'), r"\.wanted\[1\]\.count: a number from 0"),
        (WRITTEN.replace(b"MayHave", b"MayBorrow"), "the code 'MayBorrow' is not one of"),
        (WRITTEN.replace(b'"worker"', b'"writer"'), "or other roles than .*worker"),
        (encode(Targets((Target("", 1, KeepsItsSize()),) * (MAX_ROLES + 1))), "33 items, and at most 32"),
    ],
)
def test_what_this_version_does_not_write_is_refused_in_words(value: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read_targets(value, ("ps", "worker", "evaluator"))


def test_the_targets_of_the_most_roles_fit_a_value_of_any_store() -> None:
    name = "x" * 253
    widest = Targets((Target(name, (1 << 53) - 1, MayHave(name, (1 << 53) - 1, (1 << 53) - 1)),) * MAX_ROLES)
    assert len(encode(widest)) < 25_000
