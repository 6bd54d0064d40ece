"""A status that is watched on a terminal: what its keys ask of the job, and for how long."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field

import pytest

from elastic_run.launcher.history.records import Snapshot
from elastic_run.launcher.terminal import watched
from elastic_run.launcher.terminal.keys import OBSERVER_HELP, View
from elastic_run.launcher.terminal.watched import Watched
from elastic_run.master.diagnosis.evidence import NodeEvidence
from elastic_run.master.status import Status
from elastic_run.rendezvous.base.cancel import cancel

from ...histories import job

DEADLINE = 20.0
"""Seconds that anything here may take on a busy machine."""

STATUS = next(each.status for each in job()["a"] if isinstance(each, Snapshot))


@dataclass
class Job:
    """A double of a job, which tells how it is from some time on, and never how a rank is."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    tells: asyncio.Event = field(default_factory=asyncio.Event)
    looks: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def status(self) -> Status:
        self.asked.set()
        await self.tells.wait()
        return STATUS

    async def look(self, status: Status, rank: int, *, tail: bool) -> NodeEvidence:
        self.looks.append((rank, tail))
        self.begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.ended.set()


@dataclass
class Terminal:
    """One whose keys are read; `pressed`: one was."""

    ours: int
    pressed: asyncio.Event = field(default_factory=asyncio.Event)

    def press(self, view: View, key: str, world_size: int, page: int = 10) -> View | None:
        self.pressed.set()
        return press(view, key, world_size, page)

    async def type(self, keys: str) -> None:
        self.pressed.clear()
        os.write(self.ours, keys.encode())
        await asyncio.wait_for(self.pressed.wait(), DEADLINE)


press = watched.press


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    ours, theirs = os.openpty()
    try:
        with os.fdopen(theirs) as stdin:
            made = Terminal(ours)
            monkeypatch.setattr("sys.stdin", stdin)
            monkeypatch.setattr(watched, "press", made.press)
            yield made
    finally:
        os.close(ours)


@contextlib.asynccontextmanager
async def watching(doubled: Job) -> AsyncGenerator[None]:
    task = asyncio.create_task(Watched(doubled.status, doubled.look).run())
    try:
        await asyncio.wait_for(doubled.asked.wait(), DEADLINE)  # from here on the keys are read
        yield
    finally:
        await cancel(task)


async def test_a_key_before_the_first_answer_shows_the_log_when_there_is_one(terminal: Terminal) -> None:
    doubled = Job()
    async with watching(doubled):
        await terminal.type("l")
        doubled.tells.set()
        await asyncio.wait_for(doubled.begun.wait(), DEADLINE)
    assert doubled.looks == [(0, True)]


async def test_nobody_looks_at_a_rank_that_is_seen_no_more(terminal: Terminal) -> None:
    doubled = Job()
    doubled.tells.set()
    async with watching(doubled):
        await terminal.type("l")
        await asyncio.wait_for(doubled.begun.wait(), DEADLINE)
        await terminal.type("\x1b")
        await asyncio.wait_for(doubled.ended.wait(), DEADLINE)


async def test_an_observer_is_told_on_the_last_line_that_no_rank_is_shown(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    doubled = Job()
    doubled.tells.set()
    task = asyncio.create_task(Watched(doubled.status, None).run())
    await asyncio.wait_for(doubled.asked.wait(), DEADLINE)
    await terminal.type("ls7\rq")
    await asyncio.wait_for(task, DEADLINE)
    shown = capsys.readouterr().out
    assert OBSERVER_HELP in shown and "rank 0, the last output" not in shown and "rank 7_" not in shown
