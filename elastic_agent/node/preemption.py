"""What tells this node to go: the first signal is a preemption notice, the second kills; the job may ask, too."""

import asyncio
import signal
from collections.abc import Iterable

from ...rendezvous.base.frozen import dataclass
from ..agent_trace import Recorder
from ..inbox import Inbox
from ..logs.output import Output
from ..machine.node_events import AskedToLeave, SignalReceived
from ..setup import Setup


def heed_no_more(signals: Iterable[signal.Signals]) -> None:
    """From now until the running loop is closed they do nothing: by default they would end an unfinished clean-up."""
    for number in signals:
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)


@dataclass(eq=False, repr=False)
class PreemptionSignals:
    """Takes the signals while the agent runs.

    Args:
        setup: says which signals.
        inbox: where they are posted.
        reporter: where lines for a person go.
        trace: where they are recorded.
    """

    _setup: Setup
    _inbox: Inbox
    _reporter: Output
    _trace: Recorder

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """From now on."""
        for number in self._setup.workers.signals:
            self._loop.add_signal_handler(number, self._take, number)

    def close(self) -> None:
        """No more."""
        heed_no_more(self._setup.workers.signals)

    def _take(self, number: int) -> None:
        name = signal.Signals(number).name
        self._trace.noticed(name)
        before = self._inbox.state.notice
        notice = self._inbox.post(SignalReceived(number)).notice
        if notice == before and notice.kind == "leave":
            return
        if notice.kind == "leave":
            self._reporter.say(
                f"{name}: this node leaves the job; its workers have {self._setup.shutdown_timeout:g} s to exit "
                "(a second signal kills them at once)"
            )
        else:
            self._reporter.say(f"{name} again: killing the workers")

    def give_way(self, why: str) -> bool:
        """The job has told this node to leave, and why; False: it leaves already, for another reason."""
        before = self._inbox.state
        if self._inbox.post(AskedToLeave(why)) is before:
            return False
        self._trace.instant("replaced", reason=why)
        self._reporter.say(
            f"this node leaves the job: {why}; its workers have {self._setup.shutdown_timeout:g} s to exit"
        )
        return True
