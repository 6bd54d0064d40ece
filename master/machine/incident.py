"""Whose fault it was (pure).

One fault makes many exits: a worker is killed, and every rank that was in a collective with it dies of a connection
error, often sooner than the news of the first. An *incident* is one fault with all its consequences. It has one
cause, and is charged to one budget:

  - a lost node and a node that left in order are free, and whatever the other ranks died of is a consequence; but
    for a crash or an exception that came before the news of a departure;
  - else a failed worker is a failure, charged once against `--max-restarts`; the root cause is chosen by kind (a
    crash before an exception before an error that speaks of a lost connection), then by arrival at the master,
    never by comparing machines' clocks;
  - whoever gave up waiting for another rank is no root cause: where nothing else is known, no rank is accused;
  - a connection of the script's own, to its database, say, is a cause before these, and after all others;
  - where all that failed speak of a lost connection, and a worker of the round has ended with exit code 0, that one's
    end is the root cause: the others still needed it;
  - a node that could not start its workers (a port was taken), or whose process group broke though nobody was lost, is
    charged to nobody, within reason;
  - where a node says that what the job's servers held is lost, the job ends at once; where it can go back to a
    checkpoint of that, it is a failure, whatever else has ended;
  - where only workers of optional roles failed (`Role.optional`), a budget of their own is charged. It ends no job.

A failure that no restart can change (a missing module, a syntax error, a wrong argument) ends the job at once, and any
other exception does so after one repetition, where *every* rank failed alike soon after its start; unless the user has
said how often to restart, an exception of the script's own (`its_own`) does so wherever it came. What one rank or one
node alone has may else be gone at the next start, and so may a port that is taken or a server that does not answer:
those are restarted until `--same-failure-limit` or `--max-restarts` is reached.

The evidence is complete `GATHER` seconds after the first of it, or when every worker has failed by itself. A new round
does not wait for that: the verdict is provisional until then. Only a verdict that ends the job waits for it; one that
knows of consequences only waits for `ROOT_SECONDS`, and one that ends the job if every rank has the same failure waits
for `ALIKE_SECONDS`.
"""

import dataclasses
import re
import signal
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

from ...rendezvous import reasons
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.plural import ranks
from ...rendezvous.header import Header, Incident, Tally
from ...rendezvous.member import MAX_EXITS, Exit
from ...rendezvous.node_reasons import NodeReason, ReturnWanted, ServersLost, Unfit
from ...rendezvous.reasons import (
    FaultReason,
    Nodes,
    NodesJoined,
    NodesLeft,
    NodesLost,
    Notes,
    OutOfMemory,
    PeerLost,
    WorkerFailed,
)
from ...rendezvous.round import Outcome
from ...rendezvous.wire.fields import MAX_WORDS

GATHER = 1.0
"""Seconds from the first evidence to the final verdict: connection errors of survivors arrive within this."""

ROOT_SECONDS = 0.25
"""Where all that is known are ranks that lost another, whoever ended first has so long to be the one to tell: an
interpreter closes its connections a moment before its process is gone, and a new round would end it in that moment."""

QUICK_SECONDS = 60.0
"""A failure this soon after the start, without a report of progress, counts as no progress."""

ALIKE_SECONDS = 3.0
"""Where a failure ends the job only if every rank has it: so long after the first, the others may report the same."""

MAX_PROBLEMS_IN_ROW = 5
"""Problems in a row (ports taken, no more processes, process groups that break) before the job gives up."""

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
_ENDED_KIND, _OWN_KIND, _GAVE_UP_KIND = 3, 4, 5
_LINK_KINDS = {"own": _OWN_KIND, "gave up": _GAVE_UP_KIND, "lost": 6}
_COUPLED = re.compile(
    r"connection (was )?(closed|reset|refused|aborted|lost)|closed by peer|broken pipe|socket (timeout|error)"
    r"|rendezvous|remote (process|peer)|peer (closed|exited|is gone)|timed out .*waiting|RoundOver",
    re.IGNORECASE,
)
"""What is said of lost connections under any framework. What only one says is marked by the agent that has its adapter
(`Exit.lost_peer`), so that this folder knows of none."""

_GAVE_UP = re.compile(r"(?<!connection )tim(?:ed?|ing)[- ]?out|deadline.?exceeded|failed to pass", re.IGNORECASE)
"""What of these says that a worker waited for another: it closes its connections then, which the next ones lose."""

MANY = 64
"""Ranks that are named one by one; it bounds what a verdict costs."""

