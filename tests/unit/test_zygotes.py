"""Which warm interpreter is used and what is kept of its list, with interpreters that are played by the test."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from elastic_run.elastic_agent import preload, zygote, zygotes
from elastic_run.elastic_agent.preload import Learnt
from elastic_run.elastic_agent.seed import Recipe
from elastic_run.elastic_agent.warm.frames import pack, unpack
from elastic_run.elastic_agent.zygote import NotForked, Zygote
from elastic_run.elastic_agent.zygotes import Zygotes

RECIPE = Recipe(("python", "-u", "train.py"), {"HOME": "/root"}, "script", "train.py", frozenset(["RANK"]))

NEVER = 1 << 30
"""More than the number of any process."""


class Played:
    """The process of a warm interpreter, and its end of the connection."""

    def __init__(self, recipe: Recipe, *, cwd: Path | None = None) -> None:
        self.recipe = recipe
        self.pid = NEVER + len(Stage.all)
        self.process = self
        self.connection, self._mine = socket.socketpair()
        self._mine.setblocking(False)
        self._rest = b""
        Stage.all.append(self)

    def say(self, *words: str) -> None:
        self._mine.sendall(pack(map(os.fsencode, words)))

    def warm(self, *imported: str) -> None:
        for name in imported:
            self.say("imported", name)
        self.say("ready", str(len(imported)))

    async def ordered(self) -> list[list[bytes]]:
        """What it was told since the last call, as soon as there is something; empty at the end of the connection."""
        data = await asyncio.get_running_loop().sock_recv(self._mine, 1 << 20)
        frames, self._rest = unpack(self._rest + data)
        return frames

    def close(self) -> None:
        self._mine.close()

    def poll(self) -> None:
        """As a process's."""

    def wait(self, _: float) -> None:
        """As a process's."""


class Stage:
    """All that are played in one test, and which of their sessions were killed."""

    all: list[Played]
    killed: list[int]


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Stage]:
    Stage.all, Stage.killed = [], []

    def killpg(session: int, signum: int) -> None:
        assert signum == signal.SIGKILL
        Stage.killed.append(session)

    monkeypatch.setattr(zygote, "Seed", Played)
    monkeypatch.setattr(os, "killpg", killpg)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Stage


@pytest.fixture
async def made() -> AsyncIterator[list[Zygotes]]:
    """To put those in that are to be closed."""
    opened: list[Zygotes] = []
    yield opened
    for each in opened:
        await each.close(save=False)
    for played in Stage.all:
        played.close()


def start(made: list[Zygotes], said: list[str] | None = None) -> Zygotes:
    each = Zygotes(RECIPE, cwd=None, say=(said if said is not None else []).append)
    each.start()
    made.append(each)
    return each


def file() -> Path:
    return preload.cache_file(RECIPE, os.environ, Path.cwd())


async def heard() -> None:
    """All that was said has been heard."""
    for _ in range(5):
        await asyncio.sleep(0)


def order(each: Zygotes) -> "asyncio.Task[list[int]]":
    null = os.open(os.devnull, os.O_WRONLY)

    async def fork() -> list[int]:
        try:
            return await each.fork([(null, null)], [{"RANK": "0"}])
        finally:
            os.close(null)

    return asyncio.create_task(fork())


async def replacing(each: Zygotes) -> tuple[Played, Played]:
    """The first interpreter, which is warm, and another that is being made to replace it."""
    (old,) = Stage.all
    old.warm("one")
    await each.settled()
    await old.ordered()
    each._told = ["two"]  # type: ignore[attr-defined]
    each._refresh()  # type: ignore[attr-defined]
    return old, Stage.all[1]


async def test_one_that_is_replaced_lets_go_of_its_workers_before_it_ends(made: list[Zygotes]) -> None:
    each = start(made)
    old, new = await replacing(each)
    new.warm("one", "two")
    await heard()
    assert each.account.imported == ["one", "two"]
    assert await old.ordered() == [], "it is told that nothing more comes"
    assert Stage.killed == [] and old.pid in each.sessions
    old.close()
    await heard()
    assert Stage.killed == [] and old.pid not in each.sessions


