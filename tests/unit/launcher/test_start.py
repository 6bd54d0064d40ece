"""A machine that has no room for an agent: one sentence, and nothing is left running."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from elastic_run.elastic_agent.zygotes.seed import Seed
from elastic_run.launcher import cli, store_access
from elastic_run.launcher import run as wiring
from elastic_run.launcher.early import worker_settings
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.parse import parse
from elastic_run.rendezvous.store.embedded import watchdog
from elastic_run.rendezvous.store.endpoint import Endpoint
from elastic_run.rendezvous.store.memory_store import MemoryStore


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A launcher leaves the signals blocked that it heeds, since its process ends with it; this one goes on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Begun:
    """A process that was begun early."""

    closed = False

    def close(self) -> None:
        self.closed = True


def no_space(**_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/logs/job")


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_an_error_while_the_store_is_looked_after_is_told_and_does_not_end_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails(*_: object) -> None:
        raise ValueError("what nobody thought of")

    monkeypatch.setattr(watchdog, "look_after", fails)
    kept = watchdog.Kept(Endpoint("127.0.0.1", 1), 1, Path("/none"), Path("/none"), ())
    said: list[str] = []
    await store_access._look_after(kept, MemoryStore(), said.append)  # pyright: ignore[reportPrivateUsage]
    assert len(said) == 1 and "no longer monitored" in said[0] and "what nobody thought of" in said[0]


Break = Callable[[pytest.MonkeyPatch], None]


def break_folders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(wiring, "Output", no_space)


def break_threads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(threading.Thread, "start", no_thread)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return "train.py"


NO_THREAD = (
    "cannot start a thread (can't start new thread): raise the limit of processes (ulimit -u), or of memory (ulimit -v)"
)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (break_folders, "cannot create a folder for the logs ([Errno 28] No space left on device: '/logs/job')"),
        (
            break_threads,
            NO_THREAD,
        ),
    ],
)
def test_no_room_for_the_output_is_said_in_one_sentence(
    broken: Break, words: str, script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch)
    assert cli.main(["--start-method=spawn", script]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"[elastic-run] {words}") and said.count("\n") == 1


def test_no_thread_for_the_way_to_the_store_is_said_in_one_sentence(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def one_thread(thread: threading.Thread) -> None:
        if started:  # that which writes
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", one_thread)
    assert cli.main(["--start-method=spawn", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1", script]) == 2
    said = capsys.readouterr().err
    assert f"{NO_THREAD}\n" in said
    assert "Traceback" not in said


def test_what_was_begun_before_is_ended(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_folders(monkeypatch)
    early = Begun()
    options = parse(["--start-method=spawn", script], os.environ)
    with pytest.raises(UsageError), asyncio.Runner() as runner:
        runner.run(wiring.run(options, worker_settings(options, os.environ), early=("tag", cast(Seed, early))))
    assert early.closed


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("help", "elastic-run [flags] train.py"),
        ("help status", "elastic-run status ["),
        ("master --help", "elastic-run master [flags] train.py"),
        ("join -h", "elastic-run join LINE [flags] train.py"),
    ],
)
def test_each_command_has_a_help_of_its_own(words: str, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = cli.main(words.split())
    except SystemExit as ended:
        code = ended.code
    assert code == 0 and capsys.readouterr().out.startswith(first)
