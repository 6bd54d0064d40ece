"""Which slow rank's node gives way to a standby, and what the controller and the node then do."""

import dataclasses
from collections.abc import Mapping

from elastic_run.elastic_agent.machine.actions import Leave
from elastic_run.elastic_agent.machine.node_state import NodeState, Notice
from elastic_run.elastic_agent.machine.plan import act, report
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.diagnosis.replacement import Verdict, verdicts
from elastic_run.master.machine import effects, events
from elastic_run.master.machine.controller import Controller, Terms
from elastic_run.master.machine.memory import Memory
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member, Report
from elastic_run.rendezvous.node_reasons import PreemptionNotice, Replaced
from elastic_run.rendezvous.ranks import assign, own_workers
from elastic_run.rendezvous.round import OnStraggler, Policy

FINGERPRINT = Fingerprint("train.py", (), "2", "1", "1.0")
SLOW = Finding("slow-compute", 1, "b", "weak", "91 % of the time, the others 8 %", (0,), round=1)


def member(name: str, node_role: str = "") -> Member:
    return Member(
        name, f"{name}#1", f"{name}.host", f"{name}:1", 1, (5001,), FINGERPRINT, role="worker", node_role=node_role
    )


def judged(
    *standbys: Member, before: tuple[int | None, ...] = (1,), tried: Mapping[tuple[int, int], str] | None = None
) -> list[str]:
    nodes = (member("a"), member("b"))
    assigned = assign(1, nodes, own_workers(nodes))
    found = verdicts([SLOW], before, assigned, standbys, tried or {}, roles=True)
    return [f"{each.leaves.node} leaves" if each.leaves else each.words for each in found]


def test_the_node_of_a_rank_that_is_slow_twice_gives_way_where_a_standby_can_take_its_place() -> None:
    assert judged(member("c")) == ["b leaves"]
    assert judged(member("c"), before=()) == []
    assert judged(member("c"), before=(0,)) == []
    assert judged() == ["node b stays: no standby could take its place"]
    assert judged(member("c", "evaluator")) == ["node b stays: no standby could take its place"]
    assert judged(member("c", "worker")) == ["b leaves"]


def test_where_a_rank_was_slow_on_another_node_too_the_machine_is_not_the_cause() -> None:
    (words,) = judged(member("c"), tried={(1, 2): "z"})
    assert words == "rank 1 was slow on node z, too: the machine is not the cause, and b stays"
    assert judged(member("c"), tried={(1, 3): "z"}) == ["b leaves"], "that was another share of the work"
    assert judged(member("c"), tried={(1, 2): "b"}) == ["b leaves"], "it has not left yet"


def test_a_node_that_has_given_way_is_no_standby_again() -> None:
    assert judged(member("z"), tried={(0, 2): "z"}) == ["node b stays: no standby could take its place"]


def test_one_node_leaves_at_a_time() -> None:
    nodes = tuple(map(member, "abcd"))
    assigned = assign(1, nodes, own_workers(nodes))
    slow = [dataclasses.replace(SLOW, rank=rank, node="abcd"[rank]) for rank in (1, 2)]
    found = verdicts(slow, (1, 2), assigned, [member("e"), member("f")], {}, roles=False)
    assert [each.leaves and each.leaves.node for each in found] == ["b"]
    assert isinstance(found[0], Verdict) and "a standby" in found[0].words


class Job:
    """Two nodes, a and b, and a standby c."""

    def __init__(self, on_straggler: OnStraggler) -> None:
        terms = Terms(Policy(2, 2), 3, 0, FINGERPRINT, on_straggler=on_straggler)
        self.controller = Controller(Keys("job"), terms, 0.0, memory=Memory(0.0), run="run")
        for name in "ab":
            self.says(name, Report())
        self.controller.on(events.Found(None, 0, 0.0), 1.0)
        self.look(1.0)
        self.says("c", Report())

    def says(self, name: str, report: Report, now: float = 1.0) -> None:
        told = dataclasses.replace(member(name), report=report)
        self.controller.on(events.Registered(name, told, "abcd".index(name) + 1, 0.0), now)

    def look(self, now: float) -> None:
        """Publishes what is decided."""
        for each in self.controller.on(events.Look(), now):
            if isinstance(each, effects.Publish):
                self.controller.on(events.Published(each.header, 3, now), now)

    def compared(self, *findings: Finding) -> tuple[list[str], list[effects.Replace]]:
        found = self.controller.on(events.Diagnosed(findings[0].round, findings, compares=True), 60.0)
        lines = [each.line for each in found if isinstance(each, effects.Say)]
        return lines, [each for each in found if isinstance(each, effects.Replace)]

    def gives_way(self, name: str, now: float) -> None:
        round = self.controller.header.number if self.controller.header else 0
        self.says(name, Report("leaving", round, problem=Replaced("rank 1 is slow")), now)
        self.look(now)
        self.controller.on(events.Unregistered(name), now)


def test_a_slow_rank_is_only_told_unless_its_node_is_to_be_replaced() -> None:
    job = Job("report")
    assert [job.compared(SLOW)[1] for _ in range(3)] == [[], [], []]


def test_a_standby_takes_the_place_of_a_slow_node_once() -> None:
    job = Job("replace")
    assert job.compared(SLOW)[1] == []
    lines, (replace,) = job.compared(SLOW)
    assert lines == ["node b is told to leave, so that a standby takes its place"]
    assert (replace.node.node, replace.replacement.round) == ("b", 1)
    assert replace.replacement.why.startswith(
        "a standby takes its place: rank 1 on node b computes for longer than the others in each step"
    )
    job.gives_way("b", 61.0)
    header = job.controller.header
    assert header and (header.number, header.cause, header.restart_count) == (2, "left", 0)
    assert [each.node for each in job.controller.status(62.0).nodes] == ["a", "c"]
    assert "rank 1 is slow" in str(header.incident.reason if header.incident else "")
    job.says("d", Report())
    again = dataclasses.replace(SLOW, node="c", round=2)
    job.compared(again)
    lines, none = job.compared(again)
    assert none == [] and lines == ["rank 1 was slow on node b, too: the machine is not the cause, and c stays"]


def test_a_node_that_gives_way_says_why_and_ends_as_one_that_was_preempted() -> None:
    words = "a standby takes its place: rank 1 is slow"
    told = NodeState(notice=Notice("leave", why=words))
    assert report(told, 60.0).problem == Replaced(words)
    action, why = act(told, 60.0)
    assert action == Leave(143) and why == words
    assert report(NodeState(notice=Notice("leave", 15)), 60.0).problem == PreemptionNotice(15)


def test_a_rank_that_has_more_to_do_costs_one_standby_wherever_it_stands() -> None:
    """Survivors close up, so that the work of the first rank goes to the next node, and not to the newcomer."""
    names, tried, left = list("abcd"), dict[tuple[int, int], str](), list[str]()
    for spare in "efgh":
        nodes = tuple(map(member, names))
        assigned = assign(1, nodes, own_workers(nodes))
        slow = dataclasses.replace(SLOW, rank=0, node=names[0])
        (found,) = verdicts([slow], (0,), assigned, [member(spare)], tried, roles=False)
        if found.leaves:
            left.append(found.leaves.node)
            tried[0, 4] = found.leaves.node
            names = [*(each for each in names if each != found.leaves.node), spare]
    assert left == ["a"]
