"""What the end of a worker is said to be, by what there is to tell of it."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_run.elastic_agent.workers import worker_exit
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.workers.worker_exit import describe_end

LOG = Path("/logs/stderr.log")


def worker(err: bytes = b"", out: bytes = b"", **facts: Any) -> Any:
    """A worker that is looked at, and is no process."""
    known = {"pid": 7, "born": time.monotonic(), "stopped": False, "condemned": ""}
    spec = WorkerSpec(3, 1, 0, ("python",), {})
    streams = {"err": SimpleNamespace(tail=err, cut=0), "out": SimpleNamespace(tail=out, cut=0)}
    return SimpleNamespace(spec=spec, **streams, **known | facts)


def output(log: Path | None = LOG) -> Any:
    kept: list[bytes] = []
    return SimpleNamespace(
        log_file=lambda *_: log, keep_tail=lambda *given: kept.append(given[3]) or Path("/tail"), kept=kept
    )


def kernel(*, own: bool = True, rise: int = 0, elsewhere: int = 0) -> Any:
    return SimpleNamespace(own=own, rise=rise, elsewhere=elsewhere, name=lambda: rise)


def test_it_carries_what_the_worker_was_and_its_code_or_its_signal() -> None:
    done, killed = (describe_end(worker(), code, output(), kernel()) for code in (0, -9))
    assert (done.round, done.rank, done.local_rank, done.pid, done.code, done.signal) == (3, 1, 0, 7, 0, None)
    assert (killed.code, killed.signal, killed.message) == (None, 9, "")


def test_what_was_stopped_is_not_explained_and_nothing_is_kept_of_it() -> None:
    shown = output(log=None)
    end = describe_end(worker(b"ValueError: x\n", stopped=True), 1, shown, kernel(rise=1))
    assert (end.stopped, end.message, end.log, end.oom_kills, shown.kept) == (True, "", "", 0, [])


def test_its_last_words_are_kept_where_there_is_no_log() -> None:
    shown = output(log=None)
    end = describe_end(worker(b"no room\n"), 1, shown, kernel())
    assert (end.message, end.log, shown.kept) == ("last line on stderr: no room", "/tail", [b"no room\n"])


def test_who_was_killed_for_the_jobs_standstill_says_so_before_anything_else() -> None:
    assert describe_end(worker(condemned="it stood still"), -9, output(), kernel(rise=2)).message == "it stood still"


@pytest.mark.parametrize(
    ("counted", "message", "kills"),
    [
        (kernel(rise=2), "killed by the kernel: out of memory", 2),
        (kernel(elsewhere=1), "it may have been killed by the kernel: out of memory", 0),
        (kernel(own=False, rise=1, elsewhere=1), "it may have been killed by the kernel: out of memory", 0),
    ],
)
def test_a_kill_is_the_kernels_where_it_counts_one(counted: Any, message: str, kills: int) -> None:
    end = describe_end(worker(), -9, output(), counted)
    assert end.message.startswith(message) and end.oom_kills == kills


def test_the_end_counts_where_it_cannot_be_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(worker_exit, "read_failure", refuse)
    end = describe_end(worker(), 3, output(), kernel())
    assert end.code == 3 and end.message.startswith("its exit status cannot be read")
