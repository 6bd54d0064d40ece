"""Membership is decided right: what transcripts show (`tests/transcripts/round`), and invariants for any members."""

import dataclasses
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.rendezvous import ranks
from elastic_run.rendezvous.member import DEPARTING, Exit, Fingerprint, Member, Report, State
from elastic_run.rendezvous.ranks import NodeWorkers
from elastic_run.rendezvous.reasons import NoChange, NodeFailed
from elastic_run.rendezvous.roles import OnLoss, Role
from elastic_run.rendezvous.round import (
    Cause,
    Decision,
    Fault,
    Finish,
    Keep,
    Open,
    OpenInPlace,
    Outcome,
    Policy,
    Round,
    Seen,
    Suspend,
    decide,
    survey,
)

from ...sampling import examples
from ...transcripts.runner import Command, replay, transcripts
from ..deciding import plan

FINGERPRINT = Fingerprint("train.py", (), "2:4", "1", "0")


@transcripts("round")
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    replay(path, RoundTranscript().on, request)


class RoundTranscript:
    """A job of 2 to 4 nodes.

    policy 2:4 [unit=] [settle=] ...      what the user asked for; the rest is as it is by default
    role worker 2:3 [one] [uncounted]     one more role; `one`: its workers restart alone
    round 1 a b c, round 1 ps=a ...       the nodes of the current round in rank order; `suspended`: it is over
    fault failure [words] [fatal=] ...    what the judge says of it
    decide a:failed,holding=1 b c@5 at=9  the members in order of arrival, c at 5: what is decided at 9
    assign                                the assignments of the round that was decided on
    """

    def __init__(self) -> None:
        self.policy = Policy(2, 4)
        self.round = Round(0, (), False, 0.0)
        self.decision: Decision = Keep()

    def on(self, command: Command) -> Iterator[str]:
        """Carries out one command."""
        match command.name:
            case "policy":
                policy = Policy(*map(int, command.words.pop(0).split(":")))
                self.policy = command.change(policy, node_unit="unit", scale_up_interval="interval")
            case "role":
                name, least, most = command.words.pop(0), *map(int, command.words.pop(0).split(":"))
                loss: OnLoss = "one" if command.flag("one") else "all"
                counts = not command.flag("uncounted")
                role = Role(name, least, most, command.count("nproc"), on_loss=loss, counts=counts)
                roles = {each.name: each for each in self.policy.roles} | {name: role}
                self.policy = dataclasses.replace(self.policy, roles=tuple(roles.values()))
            case "round" | "suspended":
                number, *nodes = command.rest()
                held = [
                    (node, role) for role in self.policy.roles for node in command.take(role.name).split(",") if node
                ]
                workers = tuple(NodeWorkers(role.name, role.nproc or 1) for _, role in held)
                members = tuple(node.upper() for node in nodes or [node for node, _ in held])
                round = Round(int(number), members, command.name == "round", 0.0, node_workers=workers)
                self.round = command.change(round, opened_at="opened", grown_at="grown", saved_at="saved")
            case "fault":
                cause, *words = command.rest()
                fatal = cast(Outcome, command.take("fatal")) or None
                fault = Fault(said(*words), cast(Cause, cause), fatal, 0.0)
                fault = command.change(fault, settled_at="settled", root_by="first-by")
                self.round = dataclasses.replace(self.round, fault=fault)
            case "decide":
                # Not listed in order of arrival, which is not to matter.
                members = [member_of(word, order, self.round.number) for order, word in enumerate(command.rest(), 1)]
                self.decision, reason = plan(members[::-1], self.round, self.policy, command.number("at"))
                yield f"{told(self.decision)}: {reason}".removesuffix(": ")
            case "assign":
                assert isinstance(self.decision, Open)
                since = dict.fromkeys(self.decision.untouched, self.round.number)
                for each in ranks.assign(2, self.decision.nodes, self.decision.node_workers, untouched=since):
                    last = each.first_rank + each.nproc - 1
                    among = f"{each.role_first_rank} of {each.role_world_size}"
                    yield f"{each.node}: ranks {each.first_rank}-{last}, {each.role} {among}, since round {each.since}"
                for each in ranks.by_role(self.decision.node_workers):
                    yield f"{each.role} on {each.nodes}: ranks {each.first_rank}-{each.first_rank + each.ranks - 1}"
            case name:
                raise ValueError(name)


