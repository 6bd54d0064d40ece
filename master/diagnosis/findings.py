"""What a diagnosis finds, as values, and the sentence for each (pure).

A finding names a rank and a cause. Its kind says to which domain the cause belongs, and what a retry can do about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from ...rendezvous.fields import Name, Number, Words
from ...rendezvous.wire.values import Count
from .evidence import MAX_LINES, Brief, Frame

Domain = Literal["script", "data", "framework", "network", "host", "store"]
Outlook = Literal["helps", "may help", "in vain"]
"""What a restart of the workers can do."""

Strength = Literal["certain", "strong", "weak"]
"""certain: the kernel says so. strong: it is the only rank for which the others wait. weak: it fits what is seen."""

Kind = Literal[
    "stopped",
    "deadlock",
    "mismatched-collective",
    "mismatched-sizes",
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
    "device-wait",
    "cpu-taken",
    "slow-compute",
    "slow-data",
    "slow-network",
    "lost-route",
    "standstill",
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

DOMAIN: Mapping[Kind, Domain] = {
    "stopped": "host",
    "deadlock": "script",
    "mismatched-collective": "script",
    "mismatched-sizes": "script",
    "uneven-steps": "data",
    "sleeps": "script",
    "waits-for-child": "script",
    "blocked-pipe": "data",
    "blocked-file": "host",
    "file-lock": "host",
    "silent-server": "network",
    "loader-died": "data",
    "loader-stuck": "data",
    "gil-held": "framework",
    "busy-loop": "script",
    "device-wait": "framework",
    "cpu-taken": "host",
    "slow-compute": "script",
    "slow-data": "data",
    "slow-network": "network",
    "lost-route": "network",
    "standstill": "script",
    "silent-node": "host",
    "clock-skew": "host",
    "memory-near": "host",
    "descriptors-near": "script",
    "processes-near": "host",
    "disk-full": "host",
    "out-of-memory": "host",
    "descriptor-limit": "script",
    "thread-limit": "host",
    "abort": "framework",
    "crash": "framework",
}

OUTLOOK: Mapping[Kind, Outlook] = {
    "stopped": "helps",
    "deadlock": "may help",
    "mismatched-collective": "in vain",
    "mismatched-sizes": "in vain",
    "uneven-steps": "in vain",
    "sleeps": "may help",
    "waits-for-child": "may help",
    "blocked-pipe": "may help",
    "blocked-file": "may help",
    "file-lock": "may help",
    "silent-server": "may help",
    "loader-died": "helps",
    "loader-stuck": "may help",
    "gil-held": "may help",
    "busy-loop": "may help",
    "device-wait": "may help",
    "cpu-taken": "in vain",
    "slow-compute": "may help",
    "slow-data": "may help",
    "slow-network": "may help",
    "lost-route": "in vain",
    "standstill": "may help",
    "silent-node": "may help",
    "clock-skew": "in vain",
    "memory-near": "in vain",
    "descriptors-near": "may help",
    "processes-near": "may help",
    "disk-full": "in vain",
    "out-of-memory": "may help",
    "descriptor-limit": "may help",
    "thread-limit": "may help",
    "abort": "may help",
    "crash": "may help",
}

HANGS: frozenset[Kind] = frozenset(
    (
        "stopped",
        "deadlock",
        "mismatched-collective",
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
        "device-wait",
        "lost-route",
        "standstill",
    )
)
"""Kinds of a job that stands still: `--on-hang` is about these."""

WORDS: Mapping[Kind, str] = {
    "stopped": "is stopped by a signal (SIGSTOP, a debugger or a freezer)",
    "deadlock": "waits for a lock that nobody releases",
    "mismatched-collective": "is in another collective operation than the others",
    "mismatched-sizes": "was sent data of another size than it expected in a collective operation: the ranks give it "
    "tensors of different shapes, or are in different operations",
    "uneven-steps": "has ended with exit code 0 while the others still wait for it: it had fewer steps",
    "sleeps": "sleeps",
    "waits-for-child": "waits for a process that it has started",
    "blocked-pipe": "waits for a pipe whose other end does nothing",
    "blocked-file": "waits for a file system that does not answer",
    "file-lock": "waits for a lock on a file",
    "silent-server": "waits for a server that does not answer",
    "loader-died": "waits for a data-loading process that has died",
    "loader-stuck": "waits for data, and its data-loading processes do nothing",
    "gil-held": "is blocked in a call that keeps the interpreter's lock",
    "busy-loop": "computes in one place and does not come on",
    "device-wait": "waits for its accelerator (GPU), which does not end what it computes",
    "cpu-taken": "is ready to run and gets no processor",
    "slow-compute": "computes for longer than the others in each step",
    "slow-data": "waits for its data for longer than the others in each step",
    "slow-network": "waits for the network for longer than the others in each step",
    "lost-route": "has sent what does not arrive: the network to its peer is interrupted",
    "standstill": "no rank is proven to be the cause",
    "silent-node": "is on a node whose agent does not answer",
    "clock-skew": "is on a node with a wrong clock",
    "memory-near": "is on a node that has almost no memory left",
    "descriptors-near": "has almost as many open files as it may have",
    "processes-near": "is on a node that has almost as many processes and threads as it may have",
    "disk-full": "had no room left on a disk",
    "out-of-memory": "ran out of memory",
    "descriptor-limit": "had as many open files as it may have",
    "thread-limit": "could start no further thread or process",
    "abort": "was aborted by a library",
    "crash": "crashed in native code",
}

assert set(get_args(Kind)) == set(WORDS) == set(DOMAIN) == set(OUTLOOK)

MAX_FINDINGS = 8
"""Of one diagnosis: more than a person reads."""

MAX_SHOWN = 8
"""Calls of a suspect's stack that a finding shows."""

NAMED = 8
"""Ranks that a sentence names; of the others it says how many."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rank (or node), and what is the matter with it.

    Attributes:
        kind: see above; `domain` and `outlook` follow from it.
        rank: the suspect; None: the whole node.
        node: on which it is.
        strength: of the evidence.
        where: the place in the script, or what it waits for; empty where it is not known.
        waiting: ranks that wait for it.
        waiting_where: where they do.
        seconds: for which that has lasted, at least.
        last_lines: of the suspect's output.
        round: of the job.
        frames: calls of the suspect's stack, the innermost first; empty where it was not taken.
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

    @property
    def key(self) -> tuple[object, ...]:
        """Of what is the same at the next look."""
        return self.round, self.kind, self.node, self.rank

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


def ranks(numbers: Sequence[int]) -> str:
    """Some ranks, for a sentence: `ranks 0-2, 5`."""
    spans = list[list[int]]()
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:NAMED]]
    more = f" and {sum(b - a + 1 for a, b in spans[NAMED:])} more" if len(spans) > NAMED else ""
    return f"{'rank' if len(set(numbers)) == 1 else 'ranks'} {', '.join(shown)}{more}"
