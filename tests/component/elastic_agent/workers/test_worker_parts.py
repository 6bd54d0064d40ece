"""What `Workers` consists of, each by itself: starting, hearing an end, finding what is left, ending it."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from elastic_run.elastic_agent.logs.output import Output
from elastic_run.elastic_agent.processes.guardian import service_tag
from elastic_run.elastic_agent.processes.reaper import Reaper
from elastic_run.elastic_agent.workers.process_search import ProcessSearch
from elastic_run.elastic_agent.workers.started_worker import StartedWorker, WorkerSpec
from elastic_run.elastic_agent.workers.worker_ending import StopRequest, WorkerEnding
from elastic_run.elastic_agent.workers.worker_starter import StartFailed, WorkerStarter
from elastic_run.elastic_agent.zygotes.seed import tagged

DEADLINE = 60.0
ASLEEP = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
DEAF = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)\n"
)


class Parts:
    """The parts, without the one that puts them together."""

    def __init__(self) -> None:
        self.tag = f"parts-{os.getpid()}-{id(self)}"
        self.shown, self.spared, self.ends = io.BytesIO(), set[int](), list[tuple[int, int]]()
        self.output = Output(host="a", log_dir=None, job_id="job", stream_out=self.shown, stream_err=self.shown)
        self.reaper, self.changed = Reaper(), asyncio.Event()
        self.starter = WorkerStarter(self.tag, self.output, None, None)
        self.search = ProcessSearch(self.tag, self.reaper, lambda: self.spared, alone=False)
        self.ending = WorkerEnding(self.search, self.output, Deaf(), 10.0, self.changed)  # type: ignore[arg-type]

    def start(self, *commands: tuple[str, ...]) -> list[StartedWorker]:
        specs = [WorkerSpec(1, rank, rank, argv, dict(os.environ)) for rank, argv in enumerate(commands)]
        return self.starter.start_afresh(specs, self.attend)

    def attend(self, worker: StartedWorker) -> None:
        worker.attend(self.hear, self.reaper, self.output.say)
        for _, pipe in worker.pipes:
            pipe.listen(lambda: None)

    def hear(self, worker: StartedWorker, code: int) -> None:
        self.ends.append((worker.spec.rank, code))

    def found(self, *sessions: int, **how: Any) -> set[int]:
        return {each.pid for each in self.search.find_left(sessions, **how) or ()}


class Deaf:
    """A guardian that nobody needs."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture
async def parts() -> Any:
    made = Parts()
    yield made
    await made.output.close(succeeded=True)


@pytest.fixture
def stranger(parts: Parts) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own that carries the agent's tag, and the mark of a service."""
    environment = tagged(tagged(os.environ, parts.tag), service_tag(parts.tag))
    with subprocess.Popen(ASLEEP, env=environment, start_new_session=True) as process:
        yield process
        process.kill()


async def test_an_end_is_heard_once_with_its_code_and_all_that_was_printed(parts: Parts) -> None:
    (worker,) = parts.start((sys.executable, "-S", "-c", "print('bye'); raise SystemExit(4)"))
    async with asyncio.timeout(DEADLINE):
        await worker.ended.wait()
    worker.check_end()
    assert parts.ends == [(0, 4)] and worker.out.tail == b"bye\n"
    worker.send(signal.SIGKILL)  # its number may have another owner: nothing is sent
    worker.end_output()
    assert worker.out.closed


async def test_where_one_of_them_cannot_be_started_those_before_it_are_ended(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[StartedWorker] = []
    popen = subprocess.Popen

    def attend(worker: StartedWorker) -> None:
        started.append(worker)
        parts.attend(worker)

    def second_fails(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return popen(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", second_fails)
    with pytest.raises(StartFailed, match=r"rank 1 \(local 1\)"):
        parts.starter.start_afresh([WorkerSpec(1, rank, rank, ASLEEP, {}) for rank in (0, 1)], attend)
    async with asyncio.timeout(DEADLINE):
        await started[0].ended.wait()
    assert parts.ends == [(0, -signal.SIGKILL)] and not started[0].counts
    started[0].end_output()


async def test_what_carries_the_tag_is_found_unless_its_session_is_spared(
    parts: Parts, stranger: "subprocess.Popen[bytes]"
) -> None:
    (worker,) = parts.start(ASLEEP)
    both = {worker.pid, stranger.pid}
    assert parts.found(worker.pid) == both
    assert parts.found(worker.pid, all_of_ours=False) == {worker.pid}
    assert parts.found(worker.pid, only={worker.pid}) == both, "a service ends with the workers"
    parts.spared.add(stranger.pid)
    assert parts.found(worker.pid) == {worker.pid}
    await parts.ending.end_some([worker], 0.0)
    assert stranger.poll() is None


async def test_who_is_deaf_to_the_first_signal_is_killed_after_the_grace(parts: Parts) -> None:
    deaf, other = parts.start((sys.executable, "-S", "-c", DEAF), ASLEEP)
    async with asyncio.timeout(DEADLINE):
        while not deaf.out.tail:  # noqa: ASYNC110 - its pipe tells nobody
            await asyncio.sleep(0.005)
    asked = StopRequest(until=asyncio.get_running_loop().time() + 0.2)
    for worker in (deaf, other):
        worker.send(asked.first)
    await parts.ending.end_all([deaf, other], [], asked)
    assert dict(parts.ends) == {0: -signal.SIGKILL, 1: -signal.SIGTERM}
    assert parts.ending.unkillable == () and not parts.changed.is_set()


async def test_who_does_not_die_is_given_up_and_known(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.ending = WorkerEnding(parts.search, parts.output, Deaf(), 0.1, parts.changed)  # type: ignore[arg-type]
    (worker,) = parts.start(ASLEEP)
    with monkeypatch.context() as patch:
        patch.setattr(signal, "pidfd_send_signal", lambda *_: None)
        await parts.ending.end_all([worker], [], StopRequest(until=0.0))
    assert worker.given_up and parts.changed.is_set() and parts.ending.unkillable == (worker.pid,)
    os.kill(worker.pid, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE):
        await worker.ended.wait()
    assert parts.ending.unkillable == ()
    worker.end_output()