def member_of(word: str, order: int, number: int) -> Seen:
    """`b:failed@5`: it came at 5, and its workers of round `number` run unless it says otherwise."""
    command = Command.read(word.replace("@", " since=").replace(":", " ").replace(",", " "))
    state = next((each for each in get_args(State) if command.flag(each)), "running")
    exits = tuple(Exit(int(round), 0, 0, 1, code=code) for code in (0, 1) if (round := command.take(f"exit{code}")))
    ready_at, incarnation = command.number("ready", -math.inf), command.flag("reborn") * "REBORN"
    report = command.change(Report(state, number, exits))
    report = dataclasses.replace(report, ready=report.ready or ready_at > 0)
    member = Member(command.name, incarnation or command.name.upper(), "", "", 1, (1,), FINGERPRINT, report=report)
    seen = Seen(command.change(member, node_role="only"), order, 0.0, ready_at=ready_at)
    seen = command.change(seen)
    assert not command.words and not command.options, word
    return seen


def told(decision: Decision) -> str:
    match decision:
        case Keep(until):
            return "keep" if until is None else f"keep until {until:g}"
        case Open(nodes, cause, node_workers, untouched):
            words = [f"{each.node}{'' if each.incarnation == each.node.upper() else '(reborn)'}" for each in nodes]
            if node_workers:
                words = [f"{each}={workers.role}" for each, workers in zip(words, node_workers, strict=True)]
            stay = f"; the workers of {' '.join(untouched).lower()} go on" if untouched else ""
            return f"open{' in place' * isinstance(decision, OpenInPlace)} {' '.join(words)} ({cause}{stay})"
        case Suspend(cause):
            return f"suspend ({cause})"
        case Finish(outcome):
            return f"finish {outcome}"


def said(text: str = "failed") -> NodeFailed:
    return NodeFailed("b", text)


def ok_exit(round: int = 1) -> Exit:
    return Exit(round, 0, 0, 1, code=0)


