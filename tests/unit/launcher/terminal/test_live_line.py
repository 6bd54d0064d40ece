"""The line at the bottom of a terminal that tells how the job is."""

import asyncio
import dataclasses

import pytest

from elastic_run.launcher.terminal import live_line
from elastic_run.launcher.terminal.live_line import text
from elastic_run.master.status import Status
from elastic_run.rendezvous.base.cancel import running

from ....doubles.statuses import STATUS


def test_a_running_job_is_one_line_the_most_important_first() -> None:
    assert text(STATUS) == (
        "round 2, 11.0 s | 4 workers on 2 nodes | images [####........] 40/100, 12.5 s left | 1 of 3 restarts"
    )


def test_of_a_job_that_has_run_for_a_while_the_goodput_is_told() -> None:
    longer = dataclasses.replace(STATUS, goodput=dataclasses.replace(STATUS.goodput, trained=90.0, elapsed=100.0))
    assert text(longer).endswith("| goodput 90 %")


def test_a_job_that_waits_says_for_how_long() -> None:
    assert text(dataclasses.replace(STATUS, state="gathering", datasets=())).startswith("waits for nodes, 11.0 s")
    assert text(dataclasses.replace(STATUS, state="waiting", datasets=())).startswith("suspended, 11.0 s")


async def test_a_job_without_a_master_says_so_and_at_the_end_there_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "FIRST", 0.0)
    monkeypatch.setattr(live_line, "EACH", 0.0)
    shown: list[str] = []
    told = asyncio.Event()
    answers = [STATUS, OSError(), STATUS]

    async def ask() -> Status:
        if not answers:
            await asyncio.get_running_loop().create_future()
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    class Screen:
        def live(self, line: str) -> None:
            shown.append(line)
            if len(shown) == 3:
                told.set()

    async with running(live_line.keep(ask, Screen().live), "live line"):
        await told.wait()
    assert shown == [text(STATUS), "no master answers", text(STATUS), ""]
