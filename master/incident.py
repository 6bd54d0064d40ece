"""Whose fault it was (pure).

One fault makes many exits: a worker is killed, and every rank that was in a collective with it dies of a connection
error, often sooner than the news of the first. An *incident* is one fault with all its consequences. It has one
cause, and is charged to one budget:

  - a lost node and a node that left in order are free, and whatever the other ranks died of is a consequence;
  - else a failed worker is a failure, charged once against `--max-restarts`; the root cause is chosen by kind (a
    crash before an exception before an error that speaks of a lost connection), then by arrival at the master,
    never by comparing machines' clocks;
  - a node that could not start its workers (a port was taken), or whose ring broke though nobody was lost, is charged
    to nobody, within reason.

The evidence is complete `GATHER` seconds after the first of it. A new round does not wait for that: the verdict is
provisional until then. Only a verdict that ends the job waits for it; one that knows of consequences only waits for
`ROOT_SECONDS`.
"""

import dataclasses
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from ..rendezvous.header import Incident, Tally
from ..rendezvous.member import Exit, signal_name
from ..rendezvous.round import Outcome

GATHER = 1.0
"""Seconds from the first evidence to the final verdict: connection errors of survivors arrive within this."""

ROOT_SECONDS = 0.25
"""Where all that is known are ranks that lost another, whoever ended first has so long to be the one to tell: an
interpreter closes its connections a moment before its process is gone, and a new round would end it in that moment."""

QUICK_SECONDS = 60.0
"""A failure this soon after the start, without a report of progress, counts as no progress."""

MAX_PROBLEMS_IN_ROW = 5
"""Problems in a row (ports taken, no more processes, rings that break) before the job gives up."""

NAMED = 4
"""Nodes that an incident names; of the others it says how many."""

