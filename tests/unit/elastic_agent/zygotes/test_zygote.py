"""Which warm interpreter is used, with interpreters that are played by the test."""

import asyncio
import os
import select
import signal
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastic_run.elastic_agent.warm.frames import pack, unpack
from elastic_run.elastic_agent.zygotes import choice, zygote
from elastic_run.elastic_agent.zygotes.choice import Zygotes
from elastic_run.elastic_agent.zygotes.seed import Recipe
from elastic_run.elastic_agent.zygotes.zygote import Begin, NotForked, Zygote

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
        self.received = 0
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

    monkeypatch.setattr(choice, "Seed", Played)
    monkeypatch.setattr(os, "killpg", killpg)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Stage


@pytest.fixture
async def made() -> AsyncIterator[list[Zygotes]]:
    """To put those in that are to be closed."""
    opened: list[Zygotes] = []
    yield opened
    for each in opened:
        await each.close()
    for played in Stage.all:
        played.close()


def start(made: list[Zygotes], said: list[str] | None = None) -> Zygotes:
    each = Zygotes(RECIPE, say=(said if said is not None else []).append)
    each.start()
    made.append(each)
    return each


async def heard() -> None:
    """All that was said has been heard."""
    for _ in range(5):
        await asyncio.sleep(0)


def order(each: Zygotes) -> "asyncio.Task[list[int]]":
    null = os.open(os.devnull, os.O_WRONLY)

    async def fork() -> list[int]:
        try:
            return await each.fork([(null, null)], [{"RANK": "0"}], [Begin()])
        finally:
            os.close(null)

    return asyncio.create_task(fork())


async def test_one_that_is_outdated_forks_nothing_and_another_is_made(made: list[Zygotes]) -> None:
    said: list[str] = []
    each = start(made, said)
    (old,) = Stage.all
    old.warm("one")
    await each.settled()
    await old.ordered()
    fork = order(each)
    assert (await old.ordered())[0][0] == b"fork"
    old.say("outdated", "train.py has changed")
    with pytest.raises(NotForked):
        await fork
    assert said == ["workers start as fresh interpreters: train.py has changed"]
    assert len(Stage.all) == 2 and Stage.killed == []
    new = Stage.all[1]
    new.warm("one", "two")
    await each.settled()
    assert each.account.imported == ["one", "two"] and each.why == ""
    assert await old.ordered() == [], "it is told that nothing more comes"


async def test_what_it_says_of_its_imports_is_kept(made: list[Zygotes]) -> None:
    each = start(made)
    (played,) = Stage.all
    played.say("trying", "one")
    played.say("refused", "one", "prints ('loud')", "train.py:3")
    played.say("ended", "train.py:4", "a call of main")
    played.warm()
    await each.settled()
    assert each.account.refused == [("one", "prints ('loud')", "train.py:3")]
    assert each.account.ended == ("train.py:4", "a call of main")


async def test_it_is_told_what_the_user_wants_and_what_is_declared(
    made: list[Zygotes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for preload, word in ((("a", "b.c"), b"a,b.c"), ((), b""), (None, b"none")):
        each = Zygotes(replace(RECIPE, preload=preload, table=(("x", "a", ""), ("y", "b"))), say=lambda _: None)
        each.start()
        made.append(each)
        greeting, *rows, end = await Stage.all[-1].ordered()
        assert (greeting[-1], rows, end) == (word, [[b"x", b"a", b""], [b"y", b"b"]], [b"begin"])


async def test_a_list_that_is_longer_than_a_socket_holds_is_sent(made: list[Zygotes]) -> None:
    table = tuple((f"package{number}" * 10,) for number in range(20_000))
    begun = Zygotes(replace(RECIPE, table=table), say=lambda _: None)
    made.append(begun)
    reading = threading.Thread(target=lambda: until_read(len(table) + 2))
    reading.start()
    begun.start()
    reading.join()
    assert begun.why == "" and Stage.all[0].received == len(table) + 2


def until_read(frames: int) -> None:
    """Reads what the first one is told, as its process would, until as many frames have come."""
    while not Stage.all:
        os.sched_yield()
    played = Stage.all[0]
    data = b""
    while played.received < frames:
        if select.select([played._mine], [], [], 10)[0]:  # type: ignore[attr-defined]
            data += played._mine.recv(1 << 20)  # type: ignore[attr-defined]
        whole, data = unpack(data)
        played.received += len(whole)


async def test_a_variable_that_changed_under_an_import_is_told_once(made: list[Zygotes]) -> None:
    said: list[str] = []
    each = start(made, said)
    assert each._pipe is not None  # type: ignore[attr-defined]
    for _ in range(2):
        os.write(each._pipe[1], pack([b"stale", b"torch._dynamo", b"TORCH_LOGS"]))  # type: ignore[attr-defined]
    await heard()
    assert len(said) == 1 and "torch._dynamo" in said[0] and "TORCH_LOGS" in said[0]


# -- an answer that is late -------------------------------------------------------------------------------------------


async def begun(monkeypatch: pytest.MonkeyPatch, seconds: float) -> tuple[Zygote, Played]:
    monkeypatch.setattr(zygote, "FORK_SECONDS", seconds)
    each = Zygote(RECIPE, Played(RECIPE))  # type: ignore[arg-type]  # it is played
    (played,) = Stage.all
    played.warm()
    await each.settled()
    return each, played


async def test_an_answer_that_lies_unread_at_the_timeout_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    each, played = await begun(monkeypatch, 0.0)
    loop = asyncio.get_running_loop()
    loop.remove_reader(each._socket.fileno())  # type: ignore[union-attr]  # as where the process is stopped meanwhile
    played.say("forked", "4711")
    assert await each.fork([], [], []) == [4711]
    assert Stage.killed == [] and not each.usable
    with pytest.raises(BrokenPipeError):
        played.say("forked", "4712")
    each.close()
    played.close()


async def test_one_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    each, played = await begun(monkeypatch, 0.0)
    with pytest.raises(NotForked, match="did not answer"):
        await each.fork([], [], [])
    assert Stage.killed == [played.pid]
    with pytest.raises(BrokenPipeError):
        played.say("forked", "4711")
    played.close()


async def test_one_that_got_ready_while_the_agent_was_stopped_is_used(
    made: list[Zygotes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "WARM_UP_SECONDS", 0.0)
    each = start(made)
    asyncio.get_running_loop().remove_reader(each._current._socket.fileno())  # type: ignore[union-attr]
    Stage.all[0].warm("one")
    await each.settled()
    assert each.why == "" and each.account.imported == ["one"] and Stage.killed == []


async def test_an_import_that_does_not_end_is_named(made: list[Zygotes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "WARM_UP_SECONDS", 0.01)
    each = start(made)
    (played,) = Stage.all
    played.say("imported", "one")
    played.say("trying", "stuck")
    await each.settled()
    assert Stage.killed == [played.pid] and "the last of them stuck" in each.why