async def test_one_with_an_order_is_not_replaced_before_it_has_answered(made: list[Zygotes]) -> None:
    said: list[str] = []
    each = start(made, said)
    old, new = await replacing(each)
    fork = order(each)
    assert (await old.ordered())[0][0] == b"fork"
    new.warm("one", "two")
    await heard()
    assert each.account.imported == ["one"]
    old.say("forked", "4711")
    assert await fork == [4711]
    assert each.account.imported == ["one", "two"] and Stage.killed == [] and said == []


async def test_one_that_dies_with_an_order_is_replaced(made: list[Zygotes]) -> None:
    each = start(made)
    old, new = await replacing(each)
    fork = order(each)
    new.warm("one", "two")
    await heard()
    old.close()
    with pytest.raises(NotForked):
        await fork
    assert each.account.imported == ["one", "two"] and each.why == ""


# -- an answer that is late -------------------------------------------------------------------------------------------


async def begun(monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[Zygote, Played]:
    monkeypatch.setattr(zygote, "FORK_SECONDS", seconds)
    each = Zygote(RECIPE, cwd=None, changed=lambda: None)
    each.start()
    (played,) = Stage.all
    played.warm()
    await each.settled()
    return each, played


async def test_an_answer_that_lies_unread_at_the_timeout_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    each, played = await begun(monkeypatch, 0.0)
    loop = asyncio.get_running_loop()
    loop.remove_reader(each._socket.fileno())  # type: ignore[union-attr]  # as where the process is stopped meanwhile
    played.say("forked", "4711")
    assert await each.fork([], []) == [4711]
    assert Stage.killed == [] and not each.usable
    with pytest.raises(BrokenPipeError):
        played.say("forked", "4712")
    each.close()
    played.close()


async def test_one_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    each, played = await begun(monkeypatch, 0.0)
    with pytest.raises(NotForked, match="did not answer"):
        await each.fork([], [])
    assert Stage.killed == [played.pid]
    with pytest.raises(BrokenPipeError):
        played.say("forked", "4711")
    played.close()


# -- the list ---------------------------------------------------------------------------------------------------------


async def test_an_end_before_it_is_warm_leaves_the_list_as_it_was(made: list[Zygotes]) -> None:
    known = Learnt(steps=("one", "two"), watched=3.0)
    preload.save(file(), known)
    each = start(made)
    Stage.all[0].say("imported", "one")
    await heard()
    assert each.account.imported == ["one"]
    await each.close()
    assert preload.load(file()) == known


async def test_one_that_got_ready_while_the_agent_was_stopped_is_used(
    made: list[Zygotes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygotes, "WARM_UP_SECONDS", 0.0)
    each = start(made)
    asyncio.get_running_loop().remove_reader(each._current._socket.fileno())  # type: ignore[union-attr]
    Stage.all[0].warm("one")
    await each.settled()
    assert each.why == "" and each.account.imported == ["one"] and Stage.killed == []


async def test_what_is_refused_before_anything_is_imported_is_kept(made: list[Zygotes]) -> None:
    each = start(made)
    Stage.all[0].say("refused", "noisy", "prints ('loud')")
    Stage.all[0].warm()
    await each.settled()
    await each.close()
    found = preload.load(file())
    assert found is not None and found.until == ("noisy", "prints ('loud')")


async def test_an_import_that_does_not_end_is_not_waited_for_in_the_next_run(
    made: list[Zygotes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    preload.save(file(), Learnt(steps=("one", "stuck", "two"), complete=True))
    monkeypatch.setattr(zygotes, "WARM_UP_SECONDS", 0.01)
    each = start(made)
    (played,) = Stage.all
    played.say("folders", str(tmp_path))
    played.say("imported", "one")
    played.say("trying", "stuck")
    await each.settled()
    assert Stage.killed == [played.pid] and "the last of them stuck" in each.why
    await each.close()
    found: Any = preload.load(file())
    assert found.steps == ("one",) and found.until[0] == "stuck" and list(found.folders) == [str(tmp_path)]
