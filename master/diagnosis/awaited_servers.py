"""Which parameter servers ranks wait for, and what is the matter with these, as far as that is proven (pure).

A rank that waits for a server says so to its agent, and is never a suspect for that. A server that waits for another
one's answer passes the question on to that one: a push is answered when its backups have it.
"""

from collections.abc import Mapping, Sequence

from ...rendezvous.base.frozen import dataclass
from ..machine.parameter_servers import ServerReport
from .evidence import Answer
from .findings import Finding, Strength
from .living import QUIET, Rank, common_place

HUNG = 5.0
"""Seconds without an answer, in which it did nothing either, from which a server is proven to hang."""


@dataclass(frozen=True, slots=True)
class SeenServer:
    """One server, and the node that tells of it."""

    node: str
    report: ServerReport


def of_servers(answers: Sequence[Answer], living: Sequence[Rank], round: int) -> list[Finding]:
    """One finding for each server that ranks have waited for as long as a suspect must have been quiet."""
    bar = QUIET * min((each.worker.allowed for each in living if each.worker.allowed), default=0.0)
    seen = {
        each.number: SeenServer(answer.evidence.node, each)
        for answer in answers
        if answer.evidence
        for each in answer.evidence.servers
    }
    waiting: dict[int, list[Rank]] = {}
    behind: dict[int, set[int]] = {}  # servers that wait for that one
    for each in living:
        wait = each.worker.servers
        if each.place.what != "servers" or wait is None or wait.seconds < bar:
            continue
        starting = [number for number, one in seen.items() if one.report.state == "starting"]
        for number in wait.servers or starting:
            for root in _find_roots(number, seen):
                if each not in waiting.setdefault(root, []):
                    waiting[root].append(each)
                behind.setdefault(root, set()).update({number} - {root})
    return [_name(number, seen.get(number), those, behind[number], round) for number, those in sorted(waiting.items())]


def _find_roots(number: int, seen: Mapping[int, SeenServer]) -> set[int]:
    """Servers for which that one waits in the end: itself, where it waits for none."""
    roots, todo, known = set[int](), [number], {number}
    while todo:
        at = todo.pop()
        one = seen.get(at)
        further = one.report.measure.awaits if one and one.report.state == "answers" else ()
        todo += (new := [each for each in further if each not in known])
        known.update(new)
        if not further:
            roots.add(at)
    return roots or {number}  # all in a circle wait for each other


def _name(number: int, one: SeenServer | None, waiting: Sequence[Rank], behind: set[int], round: int) -> Finding:
    words, strength = describe_server(one.report if one else None)
    if behind:
        those = ", ".join(map(str, sorted(behind)))
        words += f"; {'server' if len(behind) == 1 else 'servers'} {those} cannot answer before it does"
    return Finding(
        "parameter-server",
        None,
        one.node if one else "",
        strength,
        words,
        tuple(sorted(each.worker.rank for each in waiting)),
        common_place(waiting),
        max(each.worker.servers.seconds for each in waiting if each.worker.servers),
        round=round,
        server=number,
    )


def describe_server(report: ServerReport | None) -> tuple[str, Strength]:
    """What is the matter with a server for which ranks wait, in words; None: no node tells of it."""
    if report is None:
        return "no agent tells of it", "weak"
    seconds = f"{report.seconds:.0f} s"
    match report.state:
        case "stopped":
            return "it is stopped by a signal (SIGSTOP, a debugger or a freezer)", "certain"
        case "silent":
            return (
                f"it has not answered its agent for {seconds}, and does nothing",
                "strong" if report.seconds >= HUNG else "weak",
            )
        case "works":
            return f"it works, and has not answered its agent for {seconds}", "weak"
        case "starting" if report.incarnation:
            return f"it is being started, for {seconds}", "strong"
        case "starting":
            return "it has ended, and another one is to be started", "strong"
        case "answers" if report.measure.awaits:
            return "it waits for other servers, and these for it", "weak"
        case "answers":
            return "it works, and answers its agent", "weak"
