"""Brings the replicas that a platform runs up to what the job wants, again and again, until it is cancelled.

It looks at everything each time (`reconcile.py`), asks the platform for the difference, and looks again when something
has changed. It is no part of the job's control: while it is away, or the platform is, the job trains with the nodes
that it has.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence

from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.frozen import dataclass, field, replace
from .platform import Platform, PlatformError, PlatformRefused, PlatformUnavailable
from .reconcile import PATIENCE, Demand, Note, Plan, Room, reconcile
from .relaunch import Limits
from .replica import Refused, Replica, Unschedulable

AT_ONCE = 50
"""Requests to the platform at one time: hundreds of replicas that are lost together are replaced in a few seconds."""

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until the platform is asked again after it has not answered or refused; the last is repeated."""

DRAINED = 30.0
"""Seconds, at least, that the nodes of a job that is over are told to end, where the platform does not answer."""

LOOK = 0.2
"""Seconds between two looks at what still runs when the job is over."""

AGAIN = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds until it is looked again after something was asked for, where the platform tells of no change. What is not
there then is asked for again; the last is repeated."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the job wants now. `over`: it has ended, so that nothing that ends is followed by another."""

    demands: tuple[Demand, ...]
    over: bool = False


@dataclass(frozen=True, slots=True)
class RefusedStarts:
    """The platform has refused `times` in a row to do something, and nothing is started before `until`."""

    times: int = 0
    until: float = 0.0


