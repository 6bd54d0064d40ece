"""Which warm interpreter workers are forked from, when the next one is made, and what is said where there is none.

The first knows what an earlier run learnt, or what the script is sure to import first. While its workers run, one of
them tells what else it imports; when it has told nothing new for a while, another interpreter is made that knows
that, too, without haste, and takes the first one's place.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from . import preload
from .preload import QUIET_SECONDS, Learnt, Lessons
from .seed import Recipe, Seed
from .warm.frames import unpack
from .zygote import BATCH, Account, NotForked, Zygote

WARM_UP_SECONDS = 120.0
"""How long a start waits for imports ahead. A fresh interpreter would import the same: this is for those that hang."""

COMPLETE_SECONDS = 30.0
"""So long after it, the list is taken for all, and the next run does not learn."""


class Zygotes:
    """The warm interpreters of one agent.

    Args:
        recipe: what they are made of, with the agent's tag in its environment.
        cwd: where workers start; None: here.
        say: tells the user.
        seed: the first one's process, where that runs already.
    """

    def __init__(
        self, recipe: Recipe, *, cwd: Path | None, say: Callable[[str], None], seed: Seed | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._cwd = cwd
        self._say = say
        self._seed = seed
        self._said: set[str] = set()
        self._current: Zygote | None = None
        self._next: Zygote | None = None
        self._forking = False
        self._began = 0.0
        self._all: list[Zygote] = []
        self._file = preload.cache_file(recipe, os.environ, cwd or Path.cwd())
        self._known = preload.load(self._file) or Learnt()
        self._learns = not self._known.complete
        self._lessons = Lessons(over=self._known.complete, watched=self._known.watched)
        self._told: list[str] = []
        self._own: set[str] = set()
        self._barred: tuple[str, str] | None = None
        self._rest = b""
        self._pipe: tuple[int, int] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        if self._known.steps or self._known.until:
            recipe = replace(recipe, steps=self._known.steps)
        self._recipe = recipe

    @property
    def sessions(self) -> frozenset[int]:
        """Of the processes that are no workers and stay when those are ended.

        The number of one that was itself ended is not among them: the kernel may give it to a worker.
        """
        return frozenset(zygote.session for zygote in self._all if zygote.session and zygote.state != "ended")

    @property
    def account(self) -> Account:
        """What became of the imports ahead."""
        return self._current.account if self._current is not None else Account()

    @property
    def why(self) -> str:
        """Why no workers can be forked, in words; empty where they can."""
        return "" if self._current is None or self._current.usable else self._current.why

    def start(self) -> None:
        """Begins to make the first one."""
        self._began = self._loop.time()
        with contextlib.suppress(OSError):  # without it nothing is learnt
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._loop.add_reader(self._pipe[0], self._hear)
            news = f"/proc/{os.getpid()}/fd/{self._pipe[1]}"
            self._recipe = replace(self._recipe, news=news)
        self._current = self._make(self._recipe, lambda: None)

    def _make(self, recipe: Recipe, changed: Callable[[], None]) -> Zygote | None:
        seed, self._seed = self._seed, None
        if seed is not None and not seed.serves(recipe):
            seed.close()
            seed = None
        zygote = Zygote(recipe, cwd=self._cwd, changed=changed, seed=seed)
        try:
            zygote.start()
        except OSError as error:
            self._fresh(f"no warm interpreter can be started: {error}")
            return None
        self._all.append(zygote)
        return zygote

    # Forking.

    async def settled(self) -> None:
        """Waits until the first one is ready, or will not be."""
        if self._current is None:
            return
        rest = WARM_UP_SECONDS - (self._loop.time() - self._began)
        try:
            async with asyncio.timeout(max(rest, 0.0)):
                await self._current.settled()
        except TimeoutError:
            self._current.hear()  # this process may have been stopped all the time
            if self._current.state != "warming":
                return
            if name := self._current.account.trying:  # or the next run would wait for it as long
                self._barred = (name, f"it was still being imported after {WARM_UP_SECONDS:g} s")
            last = f", the last of them {name}" if name else ""
            self._current.end(f"its imports have taken more than {WARM_UP_SECONDS:g} s{last}")

    def fits(self, commands: Collection[tuple[str, ...]], environments: Sequence[Mapping[str, str]]) -> bool:
        """Whether workers with these commands and environments can be forked; says why where they cannot."""
        if self._current is None:
            return False
        if not self._current.usable:
            self._fresh(self._current.why)
            return False
        recipe = self._recipe
        if set(commands) != {recipe.argv}:
            self._fresh("their command lines differ")
            return False
        for environment in environments:
            for name in {*environment, *recipe.environment} - recipe.per_worker:
                if environment.get(name) != recipe.environment.get(name):
                    self._fresh(f"{name} has changed since the warm interpreter was started")
                    return False
        return True

    async def fork(self, streams: Sequence[tuple[int, int]], environments: Sequence[Mapping[str, str]]) -> list[int]:
        """The pids of new workers. NotForked, which has been said."""
        assert self._current is not None
        self._cancel()  # it waited for the silence of workers that are gone
        learn = self._lessons.begin(self._loop.time())
        if learn:
            self._told = []  # all that is not made ahead is told again
            self._listen()
        pids: list[int] = []
        self._forking = True
        try:
            for begin in range(0, len(streams), BATCH):
                part = slice(begin, begin + BATCH)
                pids += await self._current.fork(streams[part], environments[part], learn=learn and begin == 0)
            return pids
        except NotForked as error:
            for pid in pids:  # all are started in another way, and none twice
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)  # noqa: ASYNC222 - it was just killed
            self._fresh(str(error))
            raise
        finally:
            self._forking = False
            self._changed()  # the next one may have been ready for a while

    async def close(self, *, save: bool = True) -> None:
        """Ends all of them, and saves what was learnt."""
        self._cancel()
        if save:
            self._save(complete=self._known.complete)
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe[0])
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None
        for zygote in self._all:
            zygote.close()

    def _fresh(self, why: str) -> None:
        self._say_once(f"workers start as fresh interpreters: {why}")

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    # Learning.

    def _hear(self) -> None:
        assert self._pipe is not None
        try:
            data = os.read(self._pipe[0], 65536)
        except BlockingIOError:
            return
        frames, self._rest = unpack(self._rest + data)
        for words in frames:
            match [os.fsdecode(word) for word in words]:
                case ["import", name]:
                    self._told.append(name)
                case ["own", path]:
                    self._own.add(path)
                case ["until", name, why]:
                    self._known = replace(self._known, until=(name, why))
                case ["spoiled" | "late" as when, name, why]:
                    self._spoiled(name, why, again=when == "spoiled")
                case _:
                    pass
        self._lessons.told(self._loop.time())
        self._listen()

    def _listen(self) -> None:
        """From now on, so long without news are meant by "quiet" and "complete"."""
        self._cancel()
        self._timers = [
            self._loop.call_later(QUIET_SECONDS, self._refresh),
            self._loop.call_later(COMPLETE_SECONDS, self._complete),
        ]

    def _steps(self) -> tuple[str, ...]:
        if self._current is None:
            return self._known.steps
        return preload.beyond(self.account.imported, self._until, self._told)

    @property
    def _until(self) -> tuple[str, str] | None:
        """(name, why) of the first import that cannot be made ahead."""
        return self._barred or self.account.refused or self._known.until

    def _refresh(self) -> None:
        """Makes an interpreter that knows all that was told."""
        steps = self._steps()
        if self._current is None or self._next is not None or steps == tuple(self._current.account.imported):
            return
        self._save(complete=False)  # the next run may use it, however this one ends
        self._next = self._make(replace(self._recipe, steps=steps, gently=True), self._changed)

    def _changed(self) -> None:
        if self._next is None or self._forking:
            return
        if self._next.usable:
            old, self._current, self._next = self._current, self._next, None
            if old is not None:
                old.retire("another one has taken its place")  # it may not have let go of its last workers yet
            self._save(complete=False)
            # What was told while it was made is not in it.
            self._timers.append(self._loop.call_later(QUIET_SECONDS, self._refresh))
        elif self._next.state == "ended":
            self._next = None

    def _complete(self) -> None:
        self._lessons.over = True
        self._save(complete=True)

    def _save(self, *, complete: bool) -> None:
        if self._current is None or not (self._learns or self._barred):
            return
        if not (self._current.account.finished or self._barred):
            return  # what it would have imported is as good as before
        self._known = Learnt(
            steps=self._steps(),
            until=self._until,
            complete=complete,
            watched=self._lessons.watched(self._loop.time()),
            files={path: preload.stamp(path) for path in sorted({*self._known.files, *self._own})},
            folders={path: preload.stamp(path)[0] for path in self.account.folders},
        )
        with contextlib.suppress(OSError):  # a cache that cannot be written is none
            preload.save(self._file, self._known)

    def _spoiled(self, name: str, why: str, *, again: bool) -> None:
        """A worker found `name` imported ahead where that was wrong, and began again if it still could."""
        consequence = "a worker began again as a fresh interpreter" if again else "it will be so from the next start on"
        self._say_once(f"{name} should not be imported ahead, because {why} before it: {consequence}")
        self._barred = (name, why)

    def _cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []
