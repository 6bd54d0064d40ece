"""Membership of a job with roles: who takes a lost workers, whose workers go on, and when it has succeeded."""

import dataclasses
from collections.abc import Sequence

from elastic_run.rendezvous import ranks
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report, State
from elastic_run.rendezvous.ranks import NodeWorkers
from elastic_run.rendezvous.roles import OnLoss, Role
from elastic_run.rendezvous.round import Fault, Finish, Keep, Open, Policy, Round, Seen, Suspend

from ..deciding import plan

FINGERPRINT = Fingerprint("train.py", (), "3:5", "1", "0")


def policy(ps: OnLoss = "all", worker: OnLoss = "all", evaluator: OnLoss = "one") -> Policy:
    roles = (
        Role("ps", 1, 1, on_loss=ps, counts=False),
        Role("worker", 2, 3, on_loss=worker),
        Role("evaluator", 0, 1, nproc=2, on_loss=evaluator, counts=False),
    )
    return Policy(3, 5, roles=roles, settle=0.0, scale_up_interval=0.0, last_call=1.0)


def seen(name: str, order: int = 0, *, state: State = "running", only: str = "", leases: bool = False) -> Seen:
    exits = (Exit(1, 0, 0, 1, 1),) if state == "failed" else ()
    report = Report(state, 1, exits, leases=leases)
    member = Member(name, name.upper(), name, "", 1, (), FINGERPRINT, node_role=only, report=report)
    return Seen(member, order or ord(name), 0.0)


def nodes(names: str, **states: State) -> list[Seen]:
    return [seen(name, state=states.get(name, "running")) for name in names]


def running(text: str, fault: Fault | None = None) -> Round:
    """`ps a worker b c`: who has which role in round 1."""
    role, members, node_workers = "", list[str](), list[NodeWorkers]()
    for word in text.split():
        if len(word) > 1:
            role = word
        else:
            members.append(word.upper())
            node_workers.append(NodeWorkers(role, 2 if role == "evaluator" else 1))
    return Round(1, tuple(members), True, 0.0, fault, node_workers=tuple(node_workers))


FAILURE = Fault("a worker failed", "failure", None, 0.0)


def told(opened: object) -> str:
    assert isinstance(opened, Open), opened
    return " ".join(
        f"{member.node}={workers.role}" for member, workers in zip(opened.nodes, opened.node_workers, strict=True)
    )


def untouched(opened: object) -> str:
    assert isinstance(opened, Open), opened
    return "".join(opened.untouched).lower()


def decide(members: Sequence[Seen], current: Round, wanted: Policy) -> object:
    return plan(members, current, wanted, 1000.0)[0]


def test_the_first_round_has_every_minimum_and_grows_in_the_declared_order() -> None:
    before = Round(0, (), False, 0.0)
    assert told(decide(nodes("abc"), before, policy())) == "a=ps b=worker c=worker"
    assert told(decide(nodes("abcde"), before, policy())) == "a=ps b=worker c=worker d=worker e=evaluator"


def test_a_success_is_not_said_of_workers_that_do_not_count() -> None:
    done = [seen(name, state="succeeded") for name in "bc"]
    _, reason = plan([seen("a"), *done], running("ps a worker b c"), policy(), 10.0)
    assert str(reason) == "every worker of round 1 whose role counts ended with exit code 0"


def test_many_nodes_are_not_enough_where_none_may_take_a_role() -> None:
    typed = [seen(name, only="worker") for name in "abcd"]
    decision = plan(typed, Round(0, (), False, 0.0), policy(), 10.0)
    assert isinstance(decision[0], Keep)
    assert "4 of 3:5 nodes have joined: waiting for 1 more (1 ps), for at most" in str(decision[1])
    late = plan(typed, Round(0, (), False, 0.0), policy(), 1000.0)
    assert isinstance(late[0], Finish) and str(late[1]).endswith("and these are missing: 1 ps")
    assert isinstance(decide([*typed, seen("x")], Round(0, (), False, 0.0), policy()), Open)


