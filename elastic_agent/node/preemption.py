"""What tells this node to go: the first signal is a preemption notice, the second kills; the job may ask, too."""

import asyncio
import signal
from collections.abc import Iterable
from typing import Literal

from ..agent_trace import Recorder
from ..event import CountingEvent, Interrupt
from ..facts import Facts, Setup
from ..logs.output import Output

REPEAT_SECONDS = 0.5
"""Two signals within this are one preemption notice: `timeout`, schedulers and container runtimes signal a whole
process group, and the launcher's parent passes it on once more."""

Notice = Literal["none", "leave", "kill"]


def noticed(notice: Notice, seconds: float) -> Notice:
    """What the notice becomes by a signal that arrives so many seconds after the first (pure)."""
    if notice == "none":
        return "leave"
    return notice if seconds < REPEAT_SECONDS else "kill"


def heed_no_more(signals: Iterable[signal.Signals]) -> None:
    """From now until the running loop is closed they do nothing: by default they would end an unfinished clean-up."""
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)


class PreemptionSignals:
    """Takes the signals while the agent runs, and writes the notice into `facts`.

    Args:
        setup: says which signals.
        facts: what the agent knows.
        reporter: where lines for a person go.
        trace: where they are recorded.
        changed: is set when there is news.
        interrupt: is set as well: what the agent does at the moment may have become pointless.
    """

    def __init__(
        self,
        setup: Setup,
        facts: Facts,
        reporter: Output,
        trace: Recorder,
        changed: CountingEvent,
        interrupt: Interrupt,
    ) -> None:
        self._setup = setup
        self._facts = facts
        self._reporter = reporter
        self._trace = trace
        self._changed = changed
        self._interrupt = interrupt
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """From now on."""
        for number in self._setup.workers.signals:
            self._loop.add_signal_handler(number, self._take, number)

    def close(self) -> None:
        """No more."""
        heed_no_more(self._setup.workers.signals)

    def _take(self, number: int) -> None:
        facts, now, name = self._facts, self._loop.time(), signal.Signals(number).name
        self._trace.noticed(name)
        before = "none" if facts.notice == "leave" and not facts.notice_signal else facts.notice  # no signal yet
        notice = noticed(before, now - facts.notice_at)
        if notice == before == "leave":
            return
        if notice == "leave":
            facts.notice_signal, facts.notice_at = number, now
            self._reporter.say(
                f"{name}: this node leaves the job; its workers have {self._setup.shutdown_timeout:g} s to exit "
                "(a second signal kills them at once)"
            )
        else:
            self._reporter.say(f"{name} again: killing the workers")
        facts.notice = notice
        self._interrupt.set()
        self._changed.set()

    def give_way(self, why: str) -> bool:
        """The job has told this node to leave, and why; False: it leaves already, for another reason."""
        facts = self._facts
        if facts.notice != "none" or facts.unfit or facts.refusal:
            return False
        facts.notice, facts.notice_at, facts.gives_way = "leave", self._loop.time(), why
        self._trace.instant("replaced", reason=why)
        self._reporter.say(
            f"this node leaves the job, and a standby takes its place: {why}; its workers have "
            f"{self._setup.shutdown_timeout:g} s to exit"
        )
        self._interrupt.set()
        self._changed.set()
        return True
