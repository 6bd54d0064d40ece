"""Whether one worker makes progress, by what can be seen of it from outside (pure).

Progress is a step that the worker told of; else time on a processor, its own or that of its children, or output while
its main thread runs: what another thread prints may be a heartbeat. A worker is *quiet* while there is none of it.
Its own history says how long it may be: a rank that once waited five minutes for another one's evaluation may do so
again. So it is a suspect only when it has been quiet for longer than the time-out, and for longer than FACTOR times its
longest quiet time that ended by itself.

Who waits for an accelerator often does so in a loop that reads memory, at a whole processor. From outside that is a
worker that computes, and it counts as one. What is noted of it is for how long its main thread has not stopped running
by itself: a script that comes on waits now and then, for data, another thread or its output.
"""

from ...rendezvous.base.frozen import dataclass

BUSY = 0.04
"""Of one processor. Threads that wake up now and then, of a communication library, say, stay below it."""

RUNS = 0.5
"""Of one processor: who uses less does not wait in a loop."""

TICK = 0.02
"""Seconds by which the kernel's clocks of a process and of its threads may differ: some threads' time is left out."""

FACTOR = 2.0

GAP = 10.0
"""Seconds between two looks, after which what was before is not known."""

AGAIN = 1.8
"""A suspect is one again when it has been quiet for so many times as long."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """How long a worker has made no progress; by default one of which nothing is known.

    Attributes:
        seconds: for which it has been quiet.
        allowed: seconds for which it may be, by its own history.
        woken: of the looks since then, those before which its main thread had woken up.
        spins: seconds for which its main thread has not waited in the kernel, where it uses an accelerator.
        rested: seconds for which its main thread has not run; None: that is not known.
    """

    seconds: float = 0.0
    allowed: float = 0.0
    woken: int = 0
    spins: float = 0.0
    rested: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a worker.

    Attributes:
        at: seconds.
        cpu: seconds of processor used so far, and those for which it was ready to use one: on a busy machine, who works
            waits.
        ready: it is about to use one now.
        children: the same of its living descendants; None: they were not looked at.
        output: bytes printed so far.
        steps: what it has told its agent so far: checkpoints, requests for data, steps.
        switches: how often its main thread has stopped running so far.
        waits: how often it has done so to wait for something; None: that is not known, or it uses no accelerator.
    """

    at: float
    cpu: float
    output: int
    children: float | None = None
    ready: bool = False
    steps: int = 0
    switches: int = 0
    waits: int | None = None


class Activity:
    """One worker's history.

    Args:
        timeout: seconds for which any worker may be quiet.

    Attributes:
        quiet: seconds for which it has been.
        woken: of the looks since then, those before which its main thread had woken up.
        spins: seconds for which its main thread has not waited in the kernel, where it uses an accelerator.
        rested: seconds for which its main thread has not run: a worker that takes light steps is quiet, and wakes up.
    """

    __slots__ = (
        "_children",
        "_last",
        "_longest",
        "_rested",
        "_runs",
        "_since",
        "_timeout",
        "_told",
        "_woke",
        "quiet",
        "rested",
        "spins",
        "woken",
    )

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._last: Sample | None = None
        self._children: Sample | None = None  # the last in which they were looked at
        self._since = 0.0
        self._longest = 0.0
        self._told = 0.0  # for how long it had been quiet when it was a suspect last
        self._runs = 0.0  # since when its main thread has not waited
        self._woke = 0.0  # when that was seen to have run last
        self._rested = 0.0  # for how long it had rested when the worker was a suspect last
        self.quiet = 0.0
        self.rested = 0.0
        self.woken = 0
        self.spins = 0.0

    @property
    def allowed(self) -> float:
        """Seconds for which it may be quiet."""
        return max(self._timeout, FACTOR * self._longest)

    def is_due(self, early: float = 0.0) -> bool:
        """Whether it is a suspect, or one again, in so many seconds: it is quiet, or has come to rest since."""
        quiet, rested = self.quiet + early, self.rested + early
        again = rested >= max(self.allowed, AGAIN * self._rested) and quiet >= self.allowed
        return again or quiet >= max(self.allowed, AGAIN * self._told)

    def observe(self, sample: Sample) -> bool:
        """Takes the next look; True where it makes the worker a suspect, or one again."""
        last, self._last = self._last, sample
        if last is None:
            self._since = self._runs = self._woke = sample.at
            return False
        span = sample.at - last.at
        if span > GAP:
            self._since = sample.at  # this process has stood still itself, and knows nothing of that time
        if span > GAP or sample.switches != last.switches:
            self._woke, self._rested = sample.at, 0.0
        self.rested = sample.at - self._woke
        if span > GAP or not _has_only_run(last, sample):
            self._runs = sample.at
        self.spins = sample.at - self._runs
        # A worker that begins anew under the same number has used less.
        progress = (
            not -TICK <= sample.cpu - last.cpu <= BUSY * span
            or sample.ready
            or (sample.output != last.output and sample.switches != last.switches)
            or sample.steps != last.steps
            or self._have_worked(sample)
        )
        if progress:
            self._longest = max(self._longest, last.at - self._since)
            self._since, self._told, self.woken = sample.at, 0.0, 0
        elif sample.switches != last.switches:
            self.woken += 1
        self.quiet = sample.at - self._since
        if self.is_due():
            self._told, self._rested = self.quiet, self.rested
            return True
        return False

    def _have_worked(self, sample: Sample) -> bool:
        """Its children have, since they were looked at last."""
        last, now = self._children, sample.children
        if now is None:
            return False
        self._children = sample
        return (
            last is not None
            and last.children is not None
            and not (0 <= now - last.children <= BUSY * (sample.at - last.at))
        )


def _has_only_run(last: Sample, now: Sample) -> bool:
    """The main thread has run all the time between two looks, and has neither waited nor shown that it comes on."""
    return (
        now.ready
        and now.waits is not None
        and now.waits == last.waits
        and now.cpu - last.cpu >= RUNS * (now.at - last.at)
        and (now.output, now.steps) == (last.output, last.steps)
    )
