"""Watches from outside whether this node's workers make progress; cheap, since it runs all the time.

One look at a worker is two short files of /proc, or three. Where one is quiet for too long (`activity.py`) the node
says so in its report, and the master has all nodes looked at closely.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ...rendezvous.base.frozen import dataclass
from ..inbox import Inbox
from ..machine.node_events import MachineStrained, WorkersMove, WorkerStalled
from .activity import Activity, Quiet, Sample
from .running import Running

PERIOD = 1.0
"""Seconds between two looks, or a quarter of the time-out where that is shorter."""

CHILDREN = 0.5
"""Of the time-out: who has been quiet by itself for so long may have children that work, which costs more to see."""

LIMITS_EVERY = 8
"""Looks, of which one is at the limits of this node and its workers."""

CHILDREN_EVERY = 5
"""Looks, of which one is at the children, too."""


@dataclass(eq=False, repr=False)
class ProgressWatch:
    """Runs as long as the agent does.

    Args:
        timeout: seconds for which a worker may be quiet.
        workers: those of this node.
        steps: how often the worker of a rank has told its agent that it comes on.
        inbox: hears of suspects, of workers that come on again, and of a node that comes near a limit.
        nears: takes those that are suspects by the next look, or have just become some.
        say: prints one line for a person.
    """

    _timeout: float
    _workers: Callable[[], Sequence[Running]]
    _steps: Callable[[int], int]
    _inbox: Inbox
    _nears: Callable[[Sequence[Running]], object]
    _say: Callable[[str], None]

    def __post_init__(self) -> None:
        self._period = min(PERIOD, self._timeout / 4)
        self._near = False
        self._looks = 0
        self._activities: dict[tuple[int, int], Activity] = {}  # by local rank and pid
        self._on_accelerators: set[tuple[int, int]] = set()
        self._polling: dict[tuple[int, int], Sequence[int]] = {}  # threads that compute all the time

    @property
    def quiet(self) -> Mapping[int, Quiet]:
        """By local rank."""
        return {
            local: Quiet(each.quiet, each.allowed, each.woken, each.spins, each.rested)
            for (local, _), each in self._activities.items()
        }

    async def run(self) -> None:
        """Looks again and again; a look that fails is told, and is the last."""
        try:
            while True:
                await asyncio.sleep(self._period)
                self.look()
        except Exception as error:  # noqa: BLE001  a watch that fails must not cost the node its agent
            self._say(f"workers are not watched for progress any more ({error!r}); the job continues")

    def look(self) -> None:
        """One look at all workers."""
        from . import descendants, kernel  # here, because workers start the sooner

        living = {(each.local_rank, each.pid): each for each in self._workers() if each.ended is None}
        for key in [key for key in self._activities if key not in living]:
            del self._activities[key]
            self._polling.pop(key, None)
        self._on_accelerators &= living.keys()
        self._looks += 1
        # Where the time-out is short, looks are few.
        due = self._looks % CHILDREN_EVERY == 0 or self._timeout < 4 * CHILDREN_EVERY * PERIOD
        suspicious = False
        near = list[Running]()
        for key, each in living.items():
            activity = self._activities.setdefault(key, Activity(self._timeout))
            works = activity.quiet < CHILDREN * self._timeout <= activity.rested  # while its main thread rests
            if works and self._looks % LIMITS_EVERY == 0 and not self._polling.get(key):
                self._polling[key] = kernel.polling_threads(each.pid)
            used = kernel.used(each.pid, moved=False, without=self._polling.get(key, ()))
            if used is None:
                continue
            children = descendants.child_cpu(each.pid) if due and activity.quiet >= CHILDREN * self._timeout else None
            suspect = activity.observe(
                Sample(
                    self._inbox.now(),
                    used.cpu + used.ready,
                    each.output,
                    children,
                    used.state == "R",
                    self._steps(each.rank),
                    used.switches,
                    kernel.waits(each.pid) if key in self._on_accelerators else None,
                )
            )
            suspicious |= suspect
            if suspect or activity.is_due(self._period):
                near.append(each)
        if self._looks % LIMITS_EVERY == 0:
            self._on_accelerators |= {
                key
                for key, each in living.items()
                if key not in self._on_accelerators and kernel.uses_accelerator(each.pid)
            }
            before, self._near = self._near, is_near(list(living.values()))
            if self._near and not before:
                self._inbox.post(MachineStrained())
        if suspicious:
            self._inbox.post(WorkerStalled())
        elif self._inbox.state.machine.stalled and not any(
            each.quiet >= each.allowed for each in self._activities.values()
        ):
            self._inbox.post(WorkersMove())
        if near:
            self._nears(near)


def is_near(workers: Sequence[Running]) -> bool:
    """Whether this node is near one of its limits, or one of these workers near its own."""
    from ...master.diagnosis.limits import NEAR  # here, as above
    from . import kernel

    pairs = [kernel.memory(), kernel.processes(), *(kernel.descriptors(each.pid) for each in workers)]
    return any(limit and used > NEAR * limit for used, limit in pairs)
