"""Workers that stand still, and ranks for which the others wait in each step: what is known of them, and what is done.

A part of the controller (pure). What it learns of the round and of its nodes is a value that the controller passes on.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.member import Member, Report
from ...rendezvous.node_reasons import cut
from ...rendezvous.round import OnHang, OnStraggler
from .. import status
from ..diagnosis.findings import HANGS, WORKS, Finding
from ..diagnosis.requests import Condemned, Replacement, Suspected
from . import effects
from .effects import Effect
from .round_state import RoundState


@dataclass(frozen=True, slots=True)
class RoundNodes:
    """The round that is judged.

    Attributes:
        suspected: its nodes, as they are asked and told.
        standbys: nodes that could have a part in it.
    """

    round: RoundState
    suspected: Mapping[str, Suspected]
    standbys: Sequence[Member]


class Standstill:
    """Of one leadership.

    Args:
        on_hang, on_straggler: what is done about what is found.
        roles: the job has roles.
        now: the master's clock, seconds.

    Attributes:
        ends: on account of which the job is to fail; None: of nothing.
    """

    def __init__(self, on_hang: OnHang, on_straggler: OnStraggler, now: float, *, roles: bool) -> None:
        self._on_hang = on_hang
        self._on_straggler = on_straggler
        self._roles = roles
        self.ends: Finding | None = None
        self._stalled: dict[str, int] = {}  # by incarnation: how often it has told of that in this round
        self._strained: dict[str, int] = {}  # the same: how often it has come near a limit
        self._findings: tuple[Finding, ...] = ()
        self._diagnosed = now
        self._slow: tuple[Finding, ...] = ()  # ranks that the others wait for in each step
        self._compared = now
        self._gave_way: dict[tuple[int, int], str] = {}  # for which slow ranks a node was told to leave, and which

    def begin_round(self, reports: Mapping[str, Report] | None = None) -> None:
        """Another round has begun; or an earlier master's is taken over, whose nodes have reported that."""
        self.ends, self._findings, self._slow, self._strained = None, (), (), {}
        self._stalled = {each: report.stalled for each, report in (reports or {}).items()}

    def hear_report(self, incarnation: str, report: Report) -> Literal["same", "worse", "moves"]:
        """What a report of a node of the round changes.

        worse: it tells, or tells again, that a worker makes no progress, or that it has come near a limit. moves: all
        workers of the round make progress again.
        """
        known, strained = self._stalled.get(incarnation, 0), self._strained.get(incarnation, 0)
        self._stalled[incarnation], self._strained[incarnation] = report.stalled, report.strained
        if report.stalled > known or report.strained > strained:
            return "worse"
        return "moves" if known and not any(self._stalled.values()) else "same"

    def forget_hangs(self) -> tuple[Effect, ...]:
        """The workers make progress again."""
        before = self._findings
        self._findings = tuple(each for each in before if each.kind not in HANGS)
        return (effects.Say("the workers make progress again"),) if before != self._findings else ()

    def judge_hangs(
        self, found: tuple[Finding, ...], nodes: RoundNodes, now: float
    ) -> tuple[list[Effect], float | None]:
        """What follows from an examination, and for how many seconds the round stands still; None: it does not."""
        if not any(self._stalled.values()):  # any more: they were looked at meanwhile
            found = tuple(each for each in found if each.kind not in HANGS)
        todo = _say_findings(found, self._findings)
        self._findings, self._diagnosed = found, now
        grave = [one for one in found if one.kind in HANGS and one.strength != "weak" and _in_one_role(one, nodes)]
        if not grave:
            return todo, None
        if self._on_hang != "report" and (stuck := [each for each in grave if each.kind not in WORKS]):
            todo += self._end_hang(stuck[0], nodes)
        return todo, max(each.seconds for each in grave)

    def judge_stragglers(self, found: tuple[Finding, ...], nodes: RoundNodes, now: float) -> list[Effect]:
        """What follows from a comparison of the ranks."""
        todo, before = _say_findings(found, self._slow), {each.rank for each in self._slow}
        self._slow, self._compared = found, now
        if self._on_straggler != "replace":
            return todo
        from ..diagnosis.replacement import verdicts  # here, because few jobs have standbys

        for each in verdicts(found, before, nodes.round.assigned, nodes.standbys, self._gave_way, roles=self._roles):
            todo.append(effects.Say(each.words))
            if each.leaves and each.finding.rank is not None:
                self._gave_way[each.finding.rank, each.leaves.world_size] = each.leaves.node
                why = Replacement(nodes.round.number, cut(f"a standby takes its place: {each.finding}"))
                todo.append(effects.Replace(nodes.suspected[each.leaves.incarnation], why))
                todo.append(effects.Note(dataclasses.replace(each.finding, done=f"replaced node {each.leaves.node}")))
        return todo

    def list_findings(self, now: float) -> tuple[status.Diagnosis, ...]:
        """What is known, for the job's status."""
        return tuple(
            status.Diagnosis.of(each, now - at)
            for at, findings in ((self._diagnosed, self._findings), (self._compared, self._slow))
            for each in findings
        )

    def _end_hang(self, finding: Finding, nodes: RoundNodes) -> list[Effect]:
        if self._on_hang == "fail":
            self.ends = finding
            return [effects.Note(dataclasses.replace(finding, done="ended the job (--on-hang=fail)"))]
        # Of a worker that has ended already, one that waits for it.
        wanted = finding.waiting[0] if finding.kind == "uneven-steps" and finding.waiting else finding.rank
        todo = list[Effect]()
        for each in nodes.round.assigned:
            if wanted is not None and wanted in each.ranks:
                condemned = Condemned(nodes.round.number, wanted, cut(str(finding)))
                todo.append(effects.Condemn(nodes.suspected[each.incarnation], condemned))
                todo.append(
                    effects.Note(dataclasses.replace(finding, done=f"killed rank {wanted} (--on-hang=restart)"))
                )
        return todo


def _say_findings(findings: Sequence[Finding], known: Sequence[Finding]) -> list[Effect]:
    """Says what is new in `findings`."""
    before = {(each.kind, each.rank, each.server) for each in known}
    todo = list[Effect]()
    for finding in findings:
        todo.append(effects.Note(finding))
        if (finding.kind, finding.rank, finding.server) not in before:
            todo.append(effects.Say(f"diagnosis: {finding}"))
            todo += [effects.Say(f"  | {line}") for line in finding.last_lines[-3:]]
    return todo


def _in_one_role(finding: Finding, nodes: RoundNodes) -> bool:
    """Whether the suspect and those that wait for it have one role, where the job has several.

    An evaluator that waits for a checkpoint, or an actor that waits for its turn, is at rest by design.
    """
    if len({each.role for each in nodes.round.assigned}) < 2:
        return True
    roles = {rank: each.role for each in nodes.round.assigned for rank in each.ranks}
    concerned = {roles.get(rank) for rank in (finding.rank, *finding.waiting) if rank is not None}
    return bool(finding.waiting) and len(concerned) == 1
