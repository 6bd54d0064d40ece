"""The end of `elastic-job logs -f`: what is left is printed, and Ctrl-C waits for nothing."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from elastic_run.launcher.cluster import pod_logs
from elastic_run.launcher.cluster.pod_logs import Tails
from elastic_run.master.nodes.kubernetes import objects

DEADLINE = 20.0
"""Seconds that anything here may take on a busy machine; it takes milliseconds."""


class Server:
    """One pod of a job; it runs for so many looks, and its log stands still until then."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.ended, self.asked = threading.Event(), threading.Event()

    def path(self, *words: str) -> str:
        return "/".join(words)

    def ask_now(self, verb: str, path: str, **query: object) -> Any:
        self.looks -= 1
        if self.looks <= 0:
            self.ended.set()
        labels = {objects.COMPONENT: "node"}
        status = {"phase": "Succeeded" if self.ended.is_set() else "Running"}
        return {"items": [{"metadata": {"name": "night-worker-0", "labels": labels}, "status": status}]}

    def text(self, path: str, query: object, silence: float) -> Iterator[bytes]:
        self.asked.set()
        yield b"2026-11-27T23:59:01.5Z first\n"
        assert self.ended.wait(DEADLINE)
        yield b"2026-11-27T23:59:01.6Z last, without an end"


def followed(server: Any, over: Any) -> threading.Thread:
    def follow() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            Tails(server, "night", -1, master=False).until(over)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    return thread


def test_the_last_line_of_a_pod_that_ends_after_its_job_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pod_logs, "LOG_PAUSE", 0.01)
    monkeypatch.setattr(pod_logs, "LAST_LINES", 2 * DEADLINE)
    thread = followed(Server(3), lambda: True)
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert capsys.readouterr().out == "first\nlast, without an end\n"


def test_whoever_interrupts_it_waits_for_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "LOG_PAUSE", 0.01)
    monkeypatch.setattr(pod_logs, "LAST_LINES", 2 * DEADLINE)
    server = Server(1000000)

    def over() -> bool:
        if server.asked.is_set():
            raise KeyboardInterrupt
        return False

    thread = followed(server, over)
    thread.join(DEADLINE)
    try:
        assert not thread.is_alive()
    finally:
        server.ended.set()
