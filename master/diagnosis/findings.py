"""What a diagnosis finds, as values, and the sentence for each (pure).

A finding names a rank and a cause. Its kind says to which domain the cause belongs, and what a retry can do about it.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.base.plural import ranks
from ...rendezvous.wire.fields import Name, Number, Words
from ...rendezvous.wire.values import Count
from .evidence import MAX_LINES, Brief, Frame

Domain = Literal["script", "data", "framework", "network", "host", "store"]
Outlook = Literal["helps", "may help", "in vain"]
"""What a restart of the workers can do."""

Strength = Literal["certain", "strong", "weak"]
"""certain: the kernel says so. strong: it is the only rank for which the others wait. weak: it fits what is seen."""

Hang = Literal[
    "stopped",
    "deadlock",
    "mismatched-collective",
    "mismatched-messages",
    "uneven-steps",
    "sleeps",
    "waits-for-child",
    "blocked-pipe",
    "blocked-file",
    "file-lock",
    "silent-server",
    "loader-died",
    "loader-stuck",
    "gil-held",
    "busy-loop",
    "long-compute",
    "device-wait",
    "lost-route",
    "parameter-server",
    "standstill",
]
"""Kinds of a job that stands still: `--on-hang` is about these."""

Kind = Literal[
    Hang,
    "mismatched-sizes",
    "cpu-taken",
    "slow-compute",
    "slow-data",
    "slow-network",
    "silent-node",
    "clock-skew",
    "memory-near",
    "descriptors-near",
    "processes-near",
    "disk-full",
    "out-of-memory",
    "descriptor-limit",
    "thread-limit",
    "abort",
    "crash",
]

HANGS: frozenset[Kind] = frozenset(get_args(Hang))

WORKS: frozenset[Kind] = frozenset(("long-compute", "parameter-server"))
"""Kinds of a rank that may come on, and what agents mend by themselves: `--on-hang` leaves it alone."""

_KINDS: Mapping[Kind, tuple[Domain, Outlook, str]] = {
    "stopped": ("host", "helps", "is stopped by a signal (SIGSTOP, a debugger or a freezer)"),
    "deadlock": ("script", "may help", "waits for a lock, a queue, a thread or an event"),
    "mismatched-collective": ("script", "in vain", "is in another collective operation than the others"),
    "mismatched-messages": (
        "script",
        "in vain",
        "is in a circle of ranks each of which waits for the next one",
    ),
    "uneven-steps": (
        "data",
        "in vain",
        "has ended with exit code 0 while the others still wait for it: it had fewer steps",
    ),
    "sleeps": ("script", "may help", "sleeps"),
    "waits-for-child": ("script", "may help", "waits for a process that it has started"),
    "blocked-pipe": ("data", "may help", "waits for a pipe whose other end does nothing"),
    "blocked-file": ("host", "may help", "waits for a file system that does not answer"),
    "file-lock": ("host", "may help", "waits for a lock on a file"),
    "silent-server": ("network", "may help", "waits for a server that does not answer"),
    "loader-died": ("data", "helps", "waits for a process that it has started, and that has died"),
    "loader-stuck": (
        "data",
        "may help",
        "waits for data, or for a lock, of processes that it has started, and they do nothing",
    ),
    "gil-held": ("framework", "may help", "is blocked in a call that keeps the interpreter's lock"),
    "busy-loop": ("script", "may help", "computes in one place and does not come on"),
    "long-compute": ("script", "may help", "has computed in one place for very long"),
    "device-wait": ("framework", "may help", "waits for its accelerator (GPU), which does not end what it computes"),
    "lost-route": ("network", "in vain", "has sent what does not arrive: the network to its peer is interrupted"),
    "parameter-server": ("host", "in vain", "keeps workers waiting"),
    "standstill": ("script", "may help", "no rank is proven to be the cause"),
    "mismatched-sizes": (
        "script",
        "in vain",
        "was sent data of another size than it expected in a collective operation: the ranks give it "
        "tensors of different shapes, or are in different operations",
    ),
    "cpu-taken": ("host", "in vain", "is ready to run and gets no processor"),
    "slow-compute": ("script", "may help", "computes for longer than the others in each step"),
    "slow-data": ("data", "may help", "waits for its data for longer than the others in each step"),
    "slow-network": ("network", "may help", "waits for the network for longer than the others in each step"),
    "silent-node": ("host", "may help", "is on a node whose agent does not answer"),
    "clock-skew": ("host", "in vain", "is on a node with a wrong clock"),
    "memory-near": ("host", "in vain", "is on a node that has almost no memory left"),
    "descriptors-near": ("script", "may help", "has almost as many open files as it may have"),
    "processes-near": ("host", "may help", "is on a node that has almost as many processes and threads as it may have"),
    "disk-full": ("host", "in vain", "had no room left on a disk"),
    "out-of-memory": ("host", "may help", "ran out of memory"),
    "descriptor-limit": ("script", "may help", "had as many open files as it may have"),
    "thread-limit": ("host", "may help", "could start no further thread or process"),
    "abort": ("framework", "may help", "was aborted by a library"),
    "crash": ("framework", "may help", "crashed in native code"),
}

DOMAIN: Mapping[Kind, Domain] = {kind: domain for kind, (domain, _, _) in _KINDS.items()}
OUTLOOK: Mapping[Kind, Outlook] = {kind: outlook for kind, (_, outlook, _) in _KINDS.items()}
WORDS: Mapping[Kind, str] = {kind: words for kind, (_, _, words) in _KINDS.items()}

assert set(get_args(Kind)) == set(_KINDS)

MAX_FINDINGS = 8
"""Of one diagnosis: more than a person reads."""

MAX_SHOWN = 8
"""Calls of a suspect's stack that a finding shows."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rank (or node), and what is the matter with it.

    Attributes:
        kind: see above; `domain` and `outlook` follow from it.
        rank: the suspect; None: the whole node, or a parameter server.
        where: the place in the script, or what it waits for; empty where it is not known.
        waiting: ranks that wait for it.
        waiting_where: where they do.
        seconds: for which that has lasted, at least.
        last_lines: of the suspect's output.
        frames: calls of the suspect's stack, the innermost first; empty where it was not taken.
        done: what the master did about it; empty where it was only told.
        server: the number of the parameter server that is the suspect; None: none is.
    """

    kind: Kind
    rank: Number | None
    node: Name
    strength: Strength
    where: Words = ""
    waiting: tuple[Number, ...] = ()
    waiting_where: Words = ""
    seconds: float = 0.0
    last_lines: Annotated[tuple[Brief, ...], Count(MAX_LINES)] = ()
    round: Number = 0
    frames: Annotated[tuple[Frame, ...], Count(MAX_SHOWN)] = ()
    done: Words = ""
    server: Number | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Of what is the same at the next look."""
        return self.round, self.kind, self.node, self.rank, self.server

    @property
    def domain(self) -> Domain:
        """Where the cause lies."""
        return DOMAIN[self.kind]

    @property
    def outlook(self) -> Outlook:
        """What a restart of the workers can do about it."""
        return OUTLOOK[self.kind]

    def __str__(self) -> str:
        since = f", for {self.seconds:.0f} s" if self.seconds >= 1 else ""
        if self.kind == "standstill":
            return f"{WORDS[self.kind]}{since}: {self.where}"
        who = f"node {self.node}" if self.rank is None else f"rank {self.rank} on node {self.node}"
        if self.server is not None:
            who = f"parameter server {self.server}" + (f" on node {self.node}" if self.node else "")
        what = WORDS[self.kind]
        if self.rank is None:
            what = what.removeprefix("is on a node that ").removeprefix("is on a node with ")
            what = {"a wrong clock": "has a wrong clock"}.get(
                what, what.replace("is on a node whose agent", "has an agent that")
            )
        where = f" ({self.where})" if self.where else ""
        waiting = ""
        if self.waiting:
            at = f" in {self.waiting_where}" if self.waiting_where else ""
            waiting = f"; {ranks(self.waiting)} {'waits' if len(self.waiting) == 1 else 'wait'}{at}"
        return f"{who} {what}{where}{since}{waiting}"


Findings = Annotated[tuple[Finding, ...], Count(MAX_FINDINGS)]