@dataclass(slots=True)
class NodeManager:
    """One job's.

    Args:
        platform: where the replicas are.
        say: prints one line for a person.
        now: the clock that `Replica.since` is of, in seconds.
        limits: how often replicas that end are followed by others.
        looked: is told of each plan and the replicas that it was made of; a refusal of the platform's is a note of it.
        patience: seconds that a replica waits for a place before those beyond the minimum are withdrawn.
        doubt: why the job may not want any more what it has wanted last, so that nothing is started; empty: it does.

    Attributes:
        hopeless: resolves once the job cannot have its minimum any more, with the reason in words.
        finished: resolves once a replica has ended because the job has succeeded, with the reason in words.
    """

    platform: Platform
    say: Callable[[str], None]
    now: Callable[[], float]
    limits: Limits = field(default_factory=Limits)
    looked: Callable[[Plan, Sequence[Replica]], None] = lambda plan, replicas: None
    patience: float = PATIENCE
    doubt: Callable[[], str] = lambda: ""
    _following: "asyncio.Task[None] | None" = None
    _wanted: Wanted | None = None
    _replicas: Sequence[Replica] | None = None
    _room: dict[str, Room] = field(default_factory=dict[str, Room])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _look_at: float | None = None
    _refusals: RefusedStarts = RefusedStarts()
    _refused: Note | None = None
    _unseen: int = 0
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _troubles: int = 0
    _said: dict[str, str] = field(default_factory=dict[str, str])
    finished: "asyncio.Future[str]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    hopeless: "asyncio.Future[str]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def want(self, wanted: Wanted) -> None:
        """The job wants that from now on."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        following = self._following or self._follow_anew()
        try:
            while True:
                await self._wait()
                self._changed.clear()
                async with self._asking:
                    following = self._following or following
                    if following.done():
                        following.result()  # it never ends by itself: raises what went wrong
                    await self._look()
        finally:
            await cancel(self._following or following)

    def _follow_anew(self) -> "asyncio.Task[None]":
        self._following = following = asyncio.create_task(self._follow(), name="follow the platform")
        following.add_done_callback(lambda _: self._changed.set())
        return following

    async def drain(self, patience: float, leaving: Collection[str] | None = None) -> None:
        """The job is over: who runs (and is in `leaving`) has so many seconds to end by itself, the rest is told to.

        Returns when each has ended or was told to (nobody sees a pod on a lost machine end), or nobody can say so.
        """
        self.want(Wanted((), over=True))
        async with self._asking:  # nothing is started any more; what was is on a list that is asked for now
            if self._following:
                await cancel(self._following)
            self._replicas = None
            self._follow_anew()
        loop = asyncio.get_running_loop()
        late_at = loop.time() + patience
        until = late_at + max(patience, DRAINED)
        told: dict[str, float] = {}
        while (live := self._live()) is None or live:
            now = loop.time()
            if now >= until:
                who = ", ".join(each.name for each in live or ()) or "nodes of which the platform does not tell"
                return self.say(f"{who} did not end within {until - late_at + patience:g} s")
            due = [
                each.name
                for each in live or ()
                if now >= late_at or each.state == "pending" or (leaving is not None and each.name not in leaving)
            ]
            due = [name for name in due if now >= told.get(name, now) and self.now() >= self._refusals.until]
            if due:
                await self._ask([lambda name=name: self.platform.stop(name) for name in due])
                told.update(dict.fromkeys(due, loop.time() + AGAIN[1]))
            await asyncio.sleep(LOOK)
        return None

    def _live(self) -> Sequence[Replica] | None:
        """Those that nobody has told to end yet; None where they have not been seen yet."""
        if self._replicas is None:
            return None
        return [each for each in self._replicas if each.state != "ended" and not each.stopping]

    async def _wait(self) -> None:
        """Until something has changed, or the last plan's time has come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._loop_time(self._look_at)):
                await self._changed.wait()

    def _loop_time(self, moment: float | None) -> float | None:
        return None if moment is None else asyncio.get_running_loop().time() + moment - self.now()

    async def _follow(self) -> None:
        while True:
            try:
                await self.platform.follow(self._observe)
            except PlatformError as error:
                pause = _pause(self._troubles, error)
                self._troubles += 1
                why = f"cannot see this job's nodes: {error}"
                self._tell("follow", f"{why}; trying again in {pause:g} s", why)
                await asyncio.sleep(pause)

    def _observe(self, replicas: Sequence[Replica]) -> None:
        self._tell("follow", "")
        self._troubles = self._unseen = 0
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
        self.looked(replace(plan, notes=(*plan.notes, self._refused)) if self._refused else plan, self._replicas)
        if plan.hopeless and not self.hopeless.done():
            self.hopeless.set_result(f"{plan.hopeless.replica}: {plan.hopeless.reason}")
        if plan.finished and not self.finished.done():
            self.finished.set_result(f"{plan.finished.replica}: {plan.finished.reason}")
        doubt = self.doubt() if plan.start else ""
        self._tell("doubt", f"no node is started: {doubt}" if doubt else "", "doubt" if doubt else "")
        if doubt:
            self._refusals = replace(self._refusals, until=max(self._refusals.until, self.now() + PAUSES[0]))
        starts = plan.start if self.now() >= self._refusals.until else ()
        if plan.start and not starts:
            self._look_again(self._refusals.until)
        requests = [
            *(lambda name=name: self.platform.stop(name) for name in plan.stop),
            *(lambda each=each: self.platform.start(each) for each in starts),
        ]
        if not plan.start:
            self._refused = None
        if requests:
            refusal = await self._ask(requests)
            first = f"{starts[0].role or 'worker'}-{starts[0].index}" if starts else ""
            self._refused = Note(first, Refused(refusal)) if refusal and first else None

    def _look_again(self, moment: float) -> None:
        self._look_at = moment if self._look_at is None else min(self._look_at, moment)

    async def _ask(self, requests: Sequence[Callable[[], Awaitable[None]]]) -> str:
        """All of them, some at a time; the first that is refused or not answered ends the starts for a while.

        Returns why the platform has refused one; empty where it has not.
        """
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
            pause = _pause(self._refusals.times, troubles[0])
            self._refusals = RefusedStarts(self._refusals.times + 1, self.now() + pause)
            self._look_again(self._refusals.until)
            who = "refuses" if isinstance(troubles[0], PlatformRefused) else "does not do"
            why = f"the platform {who} what the job asks for: {troubles[0]}"
            self._tell("ask", f"{why}; trying again in {pause:g} s", why)
            return str(troubles[0]) if isinstance(troubles[0], PlatformRefused) else ""
        self._refusals = replace(self._refusals, times=0)
        self._tell("ask", "")
        self._look_again(self.now() + AGAIN[min(self._unseen, len(AGAIN) - 1)])
        self._unseen += 1
        return ""

    def _tell_of(self, plan: Plan) -> None:
        by_reason: dict[str, list[str]] = {}
        news: dict[str, None] = {}
        for note in plan.notes:
            by_reason.setdefault(str(note.reason), []).append(note.replica)
            # Each of hundreds of nodes that wait, and get a place one after the other, would be a line.
            waits = isinstance(note.reason, Unschedulable)
            news[str(note.reason) if waits else f"{note.replica}: {note.reason}"] = None
        lines = [
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {reason}"
            for reason, names in by_reason.items()
        ]
        self._tell("notes", "; ".join(lines), "; ".join(sorted(news)))

    def _tell(self, about: str, line: str, news: str = "") -> None:
        """Says it where it has not been the last thing said of that; `news`: what of the line is worth another one."""
        news = news or line
        if line and self._said.get(about) != news:
            self.say(line)
        self._said[about] = news


def _pause(times: int, error: PlatformError) -> float:
    """Seconds, after so many that failed one after the other before; longer where the platform asks for more."""
    asked = error.patience if isinstance(error, PlatformUnavailable) else 0.0
    return max(PAUSES[min(times, len(PAUSES) - 1)], asked)
