"""Readers stop while too much waits to be written, once, and read again when there is room."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from elastic_run.elastic_agent.logs.backpressure import Backpressure


def test_readers_stop_once_while_the_output_is_full_and_read_again_when_there_is_room() -> None:
    calls: list[str] = []
    waiting: list[Callable[[], None]] = []
    output: Any = SimpleNamespace(full=False, when_room=waiting.append)
    readers = Backpressure(output, lambda: calls.append("stop"), lambda: calls.append("again"))
    readers.look()
    assert not readers.stopped and calls == []
    output.full = True
    readers.look()
    readers.look()
    assert readers.stopped and calls == ["stop"] and len(waiting) == 1
    output.full = False
    waiting.pop()()
    assert not readers.stopped and calls == ["stop", "again"]
