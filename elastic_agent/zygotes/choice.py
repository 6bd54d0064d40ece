"""Which warm interpreter workers are forked from, and what is said where there is none.

There is one. Where the script's source or the installed packages have changed since it was made, the next workers are
fresh interpreters, and another one is made for those after them.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ..warm.frames import unpack
from .seed import Recipe, Seed
from .zygote import BATCH, Account, Begin, NotForked, Outdated, Zygote

WARM_UP_SECONDS = 120.0
"""How long a start waits for imports ahead. A fresh interpreter would import the same: this is for those that hang."""


class Zygotes:
    """The warm interpreters of one agent.

    Args:
        recipe: what they are made of, with the agent's tag in its environment.
        say: tells the user.
        seed: the first one's process, where that runs already.
    """

    def __init__(self, recipe: Recipe, say: Callable[[str], None], seed: Seed | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._recipe = recipe
        self._say = say
        self._seed = seed
        self._said: set[str] = set()
        self._current: Zygote | None = None
        self._began = 0.0
        self._all: list[Zygote] = []
        self._rest = b""
        self._pipe: tuple[int, int] | None = None

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
        with contextlib.suppress(OSError):  # without it, workers tell of nothing
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._loop.add_reader(self._pipe[0], self._hear)
            self._recipe = replace(self._recipe, news=f"/proc/{os.getpid()}/fd/{self._pipe[1]}")
        self._make()

    def _make(self) -> None:
        self._began = self._loop.time()
        seed, self._seed = self._seed, None
        if seed is not None and not seed.serves(self._recipe):
            seed.close()
            seed = None
        try:
            seed = seed or Seed(self._recipe)
            self._current = Zygote(self._recipe, seed)
        except OSError as error:
            if seed is not None:
                seed.close()
            self._fresh(f"no warm interpreter can be started: {error}")
            self._current = None
            return
        self._all.append(self._current)

    async def settled(self) -> None:
        """Waits until the current one is ready, or will not be."""
        if self._current is None:
            return
        rest = WARM_UP_SECONDS - (self._loop.time() - self._began)
        try:
            async with asyncio.timeout(max(rest, 0.0)):
                await self._current.settled()
            for name, why, _ in self._current.account.refused:
                if name in (self._recipe.preload or ()):
                    self._say_once(
                        f"--preload: {name} is not imported ahead, it {why}; workers import it by themselves"
                    )
        except TimeoutError:
            self._current.hear()  # this process may have been stopped all the time
            if self._current.state != "warming":
                return
            name = self._current.account.trying
            last = f", the last of them {name}" if name else ""
            self._current.end(f"its imports have taken more than {WARM_UP_SECONDS:g} s{last}")

    def fits(self, commands: Collection[tuple[str, ...]], environments: Sequence[Mapping[str, str]]) -> bool:
        """Whether workers with these commands and environments can be forked; says why where they cannot."""
        if self._current is None:
            return False
        if not self._current.usable:
            self._fresh(self._current.why or "the warm interpreter is not ready yet")
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

    async def fork(
        self, streams: Sequence[tuple[int, int]], environments: Sequence[Mapping[str, str]], begins: Sequence[Begin]
    ) -> list[int]:
        """The pids of new workers. NotForked, which has been said."""
        assert self._current is not None
        pids: list[int] = []
        try:
            for first in range(0, len(streams), BATCH):
                part = slice(first, first + BATCH)
                pids += await self._current.fork(streams[part], environments[part], begins[part])
            return pids
        except NotForked as error:
            for pid in pids:  # all are started in another way, and none twice
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)  # noqa: ASYNC222 - it was just killed
            self._fresh(str(error))
            if isinstance(error, Outdated):
                self._current.retire(str(error))
                self._make()
            raise

    def let_go(self) -> None:
        """Has held workers begin."""
        if self._current is not None:
            self._current.let_go()

    async def close(self) -> None:
        """Ends all of them."""
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

    def _hear(self) -> None:
        """Takes what workers have to tell."""
        assert self._pipe is not None
        try:
            data = os.read(self._pipe[0], 65536)
        except BlockingIOError:
            return
        frames, self._rest = unpack(self._rest + data)
        for words in frames:
            match [os.fsdecode(word) for word in words]:
                case ["stale", module, names]:
                    self._say_once(
                        f"{module} was imported ahead, before the script changed {names}: values that it derived from "
                        "the old settings stay; --preload=none leaves all imports to the workers"
                    )
                case _:
                    pass
