"""What an agent records in the trace: evidence, rounds, stops, starts, the lives of workers.

Its rows: `agent`, what it does, one after the other; `rounds`, what it sees and what it waits for; and for each rank
that it has, how long that worker lived, in which round, and what it died of. A recovery reads from left to right:
`detect`, `decide` (from the first evidence to the header of the next round), `stop`, `start`.

Without a file nothing is recorded. Times are seconds of the monotonic clock, as the event loop's are.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ..master.diagnosis.findings import Finding
from ..rendezvous.header import Header
from ..rendezvous.host.trace_file import AGENT, Trace
from ..rendezvous.member import Exit
from ..rendezvous.ranks import Assignment
from ..rendezvous.wire.fields import signal_name
from .processes.guardian import stat_fields

ROUNDS = "rounds"

OLDEST_START = 600.0
"""Seconds. A process that has been there for longer did not begin as this launcher, or the kernel does not tell."""


class Observer(Protocol):
    """Is told of what happens to one agent, as it happens; must return at once."""

    def header(self, header: Header, *, mine: bool) -> None:
        """Another header is seen; `mine`: this node is in its round."""
        ...

    def exits(self, exits: Sequence[Exit]) -> None:
        """The current workers' ends so far, those that were told before included."""
        ...

    def started(self, header: Header, assignment: Assignment, down: float, problem: str) -> None:
        """The workers of a round run, `down` seconds after the last ran, or there was a problem."""
        ...

    def noticed(self, signal: str) -> None:
        """This node was told to leave."""
        ...

    def diagnosed(self, finding: Finding) -> None:
        """This node's master has found that, maybe again."""
        ...


class Recorder:
    """Follows one agent.

    Args:
        trace: where it is recorded.
        observer: is told of it as well; None: nobody.
    """

    def __init__(self, trace: Trace, observer: Observer | None = None) -> None:
        self._trace = trace
        self._observer = observer
        self._apart: float | None = trace.now()  # since when this node is not registered
        self._evidence: float | None = None  # the first since the last header
        self._created = self._begun = trace.now()  # when the start of the current workers began
        self._seen: set[tuple[int, int]] = set()  # round and pid of the workers whose end is recorded

    @property
    def file(self) -> str:
        """For the workers; empty where nothing is recorded."""
        return self._trace.file or ""

    def instant(self, name: str, /, **args: object) -> None:
        """Something happens to the agent now."""
        self._trace.instant(name, AGENT, **args)

    def span(self, name: str, /, **args: object) -> AbstractContextManager[None]:
        """The agent does something while the context lasts."""
        return self._trace.span(name, AGENT, **args)

    def ready(self) -> None:
        """All is prepared; what comes next is to register."""
        now = self._trace.now()
        self._trace.since(self._created, "prepare", AGENT, until=now)
        self._apart = now

    def lost(self, why: str) -> None:
        """This node is not registered any more."""
        self._apart = self._trace.now()
        self._trace.instant("unregistered", ROUNDS, why=why)

    def registered(self) -> None:
        """This node is a member; now it waits for a round."""
        if self._apart is not None:
            self._trace.since(self._apart, "register", AGENT)
        self._apart, self._evidence = None, self._trace.now()

    def reported(self, state: str, begun: float) -> None:
        """The store holds what this node says of itself; writing it began at `begun`."""
        self._trace.instant("report", ROUNDS, state=state, seconds=round(self._trace.now() - begun, 6))

    def noticed(self, signal: str) -> None:
        """This node was told to leave."""
        self.instant("notice", signal=signal)
        if self._observer:
            self._observer.noticed(signal)

    def exits(self, exits: Sequence[Exit]) -> None:
        """The current workers' ends so far."""
        if self._observer:
            self._observer.exits(exits)
        for exit_ in exits:
            if (exit_.round, exit_.pid) in self._seen:
                continue
            self._seen.add((exit_.round, exit_.pid))
            of: dict[str, object] = {"round": exit_.round, "rank": exit_.rank, "pid": exit_.pid}
            of |= {"code": exit_.code} if exit_.signal is None else {"signal": signal_name(exit_.signal)}
            if not exit_.ok and not exit_.stopped:
                self._trace.instant("detect", ROUNDS, **of)
                self._evidence = self._evidence or self._trace.now()
            self._trace.record(self._begun, self._trace.now(), f"round {exit_.round}", f"rank {exit_.rank}", of)

    def header(self, header: Header, *, mine: bool) -> None:
        """The header of another round is seen; `mine`: this node is in it.

        The span begins at this node's own evidence. Where another node had all of it, it has no length.
        """
        if self._observer:
            self._observer.header(header, mine=mine)
        now = self._trace.now()
        of: dict[str, object] = {"round": header.number, "state": header.state, "nodes": header.nodes}
        if not header.final:
            of |= {"workers": header.world_size, "cause": header.cause}
        begun = now if self._evidence is None else self._evidence
        self._trace.record(begun, now, "decide", ROUNDS, {**of, "code": header.reason.code, "reason": header.reason})
        self._evidence = None if header.state == "open" and mine else now

    def starting(self) -> None:
        """The old workers are gone, and new ones are about to be started."""
        self._begun = self._trace.now()

    def started(self, header: Header, assignment: Assignment, problem: str = "", down: float = 0.0) -> None:
        """The workers of a round run, `down` seconds after the last ran, or there was a problem."""
        if self._observer:
            self._observer.started(header, assignment, down, problem)
        last = assignment.first_rank + assignment.nproc - 1
        ranks = f"{assignment.first_rank}" if assignment.nproc == 1 else f"{assignment.first_rank}-{last}"
        of: dict[str, object] = {"round": header.number, "run": header.run, "ranks": ranks, "cause": header.cause}
        of |= {"code": header.reason.code, "reason": header.reason}
        if problem:
            of["problem"] = problem
        self._trace.record(self._begun, self._trace.now(), "start", AGENT, of)


def begin(trace: Trace, entered: float) -> None:
    """Records what was done before there was a trace.

    Args:
        trace: just made.
        entered: when the command line was begun to be read.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):  # no /proc, or not as Linux has it
        began = _process_began()
        if entered - began < OLDEST_START:
            trace.since(began, "interpreter", AGENT, until=entered)
    trace.since(entered, "options", AGENT)


def _process_began() -> float:
    """On the monotonic clock; the kernel counts in ticks of 10 ms, and also while the machine is suspended."""
    since_boot = int(stat_fields("self")[19]) / os.sysconf("SC_CLK_TCK")
    suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return since_boot - suspended