_CONNECTION_LOST = re.compile(r"(?:ConnectionResetError|ConnectionRefusedError|BrokenPipeError|EOFError)\b")
_FRAME = re.compile(r'^\s*File "([^"]*)".*(?:\n(?!\s*File ")\s+(.*))?', re.MULTILINE)
_CHAINED = re.compile(r"^(?:During handling of the above|The above exception was)", re.MULTILINE)
_OWN_PROCESS = re.compile(
    r"/data/dataloader\.py|/multiprocessing/(?:reduction|resource_sharer|queues|pool|managers)\.py"
)
_TO_OWN_PROCESS = re.compile(rf"{_OWN_PROCESS.pattern}|/multiprocessing/connection\.py")

_LAST_LINE = r"(?:last line on stderr: )?"
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError)\b")
_MISSING = re.compile(
    rf"ModuleNotFoundError\b|ImportError: cannot import name|{_LAST_LINE}\S+: No module named "
    rf"|{_LAST_LINE}\S+: Error while finding module specification for "
)
_NOT_RUN = re.compile(rf"{_LAST_LINE}(?:cannot run |\S+: can't open file .*\[Errno 2\])")
_USAGE = re.compile(rf"{_LAST_LINE}(?:[^:]+: error: |Error: )")
_PLACE = re.compile(r'^\s*File "(?:[^"]*/)?([^"]*)", line (\d+)', re.MULTILINE)
_EXCEPTION = re.compile(r"[^\W\d][\w.]*(?::|$)")
_MAY_PASS = re.compile(
    r"address already in use|EADDRINUSE|time(?:d )?-?out|deadline|temporar|unavailable|try again|busy|locked|refused"
    r"|reachable|resolution|network|connect|http|ssl|socket|quota|out ?of ?memory|no space left|too many|cuda error"
    r"|stale|input/output error|transport endpoint|cannot open shared object|slow ?down|rate ?limit|\b429\b",
    re.IGNORECASE,
)
_NOT_ITS_OWN = re.compile(
    r"\b(?:OS|IO|\w*(?:File\w*|Directory|Process|Permission|Interrupted|Connection|Pipe|EOF|Memory))Error\b"
    r"|\[Errno|killed by|exited unexpectedly|cudnn",
    re.IGNORECASE,
)
"""An error of the machine, or of another process, which the next start may not meet."""


