"""Machines, processes and the connections between them, as they fail: with delay, resets, silence and partitions.

What is sent on a connection arrives in order, or not at all. Where it is reset, each end hears of it in its own time,
and what was on its way may still arrive at one end when the other has another connection already.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from .timeline import Happening, Timeline

DIAL_SECONDS = 1.0
"""After which somebody who gets no answer stops to dial."""


class Machine:
    """One computer.

    Attributes:
        name: of its node.
        on: it has power.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.on = True


class LineProcess:
    """A process that takes one thing after the other.

    Attributes:
        name: in the trace.
        machine: on which it runs.
        alive: it has not ended.
    """

    def __init__(self, network: "LineNetwork", name: str, machine: Machine) -> None:
        self.network = network
        self.name = name
        self.machine = machine
        self.alive = True
        self.lines: dict[Line, None] = {}
        self._inbox: deque[Happening] = deque()
        self._busy = False
        self._frozen = False

    def hear(self, happening: Happening) -> None:
        """It happens to this process, after what has come before."""
        if self.alive:
            self._inbox.append(happening)
            self._go_on()

    def freeze(self, seconds: float) -> None:
        """It does nothing for so long."""
        self._frozen = True
        self.network.timeline.after(seconds, self._thaw)

    def end(self, *, silently: bool = False) -> None:
        """It is no more; `silently`: nobody is told, because its machine has no power."""
        if self.alive:
            self.alive = False
            self._inbox.clear()
            for line in tuple(self.lines):
                line.leave(self, silently=silently)

    def accept(self, line: "Line") -> None:
        """Somebody has connected."""

    def take(self, line: "Line", message: Any) -> None:  # Any: whatever is sent
        """A message has come."""

    def lose(self, line: "Line") -> None:
        """A connection has gone."""

    def _go_on(self) -> None:
        if self._inbox and not self._busy and not self._frozen:
            self._busy = True
            self.network.timeline.after(self.network.random.uniform(0.00001, 0.0002), self._step)

    def _step(self) -> None:
        self._busy = False
        if self.alive and self._inbox and not self._frozen:
            self._inbox.popleft()()
            self._go_on()

    def _thaw(self) -> None:
        self._frozen = False
        self._go_on()


class Line:
    """A connection.

    Attributes:
        number: of its own, among all there ever were.
        ends: who dialled and who accepted.
    """

    def __init__(self, number: int, ends: tuple[LineProcess, LineProcess]) -> None:
        self.number = number
        self.ends = ends
        self._open = [True, True]  # that end takes what comes
        self._broken = False  # nothing more is sent
        self._last = [0.0, 0.0]  # when the last for that end arrives
        self._flying: list[deque[list[Any]]] = [deque(), deque()]  # to that end: boxes, empty when thrown away
        for end in ends:
            end.lines[self] = None

    @property
    def busy(self) -> bool:
        """Something is on its way."""
        return any(self._flying)

    def send(self, sender: LineProcess, message: Any) -> None:  # Any: as `LineProcess.take`
        """To the other end."""
        if self._broken:
            return
        to = 1 - self.ends.index(sender)
        self._enter(to, message, self._arrival(to))

    def reset(self) -> None:
        """A device between the two forgets the connection."""
        network = self.ends[0].network
        if self._broken:
            return
        self._broken = True
        for to in (0, 1):
            boxes = list(self._flying[to])
            arriving = [box[0] for box in boxes[: network.random.randint(0, len(boxes))]]
            for box in boxes:
                box.clear()
            later = network.random.choice((0.0, 0.0, network.random.uniform(0.0, 0.4)))
            for message in arriving:  # they are in the kernel of that machine already
                self._enter(to, message, network.timeline.now + later)
            self._flush(to, later)

    def leave(self, end: LineProcess, *, silently: bool = False) -> None:
        """One end is closed, or its process has ended."""
        network, at = end.network, self.ends.index(end)
        self._open[at] = False
        end.lines.pop(self, None)
        if self._broken:
            return
        self._broken = True
        self._flush(1 - at, network.random.uniform(5.0, 15.0) if silently else 0.0)

    def _arrival(self, to: int) -> float:
        network = self.ends[0].network
        soonest = network.timeline.now + network.delay_between(self.ends[0].machine, self.ends[1].machine)
        self._last[to] = max(self._last[to], soonest)
        return self._last[to]

    def _enter(self, to: int, message: Any, arrival: float) -> None:
        timeline, box = self.ends[0].network.timeline, [message]
        self._flying[to].append(box)

        def arrive() -> None:
            self._flying[to].popleft()
            if box and self._open[to]:
                self.ends[to].hear(lambda: self._take(to, box[0]))

        timeline.after(arrival - timeline.now, arrive)

    def _take(self, to: int, message: Any) -> None:
        if self._open[to]:
            self.ends[to].take(self, message)

    def _flush(self, to: int, later: float) -> None:
        """That end hears of the loss after what is on its way, and not before `later` seconds have passed."""
        timeline = self.ends[0].network.timeline
        self._last[to] = max(self._arrival(to), timeline.now + later)

        def lose() -> None:
            if self._open[to]:
                self.ends[to].hear(lambda: self._lose(to))

        timeline.after(self._last[to] - timeline.now, lose)

    def _lose(self, to: int) -> None:
        if self._open[to]:
            self._open[to] = False
            self.ends[to].lines.pop(self, None)
            self.ends[to].lose(self)


class Dialled(Protocol):
    """Hears what has become of a call."""

    def __call__(self, line: Line | None) -> object:
        """The connection; None: there is none."""
        ...


class LineNetwork:
    """Between all machines.

    Args:
        delay: seconds that a message takes, at most, as a rule.

    Attributes:
        timeline: the time.
        random: decides what is left to chance.
        coded: messages cross as bytes.
    """

    def __init__(self, timeline: Timeline, random: random.Random, delay: float, *, coded: bool) -> None:
        self.timeline = timeline
        self.random = random
        self.coded = coded
        self._delay = delay
        self._number = 0
        self._apart: dict[frozenset[str], float] = {}  # until when two machines hear nothing of each other

    def part(self, one: Machine, other: Machine, seconds: float) -> None:
        """What is sent between two machines arrives only when this is over."""
        self._apart[frozenset((one.name, other.name))] = self.timeline.now + seconds

    def delay_between(self, one: Machine, other: Machine) -> float:
        """Seconds until a message arrives that is sent now."""
        waits = max(0.0, self._apart.get(frozenset((one.name, other.name)), 0.0) - self.timeline.now)
        slow = self.random.random() < 0.01
        return waits + self.random.uniform(0.00005, 0.05 if slow else self._delay)

    def dial(self, caller: LineProcess, called: Callable[[], LineProcess | None], told: Dialled) -> None:
        """`called`: who listens there when the call arrives; None: nobody ever will."""

        def arrive() -> None:
            other = called()
            if other is not None and not other.machine.on:
                self.timeline.after(DIAL_SECONDS, lambda: caller.hear(lambda: told(None)))
            elif other is None or not other.alive:
                self.timeline.after(0.001, lambda: caller.hear(lambda: told(None)))
            elif caller.alive:
                self._number += 1
                line = Line(self._number, (caller, other))
                other.hear(lambda: other.accept(line))
                caller.hear(lambda: told(line))

        other = called()
        machine = other.machine if other is not None else caller.machine
        self.timeline.after(self.delay_between(caller.machine, machine), arrive)
