"""A worker's own clock: how many of its pushes are acknowledged, and whether it may begin its next step.

What decides is `master/data/worker_clocks.py`. After each push one message goes to the agent, and its answer is waited
for only where the lowest clock that is known is too low for the next step.
"""

import os
import time

from ...master.data.worker_clocks import LowestClock, NodeClocks, WorkerClock
from ...rendezvous.wire.values import decode, encode
from ..client.channel import Call, Channel, say_wait
from ..client.context import ROUND
from .table_source import open_channel

QUIET = 20.0
"""Seconds that a wait may take before a person is told why."""

REMINDER = 60.0
"""Seconds until that is told again."""


class StepClock:
    """Of this process.

    Args:
        channel: to the agent, and nothing else goes over it.
        rank, round: see `WorkerClock`.

    Attributes:
        clock: pushes acknowledged, from where this worker began.
        lowest: the lowest clock of all workers, as far as it is known here.
        bound: the greatest max_staleness of this worker's tables: an answer that waits for less would hold up a step
            that may begin. A step with a lower bound asks for itself.
    """

    def __init__(self, channel: Channel, rank: int, round: int, bound: int) -> None:
        self._channel = channel
        self._rank = rank
        self._round = round
        self.bound = bound
        self.clock = 0
        self.lowest = 0
        self._works = False
        self._count = 0
        self._asked = 0  # answers that are to come; any of them will do
        self._why = ""

    def begin_work(self) -> None:
        """There is something to train on, if there was nothing."""
        if not self._works:
            self._works, known = True, False
            while not known:
                self._report_clock(0)
                known = True
                while self._asked:
                    known = self._take_answer() and known

    def rest(self) -> None:
        """There is nothing to train on: nobody waits for this worker."""
        if self._works:
            self._works = False
            self._report_clock(0)

    def count_push(self) -> None:
        """All servers have acknowledged one."""
        while self._asked and self._channel.ready():
            self._take_answer()
        self.clock += 1
        self._report_clock(max(0, self.clock - self.bound))

    def await_step(self, bound: int) -> None:
        """Waits until every worker that is present has made all pushes but the last `bound` that this one has made.

        From then on, until it rests, others wait for this one.
        """
        self.begin_work()
        begun = time.monotonic()
        told = begun + QUIET
        while self.lowest < (wants := self.clock - bound):
            if not self._asked:
                self._report_clock(wants)
            self._take_answer()
            if self.lowest < wants and time.monotonic() >= told:
                told = time.monotonic() + REMINDER
                say_wait(self._rank, f"{self._why} ({time.monotonic() - begun:.0f} s so far)")

    def _report_clock(self, wants: int) -> None:
        self._count += 1
        mine = WorkerClock(self._rank, self._round, self._count, self.clock, self._works)
        told = NodeClocks((mine,), self.lowest, wants)
        self._channel.send(Call("clocks", self._round, rank=self._rank, told=encode(told).decode()))
        self._asked += 1

    def _take_answer(self) -> bool:
        """Waits for it. Whether it is the lowest clock for certain. Raises AgentGone, AgentTimeout."""
        back = self._channel.receive()
        self._asked -= 1
        self._why = back.text
        if back.text:
            return False
        found = decode(LowestClock, back.told.encode())
        self._why = found.why
        self.lowest = max(self.lowest, found.lowest)
        self.clock = max(self.clock, self.lowest)  # it has come later than the others, or was silent
        return found.known


def start_clock(bound: int) -> StepClock:
    """This process's. Raises TableMisused where there is no agent, AgentGone."""
    channel = open_channel("max_staleness is a bound between workers of a job: start it with elastic-run")
    return StepClock(channel, int(os.environ.get("RANK", "0")), int(os.environ.get(ROUND, "0")), bound)