_CRASHES = {
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGILL,
    signal.SIGFPE,
    signal.SIGSYS,
    signal.SIGTRAP,
    signal.SIGXCPU,
}
_COUPLED_KIND = 4
_COUPLED = re.compile(
    r"connection (was )?(closed|reset|refused|aborted|lost)|closed by peer|broken pipe|socket (timeout|error)"
    r"|gloo|nccl|mpi_|ucc\b|store.*(timed? ?out|closed)|rendezvous|DistNetworkError|DistBackendError|DistStoreError"
    r"|remote (process|peer)|peer (closed|exited|is gone)|timed out .*(waiting|store)|HorovodInternalError|RoundOver",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FailedWorker:
    """An exit other than 0, with its node; a sequence of them is in order of arrival at the master."""

    node: str
    host: str
    exit: Exit


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one round's end.

    Attributes:
        round: its number.
        exits: failed workers, in order of arrival at the master.
        lost: (node, how it was noticed) for every node that vanished.
        left: (node, why) for every node that leaves in order.
        problems: (node, what) for every node where a round came to nothing though no worker failed; what it did not.
    """

    round: int
    exits: tuple[FailedWorker, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()

    def joined(self, more: "Evidence") -> "Evidence":
        """This and `more`, each piece once, in order of arrival."""
        return Evidence(
            self.round,
            tuple(dict.fromkeys((*self.exits, *more.exits))),
            tuple(dict.fromkeys((*self.lost, *more.lost))),
            tuple(dict.fromkeys((*self.left, *more.left))),
            tuple(dict.fromkeys((*self.problems, *more.problems))),
        )

    @property
    def empty(self) -> bool:
        """Nothing has happened."""
        return not (self.exits or self.lost or self.left or self.problems)


def judge(evidence: Evidence) -> Incident:
    """The incident that the evidence so far amounts to. The evidence must not be empty."""
    number = evidence.round
    if evidence.lost:
        text = _some([f"node {node} was lost: {how}" for node, how in evidence.lost])
        return Incident(number, "lost", text, node=evidence.lost[0][0])
    if evidence.left:
        text = _some([f"node {node} left: {why}" for node, why in evidence.left])
        return Incident(number, "left", text, node=evidence.left[0][0])
    exits = [failed for failed in evidence.exits if not evidence.problems or _kind(failed.exit) < _COUPLED_KIND]
    if exits:
        root = min(exits, key=lambda failed: _kind(failed.exit))  # the first to arrive among equals
        return Incident(number, "failure", describe(root), node=root.node, host=root.host, exit=root.exit)
    node, what = evidence.problems[0]
    return Incident(number, "problem", f"node {node} {what}", node=node)


def consequence(incident: Incident) -> bool:
    """All that is known are ranks that lost another: what of is not."""
    return incident.exit is not None and _kind(incident.exit) == _COUPLED_KIND


def describe(failed: FailedWorker) -> str:
    """One failed worker in words. Whoever lost a peer is no cause, even where no other is known (yet)."""
    exit_ = failed.exit
    if _kind(exit_) == _COUPLED_KIND:
        return f"rank {exit_.rank} on node {failed.node} lost another rank (exit code {exit_.code}: {exit_.message})"
    how = f"died by {signal_name(exit_.signal)} ({exit_.signal})" if exit_.signal else f"exited with code {exit_.code}"
    what = f": {exit_.message}" if exit_.message else ""
    return f"rank {exit_.rank} on node {failed.node} {how}{what}"


def _kind(exit_: Exit) -> int:
    """0: a crash. 1: an exception. 2: it does not say. 3: maybe an abort on account of another. 4: a lost peer."""
    if exit_.signal is not None:
        return 0 if exit_.signal in _CRASHES else 3
    if _COUPLED.search(exit_.message):
        return _COUPLED_KIND
    return 1 if exit_.message else 2


def charge(tally: Tally, incident: Incident | None) -> Tally:
    """The tally after `incident` is closed; as it was where there is none."""
    if incident is None:
        return tally
    if incident.cause == "problem":
        row = tally.problems_in_row if incident.ran < QUICK_SECONDS else 0
        return dataclasses.replace(tally, problems=tally.problems + 1, problems_in_row=row + 1)
    tally = dataclasses.replace(tally, problems_in_row=0)
    if incident.cause == "lost":
        return dataclasses.replace(tally, lost=tally.lost + 1)
    if incident.cause == "left":
        return dataclasses.replace(tally, left=tally.left + 1)
    if incident.cause == "joined":
        return dataclasses.replace(tally, joined=tally.joined + 1)
    if incident.cause != "failure":
        return tally
    signature = _signature(incident)
    repeats = tally.repeats + 1 if signature and signature == tally.signature else 1 if signature else 0
    return dataclasses.replace(tally, failures=tally.failures + 1, signature=signature, repeats=repeats)


def fatal(tally: Tally, max_restarts: int, same_failure_limit: int) -> tuple[Outcome, str] | None:
    """How the job must end once `tally` includes the last incident, with words; None: a new round may be opened."""
    if tally.failures > max_restarts:
        budget = f"--max-restarts={max_restarts}"
        return "failed", f"that is failure {tally.failures}, and {budget} allows {max_restarts}"
    if same_failure_limit and tally.repeats >= same_failure_limit:
        return (
            "repeated",
            f"the same failure {tally.repeats} times in a row, each within {QUICK_SECONDS:g} s of the start",
        )
    if tally.problems_in_row >= MAX_PROBLEMS_IN_ROW:
        return "failed", f"rounds came to nothing {tally.problems_in_row} times in a row"
    return None


def _signature(incident: Incident) -> str:
    """What makes two failures the same; empty for those that tell nothing (a signal from outside, a slow one)."""
    exit_ = incident.exit
    if exit_ is None or exit_.signal is not None or exit_.seconds > QUICK_SECONDS:
        return ""
    words = re.sub(r"0x[0-9a-f]+|\d+", "#", exit_.message)
    return f"{exit_.code}:{words}"


def arrivals(round_number: int, nodes: Sequence[str]) -> Incident:
    """A round opened for newcomers, as an incident that costs nothing."""
    return Incident(round_number, "joined", f"{_some(nodes, ', ')} joined", node=nodes[0] if nodes else "")


def _some(texts: Sequence[str], separator: str = "; ") -> str:
    """The first few of many: ten thousand nodes may be lost at once, and the header must stay small."""
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return separator.join(texts[:NAMED]) + more