@dataclass(frozen=True, slots=True)
class FailedWorker:
    """An exit other than 0, with its node; a sequence of them is in order of arrival at the master.

    `optional`: the node has an optional role.
    """

    node: str
    host: str
    exit: Exit
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one round's end.

    Attributes:
        exits: failed workers, in order of arrival at the master.
        lost: (node, how it was noticed) for every node that vanished.
        left: (node, why) for every node that leaves in order.
        problems: (node, what) for every node where a round came to nothing though no worker failed; what it did not.
        finished: workers that ended with exit code 0, in order of arrival: no fault by itself, but maybe a cause.
        optional: the problems are of nodes with an optional role.
        world: how many ranks the round has; 0 where that is not known.
    """

    round: int
    exits: tuple[FailedWorker, ...] = ()
    lost: tuple[tuple[str, NodeReason], ...] = ()
    left: tuple[tuple[str, NodeReason], ...] = ()
    problems: tuple[tuple[str, NodeReason], ...] = ()
    finished: tuple[FailedWorker, ...] = ()
    optional: bool = False
    world: int = 0


class Gathering:
    """The evidence of one round, as it arrives.

    A piece counts once, however often it is told. To add a piece and to ask for the verdict cost the same however much
    is known already: thousands of workers may fail at once, each of them is news, and the master judges after each.
    """

    def __init__(self, number: int) -> None:
        self.round = number
        self._exits: set[FailedWorker] = set()
        self._root: FailedWorker | None = None  # the first to arrive of the lowest kind
        self._root_kind = 0
        self._finished: FailedWorker | None = None  # the first to arrive
        self._failed, self._waited = set[int](), set[int]()  # ranks; these are among those
        self._told = Counter[str]()  # exits by node
        self._world = 0
        self._ranks: set[tuple[str, int]] = set()  # node and rank of whoever failed
        self.outside = False  # somebody has ended one of them, and may be ending its node
        self._needed = False  # not only optional roles are concerned
        # Dictionaries without values, which keep the order of arrival.
        self._lost: dict[tuple[str, NodeReason], None] = {}
        self._left: dict[tuple[str, NodeReason], None] = {}
        self._problems: dict[tuple[str, NodeReason], None] = {}

    def add(self, evidence: Evidence) -> Sequence[FailedWorker]:
        """More of it. Returns the exits that were not known."""
        if not (self._needed and self._root is not None and is_cause(self._root.exit)):
            self._left.update(dict.fromkeys(evidence.left))
        new = [failed for failed in dict.fromkeys(evidence.exits) if failed not in self._exits]
        self._exits.update(new)
        for failed in new:
            kind = _kind(failed.exit)
            self._failed.add(failed.exit.rank)
            self._told[failed.node] += 1
            if kind == _GAVE_UP_KIND:
                self._waited.add(failed.exit.rank)
            self._ranks.add((failed.node, failed.exit.rank))
            self.outside = self.outside or kind == _ENDED_KIND
            if self._root is None or kind < self._root_kind:
                self._root, self._root_kind = failed, kind
        self._world = max(self._world, evidence.world)
        if self._finished is None and evidence.finished:
            self._finished = evidence.finished[0]
        self._lost.update(dict.fromkeys(evidence.lost))
        self._problems.update(dict.fromkeys(evidence.problems))
        self._needed = (
            self._needed
            or not all(failed.optional for failed in evidence.exits)
            or (bool(evidence.problems) and not evidence.optional)
        )
        return new

    def all_failed(self, workers: int) -> bool:
        """All `workers` of the round have failed; 0: it is not known how many there are."""
        return 0 < workers <= len(self._ranks)

    def judge(self) -> Incident | None:
        """The incident that it amounts to so far; None where nothing has happened."""
        number, optional = self.round, not self._needed
        for node, what in self._problems:
            if isinstance(what, ServersLost):  # whatever workers and nodes died of then
                return Incident(number, "problem", reasons.NodeFailed(node, what), node=node)
        for node, what in self._problems:
            if isinstance(what, ReturnWanted):
                return Incident(number, "failure", what, node=node)
        if self._lost:
            return Incident(number, "lost", reasons.NodesLost(Notes.of(self._lost)), node=next(iter(self._lost))[0])
        if self._left:
            return Incident(number, "left", reasons.NodesLeft(Notes.of(self._left)), node=next(iter(self._left))[0])
        root = self._root
        if root is not None and (not self._problems or self._root_kind < _OWN_KIND):
            if self._finished is not None and self._root_kind >= _GAVE_UP_KIND:
                return dataclasses.replace(_early_end(number, self._finished, root), optional=optional)
            why = describe(root)
            if isinstance(why, PeerLost) and why.waited:
                why = dataclasses.replace(why, waited=_named(self._waited), behind=self._behind())
            return Incident(number, "failure", why, node=root.node, host=root.host, exit=root.exit, optional=optional)
        if not self._problems:
            return None
        node, what = next(iter(self._problems))
        return Incident(number, "problem", reasons.NodeFailed(node, what), node=node, optional=optional)

    def _behind(self) -> str:
        """The ranks that have not failed; empty where there is none, or not all that failed are known."""
        count = self._world - len(self._failed)
        if count <= 0 or max(self._told.values()) >= MAX_EXITS:
            return ""
        return _named(set(range(self._world)) - self._failed) if count <= MANY else f"{count} ranks"


def _named(those: Collection[int]) -> str:
    return ranks(tuple(those)) if len(those) <= MANY else f"{len(those)} ranks"


def judge(evidence: Evidence) -> Incident:
    """The incident that all of `evidence` amounts to. It must not be empty."""
    gathering = Gathering(evidence.round)
    gathering.add(evidence)
    incident = gathering.judge()
    assert incident is not None, "the evidence is empty"
    return incident


def _early_end(number: int, first: FailedWorker, peer: FailedWorker) -> Incident:
    """A worker ended with exit code 0, and others lost it: nobody failed before that."""
    lost = _lost(peer)
    why = f"it ended while other ranks still needed it; {lost}"
    exit_ = dataclasses.replace(first.exit, message=why[:MAX_WORDS])
    reason = reasons.EndedEarly(first.node, first.exit.rank, lost)
    return Incident(number, "failure", reason, node=first.node, host=first.host, exit=exit_)


def consequence(incident: Incident, *, maybe: bool = False) -> bool:
    """All that is known are ranks that lost another, or waited for it (`maybe`: or may have): what of is not."""
    return incident.exit is not None and _kind(incident.exit) >= (_OWN_KIND if maybe else _GAVE_UP_KIND)


def is_cause(exit_: Exit) -> bool:
    """By itself, whoever leaves afterwards: a departure is told before anything that comes of it."""
    return _kind(exit_) < _ENDED_KIND


def describe(failed: FailedWorker) -> WorkerFailed | OutOfMemory | PeerLost:
    """What one failed worker amounts to. Whoever lost a peer is no cause, even where no other is known (yet)."""
    exit_ = failed.exit
    if _kind(exit_) >= _GAVE_UP_KIND:
        return _lost(failed)
    if exit_.oom_kills:
        return OutOfMemory(failed.node, exit_.rank, exit_.oom_kills)
    return WorkerFailed(failed.node, exit_.rank, exit_.code, exit_.signal, exit_.brief)


def _lost(peer: FailedWorker) -> PeerLost:
    exit_, waited = peer.exit, lost_link(peer.exit) == "gave up"
    return PeerLost(peer.node, exit_.rank, exit_.code, exit_.brief, ranks([exit_.rank]) if waited else "")


def _kind(exit_: Exit) -> int:
    """0: a crash. 1: an exception. 2: it does not say. 3: maybe an abort due to another. From 4 on: see `lost_link`."""
    if exit_.code == 0:
        return 2  # the cause, where it is looked at: others lost it
    if exit_.signal in _CRASHES:
        return 0
    link = lost_link(exit_)
    if exit_.signal is not None and link != "gave up":
        return _ENDED_KIND
    return _LINK_KINDS.get(link, 1 if exit_.message else 2)


def lost_link(exit_: Exit) -> Literal["", "own", "gave up", "lost"]:
    """What a worker says of a connection: it `lost` another rank, `gave up` waiting for one, or lost one of its `own`.

    Own is the script's to its database, say. That is told by who raised the first exception: Python's sockets or a
    library, and no collective's, which raises in its own files, or in native code on the script's line. At its other
    end may be another rank all the same.
    """
    if not (exit_.lost_peer or _COUPLED.search(exit_.message)) or lost_own_process(exit_):
        return ""
    from ..diagnosis.frames import LIBRARY, STANDARD  # here, because a job without a fault needs none
    from ..diagnosis.places import COLLECTIVES

    frames = _FRAME.findall(_CHAINED.split(exit_.traceback)[0])
    outside = [frame for frame in frames if not STANDARD.search(frame[0])]
    if outside and not any(part in outside[-1][0] for part in COLLECTIVES):
        file, line = outside[-1]
        raised = outside[-1] is not frames[-1] or line.startswith("raise ") or _CONNECTION_LOST.match(exit_.message)
        if raised if not LIBRARY.search(file) else not exit_.lost_peer:
            return "own"
    return "gave up" if _GAVE_UP.search(exit_.message) else "lost"


def lost_own_process(exit_: Exit) -> bool:
    """A worker that lost the connection to a process of its own, a data loader's, say.

    That is told by the innermost frame: data sets and samplers have collective operations inside a data loader, too.
    """
    if not _CONNECTION_LOST.match(exit_.message) or not _OWN_PROCESS.search(exit_.traceback):
        return False
    files = _FRAME.findall(exit_.traceback)
    return bool(files) and _TO_OWN_PROCESS.search(files[-1][0]) is not None


def charge(tally: Tally, incident: Incident | None) -> Tally:
    """The tally after `incident` is closed; as it was where there is none."""
    if incident is None:
        return tally
    if incident.optional:
        return dataclasses.replace(tally, optional=tally.optional + 1)
    if incident.cause == "problem":
        row = tally.problems_in_row if incident.ran < QUICK_SECONDS else 0
        return dataclasses.replace(tally, problems=tally.problems + 1, problems_in_row=row + 1)
    tally = dataclasses.replace(tally, problems_in_row=0)
    nodes = _nodes(incident)
    if incident.cause == "lost":
        return dataclasses.replace(tally, lost=tally.lost + nodes)
    if incident.cause == "left" and (unfit := _unfit(incident)):
        return dataclasses.replace(tally, left=tally.left + nodes - unfit, unfit=tally.unfit + unfit)
    if incident.cause == "left":
        return dataclasses.replace(tally, left=tally.left + nodes)
    if incident.cause == "joined":
        return dataclasses.replace(tally, joined=tally.joined + nodes)
    if incident.cause != "failure":
        return tally
    signature = (likeness(incident.exit) and likeness(incident.exit) + _place(incident.exit)) if incident.exit else ""
    repeats = tally.repeats + 1 if signature and signature == tally.signature else 1 if signature else 0
    return dataclasses.replace(tally, failures=tally.failures + 1, signature=signature, repeats=repeats)


def count_restarts(tally: Tally, because: Incident | None, before: Header | None) -> int:
    """The failures with `because`, and no fewer than workers were told `before`: later news may take a charge back."""
    return max(charge(tally, because).failures, before.restart_count if before else 0)


def _nodes(incident: Incident) -> int:
    """How many nodes were lost, have left, or have joined."""
    match incident.reason:
        case NodesLost(nodes) | NodesLeft(nodes) | NodesJoined(nodes):
            return len(nodes)
        case _:
            return 1


def _unfit(incident: Incident) -> int:
    """How many of the nodes that have left could not run their workers; of many, those whose reasons are told."""
    reason = incident.reason
    return sum(isinstance(note.why, Unfit) for note in reason.nodes.notes) if isinstance(reason, NodesLeft) else 0


def fatal(
    tally: Tally, incident: Incident, max_restarts: int, same_failure_limit: int
) -> tuple[Outcome, FaultReason] | None:
    """How the job must end on account of `incident`, and why; None: a new round may be opened.

    Args:
        tally: `incident` included.
    """
    if incident.optional:
        return None
    what = incident.reason
    if isinstance(what, reasons.NodeFailed) and isinstance(what.why, ServersLost):
        return "failed", what
    if tally.failures > max_restarts:
        return "failed", reasons.RestartsSpent(what, tally.failures, max_restarts)
    if same_failure_limit and tally.repeats >= same_failure_limit:
        return "repeated", reasons.SameFailure(what, tally.repeats, QUICK_SECONDS)
    if tally.problems_in_row >= MAX_PROBLEMS_IN_ROW:
        return "failed", reasons.StartsFailed(what, tally.problems_in_row)
    return None


def likeness(exit_: Exit) -> str:
    """What makes two failures the same; empty for those that tell nothing (a signal from outside, a slow one)."""
    if exit_.signal is not None or exit_.seconds > QUICK_SECONDS:
        return ""
    if exit_.code == 0:
        return "0:"  # what its peers died of varies
    words = re.sub(r"0x[0-9a-f]+|\d+", "#", exit_.message)
    return f"{exit_.code}:{words}"


Prospect = Literal["open", "poor", "none"]
"""What a restart can do about a failure, as far as the failure's own words say. none: nothing. poor: nothing, unless it
was an accident. open: it may be gone by then."""


def prospect(exit_: Exit) -> Prospect:
    """What a restart can do about this failure, if every rank of the round has it."""
    message = exit_.message
    if not likeness(exit_) or lost_link(exit_):
        return "open"
    if _SYNTAX.match(message):
        # Text that the script itself gave to eval() may be another one at the next start.
        files = _FRAME.findall(exit_.traceback)
        return "poor" if files and files[-1][0].startswith("<") else "none"
    if _MISSING.match(message) or (exit_.code in (2, 126, 127) and _NOT_RUN.match(message)):
        return "none"
    if _MAY_PASS.search(message):
        return "open"
    if exit_.code == 2 and _USAGE.match(message):
        return "none"
    return "poor" if exit_.traceback and _EXCEPTION.match(message) else "open"


def its_own(exit_: Exit) -> bool:
    """An exception of the script at a line of it, before it has made a step: the next start most likely meets it."""
    own = prospect(exit_) == "poor" and not _NOT_ITS_OWN.search(exit_.message)
    return own and not exit_.advanced and bool(_place(exit_))


def _place(exit_: Exit) -> str:
    """Where it was raised: without the folder, which another node may not have."""
    places = _PLACE.findall(exit_.traceback)
    return f" at {places[-1][0]}:{places[-1][1]}" if places else ""


def hopeless(tally: Tally, incident: Incident) -> tuple[Outcome, FaultReason] | None:
    """How the job must end if every rank failed as `incident` says, and why; None: it is restarted all the same.

    Args:
        tally: `incident` included.
    """
    if incident.cause != "failure" or incident.exit is None or incident.optional:
        return None
    match prospect(incident.exit):
        case "none":
            return "failed", reasons.CannotBeFixed(incident.reason)
        case "poor" if tally.repeats >= 2:
            return "repeated", reasons.SameFailure(incident.reason, tally.repeats, QUICK_SECONDS)
        case _:
            return None


def joins(round_number: int, nodes: Sequence[str]) -> Incident:
    """A round opened for newcomers, as an incident that costs nothing."""
    return Incident(round_number, "joined", reasons.NodesJoined(Nodes.of(nodes)), node=nodes[0] if nodes else "")
