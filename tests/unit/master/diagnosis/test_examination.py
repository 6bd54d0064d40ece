"""How the nodes of a round are asked for evidence."""

import asyncio
from dataclasses import dataclass, field

from elastic_run.master.diagnosis.evidence import Blocked, Frame, NodeEvidence, Shared, Snapshot, Worker
from elastic_run.master.diagnosis.examination import MAX_WORKERS, Examination, Here
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.diagnosis.requests import Condemned, Done, Look, Replacement, Suspected
from elastic_run.rendezvous.rpc.envelope import RpcError, Security


@dataclass
class Asked:
    """An agent in the master's process, and what is told and said."""

    answer: NodeEvidence | RpcError
    looks: list[Look] = field(default_factory=list[Look])
    told: list[tuple[Finding, ...]] = field(default_factory=list[tuple[Finding, ...]])
    said: list[str] = field(default_factory=list[str])

    async def look(self, wanted: Look) -> NodeEvidence:
        self.looks.append(wanted)
        if isinstance(self.answer, RpcError):
            raise self.answer
        return self.answer

    def examination(self) -> Examination:
        def condemn(_: Condemned) -> Done:
            raise AssertionError("nobody is condemned")

        def replace(_: Replacement) -> Done:
            raise AssertionError("nobody is replaced")

        here = Here(lambda: "a#1", self.look, condemn, replace, lambda _: None)
        return Examination(
            lambda: "run", here, lambda _, found, *__: self.told.append(found), self.said.append, Security()
        )


def examined(asked: Asked, workers: int, times: int = 1) -> None:
    async def examine() -> None:
        examination = asked.examination()
        for _ in range(times):
            examination.begin(1, (Suspected("a", "a#1", "a.host", "a:1", workers=workers),))
            await asyncio.gather(*examination.tasks)
            await examination.compare(1, (Suspected("a", "a#1", "a.host", "a:1", workers=workers),))

    asyncio.run(examine())


def test_a_round_of_more_workers_than_a_master_can_look_at_is_not_asked_and_one_line_says_so() -> None:
    asked = Asked(NodeEvidence("a", 1))
    examined(asked, MAX_WORKERS + 1, times=2)
    assert (asked.looks, asked.told) == ([], [])
    assert asked.said == ["no diagnosis: the round has 2049 workers, and at most 2048 are looked at"]
    examined(asked, MAX_WORKERS)
    assert asked.looks == [Look(1), Look(1, long=True)]


def test_a_node_whose_evidence_is_too_long_is_not_called_silent() -> None:
    asked = Asked(RpcError("too long", "a message of 20000000 bytes: at most 16777216 can be sent"))
    examined(asked, 8)
    assert asked.told == [(), ()]
    assert asked.said == ["the evidence of node a is too long to be sent: its workers are not diagnosed"] * 2
    silent = Asked(RpcError("late", "no answer"))
    examined(silent, 8)
    assert [each.kind for each in silent.told[0]] == ["silent-node"]


def test_stacks_that_are_equal_are_kept_once() -> None:
    def evidence() -> NodeEvidence:
        stacks = [(Frame("train.py", line, "train"), Frame("train.py", 60, "<module>")) for line in (1, 2, 1)]
        looks = tuple(Snapshot(0.0, "S", frames=stack, blocked=Blocked("futex", "lock")) for stack in stacks)
        return NodeEvidence("a", 1, (Worker(0, 0, 1000, snapshots=looks),))

    shared = Shared()
    one, other = shared.of(evidence()), shared.of(evidence())
    assert one == other == evidence()
    looks = [*one.workers[0].snapshots, *other.workers[0].snapshots]
    assert [len({id(each.frames) for each in looks}), len({id(each.blocked) for each in looks})] == [2, 1]
    assert len({id(frame) for each in looks for frame in each.frames}) == 3
