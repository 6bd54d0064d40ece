"""Nodes that were started with something else: the part by itself. Its words are in `tests/transcripts/controller`."""

import dataclasses

from elastic_run.master.machine import effects
from elastic_run.master.machine.mismatches import Mismatches
from elastic_run.rendezvous.member import Fingerprint, Member
from elastic_run.rendezvous.round import Seen

OURS = Fingerprint("train.py", (), "2", "1", "1.0", named=True)


def seen(name: str, order: int, **differs: str) -> Seen:
    return Seen(Member(name, f"{name}#1", "host", "", 1, (), dataclasses.replace(OURS, **differs)), order, 0.0)


def test_nodes_are_refused_one_after_the_other_and_who_may_differ_is_told_of_once() -> None:
    part, nodes = Mismatches("job", OURS), [seen("a", 1), seen("b", 2, script="other.py"), seen("c", 3, nnodes="3")]
    for each in nodes:
        part.compare(each.member)
    assert list(part.nodes) == ["b", "c"]
    told, refusal = part.refuse_next(nodes)
    assert isinstance(told, effects.Say) and "node b has the job's --rdzv-id and may differ" in told.line
    assert isinstance(refusal, effects.Refuse) and refusal.incarnation == "c#1" and refusal.order == 3
    assert part.refuse_next(nodes) == [refusal]
    part.compare(nodes[1].member)
    assert part.refuse_next(nodes[:2]) == [] and not part.nodes


def test_a_new_master_goes_by_the_header_of_the_one_before() -> None:
    part, other = Mismatches("job", OURS), seen("a", 1, nnodes="3")
    part.adopt(other.member.fingerprint, [other.member, seen("b", 2).member])
    assert list(part.nodes) == ["b"]