@dataclasses.dataclass(frozen=True)
class World:
    """One input of `plan`."""

    members: tuple[Seen, ...]
    current: Round
    policy: Policy
    now: float

    def plan(self) -> tuple[Decision, str]:
        return plan(self.members, self.current, self.policy, self.now)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    unit = draw(st.integers(1, 3))
    units = draw(st.integers(1, 3))
    most = unit * units + draw(st.integers(0, unit - 1))
    seconds = st.integers(0, 30).map(float)
    return Policy(
        min_nodes=draw(st.integers(1, unit * units)),
        max_nodes=most,
        node_unit=unit,
        last_call=draw(seconds),
        join_timeout=draw(seconds),
        recovery_timeout=draw(seconds),
        scale_up=draw(st.sampled_from(["now", "commit", "never"])),
        settle=draw(seconds),
        scale_up_interval=draw(seconds),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any input that a master can see: the fault is what the judge says whenever somebody has failed."""
    policy = draw(policies())
    now = float(draw(st.integers(50, 100)))
    number = draw(st.integers(0, 3))
    phase = draw(st.sampled_from(["running", "suspended"])) if number else "gathering"
    names = "abcdefgh"[: draw(st.integers(0, 8))]
    orders = draw(st.permutations(range(1, 9)))
    members: list[Seen] = []
    for index, name in enumerate(names):
        state = draw(st.sampled_from(get_args(State)))
        round = draw(st.integers(max(0, number - 1), number))
        exits = draw(st.sampled_from([(), (ok_exit(round),), (Exit(round, 0, 0, 1, code=1),)]))
        if state == "failed":
            exits = (*exits, Exit(round, 1, 1, 2, code=1))
        gone = state == "succeeded" and round == number and phase == "running" and draw(st.booleans())
        item = member_of(f"{name}:{state}", orders[index], round)
        report = dataclasses.replace(item.member.report, exits=exits)
        topology, since = draw(st.sampled_from(["", "r1", "r2"])), float(draw(st.integers(0, 50)))
        member = dataclasses.replace(item.member, topology=topology, report=report)
        members.append(dataclasses.replace(item, member=member, gone=gone, since=since))
    nodes: tuple[str, ...] = ()
    if phase != "gathering":
        # The members in the round stand as a round stands: equal topology labels together; the lost stand anywhere.
        inside = ranks.order([item.member for item in members if item.gone or draw(st.booleans())], [])
        line = [member.incarnation for member in inside]
        for lost in "XYZ"[: draw(st.integers(0 if line else 1, 3))]:
            line.insert(draw(st.integers(0, len(line))), lost)
        nodes = tuple(line)
    failed = any(
        not exit_.ok and exit_.round == number and item.member.incarnation in nodes
        for item in members
        for exit_ in item.member.report.exits
    )
    fault = None
    if phase == "running" and failed:
        endings: list[Outcome | None] = [None, "failed", "repeated"]
        causes: list[Cause] = ["failure", "lost", "left", "problem"]
        fatal = draw(st.sampled_from(endings))
        cause = "failure" if fatal else draw(st.sampled_from(causes))
        root_by = now + draw(st.integers(-1, 1)) if cause == "failure" else -math.inf
        fault = Fault(said("failed"), cause, fatal, now + draw(st.integers(-1, 1)), root_by)
    opened_at = float(draw(st.integers(0, 50)))
    return World(tuple(members), Round(number, nodes, phase == "running", opened_at, fault), policy, now)


def applied(world: World, decision: Decision) -> World:
    """The world just after the master has carried `decision` out, before anybody has reacted."""
    number = world.current.number + 1
    members = world.members
    if isinstance(decision, Open):
        members = tuple(item for item in members if not item.gone)
        current = Round(number, tuple(member.incarnation for member in decision.nodes), True, world.now)
    else:
        assert isinstance(decision, Suspend)
        current = Round(number, world.current.nodes, False, world.now)
    return dataclasses.replace(world, members=members, current=current)


def positions(of: Sequence[str], within: Sequence[str]) -> list[int]:
    return [within.index(item) for item in of if item in within]


def a_round_holds_only_registered_nodes_that_stay_each_once(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        staying = {
            item.member.incarnation
            for item in world.members
            if not item.gone and item.member.report.state not in DEPARTING
        }
        incarnations = [member.incarnation for member in decision.nodes]
        assert set(incarnations) <= staying
        assert len(set(incarnations)) == len(incarnations)


def a_rounds_size_is_within_the_policy_and_as_large_as_can_be(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        size, policy = len(decision.nodes), world.policy
        staying = [item for item in world.members if not item.gone and item.member.report.state not in DEPARTING]
        assert policy.min_nodes <= size <= policy.max_nodes
        assert size % policy.node_unit == 0
        assert size + policy.node_unit > min(len(staying), policy.max_nodes)


def survivors_keep_their_rank_order_and_no_survivor_gives_way_to_a_joining_node(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        incarnations = [member.incarnation for member in decision.nodes]
        kept = positions(incarnations, world.current.nodes)
        assert kept == sorted(kept)
        staying = {
            item.member.incarnation
            for item in world.members
            if not item.gone and item.member.report.state not in DEPARTING
        }
        survivors = staying & set(world.current.nodes)
        assert set(incarnations) <= survivors or survivors <= set(incarnations)


def a_decision_that_was_carried_out_is_not_followed_by_another_of_itself(world: World) -> None:
    decision, _ = world.plan()
    if isinstance(decision, Open):
        again, _ = applied(world, decision).plan()
        assert isinstance(again, Keep)
    if isinstance(decision, Suspend):
        again, _ = applied(world, decision).plan()
        assert isinstance(again, Keep) or (again == Finish("timeout") and world.policy.recovery_timeout == 0)


def nothing_hangs_what_waits_without_a_deadline_is_well_or_a_standby(world: World) -> None:
    decision, reason = world.plan()
    if decision != Keep(None):
        return
    current = world.current
    assert current.running, "a job that gathers or is suspended has a deadline"
    assert current.fault is None
    by_incarnation = {item.member.incarnation: item for item in world.members}
    for incarnation in current.nodes:
        item = by_incarnation[incarnation]
        succeeded = item.member.report.state == "succeeded" and item.member.report.round == current.number
        assert succeeded or not item.gone
        assert item.member.report.state not in DEPARTING
    newcomers = [
        item
        for item in world.members
        if item.member.incarnation not in current.nodes and item.member.report.state not in DEPARTING
    ]
    assert bool(newcomers) == bool(str(reason)), "a standby is told why it waits, and no other node is told anything"


def time_alone_leads_to_a_decision_or_to_a_wait_for_an_event(world: World) -> None:
    for _ in range(3):
        decision, reason = world.plan()
        if not isinstance(decision, Keep) or decision.until is None:
            return
        assert decision.until > world.now
        assert str(reason), "a wait with a deadline is told"
        world = dataclasses.replace(world, now=decision.until)
    raise AssertionError(f"still waiting: {world.plan()}")


def the_order_in_which_members_are_listed_does_not_matter(world: World) -> None:
    backwards = dataclasses.replace(world, members=world.members[::-1])
    by_name = dataclasses.replace(world, members=tuple(sorted(world.members, key=lambda item: item.member.node)))
    assert backwards.plan() == by_name.plan()


def only_differences_of_the_clock_count(world: World) -> None:
    current, shift = world.current, 1000.0
    fault = current.fault
    if fault:
        fault = dataclasses.replace(fault, settled_at=fault.settled_at + shift, root_by=fault.root_by + shift)
    later = World(
        tuple(dataclasses.replace(item, since=item.since + shift) for item in world.members),
        dataclasses.replace(current, opened_at=current.opened_at + shift, fault=fault),
        world.policy,
        world.now + shift,
    )
    decision, reason = world.plan()
    if isinstance(decision, Keep) and decision.until is not None:
        decision = Keep(decision.until + shift)
    assert later.plan() == (decision, reason)


def every_decision_that_changes_something_has_a_reason(world: World) -> None:
    decision, reason = world.plan()
    assert str(reason) or decision == Keep(None)


INVARIANTS = (
    a_round_holds_only_registered_nodes_that_stay_each_once,
    a_rounds_size_is_within_the_policy_and_as_large_as_can_be,
    survivors_keep_their_rank_order_and_no_survivor_gives_way_to_a_joining_node,
    a_decision_that_was_carried_out_is_not_followed_by_another_of_itself,
    nothing_hangs_what_waits_without_a_deadline_is_well_or_a_standby,
    time_alone_leads_to_a_decision_or_to_a_wait_for_an_event,
    the_order_in_which_members_are_listed_does_not_matter,
    only_differences_of_the_clock_count,
    every_decision_that_changes_something_has_a_reason,
)


@settings(deadline=None, max_examples=examples(300, 100))
@given(worlds())
def test_every_invariant_holds_whatever_the_members_report(world: World) -> None:
    for invariant in INVARIANTS:
        invariant(world)  # its name says what does not hold


@pytest.mark.parametrize("seed", range(20))
def test_where_nobody_needs_another_nodes_come_and_go_and_no_worker_is_stopped_or_gets_another_rank(seed: int) -> None:
    """A hundred changes: a lost node leaves its ranks free, and who comes gets the lowest that are."""
    chance = random.Random(seed)
    roles = Role("chief", 1, 1, on_loss="one"), Role("worker", 1, 5, on_loss="one", counts=False)
    policy = Policy(2, 6, settle=0.0, scale_up_interval=0.0, last_call=0.0, roles=roles)
    here = {f"n{i}": Member(f"n{i}", f"N{i}", "", "", 1 + i % 2, (1,), FINGERPRINT) for i in range(4)}
    current, assigned, changes = Round(0, (), False, 0.0), dict[str, ranks.Assignment](), 0
    for number in range(4, 104):
        seen = [Seen(member, order, float(order)) for order, member in enumerate(here.values())]
        decision, _ = decide(survey(seen, current, policy), current, policy, 1e6)
        assert len(seen) < 2 or isinstance(decision, Open | Keep), decision
        if isinstance(decision, Open):
            since = {each: assigned[each].since or current.number for each in decision.untouched}
            after = ranks.assign(number, decision.nodes, decision.node_workers, assigned, since)
            new = {each.incarnation: each for each in after}
            stay = [each for each in assigned if each in new and assigned[each].role == new[each].role]
            assert set(stay) == set(decision.untouched), seed
            for each in stay:
                was, now = assigned[each], new[each]
                assert (was.ranks, was.group_rank, was.role_first_rank) == (
                    now.ranks,
                    now.group_rank,
                    now.role_first_rank,
                )
            taken = [rank for each in after for rank in each.ranks]
            assert len(set(taken)) == len(taken) and all(each.fits for each in after), seed
            place = {
                i: ranks.NodeRanks(each.group_rank, each.first_rank, each.role_first_rank) for i, each in new.items()
            }
            workers = tuple(NodeWorkers(each.role, each.nproc, place[each.incarnation]) for each in after)
            current, assigned, changes = Round(number, tuple(new), True, 0.0, node_workers=workers), new, changes + 1
        leaves = chance.choice(sorted(here))
        if chance.random() < 0.5 and len(here) > 2:
            del here[leaves]
        elif len(here) < 7:
            here[f"n{number}"] = Member(f"n{number}", f"N{number}", "", "", 1 + number % 2, (1,), FINGERPRINT)
    assert changes > 30


@pytest.mark.parametrize("ports", [(), (7, 8)])
def test_workers_that_know_the_addresses_of_all_are_started_again_where_one_has_gone(ports: tuple[int, ...]) -> None:
    nodes = [Member(name, name.upper(), "", "", 1, (1,), FINGERPRINT, worker_ports=ports) for name in "abc"]
    policy = Policy(2, 3, roles=(Role("worker", 2, 3, on_loss="one"),))
    current = Round(1, ("A", "B", "C"), True, 0.0, node_workers=(NodeWorkers("worker", 1),) * 3)
    seen = [Seen(nodes[i], i, 0.0) for i in (0, 2)]
    decision, _ = decide(survey(seen, current, policy), current, policy, 1.0)
    assert isinstance(decision, Open) and decision.untouched == (() if ports else ("A", "C"))
    assert [each.first_rank for each in ranks.assign(2, decision.nodes, decision.node_workers)] == (
        [0, 1] if ports else [0, 2]
    )


class Counted(tuple[Exit, ...]):
    """Exits that count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Iterator[Exit]:
        Counted.walks += 1
        return super().__iter__()


def test_the_exits_of_a_member_are_gone_through_when_it_is_seen_and_not_at_each_look() -> None:
    Counted.walks = 0
    reports = [Report("running", 1, Counted((Exit(1, rank, 0, 1, code=0),))) for rank in range(2)]
    found = [Member(name, name.upper(), "", "", 1, (1,), FINGERPRINT, report=reports[name == "b"]) for name in "ab"]
    members = [Seen(member, order, 0.0) for order, member in enumerate(found)]
    current, walked = Round(1, ("A", "B"), True, 0.0), Counted.walks
    for _ in range(10):
        found = survey(members, current, Policy(2, 4))
        assert found.finishing and not found.done
        assert decide(found, current, Policy(2, 4), 1000.0) == (Keep(), NoChange())
    assert Counted.walks == walked
