"""Brings the replicas that a platform runs up to what the job wants, again and again, until it is cancelled.

It looks at everything each time (`reconcile.py`), asks the platform for the difference, and looks again when something
has changed. It is no part of the job's control: while it is away, or the platform is, the job trains with the nodes
that it has.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from ...rendezvous.cancel import cancel
from .platform import Platform, PlatformError, PlatformRefused
from .reconcile import PATIENCE, Demand, Plan, Room, reconcile
from .relaunch import Limits
from .replica import Replica

AT_ONCE = 50
"""Requests to the platform at one time: hundreds of replicas that are lost together are replaced in a few seconds."""

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until the platform is asked again after it has not answered or refused; the last is repeated."""

LOOK = 0.2
"""Seconds between two looks at what still runs when the job is over."""

AGAIN = 1.0
"""Seconds until it is looked again after something was asked for, where the platform tells of no change."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the job wants now. `over`: it has ended, so that nothing that ends is followed by another."""

    demands: tuple[Demand, ...]
    over: bool = False


@dataclass(slots=True)
class NodeManager:
    """One job's.

    Args:
        platform: where the replicas are.
        say: prints one line for a person.
        now: the clock that `Replica.since` is of, in seconds.
        limits: how often replicas that end are followed by others.
        looked: is told of each plan and the replicas that it was made of.
        patience: seconds that a replica waits for a place before those beyond the minimum are withdrawn.

    Attributes:
        hopeless: resolves once the job cannot have its minimum any more, with the reason in words.
    """

    platform: Platform
    say: Callable[[str], None]
    now: Callable[[], float]
    limits: Limits = field(default_factory=Limits)
    looked: Callable[[Plan, Sequence[Replica]], None] = lambda plan, replicas: None
    patience: float = PATIENCE
    _wanted: Wanted | None = None
    _replicas: Sequence[Replica] | None = None
    _room: dict[str, Room] = field(default_factory=dict[str, Room])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _look_at: float | None = None
    _not_before: float = 0.0
    _refusals: int = 0
    _said: dict[str, str] = field(default_factory=dict[str, str])
    hopeless: "asyncio.Future[str]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def want(self, wanted: Wanted) -> None:
        """The job wants that from now on."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        following = asyncio.create_task(self._follow(), name="follow the platform")
        try:
            while True:
                await self._wait()
                self._changed.clear()
                await self._look()
        finally:
            await cancel(following)

    async def drain(self, patience: float) -> None:
        """The job is over: who runs has so many seconds to end by itself, the rest is told to.

        Returns when each has ended or was told to (nobody sees a pod on a lost machine end), or nobody can say so.
        """
        self.want(Wanted((), over=True))
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        told: set[str] = set()
        while live := [each for each in self._replicas or () if each.state != "ended" and not each.stopping]:
            late = loop.time() >= until
            told_now = [each.name for each in live if (late or each.state == "pending") and each.name not in told]
            await self._ask([lambda name=name: self.platform.stop(name) for name in told_now])
            told.update(told_now)
            if loop.time() >= until + patience:
                self.say(f"{', '.join(each.name for each in live)} did not end within {2 * patience:g} s")
                return
            await asyncio.sleep(LOOK)

    async def _wait(self) -> None:
        """Until something has changed, or the last plan's time has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._loop_time(self._look_at)):
                await self._changed.wait()

    def _loop_time(self, moment: float | None) -> float | None:
        return None if moment is None else asyncio.get_running_loop().time() + moment - self.now()

    async def _follow(self) -> None:
        pauses = iter(PAUSES)
        while True:
            try:
                await self.platform.follow(self._observe)
            except PlatformError as error:
                pause = next(pauses, PAUSES[-1])
                self._tell("follow", f"cannot see this job's nodes: {error}; trying again every {pause:g} s")
                await asyncio.sleep(pause)
            else:
                pauses = iter(PAUSES)

    def _observe(self, replicas: Sequence[Replica]) -> None:
        self._tell("follow", "")
        self._replicas = replicas
        self._changed.set()

    async def _look(self) -> None:
        if self._wanted is None or self._replicas is None:
            return
        if self._wanted.over:
            self._look_at = None
            return
        plan = reconcile(self._wanted.demands, self._replicas, self._room, self.limits, self.now(), self.patience)
        self._room = dict(plan.room)
        self._look_at = plan.look
        self._tell_of(plan)
        self.looked(plan, self._replicas)
        if plan.hopeless and not self.hopeless.done():
            self.hopeless.set_result(f"{plan.hopeless.replica}: {plan.hopeless.reason}")
        starts = plan.start if self.now() >= self._not_before else ()
        if plan.start and not starts:
            self._look_again(self._not_before)
        requests = [
            *(lambda name=name: self.platform.stop(name) for name in plan.stop),
            *(lambda each=each: self.platform.start(each) for each in starts),
        ]
        if requests:
            await self._ask(requests)

    def _look_again(self, moment: float) -> None:
        self._look_at = moment if self._look_at is None else min(self._look_at, moment)

    async def _ask(self, requests: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """All of them, some at a time; the first that is refused or not answered ends the starts for a while."""
        turns = asyncio.Semaphore(AT_ONCE)
        troubles: list[PlatformError] = []

        async def one(request: Callable[[], Awaitable[None]]) -> None:
            async with turns:
                if troubles:
                    return
                try:
                    await request()
                except PlatformError as error:
                    troubles.append(error)

        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(one(request))
        if troubles:
            pause = PAUSES[min(self._refusals, len(PAUSES) - 1)]
            self._refusals += 1
            self._not_before = self.now() + pause
            self._look_again(self._not_before)
            who = "refuses" if isinstance(troubles[0], PlatformRefused) else "does not do"
            self._tell("ask", f"the platform {who} what the job asks for: {troubles[0]}; trying again in {pause:g} s")
        else:
            self._refusals = 0
            self._tell("ask", "")
            self._look_again(self.now() + AGAIN)

    def _tell_of(self, plan: Plan) -> None:
        by_reason: dict[str, list[str]] = {}
        for note in plan.notes:
            by_reason.setdefault(str(note.reason), []).append(note.replica)
        lines = [
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
            for reason, names in by_reason.items()
        ]
        self._tell("notes", "; ".join(lines))

    def _tell(self, about: str, line: str) -> None:
        """Says it where it has not been the last thing said of that."""
        if line and self._said.get(about) != line:
            self.say(line)
        self._said[about] = line