def test_a_lost_ps_is_replaced_by_a_standby_else_by_a_workers_node() -> None:
    assert told(decide(nodes("bcds"), running("ps a worker b c d"), policy())) == "s=ps b=worker c=worker d=worker"
    assert told(decide(nodes("bcd"), running("ps a worker b c d"), policy())) == "d=ps b=worker c=worker"
    assert isinstance(decide(nodes("bc"), running("ps a worker b c"), policy()), Suspend)


def test_a_failed_worker_alone_is_started_again_where_its_role_says_so() -> None:
    current = running("ps a worker b c", FAILURE)
    assert untouched(decide(nodes("abc", b="failed"), current, policy(worker="one"))) == "ac"
    assert untouched(decide(nodes("abc", b="failed"), current, policy(ps="one"))) == ""
    assert untouched(decide(nodes("abc", a="failed", b="failed"), current, policy(worker="one"))) == ""
    assert untouched(decide(nodes("abc", a="failed", b="failed"), current, policy("one", "one"))) == "c"


def test_a_lost_node_that_a_standby_replaces_costs_the_others_nothing() -> None:
    opened = decide(nodes("acs"), running("ps a worker b c"), policy(worker="one"))
    assert (told(opened), untouched(opened)) == ("a=ps s=worker c=worker", "ac")


def test_while_workers_go_on_nobody_else_is_admitted() -> None:
    opened = decide(nodes("abcs", b="failed"), running("ps a worker b c", FAILURE), policy(worker="one"))
    assert (told(opened), untouched(opened)) == ("a=ps b=worker c=worker", "ac")


def test_all_are_started_again_where_their_ranks_or_their_meeting_place_would_change() -> None:
    shrunk = decide(nodes("acd"), running("ps a worker b c d"), policy(worker="one"))
    assert (told(shrunk), untouched(shrunk)) == ("a=ps c=worker d=worker", "")
    moved = decide(nodes("bcs"), running("ps a worker b c"), policy("one", "one"))
    assert (told(moved), untouched(moved)) == ("s=ps b=worker c=worker", "")


def test_the_last_role_may_come_and_go_alone() -> None:
    gone = decide(nodes("abcd"), running("ps a worker b c d evaluator e"), policy())
    assert (told(gone), untouched(gone)) == ("a=ps b=worker c=worker d=worker", "abcd")
    came = decide(nodes("abcde"), running("ps a worker b c d"), policy())
    assert (told(came), untouched(came)) == ("a=ps b=worker c=worker d=worker e=evaluator", "abcd")


def test_workers_that_lease_data_do_not_go_on_into_another_round() -> None:
    members = [*nodes("ab", b="failed"), seen("c", leases=True)]
    assert untouched(decide(members, running("ps a worker b c", FAILURE), policy(worker="one"))) == ""


def test_a_suspended_job_starts_everybody_anew() -> None:
    suspended = dataclasses.replace(running("ps a worker b c"), running=False)
    opened = decide(nodes("bcx"), suspended, policy("one", "one"))
    assert (told(opened), untouched(opened)) == ("x=ps b=worker c=worker", "")


def test_a_job_has_succeeded_when_the_roles_that_count_have() -> None:
    current = running("ps a worker b c")
    assert isinstance(decide(nodes("abc", a="succeeded", b="succeeded"), current, policy()), Keep)
    assert decide(nodes("abc", b="succeeded", c="succeeded"), current, policy()) == Finish("succeeded")


def test_assignments_tell_roles_apart_and_whose_workers_go_on() -> None:
    opened = decide(nodes("abcds", e="running"), running("ps a worker b c d"), policy())
    assert isinstance(opened, Open)
    given = ranks.assign(2, opened.nodes, opened.node_workers, untouched=dict.fromkeys(opened.untouched, 1))
    assert [(each.role, each.first_rank, each.nproc, each.since) for each in given] == [
        ("ps", 0, 1, 1),
        ("worker", 1, 1, 1),
        ("worker", 2, 1, 1),
        ("worker", 3, 1, 1),
        ("evaluator", 4, 2, 0),
    ]
    assert [(each.role_first_rank, each.role_world_size) for each in given] == [(0, 1), (0, 3), (1, 3), (2, 3), (0, 2)]
    assert ranks.by_role(opened.node_workers)[-1] == ranks.RoleRanks("evaluator", 1, 4, 2)
